"""Backoff between attempts."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0


class Backoff:
    """Growing random pauses between attempts ("full jitter"), up to a time limit.

    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

    Args:
        seconds: when to give up.
        longest: the longest pause in seconds.
    """

    def __init__(self, seconds: float, longest: float = _LONGEST_PAUSE) -> None:
        self._deadline = time.monotonic() + seconds
        self._longest = longest
        self._ceiling = _FIRST_PAUSE

    @property
    def expired(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._deadline

    async def wait(self) -> None:
        """Sleep for a random time below a ceiling that doubles."""
        await asyncio.sleep(random.uniform(0, self._ceiling))  # noqa: S311 (no secret)
        self._ceiling = min(self._longest, 2 * self._ceiling)
