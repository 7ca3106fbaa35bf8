"""The contract of summary stores: :class:`SummaryStore`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from agent_memory.keys import ChatKey
from agent_memory.log import SummaryRecord


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
