"""Cases from the field: agents that call tools for long, and whoever summarizes them."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import (
    ExtractiveSummarizer,
    InMemoryChatStorage,
    LLMSummarizer,
    SlidingWindowSummarizer,
    SummaryResult,
)
from agent_memory.errors import InvalidSummaryError
from agent_memory.testing import witness_summary
from agent_memory.tokens import HeuristicTokenCounter
from rig import (
    IDS,
    Rig,
    assistant,
    blind,
    call,
    dialogue,
    names,
    orphans,
    result,
    summary,
    system,
    torn,
    user,
    violations,
)

LONG = "one two three four five six seven eight nine ten " * 10


async def scripted_model(instruction, transcript, **_parameters):
    return "They looked for it and found it."


def llm(**options):
    return LLMSummarizer(scripted_model, **options)


def rounds(count, *, start=1, run_id=None):
    """So many tool rounds: a call and its result, each in a message of its own."""
    return [
        message
        for number in range(start, start + count)
        for message in (
            call(f"t{number}", id=f"call {number}", run_id=run_id),
            result(f"t{number}", id=f"result {number}", run_id=run_id),
        )
    ]


async def views(rig, messages, batch=1):
    """Save messages batch by batch; the view after each."""
    for start in range(0, len(messages), batch):
        await rig.save(*messages[start : start + batch])
        yield await rig.view()


# ------------------------------------------------------------------------- C66


@pytest.mark.parametrize("make", [llm, ExtractiveSummarizer, SlidingWindowSummarizer])
async def test_c66_one_question_and_a_hundred_rounds_stay_bounded(make, caplog):
    """At the defaults, with each built-in summarizer; the question is there, once."""
    rig = Rig(summarizer=make(), trigger_at=20, keep_last=2)
    async for view in views(rig, [user("find it", id="question"), *rounds(100)]):
        assert len(view) <= 41
        assert torn(view, await rig.raw()) == []
        assert names(view).count("question") == 1
    assert rig.kinds().count("Compacted") >= 3
    assert rig.kinds().count("CompactionSkipped") == 0
    assert caplog.records == []
    assert names(view)[-1] == "result 100"


@pytest.mark.parametrize("keep_last", [1, 2])
async def test_c66_keep_last_is_honoured_with_plain_messages(keep_last):
    """No more than that is kept, unless the summarizer was told to keep runs."""
    rig = Rig(summarizer=llm(), trigger_at=20, keep_last=keep_last)
    view = await rig.active(41)
    assert names(view) == ["S", *(f"m{n}" for n in range(42 - 2 * keep_last, 42))]


async def test_c66_an_explicit_wish_keeps_runs_as_far_as_there_is_room():
    """Turns here; the view ends under half the trigger."""
    rig = Rig(summarizer=llm(keep_recent_count=5), trigger_at=20, keep_last=1)
    assert names(await rig.active(41)) == ["S", *(f"m{n}" for n in range(33, 42))]
    rig = Rig(summarizer=llm(keep_recent_count=15), trigger_at=20, keep_last=1)
    assert names(await rig.active(41)) == ["S", *(f"m{n}" for n in range(23, 42))]


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.matrix)])
@pytest.mark.parametrize(("batch", "most"), [(1, 41), (2, 52), (7, 57)])
async def test_c66_a_thousand_rounds_in_one_turn_are_bounded(batch, most, count):
    """Also where a result is always saved with the next call, so that an exchange is open."""
    rig = Rig(summarizer=llm(), trigger_at=20, keep_last=2)
    longest = 0
    async for view in views(rig, [user("find it", id="question"), *rounds(count)], batch):
        longest = max(longest, len(view))
        assert names(view).count("question") == 1
        assert orphans(view) == []
    assert names(view)[:2] == ["S", "question"]
    assert longest <= most


async def test_a_system_message_after_a_pinned_greeting_goes_into_the_summary():
    """It leads what the summarizer is given, and is none of the chat's leading ones."""
    told = []

    async def model(instruction, transcript, **_parameters):
        told.append(transcript)
        return "They looked for it."

    rig = Rig(summarizer=LLMSummarizer(model), trigger_at=5, keep_last=1)
    await rig.save(assistant("welcome", id="greeting", pinned=True), system("speak French"))
    await rig.active(21)
    view = await rig.view()
    assert names(view)[:2] == ["greeting", "S"]
    assert "system: speak French" in told[0]


