"""A model behind OpenAI's wire format that decides by what it is asked, and records it."""

from __future__ import annotations

import itertools
import json

import model_server
from model_server import ModelServer, Reply

USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "total_tokens": 15,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


class ScriptedModel:
    """Answers Responses requests: a question "name: …" makes it call that tool first.

    A question for several tools ("a+b: …") calls them at once. Each call comes after a reasoning
    item. What was called and answered is then said.
    """

    def __init__(
        self, server: ModelServer, *, first_id: int = 1, arguments: dict | None = None
    ) -> None:
        self._ids = itertools.count(first_id)
        self._arguments = arguments
        self.inputs: list[list[dict]] = []
        server.default = self

    def __call__(self, request: model_server.Request) -> Reply:
        asked = request.body["input"]
        self.inputs.append(asked)
        last = asked[-1]
        wanted = [] if last.get("role") != "user" else self._wanted(text_of(last), request)
        output = self._calls(wanted) if wanted else [self._answer(last)]
        response = model_server._response(output, "completed")
        return Reply(body={**response, "usage": USAGE})

    def _wanted(self, text: str, request: model_server.Request) -> list[str]:
        offered = {tool["name"] for tool in request.body.get("tools", [])}
        return [name for name in text.partition(":")[0].split("+") if name in offered]

    def _calls(self, names: list[str]) -> list[dict]:
        reasoning = {"type": "reasoning", "id": f"rs_{next(self._ids)}", "summary": []}
        return [reasoning, *map(self._call, names)]

    def _call(self, name: str) -> dict:
        number = next(self._ids)
        given = self._arguments or {"of": number}
        return {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": json.dumps({} if name.startswith("transfer_to") else given),
            "status": "completed",
        }

    def _answer(self, last: dict) -> dict:
        return {
            "type": "message",
            "id": f"msg_{next(self._ids)}",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": f"Answer to: {text_of(last)}",
                    "annotations": [],
                    "logprobs": [],
                }
            ],
        }


def text_of(item: dict) -> str:
    content = item.get("content", item.get("output"))
    return content if isinstance(content, str) else json.dumps(content)
