"""Summarizers of every kind under a storage, and the view that people see."""

from __future__ import annotations

import pytest

from agent_memory import (
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    SummarizingChatStorage,
)
from agent_memory.messages import Usage
from agent_memory.summarizers import SlidingWindowSummarizer
from agent_memory.summarizers.base import SummaryResult
from agent_memory.testing import ScriptedSummarizer, blind_cut
from rig import IDS, Rig, dialogue, names, summary, texts

# ------------------------------------------------------------------------- kinds of summarizers


async def test_an_object_s_result_is_recorded_with_its_usage():
    """Its text becomes the summary; the longer of two keeps wins."""

    class Model:
        async def summarize(self, messages, context_tokens):
            assert context_tokens > 0
            return SummaryResult("all of it", messages[-1:], usage=Usage(100, 20))

    rig = Rig(summarizer=Model(), trigger_at=4, keep_last=2)
    view = await rig.active(9)
    assert names(view) == ["S", "m6", "m7", "m8", "m9"]
    assert "all of it" in view[0].content
    assert rig.events[-1].record.usage == Usage(100, 20)


async def test_an_object_that_says_not_yet_is_asked_again_after_a_pair():
    """None is no failure."""
    asked = []

    class Patient:
        def summarize(self, messages, context_tokens):
            asked.append(len(messages))
            return None if len(asked) < 3 else SummaryResult("now", messages[-2:])

    rig = Rig(summarizer=Patient())
    await rig.active(7)
    await rig.talk(4)
    assert asked == [7, 9, 11]
    assert [e.reason for e in rig.events if hasattr(e, "reason")] == ["not_yet"] * 2
    assert names(await rig.view())[0] == "S"


async def test_an_object_that_returns_a_list_is_told_what_to_return():
    """The failure names the type."""

    class Wrong:
        def summarize(self, messages, context_tokens):
            return messages

    rig = Rig(summarizer=Wrong())
    await rig.active(7)
    assert "must return a SummaryResult or None, not list" in str(rig.events[-1].error)


async def test_a_lambda_around_an_async_function_is_awaited():
    """What a plain function returns may be what an async one made."""
    scripted = ScriptedSummarizer()
    rig = Rig(summarizer=lambda history, keep_last: scripted(list(history), keep_last))
    assert names(await rig.active(7)) == ["S", "m6", "m7"]


async def test_a_sliding_window_needs_no_summary():
    """What is left out is covered by nothing; raw has it."""
    rig = Rig(summarizer=SlidingWindowSummarizer(2))
    assert names(await rig.active(9)) == ["m7", "m8", "m9"]
    assert len(await rig.raw()) == 9
    assert rig.events[-1].record.covered.count == 6


async def test_a_window_longer_than_the_trigger_is_cut_to_it():
    """What the window would keep never stops a summary that is due; it leaves room then."""
    rig = Rig(summarizer=SlidingWindowSummarizer(30))
    assert names(await rig.active(9)) == ["m8", "m9"]


# ------------------------------------------------------------------------- the view


async def test_everything_but_fetch_chat_is_raw():
    """The log in every other reading method, messages as they were saved."""
    rig = Rig()
    await rig.active(20)
    raw = [f"m{n}" for n in range(1, 21)]
    assert len(await rig.view()) < 7
    assert names(await rig.storage.fetch_all_chats(*IDS[:2])) == raw
    assert names(await rig.storage.fetch_chat_since(*IDS, 0)) == raw
    assert names([m async for m in rig.storage.iter_chat(*IDS)]) == raw
    assert names([m async for m in rig.storage.iter_all_chats(*IDS[:2])]) == raw
    assert [info.entries async for info in rig.storage.list_chats()] == [20]


async def test_a_limit_gives_at_most_so_many_and_nought_gives_none():
    """The newest always, the summary where there is room."""
    rig = Rig()
    await rig.active(7)
    assert [names(await rig.view(limit)) for limit in (0, 1, 2, 3, 9)] == [
        [],
        ["m7"],
        ["S", "m7"],
        ["S", "m6", "m7"],
        ["S", "m6", "m7"],
    ]
    with pytest.raises(InvalidRequestError):
        await rig.view(-1)


async def test_between_compactions_the_view_only_grows_at_its_end():
    """Prompt caches live on that."""
    rig = Rig()
    before = await rig.active(7)
    for _ in range(3):
        await rig.talk(1)
        now = await rig.view()
        assert now[: len(before)] == before
        assert len(now) == len(before) + 1
        before = now


async def test_the_seed_example_runs_as_it_stands():
    """But for its imports: what people write first works."""

    class my_llm:  # noqa: N801  the example's name
        @staticmethod
        async def summarize(old):
            return f"{len(old)} messages"

    async def my_summarizer(history, keep_last):
        old, recent = history[: -keep_last * 2], history[-keep_last * 2 :]
        text = await my_llm.summarize(old)
        made = [ConversationMessage(role="user", content=[{"text": f"[Summary]: {text}"}])]
        return made + recent

    storage = SummarizingChatStorage(
        storage=InMemoryChatStorage(), summarizer=my_summarizer, trigger_at=20, keep_last=2
    )
    for message in dialogue(41):
        await storage.save_chat_message(*IDS, message)
    view = await storage.fetch_chat(*IDS)
    assert texts(view)[0] == [{"text": "[Summary]: 37 messages"}]
    assert names(view) == ["S", "m38", "m39", "m40", "m41"]


async def test_a_view_may_be_asked_for_before_anything_was_said():
    """An unknown chat is empty, and reading it leaves nothing behind."""
    rig = Rig()
    for number in range(100):
        assert await rig.view(ids=("user", "session", f"{number}")) == []
    assert (rig.storage.buffered_chats, rig.events) == (0, [])


async def test_blind_slicing_is_no_harm():
    """The careless way to write a summarizer is made good for."""
    rig = Rig(summarizer=ScriptedSummarizer([lambda h, k: [summary(), *blind_cut(h, k)[1]]] * 9))
    await rig.active(7)
    await rig.talk(20)
    assert len(await rig.view()) <= 7
