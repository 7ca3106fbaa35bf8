"""Asking a model again when it fails for now."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import Usage
from agent_memory.models.chat_model import Completion, ModelError

_log = logging.getLogger(__name__)


def _positive(_instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise InvalidRequestError(f"{attribute.name} must be more than 0, not {value!r}")


@attrs.frozen(kw_only=True)
class Retry:
    """How often, and after which pauses, a model is asked again after a transient failure.

    A pause is twice the one before, up to a limit, shortened at random by up to a half so that
    many clients do not come back at once; the provider's own ``retry-after`` goes before it.

    Args:
        attempts: how often the model is asked in all, at least 1.
        first_pause: seconds before the second attempt.
        max_pause: the longest pause, in seconds.
        give_up_after: seconds since the first attempt after which no further one begins. A
            provider that asks for a longer wait is not waited for.
        clock: gives monotonic seconds.
        sleep: waits for seconds.
        chance: gives a number from 0 to 1.

    Raises:
        InvalidRequestError: a figure is not above 0.
    """

    attempts: int = attrs.field(default=4, validator=_positive)
    first_pause: float = attrs.field(default=1.0, validator=_positive)
    max_pause: float = attrs.field(default=30.0, validator=_positive)
    give_up_after: float = attrs.field(default=120.0, validator=_positive)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def run(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        """Return the first answer; what failed attempts cost is added to its usage.

        Where the answer's own cost is unknown, so is the whole.

        Raises:
            ModelError: the last failure, with what all attempts cost.
        """
        began = self.clock()
        spent = Usage()
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await ask()
                cost = None if answer.usage is None else answer.usage + spent
                return Completion(answer.text, cost)
            except ModelError as error:
                error.usage += spent
                spent = error.usage
                pause = self._pause(attempt, error)
                waited = self.clock() - began + pause
                last = attempt >= self.attempts or waited > self.give_up_after
                if last or not error.transient:
                    raise
                _log.warning(
                    "the model failed (%s); asked again in %.1f s", type(error).__name__, pause
                )
            await self.sleep(pause)

    def _pause(self, attempt: int, error: ModelError) -> float:
        if error.retry_after is not None:
            return error.retry_after
        longest = min(self.first_pause * 2.0 ** (attempt - 1), self.max_pause)
        return longest * (1 - self.chance() / 2)
