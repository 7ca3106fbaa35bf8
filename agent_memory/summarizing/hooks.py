"""Calling the functions that an application hands in: plain or async, and never trusted."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TypeVar

from agent_memory.errors import InvalidRequestError
from agent_memory.events import CompactionRequest, Event

_log = logging.getLogger(__name__)
A = TypeVar("A")


class Hooks:
    """``on_event`` and ``before_compaction``; what they raise is logged and goes no further.

    Args:
        on_event: told of each event, or None.
        before_compaction: asked before a summarizer is; ``False`` vetoes. Or None.

    Raises:
        InvalidRequestError: one is no function.
    """

    def __init__(
        self,
        on_event: Callable[[Event], object] | None,
        before_compaction: Callable[[CompactionRequest], object] | None,
    ) -> None:
        for name, hook in (("on_event", on_event), ("before_compaction", before_compaction)):
            if hook is not None and not callable(hook):
                raise InvalidRequestError(f"{name} must be a function, not {hook!r}")
        self._on_event = on_event
        self._before_compaction = before_compaction

    async def emit(self, event: Event) -> None:
        """Tell ``on_event``."""
        if self._on_event is not None:
            await _call("on_event", self._on_event, event)

    async def allows(self, request: CompactionRequest) -> bool:
        """Whether ``before_compaction`` lets it go ahead; so it does where it fails."""
        if self._before_compaction is None:
            return True
        return await _call("before_compaction", self._before_compaction, request) is not False


async def _call(name: str, hook: Callable[[A], object], argument: A) -> object:
    try:
        result = hook(argument)
        return await result if inspect.isawaitable(result) else result
    except Exception:  # noqa: BLE001  foreign code; a chat never fails for who watches it
        _log.exception("%s failed at %s", name, type(argument).__name__)
        return None
