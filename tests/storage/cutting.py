"""A network that loses every connection sooner or later, and a caller that does not give up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from agent_memory import ChatKey, StorageUnavailableError
from agent_memory.storage import WrapperChatStorage

MOST_ATTEMPTS = 20


class CuttingProxy:
    """Forwards TCP, and resets each connection after a random number of bytes.

    What is under way is lost in either direction, in the middle of a request or of an answer.
    Each fifth connection carries `patient` times as much, so that long answers get through.

    Args:
        upstream: host and port of the server.
        lives: the fewest and the most bytes that a connection carries.
        patient: how many times as much each fifth connection carries.
        seed: of the random numbers.

    Attributes:
        cuts: how many connections have been reset.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        lives: tuple[int, int],
        *,
        patient: int = 100,
        seed: int = 0,
    ) -> None:
        self._upstream = upstream
        self._lives = lives
        self._patient = patient
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._count = 0
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def in_place_of(self, url: str) -> str:
        """The server's URL, through the proxy."""
        parts = urlsplit(url)
        host, port = self._server.sockets[0].getsockname()
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}{host}:{port}"))

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._forward(client, to_client)
        except (OSError, asyncio.CancelledError):
            pass  # either side has gone, or the proxy is closing
        finally:
            to_client.transport.abort()
            self._tasks.discard(task)

    async def _forward(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        server, to_server = await asyncio.open_connection(*self._upstream)
        self._count += 1
        left = [self._random.randint(*self._lives) * (1 if self._count % 5 else self._patient)]

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                carried = data[: left[0]]
                left[0] -= len(carried)
                target.write(carried)
                await target.drain()
                if left[0] == 0:
                    self.cuts += 1
                    return

        both = [
            asyncio.ensure_future(carry(client, to_server)),
            asyncio.ensure_future(carry(server, to_client)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_server.transport.abort()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)


class Persistent(WrapperChatStorage):
    """Calls again what ended as unavailable, as an application does whose network is bad."""

    async def _open(self) -> None:
        await _insist(super()._open)

    async def _append(self, key: ChatKey, entries: Sequence[Any]) -> Any:
        return await _insist(lambda: super(Persistent, self)._append(key, entries))

    async def _read(self, key: ChatKey, **range_: Any) -> Any:
        return await _insist(lambda: super(Persistent, self)._read(key, **range_))

    async def _fetch(self, key: ChatKey, limit: int | None) -> Any:
        return await _insist(lambda: super(Persistent, self)._fetch(key, limit))

    async def _forget(self, key: ChatKey, keep: int) -> int:
        return await _insist(lambda: super(Persistent, self)._forget(key, keep))


def persistent(make_storage: Callable[[], Any]) -> Persistent:
    """A store that `make_storage` makes, used with persistence; picklable as a partial."""
    return Persistent(make_storage())


async def _insist(call: Callable[[], Awaitable[Any]]) -> Any:
    for _ in range(MOST_ATTEMPTS - 1):
        try:
            return await call()
        except StorageUnavailableError:
            await asyncio.sleep(0)
    return await call()
