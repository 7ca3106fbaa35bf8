"""Reading a file that others append to: bytes and lines of what it held when it was opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from typing import Final

BLOCK: Final = 1 << 18
"""How many bytes are read at a time at most."""

FIRST_BLOCK: Final = 1 << 13
"""How many bytes are read at first: mostly a few lines are wanted."""

_SMALL: Final = 1 << 15  # a file up to this size is read in one go


class ChangedError(OSError):
    """The file became shorter while it was read: a torn end was cut. Read it again."""


class Source:
    """The first `size` bytes of an open file; no byte beyond is looked at.

    Args:
        file: open for reading, unbuffered; whoever opened it closes it.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.stat = os.fstat(file.fileno())
        self.size = self.stat.st_size
        self._all = self._load(0, self.size) if self.size <= _SMALL else None

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` up to `stop`.

        Raises:
            ChangedError: they are no longer there.
        """
        return self._load(start, stop) if self._all is None else self._all[start:stop]

    def _load(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        data = self._file.read(stop - start)
        if len(data) == stop - start:
            return data
        parts = [data]
        missing = stop - start - len(data)
        while missing:
            data = self._file.read(missing)
            if not data:
                raise ChangedError
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)


def lines(source: Source, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    r"""Yield the whole lines from `start`, a line's first byte, to `stop`: place and text.

    Only ``\n`` ends a line: JSON escapes it within strings, and nothing else is looked for.
    """
    parts: list[bytes] = []
    at, size = start, FIRST_BLOCK
    while start < stop:
        block = source.read(start, min(start + size, stop))
        start += len(block)
        size = min(2 * size, BLOCK)
        *whole, rest = block.split(b"\n")
        for part in whole:
            line = b"".join((*parts, part))
            parts.clear()
            yield at, line
            at += len(line) + 1
        parts.append(rest)


def lines_back(source: Source, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield what :func:`lines` yields, the newest line first, without reading what is older."""
    parts: list[bytes] = []  # of the line being collected, its end first
    ended = False  # what follows the last line's end is no line
    low, size = stop, FIRST_BLOCK
    while low > start:
        block = source.read(max(start, low - size), low)
        size = min(2 * size, BLOCK)
        cut, low = low, low - len(block)
        rest, *whole = block.split(b"\n")
        for part in reversed(whole):
            parts.append(part)
            if ended:
                yield cut - len(part), b"".join(reversed(parts))
            parts.clear()
            ended = True
            cut -= len(part) + 1
        parts.append(rest)
    if ended:
        yield start, b"".join(reversed(parts))
