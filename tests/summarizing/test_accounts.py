"""What the wrapper tells of itself: explain, history, forced and forgotten summaries, hooks."""

import attrs
import pytest

from agent_memory import SummarizerError, Usage
from agent_memory.events import CompactionSkipped
from agent_memory.summarizers.base import SummaryResult
from agent_memory.testing import ScriptedSummarizer
from rig import IDS, Rig, assistant, dialogue, system, user


class Billed:
    """A summarizer that decides itself, keeps two messages, and tells what it cost."""

    async def summarize(self, messages, context_tokens):
        return SummaryResult("what was said", messages[-2:], usage=Usage(100, 20))


async def test_explain_says_of_each_message_how_it_stands():
    """Anyone can ask why the model saw what it saw."""
    rig = Rig()
    await rig.save(system(), *dialogue(4), user("keep this", id="pin", pinned=True), assistant())
    await rig.save(*dialogue(2, start=7))
    await rig.view()
    explanation = await rig.storage.explain(*IDS)
    standing = [explained.standing for explained in explanation.messages]
    assert standing == ["pinned", *["covered"] * 4, "pinned", "covered", "verbatim", "verbatim"]
    assert explanation.view == tuple(await rig.view())
    assert explanation.count("covered") == 5
    (record,) = explanation.summaries
    by = {e.summary_id for e in explanation.messages if e.standing == "covered"}
    assert by == {record.id}


async def test_explain_names_the_summary_that_a_message_was_first_handed_to():
    """A later summary takes over an earlier one; each message knows its own."""
    rig = Rig()
    await rig.save(*dialogue(7))
    await rig.view()
    await rig.save(*dialogue(4, start=8))
    first, second = await rig.storage.compaction_history(*IDS)
    by = {
        explained.message.id: explained.summary_id
        for explained in (await rig.storage.explain(*IDS)).messages
    }
    assert by["m1"] == first.id
    assert by["m7"] == second.id
    assert by["m11"] is None


async def test_explain_of_a_short_chat_is_all_verbatim():
    """A chat below the trigger is shown as it is."""
    rig = Rig()
    await rig.save(*dialogue(2))
    explanation = await rig.storage.explain(*IDS)
    assert (explanation.count("verbatim"), explanation.summaries) == (2, ())


async def test_the_history_tells_what_each_summary_saved_and_cost():
    """Records are the account of what was spent to save what."""
    rig = Rig(summarizer=Billed())
    await rig.save(*(attrs.evolve(m, content=f"{m.content} again" * 20) for m in dialogue(7)))
    await rig.view()
    (record,) = await rig.storage.compaction_history(*IDS)
    assert (record.messages_before, record.messages_after) == (7, 3)
    assert (record.covered.first, record.covered.last, record.covered.count) == (1, 5, 5)
    assert record.usage == Usage(100, 20)
    assert (record.reason, record.summarizer) == ("trigger_at", "Billed")
    assert record.tokens_before > record.tokens_after > 0


async def test_compact_now_summarizes_below_the_trigger():
    """Before a costly step an application may want a short view at once."""
    rig = Rig()
    await rig.save(*dialogue(5))
    record = await rig.storage.compact_now(*IDS)
    assert record is not None
    assert record.reason == "manual"
    assert record.messages_after == len(await rig.view()) == 3


async def test_compact_now_says_none_when_there_is_nothing_to_gain():
    """Two messages are no history."""
    rig = Rig()
    await rig.save(*dialogue(2))
    assert await rig.storage.compact_now(*IDS) is None
    assert [message.id for message in await rig.view()] == ["m1", "m2"]


async def test_compact_now_raises_what_the_summarizer_raised():
    """Who asks for a summary wants to know."""
    rig = Rig(summarizer=ScriptedSummarizer([RuntimeError("down")]))
    await rig.save(*dialogue(5))
    with pytest.raises(SummarizerError, match=r"stored, but not summarized.*down"):
        await rig.storage.compact_now(*IDS)
    assert len(await rig.view()) == 5


async def test_rebuild_forgets_the_records_and_starts_from_raw():
    """A bad summary is not for ever."""
    rig = Rig()
    await rig.save(*dialogue(7))
    await rig.view()
    assert await rig.storage.rebuild(*IDS) == 1
    assert await rig.storage.compaction_history(*IDS) == []
    await rig.view()
    assert [len(call.history) for call in rig.summarizer.calls] == [7, 7]


async def test_a_veto_keeps_the_view_as_it_is():
    """An application may know better: not in the middle of a negotiation."""
    asked = []

    def veto(request):
        asked.append((request.reason, len(request.history)))
        return False

    rig = Rig(before_compaction=veto)
    await rig.save(*dialogue(7))
    assert len(await rig.view()) == 7
    assert asked == [("trigger_at", 7)]
    (skipped,) = [event for event in rig.events if isinstance(event, CompactionSkipped)]
    assert skipped.reason == "vetoed"
    assert rig.summarizer.calls == []


async def test_async_hooks_are_awaited():
    """Both kinds of function serve."""
    told = []

    async def allow(request):
        told.append("asked")

    async def on_event(event):
        told.append(type(event).__name__)

    rig = Rig(before_compaction=allow, on_event=on_event)
    await rig.save(*dialogue(7))
    await rig.view()
    assert told == ["Activated", "asked", "Compacted"]


async def test_a_hook_that_raises_is_logged_and_changes_nothing(caplog):
    """Who watches a chat cannot break it."""

    def broken(_given):
        raise ValueError("broken hook")

    rig = Rig(before_compaction=broken, on_event=broken)
    await rig.save(*dialogue(7))
    assert len(await rig.view()) == 3
    assert "before_compaction failed" in caplog.text
    assert "on_event failed" in caplog.text
