"""The real orchestrator and supervisor over our storages: long, restarted, on every backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from agent_squad.agents import (
    AnthropicAgent,
    AnthropicAgentOptions,
    SupervisorAgent,
    SupervisorAgentOptions,
)
from agent_squad.orchestrator import AgentSquad
from agent_squad.types import AgentSquadConfig, ConversationMessage
from agent_squad.utils import AgentTool, AgentTools
from squad import Speaker, Turns, claude, said, texts

from agent_memory import InMemoryChatStorage, SummarizingChatStorage
from agent_memory.adapters import AgentSquadChatStorage
from agent_memory.adapters.agent_squad import to_agent_memory
from agent_memory.providers import validate
from agent_memory.testing import ScriptedSummarizer

ROOT = Path(__file__).parents[3]
BOUND = 30


class ToolUser(Speaker):
    """Uses a tool for each question, and saves the exchange itself, in one step."""

    def __init__(self, name, storage):
        super().__init__(name, save_chat=False)
        self.storage = storage
        self.saved = []
        look = AgentTool("look", "looks it up", {"of": {"type": "string"}}, ["of"], self._look)
        self.tools = AgentTools([look])

    @staticmethod
    def _look(of: str):
        return f"found {of}"

    async def process_request(self, input_text, user_id, session_id, chat_history, params=None):
        answer = await super().process_request(input_text, user_id, session_id, chat_history)
        uses = [
            {
                "toolUse": {
                    "toolUseId": f"{side}-{input_text}",
                    "name": "look",
                    "input": {"of": side},
                }
            }
            for side in ("left", "right")
        ]
        call = ConversationMessage("assistant", [{"text": "Let me look."}, *uses])
        result = await self.tools.tool_handler("BEDROCK", call, [])
        exchange = [said("user", input_text), call, result, answer]
        await self.storage.save_chat_messages(user_id, session_id, self.id, exchange)
        self.saved += exchange
        return answer


class World:
    """An orchestrator over a storage, in one life of its process."""

    def __init__(self, inner):
        self.summarizing = SummarizingChatStorage(
            inner, ScriptedSummarizer(), 8, 2, provider="bedrock"
        )
        storage = AgentSquadChatStorage(self.summarizing)
        self.tools = ToolUser("tools", storage)
        self.agents = [Speaker("talk"), Speaker("stream", streaming=True), self.tools]
        self.classifier = Turns(*self.agents)
        options = AgentSquadConfig(MAX_MESSAGE_PAIRS_PER_AGENT=BOUND)
        self.squad = AgentSquad(options=options, storage=storage, classifier=self.classifier)
        for agent in self.agents:
            self.squad.add_agent(agent)

    async def ask(self, number, *, stream):
        """Ask one question, read the answer to its end, and return it."""
        response = await self.squad.route_request(f"q{number}", "u", "s", {}, stream)
        if response.streaming and stream:
            chunks = [chunk async for chunk in response.output]
            return chunks[-1].final_message.content[0]["text"]
        return response.output.content[0]["text"]

    def check(self):
        """What the agents were given was short, valid, and ended with their last answer."""
        for agent in self.agents:
            for given in agent.given:
                assert len(given) <= min(BOUND, 17 + 4)
                assert validate(given, "bedrock") == []
                assert not given or given[-1].role == "assistant"


async def test_100_turns_with_tools_a_restart_and_summaries(open_store):
    """Over SQLite and DynamoDB: agents see little and valid history, the log is whole."""
    tool_messages = []
    for life in range(2):
        async with open_store() as inner:
            world = World(inner)
            for number in range(life * 51, life * 51 + 51):
                said_back = await world.ask(number, stream=number % 2 == 0)
                assert said_back.endswith(f"answers q{number}")
            world.check()
            if life:
                first = [agent.given[0] for agent in world.agents]
                assert all("Summary" in view[0].content[0]["text"] for view in first[:2])
            assert len(world.classifier.histories[-1].splitlines()) >= life * 102
            tool_messages += world.tools.saved
            await world.summarizing.aclose()

    async with open_store() as inner:
        raw = await inner.fetch_all_chats("u", "s")
        assert len(raw) == 34 * (2 + 2 + 4)
        by_agent = {name: [m for m in raw if m.agent_id == name] for name in ("talk", "tools")}
        questions = [f"q{number}" for number in range(0, 102, 3)]
        expected = [text for q in questions for text in (q, f"talk answers {q}")]
        assert [m.content for m in by_agent["talk"]] == [[{"text": text}] for text in expected]
        assert all(m.extra == {"citations": [{"of": 1}]} for m in by_agent["talk"][1::2])
        theirs = [to_agent_memory(message) for message in tool_messages]
        assert all(a.same_payload(b) for a, b in zip(by_agent["tools"], theirs, strict=True))


async def test_200_turns_with_one_agent():
    """More than the orchestrator's own bound: the log has all 400 messages."""
    storage = AgentSquadChatStorage(InMemoryChatStorage())
    agent = Speaker("talk")
    squad = AgentSquad(storage=storage, classifier=Turns(agent))
    squad.add_agent(agent)
    for number in range(200):
        await squad.route_request(f"q{number}", "u", "s")
    assert max(map(len, agent.given)) == 100  # the orchestrator's default
    assert [m.content[0]["text"] for m in agent.given[-1]][:2] == ["q149", "talk answers q149"]
    assert len(await storage.inner.fetch_chat("u", "s", "talk")) == 400
    assert squad.classifier.histories[-1].count("[talk] talk answers") == 199


