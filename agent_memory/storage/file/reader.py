"""Reading a chat's file without a lock, and checking it for damage."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError, StorageUnavailableError
from agent_memory.log import Entry, LogSlice, corrupted_note
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.handoff import result_of
from agent_memory.storage.codec import decode_record
from agent_memory.storage.file.chat_log import (
    BLOCK,
    FIRST_BLOCK,
    ChangedError,
    ChatLog,
    FileSnapshot,
    lines,
)
from agent_memory.storage.file.directory import (
    INACCESSIBLE,
    ChatPaths,
    find_keys,
    find_strays,
    paths_of,
)
from agent_memory.storage.file.disk import descriptor_to_read, open_to_read
from agent_memory.storage.file.line_format import DamagedBytes, ParsedLine, parse_line
from agent_memory.storage.file.lock import nobody_writes

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 10  # each one fails only if a torn end is cut at that moment, which is rare


@attrs.frozen
class ReadRange:
    """Which part of a log to read; see ``ChatStorage._read``."""

    after: int = 0
    first: int | None = None
    last: int | None = None

    def span(self, floor: int, newest: int) -> tuple[int, int]:
        """Return the range of positions: above the first, up to and including the second."""
        low = max(floor, self.after)
        if self.last is not None:
            low = max(low, newest - self.last)
        return low, newest if self.first is None else min(newest, low + self.first)


@attrs.frozen
class Reading:
    """The result of a read.

    Args:
        log: the entries, with notes where they cannot be read.
        damage: the damage found.
        torn: a save at the end that was never completed, if there is one.
    """

    log: LogSlice
    damage: tuple[DamagedBytes, ...] = ()
    torn: DamagedBytes | None = None

    @property
    def unreadable(self) -> Sequence[DamagedBytes]:
        """All bytes that are no entries."""
        return self.damage if self.torn is None else (*self.damage, self.torn)


NOTHING: Final = Reading(LogSlice([]))


def read_log(
    path: str,
    key: ChatKey,
    wanted: ReadRange,
    longest: int | None = None,
    suspected: tuple[DamagedBytes, ...] = (),
) -> Reading:
    """Read a part of a chat in one step; an unknown chat is empty.

    Bytes that change while they are read, because a torn end is cut and written over, look like
    damage once. Damage is believed when it is found twice.

    Args:
        path: its file.
        key: which chat.
        wanted: which part.
        longest: the most bytes to read; None for no limit.
        suspected: the damage that a read has just found.

    Raises:
        TooLongError: the part is longer than that.
        CorruptedRecordError: a newer version wrote the file.
        StorageUnavailableError: the file keeps changing.
        OSError: it cannot be read.
    """
    for _ in range(_ATTEMPTS):
        try:
            with open_to_read(path) as file:
                part = LogPart(FileSnapshot(file), path, key, wanted)
                if longest is not None and part.stop - part.start > longest:
                    raise TooLongError
                reading = part.read_all()
        except FileNotFoundError:
            return NOTHING
        except ChangedError:
            continue
        if reading.damage in ((), suspected):
            return reading
        suspected = reading.damage
    raise StorageUnavailableError(f"{path} changes while it is read", key=key)


class TooLongError(Exception):
    """The part is too long for one step; use :func:`stream_log`."""


async def stream_log(
    path: str, key: ChatKey, wanted: ReadRange, threads: Executor
) -> Reading | None:
    """Read a part of a chat block by block, so that other reads get their turn in between.

    Args:
        path: the chat's file.
        key: which chat.
        wanted: which part.
        threads: read and parse the blocks.

    Returns:
        What was read; None if the file changed during the read.
    """
    import aiofiles  # type: ignore[import-untyped] # noqa: PLC0415 - an extra

    try:
        async with aiofiles.open(
            path, "rb", buffering=0, opener=descriptor_to_read, executor=threads
        ) as file:

            def begun() -> LogPart:
                # On the same descriptor: a trim may replace the file at any moment.
                snapshot = FileSnapshot(FileIO(file.fileno(), closefd=False))
                return LogPart(snapshot, path, key, wanted)

            part = await result_of(threads.submit(begun))
            await file.seek(part.start)
            while not part.is_done:
                block = await file.read(min(BLOCK, part.stop - part.start))
                await result_of(threads.submit(part.feed, block))
            return await result_of(threads.submit(part.reading))
    except (FileNotFoundError, ChangedError):
        return None


class LogPart:
    """A part of a log that is being read: feed it the bytes from `start` to `stop`.

    No position is missing in what it reads: each that has no readable entry gets a note.

    Args:
        snapshot: the chat's file.
        path: its path, for locations.
        key: which chat.
        wanted: which part.

    Attributes:
        start: the next byte to feed.
        stop: the end of the bytes that may be needed.
    """

    def __init__(self, snapshot: FileSnapshot, path: str, key: ChatKey, wanted: ReadRange) -> None:
        self._log = log = ChatLog(snapshot, path, key)
        self._path = path
        self._low, self._high = low, high = wanted.span(log.floor, log.last)
        self._expected = low + 1  # the next position
        self._entries: list[Entry] = []
        self._damage = [] if log.damaged_header is None else [log.damaged_header]
        self._lost: list[DamagedBytes] = []  # since the last entry
        self.start = log.seek(low) if low < high else log.end
        self.stop = log.end
        self._line_start = self.start
        self._line: list[bytes] = []  # blocks of a line that is not complete yet

    @property
    def is_done(self) -> bool:
        """Whether no more bytes are needed."""
        return self.start >= self.stop or self._expected > self._high

    def read_all(self) -> Reading:
        """Feed it from the snapshot, in growing blocks: usually a few lines are needed."""
        size = FIRST_BLOCK
        while not self.is_done:
            self.feed(self._log.snapshot.read(self.start, min(self.start + size, self.stop)))
            size = min(2 * size, BLOCK)
        return self.reading()

    def feed(self, block: bytes) -> None:
        """Parse the next bytes of the file.

        Raises:
            ChangedError: the file has become shorter.
        """
        if not block:  # at the end of the file: only a stripped newline may be missing
            block = self._log.snapshot.read(self.start, self.stop)
        self.start += len(block)
        rest, *others = block.split(b"\n")
        self._line.append(rest)
        for other in others:
            line = b"".join(self._line)
            parsed = parse_line(line, self._line_start, self._log.key.agent_id)
            self._line_start += len(line) + 1
            self._line = [other]
            self._add(parsed)
            if self._expected > self._high:
                return

    def reading(self) -> Reading:
        """Return the result."""
        # At the end, each position that is still missing belongs to a damaged line.
        self._fill(self._high + 1)
        log = LogSlice(self._entries, self._log.floor)
        return Reading(log, tuple(self._damage), self._torn_end())

    def _torn_end(self) -> DamagedBytes | None:
        """Return what follows the last whole batch, unless a save is being written."""
        end, snapshot = self._log.end, self._log.snapshot
        if snapshot.size <= end or not nobody_writes(snapshot.file.fileno()):
            return None
        if os.fstat(snapshot.file.fileno()).st_size != snapshot.stat.st_size:
            return None  # it was being written when the file was opened
        reason = f"{snapshot.size - end} bytes of a save that never ended; the next save cuts them"
        return DamagedBytes(end, snapshot.size, reason)

    def _add(self, parsed: ParsedLine) -> None:
        if isinstance(parsed, DamagedBytes):
            self._lost.append(parsed)
            return
        ref, previous, last = parsed.ref, self._expected - 1, self._log.last
        if not previous < ref.position <= last:
            # Lines below the part are skipped; within it, an entry out of order is damage.
            if previous > self._low or ref.position > last:
                reason = f"position {ref.position} follows {previous}"
                self._lost.append(DamagedBytes(ref.start, ref.stop, reason))
            return
        position = min(ref.position, self._high + 1)
        if position > self._expected and not self._lost:
            self._lost.append(_missing(position - self._expected, ref.start))
        self._fill(position)
        if position <= self._high:
            self._entries.append(parsed.entry)
            self._expected = position + 1

    def _fill(self, position: int) -> None:
        """Put a note in place of each entry that is missing before a position."""
        self._damage += self._lost
        for index, lost in enumerate(range(self._expected, position) if self._lost else ()):
            cause = self._lost[min(index, len(self._lost) - 1)]
            place = location(self._path, cause)
            note = corrupted_note(lost, self._log.key.agent_id, place, cause.reason)
            self._entries.append(note)
        self._expected = max(self._expected, position)
        self._lost = []


def _missing(count: int, at: int) -> DamagedBytes:
    what = "an entry is missing" if count == 1 else f"{count} entries are missing"
    return DamagedBytes(at, at, f"{what} before this byte")


def location(path: str, bad: DamagedBytes) -> str:
    """Return where damage is, as text."""
    return f"{path}, byte {bad.start}"


_MOST: Final = 10_000  # places remembered; beyond that, warnings repeat


@attrs.define(eq=False)
class DamageReport:
    """Logs one warning for each damaged place."""

    _reported: set[str] = attrs.field(factory=set[str])

    def report(self, path: str, reading: Reading) -> None:
        """Log the damage that a read found, unless it was logged before."""
        for bad in reading.unreadable:
            place = location(path, bad)
            if place not in self._reported:
                if len(self._reported) >= _MOST:
                    self._reported.clear()
                self._reported.add(place)
                logger.warning("%s cannot be read: %s", place, bad.reason)


@attrs.frozen
class Problem:
    """Something in a store that is damaged or left over.

    Args:
        key: the chat concerned, if known.
        location: file, line and byte.
        reason: what is wrong.
    """

    key: ChatKey | None
    location: str
    reason: str


def find_problems(
    root: Path, user_id: str | None, session_id: str | None, agent_id: str | None
) -> Iterator[list[Problem]]:
    """Yield the problems of each chat, then of what belongs to no chat. Changes nothing."""
    for key in find_keys(root, user_id, session_id):
        if agent_id in (None, key.agent_id):
            yield _chat_problems(paths_of(root, key), key)
    if user_id is None:
        yield [Problem(None, path, reason) for path, reason in find_strays(root)]


def _chat_problems(paths: ChatPaths, key: ChatKey) -> list[Problem]:
    """Check a chat's files. Changes nothing and keeps no lock.

    Files that change while they are checked are checked again: only lasting damage is reported.
    """
    found, before = list[Problem](), None
    for _ in range(_ATTEMPTS):
        try:
            found = [*_log_problems(paths, key), *_summary_problems(paths, key)]
        except ChangedError:
            continue
        except INACCESSIBLE as error:
            return [Problem(key, paths.log, f"it cannot be read: {error}")]
        if not found or found == before:
            break
        before = found
    return found


def _log_problems(paths: ChatPaths, key: ChatKey) -> Iterator[Problem]:
    with suppress(FileNotFoundError), open_to_read(paths.log) as file:
        snapshot = FileSnapshot(file)
        try:
            part = LogPart(snapshot, paths.log, key, ReadRange())
        except CorruptedRecordError as error:
            yield Problem(key, paths.log, str(error))
            return
        for bad in part.read_all().unreadable:
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
