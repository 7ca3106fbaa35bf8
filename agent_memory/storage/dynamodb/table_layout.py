"""The layout of the table: keys, log items, and their bodies, inline or in parts.

The partition key ``pk`` is the user id (a string). The sort key ``sk`` is binary: a letter for
the kind of item, the session id, NUL, the agent id, NUL, and then

- ``l`` (log): the position in 8 bytes and a slot in 4, both big-endian;
- ``p`` (parts of a log item that is too big): the same, a token, and the part's number;
- ``s`` (summary records): ``h`` for the item that names the newest one, or ``r``, its number,
  a token, and the part's number.

Ids hold no NUL, so no two chats share a key or a prefix, and the order of the bytes is the
order of ``ChatKey``. The longest sort key has 535 bytes of the 1,024 that DynamoDB allows, the
longest partition key 255 of 2,048.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

from __future__ import annotations

import enum
import hashlib
import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from agent_memory.errors import CorruptedRecordError, MessageTooLargeError
from agent_memory.messages import ChatKey

Attributes: TypeAlias = Mapping[str, Any]
"""An item, or its key, in the form of the low-level client: ``{"name": {"S": "text"}}``."""

LOG: Final = b"l"
PART: Final = b"p"
SUMMARY: Final = b"s"

SORT_KEY_BYTES: Final = 12
TOKEN_BYTES: Final = 8
END: Final = b"\xff" * (SORT_KEY_BYTES + TOKEN_BYTES + 4)
"""Sorts behind everything that follows a chat's prefix."""


@attrs.frozen(order=True)
class SortKey:
    """The end of a log item's sort key: the position of its first entry, and a slot.

    Items without entries (a floor) have the position of the entry to come, and count the slots
    up. So each state of a log has exactly one next key, and of two writers that know the same
    state one finds it taken.
    """

    position: int
    slot: int = 0

    def to_bytes(self) -> bytes:
        """Return it as the end of a sort key."""
        return self.position.to_bytes(8, "big") + self.slot.to_bytes(4, "big")

    @classmethod
    def from_bytes(cls, encoded: bytes) -> SortKey:
        """Return what :meth:`to_bytes` encoded."""
        return cls(int.from_bytes(encoded[:8], "big"), int.from_bytes(encoded[8:12], "big"))


def last_sort_key_at(position: int) -> SortKey:
    """Return the highest key of a position."""
    return SortKey(position, 2**32 - 1)


def prefix(kind: bytes, key: ChatKey) -> bytes:
    """Return the beginning of a chat's sort keys, for one kind of item."""
    return session_prefix(kind, key.session_id) + key.agent_id.encode() + b"\0"


def session_prefix(kind: bytes, session_id: str) -> bytes:
    """Return the beginning of a session's sort keys, for one kind of item."""
    return kind + session_id.encode() + b"\0"


def item_key(user_id: str, sort: bytes) -> dict[str, Any]:
    """Return the primary key of an item."""
    return {"pk": {"S": user_id}, "sk": {"B": sort}}


def log_key(key: ChatKey, sort_key: SortKey) -> dict[str, Any]:
    """Return the primary key of a log item."""
    return item_key(key.user_id, prefix(LOG, key) + sort_key.to_bytes())


def split_sort_key(user_id: str, sort: bytes) -> tuple[ChatKey, bytes]:
    """Return the chat that an item belongs to, and what follows its prefix."""
    session, agent, rest = sort[1:].split(b"\0", 2)
    return ChatKey(user_id, session.decode(), agent.decode()), rest


logger: Final = logging.getLogger(__name__)

LAYOUT: Final = 1
"""The version of the table's layout. Items of a newer version are refused."""

DIGEST_BYTES: Final = 4
"""The length of an id's hash in an item. A chance match costs one more read."""

KNOWN_IDS: Final = 64
"""How many hashes of the newest ids each item holds: repeats are found without a search."""

MAX_ENTRIES: Final = 20_000
"""The most entries in one append: their hashes take up to 80 KB of its item."""

_NUMBER_BYTES: Final = 21
"""The most that a number takes.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
"""


class Kind(enum.StrEnum):
    """The kinds of log items; the values are stored."""

    APPEND = "append"
    """It holds entries."""
    FLOOR = "floor"
    """A trim or delete: everything up to `floor` is removed."""
    TOMBSTONE = "gone"
    """It keeps the key of removed entries taken while a slow writer may still put there."""
    ANCHOR = "anchor"
    """At position 0: positions up to `reserved` stay used when everything else has expired."""
    UNREADABLE = "broken"
    """Damaged; never written. Its entries are missing from the log."""


