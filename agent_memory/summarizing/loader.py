"""Bringing a buffer's view up to what the log holds.

One way serves the first fetch, restarts, gaps, lost answers and other writers: read from the
newest entry known, compare its id and the floor, take the rest or start over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import LogSlice, SummaryRecord, since_cleared
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage._engine.event_loops import SharedTask, run_fairly
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizing.buffers import Buffer, Peek
from agent_memory.summarizing.view import ChatView

_log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 5_000  # entries that a view takes over within a step of the loop


class ViewLoader:
    """Reads the logs of a store into buffers.

    Args:
        storage: the store.
        lock: guards what is changed; it is never held while the store works.
        count: counts the tokens of a message; None where the trigger needs none.
        present: changes what the views show, or None.
    """

    def __init__(
        self,
        storage: ChatStorage,
        lock: threading.RLock,
        count: Callable[[ConversationMessage], int] | None,
        present: Callable[[list[ConversationMessage]], list[ConversationMessage]] | None,
    ) -> None:
        self._storage = storage
        self._lock = lock
        self._count = count
        self._present = present

    async def peek(self, key: ChatKey, peek: Peek) -> ChatView | None:
        """Read the end of a chat; return the view of its whole log, None when it has more entries.

        The view may begin after the newest note that retracts everything before it.
        """
        log = peek.log = await self._read(key, last=peek.most)
        entries = since_cleared(log.entries)
        if peek.whole is None and len(entries) == len(log.entries):
            return None
        log = LogSlice(entries, log.floor)
        return ChatView.of(log, count=self._count, present=self._present)

    async def current(self, buffer: Buffer, *, check: bool, peek: Peek | None = None) -> ChatView:
        """Return the buffer's view, showing everything that is known to be stored.

        Args:
            buffer: holds the view.
            check: read the log even if nothing is known to be missing: others may have written.
            peek: what has been seen of the chat just now, to spare another read.
        """
        while True:
            view = buffer.view
            if view is None:
                mine = await self._load(buffer, peek)
                # Another caller's load may have read before what this one must show was stored.
                check, peek = check and not mine, None
                continue
            if (buffer.is_current and not check) or await self._catch_up(buffer, view):
                return view

    async def _catch_up(self, buffer: Buffer, view: ChatView) -> bool:
        """Read what follows the view; False when it must be looked at again."""
        with self._lock:
            if buffer.view is not view:
                return False
            buffer.stale = False  # before the read: a failure during the read sets it again
            last, last_id, acknowledged = view.last, view.last_id, buffer.acknowledged_to
        try:
            # From the newest known entry on: its id shows whether this is still the same log, or
            # one that was begun after a deletion and a purge.
            log = await self._read(buffer.key, after=max(last - 1, view.floor))
        except BaseException:
            buffer.stale = True
            raise
        with self._lock:
            if buffer.view is not view:
                return False
            # A longer log is loaded from scratch, which is done in a thread.
            same = (
                len(log.entries) <= _MOST_AT_ONCE
                and log.floor == view.floor
                and (last == view.floor or _begins_with(log, last, last_id))
            )
            if same and view.append(log.entries) and view.last >= acknowledged:
                buffer.take_out_of_order(view)
                return True
            if view.needs_reload:
                buffer.retract()
            else:
                buffer.reset()
            return False

    async def _load(self, buffer: Buffer, peek: Peek | None) -> bool:
        """Load the view; concurrent callers wait for the same read.

        Returns:
            Whether it was this call's own read.
        """
        mine = SharedTask[None]()
        with self._lock:
            loading = buffer.loading
            if loading is not None and not loading.is_live:
                loading = None  # its loop has stopped or was closed
            if loading is None:
                buffer.loading = mine
                buffer.stale = False
            generation, acknowledged = buffer.generation, buffer.acknowledged_to
            if peek is not None and peek.outdated:
                peek = None
        if loading is not None:
            await loading.wait()
            return False
        try:
            view = await self._make(buffer, peek)
            with self._lock:
                # If this loop stopped for a time, another load may have replaced this one.
                if buffer.generation == generation and buffer.loading is mine:
                    buffer.view = view
                    buffer.take_out_of_order(view)
                    # No save of ours came during the read: what it did not find is not in the log.
                    if buffer.acknowledged_to == acknowledged:
                        buffer.acknowledged_to = min(acknowledged, view.last)
        finally:
            with self._lock:
                if buffer.loading is mine:
                    buffer.loading = None
            mine.finish()
        return True

    async def _make(self, buffer: Buffer, peek: Peek | None) -> ChatView:
        key = buffer.key
        record, damaged = await self._newest(key)
        if record is not None:
            view = await self._restored(key, record, peek)
            if view is not None:
                return view
        log = None if peek is None else peek.whole
        log = await self._read(key) if log is None else log
        view = await run_fairly(
            len(log.entries),
            lambda: ChatView.of(log, count=self._count, present=self._present),
        )
        view.supersedes = damaged if record is None else record.id
        return view

    async def _restored(
        self, key: ChatKey, record: SummaryRecord, peek: Peek | None
    ) -> ChatView | None:
        """Return the view that a record left, if it fits the log."""
        log = None if peek is None else peek.since(record.position)
        if log is not None:
            view = ChatView.restored(record, log, count=self._count, present=self._present)
            if view is not None:
                return view
            # The record may have been made after that read.
        log = await self._read(key, after=record.position - 1)
        return await run_fairly(
            len(log.entries),
            lambda: ChatView.restored(record, log, count=self._count, present=self._present),
        )

    async def _read(self, key: ChatKey, *, after: int = 0, last: int | None = None) -> LogSlice:
        ids = key.user_id, key.session_id, key.agent_id
        return await self._storage.read_log(*ids, after=after, last=last)

    async def adopt_newer(self, buffer: Buffer, view: ChatView) -> ChatView:
        """Return the view of a newer summary by another worker, or else the same view."""
        record = await self.newest_record(buffer.key)
        if (
            record is None
            or record.id == view.record_id
            or record.position <= view.covered_through
        ):
            return view
        return await self.reload(buffer, view)

    async def reload(self, buffer: Buffer, view: ChatView | None) -> ChatView:
        """Drop a view that another record took the place of, and return the one that it shows.

        Args:
            buffer: holds the view.
            view: nothing is dropped where it is another one already.
        """
        with self._lock:
            if buffer.view is view:
                buffer.reset()
        return await self.current(buffer, check=False)

    async def newest_record(self, key: ChatKey) -> SummaryRecord | None:
        """Return the newest summary record, None if there is none that can be read."""
        return (await self._newest(key))[0]

    async def _newest(self, key: ChatKey) -> tuple[SummaryRecord | None, str | None]:
        """Return the newest record, and the id of one that is damaged and may be replaced."""
        summaries = self._storage.summaries()
        if summaries is None:
            return None, None
        try:
            return await summaries.load_summary(key), None
        except CorruptedRecordError as error:
            _log.warning(
                "summary of %s ignored, the view is made from raw %s: %s",
                key,
                "until rebuild() forgets it" if error.is_newer else "and it will be replaced",
                error,
            )
            return None, error.record_id


def _begins_with(log: LogSlice, position: int, entry_id: str | None) -> bool:
    return bool(log.entries) and (
        (log.entries[0].position, log.entries[0].id) == (position, entry_id)
    )
