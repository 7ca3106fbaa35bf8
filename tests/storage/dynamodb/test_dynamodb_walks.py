"""Random walks: two stores at one table do what the reference in memory does."""

from __future__ import annotations

import random

import pytest
from dynamodb_table import IDS, items_of, user

import matrix
from agent_memory import ChatKey, InMemoryChatStorage, Note

KEY = ChatKey(*IDS)


async def append(chance, storage, reference):
    count = chance.choice([1, 1, 1, 2, 5, 70])
    batch = [user(f"text {chance.random()}") for _ in range(count)]
    known = (await reference._read(KEY, last=64)).messages  # as many as are surely known
    if known and chance.random() < 0.3:
        batch[-1] = chance.choice(known)
    stored = await storage._append(KEY, batch)
    expected = await reference._append(KEY, batch)
    assert [e.position for e in stored.entries] == [e.position for e in expected.entries]
    assert stored.floor == expected.floor


async def note(chance, storage, reference):
    made = Note("run", {"n": chance.random()})
    stored = await storage.save_note(*IDS, made)
    assert stored.position == (await reference.save_note(*IDS, made)).position


async def forget(chance, storage, reference):
    keep = chance.choice([0, 1, 3, 10, 60])
    assert await storage.trim_chat(*IDS, keep) == await reference.trim_chat(*IDS, keep)


async def read(chance, storage, reference):
    options = chance.choice([{}, {"first": chance.randint(1, 9)}, {"last": chance.randint(1, 9)}])
    last = (await reference._read(KEY)).entries[-1:]
    top = last[0].position + 2 if last else 5
    options["after"] = chance.randint(0, top)
    found, expected = await storage._read(KEY, **options), await reference._read(KEY, **options)
    assert list(found.entries) == list(expected.entries), options
    assert [e.position for e in found.entries] == [e.position for e in expected.entries]
    assert found.floor == expected.floor


@pytest.mark.parametrize("seed", matrix.params(range(5), always=[0, 1]))
async def test_any_sequence_of_calls_does_what_the_reference_does(make, clock, seed):
    """Appends, repeats, notes, trims, deletes, reads of all kinds; hours pass between them."""
    chance = random.Random(seed)
    stores, reference = [make(clock=clock), make(clock=clock)], InMemoryChatStorage()
    for store in stores:
        await store._ready()
    for _ in range(80):
        clock.advance(minutes=chance.choice([0, 0, 1, 30, 100]))
        step = chance.choice([append, append, note, forget, read, read])
        await step(chance, chance.choice(stores), reference)
    for store in stores:
        assert await store._read(KEY) == await reference._read(KEY)
        assert await store.fetch_all_chats(*IDS[:2]) == await reference.fetch_all_chats(*IDS[:2])
    await stores[0].delete_chat(*IDS)
    clock.advance(hours=3)
    await stores[0].delete_chat(*IDS)
    assert len(await items_of(stores[0], b"l")) <= 1
