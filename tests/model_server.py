"""A model server for tests: OpenAI's wire format on loopback, failing on command.

It speaks Chat Completions and Responses, so that the real ``openai`` client can talk to it::

    async with ModelServer() as server:
        server.script(rate_limited(retry_after=2), answer("The summary."))
        model = OpenAIChatModel(server.client(), "test-model")
        ...
        assert server.requests[0].transcript ...

Each request takes the next step of the script; when the script is over, `server.default` makes
the answer. A step is a function of the request that returns a :class:`Reply`. The server
records what it got, and adds up the usage that it reported.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Self

import attrs
import openai
from aiohttp import web

from agent_memory.messages import Usage
from agent_memory.tokens import estimate_text_tokens


@attrs.frozen
class Request:
    """What the server got.

    Attributes:
        api: ``"chat"`` or ``"responses"``.
        instruction: the system prompt.
        transcript: the user's message.
        body: the whole JSON body.
        headers: the HTTP headers, names in lower case.
    """

    api: str
    instruction: str
    transcript: str
    body: dict
    headers: dict

    @property
    def tokens(self) -> int:
        """About how many tokens the request takes."""
        return estimate_text_tokens(self.instruction) + estimate_text_tokens(self.transcript)


@attrs.frozen
class Reply:
    """What the server says: a completion, or an HTTP answer as it is.

    Args:
        text: the model's text, or None for none.
        refusal: the model's refusal.
        finish: Chat's finish reason; Responses' status follows from it.
        reasoning: reasoning tokens; in Responses a reasoning item comes first, too.
        cached: cached input tokens.
        status: an HTTP status other than 200 makes `body` the answer.
        body: the HTTP body, text or something for JSON.
        headers: further HTTP headers.
        drop: close the connection without an answer.
    """

    text: str | None = None
    refusal: str | None = None
    finish: str = "stop"
    reasoning: int = 0
    cached: int = 0
    status: int = 200
    body: object = None
    headers: dict = attrs.field(factory=dict)
    drop: bool = False


Step = Callable[[Request], Reply]


def answer(text: str, *, reasoning: int = 0, cached: int = 0) -> Step:
    """The model says `text`."""
    return lambda request: Reply(text, reasoning=reasoning, cached=cached)


def parts(*content: dict, reported: bool = True) -> Step:
    """Chat: the model's content is a list of parts; the cost is reported or not."""

    def step(request: Request) -> Reply:
        body = _completion(Reply(), Usage(20, 10))
        body["choices"][0]["message"]["content"] = list(content)
        if not reported:
            del body["usage"]
        return Reply(body=body)

    return step


def refused(text: str = "I cannot help with that.") -> Step:
    """The model refuses."""
    return lambda request: Reply(refusal=text)


def filtered() -> Step:
    """The provider's content filter stops the answer."""
    return lambda request: Reply("Part of", finish="content_filter")


def truncated(text: str = "The user wants to") -> Step:
    """The answer reaches its limit of tokens."""
    return lambda request: Reply(text, finish="length")


def failing(status: int, message: str = "trouble", code: str | None = None, **headers) -> Step:
    """An error in OpenAI's form; header names are written with underscores."""
    body = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return lambda request: Reply(status=status, body=body, headers=named)


def rate_limited(retry_after: float | None = None) -> Step:
    """429, perhaps with a time to wait."""
    headers = {} if retry_after is None else {"retry_after": retry_after}
    return failing(429, "Rate limit reached", "rate_limit_exceeded", **headers)


def out_of_quota() -> Step:
    """429 that waiting does not help."""
    return failing(429, "You exceeded your current quota", "insufficient_quota")


def unauthorized() -> Step:
    """401: a wrong key."""
    return failing(401, "Incorrect API key provided", "invalid_api_key")


def overflow(window: int = 8192) -> Step:
    """400: the request does not fit the model's window."""
    message = f"This model's maximum context length is {window} tokens."
    return failing(400, message, "context_length_exceeded")


