"""Notices what a test leaves behind: threads, asyncio tasks, file descriptors."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import threading
import time

import attrs

from servers import kept_fds

_FDS = "/proc/self/fd"
_PATIENCE_SECONDS = 30.0  # a thread that was told to end needs a moment
_GARBAGE_SECONDS = 0.1
# Opened once in a process's life by the interpreter or a library, and meant to stay.
_FOR_GOOD = ("/dev/urandom", "/dev/null", ".hypothesis", ".pyc")


@attrs.frozen
class Snapshot:
    """The threads and file descriptors there are at one moment."""

    threads: frozenset[threading.Thread]
    fds: frozenset[tuple[int, str]]

    @classmethod
    def now(cls) -> Snapshot:
        return cls(frozenset(threading.enumerate()), frozenset(_open_fds()))

    def left_over(self) -> list[str]:
        """What is there now and was not then, once it had time to end."""
        begun, pause, collected = time.monotonic(), 0.001, False
        while left := self._new():
            waited = time.monotonic() - begun
            if waited > _PATIENCE_SECONDS:
                break
            if waited > _GARBAGE_SECONDS and not collected:
                gc.collect()  # slow, and needed only for what hangs in a circle
                collected = True
            time.sleep(pause)  # polling threads that end, bounded above
            pause = min(0.05, pause * 2)
        return left

    def _new(self) -> list[str]:
        now = Snapshot.now()
        threads = [f"thread {t.name!r}" for t in now.threads - self.threads if t.is_alive()]
        return threads + [f"descriptor {number}: {name}" for number, name in now.fds - self.fds]


def _open_fds() -> list[tuple[int, str]]:
    if not os.path.isdir(_FDS):  # noqa: PTH112 - strings: this runs twice for each test
        return []
    found = []
    for entry in os.listdir(_FDS):  # noqa: PTH208
        number = int(entry)
        try:
            name = os.readlink(f"{_FDS}/{entry}")  # noqa: PTH115
        except OSError:  # the descriptor of this very listing
            continue
        if number not in kept_fds and not any(part in name for part in _FOR_GOOD):
            found.append((number, name))
    return found


abandoned: list[str] = []
"""The tasks that were still running when their event loop ended."""


def watch_event_loops() -> None:
    """Record tasks that a loop of the main thread cancels at its end."""
    cancel_all = asyncio.runners._cancel_all_tasks

    def recording(loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is threading.main_thread():
            # A generator left half-way by ``break`` is closed in a task that is no coroutine.
            tasks = [t for t in asyncio.all_tasks(loop) if inspect.iscoroutine(t.get_coro())]
            abandoned.extend(f"task {task!r}" for task in tasks)
        cancel_all(loop)

    asyncio.runners._cancel_all_tasks = recording
