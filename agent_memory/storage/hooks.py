"""What a backend supplies: :class:`StoreHooks`, four hooks and several with a default."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from agent_memory.keys import ChatKey
from agent_memory.log import ChatInfo, Entry, LogSlice, visible
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.lifecycle import Lifecycle


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
