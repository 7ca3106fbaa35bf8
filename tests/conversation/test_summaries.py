"""Summaries in a run: what they are made of, what they may stand for, and what becomes of them."""

from __future__ import annotations

import asyncio
import logging

import pytest
from talking import LONG, Summarizer, heads, turn, turns

import model_server as scripted
from agent_memory import (
    Compacted,
    CompactionFailed,
    CompactionSkipped,
    ConversationManager,
    ConversationMessage,
    ExtractiveSummarizer,
    InMemoryChatStorage,
    InvalidSummaryError,
    SlidingWindowSummarizer,
    StorageUnavailableError,
    SummarizerError,
    SummaryResult,
    Usage,
)
from agent_memory.shapes import text_of
from agent_memory.testing import FlakyChatStorage, GatedChatStorage, witness_summary
from agent_memory.turns import runs
from rig import IDS, KEY, assistant, call, result, texts, user

# ------------------------------------------------------------------------- what is summarized


async def test_the_models_summary_takes_the_place_of_the_older_runs(storage, server, llm):
    """Beyond the threshold; the newest runs stay as they are, and raw is whole."""
    server.script(scripted.answer("They counted to ten."))
    manager = ConversationManager(storage, llm())
    seen = await turns(manager, 3)
    assert heads(seen) == ["SUMMARY", "ask 2", "answer 2", "ask 3"]
    assert "They counted to ten." in text_of(seen[0])
    assert "ask 1" in server.requests[0].transcript
    assert len(await storage.fetch_chat(*IDS)) == 6


async def test_the_summarizer_is_given_the_history_and_the_run(storage):
    """Also what the run has produced so far, and how full the context is."""
    summarizer = Summarizer(above=9)
    manager = ConversationManager(storage, summarizer)
    await turn(manager, "one")
    run = await manager.start_run(*IDS)
    run.add([user("ask two"), call("c1"), result("c1")])
    await run.messages()
    messages, tokens = summarizer.calls[-1]
    assert texts(messages) == texts(await storage.fetch_chat(*IDS))
    assert tokens == run.context_tokens > 0


@pytest.mark.parametrize("kept", [0, 1, 3])
async def test_the_runs_own_messages_are_never_summarized(storage, kept):
    """However little the summarizer keeps."""

    def careless(messages, _tokens):
        if len(messages) < 8:
            return None
        return SummaryResult("all of it", messages[len(messages) - kept :])

    manager = ConversationManager(storage, Summarizer(careless))
    await turn(manager, "one")
    await turn(manager, "two")
    run = await manager.start_run(*IDS)
    run.add([user("ask three"), call("c1"), result("c1"), call("c2"), result("c2")])
    own = await run.messages()
    assert heads(own)[0] == "SUMMARY"
    assert [message.run_id for message in own[1:]] == [run.id] * 5


async def test_a_run_that_is_taken_up_again_is_not_summarized_either(storage):
    """What an earlier worker produced under the same run id is this run's."""
    summarizer = Summarizer(lambda messages, _tokens: SummaryResult("all", messages[-1:]))
    plain = ConversationManager(storage)
    await turn(plain, "one")
    await turn(plain, "two")
    first = await plain.start_run(*IDS, run_id="r3")
    first.add([user("ask three"), call("c1"), result("c1")])
    await first.save()
    again = await ConversationManager(storage, summarizer).start_run(*IDS, run_id="r3")
    seen = await again.messages()
    assert heads(seen)[0] == "SUMMARY"
    assert [message.run_id for message in seen[1:]] == ["r3"] * 3


async def test_a_result_says_by_its_run_how_far_it_reaches(storage):
    """``last_summarized_run_id`` alone is enough: what follows that run stays."""
    summarizer = Summarizer(
        lambda messages, _tokens: (
            SummaryResult("the first", last_summarized_run_id="r1") if len(messages) > 6 else None
        )
    )
    seen = await turns(ConversationManager(storage, summarizer), 4)
    assert heads(seen) == ["SUMMARY", "ask 2", "answer 2", "ask 3", "answer 3", "ask 4"]


