"""A gate: somebody waits at it, somebody else knows that, and opens it. No clocks."""

from __future__ import annotations

import asyncio


class Gate:
    """Holds whoever comes to it until it is opened.

    It belongs to the event loop that uses it first. Opened once, it stays open.
    """

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    def __repr__(self) -> str:
        state = "open" if self._open.is_set() else "closed"
        return f"<Gate {state}{', reached' if self._reached.is_set() else ''}>"

    @property
    def is_reached(self) -> bool:
        """Whether somebody has come to the gate."""
        return self._reached.is_set()

    async def reached(self) -> None:
        """Wait until somebody has come to the gate."""
        await self._reached.wait()

    def open(self) -> None:
        """Let everybody pass, now and later."""
        self._open.set()

    async def passed(self) -> None:
        """Come to the gate and wait until it is open."""
        self._reached.set()
        await self._open.wait()
