"""Summaries that fail, come late, gain nothing or are not wanted: the view stays right."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
from talking import LONG, Summarizer, heads, turn, turns

import model_server as scripted
from agent_memory import (
    ConversationManager,
    ConversationMessage,
    InMemoryChatStorage,
    StorageUnavailableError,
    SummarizerError,
    SummaryResult,
)
from agent_memory.events import Compacted, CompactionFailed, CompactionSkipped
from agent_memory.providers import text_of
from agent_memory.testing import FlakyChatStorage, GatedChatStorage
from rig import IDS, KEY, assistant, texts, user


async def test_a_failed_summary_leaves_the_view_whole_and_is_reported(storage, server, llm):
    """The run goes on; the failure is an event and a warning without content."""
    events = []
    server.default = scripted.failing(500)
    manager = ConversationManager(storage, llm(), on_event=events.append)
    seen = await turns(manager, 3)
    assert heads(seen) == ["ask 1", "answer 1", "ask 2", "answer 2", "ask 3"]
    assert [type(event) for event in events] == [CompactionFailed]
    assert len(await storage.fetch_chat(*IDS)) == 6


async def test_the_strict_are_told_after_the_messages_are_stored(storage, server, llm):
    """``on_summarizer_error="raise"``; the next call shows the whole view."""
    server.default = scripted.failing(500)
    manager = ConversationManager(storage, llm(), on_summarizer_error="raise")
    await turns(manager, 2)
    run = await manager.start_run(*IDS)
    run.add(user("ask 3"))
    with pytest.raises(SummarizerError, match="the messages are stored"):
        await run.messages()
    assert texts(await storage.fetch_chat(*IDS))[-1] == "ask 3"
    assert len(await run.messages()) == 5


class TwoArgumentsError(SummarizerError):
    def __init__(self, one, two):
        super().__init__(f"{one}{two}")


class AnsweredError(SummarizerError):
    def __init__(self, answer):
        super().__init__(answer.code)


@pytest.mark.parametrize(
    "error", [TwoArgumentsError(1, 2), AnsweredError(SimpleNamespace(code="12"))]
)
async def test_the_strict_get_an_error_even_for_one_that_takes_other_arguments(storage, error):
    """An application's own error class need not take one text."""

    def fails(_messages, _tokens):
        raise error

    manager = ConversationManager(storage, Summarizer(fails), on_summarizer_error="raise")
    await turn(ConversationManager(storage), "one")
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    with pytest.raises(SummarizerError, match="12"):
        await run.messages()


async def test_after_failures_the_wait_doubles_over_runs_too(storage):
    """A model that is down is not asked in every run."""

    def fails(_messages, _tokens):
        raise ConnectionError("down")

    summarizer = Summarizer(fails)
    manager = ConversationManager(storage, summarizer)
    await turns(manager, 40, text="x")
    assert 3 <= len(summarizer.calls) <= 8


async def test_a_fallback_stands_in(storage, server, llm):
    """While the model is down."""
    server.default = scripted.failing(500)
    fallback = Summarizer(text="the fallback's", above=4)
    manager = ConversationManager(storage, llm(), fallback=fallback)
    seen = await turns(manager, 3)
    assert "the fallback's" in text_of(seen[0])


async def test_c37_a_summarizer_that_hangs_is_given_up(storage):
    """The run goes on, and no other run asks while the call is still there."""
    stuck = asyncio.Event()  # set whatever happens: the loop could not end otherwise

    async def hang(_messages, _tokens):
        while not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:  # a call that ignores its cancellation
                continue

    summarizer = Summarizer(hang)
    manager = ConversationManager(storage, summarizer, summarizer_timeout=0.01)
    try:
        await turns(manager, 6, text="x")
    finally:
        stuck.set()
    assert len(summarizer.calls) == 1
    assert len(await storage.fetch_chat(*IDS)) == 12
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})


