"""A hundred turns with tools through LangChain, over real stores, with summaries and a restart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables.history import RunnableWithMessageHistory
from weather_chain import ScriptedModel, chain_of, weather

from agent_memory import ExtractiveSummarizer, SummarizingChatStorage
from agent_memory.adapters.langchain import (
    AgentMemoryChatMessageHistory,
    from_langchain,
    to_langchain,
)
from agent_memory.providers import validate

# It works as long as LangChain 1.x does; that it is to go with 2.0 is told to its users.
pytestmark = pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")

EXAMPLE = Path(__file__).parents[3] / "examples" / "langchain_chat.py"
TURNS = 100
LONGEST = 1 + 1 + 20 + 4  # system prompt, summary, what exceeds the trigger by a turn at most


def summarizing(store):
    return SummarizingChatStorage(store, ExtractiveSummarizer(), trigger_at=10, keep_last=3)


def chat_over(storage, model):
    def history_of(session_id):
        return AgentMemoryChatMessageHistory(
            storage, user_id="alice", session_id=session_id, agent_id="weather"
        )

    return RunnableWithMessageHistory(
        chain_of(model), history_of, input_messages_key="question", history_messages_key="history"
    )


async def talk(chat, turns):
    said = []
    for turn in turns:
        question = {"question": f"city {turn}"}
        new = await chat.ainvoke(question, {"configurable": {"session_id": "s"}})
        said += [HumanMessage(question["question"]), *new]
    return said


async def test_a_hundred_turns_with_tools_summaries_and_a_restart(open_store):
    """The model always sees a valid, bounded history; the log holds every message, equal."""
    model, said = ScriptedModel(), []
    for turns in (range(TURNS // 2), range(TURNS // 2, TURNS)):
        async with summarizing(open_store()) as storage:
            said += await talk(chat_over(storage, model), turns)
            records = await storage.compaction_history("alice", "s", "weather")
    assert records
    assert max(len(messages) for messages in model.seen) <= LONGEST
    assert [validate(from_langchain(seen), "openai") for seen in model.seen if seen] == [
        [] for _ in model.seen
    ]
    async with open_store() as store:
        raw = await store.fetch_all_chats("alice", "s")
    assert len(raw) == 4 * TURNS
    assert to_langchain(raw) == said
    assert said[2].artifact == {"city": "city 0", "degrees": 21.5}


async def test_a_restart_shows_the_same_view(open_store):
    """Without a summarizer being asked again."""

    async def view():
        async with summarizing(open_store()) as storage:
            history = AgentMemoryChatMessageHistory(
                storage, user_id="alice", session_id="s", agent_id="weather"
            )
            return await history.aget_messages()

    async with summarizing(open_store()) as storage:
        await talk(chat_over(storage, ScriptedModel()), range(20))
        before = to_langchain(await storage.fetch_chat("alice", "s", "weather"))
    assert await view() == await view() == before
    assert len(before) < 40


def test_the_blocking_way_over_a_durable_store(open_store):
    """`invoke` in a script; summaries are made on the thread of the blocking calls."""
    storage, model = summarizing(open_store()), ScriptedModel()
    chat = chat_over(storage, model)
    for turn in range(12):
        chat.invoke({"question": f"city {turn}"}, {"configurable": {"session_id": "s"}})
    raw = asyncio.run(storage.fetch_all_chats("alice", "s"))
    asyncio.run(storage.aclose())
    assert len(raw) == 48
    assert max(len(messages) for messages in model.seen) <= LONGEST


class ToolCallingModel(ScriptedModel):
    """An agent binds its tools to its model."""

    def bind_tools(self, tools, **kwargs):
        return self


async def test_an_agent_of_langchains_goes_on_with_the_history(open_store):
    """``create_agent``: what it returns beyond what it was given is added."""
    agent = create_agent(ToolCallingModel(), [weather], system_prompt="Tell the weather.")
    said = []
    async with summarizing(open_store()) as storage:
        history = AgentMemoryChatMessageHistory(storage, user_id="alice", session_id="s")
        for turn in range(12):
            given = [*await history.aget_messages(), HumanMessage(f"city {turn}")]
            result = await agent.ainvoke({"messages": given})
            new = result["messages"][len(given) - 1 :]
            await history.aadd_messages(new)
            said += new
        assert len(await history.aget_messages()) < 48
        raw = to_langchain(await storage.fetch_all_chats("alice", "s"))
    assert raw == said
    assert [type(message) for message in raw[:4]] == [
        HumanMessage, AIMessage, ToolMessage, AIMessage
    ]  # fmt: skip


def test_the_example_runs_and_goes_on(tmp_path):
    """Run twice over the same file, it has two conversations' messages."""
    environment = {**os.environ, "CHATS": str(tmp_path / "chats.db")}
    command = [sys.executable, str(EXAMPLE)]
    for logged in (60, 120):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        given, log = done.stdout.splitlines()
        assert int(given.split()[3]) < 20
        assert log == f"in the log: {logged}"
