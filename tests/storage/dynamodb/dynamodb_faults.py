"""A proxy in front of an emulator of DynamoDB that does what emulators never do: fail."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import aiohttp
from aiohttp import web

Fault = Callable[[web.Request, bytes], Any]


class FaultyDynamoDb:
    """Forwards requests, counts them, and lets the next ones fail as told.

    Faults wait per operation (``"PutItem"``); each serves one request, in order.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._faults: dict[str, list[Any]] = {}
        self.requests: Counter[str] = Counter()
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self.closing = asyncio.Event()
        self.hanging = asyncio.Event()  # a request is, see `applies_then_hangs`
        self._session = aiohttp.ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.closing.set()
        await self._runner.cleanup()
        await self._session.close()

    def fail(self, operation: str, *faults: Any) -> None:
        """Let the next requests of one operation meet these faults."""
        self._faults.setdefault(operation, []).extend(faults)

    def counted(self) -> dict[str, int]:
        """Return how many requests there were since the last call, by operation."""
        counts, self.requests = dict(self.requests), Counter()
        return counts

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        body = await request.read()
        self.requests[operation] += 1
        self.bodies.append((operation, json.loads(body)))
        waiting = self._faults.get(operation)
        fault = waiting.pop(0) if waiting else passes
        return await fault(self, request, body)

    async def forward(self, request: web.Request, body: bytes) -> web.Response:
        """Let the emulator answer."""
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in ("host", "content-length", "transfer-encoding", "expect")
        }
        async with self._session.post(
            self._endpoint, data=_stream(body), headers=headers
        ) as answer:
            content = await answer.read()
            kept = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            return web.Response(status=answer.status, body=content, headers=kept)


async def _stream(body: bytes) -> Any:
    yield body  # aiohttp warns of large bodies that come in one piece


# ------------------------------------------------------------------------------------ faults


async def passes(proxy: FaultyDynamoDb, request: web.Request, body: bytes) -> web.Response:
    """No fault."""
    return await proxy.forward(request, body)


def refuses(code: str, status: int = 400) -> Any:
    """Answer with an error and do nothing."""

    async def fault(proxy: FaultyDynamoDb, request: web.Request, body: bytes) -> web.Response:
        return _error(code, status)

    return fault


throttles = refuses("ProvisionedThroughputExceededException")


def applies_then(code: str, status: int = 500) -> Any:
    """Do what is asked, and answer with an error all the same."""

    async def fault(proxy: FaultyDynamoDb, request: web.Request, body: bytes) -> web.Response:
        await proxy.forward(request, body)
        return _error(code, status)

    return fault


async def applies_then_cuts(
    proxy: FaultyDynamoDb, request: web.Request, body: bytes
) -> web.Response:
    """Do what is asked, and close the connection instead of answering."""
    await proxy.forward(request, body)
    return _cut(request)


async def cuts(proxy: FaultyDynamoDb, request: web.Request, body: bytes) -> web.Response:
    """Close the connection, having done nothing."""
    return _cut(request)


async def applies_then_hangs(
    proxy: FaultyDynamoDb, request: web.Request, body: bytes
) -> web.Response:
    """Do what is asked, and never answer."""
    await proxy.forward(request, body)
    proxy.hanging.set()
    await proxy.closing.wait()
    return _cut(request)


def first(action: Any) -> Any:
    """Run an action before the request is forwarded."""

    async def fault(proxy: FaultyDynamoDb, request: web.Request, body: bytes) -> web.Response:
        await action()
        return await proxy.forward(request, body)

    return fault


def applies_then_cuts_after(action: Any) -> Any:
    """Do what is asked, then run an action, then close the connection."""

    async def fault(proxy: FaultyDynamoDb, request: web.Request, body: bytes) -> web.Response:
        await proxy.forward(request, body)
        await action()
        return _cut(request)

    return fault


async def leaves_the_last_unprocessed(
    proxy: FaultyDynamoDb, request: web.Request, body: bytes
) -> web.Response:
    """Process all but the last request of a batch (nothing, if it is the only one)."""
    asked = json.loads(body)
    ((table, requests),) = asked["RequestItems"].items()
    if len(requests) > 1:
        asked["RequestItems"] = {table: requests[:-1]}
        await proxy.forward(request, json.dumps(asked).encode())
    answer = {"UnprocessedItems": {table: requests[-1:]}}
    return web.json_response(answer, content_type="application/x-amz-json-1.0")


async def leaves_all_but_the_first_unprocessed(
    proxy: FaultyDynamoDb, request: web.Request, body: bytes
) -> web.Response:
    """Process the first request of a batch."""
    return await _processes(proxy, request, body, slice(0, 1))


async def leaves_all_but_the_last_unprocessed(
    proxy: FaultyDynamoDb, request: web.Request, body: bytes
) -> web.Response:
    """Process the last request of a batch."""
    return await _processes(proxy, request, body, slice(-1, None))


async def _processes(
    proxy: FaultyDynamoDb, request: web.Request, body: bytes, which: slice
) -> web.Response:
    asked = json.loads(body)
    ((table, requests),) = asked["RequestItems"].items()
    asked["RequestItems"] = {table: requests[which]}
    await proxy.forward(request, json.dumps(asked).encode())
    left = [one for one in requests if one not in requests[which]]
    answer = {"UnprocessedItems": {table: left} if left else {}}
    return web.json_response(answer, content_type="application/x-amz-json-1.0")


async def answers_an_empty_page(
    proxy: FaultyDynamoDb, request: web.Request, body: bytes
) -> web.Response:
    """Answer a query with no items and a key to go on from that lies outside its range."""
    asked = json.loads(body)
    values = asked["ExpressionAttributeValues"]
    edge = values[":low"] if asked["ScanIndexForward"] else values[":high"]
    answer = {"Items": [], "Count": 0, "LastEvaluatedKey": {"pk": values[":user"], "sk": edge}}
    return web.json_response(answer, content_type="application/x-amz-json-1.0")


def _error(code: str, status: int) -> web.Response:
    answer = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected"}
    return web.json_response(answer, status=status, content_type="application/x-amz-json-1.0")


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:  # on a busy machine the client may have left
        request.transport.close()
    return web.Response()
