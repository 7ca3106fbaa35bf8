"""Checks of arguments: each returns the value, or raises an error that says what it must be."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import attrs

from agent_memory.base_errors import InvalidRequestError


def checked_count(value: object, name: str, at_least: int | None = 0) -> int:
    """Return an argument that is a whole number; ``True`` and ``1.0`` are not.

    Args:
        value: the argument.
        name: what the error calls it.
        at_least: the smallest that is allowed; None for any.

    Raises:
        InvalidRequestError: it is something else, or too small.
    """
    if type(value) is int and (at_least is None or value >= at_least):
        return value
    least = "" if at_least is None else f" of at least {at_least}"
    raise InvalidRequestError(f"{name} must be a whole number{least}, not {value!r}")


def checked_seconds(value: object, name: str, *, zero: bool = False, none: str = "") -> float:
    """Return a finite number of seconds above 0.

    Args:
        value: the argument.
        name: what the error calls it.
        zero: whether 0 is allowed, too.
        none: what None would mean, for the error of an argument that may be None.

    Raises:
        InvalidRequestError: it is something else, or out of range.
    """
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (0 < value < math.inf or (zero and value == 0))
    ):
        return value
    least = "of at least 0" if zero else "above 0"
    other = f", or None for {none}," if none else ","
    raise InvalidRequestError(f"{name} must be a number of seconds {least}{other} not {value!r}")


def checked_duration(value: object, name: str) -> timedelta:
    """Return a timedelta of at least 0.

    Raises:
        InvalidRequestError: it is something else, or negative.
    """
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise InvalidRequestError(f"{name} must be a timedelta >= 0, not {value!r}")
    return value


def count_field(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check a field of an attrs class: a whole number of at least 0."""
    checked_count(value, attribute.name)


def bool_field(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check a field of an attrs class: True or False."""
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{attribute.name} must be True or False, not {value!r}")
