"""Notes that speak of positions, in a log where these are others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from agent_memory.log import RETRACTED
from agent_memory.providers.part import as_list
from agent_memory.records import Entry, Note

_HINT: Final = "hidden"
"""In a retraction: between which positions nothing is shown any more; a hint, for speed."""


def speaks_of_positions(entry: Entry) -> bool:
    """Whether an entry holds a hint in positions."""
    return isinstance(entry, Note) and entry.kind == RETRACTED and _HINT in entry.data


def relocated(entry: Entry, place_of: Callable[[int], int | None]) -> Entry:
    """Return an entry as it may lie in another log: without a hint that misleads there.

    Args:
        entry: a message or note of the source.
        place_of: gives the position in the target for one in the source, None if unknown.
    """
    if not isinstance(entry, Note) or not speaks_of_positions(entry):
        return entry
    hidden: Any = entry.data[_HINT]
    if all(place_of(position) == position for position in as_list(hidden)):
        return entry
    return without_hints(entry)


def without_hints(entry: Entry) -> Entry:
    """Return an entry without what two copies of it may differ in."""
    if not isinstance(entry, Note) or not speaks_of_positions(entry):
        return entry
    data = {name: value for name, value in entry.data.items() if name != _HINT}
    bare = attrs.evolve(entry, data=data)
    if entry.position is None or entry.agent_id is None:
        return bare
    return bare.placed(entry.position, entry.agent_id)
