"""Trimming, deleting and purging chats. Files are replaced, so a crash leaves old or new."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import FileIO

import attrs

from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage.file.chat_log import (
    BLOCK,
    ChatLog,
    FileSnapshot,
    lines,
)
from agent_memory.storage.file.directory import ChatPaths
from agent_memory.storage.file.disk import (
    Durability,
    make_file,
    sync_directory,
    sync_file,
    write_all,
)
from agent_memory.storage.file.line_format import (
    EntryRef,
    FileHeader,
    StoredEntry,
    encode_header,
    parse_line,
)
from agent_memory.storage.file.lock import LOCKS_BESIDE, ChatLock, try_lock


@attrs.frozen
class Trimmer:
    """Removes messages from chats' files.

    Args:
        lock: how chats are locked.
        durability: when a message counts as removed.
    """

    lock: ChatLock
    durability: Durability

    def forget(self, paths: ChatPaths, key: ChatKey, keep: int) -> int:
        """Remove all but the newest `keep` messages; return how many were removed.

        Raises:
            OSError: it failed; the chat is either unchanged or trimmed.
        """
        with self.lock.acquire(paths, key, create=False) as file:
            if file is None:
                return 0
            log = ChatLog(FileSnapshot(file), paths.log, key)
            floor, start, removed = _cut(log, keep)
            if floor > log.floor or keep == 0:
                self._remove_summaries(paths)
            if floor > log.floor:
                self._replace(file, paths, _what_stays(log, floor, start))
            return removed

    def purge(self, paths: ChatPaths, key: ChatKey, before: float) -> bool:
        """Remove the files of a chat without entries; return whether it did.

        Args:
            before: only if the file was last written before this time (seconds since 1970).
        """
        with self.lock.acquire(paths, key, create=False) as file:
            if file is None:
                return False
            log = ChatLog(FileSnapshot(file), paths.log, key)
            if log.last > log.floor or log.snapshot.stat.st_mtime > before:
                return False
            if LOCKS_BESIDE:
                file.close()
            for path in (paths.summaries, paths.temporary, paths.log):
                with suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108 - a string
            sync_directory(paths.directory, self.durability)
        for directory in paths.directories[:2]:
            with suppress(OSError):  # not empty: it has other chats
                directory.rmdir()
        return True

    def _remove_summaries(self, paths: ChatPaths) -> None:
        # Flushed before the messages are removed: no summary may outlive the text it is about.
        with suppress(FileNotFoundError):
            os.unlink(paths.summaries)  # noqa: PTH108 - a string
            sync_directory(paths.directory, self.durability)

    def _replace(self, file: FileIO, paths: ChatPaths, content: Iterable[bytes]) -> None:
        with suppress(FileNotFoundError):
            os.unlink(paths.temporary)  # noqa: PTH108 - a string
        with make_file(paths.temporary) as new:
            if hasattr(os, "fchmod"):
                os.fchmod(new.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
            if not LOCKS_BESIDE:
                # Held until the new name is flushed: a crash before that brings the old file
                # back, and loses whatever was appended to the new one.
                try_lock(new.fileno())
            try:
                for data in content:
                    write_all(new, data)
                sync_file(new.fileno(), self.durability)
                if LOCKS_BESIDE:
                    file.close()
                    new.close()
                os.replace(paths.temporary, paths.log)  # noqa: PTH105 - strings
            except OSError:
                with suppress(OSError):
                    os.unlink(paths.temporary)  # noqa: PTH108 - a string
                raise
            sync_directory(paths.directory, self.durability)


def _what_stays(log: ChatLog, floor: int, start: int) -> Iterator[bytes]:
    header = log.header or FileHeader(log.key)
    yield encode_header(attrs.evolve(header, floor=floor))
    for at in range(start, log.end, BLOCK):
        yield log.snapshot.read(at, min(at + BLOCK, log.end))


def _cut(log: ChatLog, keep: int) -> tuple[int, int, int]:
    """Find where to cut: before the `keep`-th newest message, notes not counted.

    Returns:
        The new floor, the first byte to keep, and how many messages are removed.
    """
    newest: deque[EntryRef] = deque(maxlen=keep)
    messages, previous = 0, log.floor
    for at, line in lines(log.snapshot, log.start, log.end):
        parsed = parse_line(line, at, log.key.agent_id)
        # As for a reader, an entry out of order is damage.
        if isinstance(parsed, StoredEntry) and previous < parsed.ref.position <= log.last:
            previous = parsed.ref.position
            if isinstance(parsed.entry, ConversationMessage):
                messages += 1
                newest.append(parsed.ref)
    if keep == 0:
        return log.last, log.end, messages
    if messages < keep:
        return log.floor, log.start, 0
    first = newest[0]
    return first.position - 1, first.start, messages - len(newest)
