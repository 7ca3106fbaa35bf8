"""An agent to talk to: a scripted model that calls a tool, and what it was shown."""

from __future__ import annotations

import attrs
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel


@attrs.define
class Script:
    """Asks for the weather of what the user says, as often as it is told, then tells it."""

    rounds: int = 1
    seen: list[list[ModelMessage]] = attrs.field(factory=list)

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append(list(messages))
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart):
            return self._call(last.content, 1)
        assert isinstance(last, ToolReturnPart)
        if last.content["round"] < self.rounds:
            return self._call(last.content["city"], last.content["round"] + 1)
        return ModelResponse([TextPart(f"It is {last.content['degrees']} in that city.")])

    def _call(self, city: str, number: int) -> ModelResponse:
        call = ToolCallPart("weather", {"city": city, "number": number}, f"c-{len(self.seen)}")
        return ModelResponse([TextPart("Let me look."), call])


def weather(city: str, number: int) -> dict:
    """How the weather is in a city."""
    return {"city": city, "degrees": 21.5, "round": number}


def agent_of(script: Script, **options) -> Agent:
    options.setdefault("system_prompt", "Tell the weather.")
    model = FunctionModel(lambda messages, info: script(messages, info))  # noqa: PLW0108 (functions have names)
    return Agent(model, tools=[weather], **options)


def unpaired(messages: list[ModelMessage]) -> list[str]:
    """The calls without a result right behind them, and results without a call before."""
    found, waiting = [], set()
    for message in messages:
        results = {p.tool_call_id for p in message.parts if isinstance(p, ToolReturnPart)}
        if results or not isinstance(message, ModelResponse):
            found += waiting ^ results
            waiting = set()
        if isinstance(message, ModelResponse):
            found += waiting
            waiting = {p.tool_call_id for p in message.parts if isinstance(p, ToolCallPart)}
    return sorted(found + list(waiting))
