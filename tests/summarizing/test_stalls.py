"""C104: however long a chat is, no step of the event loop does much of the work."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

import matrix
from agent_memory import InMemoryChatStorage, LLMSummarizer
from rig import IDS, Rig, blind, call, result, user

MESSAGES = 4_000
MOST = 6_000  # calls within a step of the loop: one plain pass takes 5 ms of 100,000 messages


class Steps:
    """Counts the calls of functions in the loop's thread, from one of its rounds to the next."""

    def __init__(self):
        self.most = self._now = 0
        self._watching = None

    def _count(self, _frame, event, _argument):
        if event == "call":
            self._now += 1

    async def _watch(self):
        while True:
            await asyncio.sleep(0)
            self.most, self._now = max(self.most, self._now), 0

    async def __aenter__(self):
        assert threading.current_thread() is threading.main_thread()
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        sys.setprofile(self._count)
        return self

    async def __aexit__(self, *_error):
        await asyncio.sleep(0)
        sys.setprofile(None)
        self._watching.cancel()


def long_chat():
    yield user("find it", id="question")
    for number in range(MESSAGES // 2):
        yield call(f"t{number}", id=f"call {number}")
        yield result(f"t{number}", id=f"result {number}")


async def model(instruction, transcript, **_parameters):
    return "They looked for it."


class NotYet:
    def summarize(self, messages, context_tokens):
        return None


SETTINGS = {
    "messages": ({"summarizer": blind}, None),
    "tokens": ({"summarizer": blind, "trigger_tokens": 4_000}, None),
    "model": ({"summarizer": LLMSummarizer(model)}, None),
    "provider": ({"summarizer": NotYet(), "provider": "anthropic"}, None),
    "limit": ({"summarizer": NotYet()}, 50),
}


@pytest.mark.parametrize("setting", matrix.params(sorted(SETTINGS), always=["messages"]))
async def test_c104_a_first_fetch_of_a_long_chat_leaves_the_loop_room(setting):
    """It reads, counts, groups, cuts and repairs in worker threads."""
    options, limit = SETTINGS[setting]
    inner = InMemoryChatStorage()
    await inner.save_chat_messages(*IDS, list(long_chat()))
    rig = Rig(inner, trigger_at=20, keep_last=2, **options)
    async with Steps() as steps:
        await rig.view(limit)
        await rig.view(limit)
    assert steps.most <= MOST


async def test_c104_to_explain_a_long_chat_leaves_the_loop_room():
    """Whatever the records are."""
    inner = InMemoryChatStorage()
    await inner.save_chat_messages(*IDS, list(long_chat()))
    rig = Rig(inner, summarizer=blind, trigger_at=20, keep_last=2)
    await rig.view()
    async with Steps() as steps:
        explanation = await rig.storage.explain(*IDS)
    assert explanation.count("covered") == MESSAGES - 4
    assert steps.most <= MOST


async def test_c104_what_others_saved_meanwhile_leaves_the_loop_room():
    """A buffer that is far behind is made again, in a thread."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, summarizer=blind, trigger_at=20, keep_last=2, shared=True)
    await rig.active(50)
    await inner.save_chat_messages(*IDS, [*long_chat(), *(user(f"{n}") for n in range(3_000))])
    async with Steps() as steps:
        await rig.view()
    await rig.storage.aclose()
    assert steps.most <= MOST
