"""What is trimmed or deleted is gone, and its positions are never used again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import ChatKey
from agent_memory.log import Note
from agent_memory.messages import ConversationMessage
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


class ForgettingTests(ContractBase):
    """Floors: trim, delete, purge."""

    async def test_trim_keeps_the_newest_and_their_positions(self, storage: ChatStorage) -> None:
        """Trimming to three of ten removes seven and moves nothing."""
        batch = users(10)
        await save(storage, *batch)
        assert await storage.trim_chat(*ids(), 3) == 7
        stored = await raw(storage)
        assert stored == batch[7:]
        assert positions(stored) == [8, 9, 10]
        assert (await storage.read_log(*ids())).floor == 7

    async def test_trim_to_more_than_there_is_removes_nothing(self, storage: ChatStorage) -> None:
        """A chat shorter than `keep` stays as it is."""
        await save(storage, *users(3))
        assert await storage.trim_chat(*ids(), 3) == 0
        assert await storage.trim_chat(*ids(), 99) == 0
        assert positions(await raw(storage)) == [1, 2, 3]

    async def test_trim_counts_messages_and_takes_old_notes_with_them(
        self, storage: ChatStorage
    ) -> None:
        """Notes between the kept messages stay, older ones go, and neither counts."""
        await save(storage, *users(2))
        await storage.save_note(*ids(), Note("run", {"n": 1}))
        await save(storage, user("kept 1"))
        kept = await storage.save_note(*ids(), Note("run", {"n": 2}))
        await save(storage, user("kept 2"))
        assert await storage.trim_chat(*ids(), 2) == 2
        log = [entry async for entry in storage.iter_log(*ids())]
        assert [entry.position for entry in log] == [4, 5, 6]
        assert log[1] == kept

    @differs_by_engine
    async def test_positions_go_on_after_a_trim(self, storage: ChatStorage) -> None:
        """The next message follows the last one there ever was."""
        await save(storage, *users(5))
        await storage.trim_chat(*ids(), 2)
        assert positions(await save(storage, user())) == [6]
        assert positions(await raw(storage)) == [4, 5, 6]

    async def test_a_deleted_chat_is_empty_everywhere(self, storage: ChatStorage) -> None:
        """No method shows what was deleted, and the count is of messages."""
        await save(storage, *users(5))
        await storage.save_note(*ids(), Note("run"))
        assert await storage.delete_chat(*ids()) == 5
        assert await raw(storage) == []
        assert await storage.fetch_chat(*ids()) == []
        assert await storage.fetch_all_chats("user", "session") == []
        assert [entry async for entry in storage.iter_log(*ids())] == []
        assert [info async for info in storage.list_chats()] == []
        assert await storage.delete_chat(*ids()) == 0

    @differs_by_engine
    async def test_positions_are_never_reused_after_a_delete(self, storage: ChatStorage) -> None:
        """A chat that is used again goes on counting, above its floor."""
        await save(storage, *users(5))
        await storage.delete_chat(*ids())
        assert (await storage.read_log(*ids())).floor == 5
        stored = await save(storage, user("anew"), user("and on"))
        assert positions(stored) == [6, 7]
        chat = await storage.read_log(*ids())
        assert contents(chat.messages) == ["anew", "and on"]
        assert chat.floor == 5

    async def test_a_trim_to_nought_is_a_delete(self, storage: ChatStorage) -> None:
        """`keep=0` raises the floor to the last position."""
        await save(storage, *users(4))
        await storage.save_note(*ids(), Note("run"))
        assert await storage.trim_chat(*ids(), 0) == 4
        slice_ = await storage.read_log(*ids())
        assert (list(slice_.entries), slice_.floor) == ([], 5)

    async def test_an_append_tells_the_floor(self, storage: ChatStorage) -> None:
        """Whoever saves learns of a trim or delete by others."""
        first = await storage.append(*ids(), users(3))
        assert first.floor == 0
        await storage.delete_chat(*ids())
        second = await storage.append(*ids(), users(1))
        assert (second.floor, second.entries[0].position) == (3, 4)

    async def test_what_was_deleted_may_be_saved_again_as_new(self, storage: ChatStorage) -> None:
        """An id that was deleted is unknown: its message is stored, at a new position."""
        message = user("once more")
        await save(storage, message)
        await storage.delete_chat(*ids())
        assert positions(await save(storage, message)) == [2]
        assert await raw(storage) == [message]

    async def test_what_was_trimmed_may_have_another_payload(self, storage: ChatStorage) -> None:
        """A trimmed id no longer conflicts with anything."""
        batch = users(3)
        await save(storage, *batch)
        await storage.trim_chat(*ids(), 1)
        assert positions(await save(storage, user("other", id=batch[0].id))) == [4]

    async def test_many_trims_and_saves_leave_no_gap(self, storage: ChatStorage) -> None:
        """What lives is floor + 1 to last, whatever happened before."""
        total = 0
        for count, keep in ((5, 3), (1, 2), (7, 0), (3, 3), (4, 1), (2, 9)):
            await save(storage, *users(count))
            total += count
            before = len(await raw(storage))
            gone = await storage.trim_chat(*ids(), keep)
            chat = await storage.read_log(*ids())
            assert gone == max(0, before - keep)
            assert positions(chat.messages) == counted(chat.floor + 1, total)

    @differs_by_engine
    async def test_readers_meet_no_gap_while_a_chat_is_trimmed(self, storage: ChatStorage) -> None:
        """A read beside saves and trims gives floor + 1 to some last, never a mixture."""

        async def write() -> None:
            for number in range(40):
                await save(storage, *users(3))
                await storage.trim_chat(*ids(), 0 if number % 10 == 9 else 2)

        writer = asyncio.ensure_future(write())
        while not writer.done():
            chat = await storage.read_log(*ids())
            assert positions(chat.messages) == counted(
                chat.floor + 1, chat.floor + len(chat.messages)
            )
            await asyncio.sleep(0)
        await writer

    @differs_by_engine
    async def test_saves_and_trims_at_once_leave_no_gap(self, storage: ChatStorage) -> None:
        """Whatever order they take, every save has its place and what lives has no gap."""
        saves: list[asyncio.Task[list[ConversationMessage]]] = []
        trims: list[asyncio.Task[int]] = []
        for number in range(25):  # begun in turn, so that they meet
            saves.append(asyncio.create_task(save(storage, *users(2, f"{number}: "))))
            trims.append(asyncio.create_task(storage.trim_chat(*ids(), number % 4)))
        stored = [message for batch in await asyncio.gather(*saves) for message in batch]
        gone = sum(await asyncio.gather(*trims))
        assert sorted(message.position or 0 for message in stored) == counted(1, 50)
        chat = await storage.read_log(*ids())
        assert chat.floor == gone
        assert positions(chat.messages) == counted(gone + 1, 50)

    async def test_delete_chats_removes_a_users_or_a_sessions(self, storage: ChatStorage) -> None:
        """The user's other sessions and other users stay."""
        for name in (("u", "s", "a"), ("u", "s", "b"), ("u", "t", "a"), ("v", "s", "a")):
            await save(storage, *users(2), key=ChatKey(*name))
        assert await storage.delete_chats("u", "s") == 4
        assert [info.key async for info in storage.list_chats()] == [
            ChatKey("u", "t", "a"),
            ChatKey("v", "s", "a"),
        ]
        assert await storage.delete_chats("u") == 2
        assert [info.key async for info in storage.list_chats()] == [ChatKey("v", "s", "a")]

    async def test_purge_spares_what_lives(self, storage: ChatStorage) -> None:
        """Living chats and fresh floors are not purged."""
        gone = ChatKey("user", "session", "gone")
        await save(storage, *users(3), key=gone)
        await save(storage, *users(2))
        await storage.delete_chat(*ids(gone))
        assert await storage.purge(timedelta(days=1)) == 0
        assert positions(await save(storage, user(), key=gone)) == [4]
        await storage.purge(timedelta(0))
        assert positions(await raw(storage)) == [1, 2]
        assert positions(await raw(storage, gone)) == [4]

    @differs_by_engine
    async def test_purge_takes_what_deletes_left(self, storage: ChatStorage) -> None:
        """A purged chat is unknown again; there is nothing left to purge."""
        await save(storage, *users(3))
        await storage.delete_chat(*ids())
        if await storage.purge(timedelta(0)) == 0:
            pytest.skip(f"{type(storage).__name__} leaves nothing to purge")
        assert await storage.purge(timedelta(0)) == 0
        assert positions(await save(storage, user())) == [1]

    async def test_purge_refuses_what_is_no_age(self, storage: ChatStorage) -> None:
        """An age is a timedelta that is not negative."""
        bad: Any
        for bad in (timedelta(seconds=-1), 5, None):
            with pytest.raises(InvalidRequestError):
                await storage.purge(bad)

    async def test_forgetting_wins_over_nothing_saved_later(
        self, storage: ChatStorage, other: ChatStorage
    ) -> None:
        """A delete by one storage object is seen by another's next call."""
        await save(storage, *users(3))
        assert len(await raw(other)) == 3
        await storage.delete_chat(*ids())
        assert await raw(other) == []
        assert positions(await save(other, user("anew"))) == [4]
        assert positions(await raw(storage)) == [4]
