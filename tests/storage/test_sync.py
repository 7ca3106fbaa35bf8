"""The blocking twin of a store."""

import asyncio
import gc
import inspect
import logging
import os
import threading
import typing
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest

from agent_memory import (
    ChatInfo,
    ChatStorage,
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    Note,
    SqlChatStorage,
    SummarizingChatStorage,
    SyncChatStorage,
)
from agent_memory.errors import StorageClosedError
from agent_memory.log import Entry

CHAT = ("u", "s", "a")


def said(text):
    return ConversationMessage("user", text)


@pytest.fixture(params=["memory", "sqlite"])
def storage(request, tmp_path):
    inner = (
        InMemoryChatStorage()
        if request.param == "memory"
        else SqlChatStorage(f"sqlite:///{tmp_path}/chats.db")
    )
    with SyncChatStorage(inner) as sync:
        yield sync


SYNC_RESULTS = {
    "iter_chat": Iterator[ConversationMessage],
    "iter_all_chats": Iterator[ConversationMessage],
    "iter_log": Iterator[Entry],
    "list_chats": Iterator[ChatInfo],
}


def test_every_method_of_the_contract_has_a_blocking_twin():
    """Whatever is public and async in the contract can be called without a loop."""
    contract = {name for name in vars(ChatStorage) if not name.startswith("_")}
    assert contract - {"scope", "summaries"} <= set(vars(SyncChatStorage))


def test_a_twin_takes_the_arguments_of_its_method():
    """So that ``help()`` says what may be given, and what comes back without an await."""
    contract = {name for name in vars(ChatStorage) if not name.startswith("_")}
    for name in contract - {"scope", "summaries"}:
        twin, method = getattr(SyncChatStorage, name), getattr(ChatStorage, name)
        assert not inspect.iscoroutinefunction(twin)
        assert twin.__name__ == name
        assert twin.__doc__ == method.__doc__ or f"see :meth:`ChatStorage.{name}`" in twin.__doc__
        assert list(inspect.signature(twin).parameters.values()) == [
            parameter
            for parameter in inspect.signature(method).parameters.values()
            if parameter.kind is not parameter.VAR_POSITIONAL  # what a store refuses anyway
        ]
    assert inspect.signature(SyncChatStorage.iter_chat).return_annotation.startswith("Iterator[")


def test_a_twin_has_the_type_hints_of_a_plain_method():
    """Frameworks read hints, and some await whatever unwraps to a coroutine function."""
    contract = {name for name in vars(ChatStorage) if not name.startswith("_")}
    for name in contract - {"scope", "summaries"}:
        twin, method = getattr(SyncChatStorage, name), getattr(ChatStorage, name)
        hints, expected = typing.get_type_hints(twin), typing.get_type_hints(method)
        assert inspect.unwrap(twin) is twin
        assert hints.pop("return") == SYNC_RESULTS.get(name, expected.pop("return"))
        assert set(hints) == set(inspect.signature(twin).parameters) - {"self"}
        assert hints == {given: expected[given] for given in hints}


def test_saves_and_reads_block_and_return_what_the_store_returns(storage):
    """A script saves, reads, lists and deletes without await."""
    saved = storage.save_chat_messages(*CHAT, [said("one"), said("two")])
    storage.save_note(*CHAT, Note("run", {"n": 1}))
    storage.save_chat_message(*CHAT, said("three"))
    assert [message.position for message in saved] == [1, 2]
    assert [message.content for message in storage.fetch_chat(*CHAT, 2)] == ["two", "three"]
    assert [message.position for message in storage.fetch_chat_since(*CHAT, 2)] == [4]
    assert len(storage.fetch_all_chats("u", "s")) == 3
    assert [info.key.agent_id for info in storage.list_chats("u")] == ["a"]
    assert [entry.position for entry in storage.iter_log(*CHAT)] == [1, 2, 3, 4]
    assert [entry.position for entry in storage.read_log(*CHAT, after=1, last=2).entries] == [3, 4]
    assert storage.append(*CHAT, [Note("run"), said("five")]).entries[1].position == 6
    assert storage.retract(*CHAT, [saved[0].id]).position == 7
    assert storage.retract_newest(*CHAT).content == "five"
    assert [message.content for message in storage.fetch_chat(*CHAT)] == ["two", "three"]
    assert storage.clear(*CHAT).position == 9
    assert storage.fetch_chat(*CHAT) == []
    assert storage.trim_chat(*CHAT, 2) == 2
    assert storage.trim_chat(*CHAT, 1) == 1
    assert storage.delete_chat(*CHAT) == 1
    assert storage.delete_chats("u") == 0
    assert storage.purge(timedelta(0)) == 1


class Shouting(InMemoryChatStorage):
    """Overrides what it is not meant to, as users' stores do."""

    async def fetch_chat(self, *args, **kwargs):
        return [said("!") for _ in await super().fetch_chat(*args, **kwargs)]

    async def iter_log(self, *args, **kwargs):
        async for _ in super().iter_log(*args, **kwargs):
            yield said("!")


