"""What is promised of speed, and whether a run kept it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs


@attrs.frozen
class Target:
    """One promise and what was measured.

    Args:
        name: what is compared, with the durability that both sides have.
        value: what was measured: a ratio, unless `unit` says otherwise.
        limit: what it may be at most, or must be at least.
        bound: which of the two.
        unit: of `value` and `limit`; ``"×"`` for a ratio.
    """

    name: str
    value: float
    limit: float
    bound: Literal["at most", "at least"]
    unit: str = "×"

    @property
    def is_met(self) -> bool:
        if self.bound == "at most":
            return self.value <= self.limit
        return self.value >= self.limit

    def line(self) -> str:
        """Return it as a line for people."""
        told = "met   " if self.is_met else "MISSED"
        sign = "≤" if self.bound == "at most" else "≥"
        return f"{told} {self.name:72} {self.value:>10,.2f} {self.unit} ({sign} {self.limit:g})"


def at_most(name: str, value: float, limit: float, unit: str = "×") -> Target:
    return Target(name, value, limit, "at most", unit)


def at_least(name: str, value: float, limit: float, unit: str = "×") -> Target:
    return Target(name, value, limit, "at least", unit)


def print_targets(targets: Iterable[Target]) -> None:
    print()
    for target in targets:
        print(target.line())
