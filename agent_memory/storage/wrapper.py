"""The base of stores around stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import ChatKey
from agent_memory.log import ChatInfo, Entry, LogSlice
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage, Scope
from agent_memory.storage.summaries import SummaryStore


def checked_storage(given: object) -> ChatStorage:
    """Return a store that was passed as an argument.

    Raises:
        InvalidRequestError: it is not a ``ChatStorage``.
    """
    if not isinstance(given, ChatStorage):
        raise InvalidRequestError(f"storage must be a ChatStorage, {_advice(given)}")
    return given


class WrapperChatStorage(ChatStorage):
    """Forwards every hook to an inner store; a wrapper overrides only what it changes.

    Each hook is forwarded explicitly, those with a default too, so that an inner's fast path is
    never lost; a test compares the two lists.

    Args:
        storage: the inner store.
        close_inner: whether :meth:`aclose` closes the inner store too.

    Raises:
        InvalidRequestError: `storage` is not a ``ChatStorage``.
    """

    def __init__(self, storage: ChatStorage, *, close_inner: bool = True) -> None:
        self._inner = checked_storage(storage)
        self._close_inner = close_inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    @property
    def inner(self) -> ChatStorage:
        """The store inside."""
        return self._inner

    @property
    def _inner_append_is_cancel_safe(self) -> bool:
        """The inner store's flag, for a wrapper that in its append awaits only the inner one."""
        return self._inner._append_is_cancel_safe

    @property
    def scope(self) -> Scope:
        """The inner store's."""
        return self._inner.scope

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        await self._inner._ready()
        return await self._inner._append(key, entries)

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        await self._inner._ready()
        return await self._inner._read(key, after=after, first=first, last=last)

    async def _forget(self, key: ChatKey, keep: int) -> int:
        await self._inner._ready()
        return await self._inner._forget(key, keep)

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        await self._inner._ready()
        async for info in self._inner._list(user_id, session_id):
            yield info

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        await self._inner._ready()
        return await self._inner._fetch(key, limit)

    async def _after_append(self, key: ChatKey, stored: LogSlice) -> None:
        await self._inner._after_append(key, stored)

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        await self._inner._ready()
        return await self._inner._read_session(user_id, session_id)

    async def _keys(self, user_id: str, session_id: str | None) -> list[ChatKey]:
        await self._inner._ready()
        return await self._inner._keys(user_id, session_id)

    async def _purge(self, older_than: timedelta) -> int:
        await self._inner._ready()
        return await self._inner._purge(older_than)

    async def _erase_deleted(self) -> None:
        await self._inner._erase_deleted()

    async def _open(self) -> None:
        await self._inner._ready()

    async def _close(self) -> None:
        if self._close_inner:
            await self._inner.aclose()

    def summaries(self) -> SummaryStore | None:
        """Return the inner store's."""
        return self._inner.summaries()


def _advice(given: object) -> str:
    if isinstance(given, type):
        return f"and {given.__name__} is a class; make one of it: {given.__name__}(…)"
    if isinstance(given, str):
        return "not str; for a URL: agent_memory.open_storage(url)"
    return (
        f"not {type(given).__name__}; subclass agent_memory.ChatStorage to use a store of your own"
    )