async def test_an_abandoned_stream_keeps_the_question():
    """The user's next question is another message, not a repeated one to be dropped."""
    storage = AgentSquadChatStorage(InMemoryChatStorage())
    agent = Speaker("stream", streaming=True)
    squad = AgentSquad(storage=storage, classifier=Turns(agent))
    squad.add_agent(agent)
    abandoned = await squad.route_request("q1", "u", "s", {}, True)
    await abandoned.output.aclose()
    answered = await squad.route_request("q2", "u", "s", {}, True)
    assert [chunk async for chunk in answered.output]
    raw = await storage.fetch_chat("u", "s", "stream")
    assert texts(raw) == ["q1", "q2", "stream answers q2"]


# ----------------------------------------------------------------------------- supervisor


def team_leader(body):
    """A model that asks the whole team, then tells what it heard."""
    last = body["messages"][-1]["content"]
    if isinstance(last, str):
        orders = [{"recipient": name, "content": f"{last} for {name}"} for name in ("ann", "bob")]
        use = {"type": "tool_use", "id": "t1", "name": "send_messages"}
        return [{**use, "input": {"messages": orders}}]
    return [{"type": "text", "text": f"They say: {last[0]['content']}"}]


@pytest.mark.parametrize("medium", ["memory", "file", "sqlite", "dynamodb"])
@pytest.mark.parametrize("summaries", [False, True])
async def test_a_supervisor_and_its_team_share_the_storage(medium, summaries, make_store):
    """It calls the storage from worker threads, each with an event loop of its own."""
    async with make_store(medium) as inner:
        ours = (
            SummarizingChatStorage(inner, ScriptedSummarizer(), 4, 1, close_inner=False)
            if summaries
            else inner
        )
        storage = AgentSquadChatStorage(ours)
        team = [Speaker("ann"), Speaker("bob", streaming=True)]
        with claude(team_leader) as client:
            lead = AnthropicAgent(
                AnthropicAgentOptions(name="lead", description="leads", client=client)
            )
            supervisor = SupervisorAgent(
                SupervisorAgentOptions(
                    name="lead", description="leads", lead_agent=lead, team=team, storage=storage
                )
            )
            squad = AgentSquad(storage=storage, classifier=Turns(supervisor))
            squad.add_agent(supervisor)
            for number in range(12):
                response = await squad.route_request(f"q{number}", "u", "s")
                said_back = response.output.content[0].text
                for name in ("ann", "bob"):
                    assert f"{name}: {name} answers q{number} for {name}" in said_back
        for name in ("ann", "bob"):
            raw = [m async for m in inner.iter_chat("u", "s", name)]
            asked = [f"q{number} for {name}" for number in range(12)]
            expected = [text for q in asked for text in (q, f"{name} answers {q}")]
            assert [m.content[0]["text"] for m in raw] == expected
            if summaries:
                assert max(map(len, team[name == "bob"].given)) < 10
        assert len([m async for m in inner.iter_chat("u", "s", "lead")]) == 24
        assert len(await storage.fetch_all_chats("u", "s")) == 72
        await ours.aclose()


def test_the_example_runs(tmp_path):
    """As it stands, twice: the second time it goes on."""
    printed = [
        subprocess.run(
            [sys.executable, str(ROOT / "examples" / "agent_squad_chat.py")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert "in the log: 60" in printed[0]
    assert "in the log: 120" in printed[1]


async def test_c118_without_the_adapter_the_answer_says_to_use_it():
    """The orchestrator answers with the error's text."""
    inner = InMemoryChatStorage()
    agent = Speaker("talk")
    squad = AgentSquad(
        storage=SummarizingChatStorage(inner, ScriptedSummarizer()), classifier=Turns(agent)
    )
    squad.add_agent(agent)
    response = await squad.route_request("hello", "user", "session")
    (answer,) = texts([response.output])
    assert "from agent_memory.adapters.agent_squad import AgentSquadChatStorage" in answer
    assert await inner.fetch_all_chats("user", "session") == []
