"""The format of a chat file's lines.

The first line is the header: the chat's key and its floor. Every other line is one entry: its
position, the start and length of its batch, then the codec's fields.
"""

from __future__ import annotations

import json
import re
import zlib
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import Entry
from agent_memory.messages import ChatKey
from agent_memory.storage.codec import VERSION, encode_entry, entry_of, parse

_MARKER: Final = b'{"position":'
# Matches an entry at top level only: inside another object ":", "," or "[" precedes it, and
# inside a string its quotes are escaped.
_PREFIX: Final = re.compile(
    rb'(?<![:,\[])\{"position":(\d+),"batch_start":(\d+),"batch_length":(\d+),'
    rb'"v":\d+,"id":("(?:[^"\\]|\\.)*"),"(\w+)":'
)


@attrs.frozen
class FileHeader:
    """The first line of a chat's file.

    Args:
        key: the chat.
        floor: every position up to it has been trimmed or deleted.
        created_at: when the chat's first entry was stored.
    """

    key: ChatKey
    floor: int = 0
    created_at: datetime = attrs.field(factory=lambda: datetime.now(UTC))


@attrs.frozen
class EntryRef:
    """What a line says about its entry without decoding the content.

    Args:
        position: the entry's place in the chat's log.
        batch_start: the position of the first entry that was saved with it.
        batch_length: how many were saved together.
        id: the entry's id.
        is_note: whether it is a note.
        start: its first byte in the file.
        stop: the byte after its last one.
    """

    position: int
    batch_start: int
    batch_length: int
    id: str
    is_note: bool
    start: int
    stop: int

    @property
    def batch_end(self) -> int:
        """The position of the last entry that was saved with it."""
        return self.batch_start + self.batch_length - 1


@attrs.frozen
class StoredEntry:
    """An entry as it was read, and where."""

    entry: Entry
    ref: EntryRef


@attrs.frozen
class DamagedBytes:
    """Bytes `start` to `stop` of the file that are not an entry, and the reason."""

    start: int
    stop: int
    reason: str


ParsedLine: TypeAlias = StoredEntry | DamagedBytes


def encode_header(header: FileHeader) -> bytes:
    """Return the header as a line."""
    fields = {
        "v": VERSION,
        "chat": attrs.asdict(header.key),
        "floor": header.floor,
        "created_at": header.created_at.isoformat(),
        "check": _check_of(header),
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decode_header(line: bytes, location: str) -> FileHeader | None:
    """Return the header a line holds, or None.

    Raises:
        CorruptedRecordError: a newer version wrote it.
    """
    try:
        fields = json.loads(line)
        version = fields["v"]
        if type(version) is int and version > VERSION:
            parse(line, location=location)  # it says how to go on
        created_at = datetime.fromisoformat(fields["created_at"])
        header = FileHeader(ChatKey(**fields["chat"]), fields["floor"], created_at)
        return header if fields["check"] == _check_of(header) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _check_of(header: FileHeader) -> str:
    """Return a checksum: a damaged digit must neither raise the floor nor change the key."""
    key, stamp = header.key, header.created_at.isoformat()
    text = "\0".join((key.user_id, key.session_id, key.agent_id, str(header.floor), stamp))
    return f"{zlib.crc32(text.encode()):08x}"


def encode_line(entry: Entry) -> bytes:
    """Encode an entry as a line, without the prefix that :func:`line_prefix` returns."""
    return f"{encode_entry(entry)[1:]}\n".encode()


def line_prefix(position: int, batch_start: int, batch_length: int) -> bytes:
    """Return the prefix of a line: its place, which is known only with the chat locked."""
    return b'{"position":%d,"batch_start":%d,"batch_length":%d,' % (
        position,
        batch_start,
        batch_length,
    )


def parse_line(line: bytes, at: int, agent_id: str) -> ParsedLine:
    """Parse a line: an entry, or damage if it is anything else, such as two entries.

    Args:
        line: the line without its end.
        at: its first byte in the file.
        agent_id: the chat's agent.
    """
    try:
        fields = parse(line)
        ref = _checked_ref(fields, at, at + len(line), is_note="note" in fields)
        return StoredEntry(entry_of(fields, ref.position, agent_id), ref)
    except CorruptedRecordError as error:
        return DamagedBytes(at, at + len(line), _problem(line, error))


def entry_ref(line: bytes, at: int, agent_id: str) -> EntryRef | None:
    """Return the ref of a line's entry, without decoding the content where possible."""
    found = _PREFIX.match(line)
    if found is not None and line.find(_MARKER, 1) < 0:
        ref = _legible_ref(found, at)
        if ref is not None:
            return ref
    parsed = parse_line(line, at, agent_id)
    return parsed.ref if isinstance(parsed, StoredEntry) else None


def positions_in(line: bytes, at: int, agent_id: str) -> tuple[int, int] | None:
    """Return the first and the last legible position of a line, damaged or not.

    An editor may have joined lines. Their entries are not read, but their positions must not be
    used again.
    """
    ref = entry_ref(line, at, agent_id)
    refs = [ref] if ref else [_legible_ref(found, at) for found in _PREFIX.finditer(line)]
    positions = [ref.position for ref in refs if ref is not None]
    return (min(positions), max(positions)) if positions else None


def _legible_ref(found: re.Match[bytes], at: int) -> EntryRef | None:
    position, start, length, identifier, following = found.groups()
    try:
        fields = {
            "position": int(position),
            "batch_start": int(start),
            "batch_length": int(length),
            "id": json.loads(identifier),
        }
        stop = at + len(found.string)
        return _checked_ref(fields, at + found.start(), stop, is_note=following == b"note")
    except (ValueError, CorruptedRecordError):
        return None


def _checked_ref(fields: dict[str, Any], start: int, stop: int, *, is_note: bool) -> EntryRef:
    position, first = fields.get("position"), fields.get("batch_start")
    length, identifier = fields.get("batch_length"), fields.get("id")
    # Checked against each other, so that a damaged digit is noticed.
    if (
        type(position) is int
        and type(first) is int
        and type(length) is int
        and type(identifier) is str
        and 1 <= first <= position < first + length
    ):
        return EntryRef(position, first, length, identifier, is_note, start, stop)
    raise CorruptedRecordError("no position within a batch, or no id")


def _problem(line: bytes, error: CorruptedRecordError) -> str:
    if not line.strip(b"\0"):
        return f"{len(line)} NUL bytes"
    cause = error.__cause__
    return str(error if cause is None else cause) or type(cause).__name__
