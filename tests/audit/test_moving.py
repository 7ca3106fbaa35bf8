"""Moving chats into a store: everything arrives, once, and what cannot is told."""

from __future__ import annotations

import pytest

from agent_memory import (
    ChatKey,
    FileChatStorage,
    InMemoryChatStorage,
    SqlChatStorage,
    StorageUnavailableError,
    SummarizingChatStorage,
)
from agent_memory.audit.chat_copy import chunks_of, missing_in
from agent_memory.audit.chat_import import Importer
from agent_memory.audit.chunks import Chunk
from agent_memory.audit.findings import BadRecordError, Finding
from agent_memory.audit.view_inspection import explanation_of
from agent_memory.errors import MessageTooLargeError
from agent_memory.log import Retraction
from agent_memory.records import Note
from chats_to_move import IDS, everything, fill, moved, records, said, stream_of, user

KEY = ChatKey(*IDS)


@pytest.fixture(params=["memory", "file", "sqlite"])
async def target(request, tmp_path):
    storage = {
        "memory": InMemoryChatStorage,
        "file": lambda: FileChatStorage(tmp_path / "target"),
        "sqlite": lambda: SqlChatStorage(f"sqlite:///{tmp_path}/target.db"),
    }[request.param]()
    async with storage:
        yield storage


@pytest.fixture
async def source():
    async with InMemoryChatStorage() as storage:
        await fill(storage)
        yield storage


async def differences(target, source):
    return [str(bad) async for bad in missing_in(target, source)]


async def test_everything_arrives(source, target):
    """Messages, notes, positions and summaries are the same afterwards."""
    _, done = await moved(chunks_of(source), target)
    assert await everything(target) == await everything(source)
    assert [entry.position for entry in (await everything(target))[KEY]] == list(range(1, 32))
    assert await records(target) == await records(source) != []
    assert (done.chats, done.messages, done.notes, done.bad) == (3, 40, 1, 0)
    assert (done.summaries, done.summaries_left) == (len(await records(source)), 0)
    assert await differences(target, source) == []


async def test_the_view_comes_along(source, target):
    """What a model sees of the copy is what it sees of the original."""
    await moved(chunks_of(source), target)
    seen = [list((await explanation_of(store, KEY)).view) for store in (source, target)]
    assert seen[0] == seen[1]
    assert len(seen[0]) < 10


async def test_moving_again_stores_nothing(source, target):
    """A second time everything is there already."""
    await moved(chunks_of(source), target)
    before = await everything(target)
    _, done = await moved(chunks_of(source), target)
    assert (done.messages, done.notes, done.present) == (0, 0, 41)
    assert done.summaries == len(await records(source))
    assert await everything(target) == before


@pytest.mark.parametrize("after", [0, 1, 7, 20])
async def test_an_interrupted_move_is_resumed(source, target, after):
    """What a failing store has taken stays, and the next attempt brings the rest."""
    save, taken = target._append, 0

    async def failing(key, entries):
        nonlocal taken
        if taken + len(entries) > after:
            raise StorageUnavailableError("the disk is full", key=key)
        taken += len(entries)
        return await save(key, entries)

    target._append = failing
    with pytest.raises(StorageUnavailableError, match="disk is full"):
        await moved(chunks_of(source), target)
    del target._append
    _, done = await moved(chunks_of(source), target)
    assert done.present == taken
    assert await everything(target) == await everything(source)
    assert await records(target) == await records(source)


async def test_a_source_that_went_on(source, target):
    """What came to the source meanwhile is brought by the next move, and nothing else."""
    await moved(chunks_of(source), target)
    await source.save_chat_message(*IDS, user("one more"))
    assert "is missing in the target" in (await differences(target, source))[0]
    _, done = await moved(chunks_of(source), target)
    assert done.messages == 1
    assert await differences(target, source) == []


