"""Summaries in a run: what they are made of, what they may stand for, and what becomes of them."""

from __future__ import annotations

import pytest
from talking import LONG, Summarizer, heads, turn, turns

import model_server as scripted
from agent_memory import (
    ConversationManager,
    ExtractiveSummarizer,
    SlidingWindowSummarizer,
    SummaryResult,
    Usage,
)
from agent_memory.errors import InvalidSummaryError
from agent_memory.providers import text_of
from agent_memory.testing import witness_summary
from agent_memory.turns import runs
from rig import IDS, KEY, assistant, call, result, texts, user

# ------------------------------------------------------------------------- what is summarized


async def test_the_models_summary_takes_the_place_of_the_older_runs(storage, server, llm):
    """Beyond the threshold; the newest runs stay as far as they leave room; raw is whole."""
    server.script(scripted.answer("They counted to ten."))
    manager = ConversationManager(storage, llm(token_threshold=1_400))
    seen = await turns(manager, 7)
    assert heads(seen) == ["SUMMARY", "ask 6", "answer 6", "ask 7"]
    assert "They counted to ten." in text_of(seen[0])
    (request,) = server.requests
    assert "ask 1" in request.transcript
    assert "ask 6" not in request.transcript
    assert len(await storage.fetch_chat(*IDS)) == 14


async def test_a_wish_to_keep_runs_never_stops_a_summary_that_is_due(storage, server, llm):
    """Two runs are to be kept, and there are but two: the older one goes all the same."""
    manager = ConversationManager(storage, llm(token_threshold=100))
    seen = await turns(manager, 2)
    assert heads(seen) == ["SUMMARY", "ask 2"]
    assert len(server.requests) == 1


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
    first.add([user("ask three"), assistant("one"), user("and?"), assistant("two")])
    await first.save()
    again = await ConversationManager(storage, summarizer).start_run(*IDS, run_id="r3")
    again.add([user("and then?"), assistant("three")])
    seen = await again.messages()
    assert heads(seen)[0] == "SUMMARY"
    assert [message.run_id for message in seen[1:]] == ["r3"] * 6


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
    assert "'nobody', which is not a run" in str(event.error)


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
    for number in range(1, 10):
        _, seen = await turn(manager, f"{number} {LONG}")
        assert len(seen) == min(5, 2 * number - 1)
    assert heads(seen)[0] == "ask 7"


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
