"""How much of the event loop's time a summary takes, counted in calls and never in seconds."""

from __future__ import annotations

import asyncio
import sys

import pytest

from agent_memory import LLMSummarizer
from agent_memory.messages import ConversationMessage
from agent_memory.models.chat_model import ContextOverflowError

_MESSAGES = 6_000
_MOST = 1_500
"""Calls of Python functions in one step of the loop: far fewer than there are messages."""


class Steps:
    """Counts the calls that this thread makes between two callbacks of the event loop."""

    def __init__(self):
        self.longest = self.calls = 0

    def __call__(self, frame, event, argument):
        if event != "call":
            return
        if frame.f_code is asyncio.Handle._run.__code__:
            self.calls = 0
        self.calls += 1
        self.longest = max(self.longest, self.calls)

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *exc):
        sys.setprofile(None)


def _long_chat():
    return [
        ConversationMessage(("user", "assistant")[at % 2], f"message {at}", run_id=f"r{at // 2}")
        for at in range(_MESSAGES)
    ]


def _nothing():
    pass


def test_c104_what_is_counted_is_the_work_of_a_step():
    """The measure itself: work in one step counts together, work in several does not."""

    async def work():
        for _ in range(10):
            await asyncio.sleep(0)
            for _ in range(100):
                _nothing()

    with Steps() as steps:
        asyncio.run(work())
    assert 100 < steps.longest < 500


@pytest.mark.parametrize("how", ["object", "function", "too long for the window"])
def test_c104_a_long_history_does_not_block_the_loop(how):
    """Dividing, telling and counting 6,000 messages is not done in the loop."""
    failures = iter([ContextOverflowError("too long")] if "window" in how else [])

    async def ask(instruction, transcript, **parameters):
        for failure in failures:
            raise failure
        return "The summary."

    summarizer = LLMSummarizer(ask, max_input_tokens=100_000)
    history = _long_chat()

    async def summarize():
        if how == "function":
            return (await summarizer(history, 2))[0]
        return (await summarizer.summarize(history, 1)).summary[0]

    with Steps() as steps:
        made = asyncio.run(summarize())
    assert "The summary." in made.content
    assert 0 < steps.longest < _MOST
