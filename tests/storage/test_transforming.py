"""Messages changed on their way into a store and out of it."""

from __future__ import annotations

import base64
import itertools
import json
from datetime import timedelta

import attrs
import pytest

from agent_memory import (
    ChatKey,
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    Note,
    StorageConflictError,
    SummaryRecord,
    Usage,
)
from agent_memory.records import Covered
from agent_memory.storage.codec import decode_entry, encode_entry
from agent_memory.storage.transforming import TransformingChatStorage
from agent_memory.summarizing import SummarizingChatStorage
from agent_memory.testing import ChatStorageTests, CountingChatStorage, ScriptedSummarizer

IDS = ("user", "session", "agent")
KEY = ChatKey(*IDS)
nonce = itertools.count()


def user(content="hello", **fields):
    return ConversationMessage("user", content, **fields)


def scrub(message):
    if message.content == "drop me":
        return None
    if isinstance(message.content, str):
        return attrs.evolve(message, content=message.content.replace("secret", "***"))
    return message


async def encrypt(message):
    """Another ciphertext each time, as real encryption gives."""
    text = base64.b64encode(encode_entry(message).encode()).decode()
    return ConversationMessage(
        message.role, json.dumps([next(nonce), text]), id=message.id, timestamp=message.timestamp
    )


async def decrypt(message):
    text = base64.b64decode(json.loads(message.content)[1])
    return decode_entry(text, message.position or 1, message.agent_id or "none")


def identity_store():
    return TransformingChatStorage(InMemoryChatStorage())


def encrypting_store():
    return TransformingChatStorage(InMemoryChatStorage(), encrypt, decrypt)


@pytest.mark.matrix
class TestIdentity(ChatStorageTests):
    @pytest.fixture
    def make_storage(self):
        return identity_store


class TestEncryption(ChatStorageTests):
    """The whole contract holds around a store that sees nothing but ciphertext."""

    @pytest.fixture
    def make_storage(self):
        return encrypting_store


@pytest.mark.matrix
class TestSummarizingAroundEncryption(ChatStorageTests):
    """A wrapper of a wrapper that holds views: the trigger is never reached here."""

    @pytest.fixture
    def make_storage(self):
        return summarizing_encrypting_store


def summarizing_encrypting_store():
    return SummarizingChatStorage(encrypting_store(), ScriptedSummarizer(), trigger_at=100)


async def test_what_is_stored_is_what_on_save_made():
    """The inner store never sees the original, and the save returns what a fetch gives."""
    inner = InMemoryChatStorage()
    storage = TransformingChatStorage(inner, scrub)
    message = user("my secret")
    (stored,) = await storage.save_chat_message(*IDS, message)
    assert (stored.content, stored.id, stored.position) == ("my ***", message.id, 1)
    assert await inner.fetch_chat(*IDS) == [stored] == await storage.fetch_chat(*IDS)


async def test_a_dropped_message_is_neither_stored_nor_returned():
    """The rest of its batch is."""
    inner = InMemoryChatStorage()
    storage = TransformingChatStorage(inner, scrub)
    stored = await storage.save_chat_messages(*IDS, [user("1"), user("drop me"), user("2")])
    assert [(m.content, m.position) for m in stored] == [("1", 1), ("2", 2)]
    assert await inner.fetch_chat(*IDS) == stored


async def test_a_batch_dropped_whole_creates_nothing_and_tells_the_floor():
    """Nothing is appended; a wrapper above still learns of a delete by others."""
    inner = CountingChatStorage(InMemoryChatStorage())
    storage = TransformingChatStorage(inner, scrub)
    assert await storage.save_chat_message(*IDS, user("drop me")) == []
    assert inner.calls["append"] == 0
    await storage.save_chat_messages(*IDS, [user(), user()])
    await storage.delete_chat(*IDS)
    assert (await storage._append(KEY, [user("drop me")])).floor == 2


