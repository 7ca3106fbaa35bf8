"""Summary records: one per line in a file next to the chat's, written under the chat's lock."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from io import FileIO

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage.codec import decode_record, encode_record
from agent_memory.storage.file.chat_log import (
    ChatLog,
    FileSnapshot,
    lines_back,
)
from agent_memory.storage.file.directory import ChatPaths
from agent_memory.storage.file.disk import (
    Durability,
    append_bytes,
    end_at,
    make_file,
    open_to_read,
    open_to_write,
    sync_directory,
)
from agent_memory.storage.file.lock import ChatLock
from agent_memory.storage.hooks import Found


@attrs.frozen
class _NewestRecord:
    """The newest record of a file: its id, the floor it was made at, and where it ends."""

    id: str | None = None
    floor: int | None = None
    end: int = 0


@attrs.frozen
class RecordFiles:
    """Reads and writes chats' summary records; see ``StoredSummaries``.

    Args:
        lock: how chats are locked.
        durability: when a record counts as stored.
    """

    lock: ChatLock
    durability: Durability

    def put(
        self, paths: ChatPaths, key: ChatKey, record: SummaryRecord, replaces: str | None
    ) -> bool:
        """Store a record if its predecessor is the newest and its floor is the chat's."""
        with self.lock.acquire(paths, key, create=False) as file:
            if file is None:
                return False
            log = ChatLog(FileSnapshot(file), paths.log, key)
            if not record.fits(log.floor, log.last):
                return False
            newest = _newest(paths.summaries)
            if newest.floor not in (None, log.floor):
                newest = _NewestRecord()  # left by a crash during a trim; it is void
            if newest.id in (replaces, record.id):
                if newest.id != record.id:
                    self._append(paths, newest.end, record)
                return True
            return False

    def read(self, paths: ChatPaths, key: ChatKey, *, newest_only: bool) -> Found:
        """Return the records made at the chat's floor, oldest first, or only the newest."""
        found: list[SummaryRecord | CorruptedRecordError] = []
        with suppress(FileNotFoundError), open_to_read(paths.summaries) as file:
            snapshot = FileSnapshot(file)
            for at, line in lines_back(snapshot, 0, snapshot.size):
                found.append(_parsed(line, key, f"{paths.summaries}, byte {at}"))
                if newest_only:
                    break
        # Read after the records, so that a trim in between is noticed.
        floor = _floor(paths, key) if found else None
        return [
            record
            for record in reversed(found)
            if isinstance(record, CorruptedRecordError) or record.floor == floor
        ]

    def drop(self, paths: ChatPaths, key: ChatKey) -> int:
        """Remove all records and return how many of them could be read."""
        with self.lock.acquire(paths, key, create=False) as file:
            if file is None:
                return 0
            found = self.read(paths, key, newest_only=False)
            with suppress(FileNotFoundError):
                os.unlink(paths.summaries)  # noqa: PTH108 - a string
                sync_directory(paths.directory, self.durability)
            return sum(isinstance(record, SummaryRecord) for record in found)

    def _append(self, paths: ChatPaths, end: int, record: SummaryRecord) -> None:
        with self._opened(paths.summaries) as file:
            end_at(file, end)  # removes a torn record, or void ones
            append_bytes(file, end, f"{encode_record(record)}\n".encode(), self.durability)
        sync_directory(paths.directory, self.durability)

    @staticmethod
    def _opened(path: str) -> FileIO:
        try:
            return open_to_write(path)
        except FileNotFoundError:
            return make_file(path)


def _newest(path: str) -> _NewestRecord:
    with suppress(FileNotFoundError), open_to_read(path) as file:
        for at, line in lines_back(snapshot := FileSnapshot(file), 0, snapshot.size):
            record_id, floor = _identity(line)
            return _NewestRecord(record_id, floor, at + len(line) + 1)
    return _NewestRecord()


def _parsed(line: bytes, key: ChatKey, location: str) -> SummaryRecord | CorruptedRecordError:
    try:
        return decode_record(line, key.agent_id, location=location)
    except CorruptedRecordError as error:
        # A damaged record can be replaced by its id; one of a newer version must not be.
        error.record_id = None if error.is_newer else _identity(line)[0]
        return error


def _identity(line: bytes) -> tuple[str | None, int | None]:
    """Return a record's id and floor, whichever version wrote it; None if it is damaged."""
    try:
        fields = json.loads(line)
        return fields["id"], fields["floor"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, None


def _floor(paths: ChatPaths, key: ChatKey) -> int | None:
    with suppress(FileNotFoundError), open_to_read(paths.log) as file:
        return ChatLog(FileSnapshot(file), paths.log, key).floor
    return None
