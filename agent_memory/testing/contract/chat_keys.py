"""Chats are distinguished by their three ids, exactly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import ChatKey
from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    ContractBase,
    contents,
    differs_by_engine,
    ids,
    raw,
    save,
    user,
)

# Ids that joining, path handling, collations and normalisation take for one another.
_ALIKE: Final = (
    "a#b", "b#c", "a", "b", "A", "a/b", "a_b", "a\\b", "a:b", "a%b", "a%2Fb", "%", "..", ".",
    "...", "/", "//", "\\", "../a", "a ", " a", " ", "  ", "a\n", "\n", "a\t", "CON", "con",
    "nul.txt", "caf\u00e9", "cafe\u0301", "CAF\u00c9", "stra\u00dfe", "strasse", "\u212b",
    "\u00c5", "😀", "😁", "x" * 255, "x" * 254 + "y", "é" * 127, "X" * 255, "a'b", 'a"b', "a;b",
    "a*b", "a?b", "a.jsonl", "a~", "\ufeffa", "\u200ba", "\x7f", "\x01", "0", "00", "null",
)  # fmt: skip

_TRIPLES: Final = (
    ChatKey("a#b", "c", "d"),
    ChatKey("a", "b#c", "d"),
    ChatKey("a", "b", "c#d"),
    ChatKey("a/b", "c", "d"),
    ChatKey("a", "b/c", "d"),
    ChatKey("a", "b", "c"),
    ChatKey("a", "c", "b"),
    ChatKey("b", "a", "c"),
    ChatKey("aa", "b", "c"),
    ChatKey("a", "ab", "c"),
    ChatKey("a", "b", "cc"),
)

_INVALID: Final = ("", "x" * 256, "é" * 128, "a\0b", "a\ud800b", None, 7, b"a")


class KeyTests(ContractBase):
    """Chats are distinguished by their three ids, exactly."""

    @differs_by_engine
    async def test_c10_ids_that_look_alike_are_different_agents(
        self, storage: ChatStorage
    ) -> None:
        """No two spellings of an agent id share a chat."""
        await _isolated(storage, [ChatKey("u", "s", name) for name in _ALIKE])

    @differs_by_engine
    async def test_c10_ids_that_look_alike_are_different_sessions(
        self, storage: ChatStorage
    ) -> None:
        """No two spellings of a session id share a chat."""
        await _isolated(storage, [ChatKey("u", name, "a") for name in _ALIKE])

    @differs_by_engine
    async def test_c10_ids_that_look_alike_are_different_users(self, storage: ChatStorage) -> None:
        """No two spellings of a user id share a chat."""
        await _isolated(storage, [ChatKey(name, "s", "a") for name in _ALIKE])

    async def test_c10_ids_are_never_joined(self, storage: ChatStorage) -> None:
        """Triples that join to the same text are different chats."""
        await _isolated(storage, list(_TRIPLES))

    @differs_by_engine
    async def test_c10_forgetting_concerns_the_named_chat_alone(
        self, storage: ChatStorage
    ) -> None:
        """Deleting one chat leaves every other, however alike its ids."""
        keys = [ChatKey("u", "s", name) for name in _ALIKE[:16]]
        for key in keys:
            await save(storage, user(key.agent_id), key=key)
        await storage.delete_chat(*ids(keys[0]))
        await storage.trim_chat(*ids(keys[1]), 0)
        left = {info.key async for info in storage.list_chats("u", "s")}
        assert left == set(keys[2:])

    async def test_c10_tenants_with_equal_session_ids_never_meet(
        self, storage: ChatStorage
    ) -> None:
        """The session of one user is not that of another."""
        await save(storage, user("one's"), key=ChatKey("one", "s", "a"))
        await save(storage, user("two's"), key=ChatKey("two", "s", "a"))
        assert contents(await storage.fetch_all_chats("one", "s")) == ["one's"]
        await storage.delete_chats("one", "s")
        assert contents(await storage.fetch_all_chats("two", "s")) == ["two's"]

    @pytest.mark.parametrize("place", [0, 1, 2])
    async def test_c11_what_is_no_id_is_refused_everywhere(
        self, storage: ChatStorage, place: int
    ) -> None:
        """Every method refuses an invalid id, before it does anything."""
        for bad in _INVALID:
            key: list[Any] = ["u", "s", "a"]
            key[place] = bad
            for call in _chat_calls(storage):
                with pytest.raises(InvalidRequestError):
                    await call(*key)
        assert [info async for info in storage.list_chats()] == []

    async def test_c11_listing_and_deleting_refuse_bad_ids(self, storage: ChatStorage) -> None:
        """The methods that take a user and a session check them too."""
        for bad in ("", "a\0", "x" * 256):
            with pytest.raises(InvalidRequestError):
                await storage.fetch_all_chats(bad, "s")
            with pytest.raises(InvalidRequestError):
                await storage.fetch_all_chats("u", bad)
            with pytest.raises(InvalidRequestError):
                await storage.delete_chats(bad)
            with pytest.raises(InvalidRequestError):
                await anext(storage.list_chats("u", bad))

    async def test_c11_none_never_means_everybody(self, storage: ChatStorage) -> None:
        """An id that somebody forgot to set neither reads nor deletes all there is."""
        await save(storage, user("kept"))
        nobody: Any = None
        for call in (
            lambda: storage.fetch_all_chats("user", nobody),
            lambda: storage.fetch_all_chats(nobody, "session"),
            lambda: storage.fetch_all_chats(nobody, nobody),
            lambda: anext(storage.iter_all_chats("user", nobody)),
            lambda: anext(storage.iter_all_chats(nobody, nobody)),
            lambda: storage.delete_chats(nobody),
            lambda: storage.delete_chats(nobody, "session"),
        ):
            with pytest.raises(InvalidRequestError):
                await call()
        assert contents(await raw(storage)) == ["kept"]

    async def test_c12_an_unknown_chat_is_empty(self, storage: ChatStorage) -> None:
        """Reading what is not there gives nothing, and is no error."""
        assert await storage.fetch_chat(*ids()) == []
        assert await storage.fetch_chat(*ids(), 5) == []
        assert await storage.fetch_all_chats("user", "session") == []
        assert await raw(storage) == []
        assert [m async for m in storage.iter_chat(*ids())] == []
        assert [m async for m in storage.iter_all_chats("user", "session")] == []
        assert await storage.delete_chat(*ids()) == 0
        assert await storage.trim_chat(*ids(), 3) == 0
        assert await storage.delete_chats("user") == 0

    async def test_c12_reading_unknown_chats_leaves_nothing_behind(
        self, storage: ChatStorage
    ) -> None:
        """A hundred reads of unknown chats create no chat."""
        for number in range(100):
            await storage.fetch_chat("user", "session", f"agent {number}")
        await storage.fetch_all_chats("user", "session")
        await storage.delete_chat(*ids())
        assert [info async for info in storage.list_chats()] == []


async def _isolated(storage: ChatStorage, keys: list[ChatKey]) -> None:
    for key in keys:
        await save(storage, user(str(key)), key=key)
    for key in keys:
        assert contents(await raw(storage, key)) == [str(key)]
        assert contents(await storage.fetch_chat(*ids(key))) == [str(key)]
    assert [info.key async for info in storage.list_chats()] == sorted(keys)


def _chat_calls(storage: ChatStorage) -> list[Callable[[str, str, str], Awaitable[Any]]]:
    async def iterate(user_id: str, session_id: str, agent_id: str) -> None:
        async for _ in storage.iter_chat(user_id, session_id, agent_id):
            pass

    return [
        lambda u, s, a: storage.save_chat_message(u, s, a, user()),
        lambda u, s, a: storage.save_chat_messages(u, s, a, []),
        lambda u, s, a: storage.fetch_chat_since(u, s, a, 0),
        lambda u, s, a: storage.trim_chat(u, s, a, 1),
        storage.fetch_chat,
        storage.delete_chat,
        iterate,
    ]
