"""Whether views of random histories are valid for the provider, beside agent-squad's wrapper.

Every history, as it is saved, is one that the provider takes; so whatever is wrong with a view
is the wrapper's doing. Both wrappers have the summarizer that agent-squad's documentation shows:
it summarizes all but the newest ``2 * keep_last`` messages, counted blindly.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from agent_memory import ConversationMessage, InMemoryChatStorage, SummarizingChatStorage
from agent_memory.providers import validate
from benchmarks.servers_here import from_tests

IDS = ("user", "session", "agent")
TRIGGER, KEEP = 3, 1
PAIRING = {"unanswered_call", "orphaned_result"}

View = Callable[[], Any]


@attrs.define
class Count:
    """What was wrong with the views of one wrapper.

    Args:
        views: how many were looked at.
        torn: views with a call without its result, or a result without its call.
        refused: views that the provider refuses for any reason, those included.
        rules: how often each rule was broken.
    """

    views: int = 0
    torn: int = 0
    refused: int = 0
    rules: dict[str, int] = attrs.field(factory=dict[str, int])

    def add(self, view: Sequence[ConversationMessage]) -> None:
        broken = {violation.rule for violation in validate(view, "bedrock")}
        self.views += 1
        self.refused += bool(broken)
        self.torn += bool(broken & PAIRING)
        for rule in broken:
            self.rules[rule] = self.rules.get(rule, 0) + 1


def summarize(history: Sequence[Any], keep_last: int, make: Callable[[str], Any]) -> list[Any]:
    """Cut blindly, as agent-squad's documentation does."""
    old, recent = history[: -keep_last * 2], history[-keep_last * 2 :]
    return [make(f"[Summary]: {len(old)} messages"), *recent]


async def ours(histories: Sequence[Sequence[ConversationMessage]], provider: Any) -> Count:
    """Save each history message by message; look at each view where raw is valid."""

    def shorten(history: list[ConversationMessage], keep_last: int) -> list[ConversationMessage]:
        made = summarize(
            history, keep_last, lambda text: ConversationMessage("user", [{"text": text}])
        )
        return list(made)

    count = Count()
    for history in histories:
        storage = SummarizingChatStorage(
            InMemoryChatStorage(), shorten, TRIGGER, KEEP, provider=provider
        )
        for number, message in enumerate(history, start=1):
            await storage.save_chat_message(*IDS, message)
            view = await storage.fetch_chat(*IDS)
            if not validate(history[:number], "bedrock"):
                count.add(view)
        await storage.aclose()
    return count


async def theirs(histories: Sequence[Sequence[ConversationMessage]]) -> Count:
    """Do the same with agent-squad's wrapper around its own store."""
    squad: Any = importlib.import_module("agent_squad.storage")
    made: Any = importlib.import_module("agent_squad.types").ConversationMessage

    async def shorten(history: list[Any], keep_last: int) -> list[Any]:
        return summarize(
            history, keep_last, lambda text: made(role="user", content=[{"text": text}])
        )

    count = Count()
    for history in histories:
        storage = squad.SummarizingChatStorage(squad.InMemoryChatStorage(), shorten, TRIGGER, KEEP)
        for number, message in enumerate(history, start=1):
            told = made(role=message.role, content=message.to_dict()["content"])
            await storage.save_chat_message(*IDS, told)
            view = await storage.fetch_chat(*IDS)
            if not validate(history[:number], "bedrock"):
                count.add([ConversationMessage(m.role, m.content) for m in view])
    return count


def draw(number: int) -> list[list[ConversationMessage]]:
    """Return so many random histories, the same ones each time."""
    hypothesis: Any = importlib.import_module("hypothesis")
    histories: Any = from_tests("histories").histories
    drawn: list[list[ConversationMessage]] = []

    def take(history: list[ConversationMessage]) -> None:
        drawn.append(history)

    given = hypothesis.given(histories("bedrock", wild=False, max_turns=24))
    settings = hypothesis.settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        derandomize=True,
    )
    settings(given(take))()
    return drawn


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks validity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--histories", type=int, default=10_000, metavar="N")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("hypothesis") is None or from_tests("histories") is None:
        print("it needs hypothesis and the tests' generators; install the extra `test`")
        return 1
    logging.disable(logging.WARNING)  # a blind summarizer is warned of, history by history
    try:
        start = time.perf_counter()
        histories = draw(options.histories)
        columns = _counted(histories)
    finally:
        logging.disable(logging.NOTSET)
    _print(columns, len(histories), time.perf_counter() - start)
    return 0


def _counted(histories: list[list[ConversationMessage]]) -> dict[str, Count]:
    columns = {
        "agent_memory": asyncio.run(ours(histories, None)),
        "agent_memory, provider=": asyncio.run(ours(histories, "bedrock")),
    }
    if importlib.util.find_spec("agent_squad"):
        columns["agent-squad"] = asyncio.run(theirs(histories))
    else:
        print("not installed, left out: agent-squad")
    return columns


def _print(columns: dict[str, Count], histories: int, took: float) -> None:
    print(f"{histories:,} histories, {took:,.0f} s")
    print(f"{'':44}" + "".join(f"{name:>26}" for name in columns))
    lines: dict[str, Callable[[Count], int]] = {
        "views of valid histories": lambda count: count.views,
        "with a call or a result left alone": lambda count: count.torn,
        "refused by the provider (Bedrock's rules)": lambda count: count.refused,
    }
    for text, figure in lines.items():
        cells = "".join(f"{figure(count):>26,}" for count in columns.values())
        print(f"{text:44}{cells}")
    for rule in sorted({rule for count in columns.values() for rule in count.rules}):
        cells = "".join(f"{count.rules.get(rule, 0):>26,}" for count in columns.values())
        print(f"  {rule:42}{cells}")
