"""The constructor's options, and what each does."""

from __future__ import annotations

import inspect
import logging

import pytest

from agent_memory import (
    ConversationManager,
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    SummarizerError,
    SummarizingChatStorage,
)
from agent_memory.errors import SummarizerTimeoutError
from agent_memory.events import Activated, Compacted, CompactionFailed, CompactionSkipped
from agent_memory.summarizers import ExtractiveSummarizer
from agent_memory.summarizing import SummarizingOptions, buffers
from agent_memory.testing import ScriptedSummarizer
from rig import KEY, Rig, dialogue, names, user, violations

# ------------------------------------------------------------------------- validation

NO_NUMBERS = [0, -1, 2.0, "3", True]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        *(({"trigger_at": bad}, "trigger_at must be a whole number") for bad in [*NO_NUMBERS, 1]),
        *(({"keep_last": bad}, "keep_last must be a whole number") for bad in NO_NUMBERS),
        *(({"max_buffers": bad}, "max_buffers must be a whole number") for bad in NO_NUMBERS),
        *(({"trigger_tokens": bad}, "trigger_tokens must be a whole") for bad in NO_NUMBERS),
        ({"trigger_at": None}, "trigger_at must be a whole number of at least 2"),
        ({"keep_last": None}, "keep_last must be a whole number of at least 1"),
        ({"trigger_at": 4, "keep_last": 4}, r"keep_last \(4\) must be below trigger_at \(4\)"),
        ({"trigger_at": 4, "keep_last": 9}, "leaves nothing to summarize"),
        ({"max_summary_tokens": 3}, "max_summary_tokens must be a whole number of at least 16"),
        ({"max_head_tokens": 0}, "max_head_tokens must be a whole number of at least 1"),
        ({"max_concurrent_summaries": 0}, "max_concurrent_summaries must be"),
        *(
            ({"summarizer_timeout": bad}, "number of seconds above 0, or None for no limit")
            for bad in (0, -1, float("inf"), float("nan"), "10", True)
        ),
        ({"on_summarizer_error": "ignore"}, "must be 'log' or 'raise', not 'ignore'"),
        ({"on_event": "print"}, "on_event must be a function"),
        ({"before_compaction": 7}, "before_compaction must be a function"),
        ({"summarizer": "gpt"}, r"summarizer must be a function \(history, keep_last\)"),
        ({"fallback": 3}, "fallback must be a function"),
        ({"storage": {}}, "storage must be a ChatStorage, not dict"),
    ],
)
def test_bad_options_are_refused_with_what_to_change(options, advice):
    """At once, when the storage is made."""
    given = {"storage": InMemoryChatStorage(), "summarizer": ScriptedSummarizer(), **options}
    with pytest.raises(InvalidRequestError, match=advice):
        SummarizingChatStorage(**given)


