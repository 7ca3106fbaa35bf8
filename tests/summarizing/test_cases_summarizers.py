"""Cases from the field: the summarizer, or the store inside, misbehaves."""

from __future__ import annotations

import attrs
import pytest

from agent_memory import ConversationMessage, InMemoryChatStorage, StorageUnavailableError
from agent_memory.testing import FlakyChatStorage, ScriptedSummarizer, witness_summary
from rig import (
    Rig,
    assistant,
    call,
    dialogue,
    keep_from_the_middle,
    keep_none,
    names,
    rebuild_kept,
    summary,
    texts,
    user,
    violations,
)


async def conserved(rig):
    view = await rig.view()
    assert violations(view, await rig.raw()) == []
    return view


# ------------------------------------------------------------------------- C35


async def test_c35_a_summarizer_that_raises_on_save_costs_nothing():
    """The save succeeds, raw has the message, and the view is as it was, and longer."""
    rig = Rig(summarizer=ScriptedSummarizer([None, RuntimeError("down")]))
    await rig.active(7)
    stored = await rig.talk(4)
    assert rig.kinds()[-1] == "CompactionFailed"
    assert stored[-1] in await rig.raw()
    assert names(await conserved(rig)) == ["S", "m6", "m7", "m8", "m9", "m10", "m11"]


async def test_c35_a_summarizer_that_raises_on_the_first_fetch_leaves_the_raw_history():
    """The fetch gives what there is, and the next attempt comes later, not at once."""
    rig = Rig(summarizer=ScriptedSummarizer([RuntimeError("down")]))
    assert await rig.active(7) == await rig.raw()
    await rig.view()
    await rig.talk(1)
    assert len(rig.calls) == 1
    await rig.talk(1)
    assert len(rig.calls) == 2
    assert names(await conserved(rig)) == ["S", "m8", "m9"]


async def test_c35_after_failures_the_wait_doubles():
    """A model that is down is not asked at every save."""
    rig = Rig(summarizer=ScriptedSummarizer([RuntimeError("down")] * 50))
    await rig.active(7)
    await rig.talk(100)
    waits = [event.retry_after for event in rig.events if hasattr(event, "error")]
    assert waits[:5] == [2, 4, 8, 16, 32]
    assert len(rig.calls) <= 7
    assert await conserved(rig) == await rig.raw()


# ------------------------------------------------------------------------- C36

BAD = {
    "an empty text": "",
    "blanks": [ConversationMessage("user", "  \n")],
    "nothing": None,
    "an empty list": [],
    "a text": "a summary",
    "dicts": [{"role": "user", "content": "a summary"}],
    "a tool call": [call("new")],
}


@pytest.mark.parametrize("answer", BAD.values(), ids=list(BAD))
async def test_c36_a_bad_answer_is_a_failure_that_changes_nothing(answer):
    """The view stays raw, an event tells why, and the next attempt finds everything."""
    rig = Rig(summarizer=ScriptedSummarizer([lambda history, keep_last: answer]))
    assert await rig.active(7) == await rig.raw()
    assert rig.kinds() == ["Activated", "CompactionFailed"]
    await rig.talk(2)
    assert names(await conserved(rig)) == ["S", "m8", "m9"]


@pytest.mark.parametrize("more", [[], [summary()]], ids=["what it got", "more than it got"])
async def test_c36_an_answer_that_is_not_shorter_is_skipped(more):
    """There is nothing to gain, which is no failure; the next attempt is a limit away."""
    rig = Rig(summarizer=ScriptedSummarizer([lambda history, keep_last: [*more, *history]] * 9))
    assert await rig.active(7) == await rig.raw()
    (skipped,) = rig.events[1:]
    assert (skipped.reason, skipped.retry_after) == ("nothing_to_gain", 6)
    await rig.talk(5)
    assert len(rig.calls) == 1
    await rig.talk(1)
    assert len(rig.calls) == 2
    await conserved(rig)


async def test_c36_only_a_raw_call_brings_its_exchange():
    """What it names of the chat is kept whole; the rest is left out."""
    rig = Rig(
        summarizer=ScriptedSummarizer([lambda h, k: [summary(), h[2]]]), trigger_at=3, keep_last=1
    )
    await rig.save(*dialogue(2))
    await rig.save(call("a", id="call"), user([{"toolResult": {"toolUseId": "a", "content": []}}]))
    await rig.save(*dialogue(4, start=3))
    view = await rig.view()
    assert texts(view)[0] == "what was said"
    assert [message.position for message in view] == [None, 3, 4, 8]


# ------------------------------------------------------------------------- C41


async def test_c41_kept_pairs_that_exceed_the_trigger_do_not_make_a_call_of_every_save():
    """A summarizer that keeps nearly all is asked once a limit."""
    rig = Rig(summarizer=ScriptedSummarizer([lambda h, k: [summary(), *h[-6:]]] * 200))
    await rig.active(7)
    await rig.talk(120)
    assert len(rig.calls) <= 1 + 120 / 6


async def test_c41_one_giant_message_does_not_make_a_call_of_every_save():
    """It alone exceeds the limit of tokens; nothing can be done about that by asking again."""
    rig = Rig(trigger_at=20, keep_last=1, trigger_tokens=1_000)
    await rig.save(*dialogue(6), user("word " * 5_000, id="giant"))
    await rig.view()
    await rig.talk(100)
    assert len(rig.calls) <= 1 + 100 / 40 + 2
    await conserved(rig)


