"""A hundred turns with tools through Pydantic AI, on real stores, with summaries and a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_ai.capabilities import ProcessHistory
from weather_agent import Script, agent_of, unpaired

from agent_memory import ExtractiveSummarizer, SummarizingChatStorage
from agent_memory.adapters.pydantic_ai import (
    AgentMemoryHistory,
    from_pydantic_ai,
    to_pydantic_ai,
)
from agent_memory.providers import validate

EXAMPLE = Path(__file__).parents[3] / "examples" / "pydantic_ai_chat.py"
LONGEST = 1 + 1 + 20 + 4  # system prompt, summary, what exceeds the trigger by a turn at most


def summarizing(store):
    return SummarizingChatStorage(store, ExtractiveSummarizer(), trigger_at=10, keep_last=3)


def history_over(storage):
    return AgentMemoryHistory(storage, user_id="alice", session_id="s", agent_id="weather")


async def talk(storage, script, turns, *, processed):
    history = history_over(storage)
    agent = agent_of(script, capabilities=[ProcessHistory(history.process)] if processed else [])
    said = []
    for turn in turns:
        result = await agent.run(f"city {turn}", message_history=await history.messages())
        await history.save(result.new_messages())
        said += result.new_messages()
    return said


@pytest.mark.parametrize(
    ("processed", "count"), [(False, 100), (True, 40)], ids=["between runs", "processor"]
)
async def test_many_turns_with_tools_summaries_and_a_restart(open_store, processed, count):
    """The model always sees a valid, bounded history; the log holds every message, equal."""
    script, said = Script(), []
    for turns in (range(count // 2), range(count // 2, count)):
        async with summarizing(open_store()) as storage:
            said += await talk(storage, script, turns, processed=processed)
            records = await storage.compaction_history("alice", "s", "weather")
    assert records
    assert max(map(len, script.seen)) <= LONGEST
    wrong = [validate(from_pydantic_ai(seen), "anthropic") for seen in script.seen]
    assert [unpaired(seen) for seen in script.seen] == wrong == [[] for _ in script.seen]
    assert all("Tell the weather." in str(seen[0].parts[0]) for seen in script.seen)
    async with open_store() as store:
        raw = to_pydantic_ai(await store.fetch_all_chats("alice", "s"))
    assert len(raw) == 4 * count
    assert raw == said


async def test_a_restart_shows_the_same_view(open_store):
    """Without a summarizer being asked again."""

    async def look():
        async with summarizing(open_store()) as storage:
            view = await history_over(storage).messages()
            return view, await storage.compaction_history("alice", "s", "weather")

    async with summarizing(open_store()) as storage:
        await talk(storage, Script(), range(20), processed=False)
        before = await history_over(storage).messages()
        records = await storage.compaction_history("alice", "s", "weather")
    assert await look() == await look() == (before, records)
    assert len(before) < 40


def test_the_example_runs_and_goes_on(tmp_path):
    """Run twice over the same file, it has two conversations' messages."""
    environment = {**os.environ, "CHATS": str(tmp_path / "chats.db")}
    command = [sys.executable, str(EXAMPLE)]
    for logged in (121, 241):  # the system prompt is a message of its own
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        given, log = done.stdout.splitlines()
        assert int(given.split()[3]) < 20
        assert log == f"in the log: {logged}"