def test_the_first_four_options_are_positional():
    """``SummarizingChatStorage(storage, summarizer, 20, 2)``; everything else is named."""
    kinds = inspect.signature(SummarizingChatStorage).parameters
    positional = [name for name, p in kinds.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ["storage", "summarizer", "trigger_at", "keep_last"]
    assert (kinds["trigger_at"].default, kinds["keep_last"].default) == (20, 2)


def test_options_may_come_in_one_value():
    """What is given by name takes precedence, also where it is the default; the rest stays."""
    options = SummarizingOptions(trigger_at=5, keep_last=3, max_buffers=7, background=True)
    made = SummarizingChatStorage(InMemoryChatStorage(), ScriptedSummarizer(), options=options)
    assert made._options == options
    changed = SummarizingChatStorage(
        InMemoryChatStorage(),
        ScriptedSummarizer(),
        20,
        background=False,
        options=options,
        summarizer_timeout=None,
    )
    assert changed._options == SummarizingOptions(
        trigger_at=20, keep_last=3, max_buffers=7, background=False, summarizer_timeout=None
    )
    assert (
        SummarizingChatStorage(InMemoryChatStorage(), ScriptedSummarizer())._options
        == SummarizingOptions()
    )


def test_a_manager_takes_the_same_options():
    """By name or in one value; those of the storage alone are none of its own."""
    options = SummarizingOptions(trigger_at=5, keep_last=3)
    manager = ConversationManager(InMemoryChatStorage(), ScriptedSummarizer(), options=options)
    assert manager._options == options
    manager = ConversationManager(
        InMemoryChatStorage(), ScriptedSummarizer(), options=options, keep_last=2
    )
    assert manager._options == SummarizingOptions(trigger_at=5, keep_last=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'background'"):
        ConversationManager(InMemoryChatStorage(), background=True)


@pytest.mark.parametrize("wrong", [{"trigger": 5}, {"options": {"trigger_at": 5}}])
def test_what_is_no_option_is_refused(wrong):
    """A misspelled name never means the default."""
    with pytest.raises((TypeError, InvalidRequestError), match=r"'trigger'|SummarizingOptions"):
        SummarizingChatStorage(InMemoryChatStorage(), ScriptedSummarizer(), **wrong)


# ------------------------------------------------------------------------- the trigger


@pytest.mark.parametrize("trigger_at", [2, 5])
async def test_the_trigger_is_strict(trigger_at):
    """Exactly twice as many messages are not summarized; one more is."""
    rig = Rig(trigger_at=trigger_at)
    assert len(await rig.active(2 * trigger_at)) == 2 * trigger_at
    assert (rig.calls, rig.storage.buffered_chats) == ([], 0)
    await rig.talk(1)
    assert rig.calls == []  # nothing is held yet: the next fetch finds it
    assert names(await rig.view())[0] == "S"


async def test_tokens_trigger_too():
    """A view of more tokens than the limit is summarized, however few messages it has."""
    rig = Rig(trigger_at=50, trigger_tokens=500)
    await rig.save(*(user("word " * 60) for _ in range(8)), *dialogue(2))
    assert names(await rig.view())[0] == "S"
    assert rig.events[-1].record.reason == "trigger_tokens"
    assert rig.events[-1].record.tokens_after < rig.events[-1].record.tokens_before


async def test_the_summarizer_is_told_how_many_pairs_to_keep():
    """And given the history without what is withheld."""
    rig = Rig(trigger_at=5, keep_last=3)
    await rig.active(11)
    (call,) = rig.calls
    assert (call.keep_last, names(call.history)) == (3, [f"m{n}" for n in range(1, 12)])


# ------------------------------------------------------------------------- events


async def test_events_tell_what_happened_to_which_chat():
    """Activated, then compacted: counts before and after, and the record."""
    rig = Rig()
    await rig.active(7)
    activated, compacted = rig.events
    assert (type(activated), activated.messages, activated.restored) == (Activated, 7, False)
    assert type(compacted) is Compacted
    assert (compacted.messages_before, compacted.messages_after) == (7, 3)
    assert (compacted.clipped, compacted.adopted, compacted.key) == (False, False, KEY)
    assert compacted.duration >= 0
    record = compacted.record
    assert (record.position, record.message_id, record.covered.count) == (5, "m5", 5)
    assert record.reason == "trigger_at"
    assert await rig.inner.summaries().load_summary(KEY) == record


async def test_failures_and_skips_tell_when_the_next_attempt_comes():
    """In new messages, not in seconds."""
    rig = Rig(summarizer=ScriptedSummarizer([ValueError("no"), lambda h, k: h]))
    await rig.active(7)
    await rig.talk(2)
    _, failed, skipped = rig.events
    assert (type(failed), failed.retry_after, failed.messages) == (CompactionFailed, 2, 7)
    assert "no" in str(failed.error)
    assert (type(skipped), skipped.retry_after, skipped.messages) == (CompactionSkipped, 6, 9)


@pytest.mark.parametrize("plain", [True, False])
async def test_what_a_watcher_raises_is_logged_and_goes_no_further(plain, caplog):
    """Plain or async: a chat never fails for who watches it."""

    def watch(event):
        raise RuntimeError("watcher broke")

    async def watch_async(event):
        raise RuntimeError("watcher broke")

    rig = Rig(on_event=watch if plain else watch_async)
    with caplog.at_level(logging.ERROR, "agent_memory"):
        assert names(await rig.active(7)) == ["S", "m6", "m7"]
    assert "watcher broke" in caplog.text


async def test_the_log_tells_nothing_of_what_was_said(caplog):
    """Above DEBUG no line quotes a message, whatever fails."""
    rig = Rig(summarizer=ScriptedSummarizer(["", RuntimeError("down")] * 9))
    with caplog.at_level(logging.INFO, "agent_memory"):
        await rig.active(7)
        await rig.talk(20)
    assert caplog.records
    assert "say" not in caplog.text


# ------------------------------------------------------------------------- strict, fallback


async def test_strict_saves_raise_after_the_message_is_stored():
    """The error says so; nothing needs to be saved again."""
    rig = Rig(
        summarizer=ScriptedSummarizer([None, RuntimeError("down")]), on_summarizer_error="raise"
    )
    await rig.active(7)
    await rig.talk(3)
    with pytest.raises(SummarizerError, match="stored, but not summarized") as raised:
        await rig.talk(1)
    assert isinstance(raised.value.__cause__, SummarizerError)
    assert names(await rig.raw())[-1] == "m11"
    assert violations(await rig.view(), await rig.raw()) == []


async def test_strict_saves_raise_the_kind_of_failure(loop_clock):
    """A time-out is told from a summary that is none."""
    summarizer = ScriptedSummarizer([None])
    rig = Rig(summarizer=summarizer, on_summarizer_error="raise", summarizer_timeout=60)
    await rig.active(7)
    await rig.talk(3)
    gate = summarizer.hold()
    with pytest.raises(SummarizerTimeoutError):
        await loop_clock.cut_short(rig.talk(1), gate.reached(), 60)


async def test_strict_fetches_do_not_raise():
    """There is a view to return, whatever became of the summary."""
    rig = Rig(summarizer=ScriptedSummarizer([RuntimeError]), on_summarizer_error="raise")
    assert len(await rig.active(7)) == 7


@pytest.mark.parametrize(
    "failure",
    [RuntimeError("down"), "", [], [ConversationMessage("user", " ")]],
    ids=["raises", "a text", "an empty list", "blank"],
)
async def test_a_fallback_stands_in_when_the_summarizer_fails(failure):
    """Whether it raises or answers with what is no summary."""
    rig = Rig(summarizer=ScriptedSummarizer([failure]), fallback=ExtractiveSummarizer())
    await rig.save(*(user(f"{text.content} " * 400) for text in dialogue(7)))
    view = await rig.view()
    assert view[0].position is None
    assert rig.kinds() == ["Activated", "Compacted"]
    assert rig.events[-1].record.summarizer == "ExtractiveSummarizer"


async def test_when_the_fallback_fails_too_nothing_changes():
    """The failure that is told of is the fallback's, and the view is as it was."""
    rig = Rig(
        summarizer=ScriptedSummarizer([RuntimeError("first")]),
        fallback=ScriptedSummarizer([RuntimeError("second")]),
    )
    assert len(await rig.active(7)) == 7
    assert "second" in str(rig.events[-1].error)


def test_every_reason_to_skip_is_documented():
    """An application that handles the event has to know what it may be given."""
    documented = CompactionSkipped.__doc__ or ""
    reasons = buffers._ADVICE.keys() - {"still_over"}  # that one follows a summary
    assert {reason for reason in reasons if f'``"{reason}"``' not in documented} == set()