async def test_a_cancelled_run_gives_its_summary_up(storage):
    """The cancellation arrives at the summarizer; another run may ask at once."""
    began, cancelled = asyncio.Event(), []

    async def hang(messages, _tokens):
        if cancelled:
            return SummaryResult("now", messages[-1:])
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(len(messages))
            raise

    manager = ConversationManager(storage, Summarizer(hang))
    await turn(ConversationManager(storage), "one")
    await turn(ConversationManager(storage), "two")
    task = asyncio.create_task(turn(manager, "three"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [5]
    _, seen = await turn(manager, "four")
    assert heads(seen) == ["SUMMARY", "ask four"]


@pytest.mark.parametrize("text", ["", " "])
async def test_c36_a_blank_summary_changes_nothing(storage, text):
    """It is a failure; the view stays whole."""
    events = []
    summarizer = Summarizer(lambda messages, _tokens: SummaryResult(text, messages[-1:]))
    manager = ConversationManager(storage, summarizer, on_event=events.append)
    seen = await turns(manager, 2)
    assert len(seen) == 3
    assert [type(event) for event in events] == [CompactionFailed]


@pytest.mark.parametrize("answer", ["text", 7, [], ["text"], {"summary": "s"}])
async def test_c36_an_answer_that_is_no_result_changes_nothing(storage, answer):
    """The error says what it must be."""
    events = []
    summarizer = Summarizer(lambda _messages, _tokens: answer)
    manager = ConversationManager(storage, summarizer, on_event=events.append)
    assert len(await turns(manager, 2)) == 3
    assert "SummaryResult or None" in str(events[0].error)


async def test_a_summary_that_gains_nothing_is_skipped(storage):
    """Longer than what it stands for, in messages and tokens."""
    events = []
    summarizer = Summarizer(
        lambda messages, _tokens: SummaryResult([user(LONG), user(LONG)], messages[-1:])
    )
    manager = ConversationManager(storage, summarizer, on_event=events.append)
    seen = await turns(manager, 2, text="x")
    assert heads(seen) == ["ask 1", "answer 1", "ask 2"]
    assert [event.reason for event in events] == ["nothing_to_gain"]


async def test_an_application_may_veto(storage):
    """``before_compaction`` is told why, and what the summarizer would get."""
    requests, events = [], []

    def veto(request):
        requests.append(request)
        return False

    summarizer = Summarizer()
    manager = ConversationManager(
        storage, summarizer, before_compaction=veto, on_event=events.append
    )
    await turns(manager, 3)
    assert summarizer.calls == []
    assert (requests[0].key, requests[0].reason) == (KEY, "context")
    assert texts(requests[0].history) == texts((await storage.fetch_chat(*IDS))[:3])
    assert all(isinstance(event, CompactionSkipped) for event in events)


async def test_events_tell_of_a_summary(storage):
    """What was covered and what it saved."""
    events = []
    await turns(ConversationManager(storage, Summarizer(), on_event=events.append), 3)
    (event,) = events
    assert isinstance(event, Compacted)
    assert (event.messages_before, event.messages_after) == (5, 2)
    assert (event.record.covered.first, event.record.covered.count) == (1, 4)


async def test_a_record_that_could_not_be_written_is_written_by_the_next_save():
    """The summary's record is pending like everything else."""

    class Reluctant(GatedChatStorage):
        refusals = 1

        def summaries(self):
            inner, outer = super().summaries(), self

            class Store(type(inner)):
                async def save_summary(self, key, record, *, replaces):
                    if outer.refusals:
                        outer.refusals -= 1
                        raise StorageUnavailableError("not now", key=key)
                    return await inner.save_summary(key, record, replaces=replaces)

            return Store(outer._at, inner)

    storage = Reluctant(InMemoryChatStorage())
    seen = await turns(ConversationManager(storage, Summarizer()), 3)
    assert heads(seen)[0] == "SUMMARY"
    (record,) = await storage.summaries().list_summaries(KEY)
    assert record.summary == (seen[0],)


async def test_a_pinned_message_is_never_summarized(storage):
    """It is shown first, word for word."""
    manager = ConversationManager(storage, Summarizer())
    run = await manager.start_run(*IDS)
    run.add(user("remember this", pinned=True))
    await run.save()
    seen = await turns(manager, 4)
    assert heads(seen)[:2] == ["remember this", "SUMMARY"]


async def test_an_answer_that_comes_too_late_for_a_deleted_chat_is_dropped(storage):
    """Deleted in the middle of a summary: what was deleted stays so."""
    began, going_on = asyncio.Event(), asyncio.Event()

    async def slow(messages, _tokens):
        began.set()
        await going_on.wait()
        return SummaryResult("of deleted text", messages[-1:])

    manager = ConversationManager(storage, Summarizer(slow))
    await turn(ConversationManager(storage), "one")
    await turn(ConversationManager(storage), "two")
    run = await manager.start_run(*IDS)
    run.add(user("ask three"))
    asking = asyncio.create_task(run.messages())
    await began.wait()
    await storage.delete_chat(*IDS)
    going_on.set()
    assert await asking == []
    assert await storage.summaries().list_summaries(KEY) == []
    run.add(assistant("answer three"))
    assert texts(await run.messages()) == ["answer three"]


async def test_messages_of_no_run_are_summarized_like_others(storage):
    """A chat that another program wrote."""
    for number in range(4):
        await storage.save_chat_messages(*IDS, [user(f"ask {number}"), assistant("fine")])
    summarizer = Summarizer(lambda messages, _tokens: SummaryResult("old", messages[-3:]))
    run = await ConversationManager(storage, summarizer).start_run(*IDS)
    run.add(user("ask now"))
    seen = await run.messages()
    assert texts(seen[1:]) == ["ask 3", "fine", "ask now"]


async def test_a_lost_answer_in_a_run_with_a_summary_keeps_the_summary():
    """The view is read up to what was stored, not made anew from raw."""
    storage = FlakyChatStorage(InMemoryChatStorage())
    manager = ConversationManager(storage, Summarizer())
    await turns(manager, 2)
    run = await manager.start_run(*IDS)
    run.add(user("ask three"))
    assert heads(await run.messages()) == ["SUMMARY", "ask three"]
    storage.fail("after")
    run.add(assistant("answer three"))
    with pytest.raises(StorageUnavailableError):
        await run.messages()
    assert heads(await run.messages()) == ["SUMMARY", "ask three", "answer three"]


def test_refusals_are_warnings_without_content(caplog):
    """What a run's messages say is logged at DEBUG at most."""
    caplog.set_level(logging.INFO)

    async def work():
        storage = InMemoryChatStorage()
        summarizer = Summarizer(
            lambda messages, _tokens: SummaryResult(
                "private", last_summarized_run_id=messages[-1].run_id
            )
        )
        manager = ConversationManager(storage, summarizer)
        await storage.save_chat_message(*IDS, ConversationMessage("user", "private"))
        await turn(manager, "private")

    asyncio.run(work())
    assert caplog.records
    assert "private" not in caplog.text
