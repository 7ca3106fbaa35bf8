"""A store opens at its first use, closes once, and keeps what it acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from agent_memory.errors import StorageClosedError
from agent_memory.keys import ChatKey
from agent_memory.log import Note
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    KEY,
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


class ClosingTests(ContractBase):
    """Opening, closing, restarting, and records that cannot be read."""

    async def test_a_store_works_without_being_opened(self, make_storage: MakeStorage) -> None:
        """The first call opens it."""
        storage = make_storage()
        await save(storage, user("x"))
        assert contents(await raw(storage)) == ["x"]
        await storage.aclose()

    async def test_a_ping_reaches_the_store_and_leaves_nothing(
        self, make_storage: MakeStorage
    ) -> None:
        """It is a read: of a store that was never used, too."""
        async with make_storage() as storage:
            await storage.ping()
            assert [info async for info in storage.list_chats()] == []

    async def test_a_store_may_be_closed_unused_and_twice(self, make_storage: MakeStorage) -> None:
        """Closing is always fine."""
        storage = make_storage()
        await storage.aclose()
        await storage.aclose()

    async def test_leaving_the_context_closes(self, make_storage: MakeStorage) -> None:
        """``async with`` closes, also when its body raises."""
        storage = make_storage()
        with pytest.raises(ZeroDivisionError):
            async with storage:
                raise ZeroDivisionError
        with pytest.raises(StorageClosedError):
            await raw(storage)

    async def test_c18_a_closed_store_says_so_on_every_call(
        self, make_storage: MakeStorage
    ) -> None:
        """Every method raises, the empty save too."""
        storage = make_storage()
        await save(storage, user())
        await storage.aclose()
        for name, call in _calls(storage).items():
            outcomes: tuple[Any] = await asyncio.gather(call(), return_exceptions=True)
            assert isinstance(outcomes[0], StorageClosedError), name

    async def test_closing_drains_what_is_being_saved(self, make_storage: MakeStorage) -> None:
        """Of saves under way at the close each is stored, or was refused as closed."""
        storage = make_storage()
        await save(storage, user("first"))
        saves = [
            asyncio.ensure_future(storage.save_chat_message(*ids(), message))
            for message in users(30)
        ]
        await asyncio.sleep(0)
        await storage.aclose()
        results = await asyncio.gather(*saves, return_exceptions=True)
        acknowledged = [result[0] for result in results if not isinstance(result, BaseException)]
        refused = [result for result in results if isinstance(result, BaseException)]
        assert all(isinstance(error, StorageClosedError) for error in refused), refused
        if storage.scope != "process":
            async with make_storage() as reopened:
                stored = await raw(reopened)
                assert sorted(contents(stored)) == sorted(["first", *contents(acknowledged)])
                assert positions(stored) == counted(1, len(stored))

    async def test_several_tasks_may_open_a_store_at_once(self, make_storage: MakeStorage) -> None:
        """The first calls of many tasks open it once, together."""
        async with make_storage() as storage:
            await asyncio.gather(*(save(storage, message) for message in users(10)))
            assert len(await raw(storage)) == 10

    @differs_by_engine
    async def test_what_was_saved_is_there_after_a_restart(
        self, storage: ChatStorage, make_storage: MakeStorage
    ) -> None:
        """A new storage object finds messages, notes, floors and ids as they were."""
        skip_if_private(storage)
        batch = users(6)
        await save(storage, *batch)
        note = await storage.save_note(*ids(), Note("run", {"n": 1}))
        await storage.trim_chat(*ids(), 4)
        await storage.aclose()
        async with make_storage() as reopened:
            assert [entry async for entry in reopened.iter_log(*ids())] == [*batch[2:], note]
            assert (await reopened.read_log(*ids())).floor == 2
            assert positions(await save(reopened, batch[5], user("next"))) == [6, 8]

    async def test_c20_two_storage_objects_share_a_chat(
        self, storage: ChatStorage, other: ChatStorage
    ) -> None:
        """Fifty saves from each of two objects at once are all there, each reads both's."""
        await asyncio.gather(
            *(save(storage, message) for message in users(50, "one ")),
            *(save(other, message) for message in users(50, "two ")),
        )
        stored = await raw(storage)
        assert stored == await raw(other)
        assert positions(stored) == counted(1, 100)
        assert len(set(contents(stored))) == 100

    @differs_by_engine
    async def test_c20_an_id_saved_by_another_object_is_known(
        self, storage: ChatStorage, other: ChatStorage
    ) -> None:
        """A retry that reaches another replica stores nothing twice."""
        batch = users(5)
        await save(storage, *batch)
        assert positions(await save(other, *batch)) == [1, 2, 3, 4, 5]
        await save(other, user("other's"))
        assert positions(await save(storage, user("mine"))) == [7]
        assert len(await raw(storage)) == 7

    @differs_by_engine
    async def test_c21_several_objects_may_open_a_new_medium_at_once(
        self, storage: ChatStorage, make_storage: MakeStorage
    ) -> None:
        """Whatever a store must create, two replicas may create at the same moment."""
        skip_if_private(storage)
        replicas = [make_storage() for _ in range(4)]
        try:
            await asyncio.gather(*(save(replica, user()) for replica in replicas))
            assert positions(await raw(replicas[0])) == [1, 2, 3, 4]
        finally:
            for replica in replicas:
                await replica.aclose()

    @differs_by_engine
    async def test_a_record_that_cannot_be_read_leaves_a_reported_gap(
        self, storage: ChatStorage
    ) -> None:
        """What is readable is returned at its place; the log shows what is not."""
        batch = users(5)
        await save(storage, *batch)
        await self.corrupt(storage, KEY, 3)
        readable = [*batch[:2], *batch[3:]]
        assert await raw(storage) == readable
        assert positions(await raw(storage)) == [1, 2, 4, 5]
        assert await storage.fetch_chat(*ids()) == readable
        assert await storage.fetch_chat(*ids(), 3) == readable[-3:]
        gap = [entry async for entry in storage.iter_log(*ids())][2]
        assert isinstance(gap, Note)
        assert (gap.kind, gap.position, gap.agent_id) == ("corrupted", 3, "agent")
        assert sorted(gap.data) == ["error", "location"]
        # Nothing in the note depends on when it was made: caches and copies compare equal.
        again = (await storage.read_log(*ids(), after=2, first=1)).entries
        assert [*again] == [gap]
        assert positions(await save(storage, user("next"))) == [6]


