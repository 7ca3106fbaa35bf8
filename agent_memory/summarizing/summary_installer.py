"""Putting a summary into the store and the view, whoever else does the same at that moment."""

from __future__ import annotations

import logging
import threading
import time

from agent_memory.errors import CorruptedRecordError, StorageError
from agent_memory.events import Compacted
from agent_memory.messages import ChatKey
from agent_memory.records import SummaryRecord
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizing.buffers import Buffer, Flight
from agent_memory.summarizing.draft import Proposal
from agent_memory.summarizing.loader import ViewReader

_log = logging.getLogger(__name__)


class SummaryInstaller:
    """Installs proposals.

    Args:
        storage: whose summary store keeps the records.
        lock: guards what is changed; it is never held while the store works.
        reader: reads a view anew when another worker's summary is adopted.
    """

    def __init__(self, storage: ChatStorage, lock: threading.RLock, reader: ViewReader) -> None:
        self._storage = storage
        self._lock = lock
        self._reader = reader

    async def install(
        self,
        buffer: Buffer,
        generation: int,
        proposal: Proposal,
        started: float,
        *,
        flight: Flight | None = None,
    ) -> Compacted | None:
        """Store the record, then replace the prefix of the view that it was made from.

        Args:
            buffer: whose view it is.
            generation: the buffer's when the snapshot was taken.
            proposal: the summary.
            started: when the attempt began.
            flight: the buffer's compaction that this belongs to; None where there are none.

        Returns:
            What happened; None when the chat was deleted, trimmed or read anew meanwhile, or
            when another compaction took the place of this one.
        """
        record = proposal.record
        if buffer.flight is not flight:
            return None  # its loop had stopped, and somebody went on without it
        written = await self._write(buffer, record)
        if written is False:
            adopted = await self._adopt(buffer, generation, record)
            if adopted is not None:
                return _compacted(buffer, proposal, adopted, started)
        with self._lock:
            if buffer.generation != generation or buffer.view is not proposal.view:
                return None
            if buffer.flight is not flight:
                return None
            stored_id = record.id if written else proposal.view.record_id
            proposal.view.splice(proposal.snapshot, proposal.compaction, stored_id)
            buffer.unsaved = record if written is None else None
        return _compacted(buffer, proposal, record, started)

    async def _write(self, buffer: Buffer, record: SummaryRecord) -> bool | None:
        """Write a record.

        Returns:
            True if it is the newest now; False if another is, or if the chat was cut; None if
            it could not be written, or there is nowhere to write it.
        """
        summaries = self._storage.summaries()
        if summaries is None:
            return None
        try:
            return await summaries.save_summary(buffer.key, record, replaces=record.replaces)
        except StorageError as error:
            _log.warning("summary of %s not stored yet: %s", buffer.key, error)
            return None

    async def write_unsaved(self, buffer: Buffer) -> None:
        """Try once more to write a record that could not be written."""
        record, view = buffer.unsaved, buffer.view
        if record is None or view is None or self._storage.summaries() is None:
            return
        written = await self._write(buffer, record)
        with self._lock:
            if buffer.unsaved is record and written is not None:
                buffer.unsaved = None
                if written and buffer.view is view:
                    view.record_id = record.id

    async def _adopt(
        self, buffer: Buffer, generation: int, record: SummaryRecord
    ) -> SummaryRecord | None:
        """Take over the record that won; None if there is none that fits the log."""
        newest = await self._reader.newest_record(buffer.key)
        if newest is None and record.replaces is not None and await self._has_none(buffer.key):
            # Another worker forgot the summaries, to have the view made from the raw log.
            with self._lock:
                if buffer.generation == generation:
                    buffer.void()
        if newest is None or newest.id == record.replaces:
            # Not another record won: the chat was cut, which this notices.
            await self._reader.current(buffer, check=True)
            return None
        with self._lock:
            if buffer.generation == generation:
                buffer.void()
        view = await self._reader.current(buffer, check=False)
        return newest if view.record_id == newest.id else None

    async def _has_none(self, key: ChatKey) -> bool:
        summaries = self._storage.summaries()
        try:
            return summaries is not None and await summaries.load_summary(key) is None
        except CorruptedRecordError:
            return False  # there is one, of a newer version perhaps


def _compacted(
    buffer: Buffer, proposal: Proposal, shown: SummaryRecord, started: float
) -> Compacted:
    return Compacted(
        key=buffer.key,
        record=shown,
        messages_before=proposal.record.messages_before,
        messages_after=shown.messages_after,
        clipped=proposal.clipped,
        unpinned=len(proposal.snapshot.demoted),
        adopted=shown is not proposal.record,
        duration=time.monotonic() - started,
    )
