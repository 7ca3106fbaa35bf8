"""Stands in for OpenAI's API where there is no key, so that the examples run anywhere.

It listens on this machine alone. It calls the first tool it is offered, then says what that gave.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
RESPONSES_USAGE = {
    "input_tokens": 40,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 8,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 48,
}


@contextmanager
def a_model() -> Iterator[None]:
    """Within it a client finds a model: yours if OPENAI_API_KEY is set, else this one."""
    if os.environ.get("OPENAI_API_KEY"):
        yield
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["OPENAI_API_KEY"] = "none"
    os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
    print("(no OPENAI_API_KEY: a script answers in place of a model)")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Answer a request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = _responses(body) if self.path.endswith("/responses") else _chat(body)
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    last, tools = body["messages"][-1], body.get("tools") or []
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if last["role"] == "tool":
        message["content"] = f"The tool says: {last['content']}"
    elif tools:
        function = {"name": tools[0]["function"]["name"], "arguments": "{}"}
        message["tool_calls"] = [
            {"id": f"call_{len(body['messages'])}", "type": "function", "function": function}
        ]
    else:
        message["content"] = "They talked about this and that."
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    named = {"id": "chat_1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**named, "choices": [choice], "usage": USAGE}


def _responses(body: dict[str, Any]) -> dict[str, Any]:
    items = body["input"] if isinstance(body["input"], list) else [{}]
    tools, number = body.get("tools") or [], len(items)
    item: dict[str, Any] = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
    if tools and items[-1].get("type") != "function_call_output":
        parameters = tools[0].get("parameters", {}).get("required", [])
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {
            "name": tools[0]["name"],
            "arguments": json.dumps(dict.fromkeys(parameters, "Oslo")),
        }
    else:
        text = f"The tool says: {items[-1].get('output', 'nothing')}"
        item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
    item["status"] = "completed"
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": RESPONSES_USAGE,
    }
