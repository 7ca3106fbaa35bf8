"""Long conversations of the real Runner: tools, handoffs, a restart, summaries, on real stores."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from agents import Agent, ModelSettings, Runner, function_tool
from agents.models.openai_responses import OpenAIResponsesModel
from agents.run import RunConfig
from scripted import ScriptedModel

from agent_memory import SummarizingChatStorage
from agent_memory.adapters import AgentMemorySession
from agent_memory.providers import from_openai_responses, validate
from agent_memory.testing import ScriptedSummarizer
from model_server import ModelServer

ROOT = Path(__file__).parents[3]
QUIET = RunConfig(tracing_disabled=True, model_settings=ModelSettings(store=False))
KINDS = ("weather: {}", "weather+clock: {}", "hello {}", "transfer_to_billing: {}")


@function_tool
def weather(of: int) -> str:
    """Tell the weather."""
    return f"sunny {of}"


@function_tool
def clock(of: int) -> str:
    """Tell the time."""
    return f"noon {of}"


@pytest.fixture
async def server():
    async with ModelServer() as running:
        yield running


class Recording(AgentMemorySession):
    """Remembers every item that it was given."""

    added: list

    async def add_items(self, items):
        self.added += items
        await super().add_items(items)


async def live(inner, server, turns, added):
    """One life of a process: a number of turns, and what the model was given in each."""
    summarizer = ScriptedSummarizer()
    storage = SummarizingChatStorage(
        inner, summarizer, 10, 3, provider="openai_responses", close_inner=False
    )
    async with storage:
        session = Recording(storage, "s", user_id="u")
        session.added = added
        model = OpenAIResponsesModel("test-model", server.client())
        billing = Agent("billing", model=model, tools=[clock])
        front = Agent("front", model=model, tools=[weather, clock], handoffs=[billing])
        scripted = ScriptedModel(server, first_id=1 + 1_000 * turns.start)
        for number in turns:
            question = KINDS[number % len(KINDS)].format(number)
            result = await Runner.run(front, question, session=session, run_config=QUIET)
            assert result.final_output.startswith("Answer to")
        view = await session.get_items()
    return scripted.inputs, summarizer.calls, view


async def test_100_turns_with_tools_a_restart_and_summaries(open_store, server):
    """The model gets short and valid histories; the log holds every item, equal."""
    added: list = []
    before = None
    for turns in (range(50), range(50, 100)):
        async with open_store() as inner:
            if before is not None:
                restarted = SummarizingChatStorage(
                    inner, ScriptedSummarizer(), 10, 3, provider="openai_responses"
                )
                again = AgentMemorySession(restarted, "s", user_id="u")
                assert await again.get_items() == before
            inputs, calls, before = await live(inner, server, turns, added)
            assert calls
            assert max(map(len, inputs)) < 35
            for given in inputs:
                assert validate(from_openai_responses(given), "openai_responses") == []
    async with open_store() as inner:
        raw = AgentMemorySession(inner, "s", user_id="u")
        assert await raw.get_items() == added
        assert len(added) == 25 * (5 + 7 + 2 + 5)


async def ask(server, question, chats):
    environment = {**os.environ, "CHATS": str(chats)}
    environment.pop("OPENAI_API_KEY", None)
    if server is not None:
        environment |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test-key"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "openai_agents_chat.py"),
        question,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return printed.decode().splitlines()


async def test_the_example_runs(server, tmp_path):
    """As it stands, twice: the second time it goes on."""
    ScriptedModel(server, arguments={"city": "Oslo"})
    first = await ask(server, "weather: Oslo?", tmp_path / "chats.db")
    assert first == ["Answer to: It is sunny in Oslo.", "in the view: 5 items"]
    second = await ask(server, "thanks", tmp_path / "chats.db")
    assert second == ["Answer to: thanks", "in the view: 7 items"]


async def test_the_example_runs_without_a_key(tmp_path):
    """A script answers: a first result needs no account."""
    _, answer, view = await ask(None, "weather: Oslo?", tmp_path / "chats.db")
    assert answer == "The tool says: It is sunny in Oslo."
    assert view == "in the view: 4 items"
