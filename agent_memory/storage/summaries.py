"""Keeping summary records: the contract, and a summary store made of three hooks."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.keys import ChatKey
from agent_memory.log import SummaryRecord

_log: Final = logging.getLogger(__name__)

Found: TypeAlias = Sequence[SummaryRecord | CorruptedRecordError]
"""Records as they were read: in place of one that cannot be, the error that says why."""


class SummaryStore(ABC):
    """Where summary records live, beside the chats they belong to.

    A record is written whole or not at all and is never needed: a view can always be rebuilt
    from the raw log. Deleting or trimming a chat voids its records in the same step.
    """

    @abstractmethod
    async def save_summary(
        self, key: ChatKey, record: SummaryRecord, *, replaces: str | None
    ) -> bool:
        """Store a record if its predecessor is still the newest.

        Args:
            key: which chat.
            record: what to store.
            replaces: the id of the record that must be the newest one now; None if there
                must be none.

        Returns:
            Whether it was stored. False when another record is the newest, when the chat's
            floor is not the record's, or when the record reaches no further than the floor
            or beyond the log: only the store can keep a late summary of erased text out.
            Storing the newest record once more returns True and changes nothing.
        """

    @abstractmethod
    async def load_summary(self, key: ChatKey) -> SummaryRecord | None:
        """Return the newest record, or None.

        Raises:
            CorruptedRecordError: it cannot be read, or was written by a newer version (its
                `is_newer` tells). A damaged one may be replaced: by a record that names its
                `record_id`.
        """

    @abstractmethod
    async def list_summaries(self, key: ChatKey) -> list[SummaryRecord]:
        """Return all readable records of the chat, oldest first."""

    @abstractmethod
    async def forget_summaries(self, key: ChatKey) -> int:
        """Remove all records of the chat and return how many there were."""


class ReadRecords(Protocol):
    """Reads a chat's records, oldest first: all, or no more than the newest. A backend's hook."""

    def __call__(self, key: ChatKey, *, newest_only: bool) -> Awaitable[Found]:
        """Return them."""
        ...


@attrs.frozen
class StoredSummaries(SummaryStore):
    """A summary store made of a backend's three hooks.

    They are bound methods of the chat store, which is thus kept alive, and each opens it at its
    first use. A cancelled write must not be left in flight.

    Attributes:
        put_record: does what :meth:`SummaryStore.save_summary` promises.
        records: reads records; those that a trim made void are left out.
        drop_records: removes all of them and returns how many there were.
    """

    put_record: Callable[[ChatKey, SummaryRecord, str | None], Awaitable[bool]]
    records: ReadRecords
    drop_records: Callable[[ChatKey], Awaitable[int]]

    async def save_summary(
        self, key: ChatKey, record: SummaryRecord, *, replaces: str | None
    ) -> bool:
        """Store a record if its predecessor is still the newest."""
        return await self.put_record(key, record, replaces)

    async def load_summary(self, key: ChatKey) -> SummaryRecord | None:
        """Return the newest record, or None."""
        for newest in await self.records(key, newest_only=True):
            if isinstance(newest, CorruptedRecordError):
                raise newest
            return newest
        return None

    async def list_summaries(self, key: ChatKey) -> list[SummaryRecord]:
        """Return all readable records, oldest first."""
        readable: list[SummaryRecord] = []
        for record in await self.records(key, newest_only=False):
            if isinstance(record, CorruptedRecordError):
                _log.warning("unreadable summary record: %s", record)
            else:
                readable.append(record)
        return readable

    async def forget_summaries(self, key: ChatKey) -> int:
        """Remove all records of the chat and return how many there were."""
        return await self.drop_records(key)
