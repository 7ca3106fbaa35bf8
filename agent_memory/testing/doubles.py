"""Store wrappers for tests: slow, failing, counting, and held at a chosen call."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import attrs

from agent_memory.errors import InvalidRequestError, StorageUnavailableError
from agent_memory.keys import ChatKey
from agent_memory.log import ChatInfo, Entry, LogSlice, SummaryRecord
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.summaries import SummaryStore
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
        InvalidRequestError: if `delay` is negative.
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
        """Set all counts to zero."""
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


class Gate:
    """A point at which tasks wait until a test opens it.

    It belongs to the event loop that uses it first. Opened once, it stays open.
    """

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    def __repr__(self) -> str:
        state = "open" if self._open.is_set() else "closed"
        return f"<Gate {state}{', reached' if self._reached.is_set() else ''}>"

    @property
    def is_reached(self) -> bool:
        """Whether a task has reached the gate."""
        return self._reached.is_set()

    async def reached(self) -> None:
        """Wait until a task has reached the gate."""
        await self._reached.wait()

    def open(self) -> None:
        """Let all tasks pass, now and later."""
        self._open.set()

    async def passed(self) -> None:
        """Reach the gate and wait until it is open."""
        self._reached.set()
        await self._open.wait()


Held: TypeAlias = Literal["append", "read", "fetch", "forget", "save_summary", "load_summary"]
"""The calls that can be held."""

Moment: TypeAlias = Literal["before", "after"]
"""Whether a call is held before the store inside does its work, or after it."""


class GatedChatStorage(WrapperChatStorage):
    """Holds calls at gates, so that a test decides what happens while they wait.

    For example::

        gate = storage.hold("append", "after")
        saving = asyncio.create_task(storage.save_chat_message(...))
        await gate.reached()      # it is stored, and the answer has not come yet
        ...
        gate.open()
        await saving

    Args:
        storage: the store inside.
        close_inner: whether closing closes the inner store too.
    """

    def __init__(self, storage: ChatStorage, *, close_inner: bool = True) -> None:
        super().__init__(storage, close_inner=close_inner)
        self._gates: list[tuple[Held, Moment, Gate]] = []

    def hold(self, call: Held, moment: Moment = "before") -> Gate:
        """Return a gate at which the next such call will wait; others pass.

        Several gates for one kind of call hold the next calls in turn.
        """
        gate = Gate()
        self._gates.append((call, moment, gate))
        return gate

    async def _at(self, call: Held, moment: Moment) -> None:
        for index, (held, when, gate) in enumerate(self._gates):
            if (held, when) == (call, moment):
                del self._gates[index]
                await gate.passed()
                return

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        await self._at("append", "before")
        stored = await super()._append(key, entries)
        await self._at("append", "after")
        return stored

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        await self._at("read", "before")
        found = await super()._read(key, after=after, first=first, last=last)
        await self._at("read", "after")
        return found

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        await self._at("fetch", "before")
        found = await super()._fetch(key, limit)
        await self._at("fetch", "after")
        return found

    async def _forget(self, key: ChatKey, keep: int) -> int:
        await self._at("forget", "before")
        gone = await super()._forget(key, keep)
        await self._at("forget", "after")
        return gone

    def summaries(self) -> SummaryStore | None:
        """Return the inner store's, with gates of its own."""
        inner = super().summaries()
        return None if inner is None else _GatedSummaries(self._at, inner)


@attrs.frozen
class _GatedSummaries(SummaryStore):
    _at: Callable[[Held, Moment], Awaitable[None]]
    _inner: SummaryStore

    async def save_summary(
        self, key: ChatKey, record: SummaryRecord, *, replaces: str | None
    ) -> bool:
        await self._at("save_summary", "before")
        saved = await self._inner.save_summary(key, record, replaces=replaces)
        await self._at("save_summary", "after")
        return saved

    async def load_summary(self, key: ChatKey) -> SummaryRecord | None:
        await self._at("load_summary", "before")
        record = await self._inner.load_summary(key)
        await self._at("load_summary", "after")
        return record

    async def list_summaries(self, key: ChatKey) -> list[SummaryRecord]:
        return await self._inner.list_summaries(key)

    async def forget_summaries(self, key: ChatKey) -> int:
        return await self._inner.forget_summaries(key)
