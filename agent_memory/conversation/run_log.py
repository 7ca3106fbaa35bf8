"""The log of a thread as one of its runs sees and writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile

from agent_memory.conversation.thread_counts import ThreadCounts
from agent_memory.messages import ConversationMessage
from agent_memory.records import Entry, Note
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizing.buffers import Buffer
from agent_memory.summarizing.loader import ViewLoader
from agent_memory.summarizing.view import ChatView

MakeNote = Callable[[int, ThreadCounts | None], Note | None]
"""Makes the note of a run, given its place and the thread's counts up to it."""


class RunLog:
    """What a run has still to store, and the view of what is stored.

    Args:
        storage: the store.
        loader: keeps the view up to date.
        buffer: holds the view, which is loaded.
        counts: of the thread up to the view's end; None if they are not known.
        shared: whether other writers' entries are looked for before the view is shown.

    Attributes:
        pending: what is not stored yet.
    """

    def __init__(
        self,
        storage: ChatStorage,
        loader: ViewLoader,
        buffer: Buffer,
        counts: ThreadCounts | None,
        *,
        shared: bool,
    ) -> None:
        self._storage = storage
        self._loader = loader
        self._buffer = buffer
        self._counts = counts
        self._counted = 0 if buffer.view is None else buffer.view.last
        self._generation = buffer.generation
        self._shared = shared
        self._notes: list[Note] = []
        self._lock = asyncio.Lock()
        self.pending: list[ConversationMessage] = []

    async def view(self, *, check: bool) -> ChatView:
        """Return the view of everything that is stored.

        Args:
            check: look for what other writers have stored, where there may be any.
        """
        return await self._loader.current(self._buffer, check=check and self._shared)

    async def store(self, make_note: MakeNote | None = None) -> None:
        """Store in one step what is pending, and a note behind it if one is made.

        What comes while this goes on stays pending. When it fails, everything stays pending.

        Raises:
            StorageError: it could not be stored; calling again is safe.
        """
        async with self._lock:  # in the order in which it was added, whoever stores
            if make_note is not None:
                self._append_note(make_note)
            entries: list[Entry] = [*self.pending, *self._notes]
            if not entries:
                return
            key = self._buffer.key
            try:
                stored = await self._storage.append(
                    key.user_id, key.session_id, key.agent_id, entries
                )
            except BaseException:
                self._buffer.mark_stale()  # it may be stored all the same
                raise
            ids = {entry.id for entry in entries}
            self.pending = [message for message in self.pending if message.id not in ids]
            self._notes.clear()
            self._buffer.saved(stored)
            self._count()

    def _append_note(self, make_note: MakeNote) -> None:
        self._count()
        view = self._buffer.view
        counts = None if self._counts is None else self._counts.and_also(self.pending)
        last = 0 if view is None else view.last
        note = make_note(last + len(self.pending) + len(self._notes) + 1, counts)
        if note is not None:
            self._notes.append(note)

    def _count(self) -> None:
        """Count what has come to the view, ours and others'."""
        view = self._buffer.view
        if self._counts is None or view is None:
            return
        if self._buffer.generation != self._generation or view.reach > self._counted:
            self._counts = None  # it was made anew, without what lies between
            return
        new = list(takewhile(lambda m: (m.position or 0) > self._counted, reversed(view.tail)))
        self._counts = self._counts.and_also(reversed(new))
        self._counted = view.last