async def test_a_target_with_messages_of_its_own(source, target):
    """They stay; the source's are stored once all the same; summaries do not fit there."""
    await target.save_chat_message(*IDS, user("mine", id="mine"))
    for present in (0, 41):
        _, done = await moved(chunks_of(source), target)
        assert (done.messages + done.notes, done.present) == (41 - present, present)
        assert (done.summaries, done.summaries_left) == (0, len(await records(source)))
    entries = (await everything(target))[KEY]
    assert [entry.id for entry in entries] == [
        "mine",
        *[e.id for e in (await everything(source))[KEY]],
    ]
    assert await records(target) == []
    assert await differences(target, source) == []


async def test_summaries_alone_are_left_out(source, target):
    """Without an entry to compare, nothing says that the target's positions are the source's."""
    await target.save_chat_messages(*IDS, [user(f"mine {n}") for n in range(40)])
    made = await records(source)
    _, done = await moved(stream_of([Chunk(KEY, (), summaries=made)]), target)
    assert (done.summaries, done.summaries_left) == (0, len(made))
    assert await records(target) == []


async def test_a_target_that_went_on(source, target):
    """Where the copy has got more messages, another move finds everything, summaries too."""
    await moved(chunks_of(source), target)
    await target.save_chat_message(*IDS, user("later"))
    _, done = await moved(chunks_of(source), target)
    assert (done.messages, done.summaries_left) == (0, 0)
    assert await differences(target, source) == []


@pytest.mark.parametrize("mine", [[], [user("first", id="first")]])
async def test_an_id_with_another_content_is_told(source, mine):
    """A message that the target holds with another content is a bad record; others arrive."""
    async with InMemoryChatStorage() as target:
        await target.save_chat_messages(*IDS, [*mine, user("another", id="m1")])
        told = []
        _, done = await moved(chunks_of(source), target, keep_going=True, on_bad=told.append)
        assert done.bad == len(told) == 1
        assert told[0].location == f"the chat of {KEY}, position 1"
        assert "'m1' is already in the chat" in told[0].reason
        assert done.messages == 39


async def test_one_refused_message_does_not_hold_up_the_others(source):
    """Of a batch with one message that the store never takes, all others are stored in order."""
    async with InMemoryChatStorage() as target:
        save = target._append

        async def strict(key, entries):
            if any(entry.id == "m17" for entry in entries):
                raise MessageTooLargeError("m17 is too large", key=key)
            return await save(key, entries)

        target._append = strict
        with pytest.raises(BadRecordError, match="position 18: m17 is too large"):
            await moved(chunks_of(source), target)
        told = []
        await moved(chunks_of(source), target, keep_going=True, on_bad=told.append)
        assert [bad.reason for bad in told] == ["m17 is too large"]
        ids = [entry.id for entry in (await everything(target))[KEY]]
        assert ids == [e.id for e in (await everything(source))[KEY] if e.id != "m17"]


async def test_positions_move_and_summaries_are_left_out(target):
    """A trimmed chat begins at 1 in the target: a record would name other messages there."""
    async with InMemoryChatStorage() as source:
        await source.save_chat_messages(*IDS, said(5))
        await source.trim_chat(*IDS, 1)
        async with SummarizingChatStorage(source, halve, 4, 2, close_inner=False) as short:
            for message in said(9, start=6):
                await short.save_chat_message(*IDS, message)
                await short.fetch_chat(*IDS)
        assert len(await records(source)) == 1
        for _ in range(2):
            _, done = await moved(chunks_of(source), target)
            assert (done.summaries, done.summaries_left) == (0, 1)
        assert await records(target) == []
        assert await differences(target, source) == []
        copied = (await everything(target))[KEY]
        assert [entry.position for entry in copied] == list(range(1, len(copied) + 1))
        seen = (await explanation_of(target, KEY)).view
        assert list(seen) == copied  # raw, until a summary is made of it


def halve(history, keep_last):
    return [user("a summary"), *history[-2 * keep_last :]]