async def test_c41_a_summary_just_under_the_trigger_does_not_make_a_call_of_every_save():
    """Without headroom the next attempt waits for a limit of new messages."""

    def long(history, keep_last):
        return [witness_summary(history[:-2]), user("word " * 900), *history[-2:]]

    rig = Rig(summarizer=ScriptedSummarizer([long] * 200), trigger_at=20, trigger_tokens=1_200)
    await rig.save(*dialogue(6), user("word " * 2_000), assistant())
    await rig.view()
    await rig.talk(200)
    assert len(rig.calls) <= 1 + 200 / 40 + 2


# ------------------------------------------------------------------------- C42


async def test_c42_a_summarizer_that_edits_its_list_harms_nothing():
    """The list is its own: raw and view know nothing of it."""

    def edits(history, keep_last):
        answer = [witness_summary(history[:-2]), *history[-2:]]
        history.reverse()
        history.clear()
        return answer

    rig = Rig(summarizer=ScriptedSummarizer([edits, edits]))
    assert names(await rig.active(7)) == ["S", "m6", "m7"]
    assert len(await rig.raw()) == 7
    await conserved(rig)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (keep_none, ["S", "m7"]),
        (rebuild_kept, ["S", "m6", "m7"]),
        (keep_from_the_middle, ["S", "m3", "m6", "m7"]),
        (lambda history, keep_last: history[-2:], ["m6", "m7"]),
    ],
    ids=["all summarized", "rebuilt", "from the middle", "no summary"],
)
async def test_c42_answers_of_every_kind_mean_what_promise_6_says(step, expected):
    """And the messages that are shown are the raw ones."""
    rig = Rig(summarizer=ScriptedSummarizer([step]))
    view = await rig.active(7)
    assert names(view) == expected
    by_id = {message.id: message for message in await rig.raw()}
    assert all(message == by_id[message.id] for message in view if message.position)


async def test_c42_reordered_messages_are_a_failure():
    """Nobody can say what a history turned round should mean."""
    rig = Rig(summarizer=ScriptedSummarizer([lambda h, k: [summary(), *h[:1:-1]]]))
    assert await rig.active(7) == await rig.raw()
    assert rig.kinds()[-1] == "CompactionFailed"


async def test_c42_summaries_under_one_id_replace_each_other():
    """Round after round the newest text is shown, and what it stands for."""

    def same_id(history, keep_last):
        made = witness_summary(history[:-2])
        return [attrs.evolve(made, id="summary"), *history[-2:]]

    rig = Rig(summarizer=ScriptedSummarizer([same_id] * 9))
    await rig.active(7)
    await rig.talk(20)
    assert len(rig.calls) > 2
    await conserved(rig)


# ------------------------------------------------------------------------- C43


async def test_c43_a_summary_that_only_grows_is_bounded():
    """Old summary and new text, a hundred rounds: cut at its limit, and reported."""

    def grow(history, keep_last):
        text = "\n".join(str(message.content) for message in history[:-2])
        return [user(text), *history[-2:]]

    rig = Rig(summarizer=ScriptedSummarizer([grow] * 500), max_summary_tokens=300)
    await rig.active(7)
    for number in range(100):
        await rig.save(*(user(f"{number} {part} " + "word " * 20) for part in range(6)))
    view = await rig.view()
    assert len(rig.calls) >= 100
    assert len(view) <= 7
    assert len(view[0].content) < 300 * 8
    assert any(event.clipped for event in rig.events if hasattr(event, "clipped"))


async def test_c43_summaries_that_pile_up_are_bounded_in_tokens():
    """The old summary message is kept, and another added, a hundred times."""

    def pile(history, keep_last):
        old = [message for message in history if message.position is None]
        return [*old, user("summary " + "word " * 50), *history[-2:]]

    rig = Rig(summarizer=ScriptedSummarizer([pile] * 900), max_summary_tokens=300)
    await rig.active(7)
    for number in range(100):
        await rig.save(*dialogue(6, start=8 + 6 * number))
    made = [message for message in await rig.view() if message.position is None]
    assert sum(len(message.content) for message in made) < 300 * 8


# ------------------------------------------------------------------------- C44


async def test_c44_an_inner_save_that_fails_three_times_then_works_is_there_once():
    """Buffer and raw agree, and hold the message once."""
    rig = Rig(FlakyChatStorage(InMemoryChatStorage()))
    await rig.active(7)
    rig.inner.fail("before", "before", "before")
    message = user("again and again", id="x")
    for _ in range(3):
        with pytest.raises(StorageUnavailableError):
            await rig.save(message)
        assert names(await conserved(rig)) == ["S", "m6", "m7"]
    await rig.save(message)
    assert names(await conserved(rig)) == ["S", "m6", "m7", "x"]
    assert names(await rig.raw()).count("x") == 1


async def test_c16_a_batch_repeated_after_a_lost_answer_is_shown_once():
    """Part of it new, part of it known: the view has each message once, in the log's order."""
    rig = Rig(FlakyChatStorage(InMemoryChatStorage()))
    await rig.active(7)
    batch = dialogue(2, start=8)
    rig.inner.fail("after")
    with pytest.raises(StorageUnavailableError):
        await rig.save(*batch)
    await rig.save(*batch, *dialogue(1, start=10))
    assert names(await conserved(rig)) == ["S", "m6", "m7", "m8", "m9", "m10"]
