"""How the library is used, for the type checkers: ``make lint`` checks it, nothing runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from agent_memory import (
    ChatInfo,
    ChatKey,
    ChatStorage,
    ConversationMessage,
    InMemoryChatStorage,
    LogSlice,
    ParticipantRole,
    SummarizingChatStorage,
    SummaryStore,
    TransformingChatStorage,
    WrapperChatStorage,
)
from agent_memory.records import Entry
from agent_memory.testing import CountingChatStorage, FlakyChatStorage, ScriptedSummarizer


async def my_summarizer(
    history: list[ConversationMessage], keep_last: int
) -> list[ConversationMessage]:
    summary = ConversationMessage(role="user", content=[{"text": "[Summary]"}])
    return [summary, *history[-keep_last * 2 :]]


def scrub(message: ConversationMessage) -> ConversationMessage | None:
    return None if message.content == "secret" else message


async def encrypt(message: ConversationMessage) -> ConversationMessage:
    return message


class Loud(WrapperChatStorage):
    """A wrapper overrides only what it changes."""

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        return await super()._append(key, entries)


async def use() -> None:
    storage: ChatStorage = SummarizingChatStorage(
        TransformingChatStorage(InMemoryChatStorage(), scrub), my_summarizer, 20, 2
    )
    TransformingChatStorage(Loud(FlakyChatStorage(CountingChatStorage(storage))), encrypt, encrypt)
    SummarizingChatStorage(storage, ScriptedSummarizer())
    message = ConversationMessage(ParticipantRole.USER, "hello", metadata={"a": 1})
    stored = await storage.save_chat_message("user", "session", "agent", message)
    assert_type(stored, list[ConversationMessage])
    assert_type(
        await storage.fetch_chat("user", "session", "agent", 10), list[ConversationMessage]
    )
    assert_type(await storage.trim_chat("user", "session", "agent", 5), int)
    assert_type(storage.summaries(), SummaryStore | None)
    async for info in storage.list_chats():
        assert_type(info, ChatInfo)
    async with InMemoryChatStorage() as opened:
        assert_type(opened, InMemoryChatStorage)
