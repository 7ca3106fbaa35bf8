"""Pinned messages through every compaction, and the limit on what they may take."""

from agent_memory.events import Compacted
from rig import Rig, call, dialogue, result, system, user


class Tens:
    """Counts ten tokens for each message."""

    def count(self, message):
        return 10


def ids(messages):
    return [message.id for message in messages if message.position is not None]


async def test_a_pin_stays_in_the_head_through_every_compaction():
    """What the application pinned is never summarized."""
    rig = Rig()
    await rig.save(system(id="s"), user("my name is Ada", id="pin", pinned=True))
    for number in range(1, 30):
        await rig.save(*dialogue(1, start=number))
        assert ids(await rig.view())[:2] == ["s", "pin"]
    assert all("pin" not in ids(call.history) for call in rig.summarizer.calls)
    assert len(rig.summarizer.calls) > 3


async def test_a_pinned_result_keeps_its_whole_exchange():
    """Half an exchange would be refused by every provider."""
    rig = Rig()
    await rig.save(*dialogue(1), call("a", id="call"), result("a", id="result", pinned=True))
    await rig.save(*dialogue(8, start=2))
    await rig.view()
    assert ids(await rig.view())[:2] == ["call", "result"]


async def test_pins_are_not_counted_by_the_trigger():
    """Many pins alone are no reason to summarize."""
    rig = Rig()
    await rig.save(*(user(f"pin {n}", id=f"p{n}", pinned=True) for n in range(10)))
    await rig.save(*dialogue(6))
    assert len(await rig.view()) == 16
    assert rig.summarizer.calls == []


async def test_over_max_head_tokens_the_oldest_pins_become_ordinary_and_it_is_told():
    """The head is bounded; what leaves it is handed to the summarizer."""
    rig = Rig(token_counter=Tens(), max_head_tokens=25)
    await rig.save(system(id="s"))
    for number in range(4):
        await rig.save(user(f"pin {number}", id=f"p{number}", pinned=True))
        await rig.save(*dialogue(8, start=1 + 8 * number))
        await rig.view()
    view = await rig.view()
    assert ids(view)[:2] == ["s", "p3"]
    assert {"p0", "p1", "p2"} <= {i for call in rig.summarizer.calls for i in ids(call.history)}
    assert "p3" not in {i for call in rig.summarizer.calls for i in ids(call.history)}
    told = sum(event.unpinned for event in rig.events if isinstance(event, Compacted))
    assert told == 3


async def test_c58_a_pinned_head_a_summary_and_a_restart():
    """Nothing doubled, nothing missing."""
    rig = Rig()
    await rig.save(system(id="s"), *dialogue(2), user("pin", id="pin", pinned=True))
    await rig.save(*dialogue(8, start=3))
    before = await rig.view()
    again = Rig(rig.inner)
    assert await again.view() == before
    assert again.summarizer.calls == []
    assert ids(before)[:2] == ["s", "pin"]
    assert len(ids(before)) == len(set(ids(before)))
