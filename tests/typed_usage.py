"""How the library is used, for the type checkers: ``make lint`` checks it, nothing runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from agent_memory import (
    ChatInfo,
    ChatKey,
    ChatStorage,
    ConversationManager,
    ConversationMessage,
    ConversationRun,
    InMemoryChatStorage,
    LLMSummarizer,
    LogSlice,
    ParticipantRole,
    SummarizingChatStorage,
    SummaryResult,
    SyncChatStorage,
    TransformingChatStorage,
    Usage,
    WrapperChatStorage,
)
from agent_memory.attribution import attribute_senders, attribute_to_agents
from agent_memory.conversation import ThreadInfo
from agent_memory.records import Entry
from agent_memory.storage import SummaryStore
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


class OneMethod:
    """A summarizer of a user's own, for a manager."""

    def summarize(
        self, messages: list[ConversationMessage], context_tokens: int
    ) -> SummaryResult | None:
        return SummaryResult("short", messages[-2:]) if context_tokens > 1_000 else None


class MySync(SyncChatStorage):
    """Methods of the blocking twin can be overridden with the arguments that they document."""

    def save_chat_message(
        self, user_id: str, session_id: str, agent_id: str, new_message: ConversationMessage
    ) -> list[ConversationMessage]:
        return super().save_chat_message(user_id, session_id, agent_id, new_message)

    def fetch_chat(
        self, user_id: str, session_id: str, agent_id: str, max_history_size: int | None = None
    ) -> list[ConversationMessage]:
        return super().fetch_chat(user_id, session_id, agent_id, max_history_size)


async def model(instruction: str, transcript: str, **parameters: object) -> str:
    return "short"


async def converse(storage: ChatStorage) -> None:
    ConversationManager(storage)
    ConversationManager(storage, my_summarizer, fallback=OneMethod(), provider="bedrock")
    manager = ConversationManager(storage, LLMSummarizer(model, token_threshold=9_000))
    async with await manager.start_run("u", "s", "a", after_run_id="r") as run:
        assert_type(run, ConversationRun)
        run.add(ConversationMessage("user", "hello"))
        assert_type(await run.messages(), list[ConversationMessage])
        run.record_usage(Usage(10, 2))
        run.add([ConversationMessage("assistant", "hi")], measured=True)
        assert_type(run.context_tokens, int)
        assert_type(run.usage, Usage)
    assert_type(await manager.list_threads(), list[ThreadInfo])
    assert_type(await manager.usage("u"), Usage)
    async for message in manager.iter_transcript("u", "s", "a"):
        assert_type(message, ConversationMessage)
    everything = await storage.fetch_all_chats("u", "s")
    assert_type(attribute_to_agents(everything), list[ConversationMessage])
    assert_type(attribute_senders(everything, "a"), list[ConversationMessage])
