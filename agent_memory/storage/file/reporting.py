"""Telling of damage in the log, each place once."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

import attrs

from agent_memory.storage.file.disk import open_to_read
from agent_memory.storage.file.lock import nobody_writes
from agent_memory.storage.file.reading import Reading, location
from agent_memory.storage.file.source import Source

logger = logging.getLogger(__name__)

_MOST: Final = 10_000  # places remembered; a store with more is told of again


@attrs.define(eq=False)
class DamageReport:
    """Logs one warning for each damaged place that a store meets."""

    _told: set[tuple[str, int]] = attrs.field(factory=set[tuple[str, int]])

    def report(self, path: str, reading: Reading) -> None:
        """Log what a reading met and was not logged yet."""
        for bad in reading.bad:
            if self._is_new(path, bad.start):
                logger.warning("%s cannot be read: %s", location(path, bad), bad.reason)
        end = reading.tail.end
        if reading.size > end and (path, end) not in self._told and _is_torn(path, reading.size):
            self._told.add((path, end))
            logger.warning(
                "%s, byte %d: %d bytes of a save that never ended; the next save cuts them",
                path,
                end,
                reading.size - end,
            )

    def _is_new(self, path: str, start: int) -> bool:
        if (path, start) in self._told:
            return False
        if len(self._told) >= _MOST:
            self._told.clear()
        self._told.add((path, start))
        return True


def _is_torn(path: str, size: int) -> bool:
    """Whether a file's torn end is one for good, not a save that is just being written."""
    with suppress(OSError), open_to_read(path) as file:
        return nobody_writes(file.fileno()) and Source(file).size == size
    return False