async def test_a_retraction_s_hint_does_not_mislead(target):
    """Where positions move, the hint that speaks of them is left out; where not, it stays."""
    for floor, kept in ((0, True), (2, False)):
        ids = ("ada", f"session {floor}", "guide")
        async with InMemoryChatStorage() as source:
            await source.save_chat_messages(*ids, said(floor + 3))
            if floor:
                await source.trim_chat(*ids, 3)
            note = Retraction(frozenset({"m4"}), hidden=(floor + 2, floor + 2)).to_note()
            await source.save_note(*ids, note)
            for _ in range(2):
                _, done = await moved(chunks_of(source), target)
                assert done.bad == 0
            note = (await everything(target))[ChatKey(*ids)][-1]
            assert ("hidden" in note.data) is kept
            assert await differences(target, source) == []


async def test_bad_records_end_the_move_or_are_passed_over():
    """Without keep_going the first bad record ends it, once what came before it is stored."""
    chunk = Chunk(KEY, said(3), (4, 5, 6), "chats.jsonl, line")
    items = [chunk, Finding("chats.jsonl, line 7", "no JSON"), Chunk(KEY, said(2, start=4))]
    target, seen = InMemoryChatStorage(), []
    with pytest.raises(
        BadRecordError, match=r"line 7: no JSON; stored before it: 3 entries .*--keep-going"
    ):
        await moved(stream_of(items), target)
    assert len(await target.fetch_chat(*IDS)) == 3
    _, done = await moved(stream_of(items), target, keep_going=True, on_bad=seen.append)
    assert (done.present, done.messages, done.bad) == (3, 2, 1)
    assert seen == [items[1]]
    await target.aclose()


async def test_an_unreadable_entry_is_told_with_its_place():
    """What the source store cannot read is a bad record; positions after it close up."""
    note = Note("corrupted", {"location": "chats.jsonl, line 2, byte 9", "error": "torn"})
    entries = [message.placed(n, "guide") for n, message in enumerate(said(2), 1)]
    entries.insert(1, note.placed(2, "guide"))
    seen = []
    target, done = await moved(
        stream_of([Chunk(KEY, entries)]), keep_going=True, on_bad=seen.append
    )
    assert seen == [Finding("chats.jsonl, line 2, byte 9", "torn")]
    assert [message.position for message in await target.fetch_chat(*IDS)] == [1, 2]
    assert done.bad == 1
    await target.aclose()


async def test_a_source_that_comes_back_to_a_chat():
    """Chunks of chats in turn, a chat twice: each chat's order is the source's."""
    other = ChatKey("bob", "s", "guide")
    items = [Chunk((KEY, other)[n % 2], said(10, start=1 + 10 * (n // 2))) for n in range(20)]
    target, done = await moved(stream_of(items))
    for key in (KEY, other):
        ids = [entry.id for entry in (await everything(target))[key]]
        assert ids == [f"m{n}" for n in range(1, 101)]
    assert done.messages == 200
    await target.aclose()


async def test_progress_adds_up(source):
    """What the progress tells adds up to what there is."""
    counts, places = [], []
    target = InMemoryChatStorage()
    mover = Importer(
        target, on_progress=lambda count, done: (counts.append(count), places.append(done))
    )
    await mover.move(chunks_of(source))
    assert sum(counts) == max(places) == 41
    await target.aclose()


async def test_a_difference_is_found(source, target):
    """The comparison sees another timestamp, a missing message and another order."""
    await moved(chunks_of(source), target)
    for ids, messages in (
        (("cas", "time", "a"), [user("x", id="x")]),
        (("cas", "order", "a"), [user("x", id="x"), user("y", id="y")]),
    ):
        await source.save_chat_messages(*ids, messages)
        await target.save_chat_messages(*ids, [user(m.content, id=m.id) for m in messages[::-1]])
    found = await differences(target, source)
    assert len(found) == 2
    assert "session 'order'" in found[0]
    assert "'x' is another one in the target" in found[0]
    assert "session 'time'" in found[1]
    assert "another one" in found[1]
