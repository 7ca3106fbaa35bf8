"""Opening a store once, whichever loop or thread uses it first, and closing it once."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Literal, Self, final

from agent_memory.errors import StorageClosedError, StorageUnavailableError
from agent_memory.storage._engine.handoff import result_of, run_uncancelled

# One lock for all stores: it is held for a few assignments only, and a store of a user's own
# need not call super().__init__() to have one.
_lock: Final = threading.Lock()


class Lifecycle:
    """What opens at its first use and is closed once."""

    _has_threads: bool = False
    """Whether opening starts threads, or binds to some: they do not survive a fork."""

    _process: int | None = None
    _phase: Literal["new", "open", "closed"] = "new"
    _opening: Future[bool] | None = None

    async def _open(self) -> None:
        """Open what the store needs; called once, before anything else."""

    async def _close(self) -> None:
        """Close what the store opened itself; called once, also if it was never opened."""

    @final
    async def aclose(self) -> None:
        """Close the store. Twice is fine; later calls raise ``StorageClosedError``."""
        with _lock:
            closed_before, self._phase = self._phase == "closed", "closed"
        if not closed_before and not self._is_forked:
            await run_uncancelled(self._close())

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @final
    async def _ready(self) -> None:
        """Open the store at its first use; at once when it is open.

        Raises:
            StorageClosedError: it has been closed.
        """
        if self._phase == "open":
            if self._is_forked:
                raise StorageUnavailableError(
                    "this store was opened in the parent process; its threads and connections "
                    "do not survive a fork. Make a store in each process"
                )
            return
        if self._phase == "new":
            await run_uncancelled(self._open_once())
        self._check_not_closed()

    @property
    def _is_forked(self) -> bool:
        return self._process is not None and self._process != os.getpid()

    def _check_not_closed(self) -> None:
        if self._phase == "closed":
            raise StorageClosedError(f"{type(self).__name__} is closed")

    async def _open_once(self) -> None:
        while True:
            with _lock:
                if self._phase != "new":
                    return
                opening, mine = self._opening, Future[bool]()
                if opening is None:
                    self._opening = mine
            if opening is None:
                await self._open_for_all(mine)
                return
            if await result_of(opening):
                return

    async def _open_for_all(self, opening: Future[bool]) -> None:
        try:
            await self._open()
            await self._opened()
        except asyncio.CancelledError:
            # Only the end of this loop, as at the end of asyncio.run, cancels the opening. Callers
            # in other loops go on: one of those that wait opens the store in its place.
            self._opening = None
            opening.set_result(False)
            raise
        except BaseException as error:
            self._opening = None
            opening.set_exception(error)
            raise
        opening.set_result(True)

    async def _opened(self) -> None:
        with _lock:
            self._opening = None
            if self._phase == "new":
                self._process = os.getpid() if self._has_threads else None
                self._phase = "open"
                return
        await self._close()  # it was closed while it opened
