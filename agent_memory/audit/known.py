"""Which messages a chat holds, in bounded memory, however many they are."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from agent_memory.audit.relocating import without_hints
from agent_memory.records import Entry, Note
from agent_memory.storage.codec import encode_entry

_CACHE_KIB: Final = 8_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def payload_digest(entry: Entry) -> bytes:
    """Return a digest of what idempotency compares: role, content and extra of a message."""
    entry = without_hints(entry)
    if isinstance(entry, Note):
        kept: Entry = Note(entry.kind, entry.data, id="-", timestamp=_EPOCH)
    else:
        kept = type(entry)(entry.role, entry.content, id="-", timestamp=_EPOCH, extra=entry.extra)
    return hashlib.blake2b(encode_entry(kept).encode(), digest_size=16).digest()


class KnownIds:
    """Ids of entries with a digest of each, kept in a private temporary file beyond a cache.

    SQLite makes that file, and removes it, on its own.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.execute("CREATE TABLE known (id TEXT PRIMARY KEY, digest BLOB) WITHOUT ROWID")

    def add(self, entries: Iterable[Entry]) -> None:
        """Remember entries; of one id, the first."""
        rows = [(entry.id, payload_digest(entry)) for entry in entries]
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO known VALUES (?, ?)", rows)
        self._db.execute("COMMIT")

    def digest(self, entry_id: str) -> bytes | None:
        """Return the digest of the entry with this id; None for an unknown one."""
        row = self._db.execute("SELECT digest FROM known WHERE id = ?", (entry_id,)).fetchone()
        return None if row is None else bytes(row[0])

    def close(self) -> None:
        """Forget everything."""
        self._db.close()
