"""Listing returns which chats there are without reading them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import ChatKey
from agent_memory.log import Note
from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    ContractBase,
    differs_by_engine,
    ids,
    save,
    user,
    users,
)


class ListingTests(ContractBase):
    """``list_chats``."""

    @differs_by_engine
    async def test_chats_are_listed_in_key_order(self, storage: ChatStorage) -> None:
        """Every chat is listed once, by user, session and agent."""
        keys = [ChatKey(u, s, a) for u in "ba" for s in ("t", "s", "S") for a in ("2", "10", "1")]
        for key in keys:
            await save(storage, user(), key=key)
        assert [info.key async for info in storage.list_chats()] == sorted(keys)

    async def test_a_listing_can_be_of_a_user_or_a_session(self, storage: ChatStorage) -> None:
        """Only what was asked for is listed."""
        keys = [ChatKey(u, s, a) for u in "uv" for s in "st" for a in "ab"]
        for key in keys:
            await save(storage, user(), key=key)
        assert [info.key async for info in storage.list_chats("v")] == keys[4:]
        assert [info.key async for info in storage.list_chats("u", "t")] == keys[2:4]
        assert [info.key async for info in storage.list_chats("w")] == []

    async def test_a_session_without_its_user_is_refused(self, storage: ChatStorage) -> None:
        """A session id names nothing by itself."""
        with pytest.raises(InvalidRequestError, match="user_id"):
            await anext(storage.list_chats(None, "s"))

    async def test_a_listing_tells_floor_last_and_entries(self, storage: ChatStorage) -> None:
        """The numbers match the log, notes included, after a trim too."""
        await save(storage, *users(5))
        await storage.save_note(*ids(), Note("run"))
        (info,) = [info async for info in storage.list_chats()]
        assert (info.floor, info.last, info.entries) == (0, 6, 6)
        await storage.trim_chat(*ids(), 2)
        (info,) = [info async for info in storage.list_chats()]
        assert (info.floor, info.last, info.entries) == (3, 6, 3)

    async def test_a_listing_tells_when_a_chat_was_made_and_changed(
        self, storage: ChatStorage
    ) -> None:
        """Times, where a store knows them, are the store's and not the messages'."""
        slack = timedelta(minutes=5)  # the store's clock may be another machine's
        begun = datetime.now(UTC) - slack
        await save(storage, user(timestamp=datetime(1999, 1, 1, tzinfo=UTC)))
        await save(storage, user(timestamp=datetime(2999, 1, 1, tzinfo=UTC)))
        (info,) = [info async for info in storage.list_chats()]
        for moment in (info.created_at, info.updated_at):
            assert moment is None or begun <= moment <= datetime.now(UTC) + slack
        if info.created_at is not None and info.updated_at is not None:
            assert info.created_at <= info.updated_at

    @differs_by_engine
    async def test_many_chats_are_listed_whole(self, storage: ChatStorage) -> None:
        """A listing of more chats than a page holds gives each once."""
        keys = [ChatKey("user", f"session {n:03}", "agent") for n in range(self.listed_chats)]
        for key in keys:
            await save(storage, user(), key=key)
        assert [info.key async for info in storage.list_chats()] == keys
        assert [info.key async for info in storage.list_chats("user")] == keys

    @differs_by_engine
    async def test_chats_may_be_deleted_while_they_are_listed(self, storage: ChatStorage) -> None:
        """A listing that is half read does not block or break the store."""
        keys = [ChatKey("user", "session", f"agent {n}") for n in range(8)]
        for key in keys:
            await save(storage, user(), key=key)
        async for info in storage.list_chats("user"):
            await storage.delete_chat(*ids(info.key))
        assert [info async for info in storage.list_chats()] == []

    async def test_a_listing_may_be_left_half_way(self, storage: ChatStorage) -> None:
        """Breaking out of a listing or a stream leaves nothing locked."""
        for number in range(5):
            await save(storage, *users(3), key=ChatKey("user", "session", f"agent {number}"))
        async for _ in storage.list_chats():
            break
        async for _ in storage.iter_all_chats("user", "session"):
            break
        await save(storage, user())
        assert await storage.delete_chats("user") == 16
