"""Wrappers forward every hook, and a wrapper of a wrapper keeps the contract."""

from __future__ import annotations

import inspect
from datetime import timedelta

import pytest

from agent_memory import (
    ChatKey,
    ChatStorage,
    ConversationMessage,
    ExtractiveSummarizer,
    InMemoryChatStorage,
    InvalidRequestError,
    LogSlice,
    Note,
    SummarizingChatStorage,
    WrapperChatStorage,
)
from agent_memory.errors import StorageClosedError
from agent_memory.storage.hooks import StoreHooks
from agent_memory.testing import ChatStorageTests

KEY = ChatKey("user", "session", "agent")


def wrapped_twice():
    return WrapperChatStorage(WrapperChatStorage(InMemoryChatStorage()))


class TestWrapperOfAWrapper(ChatStorageTests):
    @pytest.fixture
    def make_storage(self):
        return wrapped_twice


def hooks() -> set[str]:
    """Everything of a store that is not final, and the two hooks of its lifecycle."""
    return {"_open", "_close"} | {
        name
        for name, value in (vars(StoreHooks) | vars(ChatStorage)).items()
        if (inspect.isfunction(value) or isinstance(value, property))
        and not name.startswith("__")
        and not getattr(value, "__final__", False)
    }


def test_every_hook_is_forwarded_explicitly():
    """A hook with a default is forwarded as well, so that an inner's fast path is never lost."""
    assert hooks() <= set(vars(WrapperChatStorage))


def test_the_list_of_hooks_is_the_one_we_know():
    """A new hook comes to this test before it comes to a release."""
    assert hooks() == {
        *("_append", "_read", "_forget", "_list", "_fetch", "_after_append", "_read_session"),
        *("_keys", "_purge", "_erase_deleted", "_open", "_close", "summaries", "scope"),
    }


class Recorder(InMemoryChatStorage):
    """Records which of its hooks were called."""

    def __init__(self):
        super().__init__()
        self.called = []

    @property
    def scope(self):
        self.called.append("scope")
        return "network"

    def summaries(self):
        self.called.append("summaries")
        return super().summaries()


def recording(name):
    hook = getattr(InMemoryChatStorage, name)

    async def recorded(self, *args, **kwargs):
        self.called.append(name)
        return await hook(self, *args, **kwargs)

    async def recorded_listing(self, *args):
        self.called.append(name)
        async for info in hook(self, *args):
            yield info

    return recorded_listing if name == "_list" else recorded


for _name in hooks() - {"scope", "summaries"}:
    setattr(Recorder, _name, recording(_name))


async def test_each_call_reaches_the_inner_stores_own_hook():
    """Through two wrappers every public method ends in the same hook of the innermost store."""
    inner = Recorder()
    storage = WrapperChatStorage(WrapperChatStorage(inner))
    message = ConversationMessage("user", "x")
    ids = ("user", "session", "agent")
    calls = [
        (storage.save_chat_message(*ids, message), ["_append", "_after_append"]),
        (storage.append(*ids, [Note("run"), message]), ["_append", "_after_append"]),
        (storage.read_log(*ids), ["_read"]),
        (storage.fetch_chat(*ids), ["_fetch"]),
        (storage.fetch_chat_since(*ids, 0), ["_read"]),
        (storage.fetch_all_chats("user", "session"), ["_read_session"]),
        (storage.trim_chat(*ids, 1), ["_forget", "_erase_deleted"]),
        (anext(storage.list_chats()), ["_list"]),
        (storage.delete_chats("nobody"), ["_keys", "_list", "_erase_deleted"]),
        (storage.purge(timedelta(1)), ["_purge", "_erase_deleted"]),
    ]
    await storage._ready()
    for call, expected in calls:
        inner.called.clear()
        await call
        assert inner.called[: len(expected)] == expected
    inner.called.clear()
    assert storage.scope == "network"
    assert storage.summaries() is not None
    await storage.aclose()
    assert inner.called == ["scope", "summaries", "_close"]


async def test_the_inner_store_is_left_open_when_asked():
    """A shared inner store outlives a wrapper that does not own it."""
    inner = InMemoryChatStorage()
    async with WrapperChatStorage(inner, close_inner=False) as storage:
        await storage.save_chat_message("u", "s", "a", ConversationMessage("user", "x"))
    assert len(await inner.fetch_chat("u", "s", "a")) == 1
    async with WrapperChatStorage(inner):
        pass
    with pytest.raises(StorageClosedError):
        await inner.fetch_chat("u", "s", "a")


async def test_a_closed_inner_store_is_noticed():
    """A wrapper around a store that somebody closed says so."""
    inner = InMemoryChatStorage()
    storage = WrapperChatStorage(inner)
    await storage.fetch_chat("u", "s", "a")
    await inner.aclose()
    with pytest.raises(StorageClosedError):
        await storage.fetch_chat("u", "s", "a")


def test_only_stores_are_wrapped():
    """The error says what to pass instead."""
    with pytest.raises(InvalidRequestError, match="subclass"):
        WrapperChatStorage({})


def test_the_repr_shows_the_chain():
    """One look tells what is around what."""
    assert repr(wrapped_twice()) == (
        "WrapperChatStorage(WrapperChatStorage(InMemoryChatStorage(0 chats)))"
    )
    assert wrapped_twice().inner.inner.scope == "process"


async def test_a_wrapper_sees_what_the_inner_store_stored():
    """`_after_append` gets the slice of the innermost append."""
    seen = []

    class Watching(WrapperChatStorage):
        async def _after_append(self, key: ChatKey, stored: LogSlice) -> None:
            seen.append((key, [entry.position for entry in stored.entries]))

    storage = Watching(InMemoryChatStorage())
    await storage.save_chat_message("user", "session", "agent", ConversationMessage("user", "x"))
    assert seen == [(KEY, [1])]


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (InMemoryChatStorage, r"is a class; make one of it: InMemoryChatStorage\(…\)"),
        ("sqlite:///chats.db", r"open_storage\(url\)"),
        ({}, "not dict; subclass agent_memory.ChatStorage"),
    ],
)
def test_what_is_no_store_is_refused_with_advice(given, advice):
    """When the wrapper is made, not at the first save."""
    with pytest.raises(InvalidRequestError, match=advice):
        WrapperChatStorage(given)


def test_a_summarizer_s_class_is_refused_with_advice():
    """It can be called, but what that gives is no summary."""
    with pytest.raises(InvalidRequestError, match=r"make one of it: ExtractiveSummarizer\(…\)"):
        SummarizingChatStorage(InMemoryChatStorage(), ExtractiveSummarizer)