async def test_the_longer_of_two_keeps_wins(storage):
    """A result may name a run and keep messages: nothing of what either keeps is lost."""
    summarizer = Summarizer(
        lambda messages, _tokens: (
            SummaryResult("the first", messages[2:], last_summarized_run_id="r2")
            if len(messages) > 6
            else None
        )
    )
    seen = await turns(ConversationManager(storage, summarizer), 4)
    assert heads(seen)[:3] == ["SUMMARY", "ask 2", "answer 2"]


async def test_an_id_that_came_back_ends_with_its_last_block(storage):
    """A boundary means the end of the run's last block before the run in progress."""
    for name in ("r1", "r2", "r1", "r3"):
        await turn(ConversationManager(storage), f"{name} {LONG}", run_id=name)
    summarizer = Summarizer(lambda _m, _t: SummaryResult("s", last_summarized_run_id="r1"))
    run = await ConversationManager(storage, summarizer).start_run(*IDS)
    run.add(user("ask now"))
    assert heads(await run.messages()) == ["SUMMARY", "ask r3", "answer r3", "ask now"]


async def test_an_open_run_whose_id_came_back_does_not_hide_its_older_block(storage):
    """The boundary means that one; what is being written now stays."""
    for name in ("r1", "r2"):
        await turn(ConversationManager(storage), f"{name} {LONG}", run_id=name)
    summarizer = Summarizer(lambda _m, _t: SummaryResult("s", last_summarized_run_id="r1"))
    run = await ConversationManager(storage, summarizer).start_run(*IDS, run_id="r1")
    run.add(user("ask now"))
    assert heads(await run.messages()) == ["SUMMARY", "ask r2", "answer r2", "ask now"]


async def test_a_boundary_that_names_the_open_run_is_refused_and_stays_inert(storage, caplog):
    """With a warning; nothing is shown of it, now or after a reload."""
    events = []
    summarizer = Summarizer(
        lambda messages, _tokens: SummaryResult(
            "bad", last_summarized_run_id=messages[-1].run_id, usage=Usage(9, 1)
        )
    )
    manager = ConversationManager(storage, summarizer, on_event=events.append)
    await turn(manager, "one")
    run, seen = await turn(manager, "two", run_id="open")
    assert texts(seen) == ["ask one", "answer one", "ask two"]
    assert "'open', still being written, is refused" in caplog.text
    assert [event.reason for event in events] == ["refused"]
    assert run.usage == Usage(9, 1)
    assert await storage.summaries().list_summaries(KEY) == []
    again = await ConversationManager(storage).start_run(*IDS)
    assert texts(await again.messages()) == [*texts(seen), "answer two"]


async def test_a_boundary_that_names_no_run_is_a_failure(storage):
    """The view stays whole, and what was wrong is said."""
    events = []
    summarizer = Summarizer(lambda _m, _t: SummaryResult("s", last_summarized_run_id="nobody"))
    manager = ConversationManager(storage, summarizer, on_event=events.append)
    await turn(manager, "one")
    _, seen = await turn(manager, "two")
    assert texts(seen) == ["ask one", "answer one", "ask two"]
    (event,) = events
    assert isinstance(event.error, InvalidSummaryError)
    assert "'nobody', which is no run" in str(event.error)


async def test_none_means_not_yet(storage):
    """Nothing happens, nothing is told, and it is asked again as the thread grows."""
    events = []
    summarizer = Summarizer(lambda _messages, _tokens: None)
    manager = ConversationManager(storage, summarizer, on_event=events.append)
    seen = await turns(manager, 4)
    assert len(seen) == 7
    assert len(summarizer.calls) == 3  # in the first run there was nothing before it
    assert events == []


async def test_custom_summarizers_implement_one_method(storage):
    """A plain one will do, too; it runs in a thread of its own."""

    class Plain:
        def summarize(self, messages, context_tokens):
            return SummaryResult("plain", messages[-1:]) if len(messages) > 4 else None

    seen = await turns(ConversationManager(storage, Plain()), 3)
    assert heads(seen) == ["SUMMARY", "ask 3"]


async def test_a_function_has_the_triggers_of_the_wrapper(storage):
    """``trigger_at`` pairs must be exceeded; ``keep_last`` pairs are asked for."""
    asked = []

    def function(history, keep_last):
        asked.append((len(history), keep_last))
        return [user("short"), *history[-2 * keep_last :]]

    manager = ConversationManager(storage, function, trigger_at=3, keep_last=1)
    seen = await turns(manager, 4)
    assert asked == [(7, 1)]
    assert heads(seen) == ["SUMMARY", "answer 3", "ask 4"]


