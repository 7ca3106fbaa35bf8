"""An agent that calls tools, remembers its conversation in SQLite, and keeps it short.

    python examples/agent_loop.py "What time is it?"

With OPENAI_API_KEY it asks a model, else a script answers; CHATS (a file) is where it is kept.
"""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime

from openai import AsyncOpenAI
from scripted_model import a_model

from agent_memory import ConversationManager, LLMSummarizer, OpenAIChatModel, Usage, open_storage
from agent_memory.conversation import ConversationRun
from agent_memory.providers import convert, from_openai

MODEL = os.environ.get("MODEL", "gpt-4.1-mini")
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
CLOCK = {"name": "clock", "description": "Tells the time (UTC).", "parameters": {"type": "object"}}
TOOLS = {"clock": lambda **_: datetime.now(UTC).isoformat(timespec="seconds")}


async def answer(client: AsyncOpenAI, run: ConversationRun, question: str) -> str | None:
    """One run: ask the model, call the tools it wants, until it has answered."""
    run.add(from_openai([{"role": "user", "content": question}]))
    while True:
        messages = [SYSTEM, *convert(await run.messages(), "openai").messages]
        reply = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=[{"type": "function", "function": CLOCK}]
        )
        if used := reply.usage:
            run.record_usage(Usage(used.prompt_tokens, used.completion_tokens))
        said = reply.choices[0].message
        run.add(from_openai([said]), measured=used is not None)
        if not said.tool_calls:
            return said.content
        for call in said.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments or "{}"))
            run.add(from_openai([{"role": "tool", "tool_call_id": call.id, "content": result}]))


async def main(question: str) -> None:
    """Answer a question in the conversation so far."""
    url = "sqlite:///" + os.environ.get("CHATS", "chats.db")
    async with AsyncOpenAI() as client, open_storage(url) as storage:
        summarizer = LLMSummarizer(OpenAIChatModel(client, MODEL), token_threshold=20_000)
        manager = ConversationManager(storage, summarizer, provider="openai")
        async with await manager.start_run("me", "example", "assistant") as run:
            print(await answer(client, run, question))
        print(f"context: {run.context_tokens} tokens, spent: {await manager.usage('me')}")


if __name__ == "__main__":
    with a_model():
        asyncio.run(main(" ".join(sys.argv[1:]) or "What time is it?"))
