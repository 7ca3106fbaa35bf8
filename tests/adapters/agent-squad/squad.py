"""Scripted parts for agent-squad: agents, a classifier, a model server that speaks Claude's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
from agent_squad.agents import Agent, AgentOptions, AgentStreamResponse
from agent_squad.classifiers import Classifier, ClassifierResult
from agent_squad.types import ConversationMessage

from agent_memory.adapters.agent_squad import to_agent_memory


def said(role, text, **fields):
    return ConversationMessage(role, [{"text": text}], **fields)


def texts(messages):
    return [message.content[0]["text"] for message in messages]


class Turns(Classifier):
    """Selects the agents in turn, after reading the history as every classifier does."""

    def __init__(self, *agents):
        super().__init__()
        self.order = agents
        self.histories = []

    async def process_request(self, input_text, chat_history):
        self.histories.append(self.history)
        agent = self.order[(len(self.histories) - 1) % len(self.order)]
        return ClassifierResult(agent, 0.9)


class Speaker(Agent):
    """Answers every question, and remembers the history it was given each time."""

    def __init__(self, name, *, streaming=False, save_chat=True):
        super().__init__(AgentOptions(name=name, description=f"does {name}", save_chat=save_chat))
        self.streaming = streaming
        self.given = []

    def is_streaming_enabled(self):
        return self.streaming

    async def process_request(
        self, input_text, user_id, session_id, chat_history, additional_params=None
    ):
        self.given.append([to_agent_memory(message) for message in chat_history])
        answer = said("assistant", f"{self.name} answers {input_text}", citations=[{"of": 1}])
        return self._stream(answer) if self.streaming else answer

    async def _stream(self, answer):
        for word in answer.content[0]["text"].split():
            yield AgentStreamResponse(text=word)
        yield AgentStreamResponse(final_message=answer)


@contextmanager
def claude(answer: Callable[[dict], list[dict]]) -> Iterator[anthropic.Anthropic]:
    """A client of a server whose model answers a request's body with content blocks."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": answer(body),
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
            payload = json.dumps(message).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        with anthropic.Anthropic(base_url=url, api_key="test-key") as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
