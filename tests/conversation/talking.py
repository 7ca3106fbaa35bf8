"""Words to speak of conversations in: turns of an agent, and what a thread looks like."""

from __future__ import annotations

import inspect

from agent_memory import SummaryResult
from rig import IDS, assistant, user

LONG = "one two three four five six seven eight nine ten " * 10
"""A text of a bit more than 100 tokens, so that a few of them exceed any threshold here."""


async def turn(manager, text="hello", *, ids=IDS, measured=None, **options):
    """A whole run: the user asks, the model sees, and answers; the run and what was seen."""
    async with await manager.start_run(*ids, **options) as run:
        run.add(user(f"ask {text}"))
        seen = await run.messages()
        if measured is not None:
            run.record_usage(measured)
        run.add(assistant(f"answer {text}"), measured=measured is not None)
    return run, seen


async def turns(manager, count, text=LONG, **options):
    """So many runs r1, r2, and so on; what the last of them saw."""
    seen = []
    for number in range(1, count + 1):
        _, seen = await turn(manager, f"{number} {text}", run_id=f"r{number}", **options)
    return seen


def heads(messages):
    """The first two words of each message; ``SUMMARY`` for what a summarizer made."""
    return [
        "SUMMARY" if message.position is None else " ".join(str(message.content).split()[:2])
        for message in messages
    ]


class Summarizer:
    """Decides by itself, does as it is told, and remembers what it was given.

    Args:
        answer: called with the messages and the tokens; makes the result. By default everything
            but the newest run is summarized, once there are more than `above` messages.
    """

    def __init__(self, answer=None, *, above=4, text="what was said", **fields):
        self.calls = []
        self._answer = answer or self._all_but_newest
        self._above, self._text, self._fields = above, text, fields

    async def summarize(self, messages, context_tokens):
        self.calls.append((messages, context_tokens))
        made = self._answer(messages, context_tokens)
        return await made if inspect.isawaitable(made) else made

    def _all_but_newest(self, messages, _context_tokens):
        if len(messages) <= self._above:
            return None
        newest = messages[-1].run_id
        last = [message.run_id for message in messages if message.run_id != newest][-1]
        return SummaryResult(self._text, last_summarized_run_id=last, **self._fields)
