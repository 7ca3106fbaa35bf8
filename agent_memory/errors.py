"""The error hierarchy.

Every error this library raises on purpose is an :class:`AgentMemoryError`. Errors of the
database drivers, SDKs and the operating system are translated once, in the backend that
meets them, with the original as ``__cause__``.
"""

from __future__ import annotations

from agent_memory.base_errors import (
    AgentMemoryError,
    InvalidRequestError,
    MissingDependencyError,
)
from agent_memory.keys import ChatKey

__all__ = [
    "AgentMemoryError",
    "CorruptedRecordError",
    "InvalidRequestError",
    "InvalidSummaryError",
    "MessageTooLargeError",
    "MissingDependencyError",
    "StorageClosedError",
    "StorageConflictError",
    "StorageError",
    "StorageUnavailableError",
    "SummarizerError",
    "SummarizerTimeoutError",
]


class StorageError(AgentMemoryError):
    """A store could not do what was asked.

    Attributes:
        key: the chat concerned, where there is one.
        stored: ``False`` when nothing was stored; ``None`` when that cannot be known (a
            connection lost at commit). Save the same messages again to find out: message
            ids make it safe.
    """

    def __init__(
        self, message: str, *, key: ChatKey | None = None, stored: bool | None = False
    ) -> None:
        super().__init__(message)
        self.key = key
        self.stored = stored


class StorageUnavailableError(StorageError):
    """The database, service or disk does not answer, is full, locked or read-only.

    The same call may succeed later.
    """


class StorageConflictError(StorageError):
    """A message id is already in the chat with another role, content or extra."""


class StorageClosedError(StorageError):
    """The store has been closed."""


class MessageTooLargeError(StorageError):
    """A message exceeds what the backend can hold; the limit is in the text."""


class CorruptedRecordError(StorageError):
    """Something in the store cannot be read.

    Attributes:
        location: where it is: file, line and byte, or table and row.
        is_newer: whether a newer version wrote it, which can read it.
        record_id: the id of a damaged summary record, where the store knows it: it may be
            replaced under that id. None for one that a newer version wrote.
    """

    record_id: str | None = None

    def __init__(
        self,
        message: str,
        *,
        key: ChatKey | None = None,
        location: str = "",
        is_newer: bool = False,
    ) -> None:
        super().__init__(message, key=key)
        self.location = location
        self.is_newer = is_newer


class SummarizerError(AgentMemoryError):
    """A summarizer failed. The messages it was given are stored and still in the view."""


class SummarizerTimeoutError(SummarizerError):
    """A summarizer did not answer in time."""


class InvalidSummaryError(SummarizerError):
    """A summarizer returned something that is not a usable summary."""