async def test_a_window_slides_in_every_run(storage):
    """It costs nothing, so that it need not wait for the thread to grow."""
    manager = ConversationManager(storage, SlidingWindowSummarizer(3))
    for number in range(1, 8):
        _, seen = await turn(manager, f"{number} {LONG}")
    assert heads(seen) == ["ask 6", "answer 6", "ask 7"]


async def test_an_extract_serves_as_a_summary(storage):
    """Without any model."""
    manager = ConversationManager(storage, ExtractiveSummarizer())
    seen = await turns(manager, 30)
    assert heads(seen)[0] == "SUMMARY"
    assert heads(seen)[-1] == "ask 30"
    assert len(seen) < 30


# ------------------------------------------------------------------------ a run of its own


async def test_a_summary_is_its_own_run_the_same_in_memory_and_after_a_reload(stores, server, llm):
    """Whole messages are compared, ids, times and runs among them."""
    manager = ConversationManager(stores.open(), llm())
    await turns(manager, 2)
    run = await manager.start_run(*IDS)
    run.add(user("ask three"))
    seen = await run.messages()
    await run.save()
    summary, *rest = seen
    assert summary.run_id == summary.id
    assert summary.run_id not in {message.run_id for message in rest}
    assert next(iter(runs(seen))) == range(1)
    again = await ConversationManager(stores.open()).start_run(*IDS)
    assert await again.messages() == seen


@pytest.mark.parametrize("summary_id", ["", "mine", "r2", "now"])
async def test_a_summary_id_names_that_run_unless_it_is_taken(storage, summary_id):
    """Generated where it is empty, or another run's."""
    summarizer = Summarizer(above=4, summary_id=summary_id)
    manager = ConversationManager(storage, summarizer)
    await turns(manager, 2)
    _, (summary, *rest) = await turn(manager, run_id="now")
    assert summary.position is None
    assert summary.run_id
    assert (summary.run_id == summary_id) == (summary_id == "mine")
    assert summary.run_id not in {message.run_id for message in rest}


async def test_the_next_summary_is_made_from_the_last_and_what_followed(storage):
    """Nothing goes into a summary twice, nothing is passed over."""

    def witness(messages, _tokens):
        if len(messages) <= 6:
            return None
        kept = messages[-3:]
        return SummaryResult(witness_summary(messages[:-3]), kept)

    manager = ConversationManager(storage, Summarizer(witness))
    seen = await turns(manager, 12)
    raw = await storage.fetch_chat(*IDS)
    witnessed = seen[0].metadata["witness"]
    shown = [message.id for message in seen[1:]]
    assert [*witnessed, *shown] == [message.id for message in raw[:-1]]


async def test_reload_applies_the_newest_summary(stores):
    """Without the caller naming a run; the tip is what follows it."""
    summarizer = Summarizer(above=5)
    seen = await turns(ConversationManager(stores.open(), summarizer), 9)
    records = await stores.open().summaries().list_summaries(KEY)
    assert len(records) > 1
    run = await ConversationManager(stores.open()).start_run(*IDS)
    reloaded = await run.messages()
    assert reloaded[:-1] == seen
    assert reloaded[0] == records[-1].summary[0]


# ----------------------------------------------------------------------------- failures


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


async def test_the_strict_get_an_error_even_for_one_that_takes_other_arguments(storage):
    """An application's own error class need not take one text."""

    class OddError(SummarizerError):
        def __init__(self, one, two):
            super().__init__(f"{one}{two}")

    def fails(_messages, _tokens):
        raise OddError(1, 2)

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
    stuck = asyncio.Event()

    async def hang(_messages, _tokens):
        while not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:  # a call that ignores its cancellation
                continue

    summarizer = Summarizer(hang)
    manager = ConversationManager(storage, summarizer, summarizer_timeout=0.01)
    await turns(manager, 6, text="x")
    assert len(summarizer.calls) == 1
    assert len(await storage.fetch_chat(*IDS)) == 12
    stuck.set()
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


@pytest.mark.parametrize("text", ["", " ", None])
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

            return Store(outer, inner)

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
