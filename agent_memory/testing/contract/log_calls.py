"""The log itself: reading it raw, appending to it, and retracting from the views of it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory.errors import InvalidRequestError, StorageConflictError
from agent_memory.keys import ChatKey
from agent_memory.log import Entry, Note
from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    ContractBase,
    counted,
    differs_by_engine,
    ids,
    positions,
    raw,
    save,
    user,
    users,
)


class LogCallTests(ContractBase):
    """``read_log``, ``append``, ``retract``, ``retract_newest`` and ``clear``."""

    async def test_the_log_of_an_unknown_chat_is_empty(self, storage: ChatStorage) -> None:
        """Reading it creates nothing."""
        log = await storage.read_log(*ids())
        assert [*log.entries] == []
        assert log.floor == 0
        assert [info async for info in storage.list_chats()] == []

    @differs_by_engine
    async def test_read_log_gives_the_oldest_or_newest_above_a_position(
        self, storage: ChatStorage
    ) -> None:
        """`after`, `first` and `last` choose among messages and notes; the floor comes too."""
        await save(storage, *users(5))
        await storage.save_note(*ids(), Note("run"))
        await save(storage, *users(3, "later "))
        await storage.trim_chat(*ids(), 6)
        for after in range(11):
            living = [position for position in range(3, 10) if position > after]
            whole = await storage.read_log(*ids(), after=after)
            assert [entry.position for entry in whole.entries] == living
            assert whole.floor == 2
            for count in (1, 2, 20):
                oldest = await storage.read_log(*ids(), after=after, first=count)
                assert [entry.position for entry in oldest.entries] == living[:count]
                newest = await storage.read_log(*ids(), after=after, last=count)
                assert [entry.position for entry in newest.entries] == living[-count:]
                assert oldest.floor == newest.floor == 2

    async def test_limits_of_read_log_are_checked(self, storage: ChatStorage) -> None:
        """Nothing is read with a limit that means nothing."""
        for bad in (-1, 1.5, "3", True):
            for limit in ("after", "first", "last"):
                with pytest.raises(InvalidRequestError, match=limit):
                    await storage.read_log(*ids(), **{limit: bad})  # type: ignore[arg-type]  # on purpose
        with pytest.raises(InvalidRequestError, match="first"):
            await storage.read_log(*ids(), first=0)
        with pytest.raises(InvalidRequestError, match="last"):
            await storage.read_log(*ids(), last=0)
        with pytest.raises(InvalidRequestError, match="first and last"):
            await storage.read_log(*ids(), first=1, last=1)
        with pytest.raises(InvalidRequestError, match="user_id"):
            await storage.read_log("", "session", "agent")

    @differs_by_engine
    async def test_messages_and_notes_are_appended_together(self, storage: ChatStorage) -> None:
        """They take positions in the order given, and come back as they were given."""
        await save(storage, user("before"))
        notes = [Note("run", {"n": number}) for number in (1, 2)]
        batch: list[Entry] = [notes[0], *users(2), notes[1], user("last")]
        stored = await storage.append(*ids(), batch)
        assert [*stored.entries] == batch
        assert [entry.position for entry in stored.entries] == counted(2, 6)
        assert {entry.agent_id for entry in stored.entries} == {"agent"}
        log = await storage.read_log(*ids(), after=1)
        assert [*log.entries] == batch
        assert positions(await storage.fetch_chat(*ids())) == [1, 3, 4, 6]

    async def test_an_append_of_nothing_tells_the_floor(self, storage: ChatStorage) -> None:
        """Of a trimmed chat, as any other append does."""
        await save(storage, *users(3))
        await storage.trim_chat(*ids(), 1)
        empty = await storage.append(*ids(), [])
        assert [[*empty.entries], empty.floor] == [[], 2]

    async def test_appending_nothing_makes_no_chat(self, storage: ChatStorage) -> None:
        """As saving nothing does not."""
        assert [*(await storage.append(*ids(), [])).entries] == []
        assert [info async for info in storage.list_chats()] == []

    @differs_by_engine
    async def test_an_append_is_idempotent_entry_by_entry(self, storage: ChatStorage) -> None:
        """What is known keeps its position; what is new is added."""
        note, message, later = Note("run", {"n": 1}), user("said"), user("later")
        await storage.append(*ids(), [note, message])
        again = await storage.append(*ids(), [message, later, note, message])
        assert [*again.entries] == [message, later, note, message]
        assert [entry.position for entry in again.entries] == [2, 3, 1, 2]
        assert [*(await storage.read_log(*ids())).entries] == [note, message, later]

    @differs_by_engine
    @pytest.mark.parametrize("known", ["message", "note"])
    async def test_a_conflict_in_an_append_stores_nothing_of_it(
        self, storage: ChatStorage, known: str
    ) -> None:
        """Whether a message or a note has the id, and whatever comes before and after it."""
        first = user("said") if known == "message" else Note("run", {"n": 1})
        await storage.append(*ids(), [first])
        for changed in (user("else", id=first.id), Note("run", {"n": 2}, id=first.id)):
            with pytest.raises(StorageConflictError) as caught:
                await storage.append(*ids(), [user("a"), Note("run"), changed, user("b")])
            assert caught.value.stored is False
        with pytest.raises(StorageConflictError):
            await storage.append(*ids(), [user("one", id="same"), Note("two", id="same")])
        assert [*(await storage.read_log(*ids())).entries] == [first]
        (following,) = (await storage.append(*ids(), [user("next")])).entries
        assert following.position == 2

    async def test_only_entries_are_appended(self, storage: ChatStorage) -> None:
        """Anything but an entry is refused with its index, before anything is written."""
        message: Any = user()
        wrong: list[tuple[Any, str]] = [
            ([user(), Note("run"), {"role": "user", "content": "a dict"}], r"entries\[2\]"),
            ([user(), Note("corrupted")], "corrupted"),
            (message, "list"),
            (Note("run"), "list"),
            (None, "NoneType"),
        ]
        for entries, told in wrong:
            with pytest.raises(InvalidRequestError, match=told):
                await storage.append(*ids(), entries)
        with pytest.raises(InvalidRequestError, match="agent_id"):
            await storage.append("user", "session", "", [message])
        assert [info async for info in storage.list_chats()] == []

    async def test_retracted_messages_are_in_the_log_alone(self, storage: ChatStorage) -> None:
        """A fetch leaves them out; everything raw shows them, and a note of it."""
        batch = users(5)
        await save(storage, *batch)
        note = await storage.retract(*ids(), [batch[1].id, batch[4].id, "not-there-yet"])
        assert note.position == 6
        assert await storage.fetch_chat(*ids()) == [batch[0], batch[2], batch[3]]
        assert await raw(storage) == batch
        assert [*(await storage.read_log(*ids())).entries] == [*batch, note]
        late = user("late", id="not-there-yet")
        await save(storage, late)
        assert await storage.fetch_chat(*ids(), 1) == [late]

    async def test_a_retraction_names_messages(self, storage: ChatStorage) -> None:
        """An empty list, or anything but a list of ids, is refused and leaves no note."""
        await save(storage, user(id="m"))
        for bad in ([], "m", None, [""], [7]):
            with pytest.raises(InvalidRequestError, match="message_ids"):
                await storage.retract(*ids(), bad)  # type: ignore[arg-type]  # on purpose
        assert len((await storage.read_log(*ids())).entries) == 1

    async def test_the_newest_message_is_retracted_again_and_again(
        self, storage: ChatStorage
    ) -> None:
        """Each call takes the newest that is still shown, as it was stored."""
        batch = users(3)
        await save(storage, *batch)
        assert await storage.retract_newest(*ids()) == batch[2]
        (later,) = await save(storage, user("later"))
        assert await storage.retract_newest(*ids()) == later
        assert await storage.retract_newest(*ids()) == batch[1]
        assert await storage.fetch_chat(*ids()) == batch[:1]
        assert await storage.retract_newest(*ids()) == batch[0]
        assert await storage.retract_newest(*ids()) is None
        assert await raw(storage) == [*batch, later]

    async def test_a_chat_without_messages_has_no_newest(self, storage: ChatStorage) -> None:
        """Asking for it makes no chat."""
        assert await storage.retract_newest(*ids(ChatKey("user", "session", "nobody"))) is None
        assert [info async for info in storage.list_chats()] == []

    async def test_a_cleared_chat_is_whole_in_its_log(self, storage: ChatStorage) -> None:
        """A fetch gives what was saved since; the log has everything, and a note of it."""
        batch = users(4)
        await save(storage, *batch)
        note = await storage.clear(*ids())
        assert note.position == 5
        assert await storage.fetch_chat(*ids()) == []
        assert await storage.retract_newest(*ids()) is None
        (last,) = await save(storage, user("last"))
        assert await storage.fetch_chat(*ids()) == [last]
        assert await storage.fetch_chat(*ids(), 5) == [last]
        assert [*(await storage.read_log(*ids())).entries] == [*batch, note, last]
