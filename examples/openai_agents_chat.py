"""OpenAI's Agents SDK over SQLite, with summaries: every item kept, the model given a short view.

    pip install '.[openai-agents,sql]'
    python examples/openai_agents_chat.py "What is the weather in Oslo?"

With OPENAI_API_KEY it asks a model, else a script answers. OPENAI_BASE_URL, MODEL and CHATS (a
file) point it elsewhere. Run it again: it goes on.
"""

import asyncio
import os
import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled
from scripted_model import a_model

from agent_memory import LLMSummarizer, OpenAIChatModel, SummarizingChatStorage, open_storage
from agent_memory.adapters import AgentMemorySession

MODEL = os.environ.get("MODEL", "gpt-4.1-mini")


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"It is sunny in {city}."


async def main(question: str) -> None:
    """Answer a question in the conversation so far."""
    set_tracing_disabled(disabled=True)
    async with open_storage("sqlite:///" + os.environ.get("CHATS", "agents.db")) as raw:
        storage = SummarizingChatStorage(
            raw,
            LLMSummarizer(OpenAIChatModel(None, MODEL, "responses")),
            provider="openai_responses",
            trigger_tokens=20_000,
        )
        session = AgentMemorySession(storage, "example", user_id="me")
        agent = Agent("assistant", model=MODEL, tools=[weather])
        result = await Runner.run(agent, question, session=session)
        print(result.final_output)
        print(f"in the view: {len(await session.get_items())} items")


if __name__ == "__main__":
    with a_model():
        asyncio.run(main(" ".join(sys.argv[1:]) or "What is the weather in Oslo?"))
