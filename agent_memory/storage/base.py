"""The contract of every store: :class:`ChatStorage`.

Its methods are final: they check their arguments, then call the hooks of
:class:`agent_memory.storage.hooks.StoreHooks`, which backends implement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias, final

from agent_memory.keys import ChatKey, chat_key, check_id
from agent_memory.log import ChatInfo, Entry, LogSlice, Note, Retraction
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.handoff import run_uncancelled
from agent_memory.storage.hooks import StoreHooks
from agent_memory.storage.merging import merge_chats, merge_streams
from agent_memory.storage.requests import (
    check_scope_ids,
    check_session,
    checked_entries,
    checked_ids,
    checked_messages,
    checked_note,
    checked_range,
    reject_further_arguments,
    without_repeats,
)
from agent_memory.storage.retracting import retract_newest_shown
from agent_memory.storage.summaries import SummaryStore
from agent_memory.validation import checked_count, checked_duration

Scope: TypeAlias = Literal["process", "host", "network"]
"""Which writers a store keeps in order: those of this process, this machine, or anywhere."""

_PAGE: Final = 200  # entries read at a time when streaming
_NO_CHAT: Final = ChatKey("agent_memory", "ping", "ping")  # where a ping looks


class ChatStorage(StoreHooks):
    """Keeps every message of every chat, append-only, in the order of saving.

    **Promises.** One save is one atomic append: all of it or none, also across a crash.
    Positions start at 1, rise by one and are never reused. Saving a message id again stores
    nothing twice. When ``CancelledError`` leaves a save, nothing is in flight. ``fetch_chat``
    is the only projection; everything else is raw, on every wrapper too.

    **To write a backend** implement the four abstract hooks; see
    :class:`~agent_memory.storage.hooks.StoreHooks`. A store may be used from any tasks, threads
    and event loops, so guard shared state with a lock.

    Every method that takes ids raises ``InvalidRequestError`` if one is invalid, and every
    method raises ``StorageClosedError`` after :meth:`aclose` and ``StorageUnavailableError``
    when the medium does not answer.
    """

    @property
    def scope(self) -> Scope:
        """Which writers this store keeps in order; ``"process"`` unless a backend says more."""
        return "process"

    def summaries(self) -> SummaryStore | None:
        """Return where summary records of these chats live, or None if nowhere."""
        return None

    # ------------------------------------------------------------------------------ saving

    @final
    async def save_chat_message(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_message: ConversationMessage,
        *unsupported: object,
    ) -> list[ConversationMessage]:
        """Append one message; see :meth:`save_chat_messages`.

        Args:
            user_id, session_id, agent_id: which chat.
            new_message: the message.
            unsupported: refused with advice; agent-squad passes its ``max_history_size`` here
                when this storage is given to it without the adapter.

        Raises:
            InvalidRequestError: `new_message` is not a message, or there are further arguments.
        """
        reject_further_arguments("save_chat_message", unsupported)
        return await self.save_chat_messages(user_id, session_id, agent_id, [new_message])

    @final
    async def save_chat_messages(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_messages: Sequence[ConversationMessage],
        *unsupported: object,
    ) -> list[ConversationMessage]:
        """Append messages in one atomic step. Nothing is dropped, merged, reordered or forgotten.

        Args:
            user_id, session_id, agent_id: which chat.
            new_messages: any number; an empty list is a no-op. A message whose id is already in
                the chat, with equal role, content and extra, is not stored again.
            unsupported: refused with advice, as :meth:`save_chat_message` does.

        Returns:
            The messages as stored, in the order given, with `position` and `agent_id`.

        Raises:
            InvalidRequestError: an item is not a message, or there are further arguments.
            StorageConflictError: an id is known with another payload; nothing is stored.
            MessageTooLargeError: the backend cannot hold a message; nothing is stored.
            StorageUnavailableError: see its ``stored`` for whether the messages may be there.
        """
        reject_further_arguments("save_chat_messages", unsupported)
        key = chat_key(user_id, session_id, agent_id)
        messages = checked_messages(new_messages)
        await self._ready()
        if not messages:
            return []
        stored = await self._save(key, messages)
        by_id = {message.id: message for message in stored.messages}
        return [by_id[message.id] for message in messages if message.id in by_id]

    @final
    async def save_note(self, user_id: str, session_id: str, agent_id: str, note: Note) -> Note:
        """Append a note to the chat's log, as idempotent as a message, and return it as stored.

        Raises:
            InvalidRequestError: it is not a note.
            StorageConflictError: its id is known with another payload.
        """
        key = chat_key(user_id, session_id, agent_id)
        checked_note(note)
        await self._ready()
        (entry,) = (await self._save(key, [note])).entries
        return checked_note(entry)

    @final
    async def append(
        self, user_id: str, session_id: str, agent_id: str, entries: Sequence[Entry]
    ) -> LogSlice:
        """Append messages and notes in one atomic step: all of them or none.

        Args:
            user_id, session_id, agent_id: which chat.
            entries: any number of messages and notes, in any order. None are a no-op. Each is as
                idempotent as in :meth:`save_chat_messages`.

        Returns:
            The entries as stored, in the order given, with their positions; and the floor. An
            entry that a wrapper drops on its way is not among them.

        Raises:
            InvalidRequestError: an entry is neither message nor note, or a note of the kind
                ``"corrupted"``, which only stores make.
            StorageConflictError: an id is known with another payload; nothing is stored.
        """
        key = chat_key(user_id, session_id, agent_id)
        given = checked_entries(entries)
        await self._ready()
        if not given:
            return LogSlice([], (await self._read(key, last=1)).floor)
        stored = await self._save(key, given)
        by_id = {entry.id: entry for entry in stored.entries}
        return LogSlice([by_id[e.id] for e in given if e.id in by_id], stored.floor)

    @final
    async def _save(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        """Append checked entries to an open store; nothing is in flight when this has left."""
        appending = self._append(key, without_repeats(key, entries))
        stored = await (appending if self._append_is_cancel_safe else run_uncancelled(appending))
        await self._after_append(key, stored)
        return stored

    # ----------------------------------------------------------------------------- reading

    @final
    async def fetch_chat(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        max_history_size: int | None = None,
    ) -> list[ConversationMessage]:
        """Return what a model should see: on a plain store the newest messages, raw.

        Args:
            user_id, session_id, agent_id: which chat; an unknown one is empty.
            max_history_size: return at most this many messages, the newest; None for all.

        Returns:
            A fresh list, oldest first.

        Raises:
            InvalidRequestError: `max_history_size` is negative or not an int.
        """
        key = chat_key(user_id, session_id, agent_id)
        limit = max_history_size
        if limit is not None:
            checked_count(limit, "max_history_size")
        await self._ready()
        return [] if limit == 0 else await self._fetch(key, limit)

    @final
    async def fetch_all_chats(self, user_id: str, session_id: str) -> list[ConversationMessage]:
        """Return the raw messages of every agent of the session.

        The agents are merged by the running maximum of the timestamps within each chat (ties by
        agent id), which never reorders one chat. Messages are as they were saved, with their
        `agent_id`.
        """
        check_session(user_id, session_id)
        await self._ready()
        chats = await self._read_session(user_id, session_id)
        return merge_chats({key.agent_id: chat.messages for key, chat in chats.items()})

    @final
    async def fetch_chat_since(
        self, user_id: str, session_id: str, agent_id: str, position: int
    ) -> list[ConversationMessage]:
        """Return the raw messages with a position above the given one, in order of saving.

        Raises:
            InvalidRequestError: `position` is negative or not an int.
        """
        key = chat_key(user_id, session_id, agent_id)
        checked_count(position, "position")
        await self._ready()
        return (await self._read(key, after=position)).messages

    @final
    async def iter_chat(
        self, user_id: str, session_id: str, agent_id: str
    ) -> AsyncIterator[ConversationMessage]:
        """Yield the raw messages of a chat in order of saving, a page at a time."""
        async for entry in self.iter_log(user_id, session_id, agent_id):
            if isinstance(entry, ConversationMessage):
                yield entry

    @final
    async def iter_all_chats(
        self, user_id: str, session_id: str
    ) -> AsyncIterator[ConversationMessage]:
        """Yield what :meth:`fetch_all_chats` returns, holding a page of each chat at a time."""
        check_session(user_id, session_id)
        agents = [info.key.agent_id async for info in self.list_chats(user_id, session_id)]
        streams = {agent: self.iter_chat(user_id, session_id, agent) for agent in agents}
        async for message in merge_streams(streams):
            yield message

    @final
    async def iter_log(
        self, user_id: str, session_id: str, agent_id: str, *, after: int = 0
    ) -> AsyncIterator[Entry]:
        """Yield messages and notes with a position above `after`, a page at a time.

        An entry that cannot be read appears as a note of kind ``"corrupted"`` that says where.
        """
        key = chat_key(user_id, session_id, agent_id)
        checked_count(after, "after")
        while True:
            await self._ready()
            entries = (await self._read(key, after=after, first=_PAGE)).entries
            for entry in entries:
                yield entry
            if not entries:
                return
            after = entries[-1].position or after

    @final
    async def read_log(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        *,
        after: int = 0,
        first: int | None = None,
        last: int | None = None,
    ) -> LogSlice:
        """Return messages and notes, raw and in order of position, with the chat's floor.

        Entries and floor belong together: they are read in one step. See also :meth:`iter_log`.

        Args:
            user_id, session_id, agent_id: which chat; an unknown one is empty, with floor 0.
            after: only entries with a position above it, at least 0.
            first: return at most this many of these, the oldest; at least 1.
            last: return at most this many of these, the newest; at least 1, not with `first`.

        Raises:
            InvalidRequestError: an argument is out of range, or both limits are given.
        """
        key = chat_key(user_id, session_id, agent_id)
        checked_range(after, first, last)
        await self._ready()
        return await self._read(key, after=after, first=first, last=last)

    @final
    async def list_chats(
        self, user_id: str | None = None, session_id: str | None = None
    ) -> AsyncIterator[ChatInfo]:
        """Yield every chat with living entries, in key order; of a user or session if given.

        Raises:
            InvalidRequestError: `session_id` is given without `user_id`.
        """
        check_scope_ids(user_id, session_id)
        await self._ready()
        async for info in self._list(user_id, session_id):
            yield info

    @final
    async def ping(self) -> None:
        """Reach the store once, as a read does; for health checks.

        It opens the store if need be, and neither needs nor makes a chat.

        Raises:
            StorageUnavailableError: the store does not answer.
            StorageClosedError: it is closed.
        """
        await self._ready()
        await self._read(_NO_CHAT, last=1)

    # -------------------------------------------------------------------------- retracting

    @final
    async def retract(
        self, user_id: str, session_id: str, agent_id: str, message_ids: Iterable[str]
    ) -> Note:
        """Hide messages from every view of the chat; the log keeps them, and the note appended.

        Args:
            user_id, session_id, agent_id: which chat.
            message_ids: at least one id. Ids that the chat does not hold yet have no effect.

        Returns:
            The note, as stored.

        Raises:
            InvalidRequestError: no ids are given, or one is invalid.
        """
        note = Retraction(checked_ids(message_ids, "message_ids")).to_note()
        return await self.save_note(user_id, session_id, agent_id, note)

    @final
    async def retract_newest(
        self, user_id: str, session_id: str, agent_id: str
    ) -> ConversationMessage | None:
        """Hide the newest message that views still show; the log keeps it.

        Of two calls at once each retracts a message of its own, as long as the store knows the
        id of a note that the other appended (see "Idempotent" in the guide to guarantees).

        Returns:
            The message, as stored; None when no message is shown any more.
        """
        key = chat_key(user_id, session_id, agent_id)
        await self._ready()
        return await retract_newest_shown(key, self._read, self._save)

    @final
    async def clear(self, user_id: str, session_id: str, agent_id: str) -> Note:
        """Hide all that was saved so far from every view of the chat; the log keeps it.

        What is saved afterwards is shown. To remove messages for good, use :meth:`delete_chat`.

        Returns:
            The note that says so, as stored.
        """
        note = Retraction(everything=True).to_note()
        return await self.save_note(user_id, session_id, agent_id, note)

    # -------------------------------------------------------------------------- forgetting

    @final
    async def trim_chat(self, user_id: str, session_id: str, agent_id: str, keep: int) -> int:
        """Remove all but the newest `keep` messages for good; return how many were removed.

        Raises:
            InvalidRequestError: `keep` is negative or not an int.
        """
        key = chat_key(user_id, session_id, agent_id)
        checked_count(keep, "keep")
        await self._ready()
        return await run_uncancelled(self._forget_and_erase(key, keep))

    @final
    async def _forget_and_erase(self, key: ChatKey, keep: int) -> int:
        gone = await self._forget(key, keep)
        await self._erase_deleted()
        return gone

    @final
    async def delete_chat(self, user_id: str, session_id: str, agent_id: str) -> int:
        """Remove a chat with its summaries for good; return how many messages were removed.

        Its floor stays, so that no worker that still holds an old view brings deleted text
        back, until :meth:`purge`.
        """
        return await self.trim_chat(user_id, session_id, agent_id, 0)

    @final
    async def delete_chats(self, user_id: str, session_id: str | None = None) -> int:
        """Remove every chat of a user, or of one session; return how many messages went.

        Raises:
            InvalidRequestError: `user_id` is invalid; no call removes the chats of all users.
        """
        check_id(user_id, "user_id")
        check_scope_ids(user_id, session_id)
        await self._ready()
        keys = await self._keys(user_id, session_id)
        try:
            return sum([await run_uncancelled(self._forget(key, 0)) for key in keys])
        finally:  # also of those before an error or a cancellation
            await run_uncancelled(self._erase_deleted())

    @final
    async def purge(self, older_than: timedelta) -> int:
        """Remove what deleted chats left (their floors); return how many.

        Args:
            older_than: only of chats with no append and no deletion for this time, which must be
                longer than any worker holds a view of a deleted chat. A store may need more
                time: `DynamoDbChatStorage` takes less than an hour as an hour.

        Raises:
            InvalidRequestError: it is negative, or not a timedelta.
        """
        checked_duration(older_than, "older_than")
        await self._ready()
        try:
            return await run_uncancelled(self._purge(older_than))
        finally:
            await run_uncancelled(self._erase_deleted())
