"""Stores around stores for tests: a slow one, one that fails, one that counts."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Literal, TypeAlias

from agent_memory.errors import InvalidRequestError, StorageUnavailableError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import ChatInfo, Entry, LogSlice
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import WrapperChatStorage

Failure: TypeAlias = Literal["before", "after"] | None
"""When an append fails: before the inner write, after it (the answer is lost), or not."""


class SlowChatStorage(WrapperChatStorage):
    """Waits before it appends, reads, lists or forgets, as a distant database does.

    Args:
        storage: the store inside.
        delay: seconds to wait, at least 0.
        close_inner: whether closing closes the inner store too.

    Raises:
        InvalidRequestError: `delay` is negative.
    """

    def __init__(self, storage: ChatStorage, delay: float, *, close_inner: bool = True) -> None:
        super().__init__(storage, close_inner=close_inner)
        if delay < 0:
            raise InvalidRequestError(f"delay must be at least 0 seconds, not {delay!r}")
        self._delay = delay

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        await asyncio.sleep(self._delay)
        return await super()._append(key, entries)

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        await asyncio.sleep(self._delay)
        return await super()._read(key, after=after, first=first, last=last)

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        await asyncio.sleep(self._delay)
        return await super()._fetch(key, limit)

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        await asyncio.sleep(self._delay)
        return await super()._read_session(user_id, session_id)

    async def _forget(self, key: ChatKey, keep: int) -> int:
        await asyncio.sleep(self._delay)
        return await super()._forget(key, keep)

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        await asyncio.sleep(self._delay)
        async for info in super()._list(user_id, session_id):
            yield info


def lost_connection(key: ChatKey, stored: bool | None) -> StorageUnavailableError:  # noqa: FBT001 (an error's own word)
    """The error that a database raises when the connection goes."""
    return StorageUnavailableError(f"the connection was lost ({key})", key=key, stored=stored)


class FlakyChatStorage(WrapperChatStorage):
    """Fails as a script says, one item for each append; afterwards it works.

    ``"before"`` fails and stores nothing; ``"after"`` stores everything and fails then, which
    is an answer lost on its way; ``None`` works.

    Args:
        storage: the store inside.
        failures: what each append does, in turn; see :meth:`fail` for more.
        error: makes what is raised, from the key and what ``stored`` says (False before the
            write, None after it).
        close_inner: whether closing closes the inner store too.
    """

    def __init__(
        self,
        storage: ChatStorage,
        failures: Iterable[Failure] = (),
        *,
        error: Callable[[ChatKey, bool | None], Exception] = lost_connection,
        close_inner: bool = True,
    ) -> None:
        super().__init__(storage, close_inner=close_inner)
        self._error = error
        self._script: deque[Failure] = deque()
        self.fail(*failures)

    @property
    def failures_left(self) -> int:
        """How many of the scripted failures have not happened yet."""
        return sum(failure is not None for failure in self._script)

    def fail(self, *failures: Failure) -> None:
        """Add to the script.

        Raises:
            InvalidRequestError: something is neither ``"before"`` nor ``"after"`` nor None.
        """
        for failure in failures:
            if failure not in ("before", "after", None):
                raise InvalidRequestError(
                    f"a failure is 'before', 'after' or None, not {failure!r}"
                )
        self._script.extend(failures)

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        failure = self._script.popleft() if self._script else None
        if failure == "before":
            raise self._error(key, False)
        stored = await super()._append(key, entries)
        if failure == "after":
            raise self._error(key, None)
        return stored


class CountingChatStorage(WrapperChatStorage):
    """Counts what is asked of the store inside.

    Attributes:
        calls: how often each hook was called, by its name without the underscore: append,
            read, fetch, read_session, forget, list, purge.
        entries_read: entries that reads, fetches and session reads returned.
        entries_appended: entries that appends were given.
    """

    def __init__(self, storage: ChatStorage, *, close_inner: bool = True) -> None:
        super().__init__(storage, close_inner=close_inner)
        self.reset()

    def reset(self) -> None:
        """Count from nought again."""
        self.calls: Counter[str] = Counter()
        self.entries_read = 0
        self.entries_appended = 0

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        self.calls["append"] += 1
        self.entries_appended += len(entries)
        return await super()._append(key, entries)

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        self.calls["read"] += 1
        found = await super()._read(key, after=after, first=first, last=last)
        self.entries_read += len(found.entries)
        return found

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        self.calls["fetch"] += 1
        found = await super()._fetch(key, limit)
        self.entries_read += len(found)
        return found

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        self.calls["read_session"] += 1
        found = await super()._read_session(user_id, session_id)
        self.entries_read += sum(len(chat.entries) for chat in found.values())
        return found

    async def _forget(self, key: ChatKey, keep: int) -> int:
        self.calls["forget"] += 1
        return await super()._forget(key, keep)

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        self.calls["list"] += 1
        async for info in super()._list(user_id, session_id):
            yield info
