"""What stores must bear beyond the contract's small counts: many processes, kills, deletions."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import ClassVar

from agent_memory import ChatKey, ConversationMessage
from storage.writer import Order, answers, start

CHAT = ("user", "session", "agent")


class HardUse:
    """Tests for every store whose scope reaches beyond one process; `make_storage` is given."""

    processes = 2
    batches = 15
    many_chats = 5
    kills = 2
    rounds = 20
    loops = 20
    answers_are_lost = False  # so that callers save again what is stored already

    async def test_processes_that_write_to_one_chat_lose_nothing(self, make_storage):
        """Everything acknowledged is there, batches whole, positions without a gap."""
        await self.write_together(make_storage, (CHAT,))

    async def test_processes_that_write_to_many_chats_lose_nothing(self, make_storage):
        """As with one chat, in each of them."""
        chats = tuple(("user", "session", f"agent {n}") for n in range(self.many_chats))
        await self.write_together(make_storage, chats)

    async def write_together(self, make_storage, chats):
        orders = [
            Order(make_storage=make_storage, name=f"w{n}", batches=self.batches, chats=chats)
            for n in range(self.processes)
        ]
        told = await asyncio.gather(
            *(asyncio.to_thread(lambda order=order: answers(start(order))) for order in orders)
        )
        async with make_storage() as storage:
            for index, chat in enumerate(chats):
                stored = await storage.fetch_chat_since(*chat, 0)
                assert [m.position for m in stored] == [*range(1, len(stored) + 1)]
                found = whole_batches(stored)
                for order, acknowledged in zip(orders, told, strict=True):
                    assert len(acknowledged) == self.batches
                    mine = [(n, p) for n, p in acknowledged if n % len(chats) == index]
                    assert [(n, p) for name, n, p in found if name == order.name] == mine

    async def test_a_killed_writer_loses_nothing_that_was_acknowledged(self, make_storage):
        """Killed at random moments: acknowledged batches are there, others whole or not at all."""
        moments = random.Random(self.kills)
        async with make_storage() as storage:
            for number in range(self.kills):
                order = Order(
                    make_storage=make_storage, name=f"w{number}", batches=100_000, chats=(CHAT,)
                )
                acknowledged = await asyncio.to_thread(kill_writer, order, moments)
                stored = await storage.fetch_chat_since(*CHAT, 0)
                assert [m.position for m in stored] == [*range(1, len(stored) + 1)]
                mine = [(n, p) for name, n, p in whole_batches(stored) if name == order.name]
                assert mine[: len(acknowledged)] == acknowledged
                assert len(mine) <= len(acknowledged) + 1
                # The batch that was under way can be saved again, and the log goes on.
                again = await storage.save_chat_messages(*CHAT, order.batch(len(acknowledged)))
                was_stored = len(mine) > len(acknowledged)
                assert again[0].position == (mine[-1][1] if was_stored else len(stored) + 1)

    async def test_what_is_deleted_beside_a_writer_is_never_read_again(self, make_storage):
        """Trims and deletions in one process, saves in another: floors only rise."""
        order = Order(make_storage=make_storage, name="w", batches=self.rounds, chats=(CHAT,))
        writer = start(order)
        reading = asyncio.ensure_future(asyncio.to_thread(answers, writer))
        choice, floor = random.Random(self.rounds), 0
        async with make_storage() as storage:
            while not reading.done():
                await storage.trim_chat(*CHAT, choice.choice([0, 0, 1, 2, 5]))
                chat = await storage._read(ChatKey(*CHAT))
                assert chat.floor >= floor
                floor = chat.floor
                positions = [entry.position for entry in chat.entries]
                assert positions == [*range(floor + 1, floor + 1 + len(positions))]
                await asyncio.sleep(0)
            told = await reading
            await storage.delete_chat(*CHAT)
            (last,) = await storage.save_chat_message(*CHAT, ConversationMessage("user", "last"))
        assert [number for number, _ in told] == [*range(self.rounds)]
        starts = [*(position for _, position in told), last.position]
        if self.answers_are_lost:
            # A batch that was stored, not acknowledged, and trimmed is new when it is repeated.
            assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(starts))
        else:
            assert starts == [*range(1, 3 * self.rounds + 2, 3)]

    async def test_short_lived_loops_in_threads_share_a_store(self, make_storage):
        """An orchestrator that calls ``asyncio.run`` in worker threads, each loop for one turn."""

        async def turn(storage, number):
            message = ConversationMessage("user", number)
            await storage.save_chat_message(*CHAT, message)
            assert message in await storage.fetch_chat(*CHAT)

        async with make_storage() as storage:
            await asyncio.gather(
                *(
                    asyncio.to_thread(lambda n=number: asyncio.run(turn(storage, n)))
                    for number in range(self.loops)
                )
            )
            stored = await storage.fetch_chat_since(*CHAT, 0)
            assert sorted(m.content for m in stored) == [*range(self.loops)]
            assert [m.position for m in stored] == [*range(1, self.loops + 1)]


class HardSoak(HardUse):
    """The same with the counts that a release must bear."""

    processes = 4
    batches = 500
    many_chats = 50
    kills = 50
    rounds = 200
    loops = 200
    counts: ClassVar = {
        "test_processes_that_write_to_one_chat_lose_nothing": "4 processes × 500 saves of 3",
        "test_processes_that_write_to_many_chats_lose_nothing": (
            "4 processes × 500 saves of 3 into 50 chats"
        ),
        "test_a_killed_writer_loses_nothing_that_was_acknowledged": "50 kills",
        "test_what_is_deleted_beside_a_writer_is_never_read_again": "200 rounds",
        "test_short_lived_loops_in_threads_share_a_store": "200 loops in threads",
    }


def kill_writer(order: Order, moments: random.Random) -> list[tuple[int, int]]:
    """Start a writer, kill it after a random number of acknowledgements, return them all."""
    process = start(order)
    try:
        lines = [process.stdout.readline().split() for _ in range(moments.randrange(1, 30))]
    finally:
        process.kill()
        rest = answers(process)
    return [(int(number), int(position)) for number, position in lines] + rest


def whole_batches(stored: list[ConversationMessage]) -> list[tuple[str, int, int]]:
    """The batches in a log, as (writer, number, first position); each must be whole."""
    found = []
    by_position = {message.position: message for message in stored}
    for message in stored:
        name, number, place = message.content
        if place == 0:
            found.append((name, number, message.position))
        else:
            before = by_position[message.position - 1]
            assert before.content == [name, number, place - 1], "a batch is torn"
    assert len(stored) == 3 * len(found)
    return found
