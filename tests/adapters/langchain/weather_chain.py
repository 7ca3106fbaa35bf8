"""A chain to talk to: a scripted chat model that calls a tool, and the loop around it."""

from __future__ import annotations

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from pydantic import Field


@tool(response_format="content_and_artifact")
def weather(city: str) -> tuple[str, dict]:
    """How the weather is in a city."""
    return f"sunny in {city}", {"city": city, "degrees": 21.5}


class ScriptedModel(BaseChatModel):
    """Asks for the weather of what the user says, then tells it; remembers what it was shown."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        self.seen.append(list(messages))
        count = len(self.seen)
        usage = {"input_tokens": len(messages), "output_tokens": 5, "total_tokens": 0}
        fields = {"usage_metadata": usage, "response_metadata": {"model_name": "scripted"}}
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "weather", "args": {"city": messages[-1].text}, "id": f"call-{count}"}
            reply = AIMessage("", tool_calls=[call], **fields)
        else:
            reply = AIMessage(f"It is {messages[-1].text}.", name="forecaster", **fields)
        return ChatResult(generations=[ChatGeneration(message=reply)])


PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Tell the weather."), MessagesPlaceholder("history"), ("human", "{question}")]
)


def chain_of(model):
    """Prompt, model, tool and model again; gives the new messages."""

    def loop(prompt) -> list[BaseMessage]:
        new = [model.invoke(prompt)]
        while new[-1].tool_calls:
            new += [weather.invoke(call) for call in new[-1].tool_calls]
            new.append(model.invoke([*prompt.to_messages(), *new]))
        return new

    async def aloop(prompt) -> list[BaseMessage]:
        new = [await model.ainvoke(prompt)]
        while new[-1].tool_calls:
            new += [await weather.ainvoke(call) for call in new[-1].tool_calls]
            new.append(await model.ainvoke([*prompt.to_messages(), *new]))
        return new

    return PROMPT | RunnableLambda(loop, aloop)
