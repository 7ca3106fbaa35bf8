"""A function that waits for its turn, and the reply that its caller waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

from agent_memory.errors import StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.handoff import Handoff
from agent_memory.storage.sql.errors import TransactionFailedError
from agent_memory.storage.sql.session import Session

T = TypeVar("T")


@attrs.frozen(eq=False)
class Job(Generic[T]):
    """One piece of work.

    Attributes:
        work: what to do with a session.
        key: the chat concerned, for errors.
        reply: where the caller waits.
    """

    work: Callable[[Session], T]
    key: ChatKey | None
    reply: Handoff[T] = attrs.field(factory=Handoff)  # pyright: ignore[reportUnknownVariableType]

    def run(self, session: Session) -> None:
        """Do the work and tell the caller."""
        try:
            result = self.work(session)
        except BaseException as error:
            # Whatever it is, the caller waits and must be told.
            self.reply.set_exception(told(error, self.key))
            if not isinstance(error, Exception):
                raise
        else:
            self.reply.set_result(result)


def told(error: BaseException, key: ChatKey | None) -> BaseException:
    """Return an error as a caller should see it."""
    if isinstance(error, TransactionFailedError):
        return error.translated(key)
    if isinstance(error, asyncio.CancelledError):
        # Not the caller's own cancellation: its loop ends, and the engine's work with it.
        ended = StorageUnavailableError(
            "the event loop that runs the database engine is ending; whether it was stored is "
            "unknown",
            key=key,
            stored=None,
        )
        ended.__cause__ = error
        return ended
    return error
