"""Overview, statistics, explanation and deletion: figures that can be checked by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent_memory import ChatKey, ConversationMessage, InMemoryChatStorage, InvalidRequestError
from agent_memory.audit import deletion
from agent_memory.audit.chat_stats import brief, count, line_of, newest_chats
from agent_memory.audit.log_pages import next_size, pages
from agent_memory.audit.selection import Scope
from agent_memory.audit.view_inspection import explanation_of, stretches_of
from agent_memory.records import ChatInfo
from agent_memory.storage.codec import encode_entry
from agent_memory.tokens import HeuristicTokenCounter
from chats_to_move import IDS, everything, fill, records, said, user

KEY = ChatKey(*IDS)


@pytest.fixture
async def storage():
    async with InMemoryChatStorage() as storage:
        await fill(storage)
        yield storage


async def lines(storage):
    return {info.key: await line_of(storage, info) async for info in storage.list_chats()}


async def test_a_chat_s_line(storage):
    """Title, messages (no notes), tokens and summaries."""
    line = (await lines(storage))[KEY]
    expected = sum(HeuristicTokenCounter().count(message) for message in said(30))
    assert (line.title, line.messages, line.tokens) == ("say 1", 30, expected)
    assert line.summaries == len(await records(storage))
    assert not line.is_sampled


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        ([("system", "Be brief."), ("assistant", "Hi!"), ("user", "  "), ("user", "Go")], "Go"),
        ([("system", "Be brief."), ("assistant", "Hi!")], "Hi!"),
        ([("system", "Be brief.")], ""),
    ],
)
async def test_a_title(messages, title):
    """What was first asked; else what was first said."""
    async with InMemoryChatStorage() as storage:
        made = [ConversationMessage(role, text) for role, text in messages]
        await storage.save_chat_messages(*IDS, made)
        assert (await lines(storage))[KEY].title == title


async def test_a_long_chat_is_read_in_part():
    """Beyond 2,000 messages tokens are projected, and near the truth."""
    async with InMemoryChatStorage() as storage:
        await storage.save_chat_messages(*IDS, said(3_000))
        line = (await lines(storage))[KEY]
        expected = sum(HeuristicTokenCounter().count(message) for message in said(3_000))
        assert line.is_sampled
        assert (line.title, line.messages) == ("say 1", 3_000)
        assert 0.9 < line.tokens / expected < 1.1


def infos(count):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    order = [n * 7 % count for n in range(count)]
    stamps = [start + timedelta(seconds=n) for n in order]
    return [
        ChatInfo(ChatKey("u", f"s{n:04}", "a"), 0, 1, stamp, stamp)
        for n, stamp in enumerate(stamps)
    ]


async def test_the_newest_chats():
    """Of many chats the newest few, newest first; those of unknown age last."""
    known = infos(100)
    unknown = ChatInfo(ChatKey("a", "unknown", "a"), 0, 1)

    class Listing:
        async def list_chats(self, user_id, session_id):
            for info in [unknown, *known]:
                yield info

    newest = await newest_chats(Listing(), None, None, 5)
    assert newest == sorted(known, key=lambda info: info.updated_at, reverse=True)[:5]
    assert (await newest_chats(Listing(), None, None, 500))[-1] == unknown
    assert brief(unknown).tokens is None


async def test_statistics(storage):
    """Sums by user and agent; bytes are those of the stored form."""
    found = await count(storage, most_users=1)
    entries = [entry for log in (await everything(storage)).values() for entry in log]
    assert (found.total.chats, found.total.messages, found.total.notes) == (3, 40, 1)
    assert found.total.bytes == sum(len(encode_entry(entry).encode()) for entry in entries)
    assert [name for name, _ in found.users] == ["ada"]
    assert found.user_count == 2
    assert found.agents["guide"].messages + found.agents["weather"].messages == 40
    made = await records(storage)
    assert found.total.summaries == len(made)
    removed = sum(record.tokens_before - record.tokens_after for record in made)
    assert found.total.tokens_removed == removed > 0


async def test_statistics_keep_the_largest_users():
    """Of many users those with the most tokens are told, the largest first."""
    async with InMemoryChatStorage() as storage:
        for n in range(20):
            await storage.save_chat_messages(f"u{n:02}", "s", "a", said(1 + n * 7 % 20))
        found = await count(storage, most_users=3)
    assert [totals.messages for _, totals in found.users] == [20, 19, 18]
    assert found.user_count == 20


async def test_what_the_model_sees(storage):
    """Each raw message is in one stretch, in order; the covered ones name their summary."""
    explanation = await explanation_of(storage, KEY)
    stretches = stretches_of(explanation)
    raw = [message for stretch in stretches for message in stretch.messages]
    assert [message.id for message in raw] == [f"m{n}" for n in range(1, 31)]
    shown = [message for stretch in stretches if stretch.is_shown for message in stretch.messages]
    assert [message.id for message in shown] == [m.id for m in explanation.view]
    made = await records(storage)
    hidden = [stretch for stretch in stretches if not stretch.is_shown]
    assert [stretch.number for stretch in hidden] == list(range(1, len(hidden) + 1))
    assert [stretch.summary for stretch in hidden] == made


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("90d", timedelta(90)),
        ("12h", timedelta(hours=12)),
        (" 2W ", timedelta(14)),
        ("5 m", timedelta(minutes=5)),
    ],
)  # fmt: skip
def test_ages(text, age):
    """Days, hours, weeks and minutes."""
    assert deletion.parse_age(text) == age


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1.5d", "90 days", "9999999d"])
def test_what_is_no_age(text):
    """Anything else is refused, with examples."""
    with pytest.raises(InvalidRequestError, match="written 90d, 12h"):
        deletion.parse_age(text)


@pytest.mark.parametrize(
    ("ids", "gone", "left"),
    [
        (("ada",), (2, 37), 1),
        (("ada", "hike"), (2, 37), 1),
        (IDS, (1, 30), 2),
        (("no",), (0, 0), 3),
    ],
)
async def test_deleting(storage, ids, gone, left):
    """What is announced is what goes, and nothing else."""
    announced = await deletion.delete(storage, Scope(*ids), dry_run=True)
    done = await deletion.delete(storage, Scope(*ids))
    assert (done.chats, done.messages) == gone
    assert (done.chats, done.summaries) == (announced.chats, announced.summaries)
    assert len(await everything(storage)) == left


async def test_pruning(storage):
    """Only what has not been touched for so long goes; what is touched meanwhile stays."""
    assert (await deletion.prune(storage, timedelta(days=1), dry_run=True)).chats == 0
    assert (await deletion.prune(storage, timedelta(days=1))).chats == 0
    listed, touched = storage._list, []

    async def touching(user_id, session_id):
        async for info in listed(user_id, session_id):
            if info.key == KEY and not touched:
                touched.append(await storage.save_chat_message(*IDS, user("still here")))
            yield info

    announced = await deletion.prune(storage, timedelta(0), dry_run=True)
    assert announced.chats == 3
    storage._list = touching
    late = datetime.now(UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return late

    deletion.datetime, kept = Clock, deletion.datetime
    try:
        done = await deletion.prune(storage, timedelta(0))
    finally:
        deletion.datetime = kept
    assert touched
    assert done.chats == 2
    assert list(await everything(storage)) == [KEY]


async def test_pages_hold_about_as_much_each(storage):
    """Large messages make small pages, and every entry comes once."""
    async with InMemoryChatStorage() as large:
        await large.save_chat_messages(*IDS, [user("x" * 300_000) for _ in range(120)])
        sizes = [len(part.entries) async for part in pages(large, KEY)]
        assert sum(sizes) == 120
        assert max(sizes[1:]) <= 14
    assert next_size([user("x" * 10_000_000)]) == 1
    assert next_size(said(10)) == 500
