"""Cases from the field: tool exchanges, seen through a summarizing storage."""

from __future__ import annotations

import pytest

from agent_memory.testing import ScriptedSummarizer, blind_cut
from histories import SHAPES, Piece, Said, render
from rig import Rig, assistant, call, dialogue, names, result, summary, torn, user, violations


async def right(rig):
    view, raw = await rig.view(), await rig.raw()
    assert violations(view, raw) == []
    assert torn(view, raw) == []
    return names(view)


def blind():
    return ScriptedSummarizer(cut=blind_cut)


def turn(name):
    return [call(name, id=f"call {name}"), result(name, id=f"result {name}")]


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("together", [True, False])
async def test_c27_a_keep_that_begins_with_a_result_moves_to_its_call(parallel, together):
    """Parallel calls, their results in one message or in several, backwards."""
    rig = Rig(summarizer=blind())
    tools = [f"t{n}" for n in range(parallel)]
    await rig.save(*dialogue(6), call(*tools, id="call"))
    groups = [tools] if together else [[tool] for tool in reversed(tools)]
    results = [result(*group, id=f"result {n}") for n, group in enumerate(groups)]
    await rig.save(*results, assistant(id="end"))
    view = await right(rig)
    assert view[-len(results) - 2 :] == ["call", *(message.id for message in results), "end"]


async def test_c28_a_question_and_twenty_exchanges_are_compressed_between_them():
    """No other text of the user's: old exchanges go into the summary all the same."""
    rig = Rig(summarizer=blind())
    await rig.save(user("the only question", id="question"))
    for number in range(20):
        await rig.save(*turn(str(number)))
        await rig.view()
    view = await right(rig)
    assert len(view) <= 8
    assert view[:2] == ["S", "question"]


async def test_c29_the_save_of_a_call_never_compacts():
    """Its results are to come: the summary waits for the exchange to end."""
    rig = Rig(summarizer=blind())
    await rig.active(7)
    await rig.talk(3)
    await rig.save(call("a", "b", id="call"))
    await rig.save(result("a", id="result a"))
    assert len(rig.calls) == 1
    await rig.save(result("b", id="result b"))
    assert len(rig.calls) == 2
    assert (await right(rig))[-3:] == ["call", "result a", "result b"]


async def test_c29_a_first_fetch_within_an_exchange_is_raw():
    """So it is when the chat is found long in the middle of one."""
    rig = Rig(summarizer=blind())
    await rig.save(*dialogue(8), call("a"))
    assert await rig.view() == await rig.raw()
    assert rig.calls == []
    await rig.save(result("a"))
    assert names(await rig.view())[0] == "S"


async def test_c29_another_message_ends_an_exchange_that_nobody_will_end():
    """The call is dead then, and compaction goes on."""
    rig = Rig(summarizer=blind())
    await rig.active(7)
    await rig.talk(3)
    await rig.save(call("a"))
    await rig.save(user("never mind"))
    assert len(rig.calls) == 2
    await right(rig)


async def test_c30_the_only_question_is_kept_before_a_huge_result():
    """However large what follows is, the question is there while it is unanswered."""
    rig = Rig(summarizer=blind(), trigger_at=10, trigger_tokens=2_000)
    await rig.save(*dialogue(4), user("the only question", id="question"))
    await rig.view()
    for number in range(4):
        huge = {"toolResult": {"toolUseId": f"{number}", "content": [{"text": "x y " * 3_000}]}}
        await rig.save(call(f"{number}"), user([huge], id=f"huge {number}"))
        await rig.view()
    view = await right(rig)
    assert rig.calls
    assert "question" in view
    assert "huge 0" not in view


async def test_c30_a_question_that_has_been_answered_goes():
    """It is kept as long as the work is about it, and no longer."""
    rig = Rig(summarizer=blind())
    await rig.save(user("the only question", id="question"))
    for number in range(5):
        await rig.save(*turn(str(number)))
    assert "question" in await right(rig)
    await rig.save(assistant("the answer"), *dialogue(8))
    assert "question" not in await right(rig)


async def test_c31_a_call_that_never_got_its_result_is_shown_as_it_is():
    """The process died after the call: raw stays, the view tears nothing apart."""
    rig = Rig(summarizer=blind())
    await rig.save(*dialogue(5), call("lost", id="call"), user("again", id="again"), *turn("new"))
    view = await right(rig)
    assert view[-2:] == ["call new", "result new"]
    assert "call" in names(await rig.raw())


async def test_c31_a_result_whose_call_was_never_saved_is_shown_as_it_is():
    """As valid as raw, and no more than that is promised without a provider."""
    rig = Rig(summarizer=blind())
    await rig.save(*dialogue(6), result("z", id="stray"), assistant(id="end"))
    assert (await right(rig))[-1] == "end"


def said(role, *pieces):
    return Said(role, pieces)


WORK = [
    said("user", Piece("text", "find it")),
    *(
        part
        for n in range(9)
        for part in (
            said("assistant", Piece("reasoning", "hm"), Piece("call", "lookup", f"call_{n}")),
            said("tool", Piece("result", "found 3", f"call_{n}")),
        )
    ),
    said("assistant", Piece("text", "found")),
]


@pytest.mark.parametrize("shape", SHAPES)
async def test_c34_the_same_rules_hold_in_every_provider_s_form(shape):
    """Reasoning, call and result go together into the summary or stay together."""
    rig = Rig(summarizer=blind(), trigger_at=4)
    for message in render(WORK, shape):
        await rig.save(message)
        await rig.view()
        await right(rig)
    assert len(rig.calls) >= 2


async def test_c33_reasoning_that_leads_to_a_call_is_not_cut_off():
    """In a form that writes it as an item of its own."""
    rig = Rig(summarizer=ScriptedSummarizer([lambda h, k: [summary(), h[-1]]] * 9))
    await rig.save(*render(WORK[:5], "openai_responses"))
    view = await rig.view()
    kinds = [message.extra.get("type") for message in view]
    assert kinds[-3:] == ["reasoning", "function_call", "function_call_output"]