def _calls(storage: ChatStorage) -> dict[str, Callable[[], Awaitable[Any]]]:
    message: ConversationMessage = user()
    key = ids(ChatKey("user", "session", "agent"))

    async def one_of(stream: Any) -> Any:
        return await anext(stream, None)

    return {
        "save_chat_message": lambda: storage.save_chat_message(*key, message),
        "save_chat_messages": lambda: storage.save_chat_messages(*key, []),
        "save_note": lambda: storage.save_note(*key, Note("run")),
        "append": lambda: storage.append(*key, [message]),
        "append of nothing": lambda: storage.append(*key, []),
        "read_log": lambda: storage.read_log(*key),
        "retract": lambda: storage.retract(*key, [message.id]),
        "retract_newest": lambda: storage.retract_newest(*key),
        "clear": lambda: storage.clear(*key),
        "fetch_chat": lambda: storage.fetch_chat(*key),
        "fetch_chat of 0": lambda: storage.fetch_chat(*key, 0),
        "fetch_all_chats": lambda: storage.fetch_all_chats(*key[:2]),
        "fetch_chat_since": lambda: storage.fetch_chat_since(*key, 0),
        "iter_chat": lambda: one_of(storage.iter_chat(*key)),
        "iter_all_chats": lambda: one_of(storage.iter_all_chats(*key[:2])),
        "iter_log": lambda: one_of(storage.iter_log(*key)),
        "list_chats": lambda: one_of(storage.list_chats()),
        "trim_chat": lambda: storage.trim_chat(*key, 1),
        "delete_chat": lambda: storage.delete_chat(*key),
        "delete_chats": lambda: storage.delete_chats("user"),
        "purge": lambda: storage.purge(timedelta(0)),
        "ping": storage.ping,
    }
