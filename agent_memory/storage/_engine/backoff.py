"""Growing random delays between attempts, up to a deadline."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

_FIRST: Final = 0.02
_LONGEST: Final = 1.0


class Backoff:
    """Delays of a random length below a ceiling that doubles ("full jitter").

    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

    Args:
        seconds: after which no further attempt should begin.
        longest: the highest ceiling, in seconds.
        first: the first ceiling, in seconds.
        clock: the time in seconds, for tests.
    """

    def __init__(
        self,
        seconds: float,
        longest: float = _LONGEST,
        *,
        first: float = _FIRST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._deadline = clock() + seconds
        self._longest = longest
        self._ceiling = min(first, longest)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock() >= self._deadline

    def next_delay(self) -> float:
        """Return how many seconds to wait before the next attempt; never past the deadline."""
        delay = random.uniform(0, self._ceiling)  # noqa: S311 - jitter, no secret
        self._ceiling = min(self._longest, 2 * self._ceiling)
        return max(0.0, min(delay, self._deadline - self._clock()))

    async def wait(self) -> None:
        """Sleep for the next delay."""
        await asyncio.sleep(self.next_delay())
