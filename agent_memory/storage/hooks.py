"""The hooks of a backend: :class:`StoreHooks`, four to implement and several with a default.

:class:`Lifecycle` opens a store once, at its first use, and closes it once.
:class:`StoredSummaries` makes a summary store of three more hooks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, final

import attrs

from agent_memory.errors import CorruptedRecordError, StorageClosedError, StorageUnavailableError
from agent_memory.keys import ChatKey
from agent_memory.log import ChatInfo, Entry, LogSlice, SummaryRecord, visible
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.handoff import result_of, run_uncancelled
from agent_memory.storage.summaries import SummaryStore

_log: Final = logging.getLogger(__name__)

Found: TypeAlias = Sequence[SummaryRecord | CorruptedRecordError]
"""Records as they were read: in place of one that cannot be, the error that says why."""

# One lock for all stores: it is held for a few assignments only, and a store of a user's own
# need not call super().__init__() to have one.
_lock: Final = threading.Lock()


class Lifecycle:
    """Opens at its first use, closes once."""

    _has_threads: bool = False
    """Whether opening starts threads, or binds to some: they do not survive a fork."""

    _process: int | None = None
    _phase: Literal["new", "open", "closed"] = "new"
    _opening: Future[bool] | None = None

    async def _open(self) -> None:
        """Open what the store needs; called once, before anything else."""

    async def _close(self) -> None:
        """Close what the store opened itself; called once, also if it was never opened."""

    @final
    async def aclose(self) -> None:
        """Close the store. Twice is fine; later calls raise ``StorageClosedError``."""
        with _lock:
            closed_before, self._phase = self._phase == "closed", "closed"
        if not closed_before and not self._is_forked:
            await run_uncancelled(self._close())

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @final
    async def _ready(self) -> None:
        """Open the store at its first use; at once when it is open.

        Raises:
            StorageClosedError: it has been closed.
        """
        if self._phase == "open":
            if self._is_forked:
                raise StorageUnavailableError(
                    "this store was opened in the parent process; its threads and connections "
                    "do not survive a fork. Make a store in each process"
                )
            return
        if self._phase == "new":
            await run_uncancelled(self._open_once())
        self._check_not_closed()

    @property
    def _is_forked(self) -> bool:
        return self._process is not None and self._process != os.getpid()

    def _check_not_closed(self) -> None:
        if self._phase == "closed":
            raise StorageClosedError(f"{type(self).__name__} is closed")

    async def _open_once(self) -> None:
        while True:
            with _lock:
                if self._phase != "new":
                    return
                opening, mine = self._opening, Future[bool]()
                if opening is None:
                    self._opening = mine
            if opening is None:
                await self._open_for_all(mine)
                return
            if await result_of(opening):
                return

    async def _open_for_all(self, opening: Future[bool]) -> None:
        try:
            await self._open()
            await self._opened()
        except asyncio.CancelledError:
            # Only the end of this loop, as at the end of asyncio.run, cancels the opening. Callers
            # in other loops go on: one of those that wait opens the store in its place.
            self._opening = None
            opening.set_result(False)
            raise
        except BaseException as error:
            self._opening = None
            opening.set_exception(error)
            raise
        opening.set_result(True)

    async def _opened(self) -> None:
        with _lock:
            self._opening = None
            if self._phase == "new":
                self._process = os.getpid() if self._has_threads else None
                self._phase = "open"
                return
        await self._close()  # it was closed while it opened


class StoreHooks(Lifecycle, ABC):
    """The hooks that the public methods of :class:`~agent_memory.ChatStorage` call.

    They get arguments that are checked, and an open store. A backend implements the four
    abstract ones; the others have a default made of those four.
    """

    _append_is_cancel_safe: bool = False
    """Whether ``_append`` by itself leaves nothing in flight when it is cancelled: it never
    suspends, or waits with ``Handoff.wait``. A save then needs no task of its own."""

    # ---------------------------------------------------------------- a backend implements

    @abstractmethod
    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        """Append entries atomically and idempotently.

        Args:
            key: which chat; created if need be.
            entries: at least one, ids unique among them.

        Returns:
            For each entry given, in that order, what the store now holds under its id, with
            positions; and the chat's floor. An entry whose id is known keeps its old position.

        Raises:
            StorageConflictError: an id is known with another payload. Nothing is stored.
        """

    @abstractmethod
    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        """Read entries, in order of position, with the chat's floor. Creates nothing.

        Args:
            key: which chat; an unknown one is empty, with floor 0.
            after: only entries with a position above it.
            first: return at most this many of these, the oldest (at least 1).
            last: return at most this many of these, the newest (at least 1); never with `first`.
        """

    @abstractmethod
    async def _forget(self, key: ChatKey, keep: int) -> int:
        """Raise the floor so that the newest `keep` messages live, and return how many went.

        In the same step the chat's summary records go: all of them for ``keep=0``, else those
        made at the old floor. ``keep=0`` raises the floor to the last position.
        """

    @abstractmethod
    def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        """Yield every chat that has living entries, in key order, streaming."""

    # ---------------------------------------------------------- with a default

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        """Return what ``fetch_chat`` answers; `limit` is None or at least 1."""
        if limit is None:
            return visible((await self._read(key)).entries)
        wanted = limit
        while True:
            entries = (await self._read(key, last=wanted)).entries
            messages = visible(entries)
            if len(messages) >= limit or len(entries) < wanted:
                return messages[-limit:]
            wanted *= 2  # notes, and what they retract, took some of the places

    async def _after_append(self, key: ChatKey, stored: LogSlice) -> None:
        """Act on a save that is durable. It may be slow and may be cancelled."""

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        """Return the whole log of every chat of a session."""
        keys = [info.key async for info in self._list(user_id, session_id)]
        return {key: await self._read(key) for key in keys}

    async def _keys(self, user_id: str, session_id: str | None) -> list[ChatKey]:
        """Return the keys of all chats to delete, also of those that :meth:`_list` leaves out."""
        return [info.key async for info in self._list(user_id, session_id)]

    async def _purge(self, older_than: timedelta) -> int:
        """Remove what ``purge`` removes; a store that keeps no floors has nothing to do."""
        return 0

    async def _erase_deleted(self) -> None:
        """Erase what was deleted from the medium; called once when a public method deleted.

        For a store that would otherwise do so for each deletion, which takes time.
        """


class ReadRecords(Protocol):
    """Reads a chat's records, oldest first: all, or no more than the newest. A backend's hook."""

    def __call__(self, key: ChatKey, *, newest_only: bool) -> Awaitable[Found]:
        """Return them."""
        ...


@attrs.frozen
class StoredSummaries(SummaryStore):
    """A summary store made of a backend's three hooks.

    They are bound methods of the chat store, which is thus kept alive, and each opens it at its
    first use. A cancelled write must not be left in flight.

    Attributes:
        put_record: does what :meth:`SummaryStore.save_summary` promises.
        records: reads records; those that a trim made void are left out.
        drop_records: removes all of them and returns how many there were.
    """

    put_record: Callable[[ChatKey, SummaryRecord, str | None], Awaitable[bool]]
    records: ReadRecords
    drop_records: Callable[[ChatKey], Awaitable[int]]

    async def save_summary(
        self, key: ChatKey, record: SummaryRecord, *, replaces: str | None
    ) -> bool:
        """Store a record if its predecessor is still the newest."""
        return await self.put_record(key, record, replaces)

    async def load_summary(self, key: ChatKey) -> SummaryRecord | None:
        """Return the newest record, or None."""
        for newest in await self.records(key, newest_only=True):
            if isinstance(newest, CorruptedRecordError):
                raise newest
            return newest
        return None

    async def list_summaries(self, key: ChatKey) -> list[SummaryRecord]:
        """Return all readable records, oldest first."""
        readable: list[SummaryRecord] = []
        for record in await self.records(key, newest_only=False):
            if isinstance(record, CorruptedRecordError):
                _log.warning("unreadable summary record: %s", record)
            else:
                readable.append(record)
        return readable

    async def forget_summaries(self, key: ChatKey) -> int:
        """Remove all records of the chat and return how many there were."""
        return await self.drop_records(key)
