"""The order is the order of saving; reading takes the newest, oldest first."""

from __future__ import annotations

import pytest

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import ChatKey
from agent_memory.log import Note
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
    seconds,
    user,
    users,
)


class OrderTests(ContractBase):
    """Order, limits and paging."""

    @differs_by_engine
    async def test_c13_saves_in_a_row_keep_their_order(self, storage: ChatStorage) -> None:
        """Many saves in a tight loop come back in the order they were made."""
        messages = users(self.saves_in_a_row)
        for message in messages:
            await storage.save_chat_message(*ids(), message)
        stored = await raw(storage)
        assert stored == messages
        assert positions(stored) == counted(1, len(messages))

    async def test_c13_a_frozen_clock_does_not_mix_a_batch(self, storage: ChatStorage) -> None:
        """Fifty messages of one moment keep their order."""
        batch = [user(str(number), timestamp=seconds(0)) for number in range(50)]
        await save(storage, *batch)
        assert await raw(storage) == batch

    async def test_c13_a_clock_that_steps_back_reorders_nothing(
        self, storage: ChatStorage
    ) -> None:
        """A message with an earlier timestamp stays where it was saved."""
        batch = [user(str(n), timestamp=seconds(moment)) for n, moment in enumerate([9, 5, 7, -9])]
        for message in batch:
            await save(storage, message)
        assert await raw(storage) == batch
        assert await storage.fetch_chat(*ids(), 2) == batch[-2:]
        assert await storage.fetch_all_chats("user", "session") == batch

    @differs_by_engine
    async def test_c14_a_limit_gives_the_newest_oldest_first(self, storage: ChatStorage) -> None:
        """Of ten messages a limit of three gives the last three, in order."""
        batch = users(10)
        await save(storage, *batch)
        assert await storage.fetch_chat(*ids(), 3) == batch[-3:]
        assert await storage.fetch_chat(*ids(), 1) == batch[-1:]
        assert await storage.fetch_chat(*ids(), 10) == batch
        assert await storage.fetch_chat(*ids(), 11) == batch
        assert await storage.fetch_chat(*ids()) == batch

    async def test_c14_a_limit_of_nought_gives_nothing(self, storage: ChatStorage) -> None:
        """Zero means none, not all."""
        await save(storage, *users(3))
        assert await storage.fetch_chat(*ids(), 0) == []

    async def test_c14_a_limit_that_is_no_count_is_refused(self, storage: ChatStorage) -> None:
        """Negative limits and positions, and anything but an int, raise."""
        for bad in (-1, 1.5, "3", True):
            with pytest.raises(InvalidRequestError):
                await storage.fetch_chat(*ids(), bad)  # type: ignore[arg-type]  # on purpose
            with pytest.raises(InvalidRequestError):
                await storage.fetch_chat_since(*ids(), bad)  # type: ignore[arg-type]  # on purpose
            with pytest.raises(InvalidRequestError):
                await storage.trim_chat(*ids(), bad)  # type: ignore[arg-type]  # on purpose

    async def test_c15_equal_texts_are_different_messages(self, storage: ChatStorage) -> None:
        """The user may say the same twice, and twice in a row."""
        await save(storage, user("again"))
        await save(storage, user("again"), user("and more"))
        assert contents(await raw(storage)) == ["again", "again", "and more"]

    async def test_fetch_chat_since_gives_what_follows(self, storage: ChatStorage) -> None:
        """A reader that knows a position gets what came after it."""
        batch = users(7)
        await save(storage, *batch[:4])
        await save(storage, *batch[4:])
        assert await storage.fetch_chat_since(*ids(), 3) == batch[3:]
        assert await storage.fetch_chat_since(*ids(), 7) == []
        assert await storage.fetch_chat_since(*ids(), 99) == []

    async def test_fetch_returns_places(self, storage: ChatStorage) -> None:
        """Every read returns a message with its position and agent."""
        await save(storage, *users(3))
        for messages in (
            await storage.fetch_chat(*ids()),
            await raw(storage),
            await storage.fetch_all_chats("user", "session"),
            [message async for message in storage.iter_chat(*ids())],
        ):
            assert positions(messages) == [1, 2, 3]
            assert {message.agent_id for message in messages} == {"agent"}

    async def test_a_long_chat_is_streamed_whole(self, storage: ChatStorage) -> None:
        """Streaming over several pages gives each message once, in order."""
        batch = users(450)
        for start in range(0, 450, 90):
            await save(storage, *batch[start : start + 90])
        assert [message async for message in storage.iter_chat(*ids())] == batch
        assert await raw(storage) == batch
        log = [entry async for entry in storage.iter_log(*ids(), after=205)]
        assert log == batch[205:]

    @differs_by_engine
    async def test_a_stream_goes_on_while_the_chat_changes(self, storage: ChatStorage) -> None:
        """What is trimmed or saved during it neither repeats nor hides what lives."""
        await save(storage, *users(450))
        seen: list[int | None] = []
        async for message in storage.iter_chat(*ids()):
            seen.append(message.position)
            if len(seen) == 10:
                await storage.trim_chat(*ids(), 50)
                await save(storage, user("new"))
        assert seen == sorted(set(seen), key=lambda position: position or 0)
        assert seen[-51:] == counted(401, 451)

    @differs_by_engine
    async def test_a_session_is_merged_by_running_maximum(self, storage: ChatStorage) -> None:
        """Agents are merged by the latest timestamp so far, ties by agent id."""
        one, two = ChatKey("user", "session", "one"), ChatKey("user", "session", "two")
        for text, moment in (("one 1", 10), ("one 2", 3), ("one 3", 12)):
            await save(storage, user(text, timestamp=seconds(moment)), key=one)
        for text, moment in (("two 1", 5), ("two 2", 10), ("two 3", 11)):
            await save(storage, user(text, timestamp=seconds(moment)), key=two)
        await save(storage, user("elsewhere"), key=ChatKey("user", "other", "one"))
        expected = ["two 1", "one 1", "one 2", "two 2", "two 3", "one 3"]
        merged = await storage.fetch_all_chats("user", "session")
        assert contents(merged) == expected
        assert [message.agent_id for message in merged] == [text[:3] for text in expected]
        streamed = [message async for message in storage.iter_all_chats("user", "session")]
        assert streamed == merged

    async def test_notes_are_in_the_log_alone(self, storage: ChatStorage) -> None:
        """A note takes a position, and only the log shows it."""
        (first,) = await save(storage, user("first"))
        note = await storage.save_note(*ids(), Note("remark", {"ids": [first.id]}))
        (second,) = await save(storage, user("second"))
        assert [note.position, note.agent_id] == [2, "agent"]
        assert second.position == 3
        assert contents(await raw(storage)) == ["first", "second"]
        assert await storage.fetch_chat(*ids(), 2) == [first, second]
        assert await storage.fetch_all_chats("user", "session") == [first, second]
        log = [entry async for entry in storage.iter_log(*ids())]
        assert log == [first, note, second]
        assert [entry.position for entry in log] == [1, 2, 3]

    async def test_what_is_retracted_is_in_the_log_and_not_fetched(
        self, storage: ChatStorage
    ) -> None:
        """A fetch leaves out what a later note retracts; everything else shows it."""
        batch = users(6)
        await save(storage, *batch)
        retracted = [batch[1].id, batch[5].id]
        note = await storage.save_note(*ids(), Note("retracted", {"ids": retracted}))
        (last,) = await save(storage, user("last"))
        shown = [batch[0], *batch[2:5], last]
        assert await storage.fetch_chat(*ids()) == shown
        assert await storage.fetch_chat(*ids(), 3) == shown[-3:]
        assert await raw(storage) == [*batch, last]
        assert await storage.fetch_all_chats("user", "session") == [*batch, last]
        assert [entry async for entry in storage.iter_log(*ids())] == [*batch, note, last]

    async def test_everything_before_a_note_may_be_retracted(self, storage: ChatStorage) -> None:
        """A fetch returns only what follows; the raw log stays whole."""
        batch = users(6)
        await save(storage, *batch)
        await storage.save_note(*ids(), Note("retracted", {"everything": True}))
        assert await storage.fetch_chat(*ids()) == []
        (last,) = await save(storage, user("last"))
        assert await storage.fetch_chat(*ids()) == [last]
        assert await storage.fetch_chat(*ids(), 5) == [last]
        assert await raw(storage) == [*batch, last]

    @differs_by_engine
    async def test_a_limit_counts_messages_not_notes(self, storage: ChatStorage) -> None:
        """Notes at the end of the log take no place of a fetch's."""
        batch = users(3)
        await save(storage, *batch)
        for number in range(4):
            await storage.save_note(*ids(), Note("run", {"number": number}))
        assert await storage.fetch_chat(*ids(), 2) == batch[1:]
