"""The blocking twin of a store, for code that is not async: :class:`SyncChatStorage`."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agent_memory.errors import InvalidRequestError, StorageClosedError
from agent_memory.log import ChatInfo, Entry, LogSlice, Note
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.background_loop import BackgroundLoop
from agent_memory.storage.base import ChatStorage

_log = logging.getLogger(__name__)
T = TypeVar("T")

_BATCH: Final = 200  # items that an iteration takes at a time from the store's thread


class SyncChatStorage:
    """Every method of :class:`~agent_memory.ChatStorage`, blocking: scripts, Flask, Django.

    The store works on one private daemon thread; any number of threads may call at once. Called
    from within a running event loop it works too, but blocks that loop's thread (logged
    once): there, use the store itself.

    Methods take the arguments, return the results and raise the errors of the async ones;
    iterations are plain iterators. Anything else of the store goes through :meth:`run`.

    Args:
        storage: any store; :meth:`close` closes it.

    Raises:
        InvalidRequestError: `storage` is not a ``ChatStorage``.
    """

    def __init__(self, storage: ChatStorage) -> None:
        if not isinstance(storage, ChatStorage):
            raise InvalidRequestError(
                f"storage must be a ChatStorage, not {type(storage).__name__}"
            )
        self._storage = storage
        self._lock = threading.Lock()
        self._thread: BackgroundLoop | None = None
        self._process = 0
        self._closed = False
        self._said_so = False

    def __repr__(self) -> str:
        return f"SyncChatStorage({self._storage!r})"

    @property
    def storage(self) -> ChatStorage:
        """The store that does the work."""
        return self._storage

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the store's thread and return its result.

        For what this class has no method for: ``sync.run(summarizing.explain("u", "s", "a"))``.

        Raises:
            StorageClosedError: this has been closed.
            InvalidRequestError: called from the store's own thread, which would wait for itself.
        """
        try:
            thread = self._running()
        except BaseException:
            work.close()
            raise
        self._say_so()
        return thread.submit(work).result()

    def _running(self) -> BackgroundLoop:
        with self._lock:
            if self._closed:
                raise StorageClosedError("SyncChatStorage is closed")
            if self._thread is not None and self._thread.is_current:
                raise InvalidRequestError(
                    "SyncChatStorage was called from its own thread, which would wait for itself; "
                    "in an async function that the store calls, such as a summarizer, use the "
                    "store itself"
                )
            if self._thread is None or self._process != os.getpid():  # threads end at a fork
                self._thread = BackgroundLoop("agent-memory-sync")
                self._process = os.getpid()
                weakref.finalize(self, self._thread.abandon)
            return self._thread

    def _say_so(self) -> None:
        if self._said_so:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._said_so = True
        _log.warning(
            "SyncChatStorage is used within a running event loop and blocks it; "
            "await the store itself there"
        )

    # ------------------------------------------------------------------------------ saving

    def save_chat_message(
        self, user_id: str, session_id: str, agent_id: str, new_message: ConversationMessage
    ) -> list[ConversationMessage]:
        """Append one message."""
        return self.run(
            self._storage.save_chat_message(user_id, session_id, agent_id, new_message)
        )

    def save_chat_messages(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_messages: Sequence[ConversationMessage],
    ) -> list[ConversationMessage]:
        """Append messages in one atomic step."""
        return self.run(
            self._storage.save_chat_messages(user_id, session_id, agent_id, new_messages)
        )

    def save_note(self, user_id: str, session_id: str, agent_id: str, note: Note) -> Note:
        """Append a note to the chat's log."""
        return self.run(self._storage.save_note(user_id, session_id, agent_id, note))

    def append(
        self, user_id: str, session_id: str, agent_id: str, entries: Sequence[Entry]
    ) -> LogSlice:
        """Append messages and notes in one atomic step."""
        return self.run(self._storage.append(user_id, session_id, agent_id, entries))

    # ----------------------------------------------------------------------------- reading

    def fetch_chat(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        max_history_size: int | None = None,
    ) -> list[ConversationMessage]:
        """Return what a model should see."""
        return self.run(self._storage.fetch_chat(user_id, session_id, agent_id, max_history_size))

    def fetch_all_chats(self, user_id: str, session_id: str) -> list[ConversationMessage]:
        """Return the raw messages of every agent of the session."""
        return self.run(self._storage.fetch_all_chats(user_id, session_id))

    def fetch_chat_since(
        self, user_id: str, session_id: str, agent_id: str, position: int
    ) -> list[ConversationMessage]:
        """Return the raw messages with a position above the given one."""
        return self.run(self._storage.fetch_chat_since(user_id, session_id, agent_id, position))

    def iter_chat(
        self, user_id: str, session_id: str, agent_id: str
    ) -> Iterator[ConversationMessage]:
        """Yield the raw messages of a chat in order of saving."""
        return self._iterate(self._storage.iter_chat(user_id, session_id, agent_id))

    def iter_all_chats(self, user_id: str, session_id: str) -> Iterator[ConversationMessage]:
        """Yield what :meth:`fetch_all_chats` returns."""
        return self._iterate(self._storage.iter_all_chats(user_id, session_id))

    def iter_log(
        self, user_id: str, session_id: str, agent_id: str, *, after: int = 0
    ) -> Iterator[Entry]:
        """Yield messages and notes with a position above `after`."""
        return self._iterate(self._storage.iter_log(user_id, session_id, agent_id, after=after))

    def read_log(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        *,
        after: int = 0,
        first: int | None = None,
        last: int | None = None,
    ) -> LogSlice:
        """Return messages and notes, raw and in order of position, with the chat's floor."""
        return self.run(
            self._storage.read_log(
                user_id, session_id, agent_id, after=after, first=first, last=last
            )
        )

    def list_chats(
        self, user_id: str | None = None, session_id: str | None = None
    ) -> Iterator[ChatInfo]:
        """Yield every chat with living entries, in key order; of a user or session if given."""
        return self._iterate(self._storage.list_chats(user_id, session_id))

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        try:
            while batch := self.run(_take(items)):
                yield from batch
        finally:
            if not self._closed:
                self.run(_end(items))

    # -------------------------------------------------------------------------- retracting

    def retract(
        self, user_id: str, session_id: str, agent_id: str, message_ids: Iterable[str]
    ) -> Note:
        """Hide messages from every view of the chat; the log keeps them."""
        return self.run(self._storage.retract(user_id, session_id, agent_id, message_ids))

    def retract_newest(
        self, user_id: str, session_id: str, agent_id: str
    ) -> ConversationMessage | None:
        """Hide the newest message that views still show; the log keeps it."""
        return self.run(self._storage.retract_newest(user_id, session_id, agent_id))

    def clear(self, user_id: str, session_id: str, agent_id: str) -> Note:
        """Hide all that was saved so far from every view of the chat; the log keeps it."""
        return self.run(self._storage.clear(user_id, session_id, agent_id))

    # -------------------------------------------------------------------------- forgetting

    def trim_chat(self, user_id: str, session_id: str, agent_id: str, keep: int) -> int:
        """Remove all but the newest `keep` messages for good."""
        return self.run(self._storage.trim_chat(user_id, session_id, agent_id, keep))

    def delete_chat(self, user_id: str, session_id: str, agent_id: str) -> int:
        """Remove a chat with its summaries for good."""
        return self.run(self._storage.delete_chat(user_id, session_id, agent_id))

    def delete_chats(self, user_id: str, session_id: str | None = None) -> int:
        """Remove every chat of a user, or of one session."""
        return self.run(self._storage.delete_chats(user_id, session_id))

    def purge(self, older_than: timedelta) -> int:
        """Remove what deleted chats left."""
        return self.run(self._storage.purge(older_than))

    def ping(self) -> None:
        """Reach the store once; see :meth:`ChatStorage.ping`."""
        self.run(self._storage.ping())

    # ----------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Close the store and end the thread. Twice is fine."""
        if self._closed:
            return
        thread = self._running()
        try:
            thread.submit(self._storage.aclose()).result()
        finally:
            self._closed = True
            thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _take(items: AsyncIterator[T]) -> list[T]:
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            break
    return batch


async def _end(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()
