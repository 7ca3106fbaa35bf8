"""Bringing a buffer's view up to what the log holds.

One way serves the first fetch, restarts, gaps, lost answers and other writers: read from the
newest entry known, compare its id and the floor, take the rest or start anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import since_cleared
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import LogSlice, SummaryRecord
from agent_memory.storage._engine.fair_share import paced
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizing.buffers import Buffer, Glance, Load, wait_for_end
from agent_memory.summarizing.view import ChatView

_log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 5_000  # entries that a view takes over within a step of the loop


class ViewReader:
    """Reads the logs of a store into buffers.

    Args:
        storage: the store.
        lock: guards what is changed; it is never held while the store works.
        count: tells the tokens of a message, where the trigger needs them.
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

    async def look(self, key: ChatKey, glance: Glance) -> ChatView | None:
        """Read the end of a chat; return the view of its whole log, None when it has more entries.

        What is shown may begin in the middle: where everything before was retracted.
        """
        log = glance.log = await self._storage._read(key, last=glance.most)
        entries = since_cleared(log.entries)
        if glance.whole is None and len(entries) == len(log.entries):
            return None
        log = LogSlice(entries, log.floor)
        return ChatView.of(log, count=self._count, present=self._present)

    async def current(
        self, buffer: Buffer, *, check: bool, glance: Glance | None = None
    ) -> ChatView:
        """Return the buffer's view, showing everything that is known to be stored.

        Args:
            buffer: whose view.
            check: ask the log even if nothing is known to be missing, for other writers' sake.
            glance: what has been seen of the chat just now, to spare another read.
        """
        while True:
            view = buffer.view
            if view is None:
                mine = await self._load(buffer, glance)
                # Another's load may have begun before what this caller has to see was stored.
                check, glance = check and not mine, None
                continue
            if (buffer.is_current and not check) or await self._catch_up(buffer, view):
                return view

    async def _catch_up(self, buffer: Buffer, view: ChatView) -> bool:
        """Read what follows the view; False when it must be looked at again."""
        with self._lock:
            if buffer.view is not view:
                return False
            buffer.stale = False  # before the read: what goes wrong meanwhile sets it again
            last, last_id, seen = view.last, view.last_id, buffer.seen
        try:
            log = await self._storage._read(buffer.key, after=max(last - 1, view.floor))
        except BaseException:
            buffer.stale = True
            raise
        with self._lock:
            if buffer.view is not view:
                return False
            # So much is read again, and taken over in a thread.
            same = (
                len(log.entries) <= _MOST_AT_ONCE
                and log.floor == view.floor
                and (last == view.floor or _begins_with(log, last, last_id))
            )
            if same and view.append(log.entries) and view.last >= seen:
                buffer.take_early(view)
                return True
            if view.is_void:
                buffer.retract()
            else:
                buffer.void()
            return False

    async def _load(self, buffer: Buffer, glance: Glance | None) -> bool:
        """Make the view anew; those who come meanwhile wait for the same read.

        Returns:
            Whether it was this call's own read.
        """
        mine = Load()
        with self._lock:
            loading = buffer.loading
            if loading is not None and loading.is_dead:
                loading = None
            if loading is None:
                buffer.loading = mine
                buffer.stale = False
            generation, seen = buffer.generation, buffer.seen
            if glance is not None and glance.outdated:
                glance = None
        if loading is not None:
            await wait_for_end(loading.ended, lambda: loading.is_dead)
            return False
        try:
            view = await self._make(buffer, glance)
            with self._lock:
                # Another load took the place of one whose loop had stopped.
                if buffer.generation == generation and buffer.loading is mine:
                    buffer.view = view
                    buffer.take_early(view)
                    if buffer.seen == seen:
                        buffer.seen = min(seen, view.last)
        finally:
            with self._lock:
                if buffer.loading is mine:
                    buffer.loading = None
            mine.ended.set_result(None)
        return True

    async def _make(self, buffer: Buffer, glance: Glance | None) -> ChatView:
        key = buffer.key
        record, damaged = await self._newest(key)
        if record is not None:
            view = await self._restored(key, record, glance)
            if view is not None:
                return view
        log = None if glance is None else glance.whole
        log = await self._storage._read(key) if log is None else log
        view = await paced(
            len(log.entries),
            lambda: ChatView.of(log, count=self._count, present=self._present),
        )
        view.follows = damaged if record is None else record.id
        return view

    async def _restored(
        self, key: ChatKey, record: SummaryRecord, glance: Glance | None
    ) -> ChatView | None:
        """Return the view that a record left, if it fits the log."""
        log = None if glance is None else glance.since(record.position)
        if log is not None:
            view = ChatView.restored(record, log, count=self._count, present=self._present)
            if view is not None:
                return view
            # The record may have been made after the look.
        log = await self._storage._read(key, after=record.position - 1)
        return await paced(
            len(log.entries),
            lambda: ChatView.restored(record, log, count=self._count, present=self._present),
        )

    async def adopt_newer(self, buffer: Buffer, view: ChatView) -> ChatView:
        """Return the view of a summary that another worker made meanwhile; else the same view."""
        record = await self.newest_record(buffer.key)
        if record is None or record.id == view.record_id or record.position <= view.reach:
            return view
        with self._lock:
            if buffer.view is view:
                buffer.void()
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
