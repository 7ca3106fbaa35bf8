"""What goes in comes out: by value, by type, by key order, at any size."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import timedelta, timezone
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory.errors import MessageTooLargeError
from agent_memory.keys import ChatKey, new_id
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.storage.base import ChatStorage
from agent_memory.testing.contract.contract_base import (
    ContractBase,
    assert_same,
    assert_same_messages,
    contents,
    differs_by_engine,
    ids,
    raw,
    save,
    seconds,
    user,
)

_TEXTS: Final = (
    "",
    "NUL \0 inside",
    "a lone surrogate \ud800 and \udfff",
    "line and paragraph separators \u2028 \u2029, next line \x85, feed \x0c",
    "carriage \r return, \r\n both, \n and a tab \t",
    "family 👨‍👩‍👧‍👦, flag 🇺🇦, keycap 1️⃣, skin 👋🏽",
    "composed \u00e9 and decomposed e\u0301",
    "中文、ไทย、العربية, עברית",
    "quotes \" ' ` \\ and %s {braces} <tags> $1 --",
    "\ufeff byte order mark, \ufffd, \uffff, \U0010ffff",
    "trailing spaces   ",
)

_scalars: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary(max_size=40)
)
_keys: Final = st.text(st.characters(exclude_categories=())) | st.just("$agent_memory")
_content: Final = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


async def _round_trip(storage: ChatStorage, *given_contents: Any) -> None:
    given_messages = [user(content) for content in given_contents]
    stored = await save(storage, *given_messages)
    assert_same_messages(given_messages, stored)
    assert_same_messages(given_messages, await raw(storage))


class FidelityTests(ContractBase):
    """What goes in comes out."""

    @differs_by_engine
    async def test_c01_bytes_come_back_as_bytes(self, storage: ChatStorage) -> None:
        """Bytes inside a block are bytes again, the empty ones too."""
        await _round_trip(
            storage,
            [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}],
            b"",
            bytes(range(256)),
        )

    async def test_c01_data_that_looks_like_a_marker_stays_data(
        self, storage: ChatStorage
    ) -> None:
        """A dict that has the form in which the codec writes bytes stays that dict."""
        await _round_trip(
            storage,
            {"$agent_memory": ["bytes", "AP8="]},
            {"$agent_memory": {"$agent_memory": None}, "other": 1},
            [{"__bytes__": "AP8="}, {"B": "AP8="}, {"$bytes": "AP8="}],
        )

    async def test_c02_numbers_keep_their_type_and_value(self, storage: ChatStorage) -> None:
        """Ints stay ints, large ones too, floats stay floats, minus zero keeps its sign."""
        await _round_trip(
            storage,
            {"t": 36.6, "n": 1, "one": 1.0, "z": 0.1, "big": 10**30, "neg": -0.0, "true": True},
            [2**53 + 1, -(2**63) - 1, 10**40, 2**14_000, 5e-324, 1.7976931348623157e308],
            [0, False, None, 0.0],
        )

    async def test_c02_key_order_is_kept(self, storage: ChatStorage) -> None:
        """Keys come back in the order they were given in."""
        await _round_trip(storage, {"z": 1, "a": {"y": 1, "b": 2, "10": 3, "9": 4}, "": 5})

    @differs_by_engine
    async def test_c03_text_of_every_kind_is_kept(self, storage: ChatStorage) -> None:
        """Text that trips databases and files comes back equal, as value and as key."""
        await _round_trip(storage, *_TEXTS, *({text: [text]} for text in _TEXTS))

    async def test_c04_empty_content_is_kept(self, storage: ChatStorage) -> None:
        """The raw log keeps what a provider would reject."""
        await _round_trip(storage, [], "", [{"text": ""}], [{"text": "  "}], None, {}, [[]], [{}])

    async def test_c05_timestamps_are_kept_to_the_microsecond(self, storage: ChatStorage) -> None:
        """Given timestamps come back, old ones and those of other zones as the same moment."""
        east = timezone(timedelta(hours=5, minutes=45))
        moments = [
            seconds(0.000001),
            seconds(-10 * 365 * 86400),
            seconds(0).astimezone(east),
            seconds(0).replace(year=9999, month=1),
            seconds(0).replace(year=1, month=1),
        ]
        await save(storage, *(user("x", timestamp=moment) for moment in moments))
        assert [message.timestamp for message in await raw(storage)] == moments

    async def test_c06_fields_beside_the_content_are_kept(self, storage: ChatStorage) -> None:
        """Whatever a provider or the application puts beside the content comes back."""
        messages = [
            ConversationMessage(
                "assistant",
                None,
                extra={
                    "tool_calls": [
                        {"id": "1", "type": "function", "function": {"arguments": '{"a":1}'}}
                    ],
                    "citations": [{"url": "https://example.org", "score": 0.5}],
                    "unknown": {"b": b"\0", "n": None},
                },
                metadata={"trace": "\ud800", "nested": [{"x": 1.0}]},
                usage=Usage(100, 20, 30, 4),
                run_id="run é\n1",
                pinned=True,
            ),
            ConversationMessage("tool", "42", extra={"tool_call_id": "1", "name": "add"}),
            ConversationMessage("system", "be kind"),
            ConversationMessage("developer", "be brief"),
        ]
        await save(storage, *messages)
        assert_same_messages(messages, await raw(storage))

    async def test_content_a_hundred_levels_deep_is_kept(self, storage: ChatStorage) -> None:
        """The deepest content that a message may have is stored."""
        deep: Any = "bottom"
        for level in range(100):
            deep = [deep] if level % 2 else {"k": deep}
        await _round_trip(storage, deep)

    async def test_c07_editing_what_was_saved_changes_nothing(self, storage: ChatStorage) -> None:
        """The caller's own objects are not shared with the store."""
        block: dict[str, Any] = {"text": "as saved"}
        batch = [user([block])]
        await storage.save_chat_messages(*ids(), batch)
        block["text"] = "edited"
        batch.clear()
        assert contents(await raw(storage)) == [[{"text": "as saved"}]]

    async def test_c07_what_fetch_returns_cannot_harm_the_store(
        self, storage: ChatStorage
    ) -> None:
        """Returned lists are fresh, returned contents refuse to be edited."""
        await save(storage, user([{"text": "as saved"}]))
        fetched = await storage.fetch_chat(*ids())
        with pytest.raises(TypeError):
            fetched[0].content[0]["text"] = "edited"
        fetched.clear()
        assert contents(await storage.fetch_chat(*ids())) == [[{"text": "as saved"}]]

    async def test_c07_the_callers_message_is_not_stamped(self, storage: ChatStorage) -> None:
        """Saving leaves the message that was given as it was."""
        message = user("x")
        (stored,) = await save(storage, message)
        assert (message.position, message.agent_id) == (None, None)
        assert (stored.position, stored.agent_id) == (1, "agent")

    @differs_by_engine
    async def test_c08_a_large_message_is_stored_or_refused_whole(
        self, storage: ChatStorage
    ) -> None:
        """A message of some megabytes comes back equal, or is refused with the limit."""
        text = random.Random(8).randbytes(self.large_message_bytes // 2).hex()
        large = user([{"toolResult": {"content": [{"text": text}]}}])
        await save(storage, user("before"))
        (refusal,) = await asyncio.gather(
            save(storage, large, user("with it")), return_exceptions=True
        )
        if isinstance(refusal, MessageTooLargeError):
            assert any(character.isdigit() for character in str(refusal)), refusal
            assert contents(await raw(storage)) == ["before"]
        else:
            assert not isinstance(refusal, BaseException), refusal
            assert_same(large.content, (await raw(storage))[1].content)
        await save(storage, user("after"))
        assert (await raw(storage))[-1].content == "after"

    @differs_by_engine
    async def test_a_batch_of_large_messages_is_stored_whole(self, storage: ChatStorage) -> None:
        """A batch that is large as a whole is one append like any other."""
        noise = random.Random(9)
        batch = [user(noise.randbytes(20_000).hex()) for _ in range(30)]
        await save(storage, *batch)
        assert_same_messages(batch, await raw(storage))

    @differs_by_engine
    @given(content=_content, extra=st.dictionaries(_keys, _content, max_size=2))
    @settings(
        max_examples=25,
        deadline=None,
        derandomize="CI" in os.environ,
        # Each example has a chat of its own, so one store may serve them all.
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
        ],
    )
    async def test_any_content_comes_back_equal(
        self, storage: ChatStorage, content: Any, extra: dict[str, Any]
    ) -> None:
        """Whatever a message may hold is stored and read back by type and key order."""
        key = ChatKey("user", new_id(), "agent")
        message = user(content, extra=extra)
        await save(storage, message, key=key)
        assert_same_messages([message], await raw(storage, key))
