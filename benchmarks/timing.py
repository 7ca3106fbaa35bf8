"""Measuring: two things in turn, so that a slow moment of the machine hits both."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable

import attrs

Work = Callable[[], Awaitable[object]]


@attrs.frozen
class Pair:
    """Median times of two kinds of work, in seconds, and how the second compares."""

    first: float
    second: float

    @property
    def ratio(self) -> float:
        return self.second / self.first


async def in_turn(first: Work, second: Work, *, samples: int) -> Pair:
    """Do both kinds of work `samples` times, now one before the other, now the other way."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(samples):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which].append(await timed((first, second)[which]))
    return Pair(statistics.median(times[0]), statistics.median(times[1]))


async def timed(work: Work) -> float:
    """Return how long one piece of work takes, in seconds."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


async def processed(work: Work) -> float:
    """Return what one piece of work takes of the processor, in seconds, in all threads.

    It does not count waiting, for the disk or for other processes, and is hence the steadier
    figure where the machine is busy.
    """
    start = time.process_time()
    await work()
    return time.process_time() - start


def fsync_seconds(directory: str | None = None, *, samples: int = 50) -> float:
    """Return the median time that 4 KB appended and synced to the disk take here."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(samples):
            start = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times)