@attrs.frozen(kw_only=True)
class LogItem:
    """One item of a log.

    Args:
        sort_key: where it is.
        kind: what it is.
        count: how many entries it was stored with.
        notes: how many of them are notes.
        skip: how many of them have been trimmed away since, the oldest.
        floor: the chat's floor when it was written.
        ids: hashes of the newest ids of the log, this item's included, oldest first.
        written_ms: when it was written, in milliseconds since 1970 by the writer's clock, and
            never before the item before it.
        created_ms: the same of the chat's first item.
        expires_at: when it expires, in seconds since 1970; None if it never does.
        oldest_expires_at: when the oldest living item expires, as far as its writer knew.
        reserved: what the anchor is known to reserve; 0 if there is none.
        token: which attempt to append wrote it.
        parts: how many parts hold the body; 0 if it is inline.
        text, zipped: the inline body.
    """

    sort_key: SortKey
    kind: Kind
    count: int = 0
    notes: int = 0
    skip: int = 0
    floor: int = 0
    ids: bytes = b""
    written_ms: int = 0
    created_ms: int = 0
    expires_at: int | None = None
    oldest_expires_at: int | None = None
    reserved: int = 0
    token: bytes = b""
    parts: int = 0
    text: str | None = attrs.field(default=None, repr=False)
    zipped: bytes | None = attrs.field(default=None, repr=False)

    @property
    def last(self) -> int:
        """The position of its last entry; of the one before it, if it has none."""
        return self.sort_key.position + self.count - 1

    @property
    def positions(self) -> range:
        """The positions of its entries that have not been trimmed away."""
        return range(self.sort_key.position + self.skip, self.last + 1)

    @property
    def following(self) -> SortKey:
        """The key of the item after it."""
        if self.kind is Kind.ANCHOR:
            return SortKey(self.reserved + 1)
        if self.count:
            return SortKey(self.sort_key.position + self.count)
        return SortKey(self.sort_key.position, self.sort_key.slot + 1)


def part_prefix(key: ChatKey, item: LogItem) -> bytes:
    """Return the beginning of the sort keys of a log item's parts."""
    return prefix(PART, key) + item.sort_key.to_bytes() + item.token


def part_keys(key: ChatKey, item: LogItem) -> list[dict[str, Any]]:
    """Return the primary keys of a log item's parts."""
    stem = part_prefix(key, item)
    return [
        item_key(key.user_id, stem + number.to_bytes(4, "big")) for number in range(item.parts)
    ]


# The stored names, by the fields they hold: what is in a table must stay readable.
_NUMBERS: Final = {
    "count": "count",
    "notes": "notes",
    "skip": "skip",
    "floor": "floor",
    "written_ms": "at",
    "created_ms": "born",
    "reserved": "reserved",
    "parts": "parts",
}
_EXPIRIES: Final = {"expires_at": "until", "oldest_expires_at": "due"}
HEADER: Final = (
    *("pk", "sk", "v", "kind", "ids", "token"),
    *_NUMBERS.values(),
    *_EXPIRIES.values(),
)
"""The attributes of everything but the body."""


def to_attributes(key: ChatKey, item: LogItem) -> dict[str, Any]:
    """Return the item in the client's form; what is 0, empty or None is left out."""
    attributes: dict[str, Any] = {
        **log_key(key, item.sort_key),
        "v": {"N": str(LAYOUT)},
        "kind": {"S": item.kind.value},
    }
    for field, name in {**_NUMBERS, **_EXPIRIES}.items():
        if number := getattr(item, field):
            attributes[name] = {"N": str(number)}
    for name, value in (("ids", item.ids), ("token", item.token), ("zip", item.zipped)):
        if value:
            attributes[name] = {"B": value}
    if item.text is not None:
        attributes["text"] = {"S": item.text}
    return attributes


