"""How much a store holds, of whom, and what its summaries cost and saved."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import attrs

from agent_memory.audit.pages import pages
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.records import ChatInfo, Entry, SummaryRecord
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import encode_entry
from agent_memory.tokens import HeuristicTokenCounter, TokenCounter


@attrs.define
class Totals:
    """Sums over chats.

    Args:
        chats: how many.
        messages: how many.
        notes: entries of the log that are no messages.
        tokens: of the messages, estimated.
        bytes: of messages and notes as they are stored, in UTF-8; without what a database adds.
        summaries: how many records.
        tokens_removed: how many tokens summaries took out of views, each counted once.
        usage: what making the summaries cost, where that was reported.
        unreported: how many summaries' cost was not reported.
    """

    chats: int = 0
    messages: int = 0
    notes: int = 0
    tokens: int = 0
    bytes: int = 0
    summaries: int = 0
    tokens_removed: int = 0
    usage: Usage = attrs.field(factory=Usage)
    unreported: int = 0

    def add(self, other: Totals) -> None:
        """Add other sums to these."""
        for field in attrs.fields(Totals):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def add_entries(self, entries: Iterable[Entry], counter: TokenCounter) -> None:
        """Add messages and notes."""
        for entry in entries:
            self.bytes += len(encode_entry(entry).encode())
            if isinstance(entry, ConversationMessage):
                self.messages += 1
                self.tokens += counter.count(entry)
            else:
                self.notes += 1

    def add_records(self, records: Iterable[SummaryRecord]) -> None:
        """Add summaries."""
        for record in records:
            self.summaries += 1
            self.tokens_removed += record.tokens_before - record.tokens_after
            self.usage += record.usage or Usage()
            self.unreported += record.usage is None


@attrs.define
class Statistics:
    """What a store holds.

    Args:
        total: everything.
        users: of the users with the most tokens, most first.
        agents: of each agent.
        user_count: how many users there are.
    """

    total: Totals = attrs.field(factory=Totals)
    users: list[tuple[str, Totals]] = attrs.field(factory=list[tuple[str, Totals]])
    agents: dict[str, Totals] = attrs.field(factory=dict[str, Totals])
    user_count: int = 0


class _TopUsers:
    """Keeps the largest users; chats come in key order, so one user is open at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, int, str, Totals]] = []
        self._open: tuple[str, Totals] | None = None
        self.count = 0

    def add(self, user_id: str, totals: Totals) -> None:
        if self._open is None or self._open[0] != user_id:
            self.close()
            self._open = user_id, Totals()
            self.count += 1
        self._open[1].add(totals)

    def close(self) -> None:
        if self._open is not None:
            user_id, totals = self._open
            item = (totals.tokens, -self.count, user_id, totals)
            heapq.heappush(self._heap, item)
            if len(self._heap) > self._most:
                heapq.heappop(self._heap)

    def largest(self) -> list[tuple[str, Totals]]:
        return [(user_id, totals) for _, _, user_id, totals in sorted(self._heap, reverse=True)]


async def count(
    storage: ChatStorage,
    user_id: str | None = None,
    session_id: str | None = None,
    *,
    most_users: int = 20,
    counter: TokenCounter | None = None,
    on_progress: Callable[[int], object] = abs,
) -> Statistics:
    """Read every message and add up.

    Args:
        storage: what to read.
        user_id, session_id: of which user or session; all by default.
        most_users: how many users are told of one by one.
        counter: counts tokens; by default an estimate.
        on_progress: told how many entries were read, piece by piece.
    """
    found, users = Statistics(), _TopUsers(most_users)
    counting = counter or HeuristicTokenCounter()
    async for info in storage.list_chats(user_id, session_id):
        totals = await _count_chat(storage, info, counting, on_progress)
        found.total.add(totals)
        found.agents.setdefault(info.key.agent_id, Totals()).add(totals)
        users.add(info.key.user_id, totals)
    users.close()
    found.users, found.user_count = users.largest(), users.count
    return found


async def _count_chat(
    storage: ChatStorage,
    info: ChatInfo,
    counter: TokenCounter,
    on_progress: Callable[[int], object],
) -> Totals:
    totals = Totals(chats=1)
    async for part in pages(storage, info.key, last=info.last):
        totals.add_entries(part.entries, counter)
        on_progress(len(part.entries))
    store = storage.summaries()
    if store is not None:
        totals.add_records(await store.list_summaries(info.key))
    return totals
