"""A call that is cancelled has happened whole or never will."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    ContractBase,
    contents,
    counted,
    differs_by_engine,
    ids,
    positions,
    raw,
    save,
    user,
    users,
)


class CancellationTests(ContractBase):
    """Case C22: cancelled at any await."""

    @differs_by_engine
    async def test_c22_a_cancelled_save_is_whole_or_nothing(self, storage: ChatStorage) -> None:
        """Wherever a batch is cancelled, nothing is in flight and the next save is right."""
        expected = await _cancel_everywhere(storage, _cancel_once, self.cancelled_steps)
        assert await raw(storage) == expected

    async def test_c22_a_save_cancelled_twice_is_whole_or_nothing(
        self, storage: ChatStorage
    ) -> None:
        """A second cancellation while the first one waits cuts nothing short."""
        expected = await _cancel_everywhere(storage, _cancel_twice, self.cancelled_steps)
        assert await raw(storage) == expected

    async def test_c22_a_save_that_times_out_is_whole_or_nothing(
        self, storage: ChatStorage
    ) -> None:
        """``asyncio.timeout`` is a cancellation like any other."""

        async def time_out(task: asyncio.Task[object]) -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await task

        expected = await _cancel_everywhere(storage, time_out, self.cancelled_steps)
        assert await raw(storage) == expected

    async def test_c22_the_first_save_of_a_chat_may_be_cancelled(
        self, storage: ChatStorage
    ) -> None:
        """A chat that was being made is there with its messages or not at all."""
        for ticks in range(12):
            agent = f"agent {ticks}"
            task = asyncio.ensure_future(
                storage.save_chat_messages("user", "session", agent, users(3))
            )
            await _spin(ticks)
            await _cancel_once(task)
            stored = await storage.fetch_chat("user", "session", agent)
            assert contents(stored) in ([], contents(users(3)))
            listed = {info.key.agent_id async for info in storage.list_chats()}
            assert (agent in listed) == bool(stored)

    @differs_by_engine
    async def test_c22_a_save_cancelled_among_others_takes_none_with_it(
        self, storage: ChatStorage
    ) -> None:
        """Saves that share their way into the store do not share a cancellation."""
        for ticks in range(8):
            messages = users(9, f"round {ticks} message ")
            tasks = [asyncio.ensure_future(save(storage, message)) for message in messages]
            await _spin(ticks)
            tasks[4].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert not any(isinstance(r, BaseException) for r in results[:4] + results[5:])
            stored = await raw(storage)
            assert set(messages[:4] + messages[5:]) <= set(stored)
            assert positions(stored) == counted(1, len(stored))

    @differs_by_engine
    async def test_c22_a_cancelled_trim_is_whole_or_nothing(self, storage: ChatStorage) -> None:
        """Forgetting is cancelled as safely as saving."""
        await save(storage, user("0"))
        for ticks in _ticks(12):
            before = await save(storage, *users(4))
            floor = (await storage.read_log(*ids())).floor
            task = asyncio.ensure_future(storage.trim_chat(*ids(), 2))
            await _spin(ticks)
            finished = task.done()
            await _cancel_once(task)
            chat = await storage.read_log(*ids())
            last = before[-1].position or 0
            assert chat.floor in (floor, last - 2)
            assert positions(chat.messages) == counted(chat.floor + 1, last)
            if finished:
                return

    async def test_c22_a_cancelled_read_harms_nothing(self, storage: ChatStorage) -> None:
        """Reads may be given up at any moment."""
        batch = users(30)
        await save(storage, *batch)
        for ticks in range(30):
            task = asyncio.ensure_future(storage.fetch_chat(*ids(), 20))
            await _spin(ticks)
            await _cancel_once(task)
        assert await raw(storage) == batch
        assert positions(await save(storage, user("next"))) == [31]


async def _cancel_everywhere(
    storage: ChatStorage,
    cancel: Callable[[asyncio.Task[object]], Awaitable[None]],
    closely: int,
) -> list[object]:
    """Cancel a save at every await in turn; check and return what must be stored."""
    expected: list[object] = list(await save(storage, user("first")))
    for ticks in _ticks(closely):
        batch = users(3, f"{ticks} ticks, message ")
        task: asyncio.Task[object] = asyncio.ensure_future(save(storage, *batch))
        await _spin(ticks)
        finished = task.done()
        await cancel(task)
        assert task.done()
        stored = await raw(storage)
        assert stored in (expected, [*expected, *batch]), f"cancelled after {ticks} ticks"
        await save(storage, *batch)  # returns it if it is there: nothing is stored twice
        expected.extend(batch)
        assert await raw(storage) == expected, f"cancelled after {ticks} ticks"
        if finished:
            return expected
    return expected


def _ticks(closely: int) -> Iterator[int]:
    """Every number of steps at first, then ever larger ones: a thread or server takes long."""
    yield from range(closely)
    ticks = float(closely)
    while ticks < 1_000_000:
        ticks *= 1.6
        yield int(ticks)


async def _spin(ticks: int) -> None:
    for _ in range(ticks):
        await asyncio.sleep(0)


async def _cancel_once(task: asyncio.Task[object]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _cancel_twice(task: asyncio.Task[object]) -> None:
    task.cancel()
    await asyncio.sleep(0)
    await _cancel_once(task)
