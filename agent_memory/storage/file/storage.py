"""A store that keeps chats in a directory of JSONL files."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar, cast

from agent_memory.errors import InvalidRequestError, StorageClosedError
from agent_memory.keys import check_id
from agent_memory.log import ChatInfo, Entry, LogSlice, SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.group_commit import ThreadGroupCommit
from agent_memory.storage._engine.handoff import result_of, run_uncancelled
from agent_memory.storage.base import ChatStorage, Scope
from agent_memory.storage.file.appender import Appender
from agent_memory.storage.file.chat_log import BLOCK
from agent_memory.storage.file.directory import find_infos, find_keys, list_keys, paths_of
from agent_memory.storage.file.disk import Durability, os_errors
from agent_memory.storage.file.line_format import DamagedBytes
from agent_memory.storage.file.lock import ChatLock
from agent_memory.storage.file.reader import (
    DamageReport,
    Problem,
    ReadRange,
    TooLongError,
    find_problems,
    read_log,
    stream_log,
)
from agent_memory.storage.file.record_files import RecordFiles
from agent_memory.storage.file.trimming import Trimmer
from agent_memory.storage.hooks import Found, StoredSummaries
from agent_memory.storage.requests import check_scope_ids
from agent_memory.storage.summaries import SummaryStore
from agent_memory.validation import checked_seconds

T = TypeVar("T")

_WRITERS: Final = 8  # chats written at the same time; more threads were no faster when measured
_READERS: Final = 4
_LISTED: Final = 50  # chats: a few milliseconds of a worker thread


class FileChatStorage(ChatStorage):
    """Chats in a directory: a JSONL file per chat, a message per line, in UTF-8.

    The files are made for ``tail -f``, ``grep`` and ``jq``. A chat is
    ``<directory>/<user>/<session>/<agent>.jsonl``; its first line holds its key. Names keep
    lower-case letters, digits and ``-_.@``; other bytes are ``%`` and two hex digits; long names
    end in a hash. Summary records are next to it in ``<agent>.summaries``.

    Durability: a save returns when its bytes and the file's name are on disk
    (``durability="full"``). Concurrency: any tasks, threads and event loops, and any processes
    of one machine; the directory must be on a local file system with locks (``flock``).
    Known repeats: the newest 64 messages or the last append.

    Files are created with mode 0600, directories with 0700. Below `directory` no link is followed,
    and anything but a regular file is refused. An unreadable chat is left out of lists, with a
    warning; :meth:`verify` reports it, and ``delete_chats`` fails on it.

    With the extra ``file`` (aiofiles), reads of long chats let other reads run after each block;
    without it they occupy a thread until they end.

    Args:
        directory: where the chats are kept; created by the first save.
        durability: ``"full"``, or ``"os"``: a save returns when the operating system has the
            bytes. They survive a crash of the process, but not a power failure.
        lock_timeout: seconds to wait for another process that writes to the same chat.

    Raises:
        InvalidRequestError: `directory` is a file or not a path, or an option is out of range.
    """

    _has_threads = True
    _append_is_cancel_safe = True  # ThreadGroupCommit.save waits for the outcome

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        lock_timeout: float = 30.0,
    ) -> None:
        self._root = _checked_directory(directory)
        if durability not in ("full", "os"):
            raise InvalidRequestError(f'durability must be "full" or "os", not {durability!r}')
        lock = ChatLock(checked_seconds(lock_timeout, "lock_timeout", zero=True), durability)
        self._appender = Appender(self._root, lock, durability)
        self._trimmer = Trimmer(lock, durability)
        self._records = RecordFiles(lock, durability)
        self._damage = DamageReport()
        # The threads refer to the appender only, so that an unused store can be collected.
        self._queue = ThreadGroupCommit(
            self._appender.commit, name="agent_memory-file-write", by="chat", threads=_WRITERS
        )
        lock.waiting = self._queue.blocking
        self._readers = ThreadPoolExecutor(_READERS, "agent_memory-file-read")

    def __repr__(self) -> str:
        return f"FileChatStorage({str(self._root)!r})"

    def __del__(self) -> None:
        if self._phase == "open":
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=1)

    @property
    def scope(self) -> Scope:
        """``"host"``: any processes of this machine."""
        return "host"

    # ---------------------------------------------------------------------------- the hooks

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        return await self._queue.save(key, entries, entries, 0)  # encoded in the thread

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        wanted = ReadRange(after, first, last)
        # The newest entries, and pages, are one step of a worker thread: several steps of
        # aiofiles for the same bytes took more than twice as long.
        longest = BLOCK if first is None and last is None else None
        try:
            return await self._reading(
                "reading the chat", key, self._read_one, key, wanted, longest
            )
        except TooLongError:
            return await self._read_long(key, wanted)

    async def _forget(self, key: ChatKey, keep: int) -> int:
        return await self._writing("trimming the chat", key, self._trimmer.forget, keep)

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        infos = find_infos(self._root, user_id, session_id)
        async for info in self._each("listing chats", infos):
            if info.entries:
                yield info

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        doing = "reading the session"
        logs = await self._reading(doing, None, self._read_short, user_id, session_id)
        return {
            key: await self._read_long(key, ReadRange()) if log is None else log
            for key, log in logs.items()
        }

    async def _keys(self, user_id: str, session_id: str | None) -> list[ChatKey]:
        # Including unreadable files, which lists leave out: deleting them fails, and the caller
        # must learn that they are still there.
        keys = find_keys(self._root, user_id, session_id, strict=True)
        return [key async for key in self._each("deleting chats", keys)]

    async def _purge(self, older_than: timedelta) -> int:
        before = time.time() - older_than.total_seconds()
        purged = 0
        async for info in self._each("purging", find_infos(self._root)):
            if not info.entries:
                doing = "purging the chat"
                purged += await self._writing(doing, info.key, self._trimmer.purge, before)
        return purged

    async def _close(self) -> None:
        await result_of(self._queue.close())
        await asyncio.to_thread(self._readers.shutdown)

    def summaries(self) -> SummaryStore:
        """Return the summary records, kept in files next to the chats."""
        return StoredSummaries(self._put_record, self._read_records, self._drop_records)

    async def _put_record(self, key: ChatKey, record: SummaryRecord, replaces: str | None) -> bool:
        await self._ready()
        doing = "saving a summary of the chat"
        return await self._writing(doing, key, self._records.put, record, replaces)

    async def _read_records(self, key: ChatKey, *, newest_only: bool) -> Found:
        await self._ready()
        read = partial(self._records.read, newest_only=newest_only)
        paths = paths_of(self._root, key)
        return await self._reading("reading summaries", key, read, paths, key)

    async def _drop_records(self, key: ChatKey) -> int:
        await self._ready()
        return await self._writing("forgetting the summaries of the chat", key, self._records.drop)

    # ------------------------------------------------------------------------------- checks

    async def verify(
        self,
        user_id: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
    ) -> AsyncIterator[Problem]:
        """Read every file and yield what is damaged. Changes nothing.

        Args:
            user_id, session_id, agent_id: restrict it to a user, session or chat.

        Raises:
            InvalidRequestError: an id is invalid, or is given without those before it.
        """
        check_scope_ids(user_id, session_id)
        if agent_id is not None and session_id is None:
            raise InvalidRequestError("agent_id is given without session_id; give all three")
        if agent_id is not None:
            check_id(agent_id, "agent_id")
        await self._ready()
        chats = find_problems(self._root, user_id, session_id, agent_id)
        async for problems in self._each("verifying", chats, at_once=1):
            for problem in problems:
                yield problem

    # ------------------------------------------------------------- in worker threads and back

    def _read_one(
        self,
        key: ChatKey,
        wanted: ReadRange,
        longest: int | None = None,
        suspected: tuple[DamagedBytes, ...] = (),
    ) -> LogSlice:
        paths = paths_of(self._root, key)
        reading = read_log(paths.log, key, wanted, longest, suspected)
        self._damage.report(paths.log, reading)
        return reading.log

    def _read_short(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice | None]:
        """Return the log of each of a session's chats; None for a long one."""
        logs: dict[ChatKey, LogSlice | None] = {}
        for key in list_keys(self._root, user_id, session_id):
            try:
                logs[key] = self._read_one(key, ReadRange(), BLOCK)
            except TooLongError:
                logs[key] = None
        return logs

    async def _read_long(self, key: ChatKey, wanted: ReadRange) -> LogSlice:
        doing, reading = "reading the chat", None
        if find_spec("aiofiles") is not None:
            path = paths_of(self._root, key).log
            try:
                with os_errors(key, doing):
                    reading = await run_uncancelled(stream_log(path, key, wanted, self._readers))
            except RuntimeError:  # from the executor: it was shut down
                self._check_not_closed()
                raise
            if reading is not None and not reading.damage:
                await self._reading(doing, key, self._damage.report, path, reading)
                return reading.log
        # In one step of a thread: the extra is not installed, or the file changed, or is damaged.
        suspected = () if reading is None else reading.damage
        return await self._reading(doing, key, self._read_one, key, wanted, None, suspected)

    async def _each(
        self, doing: str, items: Iterator[T], at_once: int = _LISTED
    ) -> AsyncIterator[T]:
        """Yield what an iterator finds in worker threads, some at a time."""
        while found := await self._reading(doing, None, _next, items, at_once):
            for item in found:
                yield item

    async def _reading(
        self, doing: str, key: ChatKey | None, function: Callable[..., T], *args: object
    ) -> T:
        try:
            future = self._readers.submit(function, *args)
        except RuntimeError:
            raise StorageClosedError(f"{self!r} is closed", key=key) from None
        with os_errors(key, doing):
            return await result_of(future)

    async def _writing(
        self, doing: str, key: ChatKey, function: Callable[..., T], *args: object
    ) -> T:
        work = partial(function, paths_of(self._root, key), key, *args)
        with os_errors(key, doing):
            return await self._queue.call(work, key)


def _next(items: Iterator[T], count: int) -> list[T]:
    return list(islice(items, count))


def _checked_directory(directory: object) -> Path:
    try:
        path = Path(cast("str", directory))  # a TypeError is translated below
    except TypeError:
        raise InvalidRequestError(
            f"directory must be a str or Path, not {type(directory).__name__}"
        ) from None
    if not str(directory) or "\0" in str(directory):
        raise InvalidRequestError("directory must be a path; it is empty or contains NUL")
    if path.exists() and not path.is_dir():
        raise InvalidRequestError(f"{path} is a file; give the directory that holds the chats")
    return path.absolute()
