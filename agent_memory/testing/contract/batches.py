"""One save is one append, whole or not at all, and saving it again changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory.errors import InvalidRequestError, StorageConflictError
from agent_memory.log import Note
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    ContractBase,
    contents,
    differs_by_engine,
    ids,
    positions,
    raw,
    save,
    seconds,
    user,
    users,
)


class BatchTests(ContractBase):
    """Atomic batches and idempotency."""

    async def test_a_save_returns_what_is_stored(self, storage: ChatStorage) -> None:
        """The result is the batch with places, in the order given."""
        batch = users(3)
        stored = await save(storage, *batch)
        assert stored == batch
        assert positions(stored) == [1, 2, 3]
        assert positions(await save(storage, *users(2))) == [4, 5]

    async def test_any_iterable_of_messages_is_a_batch(self, storage: ChatStorage) -> None:
        """Tuples and generators are taken as lists are."""
        batch = users(4)
        await storage.save_chat_messages(*ids(), tuple(batch[:2]))
        generated: Any = (message for message in batch[2:])
        await storage.save_chat_messages(*ids(), generated)
        assert await raw(storage) == batch

    @differs_by_engine
    async def test_c16_a_message_saved_twice_is_stored_once(self, storage: ChatStorage) -> None:
        """The second save of a message returns the stored one, at its old position."""
        message = user("once")
        (first,) = await save(storage, message)
        (again,) = await save(storage, message)
        assert again == first
        assert again.position == first.position == 1
        assert await raw(storage) == [message]

    async def test_c16_a_batch_retried_is_stored_once(self, storage: ChatStorage) -> None:
        """A batch whose answer was lost can be saved again as it is."""
        batch = users(5)
        stored = await save(storage, *batch)
        retried = await save(storage, *batch)
        assert retried == stored
        assert positions(retried) == [1, 2, 3, 4, 5]
        assert await raw(storage) == batch

    @differs_by_engine
    async def test_c16_a_batch_that_overlaps_stores_what_is_new(
        self, storage: ChatStorage
    ) -> None:
        """Known messages keep their positions, new ones follow, the result is in given order."""
        known, new = users(3), users(2, "new ")
        await save(storage, *known)
        result = await save(storage, new[0], known[2], new[1], known[0])
        assert result == [new[0], known[2], new[1], known[0]]
        assert positions(result) == [4, 3, 5, 1]
        assert await raw(storage) == [*known, *new]

    async def test_c16_a_message_twice_in_one_batch_is_stored_once(
        self, storage: ChatStorage
    ) -> None:
        """The same object twice gives one stored message and two results."""
        message, between = user("twice"), user("between")
        result = await save(storage, message, between, message)
        assert result == [message, between, message]
        assert positions(result) == [1, 2, 1]
        assert await raw(storage) == [message, between]

    async def test_c16_the_newest_64_messages_are_known_one_by_one(
        self, storage: ChatStorage
    ) -> None:
        """Each of the last 64 single saves can be repeated, whatever came after it."""
        messages = users(64)
        for message in messages:
            await save(storage, message)
        for message in (messages[0], messages[31], messages[63]):
            assert positions(await save(storage, message)) == [messages.index(message) + 1]
        assert await raw(storage) == messages

    async def test_c16_a_large_last_batch_is_known_whole(self, storage: ChatStorage) -> None:
        """The last append can be retried however many messages it had."""
        batch = users(150)
        await save(storage, *batch)
        assert positions(await save(storage, *batch)) == list(range(1, 151))
        assert await raw(storage) == batch

    async def test_c16_equal_payload_under_one_id_keeps_the_first(
        self, storage: ChatStorage
    ) -> None:
        """A repeat with another timestamp or metadata is the stored message, unchanged."""
        first = user("same", timestamp=seconds(0), metadata={"try": 1})
        again = user("same", id=first.id, timestamp=seconds(5), metadata={"try": 2})
        await save(storage, first)
        assert await save(storage, again) == [first]
        assert await raw(storage) == [first]

    @differs_by_engine
    @pytest.mark.parametrize("changed", ["role", "content", "extra"])
    async def test_c16_another_payload_under_one_id_is_a_conflict(
        self, storage: ChatStorage, changed: str
    ) -> None:
        """A changed message under a known id is refused and nothing is stored."""
        fields: dict[str, Any] = {"role": "user", "content": "said", "extra": {"name": "x"}}
        first = ConversationMessage(**fields)
        await save(storage, first)
        fields[changed] = {"role": "assistant", "content": "else", "extra": {}}[changed]
        with pytest.raises(StorageConflictError) as caught:
            await save(storage, ConversationMessage(id=first.id, **fields))
        assert caught.value.stored is False
        assert await raw(storage) == [first]

    @differs_by_engine
    async def test_c16_a_conflict_in_a_batch_stores_nothing_of_it(
        self, storage: ChatStorage
    ) -> None:
        """One changed message keeps the whole batch out, and the next save is right."""
        first = user("said")
        await save(storage, first)
        with pytest.raises(StorageConflictError):
            await save(storage, *users(3), user("changed", id=first.id), *users(2))
        assert await raw(storage) == [first]
        assert positions(await save(storage, user("next"))) == [2]

    async def test_c16_two_payloads_under_one_id_in_a_batch_conflict(
        self, storage: ChatStorage
    ) -> None:
        """A batch that contradicts itself is refused whole."""
        first = user("one")
        with pytest.raises(StorageConflictError):
            await save(storage, first, user("two", id=first.id))
        assert await raw(storage) == []

    @differs_by_engine
    async def test_c16_one_id_in_two_chats_is_two_messages(self, storage: ChatStorage) -> None:
        """Ids are unique within a chat, not across chats."""
        message = user("shared")
        await storage.save_chat_message("user", "session", "one", message)
        await storage.save_chat_message("user", "session", "two", message)
        assert len(await storage.fetch_all_chats("user", "session")) == 2

    async def test_c16_a_note_saved_twice_is_stored_once(self, storage: ChatStorage) -> None:
        """Notes are as idempotent as messages, and conflict as they do."""
        note = Note("run", {"tokens": 7})
        await storage.save_note(*ids(), note)
        assert (await storage.save_note(*ids(), note)).position == 1
        with pytest.raises(StorageConflictError):
            await storage.save_note(*ids(), Note("run", {"tokens": 8}, id=note.id))
        with pytest.raises(StorageConflictError):
            await save(storage, user("no note", id=note.id))
        assert [entry async for entry in storage.iter_log(*ids())] == [note]

    async def test_c17_a_batch_with_something_else_in_it_stores_nothing(
        self, storage: ChatStorage
    ) -> None:
        """Anything but a message is refused with its index before anything is written."""
        batch: list[Any] = [*users(3), {"role": "user", "content": "a dict"}, user()]
        with pytest.raises(InvalidRequestError, match=r"\[3\]"):
            await storage.save_chat_messages(*ids(), batch)
        assert await raw(storage) == []
        assert positions(await save(storage, user("next"))) == [1]

    async def test_c17_a_lone_message_is_no_batch(self, storage: ChatStorage) -> None:
        """Passing a message where a list belongs says so."""
        message: Any = user()
        with pytest.raises(InvalidRequestError, match="save_chat_message"):
            await storage.save_chat_messages(*ids(), message)
        with pytest.raises(InvalidRequestError):
            await storage.save_chat_messages(*ids(), None)  # type: ignore[arg-type]  # on purpose

    async def test_c18_an_empty_batch_is_a_no_op(self, storage: ChatStorage) -> None:
        """Saving nothing returns nothing and creates no chat."""
        assert await storage.save_chat_messages(*ids(), []) == []
        assert [info async for info in storage.list_chats()] == []
        await save(storage, user("x"))
        assert await storage.save_chat_messages(*ids(), []) == []
        assert contents(await raw(storage)) == ["x"]

    async def test_only_notes_made_by_callers_are_stored(self, storage: ChatStorage) -> None:
        """Only a store makes notes of the kind "corrupted"."""
        with pytest.raises(InvalidRequestError):
            await storage.save_note(*ids(), Note("corrupted"))
        with pytest.raises(InvalidRequestError):
            await storage.save_note(*ids(), user())  # type: ignore[arg-type]  # on purpose
