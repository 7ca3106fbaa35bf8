"""LangChain over SQLite, with summaries: every message kept, the chain given a short history.

    pip install '.[langchain,sql]'
    python examples/langchain_chat.py

It needs no model: a function answers. Run it again: the conversation goes on. CHATS (a file)
says where it is kept.
"""

import asyncio
import os

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda

from agent_memory import ExtractiveSummarizer, SummarizingChatStorage, open_storage
from agent_memory.adapters import AgentMemoryChatMessageHistory

PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Be brief."), MessagesPlaceholder("history")]
)


def answer(prompt: PromptValue) -> AIMessage:
    """Tell how much there was to see; put your chat model in its place."""
    return AIMessage(f"I was given {len(prompt.to_messages())} messages.")


async def main() -> None:
    """Say thirty things."""
    url = "sqlite:///" + os.environ.get("CHATS", "langchain.db")
    async with open_storage(url) as raw:
        storage = SummarizingChatStorage(raw, ExtractiveSummarizer(), trigger_at=8, keep_last=2)

        chain = PROMPT | RunnableLambda(answer)
        for number in range(30):
            history = AgentMemoryChatMessageHistory(storage, user_id="me", session_id="example")
            await history.aadd_messages([HumanMessage(f"thing {number}")])
            reply = await chain.ainvoke({"history": await history.aget_messages()})
            await history.aadd_messages([reply])
        print(reply.text)
        print(f"in the log: {len(await raw.fetch_all_chats('me', 'example'))}")


if __name__ == "__main__":
    asyncio.run(main())
