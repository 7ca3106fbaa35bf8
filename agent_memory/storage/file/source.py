"""Reading a file that others append to: bytes and lines of what it held when it was opened."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from io import FileIO
from typing import Final

BLOCK: Final = 1 << 18
"""How many bytes are read at a time at most."""

FIRST_BLOCK: Final = 1 << 13
"""How many bytes are read at first: mostly a few lines are wanted."""

_SMALL: Final = 1 << 15  # a file up to this size is read in one go


_raw_decode = json.JSONDecoder().raw_decode


class ChangedError(OSError):
    """The file became shorter while it was read: a torn end was cut. Read it again."""


class Source:
    """What an open file held when it was looked at first; no byte beyond is read.

    A last line that an editor left without its end, but that is whole, reads as if it had one:
    nothing that was saved may be taken for a torn write.

    Args:
        file: open for reading, unbuffered; whoever opened it closes it.

    Attributes:
        stat: the file's.
        size: its length, with the end that is missing.
        lacks_end: whether the last line is whole and its end is missing.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.stat = os.fstat(file.fileno())
        self.size = self._stored = self.stat.st_size
        self._all = self._load(0, self.size) if self.size <= _SMALL else None
        self.lacks_end = self.size > 0 and self._ends_in_whole_line()
        if self.lacks_end:
            self.size += 1
            self._all = None if self._all is None else self._all + b"\n"

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` up to `stop`.

        Raises:
            ChangedError: they are no longer there.
        """
        if self._all is not None:
            return self._all[start:stop]
        if stop <= self._stored:
            return self._load(start, stop)
        return self._load(start, self._stored) + b"\n"

    def _ends_in_whole_line(self) -> bool:
        if self.read(self.size - 1, self.size) == b"\n":
            return False
        low, size, parts = self.size, FIRST_BLOCK, list[bytes]()
        while low > 0:
            start = max(0, low - size)
            _before, end, rest = self.read(start, low).rpartition(b"\n")
            parts.append(rest)
            if end:
                break
            low, size = start, min(2 * size, BLOCK)
        return _is_whole(b"".join(reversed(parts)))

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


def _is_whole(line: bytes) -> bool:
    """Whether a line without an end is one or more objects of JSON and nothing else."""
    try:
        rest = line.decode().strip()
        while rest:
            fields, stop = _raw_decode(rest)
            if not isinstance(fields, dict):
                return False
            rest = rest[stop:].lstrip()
    except (ValueError, RecursionError):
        return False
    return bool(line.strip())


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
