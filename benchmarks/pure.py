"""The pure parts on a long history: turns, validation, repair."""

from __future__ import annotations

import time
from pathlib import Path

from agent_memory import ConversationMessage
from agent_memory.providers import repair, validate
from agent_memory.turns import group
from benchmarks.contenders import TEXT
from benchmarks.targets import Target, at_most


def history(count: int) -> list[ConversationMessage]:
    """A chat of so many messages, half of them calls and results, in Bedrock's form."""
    made: list[ConversationMessage] = []
    while len(made) < count:
        name = f"call-{len(made)}"
        use = {"toolUse": {"toolUseId": name, "name": "look", "input": {}}}
        result = {"toolResult": {"toolUseId": name, "content": [{"text": TEXT}]}}
        made += [
            ConversationMessage("user", [{"text": TEXT}]),
            ConversationMessage("assistant", [{"text": "I look."}, use]),
            ConversationMessage("user", [result]),
            ConversationMessage("assistant", [{"text": TEXT}]),
        ]
    return made[:count]


def run(_directory: Path, tiny: bool) -> list[Target]:
    """Measure them once each."""
    count = 100 if tiny else 100_000
    messages = history(count)
    return [
        at_most(f"turns.group of {count:,} messages", _took(lambda: group(messages)), 2, "s"),
        at_most(
            f"rules.validate of {count:,} messages",
            _took(lambda: validate(messages, "bedrock")),
            2,
            "s",
        ),
        at_most(
            f"rules.repair of {count:,} messages",
            _took(lambda: repair(messages, "bedrock")),
            5,
            "s",
        ),
    ]


def _took(work: object) -> float:
    assert callable(work)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
