"""Reading a chat's file without a lock, and looking it through for damage."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError, StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note, corrupted_note
from agent_memory.storage.codec import decode_record
from agent_memory.storage.file.chat_log import (
    BLOCK,
    ChangedError,
    FileHeader,
    FileSnapshot,
    LogEnd,
    entries_after,
    find_log_end,
    lines,
    read_header,
)
from agent_memory.storage.file.directory import INACCESSIBLE, ChatPaths
from agent_memory.storage.file.disk import open_to_read
from agent_memory.storage.file.line_format import DamagedBytes, ParsedLine
from agent_memory.storage.file.lock import nobody_writes

_ATTEMPTS: Final = 10  # each means that a torn end was cut at the very moment; once is rare


@attrs.frozen
class ReadRange:
    """Which part of a log to read; see ``ChatStorage._read``."""

    after: int = 0
    first: int | None = None
    last: int | None = None

    def span(self, floor: int, newest: int) -> tuple[int, int]:
        """Return the positions it lies between: above the first, up to the second."""
        low = max(floor, self.after)
        if self.last is not None:
            low = max(low, newest - self.last)
        return low, newest if self.first is None else min(newest, low + self.first)


@attrs.frozen
class Reading:
    """What was read of a chat's file.

    Args:
        log: the entries, with notes where they cannot be read.
        head: how the file begins.
        tail: where its log ends.
        size: how long the file was; more than the tail's end when its end is torn.
        damage: the damage that was met.
    """

    log: LogSlice
    head: FileHeader
    tail: LogEnd
    size: int
    damage: tuple[DamagedBytes, ...]


NOTHING: Final = Reading(LogSlice([]), FileHeader(None, 0, 0), LogEnd(0, 0), 0, ())


def read_log(path: str, key: ChatKey, wanted: ReadRange) -> Reading:
    """Read a part of a chat; of an unknown one nothing.

    Raises:
        CorruptedRecordError: a newer version wrote the file.
        StorageUnavailableError: the file changes all the time.
        OSError: it cannot be read.
    """
    before: Reading | None = None
    for _ in range(_ATTEMPTS):
        try:
            with open_to_read(path) as file:
                reading = _read(FileSnapshot(file), path, key, wanted)
        except FileNotFoundError:
            return NOTHING
        except ChangedError:
            continue
        # Damage counts when it is there twice: bytes that change while they are read, because
        # a torn end is cut and written anew, look like damage once.
        if not reading.damage or (before is not None and before.damage == reading.damage):
            return reading
        before = reading
    raise StorageUnavailableError(f"{path} changes while it is read", key=key)


def _read(snapshot: FileSnapshot, path: str, key: ChatKey, wanted: ReadRange) -> Reading:
    agent_id = key.agent_id
    head = read_header(snapshot, path, key)
    tail = find_log_end(snapshot, head, agent_id)
    low, high = wanted.span(head.floor, tail.last)
    filler = GapFiller(agent_id, path)
    if head.damage is not None:
        filler.damage.append(head.damage)
    entries: list[Entry] = []
    if low < high:
        parts = entries_after(snapshot, head, tail, low, agent_id)
        entries.extend(filler.entries(parts, low, high))
    return Reading(LogSlice(entries, head.floor), head, tail, snapshot.size, tuple(filler.damage))


@attrs.define
class GapFiller:
    """Puts a note where an entry cannot be read, so that no position is missing.

    Args:
        agent_id: whose chat it is.
        path: the file, for locations.

    Attributes:
        damage: the damage met.
    """

    agent_id: str
    path: str
    damage: list[DamagedBytes] = attrs.field(factory=list[DamagedBytes], init=False)

    def entries(self, parts: Iterable[ParsedLine], low: int, high: int) -> Iterator[Entry]:
        """Yield an entry for each position above `low` up to `high`, in order.

        Args:
            parts: what the file holds behind `low`.
            low: the position before the first one.
            high: the last position.
        """
        lost: list[DamagedBytes] = []
        expected = low + 1
        for part in parts:
            if isinstance(part, DamagedBytes):
                lost.append(part)
                continue
            position = min(part.ref.position, high + 1)
            if position > expected and not lost:
                lost.append(_missing(position - expected, part.ref.start))
            yield from self._gap(expected, position, lost)
            if position > high:
                return
            yield part.entry
            lost, expected = [], position + 1
        # The tail counts bad lines too, so `lost` has a reason for every position left.
        yield from self._gap(expected, high + 1, lost)

    def _gap(self, first: int, behind: int, lost: list[DamagedBytes]) -> Iterator[Note]:
        self.damage.extend(lost)
        for index, position in enumerate(range(first, behind) if lost else ()):
            cause = lost[min(index, len(lost) - 1)]
            place = location(self.path, cause)
            yield corrupted_note(position, self.agent_id, place, cause.reason)


def _missing(count: int, at: int) -> DamagedBytes:
    what = "an entry is missing" if count == 1 else f"{count} entries are missing"
    return DamagedBytes(at, at, f"{what} before this byte")


def location(path: str, bad: DamagedBytes) -> str:
    """Say where damage is."""
    return f"{path}, byte {bad.start}"


logger = logging.getLogger(__name__)

_MOST: Final = 10_000  # places remembered; a store with more is told of again


@attrs.define(eq=False)
class DamageReport:
    """Logs one warning for each damaged place that a store meets."""

    _reported: set[tuple[str, int]] = attrs.field(factory=set[tuple[str, int]])

    def report(self, path: str, reading: Reading) -> None:
        """Log what a reading met and was not logged yet."""
        for bad in reading.damage:
            if self._is_new(path, bad.start):
                logger.warning("%s cannot be read: %s", location(path, bad), bad.reason)
        end = reading.tail.end
        if (
            reading.size > end
            and (path, end) not in self._reported
            and _is_torn(path, reading.size)
        ):
            self._reported.add((path, end))
            logger.warning(
                "%s, byte %d: %d bytes of a save that never ended; the next save cuts them",
                path,
                end,
                reading.size - end,
            )

    def _is_new(self, path: str, start: int) -> bool:
        if (path, start) in self._reported:
            return False
        if len(self._reported) >= _MOST:
            self._reported.clear()
        self._reported.add((path, start))
        return True


def _is_torn(path: str, size: int) -> bool:
    """Whether a file's torn end is one for good, not a save that is just being written."""
    with suppress(OSError), open_to_read(path) as file:
        return nobody_writes(file.fileno()) and FileSnapshot(file).size == size
    return False


