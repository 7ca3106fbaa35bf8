"""Statistics: the chats of a store, their size, and what their summaries cost and saved."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import attrs

from agent_memory.audit.log_pages import ids_of, pages
from agent_memory.log import ChatInfo, Entry, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole, Usage
from agent_memory.providers import text_of
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import encode_entry
from agent_memory.tokens import HeuristicTokenCounter, TokenCounter


@attrs.define
class Totals:
    """Sums over chats.

    Args:
        chats: how many.
        messages: how many.
        notes: how many entries of the log are notes.
        tokens: of the messages, estimated.
        bytes: of messages and notes as they are stored, in UTF-8; without what a database adds.
        summaries: how many records.
        tokens_removed: how many tokens summaries removed from views, each counted once.
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
        most_users: how many users are listed one by one.
        counter: counts tokens; by default an estimate.
        on_progress: called after each page with the number of entries read.
    """
    found = Statistics()
    counting = counter or HeuristicTokenCounter()
    async for info in storage.list_chats(user_id, session_id):
        totals = await _count_chat(storage, info, counting, on_progress)
        found.total.add(totals)
        found.agents.setdefault(info.key.agent_id, Totals()).add(totals)
        # Chats come in key order: when the next user begins, the one before is complete, and
        # memory stays bounded however many there are.
        if not found.users or found.users[-1][0] != info.key.user_id:
            found.users = _largest(found.users, most_users)
            found.users.append((info.key.user_id, Totals()))
            found.user_count += 1
        found.users[-1][1].add(totals)
    found.users = _largest(found.users, most_users)
    return found


def _largest(users: list[tuple[str, Totals]], most: int) -> list[tuple[str, Totals]]:
    return heapq.nlargest(most, users, key=lambda user: user[1].tokens)


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


_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_READ_WHOLE: Final = 2_000
_SAMPLE: Final = 500
_TITLE: Final = 200


@attrs.frozen(kw_only=True)
class ChatLine:
    """One row of a list of chats.

    Args:
        key: which chat.
        title: what was first asked in it, cut off; empty if nothing was.
        messages: how many it holds; of a chat that was not read whole, notes are among them.
        tokens: of all of them, estimated; None if the chat was not read.
        is_sampled: whether `tokens` is projected from the oldest and newest messages.
        summaries: how many summary records it has; None if that was not asked.
        created_at, updated_at: when its first and newest entries were stored, if known.
    """

    key: ChatKey
    title: str = ""
    messages: int
    tokens: int | None = None
    is_sampled: bool = False
    summaries: int | None = None
    created_at: datetime | None
    updated_at: datetime | None


async def newest_chats(
    storage: ChatStorage, user_id: str | None, session_id: str | None, most: int
) -> list[ChatInfo]:
    """Return the chats that something was stored in last, newest first.

    Every chat is listed, none is read; memory is bounded by `most`.
    """
    heap: list[tuple[datetime, int, ChatInfo]] = []
    count = 0
    async for info in storage.list_chats(user_id, session_id):
        count += 1
        # The count breaks ties in listing order and keeps ChatInfo, which has no order, out of
        # the comparison.
        item = (info.updated_at or _LONG_AGO, -count, info)
        if len(heap) < most:
            heapq.heappush(heap, item)
        else:
            heapq.heappushpop(heap, item)
    return [info for _, _, info in sorted(heap, reverse=True)]


def brief(info: ChatInfo) -> ChatLine:
    """Return a chat's row without reading the chat: no title, no tokens."""
    return ChatLine(
        key=info.key,
        messages=info.entries,
        created_at=info.created_at,
        updated_at=info.updated_at,
    )


async def line_of(
    storage: ChatStorage, info: ChatInfo, counter: TokenCounter | None = None
) -> ChatLine:
    """Return a chat's row; a long chat is read in part, and its tokens are projected."""
    count = (counter or HeuristicTokenCounter()).count
    is_long = info.entries > _READ_WHOLE
    messages, tokens, title, is_asked = 0, 0, "", False
    async for part in _parts(storage, info, is_long=is_long):
        for message in part:
            messages += 1
            tokens += count(message)
            if not is_asked and message.role is not ParticipantRole.SYSTEM:
                text = text_of(message)[:_TITLE]
                is_asked = message.role is ParticipantRole.USER and bool(text.strip())
                title = text if is_asked else title or text
    store = storage.summaries()
    records = [] if store is None else await store.list_summaries(info.key)
    # The two ends of a chat are read: its system prompt, and what it has grown to.
    share = info.entries / max(1, messages) if is_long else 1
    return attrs.evolve(
        brief(info),
        title=title,
        messages=info.entries if is_long else messages,
        tokens=int(tokens * share),
        is_sampled=is_long,
        summaries=len(records),
    )


async def _parts(
    storage: ChatStorage, info: ChatInfo, *, is_long: bool
) -> AsyncIterator[list[ConversationMessage]]:
    if not is_long:
        async for page in pages(storage, info.key, last=info.last):
            yield page.messages
        return
    yield (await storage.read_log(*ids_of(info.key), first=_SAMPLE)).messages
    yield (await storage.read_log(*ids_of(info.key), last=_SAMPLE)).messages