async def test_an_append_of_messages_and_notes_passes_the_functions():
    """Messages are changed or dropped, notes stay; the log is read back through `on_read`."""
    store = TransformingChatStorage(InMemoryChatStorage(), scrub)
    note = Note("run", {"n": 1})
    stored = await store.append(*IDS, [user("my secret"), note, user("drop me"), user("b")])
    assert [entry.position for entry in stored.entries] == [1, 2, 3]
    assert list((await store.inner.read_log(*IDS)).entries) == list(stored.entries)
    assert stored.entries[1] == note
    assert "secret" not in str(stored.messages)
    hiding = TransformingChatStorage(store.inner, on_read=lambda message: None)
    shown = (await hiding.read_log(*IDS)).entries
    assert [entry.kind for entry in shown] == ["hidden", "run", "hidden"]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_an_exception_of_on_saves_fails_the_save_as_it_is(kind):
    """The original exception leaves the save and nothing of the batch is stored."""

    class RefusedError(Exception):
        pass

    def refuse(message):
        if message.content == "bad":
            raise RefusedError
        return message

    async def refuse_later(message):
        return refuse(message)

    inner = InMemoryChatStorage()
    storage = TransformingChatStorage(inner, refuse if kind == "plain" else refuse_later)
    with pytest.raises(RefusedError):
        await storage.save_chat_messages(*IDS, [user("1"), user("bad"), user("2")])
    assert await inner.fetch_chat(*IDS) == []
    assert len(await storage.save_chat_message(*IDS, user("next"))) == 1


async def test_a_new_message_takes_the_identity_of_the_original():
    """A function that builds a message anew changes what it says, not which message it is."""
    original = user("said", run_id="run", pinned=True, metadata={"a": 1})
    made = []

    def naive(message):
        made.append(
            ConversationMessage(
                "assistant",
                "changed",
                usage=Usage(1, 2),
                extra={"name": "x"},
                metadata={"b": 2},
                timestamp=message.timestamp - timedelta(1),
            )
        )
        return made[-1]

    storage = TransformingChatStorage(InMemoryChatStorage(), naive)
    (stored,) = await storage.save_chat_message(*IDS, original)
    for name in ("id", "timestamp", "run_id", "pinned"):
        assert getattr(stored, name) == getattr(original, name), name
    for name in ("role", "content", "extra", "metadata", "usage"):
        assert getattr(stored, name) == getattr(made[0], name), name
    assert await storage.save_chat_message(*IDS, original) == [stored]


async def test_an_evolved_message_is_taken_whole():
    """Under the same id everything that the function changed is stored."""

    def earlier(message):
        return attrs.evolve(message, timestamp=message.timestamp - timedelta(1), pinned=True)

    storage = TransformingChatStorage(InMemoryChatStorage(), earlier)
    message = user()
    (stored,) = await storage.save_chat_message(*IDS, message)
    assert (stored.timestamp, stored.pinned) == (message.timestamp - timedelta(1), True)


async def test_on_read_keeps_the_place():
    """Positions and agent are the store's, whatever the function builds."""
    storage = TransformingChatStorage(
        InMemoryChatStorage(), None, lambda message: user(message.content.upper())
    )
    saved = await storage.save_chat_messages(*IDS, [user("a"), user("b")])
    fetched = await storage.fetch_chat(*IDS)
    assert fetched == saved
    assert [(m.content, m.position, m.agent_id) for m in fetched] == [
        ("A", 1, "agent"),
        ("B", 2, "agent"),
    ]


async def test_a_hidden_message_leaves_a_note_in_the_log():
    """It is not fetched, and neither shifts nor cuts off what follows it."""
    storage = TransformingChatStorage(
        InMemoryChatStorage(), None, lambda m: None if m.content.startswith("hide") else m
    )
    batch = [user(f"hide {n}") for n in range(250)]
    saved = await storage.save_chat_messages(*IDS, [user("1"), *batch, user("2")])
    assert [m.position for m in saved] == [1, 252]
    assert await storage.fetch_chat_since(*IDS, 0) == saved
    assert await storage.fetch_chat(*IDS) == saved
    assert [m async for m in storage.iter_chat(*IDS)] == saved
    assert await storage.fetch_all_chats("user", "session") == saved
    hidden = [entry async for entry in storage.iter_log(*IDS)][5]
    assert (hidden.kind, hidden.position, hidden.id) == ("hidden", 6, batch[4].id)


async def test_what_on_read_raises_leaves_the_read():
    """A message that cannot be decrypted is not passed over in silence."""

    def broken(message):
        raise LookupError("no such key")

    inner = InMemoryChatStorage()
    await inner.save_chat_message(*IDS, user())
    with pytest.raises(LookupError):
        await TransformingChatStorage(inner, None, broken).fetch_chat(*IDS)


