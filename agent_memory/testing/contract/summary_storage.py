"""Summary records: one compare-and-swap, and no summary of erased text ever comes back."""

from __future__ import annotations

import asyncio

from agent_memory.keys import ChatKey, new_id
from agent_memory.log import Covered
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.summaries import SummaryStore
from agent_memory.testing.contract.contract_base import (
    KEY,
    ContractBase,
    assert_same_messages,
    differs_by_engine,
    ids,
    positions,
    record_at,
    save,
    skip_if_private,
    user,
    users,
)
from agent_memory.testing.contract.contract_base import MakeStorage as _MakeStorage


class SummaryRecordTests(ContractBase):
    """The :class:`SummaryStore` of a store."""

    async def test_a_chat_without_records_has_none(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """Unknown chats and chats without summaries give nothing."""
        assert await records.load_summary(KEY) is None
        assert await records.list_summaries(KEY) == []
        assert await records.forget_summaries(KEY) == 0
        await save(storage, *users(2))
        assert await records.load_summary(KEY) is None

    async def test_a_record_comes_back_whole(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """Every field of a record is kept, contents by type, heads with their positions."""
        stored = await save(storage, *users(6))
        record = record_at(
            stored[1:5],
            summary=(
                ConversationMessage("user", [{"text": "so far\u2028 \ud800", "b": b"\0"}]),
                ConversationMessage("assistant", None, extra={"n": 1.0}, usage=Usage(1, 2)),
            ),
            head=(stored[0],),
            covered=Covered(2, 5, 4),
            summarizer="mine",
            reason="trigger_at",
            messages_before=6,
            messages_after=3,
            tokens_before=60,
            tokens_after=30,
            usage=Usage(10, 20, 3, 4),
        )
        assert await records.save_summary(KEY, record, replaces=None) is True
        loaded = await records.load_summary(KEY)
        assert loaded == record
        assert loaded is not None
        assert_same_messages(record.summary, loaded.summary)
        assert positions(loaded.head) == [1]
        assert await records.list_summaries(KEY) == [record]

    @differs_by_engine
    async def test_a_record_may_be_large(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A summary of a megabyte, as a pinned image in the head makes it, is kept."""
        stored = await save(storage, *users(3))
        record = record_at(stored, summary=(user("word " * 200_000),))
        assert await records.save_summary(KEY, record, replaces=None)
        assert await records.load_summary(KEY) == record

    @differs_by_engine
    async def test_the_newest_record_is_replaced_by_name(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A record goes in only if its predecessor is still the newest."""
        stored = await save(storage, *users(4))
        first, second = record_at(stored[:2]), record_at(stored)
        assert await records.save_summary(KEY, first, replaces=new_id()) is False
        assert await records.save_summary(KEY, first, replaces=None) is True
        assert await records.save_summary(KEY, second, replaces=None) is False
        assert await records.save_summary(KEY, second, replaces=new_id()) is False
        assert await records.save_summary(KEY, second, replaces=first.id) is True
        assert await records.load_summary(KEY) == second
        assert await records.list_summaries(KEY) == [first, second]

    async def test_the_newest_record_saved_again_changes_nothing(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A save whose answer was lost can be made again."""
        stored = await save(storage, *users(4))
        first, second = record_at(stored[:2]), record_at(stored)
        for _ in range(2):
            assert await records.save_summary(KEY, first, replaces=None) is True
        for _ in range(2):
            assert await records.save_summary(KEY, second, replaces=first.id) is True
        assert await records.save_summary(KEY, first, replaces=None) is False
        assert await records.list_summaries(KEY) == [first, second]

    @differs_by_engine
    async def test_of_many_at_once_one_record_wins(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """Ten summaries of one state: one is stored, nine saves return False."""
        stored = await save(storage, *users(4))
        rivals = [record_at(stored) for _ in range(10)]
        won = await asyncio.gather(
            *(records.save_summary(KEY, rival, replaces=None) for rival in rivals)
        )
        assert sorted(won) == [False] * 9 + [True]
        assert await records.load_summary(KEY) == rivals[won.index(True)]

    async def test_c106_of_many_that_replace_one_record_at_once_one_wins(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """Ten successors of one record: one is stored, and nine leave it in place."""
        stored = await save(storage, *users(4))
        first = record_at(stored[:2])
        await records.save_summary(KEY, first, replaces=None)
        rivals = [record_at(stored) for _ in range(10)]
        won = await asyncio.gather(
            *(records.save_summary(KEY, rival, replaces=first.id) for rival in rivals)
        )
        assert sorted(won) == [False] * 9 + [True]
        assert await records.list_summaries(KEY) == [first, rivals[won.index(True)]]

    async def test_a_record_of_an_unknown_chat_is_refused(self, records: SummaryStore) -> None:
        """There is no log that the record could belong to."""
        never_stored = [user().placed(1, "agent")]
        assert await records.save_summary(KEY, record_at(never_stored), replaces=None) is False
        assert await records.load_summary(KEY) is None

    async def test_a_record_beyond_the_log_is_refused(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A record cannot reach further than the newest entry."""
        await save(storage, *users(3))
        beyond = record_at([user().placed(4, "agent")])
        assert await records.save_summary(KEY, beyond, replaces=None) is False

    async def test_a_record_made_at_another_floor_is_refused(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A trim in between voids the summary that was being made."""
        stored = await save(storage, *users(6))
        await storage.trim_chat(*ids(), 3)
        assert await records.save_summary(KEY, record_at(stored), replaces=None) is False
        assert await records.save_summary(KEY, record_at(stored[3:], 3), replaces=None) is True

    async def test_a_record_at_or_below_the_floor_is_refused(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """Nothing may stand for what is gone."""
        stored = await save(storage, *users(6))
        await storage.trim_chat(*ids(), 3)
        assert await records.save_summary(KEY, record_at(stored[:3], 3), replaces=None) is False
        assert await records.save_summary(KEY, record_at(stored[:2], 3), replaces=None) is False

    @differs_by_engine
    async def test_c39_a_late_record_of_a_deleted_chat_is_refused(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A summary made from deleted text stays out, also when the chat is used again."""
        stored = await save(storage, *users(6))
        await storage.delete_chat(*ids())
        assert await records.save_summary(KEY, record_at(stored), replaces=None) is False
        await save(storage, *users(20))
        assert await records.save_summary(KEY, record_at(stored), replaces=None) is False
        assert await records.load_summary(KEY) is None

    async def test_deleting_a_chat_forgets_its_records(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """Nothing of a deleted chat's text lives on in a record."""
        stored = await save(storage, *users(6))
        await records.save_summary(KEY, record_at(stored), replaces=None)
        await storage.delete_chat(*ids())
        assert await records.load_summary(KEY) is None
        assert await records.list_summaries(KEY) == []

    async def test_trimming_a_chat_forgets_the_records_of_the_old_floor(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A new chain of records begins at the new floor."""
        stored = await save(storage, *users(6))
        old = record_at(stored[:4])
        await records.save_summary(KEY, old, replaces=None)
        await storage.trim_chat(*ids(), 2)
        assert await records.load_summary(KEY) is None
        new = record_at(stored[4:], 4)
        assert await records.save_summary(KEY, new, replaces=old.id) is False
        assert await records.save_summary(KEY, new, replaces=None) is True
        assert await records.list_summaries(KEY) == [new]

    async def test_a_trim_that_removes_nothing_keeps_the_records(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """At an unchanged floor a record stays what it was."""
        stored = await save(storage, *users(3))
        record = record_at(stored)
        await records.save_summary(KEY, record, replaces=None)
        await storage.trim_chat(*ids(), 3)
        assert await records.load_summary(KEY) == record

    async def test_forgetting_summaries_leaves_the_messages(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """All records go, and a new chain can begin."""
        stored = await save(storage, *users(4))
        first, second = record_at(stored[:2]), record_at(stored)
        await records.save_summary(KEY, first, replaces=None)
        await records.save_summary(KEY, second, replaces=first.id)
        assert await records.forget_summaries(KEY) == 2
        assert await records.load_summary(KEY) is None
        assert len(await storage.fetch_chat(*ids())) == 4
        assert await records.save_summary(KEY, record_at(stored), replaces=None) is True

    async def test_records_of_different_chats_do_not_mix(
        self, storage: ChatStorage, records: SummaryStore
    ) -> None:
        """A record belongs to its chat alone."""
        second = ChatKey("user", "session", "agent 2")
        stored = await save(storage, *users(3))
        await save(storage, *users(3), key=second)
        record = record_at(stored)
        await records.save_summary(KEY, record, replaces=None)
        assert await records.load_summary(second) is None
        await storage.delete_chat(*ids(second))
        assert await records.load_summary(KEY) == record

    async def test_records_survive_a_restart(
        self, storage: ChatStorage, records: SummaryStore, make_storage: _MakeStorage
    ) -> None:
        """The next process finds the newest record and the chain before it."""
        skip_if_private(storage)
        stored = await save(storage, *users(4))
        first, second = record_at(stored[:2]), record_at(stored)
        await records.save_summary(KEY, first, replaces=None)
        await records.save_summary(KEY, second, replaces=first.id)
        await storage.aclose()
        async with make_storage() as reopened:
            again = reopened.summaries()
            assert again is not None
            assert await again.load_summary(KEY) == second
            assert await again.list_summaries(KEY) == [first, second]
