"""Pydantic AI over SQLite, with summaries: every message kept, the model given a short history.

    pip install '.[pydantic-ai,sql]'
    python examples/pydantic_ai_chat.py

It needs no model: a function answers. Run it again: the conversation goes on. CHATS (a file)
says where it is kept.
"""

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agent_memory import ExtractiveSummarizer, SummarizingChatStorage, open_storage
from agent_memory.adapters import AgentMemoryHistory


def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Look once, then tell how much there was to see; put a model's name in its place."""
    if messages[-1].parts[-1].part_kind == "user-prompt":
        return ModelResponse([ToolCallPart("weather", {"city": "Oslo"})])
    return ModelResponse([TextPart(f"I was given {len(messages)} messages.")])


async def main() -> None:
    """Ask thirty times."""
    url = "sqlite:///" + os.environ.get("CHATS", "pydantic_ai.db")
    async with open_storage(url) as raw:
        storage = SummarizingChatStorage(raw, ExtractiveSummarizer(), trigger_at=8, keep_last=2)
        history = AgentMemoryHistory(storage, user_id="me", session_id="example")
        agent = Agent(
            FunctionModel(answer),
            system_prompt="Tell the weather.",
            capabilities=[ProcessHistory(history.process)],
        )

        @agent.tool_plain
        def weather(city: str) -> str:
            """Tell the weather."""
            return f"It is sunny in {city}."

        for number in range(30):
            result = await agent.run(
                f"question {number}", message_history=await history.messages()
            )
            await history.save(result.new_messages())
        print(result.output)
        print(f"in the log: {len(await raw.fetch_all_chats('me', 'example'))}")


if __name__ == "__main__":
    asyncio.run(main())
