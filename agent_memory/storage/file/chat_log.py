"""One chat's file as a log: the bytes and lines of what it held when it was opened."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from io import FileIO
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.storage.file.line_format import (
    DamagedBytes,
    EntryRef,
    HeaderLine,
    ParsedLine,
    StoredEntry,
    decode_header,
    entry_ref,
    parse_line,
    positions_in,
)

BLOCK: Final = 1 << 18
"""How many bytes are read at a time at most."""

FIRST_BLOCK: Final = 1 << 13
"""How many bytes are read at first: mostly a few lines are wanted."""

_SMALL: Final = 1 << 15  # a file up to this size is read in one go


_raw_decode = json.JSONDecoder().raw_decode


class ChangedError(OSError):
    """The file became shorter while it was read: a torn end was cut. Read it again."""


class FileSnapshot:
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


def lines(snapshot: FileSnapshot, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    r"""Yield the whole lines from `start`, a line's first byte, to `stop`: place and text.

    Only ``\n`` ends a line: JSON escapes it within strings, and nothing else is looked for.
    """
    parts: list[bytes] = []
    at, size = start, FIRST_BLOCK
    while start < stop:
        block = snapshot.read(start, min(start + size, stop))
        start += len(block)
        size = min(2 * size, BLOCK)
        *whole, rest = block.split(b"\n")
        for part in whole:
            line = b"".join((*parts, part))
            parts.clear()
            yield at, line
            at += len(line) + 1
        parts.append(rest)


def lines_back(snapshot: FileSnapshot, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield what :func:`lines` yields, the newest line first, without reading what is older."""
    parts: list[bytes] = []  # of the line being collected, its end first
    ended = False  # what follows the last line's end is no line
    low, size = stop, FIRST_BLOCK
    while low > start:
        block = snapshot.read(max(start, low - size), low)
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


KNOWN: Final = 64
"""How many of the newest messages are known when they are saved again."""

_WINDOW: Final = 2 * FIRST_BLOCK  # a stretch this short is read through, not searched


@attrs.frozen
class FileHeader:
    """How a file begins.

    Args:
        header: its first line; None when there is none (yet), or it cannot be read.
        floor: the header's, or what the first record tells of it.
        start: the first byte of the first record.
        damage: the first line, when it is no header.
    """

    header: HeaderLine | None
    floor: int
    start: int
    damage: DamagedBytes | None = None


@attrs.frozen
class LogEnd:
    """Where a file's log ends.

    Args:
        last: the newest position; the floor if there is none.
        end: the byte after the last whole batch; what follows was never saved.
    """

    last: int
    end: int


def read_header(snapshot: FileSnapshot, path: str, key: ChatKey) -> FileHeader:
    """Return how a file begins.

    Args:
        snapshot: the file.
        path: its path, for errors.
        key: whose chat it must be.

    Raises:
        CorruptedRecordError: a newer version wrote it, or it is another chat's.
    """
    first = next(lines(snapshot, 0, snapshot.size), None)
    if first is None:
        return FileHeader(None, 0, 0)  # new, or torn while its first line was written
    line, agent_id = first[1], key.agent_id
    header = decode_header(line, path)
    if header is not None:
        _check_owner(header, path, key)
        return FileHeader(header, header.floor, len(line) + 1)
    # When its end was lost, the first entries are on it too.
    start = len(line) + 1 if positions_in(line, 0, agent_id) is None else 0
    bad = DamagedBytes(0, len(line), "the first line does not say whose chat this is")
    return FileHeader(None, _infer_floor(snapshot, start, agent_id), start, bad)


def _check_owner(header: HeaderLine, path: str, key: ChatKey) -> None:
    if header.key != key:
        raise CorruptedRecordError(
            f"{path} says that it is the chat of {header.key}, but lies where that of {key} "
            "belongs; move it back",
            key=key,
            location=path,
        )


def _infer_floor(snapshot: FileSnapshot, start: int, agent_id: str) -> int:
    """Infer a lost floor: every line before the first record stood for one position."""
    for lost, (at, line) in enumerate(lines(snapshot, start, snapshot.size)):
        positions = positions_in(line, at, agent_id)
        if positions is not None:
            return max(0, positions[0] - 1 - lost)
    return 0


