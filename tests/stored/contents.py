"""What release 0.1 was told to store, as plain values; ``make.py`` saved it, the tests read it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from agent_memory import (
    ChatKey,
    ChatStorage,
    ConversationManager,
    ConversationMessage,
    SummarizingChatStorage,
    SummaryResult,
    Usage,
)
from agent_memory.records import Covered, Note, SummaryRecord


def moment(second: int, microsecond: int = 0) -> dt.datetime:
    return dt.datetime(2026, 11, 30, 12, 0, second, microsecond, tzinfo=dt.UTC)


GUIDE = ("ada", "hike", "guide")
WEATHER = ("ada", "hike", "weather")
GONE = ("ada", "hike", "gone")
SUMMARIZED = ("bob", "talk", "agent")
THREAD = ("cy", "trip", "travel")
ZIPPED = ("big", "zipped", "a")
PARTED = ("big", "parted", "a")
EXPIRING = ("big", "expiring", "a")
AWKWARD = [
    ("Å/..%", "a#b \u2028 ", "A"),
    ("a/b #%", "nul", "con"),
    ("A\u030a", "..", "a"),
    ("é" * 127 + "x", "-", "👍🏽"),
]

Fields = dict[str, Any]

# What stands in brackets was one save. A dict with "kind" is a note.
GUIDE_SAVES: list[list[Fields]] = [
    [
        {"id": "m1", "role": "system", "content": "Be brief.", "pinned": True,
         "timestamp": moment(1)},
        {"id": "m2", "role": "user", "timestamp": moment(2, 123456), "run_id": "run-1",
         "content": '\x1b[2J \x00 \u2028 \u202e é e\u0301 😀 \udc80 "quoted" \\ \n\t </script>'},
        {"id": "m3", "role": "assistant", "timestamp": moment(3), "run_id": "run-1",
         "content": [{"text": "Let me look."},
                     {"toolUse": {"toolUseId": "c1", "name": "find_hut", "input": {"km": 12}}}],
         "usage": {"input_tokens": 812, "output_tokens": 40, "cached_tokens": 512,
                   "reasoning_tokens": 7}},
        {"id": "m4", "role": "user", "timestamp": moment(4), "run_id": "run-1",
         "content": [{"toolResult": {"toolUseId": "c1", "content": [
             {"image": {"format": "png", "source": {"bytes": b"\x00\xff\x7f"}}},
             {"empty": b""}]}}]},
    ],
    [{"id": "n1", "kind": "application", "timestamp": moment(5),
      "data": {"tokens": 3, "of": ["any", {"shape": None}]}}],
    [{"id": "m5", "role": "assistant", "content": None, "timestamp": moment(6),
      "extra": {"tool_calls": [{"id": "c2", "type": "function",
                                "function": {"name": "clock", "arguments": "{}"}}],
                "$agent_memory": ["bytes", "AA=="]},
      "metadata": {"trace": "abc", "nested": {"z": 1, "a": [1, 2.5, True, None]}}}],
    [{"id": "m6", "role": "tool", "content": "12:00", "timestamp": moment(7),
      "extra": {"tool_call_id": "c2", "name": "clock"}}],
    [
        {"id": "m7", "role": "assistant", "content": "", "timestamp": moment(8)},
        {"id": "m8", "role": "user",
         "timestamp": dt.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
         "content": {"z": 10**30, "a": -0.0, "f": 0.1, "e": 1e300, "t": True, "i": -7,
                     "$agent_memory": "not a marker", "": []}},
        {"id": "m9", "role": "developer", "content": [[], {}, "x"],
         "timestamp": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)},
    ],
    [{"id": "taken-back", "kind": "retracted", "timestamp": moment(9), "data": {"ids": ["m7"]}}],
]  # fmt: skip

RECORDS: list[Fields] = [
    {"id": "s1", "replaces": None, "position": 4, "message_id": "m4", "floor": 0,
     "covered": (2, 4, 3), "known": 4, "told": 4, "summarizer": "first", "reason": "trigger_at",
     "messages_before": 4, "messages_after": 1, "tokens_before": 120, "tokens_after": 12,
     "usage": None, "created_at": moment(20),
     "head": ["m1"], "summary": [{"id": "x1", "role": "user", "content": "They look for a hut.",
                                  "timestamp": moment(21)}]},
    {"id": "s2", "replaces": "s1", "position": 7, "message_id": "m6", "floor": 0,
     "covered": (2, 7, 5), "known": 10, "told": 8, "summarizer": "second", "reason": "tokens",
     "messages_before": 6, "messages_after": 2, "tokens_before": 200, "tokens_after": 20,
     "usage": {"input_tokens": 300, "output_tokens": 20, "cached_tokens": 0,
               "reasoning_tokens": 0},
     "created_at": moment(22, 654321),
     "head": ["m1"], "summary": [
         {"id": "x2", "role": "user", "content": [{"text": "A hut at 12 km,"}],
          "timestamp": moment(23), "metadata": {"by": "hand"}},
         {"id": "x3", "role": "assistant", "content": "at noon.", "timestamp": moment(24)}]},
]  # fmt: skip


def numbered(name: str, first: int, last: int) -> list[Fields]:
    """Messages of a user and an assistant in turn."""
    return [
        {"id": f"{name}{n}", "role": ("assistant", "user")[n % 2], "content": f"{name} {n}",
         "timestamp": moment(n)}
        for n in range(first, last + 1)
    ]  # fmt: skip


LONG = "".join(f"{number % 10} times around the lake, and " for number in range(15_000))
"""Some 500,000 characters, which compress well."""


def message(fields: Fields) -> ConversationMessage:
    fields = dict(fields)
    usage = fields.pop("usage", None)
    role, content = fields.pop("role"), fields.pop("content")
    return ConversationMessage(role, content, usage=usage and Usage(**usage), **fields)


def entry(fields: Fields) -> ConversationMessage | Note:
    if "kind" not in fields:
        return message(fields)
    return Note(fields["kind"], fields["data"], id=fields["id"], timestamp=fields["timestamp"])


def record(fields: Fields, stored: dict[str, ConversationMessage]) -> SummaryRecord:
    first, last, count = fields["covered"]
    return SummaryRecord(
        **{
            **fields,
            "covered": Covered(first, last, count),
            "usage": fields["usage"] and Usage(**fields["usage"]),
            "head": tuple(stored[name] for name in fields["head"]),
            "summary": tuple(message(one) for one in fields["summary"]),
        }
    )


async def shorten(history: list[ConversationMessage], _keep: int) -> list[ConversationMessage]:
    text = "Said so far: " + " / ".join(str(one.content) for one in history[:-2])
    return [ConversationMessage("user", text), *history[-2:]]


class Once:
    """A summarizer of a manager's, for its second run."""

    def summarize(self, messages: list[ConversationMessage], _tokens: int) -> SummaryResult | None:
        if len(messages) < 5:
            return None
        return SummaryResult("A trip to Bern.", messages[-1:], usage=Usage(50, 5))