def test_what_a_store_overrides_is_called():
    """And not the method of the base class, which the twin was made from."""
    with SyncChatStorage(Shouting()) as sync:
        sync.save_chat_message(*CHAT, said("hi"))
        assert [m.content for m in sync.fetch_chat(*CHAT)] == ["!"]
        assert [m.content for m in sync.iter_log(*CHAT)] == ["!"]


def test_an_iteration_longer_than_a_batch_yields_everything_in_order(storage):
    """Items are taken in batches, none twice and none left out."""
    storage.save_chat_messages(*CHAT, [said(str(index)) for index in range(450)])
    assert [m.content for m in storage.iter_chat(*CHAT)] == [str(i) for i in range(450)]
    assert len(list(storage.iter_all_chats("u", "s"))) == 450


def test_an_iteration_may_be_left_early(storage):
    """A loop that breaks leaves nothing open."""
    storage.save_chat_messages(*CHAT, [said(str(index)) for index in range(450)])
    items = storage.iter_chat(*CHAT)
    assert next(items).content == "0"
    items.close()
    assert len(storage.fetch_chat(*CHAT)) == 450


def test_errors_are_those_of_the_store(storage):
    """A bad id raises where it is passed."""
    with pytest.raises(InvalidRequestError, match="user_id must not be empty"):
        storage.fetch_chat("", "s", "a")


def test_many_threads_may_call_at_once(storage):
    """A web server's threads share one twin."""
    threads = [
        threading.Thread(target=storage.save_chat_message, args=(*CHAT, said(str(index))))
        for index in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [m.position for m in storage.fetch_chat(*CHAT)] == list(range(1, 21))


def test_within_a_running_loop_it_works_and_says_once_that_it_blocks(storage, caplog):
    """It is of use in a notebook, but nobody should do it unaware."""

    async def inside():
        storage.save_chat_message(*CHAT, said("hi"))
        return storage.fetch_chat(*CHAT)

    with caplog.at_level(logging.WARNING, "agent_memory"):
        assert [message.content for message in asyncio.run(inside())] == ["hi"]
    assert [record for record in caplog.text.splitlines() if "blocks it" in record] != []
    assert caplog.text.count("blocks it") == 1


def test_called_from_its_own_thread_it_refuses_instead_of_waiting_for_itself():
    """An async summarizer that uses the twin would hang for ever."""
    refused = []

    async def summarizer(history, keep_last):
        try:
            sync.fetch_chat(*CHAT)
        except InvalidRequestError as error:
            refused.append(str(error))
        return [said("summary"), *history[-2 * keep_last :]]

    inner = SummarizingChatStorage(InMemoryChatStorage(), summarizer, trigger_at=2, keep_last=1)
    with SyncChatStorage(inner) as sync:
        sync.save_chat_messages(*CHAT, [said(str(index)) for index in range(5)])
        assert sync.fetch_chat(*CHAT)[0].content == "summary"
    assert len(refused) == 1
    assert "would wait for itself" in refused[0]


def test_run_reaches_what_only_the_inner_store_has():
    """``explain`` of the summarizing store is one call away."""
    inner = SummarizingChatStorage(InMemoryChatStorage(), lambda history, keep: history)
    with SyncChatStorage(inner) as sync:
        sync.save_chat_message(*CHAT, said("hi"))
        assert sync.run(inner.explain(*CHAT)).count("verbatim") == 1


def test_closed_it_raises_and_closing_twice_is_fine(storage):
    """After close nothing works any more, as with the async store."""
    storage.close()
    storage.close()
    with pytest.raises(StorageClosedError):
        storage.save_chat_messages(*CHAT, [])


def test_c63_a_forgotten_twin_ends_its_thread():
    """A twin that nobody closed leaves no thread behind."""
    sync = SyncChatStorage(InMemoryChatStorage())
    sync.save_chat_message(*CHAT, said("hi"))
    thread = sync._thread._thread
    del sync
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 warns of threads
def test_a_child_process_gets_a_thread_of_its_own(tmp_path):
    """A pre-forking server may make the twin before it forks."""
    sync = SyncChatStorage(InMemoryChatStorage())
    sync.save_chat_message(*CHAT, said("hi"))
    child = os.fork()
    if child == 0:
        fetch = partial(sync.fetch_chat, *CHAT)
        os._exit(0 if [message.content for message in fetch()] == ["hi"] else 1)
    _, status = os.waitpid(child, 0)
    sync.close()
    assert os.waitstatus_to_exitcode(status) == 0


def test_something_that_is_no_store_is_refused():
    """The mistake shows where it is made."""
    with pytest.raises(InvalidRequestError, match="must be a ChatStorage"):
        SyncChatStorage("sqlite:///chats.db")