def dropped() -> Step:
    """The connection ends without an answer."""
    return lambda request: Reply(drop=True)


def bad_json() -> Step:
    """200 with a body that is cut off."""
    return lambda request: Reply(body='{"id": "x", "choices": [{"mess')


def empty_object() -> Step:
    """200 with ``{}``."""
    return lambda request: Reply(body={})


def failed(code: str) -> Step:
    """Responses: 200 with status ``failed``."""
    error = {"code": code, "message": "it failed"}
    return lambda request: Reply(body=_response([], "failed", error=error))


class ModelServer:
    """See the module."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.reported = Usage()
        self.window: int | None = None
        self.default: Step = answer("The summary.")
        self.hold: asyncio.Event | None = None
        self._arrived = asyncio.Condition()
        self.arrived = asyncio.Event()
        self._steps: deque[Step] = deque()
        self._clients: list[openai.AsyncOpenAI] = []

    def script(self, *steps: Step) -> None:
        """Set what the next requests get, in order."""
        self._steps.extend(steps)

    async def reached(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    def client(self, **options) -> openai.AsyncOpenAI:
        """A real client for this server; closed with it."""
        client = openai.AsyncOpenAI(base_url=self.base_url, api_key="test-key", **options)
        self._clients.append(client)
        return client

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.hold is not None:
            self.hold.set()
        for client in self._clients:
            await client.close()
        await self._runner.cleanup()

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        says = {message["role"]: message["content"] for message in body["messages"]}
        request = _request("chat", says.get("system", ""), says["user"], body, http)
        return await self._reply(http, request)

    async def _responses(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        request = _request("responses", body.get("instructions") or "", body["input"], body, http)
        return await self._reply(http, request)

    async def _reply(self, http: web.Request, request: Request) -> web.StreamResponse:
        self.requests.append(request)
        async with self._arrived:
            self._arrived.notify_all()
        self.arrived.set()
        step = self._steps.popleft() if self._steps else self.default
        if self.hold is not None:
            await self.hold.wait()
        if self.window is not None and request.tokens > self.window:
            step = overflow(self.window)
        reply = step(request)
        if reply.drop:
            http.transport.close()
            return web.Response()
        return web.Response(
            status=reply.status,
            text=reply.body
            if isinstance(reply.body, str)
            else json.dumps(self._body(request, reply)),
            content_type="application/json",
            headers=reply.headers,
        )

    def _body(self, request: Request, reply: Reply) -> object:
        if reply.body is not None:
            return reply.body
        output = estimate_text_tokens(reply.text or reply.refusal or "") + reply.reasoning
        usage = Usage(request.tokens, output, reply.cached, reply.reasoning)
        self.reported += usage
        return (_completion if request.api == "chat" else _responded)(reply, usage)


def _request(api, instruction, transcript, body, http) -> Request:
    headers = {name.lower(): value for name, value in http.headers.items()}
    return Request(api, instruction, transcript, body, headers)


def _completion(reply: Reply, usage: Usage) -> dict:
    message = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": "test-model",
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
        ],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        },
    }


def _responded(reply: Reply, usage: Usage) -> dict:
    output: list[dict] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": "Thinking about it."}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": summary})
    content: list[dict] = []
    if reply.text is not None:
        content.append({"type": "output_text", "text": reply.text, "annotations": []})
    if reply.refusal is not None:
        content.append({"type": "refusal", "refusal": reply.refusal})
    output.append(
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    )
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = reasons.get(reply.finish)
    details = None if reason is None else {"reason": reason}
    response = _response(output, "incomplete" if reason else "completed", details=details)
    response["usage"] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    return response


def _response(output, status, *, error=None, details=None) -> dict:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_750_000_000,
        "model": "test-model",
        "status": status,
        "error": error,
        "incomplete_details": details,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
