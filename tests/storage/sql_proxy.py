"""A small TCP proxy that loses connections where a network would."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Stands between a store and its server.

    Attributes:
        cut_before: bytes of the client's; when they come, the connection is cut before they
            reach the server. Once.
        cut_after: bytes of the client's; when they come, they reach the server, and the
            connection is cut when the server has answered, before the client hears of it. Once.
        refusing: whether new connections are cut at once.
        silent: whether nothing of the server's is passed on.
        seen: how many connections there have been.
    """

    def __init__(self, url):
        self._parts = urlsplit(url)
        self.upstream = self._parts.hostname, self._parts.port
        self.cut_before = self.cut_after = None
        self.refusing = self.silent = False
        self.seen = 0
        self._writers = set()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error):
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def url(self):
        """The server's URL, through the proxy."""
        host, port = self._server.sockets[0].getsockname()
        user = self._parts.netloc.rpartition("@")[0]
        return urlunsplit(self._parts._replace(netloc=f"{user}@{host}:{port}"))

    def cut(self):
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, client, to_client):
        self._tasks.add(asyncio.current_task())
        self.seen += 1
        self._writers.add(to_client)
        try:
            if not self.refusing:
                await self._connect(client, to_client)
        except OSError:
            pass  # the server is not there, or either side has gone
        finally:
            to_client.transport.abort()
            self._writers.discard(to_client)
            self._tasks.discard(asyncio.current_task())

    async def _connect(self, client, to_client):
        server, to_server = await asyncio.open_connection(*self.upstream)
        self._writers.add(to_server)
        connection = _Connection(self, to_client, to_server)
        there = asyncio.ensure_future(connection.pass_requests(client))
        back = asyncio.ensure_future(connection.pass_answers(server))
        try:
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_server.transport.abort()
            self._writers.discard(to_server)
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)


class _Connection:
    def __init__(self, proxy, to_client, to_server):
        self._proxy = proxy
        self._to_client, self._to_server = to_client, to_server
        self._last = False  # cut when the server answers

    async def pass_requests(self, client):
        while data := await client.read(65_536):
            before, after = self._proxy.cut_before, self._proxy.cut_after
            if before is not None and before in data:
                self._proxy.cut_before = None
                return
            if after is not None and after in data:
                self._proxy.cut_after = None
                self._last = True
            self._to_server.write(data)
            await self._to_server.drain()

    async def pass_answers(self, server):
        while data := await server.read(65_536):
            if self._last:
                return
            if not self._proxy.silent:
                self._to_client.write(data)
                await self._to_client.drain()
