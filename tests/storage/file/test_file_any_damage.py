"""Files cut at every byte, and damaged at any: what is whole is read, and saving goes on."""

from __future__ import annotations

import random

import pytest
from file_support import IDS, fetched, log_of, parsed_lines, raw_lines, run, saved, users

import matrix
from agent_memory import ConversationMessage, FileChatStorage


def contents(messages):
    return [message.content for message in messages]


@pytest.mark.parametrize("first", matrix.params(range(6), always=[0]))
def test_cut_anywhere_a_file_holds_its_whole_batches_and_takes_the_next(tmp_path, first):
    """At each of its bytes: what is read is the batches before, and saving goes on."""
    run(saved(tmp_path, users(1, "a"), users(3, "b"), users(1, "c")))
    path = log_of(tmp_path)
    data = path.read_bytes()
    said = contents([*users(1, "a"), *users(3, "b"), *users(1, "c")])
    allowed = [said[:count] for count in (0, 1, 4, 5)]

    async def check(cut):
        path.write_bytes(data[:cut])
        async with FileChatStorage(tmp_path, durability="os") as storage:
            before = contents(await storage.fetch_chat(*IDS))
            assert before in allowed
            await storage.save_chat_messages(*IDS, users(2, "next"))
            after = await storage.fetch_chat(*IDS)
        assert contents(after) == [*before, "next1", "next2"]
        assert [m.position for m in after] == [*range(1, len(after) + 1)]
        assert parsed_lines(path)[0]["chat"]["user_id"] == "user"

    for cut in range(first, len(data), 6):
        run(check(cut))


@pytest.mark.parametrize("seed", matrix.params(range(6), always=[0, 1]))
def test_whatever_bytes_are_damaged_every_untouched_line_is_read(tmp_path, seed):
    """At its position; and the store stays usable."""
    rng = random.Random(seed)
    batches = [users(rng.choice([1, 1, 3]), f"{n} ") for n in range(12)]
    run(saved(tmp_path, *batches, [ConversationMessage("user", "last")]))
    path = log_of(tmp_path)
    whole = run(fetched(tmp_path))
    lines = raw_lines(path)

    async def check():
        # Not the last line: what says how long its batch is decides whether it was saved.
        index = rng.randrange(len(lines) - 1)
        at = rng.randrange(len(lines[index]))
        damaged = bytearray(lines[index])
        damaged[at : at + rng.choice([1, 1, 9])] = rng.randbytes(rng.choice([0, 1, 9]))
        path.write_bytes(b"".join([*lines[:index], damaged, *lines[index + 1 :]]))
        # Without its end it is one line with the next, and neither is read.
        touched = {index} if damaged.endswith(b"\n") else {index, index + 1}
        async with FileChatStorage(tmp_path, durability="os") as storage:
            read = {m.position: m for m in await storage.fetch_chat(*IDS)}
            for number, message in enumerate(whole, 1):
                assert number in touched or read.get(number) == message
            (stored,) = await storage.save_chat_message(*IDS, ConversationMessage("user", "new"))
            assert (await storage.fetch_chat(*IDS, 1)) == [stored]
            assert stored.position == len(whole) + 1
            async for problem in storage.verify():
                assert str(path) in problem.location

    for _ in range(50):
        run(check())
