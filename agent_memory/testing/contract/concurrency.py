"""Any tasks, threads, event loops and processes that the store's scope covers."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from agent_memory.keys import ChatKey
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    ContractBase,
    MakeStorage,
    contents,
    counted,
    differs_by_engine,
    ids,
    positions,
    raw,
    save,
    skip_if_private,
    user,
    users,
)

_PROCESS_SECONDS = 240


class ConcurrencyTests(ContractBase):
    """Many callers at once."""

    @differs_by_engine
    async def test_c19_many_first_saves_to_a_new_chat(self, storage: ChatStorage) -> None:
        """Twenty tasks create the chat together and all their messages are there."""
        results = await asyncio.gather(*(save(storage, message) for message in users(20)))
        _assert_all_stored(await raw(storage), results)

    @differs_by_engine
    async def test_c19_a_hundred_saves_at_once(self, storage: ChatStorage) -> None:
        """Each save gets a position of its own, from 1 to 100."""
        await save(storage, user("first"))
        results = await asyncio.gather(*(save(storage, message) for message in users(99)))
        _assert_all_stored((await raw(storage))[1:], results)
        assert positions(await raw(storage)) == counted(1, 100)

    async def test_c19_batches_at_once_are_not_mixed(self, storage: ChatStorage) -> None:
        """The messages of a batch stand together."""
        batches = [users(5, f"batch {number} message ") for number in range(20)]
        results = await asyncio.gather(*(save(storage, *batch) for batch in batches))
        for stored in results:
            first = stored[0].position
            assert first is not None
            assert positions(stored) == counted(first, first + 4)
        _assert_all_stored(await raw(storage), results)

    @differs_by_engine
    async def test_c19_saves_to_many_chats_at_once(self, storage: ChatStorage) -> None:
        """Chats do not get into each other's way, each keeps its order."""
        keys = [ChatKey("user", "session", f"agent {number}") for number in range(16)]

        async def fill(key: ChatKey) -> None:
            for message in users(6):
                await save(storage, message, key=key)

        await asyncio.gather(*(fill(key) for key in keys))
        for key in keys:
            stored = await raw(storage, key)
            assert contents(stored) == contents(users(6))
            assert positions(stored) == counted(1, 6)

    @differs_by_engine
    async def test_c16_one_message_saved_by_many_at_once_is_stored_once(
        self, storage: ChatStorage
    ) -> None:
        """Ten saves of one message give one stored message to all of them."""
        message = user("once")
        results = await asyncio.gather(*(save(storage, message) for _ in range(10)))
        assert [positions(result) for result in results] == [[1]] * 10
        assert await raw(storage) == [message]

    @differs_by_engine
    async def test_a_conflict_fails_alone(self, storage: ChatStorage) -> None:
        """Of saves at the same moment only the one that conflicts is refused."""
        known = user("known")
        await save(storage, known)
        good = users(20)
        bad = user("changed", id=known.id)
        batch = [*good[:10], bad, *good[10:]]
        results = await asyncio.gather(
            *(save(storage, message) for message in batch), return_exceptions=True
        )
        refused = [type(r).__name__ for r in results if isinstance(r, BaseException)]
        assert refused == ["StorageConflictError"]
        assert isinstance(results[10], BaseException)
        assert sorted(contents(await raw(storage))) == sorted(["known", *contents(good)])

    @differs_by_engine
    async def test_readers_never_see_half_a_batch(self, storage: ChatStorage) -> None:
        """While batches of four are saved, every read gives a multiple of four."""

        async def write() -> None:
            for number in range(25):
                await save(storage, *users(4, f"{number}: "))

        writer = asyncio.ensure_future(write())
        while not writer.done():
            assert len(await raw(storage)) % 4 == 0
            assert len(await storage.fetch_all_chats("user", "session")) % 4 == 0
            await asyncio.sleep(0)
        await writer

    @differs_by_engine
    async def test_c63_threads_with_loops_of_their_own(self, storage: ChatStorage) -> None:
        """Ten threads that each call ``asyncio.run`` share one storage object."""
        self._skip_if_tied_to_a_loop()

        def work(number: int) -> None:
            for message in users(5, f"thread {number} message "):
                asyncio.run(_save_and_fetch(storage, message))

        await _in_threads(10, work)
        stored = await raw(storage)
        assert positions(stored) == counted(1, 50)
        for number in range(10):
            mine = [text for text in contents(stored) if text.startswith(f"thread {number} ")]
            assert mine == contents(users(5, f"thread {number} message "))

    async def test_c63_a_store_first_used_in_another_loop(self, make_storage: MakeStorage) -> None:
        """The loop that opened a store may end long before the store does."""
        self._skip_if_tied_to_a_loop()
        storage = make_storage()
        await asyncio.to_thread(asyncio.run, _save_and_fetch(storage, user("there")))
        assert contents(await raw(storage)) == ["there"]
        await save(storage, user("here"))
        await asyncio.to_thread(asyncio.run, _save_and_fetch(storage, user("there again")))
        assert contents(await raw(storage)) == ["there", "here", "there again"]
        await storage.aclose()

    @differs_by_engine
    async def test_c63_a_loop_that_ends_leaves_no_save_in_flight(
        self, storage: ChatStorage
    ) -> None:
        """``asyncio.run`` cancels what still runs; each save is whole or never happens."""
        self._skip_if_tied_to_a_loop()
        await save(storage, user("before"))

        async def abandon() -> None:
            tasks = [asyncio.ensure_future(save(storage, *users(3))) for _ in range(8)]
            await asyncio.sleep(0)
            del tasks

        for _ in range(5):
            await asyncio.to_thread(asyncio.run, abandon())
        stored = await raw(storage)
        assert (len(stored) - 1) % 3 == 0
        assert positions(stored) == counted(1, len(stored))
        assert positions(await save(storage, user("after"))) == [len(stored) + 1]

    @differs_by_engine
    async def test_c20_two_processes_save_to_one_chat(
        self, storage: ChatStorage, make_storage: MakeStorage
    ) -> None:
        """Everything that two other processes stored is there, in their order."""
        skip_if_private(storage)
        count = self.saves_per_process
        await save(storage, user("first"))
        acknowledged = await asyncio.gather(
            *(_in_process(make_storage, name, count) for name in ("one", "two"))
        )
        stored = await raw(storage)
        assert positions(stored) == counted(1, 2 * count + 1)
        for name, answers in zip(("one", "two"), acknowledged, strict=True):
            theirs = [m for m in stored if m.metadata.get("process") == name]
            assert contents(theirs) == list(range(count))
            assert positions(theirs) == answers

    def _skip_if_tied_to_a_loop(self) -> None:
        if not self.serves_any_loop:
            pytest.skip("this store serves one event loop only (serves_any_loop = False)")


def _assert_all_stored(
    stored: list[ConversationMessage], results: list[list[ConversationMessage]]
) -> None:
    answered = sorted(
        (message for result in results for message in result),
        key=lambda message: message.position or 0,
    )
    assert stored == answered
    assert positions(stored) == positions(answered)


async def _save_and_fetch(storage: ChatStorage, message: ConversationMessage) -> None:
    await save(storage, message)
    assert message in await raw(storage)
    assert message in await storage.fetch_chat(*ids())


async def _in_threads(count: int, work: Any) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  (it is raised below, in the test's thread)
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    if failures:
        raise failures[0]


def _in_process(
    make_storage: MakeStorage, name: str, count: int
) -> Coroutine[Any, Any, list[int | None]]:
    """Save `count` messages in a process of its own and return their positions."""

    def run() -> list[int | None]:
        done = subprocess.run(
            [sys.executable, "-m", "agent_memory.testing.saver"],
            input=pickle.dumps((make_storage, ids(), name, count)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            timeout=_PROCESS_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        answers: list[int | None] = json.loads(done.stdout)
        return answers

    return asyncio.to_thread(run)
