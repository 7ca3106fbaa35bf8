"""Reading a chat's file without a lock, and looking it through for damage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError, StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, corrupted_note
from agent_memory.storage._engine.handoff import result_of
from agent_memory.storage.codec import decode_record
from agent_memory.storage.file.chat_log import (
    BLOCK,
    FIRST_BLOCK,
    ChangedError,
    ChatLog,
    FileSnapshot,
    InOrder,
    lines,
)
from agent_memory.storage.file.directory import INACCESSIBLE, ChatPaths
from agent_memory.storage.file.disk import descriptor_to_read, open_to_read
from agent_memory.storage.file.line_format import DamagedBytes, ParsedLine, parse_line
from agent_memory.storage.file.lock import nobody_writes

logger = logging.getLogger(__name__)

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
        damage: the damage that was met.
        end: the byte after the last whole batch.
        size: how long the file was; more than `end` when its end is torn.
    """

    log: LogSlice
    damage: tuple[DamagedBytes, ...] = ()
    end: int = 0
    size: int = 0


NOTHING: Final = Reading(LogSlice([]))


def read_log(path: str, key: ChatKey, wanted: ReadRange, longest: int | None = None) -> Reading:
    """Read a part of a chat; of an unknown one nothing.

    Args:
        path: its file.
        key: which chat.
        wanted: which part.
        longest: how many bytes may be read.

    Raises:
        TooLongError: the part is longer than that.
        CorruptedRecordError: a newer version wrote the file.
        StorageUnavailableError: the file changes all the time.
        OSError: it cannot be read.
    """
    seen_twice = SeenTwice()
    for _ in range(_ATTEMPTS):
        try:
            with open_to_read(path) as file:
                part = LogPart(FileSnapshot(file), path, key, wanted)
                if longest is not None and part.stop - part.start > longest:
                    raise TooLongError
                part.read_all()
        except FileNotFoundError:
            return NOTHING
        except ChangedError:
            continue
        reading = part.reading()
        if not reading.damage or seen_twice(reading.damage):
            return reading
    raise StorageUnavailableError(f"{path} changes while it is read", key=key)


class TooLongError(Exception):
    """What is to be read is longer than one call should take: stream it."""


async def stream_log(path: str, key: ChatKey, wanted: ReadRange, threads: Executor) -> Reading:
    """Do what :func:`read_log` does block by block, so that other reads get their turn between.

    Args:
        path: the chat's file.
        key: which chat.
        wanted: which part.
        threads: where blocks are read and parsed.
    """
    seen_twice = SeenTwice()
    for _ in range(_ATTEMPTS):
        try:
            reading = await _stream_once(path, key, wanted, threads)
        except FileNotFoundError:
            return NOTHING
        except ChangedError:
            continue
        if not reading.damage or seen_twice(reading.damage):
            return reading
    raise StorageUnavailableError(f"{path} changes while it is read", key=key)


async def _stream_once(path: str, key: ChatKey, wanted: ReadRange, threads: Executor) -> Reading:
    import aiofiles  # type: ignore[import-untyped] # noqa: PLC0415 - an extra

    async with aiofiles.open(
        path, "rb", buffering=0, opener=descriptor_to_read, executor=threads
    ) as file:

        def begun() -> LogPart:
            # The same descriptor, so that both read one file, whatever replaces it meanwhile.
            snapshot = FileSnapshot(FileIO(file.fileno(), closefd=False))
            return LogPart(snapshot, path, key, wanted)

        part = await result_of(threads.submit(begun))
        await file.seek(part.start)
        while not part.is_done:
            block = await file.read(min(BLOCK, part.stop - part.start))
            await result_of(threads.submit(part.feed, block))
    return part.reading()


class LogPart:
    """A part of a log while it is read: it is fed with the bytes from `start` to `stop`.

    Args:
        snapshot: the chat's file.
        path: its path, for locations.
        key: which chat.
        wanted: which part.

    Attributes:
        start: the byte that is to be fed next.
        stop: the byte after the last one that may be needed.
    """

    def __init__(self, snapshot: FileSnapshot, path: str, key: ChatKey, wanted: ReadRange) -> None:
        self._log = log = ChatLog(snapshot, path, key)
        low, high = wanted.span(log.floor, log.last)
        self._in_order = InOrder(low, log.last)
        self._filler = GapFiller(key.agent_id, path, low + 1, high)
        if log.damaged_header is not None:
            self._filler.damage.append(log.damaged_header)
        self.start = log.seek(low) if low < high else log.end
        self.stop = log.end
        self._line_start = self.start
        self._line: list[bytes] = []  # the blocks of a line whose end was not fed yet

    @property
    def is_done(self) -> bool:
        """Whether nothing more needs to be fed."""
        return self.start >= self.stop or self._filler.is_full

    def read_all(self) -> None:
        """Feed it from the snapshot, with few bytes at first: mostly a few lines are wanted."""
        size = FIRST_BLOCK
        while not self.is_done:
            self.feed(self._log.snapshot.read(self.start, min(self.start + size, self.stop)))
            size = min(2 * size, BLOCK)

    def feed(self, block: bytes) -> None:
        """Take over what the file holds from `start` on.

        Raises:
            ChangedError: nothing, though there was something.
        """
        if not block:  # what is missing may be no more than the last line's end
            block = self._log.snapshot.read(self.start, self.stop)
        self.start += len(block)
        rest, *others = block.split(b"\n")
        self._line.append(rest)
        for other in others:
            line = b"".join(self._line)
            parsed = parse_line(line, self._line_start, self._log.key.agent_id)
            self._line_start += len(line) + 1
            self._line = [other]
            in_order = self._in_order.checked(parsed)
            if in_order is not None:
                self._filler.add(in_order)
            if self._filler.is_full:
                return

    def reading(self) -> Reading:
        """Return what was read."""
        self._filler.finish()
        entries, damage = LogSlice(self._filler.entries, self._log.floor), self._filler.damage
        return Reading(entries, tuple(damage), self._log.end, self._log.snapshot.size)