async def test_extractive_tells_of_a_system_message_after_a_pinned_greeting():
    """As a model does."""
    rig = Rig(summarizer=ExtractiveSummarizer(keep_count=2), trigger_at=5, keep_last=1)
    rule = "Every invoice names the project number 4711 of Kyoto."
    await rig.save(assistant("welcome", id="greeting", pinned=True), system(rule))
    view = await rig.active(21)
    assert names(view)[:2] == ["greeting", "S"]
    assert "4711" in str(view[1].content)


# ------------------------------------------------------------------------- promise 6, warnings


class NotYet:
    def summarize(self, messages, context_tokens):
        return None


async def test_a_summary_that_is_due_and_does_not_come_is_warned_of_once_as_it_grows(caplog):
    """The warning names the chat, the reason and what to change; another comes when it doubled."""
    rig = Rig(summarizer=NotYet(), trigger_at=5, keep_last=1)
    await rig.active(11)
    (record,) = caplog.records
    assert "session 'session', agent 'agent'" in record.getMessage()
    assert "says not yet" in record.getMessage()
    assert "raise the trigger" in record.getMessage()
    await rig.talk(10)
    assert len(caplog.records) == 1
    await rig.talk(2)
    assert len(caplog.records) == 2
    assert "say 3" not in caplog.text


async def test_a_result_that_leaves_the_view_over_its_trigger_is_taken_and_warned_of(caplog):
    """An application's own: what it did not see stays, and the log says so."""
    rig = Rig(
        summarizer=lambda history, _keep: [summary("short"), *history[2:]],
        trigger_at=5,
        keep_last=1,
    )
    view = await rig.active(15)
    assert names(view) == ["S", *(f"m{n}" for n in range(3, 16))]
    assert [
        r.getMessage() for r in caplog.records if "leaves it over the trigger" in r.getMessage()
    ]


async def test_what_cannot_be_cut_asks_nobody(caplog):
    """A single exchange with many results is longer than the trigger: no model is asked."""
    rig = Rig(trigger_at=3, keep_last=1)
    many = [f"x{n}" for n in range(9)]
    await rig.save(call(*many, id="call"), *(result(name) for name in many))
    assert len(await rig.view()) == 10
    assert rig.calls == []
    assert "there is nothing to gain" in caplog.text


# ------------------------------------------------------------------------- C68


