"""The blocking twin of a store, for code that is not async: :class:`SyncChatStorage`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from types import GenericAlias, TracebackType
from typing import (
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from agent_memory.errors import InvalidRequestError, StorageClosedError
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.background_loop import BackgroundLoop
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import checked_storage

_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

_BATCH: Final = 200  # items that an iteration takes at a time from the store's thread


def _blocking(
    method: Callable[Concatenate[ChatStorage, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncChatStorage, P], T]:
    """Return the blocking twin of a method."""

    @_like(method)
    def call(self: SyncChatStorage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        own: Callable[P, Coroutine[Any, Any, T]] = getattr(self.storage, method.__name__)
        return self.run(own(*args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[ChatStorage, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncChatStorage, P], Iterator[T]]:
    """Return the plain twin of an async generator."""

    @_like(method)
    def iterate(self: SyncChatStorage, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        own: Callable[P, AsyncIterator[T]] = getattr(self.storage, method.__name__)
        return self._iterate(own(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return iterate


def _like(method: Callable[..., object]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a twin the name, arguments and docstring of its method, for ``help()``.

    Also its type hints: frameworks make tools and forms of a function by them.
    """
    arguments = inspect.signature(method)
    given_back = str(arguments.return_annotation).removeprefix("Async")
    hints = get_type_hints(method)
    if get_origin(hints["return"]) is AsyncIterator:
        hints["return"] = GenericAlias(Iterator, get_args(hints["return"]))

    def named(twin: Callable[P, T]) -> Callable[P, T]:
        # Not by functools.wraps: whoever unwraps a twin would find a coroutine function.
        twin.__name__ = method.__name__
        twin.__qualname__ = f"SyncChatStorage.{method.__name__}"
        twin.__doc__ = method.__doc__
        twin.__annotations__ = hints
        twin.__signature__ = arguments.replace(return_annotation=given_back)  # type: ignore[attr-defined]
        return twin

    return named


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
        self._storage = checked_storage(storage)
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

    # ------------------------------------------------------------- the contract's methods

    # Written out: those of a store also take what agent-squad passes on, in order to refuse it.
    def save_chat_message(
        self, user_id: str, session_id: str, agent_id: str, new_message: ConversationMessage
    ) -> list[ConversationMessage]:
        """Append one message; see :meth:`ChatStorage.save_chat_message`."""
        return self.run(self.storage.save_chat_message(user_id, session_id, agent_id, new_message))

    def save_chat_messages(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_messages: Sequence[ConversationMessage],
    ) -> list[ConversationMessage]:
        """Append messages in one atomic step; see :meth:`ChatStorage.save_chat_messages`."""
        return self.run(
            self.storage.save_chat_messages(user_id, session_id, agent_id, new_messages)
        )

    save_note = _blocking(ChatStorage.save_note)
    """Append a note to the chat's log."""

    append = _blocking(ChatStorage.append)
    """Append messages and notes in one atomic step."""

    fetch_chat = _blocking(ChatStorage.fetch_chat)
    """Return what a model should see."""

    fetch_all_chats = _blocking(ChatStorage.fetch_all_chats)
    """Return the raw messages of every agent of the session."""

    fetch_chat_since = _blocking(ChatStorage.fetch_chat_since)
    """Return the raw messages with a position above the given one."""

    iter_chat = _iterating(ChatStorage.iter_chat)
    """Yield the raw messages of a chat in order of saving."""

    iter_all_chats = _iterating(ChatStorage.iter_all_chats)
    """Yield what :meth:`fetch_all_chats` returns."""

    iter_log = _iterating(ChatStorage.iter_log)
    """Yield messages and notes with a position above `after`."""

    read_log = _blocking(ChatStorage.read_log)
    """Return messages and notes, raw and in order of position, with the chat's floor."""

    list_chats = _iterating(ChatStorage.list_chats)
    """Yield every chat with living entries, in key order; of a user or session if given."""

    retract = _blocking(ChatStorage.retract)
    """Hide messages from every view of the chat; the log keeps them."""

    retract_newest = _blocking(ChatStorage.retract_newest)
    """Hide the newest message that views still show; the log keeps it."""

    clear = _blocking(ChatStorage.clear)
    """Hide all that was saved so far from every view of the chat; the log keeps it."""

    trim_chat = _blocking(ChatStorage.trim_chat)
    """Remove all but the newest `keep` messages for good."""

    delete_chat = _blocking(ChatStorage.delete_chat)
    """Remove a chat with its summaries for good."""

    delete_chats = _blocking(ChatStorage.delete_chats)
    """Remove every chat of a user, or of one session."""

    purge = _blocking(ChatStorage.purge)
    """Remove what deleted chats left."""

    ping = _blocking(ChatStorage.ping)
    """Reach the store once; see :meth:`ChatStorage.ping`."""

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        try:
            while batch := self.run(_take(items)):
                yield from batch
        finally:
            if not self._closed:
                self.run(_end(items))

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