def from_attributes(attributes: Attributes) -> LogItem:
    """Return the item that :func:`to_attributes` encoded; an unreadable one if it is damaged.

    Raises:
        CorruptedRecordError: it was written by a newer version.
    """
    sort_key = SortKey.from_bytes(bytes(attributes["sk"]["B"])[-SORT_KEY_BYTES:])
    try:
        check_version(attributes)
        return LogItem(
            sort_key=sort_key,
            kind=Kind(attributes["kind"]["S"]),
            ids=_bytes(attributes, "ids") or b"",
            token=_bytes(attributes, "token") or b"",
            expires_at=_number(attributes, _EXPIRIES["expires_at"]),
            oldest_expires_at=_number(attributes, _EXPIRIES["oldest_expires_at"]),
            text=attributes["text"]["S"] if "text" in attributes else None,
            zipped=_bytes(attributes, "zip"),
            **{field: _number(attributes, name) or 0 for field, name in _NUMBERS.items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("unreadable log item %s, %s: %r", attributes["pk"], attributes["sk"], error)
        return LogItem(sort_key=sort_key, kind=Kind.UNREADABLE)


def check_version(attributes: Attributes) -> None:
    """Raise ``CorruptedRecordError`` for an item that a newer release wrote."""
    version = int(attributes["v"]["N"])
    if version > LAYOUT:
        raise CorruptedRecordError(
            f"the table's layout has version {version}; this release reads up to {LAYOUT}: "
            "upgrade agent-memory-storage",
            location=str(attributes.get("sk")),
            is_newer=True,
        )


def _number(attributes: Attributes, name: str) -> int | None:
    return int(attributes[name]["N"]) if name in attributes else None


def _bytes(attributes: Attributes, name: str) -> bytes | None:
    return bytes(attributes[name]["B"]) if name in attributes else None


def size_of(attributes: Attributes) -> int:
    """Return how many bytes an item of strings, numbers and binaries takes at most.

    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_size(value) for name, value in attributes.items())


def _value_size(value: Attributes) -> int:
    ((kind, content),) = value.items()
    if kind == "N":
        return _NUMBER_BYTES
    return len(content.encode()) if kind == "S" else len(content)


def digests(ids: Sequence[str]) -> bytes:
    """Return the hashes of ids, joined."""
    return b"".join(
        hashlib.blake2b(one.encode(), digest_size=DIGEST_BYTES).digest() for one in ids
    )


def newest_ids(known: bytes, added: bytes) -> bytes:
    """Return the hashes that an item keeps: the newest 64, or all of its own if more."""
    kept = max(KNOWN_IDS * DIGEST_BYTES, len(added))
    return (known + added)[-kept:]


ITEM_LIMIT: Final = 400_000
"""The largest item in bytes, names and values together: 400 KB, taken as 400,000.

Emulators count so, and it leaves room for what AWS counts without documenting it.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

PART_ROOM: Final = ITEM_LIMIT * 3 // 4 - 2048
"""Bytes of content in a part. Its key and fields take less than 2 KB. The quarter is left for
emulators, which count binary content as the base64 text that it is on its way."""

MAX_PARTS: Final = 350
"""The most parts of one append."""

MAX_BODY: Final = MAX_PARTS * PART_ROOM
"""The largest compressed body in bytes, about 100 MB."""


@attrs.frozen
class Body:
    """The text of a batch: plain, compressed, or compressed and split. One of them is set."""

    text: str | None = None
    zipped: bytes | None = None
    parts: Sequence[bytes] = ()


def join_lines(texts: Sequence[str]) -> str:
    """Return the text of a batch. The codec escapes newlines, so they can separate entries."""
    return "\n".join(texts)


def pack(text: str, room: int) -> Body:
    """Choose the simplest form of a body that fits.

    Args:
        text: the body.
        room: bytes that are left for it in the item.

    Raises:
        MessageTooLargeError: it exceeds :data:`MAX_BODY` even compressed.
    """
    plain = text.encode()
    if len(plain) <= room:
        return Body(text=text)
    content = zlib.compress(plain)
    if len(content) <= room * 3 // 4:
        return Body(zipped=content)
    if len(content) > MAX_BODY:
        raise MessageTooLargeError(
            f"{len(plain):,} bytes in one save are {len(content):,} when compressed; a DynamoDB "
            f"item holds 400 KB, and one save may fill {MAX_PARTS} of them ({MAX_BODY:,} bytes). "
            "Save in several calls, or keep large files elsewhere and store their address"
        )
    return Body(parts=split(content))


def split(content: bytes, room: int = PART_ROOM) -> list[bytes]:
    """Cut bytes into pieces of at most `room` bytes."""
    return [content[start : start + room] for start in range(0, len(content), room)]


def zipped(text: str) -> bytes:
    """Return a text compressed."""
    return zlib.compress(text.encode())


def unpack(content: bytes) -> str:
    """Return the text of a compressed body.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return zlib.decompress(content).decode()
    except zlib.error as error:
        raise ValueError(f"damaged body: {error}") from error