async def test_notes_pass_untouched():
    """Notes hold no message's text; the functions never see them."""
    storage = encrypting_store()
    note = await storage.save_note(*IDS, Note("run", {"tokens": 1}))
    assert [entry async for entry in storage.iter_log(*IDS)] == [note]
    assert await storage.save_note(*IDS, note) == note


async def test_c16_a_retry_is_recognised_under_another_ciphertext():
    """What reads the same is the same message, far back in the log too."""
    storage = encrypting_store()
    first = [user(f"{n}") for n in range(300)]
    saved = await storage.save_chat_messages(*IDS, first)
    again = await storage.save_chat_messages(*IDS, [first[0], user("new"), first[299]])
    assert [m.position for m in again] == [1, 301, 300]
    assert await storage.fetch_chat_since(*IDS, 0) == [*saved, again[1]]


async def test_c16_another_payload_under_a_known_id_still_conflicts():
    """Encryption does not make two messages one; nothing is stored."""
    storage = encrypting_store()
    first, second = user("1"), user("2")
    await storage.save_chat_messages(*IDS, [first, second])
    with pytest.raises(StorageConflictError):
        await storage.save_chat_messages(*IDS, [first, user(), user("changed", id=second.id)])
    assert len(await storage.fetch_chat(*IDS)) == 2


async def test_no_text_goes_around_the_functions_in_records():
    """The inner record holds what on_save made; loading gives it back, heads at their places."""
    inner = InMemoryChatStorage()
    storage = TransformingChatStorage(inner, encrypt, decrypt)
    stored = await storage.save_chat_messages(*IDS, [user(f"plain {n}") for n in range(4)])
    record = SummaryRecord(
        summary=(user("plain summary"),),
        head=(stored[0],),
        position=3,
        message_id=stored[2].id,
        floor=0,
        covered=Covered(2, 3, 2),
    )
    records = storage.summaries()
    assert await records.save_summary(KEY, record, replaces=None)
    held = await inner.summaries().load_summary(KEY)
    assert "plain" not in repr([m.content for m in (*held.summary, *held.head)])
    loaded = await records.load_summary(KEY)
    assert loaded == record
    assert [m.position for m in loaded.head] == [1]
    assert await records.list_summaries(KEY) == [record]
    assert await records.forget_summaries(KEY) == 1


async def test_a_summarizing_store_around_it_never_holds_unscrubbed_text():
    """The model is shown what is stored, also before anything was read back."""
    summarizer = ScriptedSummarizer()
    inner = TransformingChatStorage(InMemoryChatStorage(), scrub)
    storage = SummarizingChatStorage(inner, summarizer, trigger_at=2, keep_last=1)
    for n in range(9):
        await storage.save_chat_message(*IDS, user(f"{n} secret"))
        if n > 4:
            shown = await storage.fetch_chat(*IDS)
            assert "secret" not in repr([m.content for m in shown])
    given = [m.content for call in summarizer.calls for m in call.history]
    assert given
    assert "secret" not in repr(given)


async def test_a_summarizing_store_around_encryption_shows_plain_text():
    """A view made of saves and one made of reads are the same."""
    storage = SummarizingChatStorage(
        encrypting_store(), ScriptedSummarizer(), trigger_at=2, keep_last=1
    )
    for n in range(9):
        await storage.save_chat_message(*IDS, user(f"plain {n}"))
        view = await storage.fetch_chat(*IDS)
        assert view[-1].content == f"plain {n}"
    raw = await storage.fetch_chat_since(*IDS, 0)
    assert [m.content for m in raw] == [f"plain {n}" for n in range(9)]


@pytest.mark.parametrize("result", ["text", {"role": "user"}, 0])
async def test_what_is_no_message_is_refused(result):
    """The error names the function and says how to change a message."""
    storage = TransformingChatStorage(InMemoryChatStorage(), lambda message: result)
    with pytest.raises(InvalidRequestError, match=r"on_save.*evolve"):
        await storage.save_chat_message(*IDS, user())


def test_what_is_no_function_is_refused():
    """At construction, not at the first save."""
    with pytest.raises(InvalidRequestError, match="on_read"):
        TransformingChatStorage(InMemoryChatStorage(), None, "no function")