@attrs.frozen
class Problem:
    """Something in a store that is not as it was written.

    Args:
        key: the chat concerned, where that is known.
        location: where it is: file, line and byte.
        reason: what is wrong with it.
    """

    key: ChatKey | None
    location: str
    reason: str


def find_problems(paths: ChatPaths, key: ChatKey) -> list[Problem]:
    """Return what is wrong with a chat's files. Nothing is changed, no lock is kept.

    What changes while it is looked at is looked at again: only damage that stays is told.
    """
    before: list[Problem] | None = None
    for _ in range(_ATTEMPTS):
        try:
            found = [*_log_problems(paths, key), *_summary_problems(paths, key)]
        except ChangedError:
            continue
        except INACCESSIBLE as error:
            return [Problem(key, paths.log, f"it cannot be read: {error}")]
        if not found or found == before:
            return found
        before = found
    return before or []


def _log_problems(paths: ChatPaths, key: ChatKey) -> Iterator[Problem]:
    with suppress(FileNotFoundError), open_to_read(paths.log) as file:
        snapshot = FileSnapshot(file)
        try:
            found = _damage(snapshot, paths.log, key)
        except CorruptedRecordError as error:
            yield Problem(key, paths.log, str(error))
            return
        if nobody_writes(file.fileno()):
            found += _leftovers(snapshot, paths, key)
        for bad in found:
            yield Problem(key, _location(snapshot, paths.log, bad.start), bad.reason)
        if Path(paths.temporary).exists() and nobody_writes(file.fileno()):
            reason = "left by a trim that never ended; the next save or trim removes it"
            yield Problem(key, paths.temporary, reason)


def _damage(snapshot: FileSnapshot, path: str, key: ChatKey) -> list[DamagedBytes]:
    head = read_header(snapshot, path, key)
    tail = find_log_end(snapshot, head, key.agent_id)
    filler = GapFiller(key.agent_id, path)
    if head.damage is not None:
        filler.damage.append(head.damage)
    parts = entries_after(snapshot, head, tail, head.floor, key.agent_id)
    for _ in filler.entries(parts, head.floor, tail.last):
        pass  # only the damage is of interest
    return filler.damage


def _leftovers(snapshot: FileSnapshot, paths: ChatPaths, key: ChatKey) -> list[DamagedBytes]:
    end = find_log_end(snapshot, read_header(snapshot, paths.log, key), key.agent_id).end
    left = snapshot.size - end
    reason = f"{left} bytes of a save that never ended; the next save cuts them"
    return [DamagedBytes(end, snapshot.size, reason)] if left else []


def _summary_problems(paths: ChatPaths, key: ChatKey) -> Iterator[Problem]:
    with suppress(FileNotFoundError), open_to_read(paths.summaries) as file:
        snapshot = FileSnapshot(file)
        for at, line in lines(snapshot, 0, snapshot.size):
            place = _location(snapshot, paths.summaries, at)
            try:
                decode_record(line, key.agent_id, location=place)
            except CorruptedRecordError as error:
                yield Problem(key, place, str(error.__cause__ or error))


def _location(snapshot: FileSnapshot, path: str, at: int) -> str:
    line = 1
    for start in range(0, at, BLOCK):
        line += snapshot.read(start, min(start + BLOCK, at)).count(b"\n")
    return f"{path}, line {line}, byte {at}"
