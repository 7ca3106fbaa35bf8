"""One chat's file as a log: a snapshot of its bytes, its lines, where it begins and ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cached_property
from io import FileIO
from typing import Final

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.storage.file.line_format import (
    DamagedBytes,
    EntryRef,
    FileHeader,
    StoredEntry,
    decode_header,
    entry_ref,
    parse_line,
    positions_in,
)

BLOCK: Final = 1 << 18
"""The largest read, in bytes."""

FIRST_BLOCK: Final = 1 << 13
"""The first read, in bytes: usually only a few lines are needed."""

_SMALL: Final = 1 << 15  # a file up to this size is read in one go


_raw_decode = json.JSONDecoder().raw_decode


class ChangedError(OSError):
    """The file was truncated while it was read (a torn end was cut); read it again."""


class FileSnapshot:
    """The content of an open file up to its size when opened; later appends are not seen.

    A complete last line without a newline, which an editor may strip, reads as if it had one:
    what was saved must not be taken for a torn write.

    Args:
        file: open for reading, unbuffered; whoever opened it closes it.

    Attributes:
        file: the file.
        stat: what it was when opened.
        size: its length, including a missing newline at the end.
        lacks_end: whether the last line is complete but for its newline.
    """

    def __init__(self, file: FileIO) -> None:
        self.file = file
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
        self.file.seek(start)
        data = self.file.read(stop - start)
        while len(data) < stop - start:
            more = self.file.read(stop - start - len(data))
            if not more:
                raise ChangedError
            data += more
        return data


def _is_whole(line: bytes) -> bool:
    """Whether an unterminated line consists of one or more JSON objects."""
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
"""How many of the newest messages are recognized when saved again."""

_WINDOW: Final = 2 * FIRST_BLOCK  # a range this short is scanned, not searched


class ChatLog:
    """One chat's log, as a snapshot of its file holds it.

    Args:
        snapshot: the file.
        path: its path, for errors.
        key: the chat it must belong to.

    Attributes:
        snapshot: the file.
        key: the chat.
        header: the first line; None if it is missing or damaged.
        damaged_header: the first line, if it is not a header.
        floor: from the header, or inferred from the first entry.
        start: the first byte of the first entry.

    Raises:
        CorruptedRecordError: a newer version wrote it, or it is another chat's.
    """

    def __init__(self, snapshot: FileSnapshot, path: str, key: ChatKey) -> None:
        self.snapshot, self.key = snapshot, key
        self.header: FileHeader | None = None
        self.damaged_header: DamagedBytes | None = None
        self.floor = self.start = 0
        first = next(lines(snapshot, 0, snapshot.size), None)
        if first is None:
            return  # new, or torn while its first line was written
        line = first[1]
        self.header = decode_header(line, path)
        if self.header is not None:
            _check_owner(self.header, path, key)
            self.floor, self.start = self.header.floor, len(line) + 1
            return
        reason = "the first line does not say which chat this is"
        self.damaged_header = DamagedBytes(0, len(line), reason)
        # If its newline was lost, it holds the first entries too.
        is_header_alone = positions_in(line, 0, key.agent_id) is None
        self.start = len(line) + 1 if is_header_alone else 0
        self.floor = self._inferred_floor()

    @property
    def last(self) -> int:
        """The newest position; the floor if there is none."""
        return self._last_and_end[0]

    @property
    def end(self) -> int:
        """The byte after the last whole batch; what follows was never saved."""
        return self._last_and_end[1]

    def newest_refs(self) -> list[EntryRef]:
        """Return refs of the newest 64 messages, or of the whole last append, oldest first."""
        known: list[EntryRef] = []
        messages = 0
        for ref in self._refs_back(self.end):
            if messages >= KNOWN and ref.position < known[0].batch_start:
                break
            known.append(ref)
            messages += not ref.is_note
        known.reverse()
        return known

    def seek(self, low: int) -> int:
        """Return the start of a line such that all earlier lines have positions up to `low`.

        Steps back from the end in growing strides, then bisects: most reads start near the end
        and should not parse what comes before.
        """
        if low <= self.floor:
            return self.start
        start, stop, step = self.start, self.end, FIRST_BLOCK
        while stop - start > step:
            stop = self.end - step
            passed = self._passed(stop, low)
            if passed is not None:
                start, stop = passed, self.end
                break
            step *= 4
        while stop - start > _WINDOW:
            middle = (start + stop) // 2
            passed = self._passed(middle, low)
            start, stop = (start, middle) if passed is None else (passed, stop)
        for at, line in lines(self.snapshot, start, self.end):
            ref = entry_ref(line, at, self.key.agent_id)
            if ref is not None and ref.position > low:
                break
            if ref is not None:
                start = at + len(line) + 1
        return start

    def _passed(self, start: int, low: int) -> int | None:
        """Return the end of the first readable line after a byte; None if it is above `low`."""
        behind = lines(self.snapshot, start - 1, self.end)
        next(behind, None)  # the rest of a line that began earlier
        for at, line in behind:
            ref = entry_ref(line, at, self.key.agent_id)
            if ref is not None:
                return at + len(line) + 1 if ref.position <= low else None
        return None

    def _inferred_floor(self) -> int:
        """Infer a lost floor: each line before the first readable one held one position."""
        for lost, (at, line) in enumerate(lines(self.snapshot, self.start, self.snapshot.size)):
            positions = positions_in(line, at, self.key.agent_id)
            if positions is not None:
                return max(0, positions[0] - 1 - lost)
        return 0

    @cached_property
    def _last_and_end(self) -> tuple[int, int]:
        # A batch is visible once its last line is complete. A complete line that cannot be read
        # was acknowledged once, so it keeps its position; an incomplete batch never was.
        end, lost, legible = self.start, 0, 0
        for at, line in lines_back(self.snapshot, self.start, self.snapshot.size):
            end = max(end, at + len(line) + 1)
            parsed = parse_line(line, at, self.key.agent_id)
            if isinstance(parsed, StoredEntry):
                ref = parsed.ref
                last = max(ref.position + lost, legible)
                if last >= ref.batch_end:
                    return last, end
                return self._before_batch(ref) or (last, end)
            positions = positions_in(line, at, self.key.agent_id)
            if positions is not None:
                legible = max(legible, positions[1] + lost)
            lost += 1
        return max(self.floor + lost, legible), end

    def _before_batch(self, newest: EntryRef) -> tuple[int, int] | None:
        """Return where an incomplete batch begins; None if its lines contradict each other."""
        cut = self.start
        for ref in self._refs_back(self.snapshot.size):
            if ref.position < newest.batch_start:
                break
            if ref.batch_end != newest.batch_end:
                return None
            cut = ref.start
        return max(newest.batch_start - 1, self.floor), cut

    def _refs_back(self, stop: int) -> Iterator[EntryRef]:
        """Yield the refs of the entries before a byte, newest first."""
        for at, line in lines_back(self.snapshot, self.start, stop):
            ref = entry_ref(line, at, self.key.agent_id)
            if ref is not None:
                yield ref


def _check_owner(header: FileHeader, path: str, key: ChatKey) -> None:
    if header.key != key:
        raise CorruptedRecordError(
            f"{path} says that it is the chat of {header.key}, but lies where that of {key} "
            "belongs; move it back",
            key=key,
            location=path,
        )
