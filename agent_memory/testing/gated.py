"""A store whose calls can be held at a chosen point: for tests of what happens meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

import attrs

from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import Entry, LogSlice, SummaryRecord
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.summaries import SummaryStore
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.testing.gates import Gate

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
