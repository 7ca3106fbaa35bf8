"""Reading a part of a chat without a lock, right also while others append, trim or delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from agent_memory.errors import StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note
from agent_memory.storage.file.disk import open_to_read
from agent_memory.storage.file.lines import Bad, Piece, corrupted_note
from agent_memory.storage.file.log import Head, Tail, head_of, pieces_after, tail_of
from agent_memory.storage.file.source import ChangedError, Source

_ATTEMPTS: Final = 10  # each means that a torn end was cut at the very moment; once is rare


@attrs.frozen
class Wanted:
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
        bad: the damage that was met.
    """

    log: LogSlice
    head: Head
    tail: Tail
    size: int
    bad: tuple[Bad, ...]


NOTHING: Final = Reading(LogSlice([]), Head(None, 0, 0), Tail(0, 0), 0, ())


def read_log(path: str, key: ChatKey, wanted: Wanted) -> Reading:
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
                reading = _read(Source(file), path, key, wanted)
        except FileNotFoundError:
            return NOTHING
        except ChangedError:
            continue
        # Damage counts when it is there twice: bytes that change while they are read, because
        # a torn end is cut and written anew, look like damage once.
        if not reading.bad or (before is not None and before.bad == reading.bad):
            return reading
        before = reading
    raise StorageUnavailableError(f"{path} changes while it is read", key=key)


def _read(source: Source, path: str, key: ChatKey, wanted: Wanted) -> Reading:
    agent_id = key.agent_id
    head = head_of(source, path, key)
    tail = tail_of(source, head, agent_id)
    low, high = wanted.span(head.floor, tail.last)
    gapless = Gapless(agent_id, path)
    if head.bad is not None:
        gapless.bad.append(head.bad)
    entries: list[Entry] = []
    if low < high:
        pieces = pieces_after(source, head, tail, low, agent_id)
        entries.extend(gapless.entries(pieces, low, high))
    return Reading(LogSlice(entries, head.floor), head, tail, source.size, tuple(gapless.bad))


@attrs.define
class Gapless:
    """Puts a note where an entry cannot be read, so that no position is missing.

    Args:
        agent_id: whose chat it is.
        path: the file, for locations.

    Attributes:
        bad: the damage met.
    """

    agent_id: str
    path: str
    bad: list[Bad] = attrs.field(factory=list[Bad], init=False)

    def entries(self, pieces: Iterable[Piece], low: int, high: int) -> Iterator[Entry]:
        """Yield an entry for each position above `low` up to `high`, in order.

        Args:
            pieces: what the file holds behind `low`.
            low: the position before the first one.
            high: the last position.
        """
        lost: list[Bad] = []
        like: Entry | None = None
        expected = low + 1
        for piece in pieces:
            if isinstance(piece, Bad):
                lost.append(piece)
                continue
            position = min(piece.mark.position, high + 1)
            if position > expected and not lost:
                lost.append(_missing(position - expected, piece.mark.start))
            yield from self._gap(expected, position, lost, like)
            if position > high:
                return
            yield piece.entry
            lost, like, expected = [], piece.entry, position + 1
        # The tail counts bad lines too, so `lost` has a reason for every position left.
        yield from self._gap(expected, high + 1, lost, like)

    def _gap(self, first: int, behind: int, lost: list[Bad], like: Entry | None) -> Iterator[Note]:
        self.bad.extend(lost)
        for index, position in enumerate(range(first, behind) if lost else ()):
            cause = lost[min(index, len(lost) - 1)]
            place = location(self.path, cause)
            yield corrupted_note(position, self.agent_id, place, cause.reason, like)


def _missing(count: int, at: int) -> Bad:
    what = "an entry is missing" if count == 1 else f"{count} entries are missing"
    return Bad(at, at, f"{what} before this byte")


def location(path: str, bad: Bad) -> str:
    """Say where damage is."""
    return f"{path}, byte {bad.start}"
