"""Chats with everything that a store can hold, for the tests of what moves and reads them."""

from __future__ import annotations

from agent_memory import ConversationMessage, InMemoryChatStorage, SummarizingChatStorage, Usage
from agent_memory.audit.chat_import import Importer
from agent_memory.audit.log_pages import pages
from agent_memory.records import Note
from agent_memory.summarizers import SlidingWindowSummarizer

IDS = ("ada", "hike", "guide")
HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\x9b31m\u202ereversed ```\n# head"


def user(text, **fields):
    return ConversationMessage("user", text, **fields)


def call(call_id, **fields):
    block = {"toolUse": {"toolUseId": call_id, "name": "find_hut", "input": {"km": 12}}}
    return ConversationMessage("assistant", [{"text": "Let me look."}, block], **fields)


def result(call_id, **fields):
    block = {"toolResult": {"toolUseId": call_id, "content": [{"text": "four beds"}]}}
    return ConversationMessage("user", [block], **fields)


def said(count, start=1):
    """So many messages of a user and an assistant in turn, from m1 on."""
    return [
        ConversationMessage(("assistant", "user")[n % 2], f"say {n}", id=f"m{n}")
        for n in range(start, start + count)
    ]


def odd_messages():
    """Messages whose fields are all set, and content that is hard to carry."""
    return [
        ConversationMessage("system", "Be brief.", pinned=True),
        user(HOSTILE, metadata={"tag": HOSTILE}),
        user([{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}]),
        ConversationMessage(
            "assistant",
            "\udc80 \u2028 \x00 é",
            usage=Usage(10, 2, 1, 1),
            run_id="run",
            extra={"n": 10**4000, "f": 0.1, "$agent_memory": ["bytes", "AA=="]},
        ),
        call("c1"),
        result("c1"),
        user(""),
    ]


async def fill(storage, count=30):
    """Fill a store with three chats; the first has notes and summaries."""
    async with SummarizingChatStorage(
        storage, SlidingWindowSummarizer(4), 4, 2, close_inner=False
    ) as short:
        for message in said(count):
            await short.save_chat_message(*IDS, message)
            if message.id == "m5":
                note = Note("run", {"tokens": 3}, id="a-note")
                await short.save_note(*IDS, note)
            await short.fetch_chat(*IDS)
    await storage.save_chat_messages("ada", "hike", "weather", odd_messages())
    await storage.save_chat_messages("bob", "a/b #%", "guide", said(3))


async def everything(storage):
    """All entries of all chats, with their positions."""
    found = {}
    async for info in storage.list_chats():
        found[info.key] = [
            e for part in [p async for p in pages(storage, info.key)] for e in part.entries
        ]
    return found


async def records(storage, ids=IDS):
    from agent_memory import ChatKey  # noqa: PLC0415

    return await storage.summaries().list_summaries(ChatKey(*ids))


async def moved(stream, target=None, **options):
    """Move a stream into a store, a new one by default; gives the store and what it came to."""
    target = target or InMemoryChatStorage()
    return target, await Importer(target, **options).move(stream)


async def stream_of(items):
    for item in items:
        yield item