@attrs.define(eq=False)
class GapFiller:
    """Puts a note where an entry cannot be read, so that no position is missing.

    Args:
        agent_id: whose chat it is.
        path: the file, for locations.
        expected: the position that comes next.
        high: the last position that is wanted.

    Attributes:
        entries: an entry for each position.
        damage: the damage met.
    """

    agent_id: str
    path: str
    expected: int
    high: int
    entries: list[Entry] = attrs.field(factory=list[Entry], init=False)
    damage: list[DamagedBytes] = attrs.field(factory=list[DamagedBytes], init=False)
    _lost: list[DamagedBytes] = attrs.field(factory=list[DamagedBytes], init=False)

    @property
    def is_full(self) -> bool:
        """Whether there is an entry for each position that is wanted."""
        return self.expected > self.high

    def add(self, parsed: ParsedLine) -> None:
        """Add what comes next in the file."""
        if isinstance(parsed, DamagedBytes):
            self._lost.append(parsed)
            return
        position = min(parsed.ref.position, self.high + 1)
        if position > self.expected and not self._lost:
            self._lost.append(_missing(position - self.expected, parsed.ref.start))
        self._fill(position)
        if position <= self.high:
            self.entries.append(parsed.entry)
            self.expected = position + 1

    def finish(self) -> None:
        """Fill the end: damaged lines count there too, so each position has its reason."""
        self._fill(self.high + 1)

    def _fill(self, position: int) -> None:
        self.damage += self._lost
        for index, lost in enumerate(range(self.expected, position) if self._lost else ()):
            cause = self._lost[min(index, len(self._lost) - 1)]
            place = location(self.path, cause)
            self.entries.append(corrupted_note(lost, self.agent_id, place, cause.reason))
        self.expected = max(self.expected, position)
        self._lost = []


class SeenTwice:
    """Whether something was met at two attempts in a row.

    Bytes that change while they are read, because a torn end is cut and written anew, look like
    damage once. Damage counts when it is there twice.
    """

    def __init__(self) -> None:
        self._before: object = None

    def __call__(self, found: object) -> bool:
        """Return whether it is what was found the last time."""
        before, self._before = self._before, found
        return found == before


def _missing(count: int, at: int) -> DamagedBytes:
    what = "an entry is missing" if count == 1 else f"{count} entries are missing"
    return DamagedBytes(at, at, f"{what} before this byte")


def location(path: str, bad: DamagedBytes) -> str:
    """Say where damage is."""
    return f"{path}, byte {bad.start}"


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
        end = reading.end
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
    seen_twice, found = SeenTwice(), list[Problem]()
    for _ in range(_ATTEMPTS):
        try:
            found = [*_log_problems(paths, key), *_summary_problems(paths, key)]
        except ChangedError:
            continue
        except INACCESSIBLE as error:
            return [Problem(key, paths.log, f"it cannot be read: {error}")]
        if not found or seen_twice(found):
            break
    return found


def _log_problems(paths: ChatPaths, key: ChatKey) -> Iterator[Problem]:
    with suppress(FileNotFoundError), open_to_read(paths.log) as file:
        snapshot = FileSnapshot(file)
        try:
            part = LogPart(snapshot, paths.log, key, ReadRange())
        except CorruptedRecordError as error:
            yield Problem(key, paths.log, str(error))
            return
        part.read_all()
        reading = part.reading()
        found, left = [*reading.damage], reading.size - reading.end
        if left and nobody_writes(file.fileno()):
            reason = f"{left} bytes of a save that never ended; the next save cuts them"
            found.append(DamagedBytes(reading.end, reading.size, reason))
        for bad in found:
            yield Problem(key, _location(snapshot, paths.log, bad.start), bad.reason)
        if Path(paths.temporary).exists() and nobody_writes(file.fileno()):
            reason = "left by a trim that never ended; the next save or trim removes it"
            yield Problem(key, paths.temporary, reason)


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
