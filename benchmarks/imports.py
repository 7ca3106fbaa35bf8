"""What imports cost, as part of the whole run; ``start`` tells more."""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path

from benchmarks.start import MEASURE, TARGET, process
from benchmarks.targets import Target, at_most

HELP = "import sys; sys.argv = ['agent-memory', '--help']; import agent_memory.cli as c; c.main()"


def run(_directory: Path, tiny: bool) -> list[Target]:
    """Measure whole processes, in turn."""
    samples = 1 if tiny else 11
    found = [
        at_most(
            "import agent_memory ÷ attrs, asyncio, json, logging",
            _ratio("import agent_memory", MEASURE, samples),
            TARGET,
        )
    ]
    if importlib.util.find_spec("typer"):
        ratio = _ratio(HELP, "import typer", samples)
        found.append(at_most("agent-memory --help ÷ import typer", ratio, 4))
    return found


def _ratio(code: str, measure: str, samples: int) -> float:
    times = [(process(code), process(measure)) for _ in range(samples)]
    return statistics.median(one for one, _ in times) / statistics.median(two for _, two in times)