async def fill(storage: ChatStorage) -> None:
    """Save everything, as users would."""
    for save in GUIDE_SAVES:
        if "kind" in save[0]:
            await storage.save_note(*GUIDE, entry(save[0]))
        else:
            await storage.save_chat_messages(*GUIDE, [message(one) for one in save])
    stored = {one.id: one for one in await storage.fetch_chat_since(*GUIDE, 0)}
    records = storage.summaries()
    for fields in RECORDS:
        made = record(fields, stored)
        assert await records.save_summary(ChatKey(*GUIDE), made, replaces=fields["replaces"])
    for one in numbered("w", 1, 4):
        await storage.save_chat_message(*WEATHER, message(one))
    await storage.save_chat_messages(*WEATHER, [message(one) for one in numbered("w", 5, 9)])
    await storage.trim_chat(*WEATHER, 3)
    await storage.save_chat_messages(*GONE, [message(one) for one in numbered("g", 1, 3)])
    await storage.delete_chat(*GONE)
    for key in AWKWARD:
        await storage.save_chat_message(*key, message(numbered("a", 1, 1)[0]))
    await _summarized(storage)
    await _thread(storage)


async def _summarized(storage: ChatStorage) -> None:
    async with SummarizingChatStorage(storage, shorten, 4, 2, close_inner=False) as short:
        for one in numbered("b", 1, 14):
            await short.save_chat_message(*SUMMARIZED, message(one))
            await short.fetch_chat(*SUMMARIZED)


async def _thread(storage: ChatStorage) -> None:
    manager = ConversationManager(storage, Once())
    for number in (1, 3, 5):
        async with await manager.start_run(*THREAD) as run:
            question, answer = numbered("t", number, number + 1)
            run.add(message(question))
            await run.messages()
            run.record_usage(Usage(100 * number, number))
            run.add(message(answer), measured=True)
            run.record_auxiliary_usage(Usage(7, 1))