def halves(history, _keep_last):
    """A summary that has about half the tokens of its input, whatever that was."""
    text = " ".join(str(message.content) for message in history)
    return [user(text[: len(text) // 2])]


@pytest.mark.parametrize("trigger_at", [20, 100, 1_000])
async def test_c68_a_token_trigger_bounds_the_tokens_whatever_the_messages_do(trigger_at):
    """About twice the limit, with a summarizer that halves its input; few calls."""
    count = HeuristicTokenCounter().count
    rig = Rig(
        summarizer=halves, trigger_at=trigger_at, trigger_tokens=4_000, max_summary_tokens=10**6
    )
    longest = 0
    for number in range(1, 401):
        await rig.save(user(f"{number} {LONG}"))
        longest = max(longest, sum(map(count, await rig.view())))
    assert longest <= 2 * 4_000
    grown = 400 * count(user(LONG))
    assert 3 <= rig.kinds().count("Compacted") <= 1 + grown / (4_000 / 4)


# ------------------------------------------------------------------------- C69


def late():
    return [
        call("x", id="call"),
        result("x", id="interim"),
        user("and?", id="m1"),
        assistant("soon", id="m2"),
    ]


async def test_c69_a_late_result_whose_call_is_covered_is_held_back():
    """Without a provider, too; the next summarizer is handed it, and explain names it."""
    rig = Rig(summarizer=blind, trigger_at=3, keep_last=1)
    await rig.save(*late(), *dialogue(4, start=3))
    view = await rig.view()
    assert names(view) == ["S", "m5", "m6"]
    await rig.save(result("x", id="final"))
    view = await rig.view()
    assert names(view) == ["S", "m5", "m6"]
    assert orphans(view) == []
    explained = await rig.storage.explain(*IDS)
    assert [e.message.id for e in explained.messages if e.standing == "held_back"] == ["final"]
    await rig.save(*dialogue(4, start=7))
    view = await rig.view()
    assert violations(view, await rig.raw()) == []
    assert "final" in [name for message in view[:1] for name in message.metadata["witness"]]
    limited = await rig.view(2)
    assert orphans(limited) == []


async def test_c69_a_call_id_used_again_tears_nothing():
    """The first round is summarized; its late result does not join the second one's call."""
    rig = Rig(summarizer=blind, trigger_at=3, keep_last=1)
    await rig.save(*late(), *dialogue(4, start=3))
    await rig.view()
    again = [result("x", id="late"), call("x", id="call 2"), result("x", id="result 2")]
    for message in again:
        await rig.save(message)
        view = await rig.view()
        assert orphans(view) == []
    assert names(view)[-2:] == ["call 2", "result 2"]
    assert violations(view, await rig.raw()) == []


async def test_c69_what_is_held_back_stays_so_after_a_restart():
    """The next process shows the same view."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, summarizer=blind, trigger_at=3, keep_last=1, close_inner=False)
    await rig.save(*late(), *dialogue(4, start=3))
    await rig.view()
    await rig.save(result("x", id="final"), user("more", id="more"))
    assert await Rig(inner).view() == await rig.view()


# ------------------------------------------------------------------------- C111


async def test_c111_the_question_of_a_narrating_agent_stays():
    """Responses items: what is said before a call is an item of its own."""
    rig = Rig(summarizer=blind, trigger_at=3, keep_last=1)
    await rig.save(*dialogue(6), user("find it", id="question"))
    await rig.view()
    for number in range(12):
        await rig.save(assistant("Let me look.", id=f"says {number}"))
        assert "question" in names(await rig.view())
        await rig.save(*rounds(1, start=number))
        assert "question" in names(await rig.view())
    assert rig.kinds().count("Compacted") >= 3


# ------------------------------------------------------------------------- C115, C116, C119


class Results:
    """Answers with what it is given, once the history is long enough."""

    def __init__(self, answer, above=0):
        self.calls = []
        self.answer, self.above = answer, above

    def summarize(self, messages, context_tokens):
        self.calls.append(len(messages))
        return self.answer(messages) if len(messages) > self.above else None


def runs_of(count, size=2):
    return [
        (user if number % size == 0 else assistant)(
            f"say {number}", id=f"m{number + 1}", run_id=f"r{number // size + 1}"
        )
        for number in range(count * size)
    ]


async def test_c115_a_result_covers_what_ends_with_the_run_it_names():
    """Nothing leaves the view for a summary that did not see it."""
    rig = Rig(
        summarizer=Results(lambda _m: SummaryResult("S", last_summarized_run_id="r1")),
        trigger_at=20,
        keep_last=2,
    )
    await rig.save(*runs_of(21))
    assert names(await rig.view()) == ["S", *(f"m{n}" for n in range(3, 43))]
    record = rig.events[-1].record
    assert (record.covered.first, record.covered.last, record.covered.count) == (1, 2, 2)


@pytest.mark.parametrize(("kept", "shown"), [(4, 7), (40, 3)])
async def test_c115_the_longer_of_two_keeps_stays(kept, shown):
    """Of `messages_to_keep` and what follows the run that is named."""
    answer = Results(lambda m: SummaryResult("S", m[-kept:], last_summarized_run_id="r3"))
    rig = Rig(summarizer=answer, trigger_at=20, keep_last=2)
    await rig.save(*runs_of(21))
    assert names(await rig.view()) == ["S", *(f"m{n}" for n in range(shown, 43))]


async def test_c115_a_run_that_is_not_in_the_history_is_a_failure():
    """The view stays, and the error says what was wrong."""
    rig = Rig(
        summarizer=Results(lambda _m: SummaryResult("S", last_summarized_run_id="other")),
        trigger_at=20,
        keep_last=2,
    )
    await rig.save(*runs_of(21))
    assert len(await rig.view()) == 42
    assert rig.kinds() == ["Activated", "CompactionFailed"]
    assert isinstance(rig.events[-1].error, InvalidSummaryError)
    assert "'other', which is not a run" in str(rig.events[-1].error)


@pytest.mark.parametrize("named", [True, False])
async def test_c116_a_summarizer_that_only_discards_is_accepted(named):
    """What it leaves out is covered by a record without text."""

    def discard(messages):
        keep = messages[-4:]
        return SummaryResult(messages_to_keep=keep) if named else SummaryResult(None, keep)

    rig = Rig(summarizer=Results(discard), trigger_at=3, keep_last=1)
    view = await rig.active(9)
    assert names(view) == ["m6", "m7", "m8", "m9"]
    record = rig.events[-1].record
    assert (record.summary, record.covered.count) == ((), 5)
    assert rig.kinds() == ["Activated", "Compacted"]


# ------------------------------------------------------------------------- C108


async def test_c108_a_summary_of_more_tokens_is_not_installed():
    """Skipped with its reason, and asked again later as after a failure."""
    asked = []

    def wordy(history, keep_last):
        asked.append(len(history))
        return [summary(10 * LONG), *history[-2 * keep_last :]]

    rig = Rig(summarizer=wordy, trigger_at=3, keep_last=1)
    assert len(await rig.active(7)) == 7
    assert [e.reason for e in rig.events[1:]] == ["more_tokens"]
    await rig.talk(20)
    assert asked == [7, 9, 13, 21]
    assert len(await rig.view()) == 27


# ------------------------------------------------------------------------- C74


async def test_c74_another_library_s_messages_are_named_with_their_module():
    """Both classes are called ConversationMessage."""

    class ConversationMessage:
        role, content = "user", "a summary"

    rig = Rig(summarizer=lambda _history, _keep: [ConversationMessage()])
    await rig.active(7)
    error = str(rig.events[-1].error)
    assert f"{__name__}.test_c74" in error
    assert "agent_memory.messages.ConversationMessage" in error


# ------------------------------------------------------------------------- C117


@pytest.mark.parametrize(
    "options", [{}, {"background": True}, {"trigger_tokens": 200}, {"shared": True}]
)
async def test_c117_a_process_that_only_reads_is_bounded_too(options):
    """A fetch that finds the view over its trigger waits for nobody; the next ones are short."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, trigger_at=3, keep_last=1, **{"shared": True, **options})
    await rig.save(*dialogue(7))
    await rig.view()
    await asyncio.gather(*under_way(rig))
    assert len(await rig.view()) <= 7
    await inner.save_chat_messages(*IDS, dialogue(1_000, start=8))
    gate = rig.summarizer.hold()
    assert len(await rig.view()) > 1_000
    await gate.reached()
    assert len(await rig.view()) > 1_000
    gate.open()
    await asyncio.gather(*under_way(rig))
    view = await rig.view()
    assert len(view) <= 7
    assert violations(view, await rig.raw()) == []


def under_way(rig):
    return [task.wait() for task in rig.storage._buffers.tasks]


async def test_c117_another_worker_s_summary_is_taken_instead_of_asking_again():
    """One that only reads pays for none."""
    inner = InMemoryChatStorage()
    reading = Rig(inner, trigger_at=3, keep_last=1, shared=True)
    writing = Rig(inner, trigger_at=3, keep_last=1, shared=True)
    await writing.active(7)
    await reading.view()
    await writing.talk(40)
    assert await reading.view() == await writing.view()
    assert reading.calls == []
    assert witness_summary([]).role == "user"
