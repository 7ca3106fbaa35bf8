"""The bound that `trigger_tokens` gives, with a summarizer that halves its input."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from agent_memory import ConversationMessage
from agent_memory.tokens import HeuristicTokenCounter
from rig import Rig

count = HeuristicTokenCounter().count


def halved(history, _keep_last):
    """A summary of half the tokens of what it stands for, and the newest two messages."""
    old, recent = history[:-2], history[-2:]
    half = max(12, sum(map(count, old)) // 2)
    text = "x " * half
    while count(ConversationMessage("user", text)) > half:
        text = text[: len(text) * 9 // 10]
    return [ConversationMessage("user", text), *recent]


@given(
    lengths=st.lists(st.integers(1, 900), min_size=20, max_size=120),
    trigger_at=st.sampled_from([20, 100, 300]),
    limit=st.sampled_from([500, 1_000, 3_000]),
)
def test_c68_the_view_has_at_most_twice_the_tokens_and_what_is_newest(lengths, trigger_at, limit):
    """Whatever the lengths of messages and the trigger by messages; what is kept comes on top."""

    async def run():
        rig = Rig(summarizer=halved, trigger_at=trigger_at, keep_last=1, trigger_tokens=limit)
        for number, length in enumerate(lengths):
            role = "assistant" if number % 2 else "user"
            await rig.save(ConversationMessage(role, "word " * (length // 5 + 1)))
            view = await rig.view()
            newest = sum(map(count, view[-3:]))
            assert sum(map(count, view)) <= 2 * limit + newest

    asyncio.run(run())