def find_log_end(snapshot: FileSnapshot, head: FileHeader, agent_id: str) -> LogEnd:
    """Return where a file's log ends: a batch counts once its last line is whole.

    A whole line that cannot be read was saved once, so it keeps its position; a batch whose
    last line is missing never was, so it is cut.
    """
    end, lost, legible = head.start, 0, 0
    for at, line in lines_back(snapshot, head.start, snapshot.size):
        end = max(end, at + len(line) + 1)
        parsed = parse_line(line, at, agent_id)
        if isinstance(parsed, StoredEntry):
            ref = parsed.ref
            last = max(ref.position + lost, legible)
            if last >= ref.batch_end:
                return LogEnd(last, end)
            return _before_batch(snapshot, head, ref, LogEnd(last, end), agent_id)
        positions = positions_in(line, at, agent_id)
        if positions is not None:
            legible = max(legible, positions[1] + lost)
        lost += 1
    return LogEnd(max(head.floor + lost, legible), end)


def _before_batch(
    snapshot: FileSnapshot, head: FileHeader, newest: EntryRef, whole: LogEnd, agent_id: str
) -> LogEnd:
    """Leave out a batch that lacks its end, unless its lines disagree on where that is."""
    cut = head.start
    for ref in refs_back(snapshot, head.start, snapshot.size, agent_id):
        if ref.position < newest.batch_start:
            break
        if ref.batch_end != newest.batch_end:
            return whole
        cut = ref.start
    return LogEnd(max(newest.batch_start - 1, head.floor), cut)


def refs_back(snapshot: FileSnapshot, start: int, stop: int, agent_id: str) -> Iterator[EntryRef]:
    """Yield the refs between two bytes, the newest first."""
    for at, line in lines_back(snapshot, start, stop):
        ref = entry_ref(line, at, agent_id)
        if ref is not None:
            yield ref


def known_refs(
    snapshot: FileSnapshot, head: FileHeader, tail: LogEnd, agent_id: str
) -> list[EntryRef]:
    """Return, oldest first, the newest 64 messages or more, and all of the last append."""
    known: list[EntryRef] = []
    messages = 0
    for ref in refs_back(snapshot, head.start, tail.end, agent_id):
        if messages >= KNOWN and ref.position < known[0].batch_start:
            break
        known.append(ref)
        messages += not ref.is_note
    known.reverse()
    return known


def entries_after(
    snapshot: FileSnapshot, head: FileHeader, tail: LogEnd, low: int, agent_id: str
) -> Iterator[ParsedLine]:
    """Yield what lies behind position `low`: records, and what cannot be read.

    A record whose position is not above its predecessor's is given as bad.
    """
    previous = low
    for at, line in lines(snapshot, seek(snapshot, head, tail, low, agent_id), tail.end):
        parsed = parse_line(line, at, agent_id)
        if isinstance(parsed, DamagedBytes):
            yield parsed
            continue
        ref = parsed.ref
        if previous < ref.position <= tail.last:
            previous = ref.position
            yield parsed
        elif previous > low or ref.position > tail.last:
            reason = f"position {ref.position} follows {previous}"
            yield DamagedBytes(ref.start, ref.stop, reason)


def seek(snapshot: FileSnapshot, head: FileHeader, tail: LogEnd, low: int, agent_id: str) -> int:
    """Return the first byte of a line, before which lie only positions up to `low`.

    Searched from the end in growing steps, then by halves: whoever reads on from a position
    is mostly near the end, and nobody parses what lies before.
    """
    if low <= head.floor:
        return head.start
    start, stop, step = head.start, tail.end, FIRST_BLOCK
    while stop - start > step:
        stop = tail.end - step
        passed = _passed(snapshot, stop, tail.end, low, agent_id)
        if passed is not None:
            start, stop = passed, tail.end
            break
        step *= 4
    while stop - start > _WINDOW:
        middle = (start + stop) // 2
        passed = _passed(snapshot, middle, tail.end, low, agent_id)
        start, stop = (start, middle) if passed is None else (passed, stop)
    for at, line in lines(snapshot, start, tail.end):
        ref = entry_ref(line, at, agent_id)
        if ref is not None and ref.position > low:
            break
        if ref is not None:
            start = at + len(line) + 1
    return start


def _passed(snapshot: FileSnapshot, start: int, end: int, low: int, agent_id: str) -> int | None:
    """Return the end of the first readable line behind a byte, if it is one up to `low`."""
    behind = lines(snapshot, start - 1, end)
    next(behind, None)  # the rest of the line that the byte before `start` belongs to
    for at, line in behind:
        ref = entry_ref(line, at, agent_id)
        if ref is not None:
            return at + len(line) + 1 if ref.position <= low else None
    return None
