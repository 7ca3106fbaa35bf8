"""agent-squad over SQLite, with summaries: every message kept, agents given a short history.

    pip install '.[agent-squad,sql]'
    python examples/agent_squad_chat.py

It needs no model: one agent answers by a rule. Run it again: the conversation goes on. CHATS (a
file) says where it is kept.
"""

import asyncio
import os

from agent_squad.agents import Agent, AgentOptions
from agent_squad.classifiers import Classifier, ClassifierResult
from agent_squad.orchestrator import AgentSquad
from agent_squad.types import ConversationMessage

from agent_memory import ExtractiveSummarizer, SummarizingChatStorage, open_storage
from agent_memory.adapters import AgentSquadChatStorage


class Echo(Agent):
    """Tells how much of the conversation it was given."""

    async def process_request(
        self,
        input_text: str,
        user_id: str,
        session_id: str,
        chat_history: list[ConversationMessage],
        additional_params: dict[str, str] | None = None,
    ) -> ConversationMessage:
        """Answer a question."""
        text = f"You say {input_text!r}; I was given {len(chat_history)} messages."
        return ConversationMessage("assistant", [{"text": text}])


class Always(Classifier):
    """Selects the one agent there is."""

    async def process_request(
        self, input_text: str, chat_history: list[ConversationMessage]
    ) -> ClassifierResult:
        """Select it."""
        return ClassifierResult(self.agents["echo"], 1.0)


async def main() -> None:
    """Say thirty things."""
    url = "sqlite:///" + os.environ.get("CHATS", "squad.db")
    async with open_storage(url) as raw:
        storage = SummarizingChatStorage(raw, ExtractiveSummarizer(), trigger_at=8, keep_last=2)
        squad = AgentSquad(storage=AgentSquadChatStorage(storage), classifier=Always())
        squad.add_agent(Echo(AgentOptions(name="echo", description="echoes")))
        for number in range(30):
            response = await squad.route_request(f"thing {number}", "me", "example")
        print(response.output.content[0]["text"])
        print(f"in the log: {len(await raw.fetch_chat('me', 'example', 'echo'))}")


if __name__ == "__main__":
    asyncio.run(main())
