"""The items of a chat's log, as values and as DynamoDB attributes."""

from __future__ import annotations

import enum
import hashlib
import logging
from collections.abc import Sequence
from typing import Any, Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.storage.dynamodb.places import PLACE_BYTES, Attributes, Place, log_key

logger: Final = logging.getLogger(__name__)

LAYOUT: Final = 1
"""The version of the table's layout. A reader refuses anything newer than it knows."""

DIGEST_BYTES: Final = 4
"""How much of an id's hash an item keeps. A chance match costs a look at the entry, no more."""

KNOWN_IDS: Final = 64
"""How many of the newest ids every item knows, so that repeats are noticed without a search."""

MAX_ENTRIES: Final = 20_000
"""The most entries in one append: their hashes take up to 80 KB of its item."""

_NUMBER_BYTES: Final = 21
"""The most that a number takes."""


class Kind(enum.StrEnum):
    """What a log item is."""

    APPEND = "append"
    """Entries."""
    FLOOR = "floor"
    """A trim or delete: everything up to `floor` is gone."""
    GONE = "gone"
    """What is left of an item whose entries are gone, until no writer can aim at its place."""
    ANCHOR = "anchor"
    """At position 0: no position up to `reserved` is used again when all else has expired."""
    BROKEN = "broken"
    """Unreadable; never written. Its entries are missing from the log."""


@attrs.frozen(kw_only=True)
class LogItem:
    """One item of a log.

    Args:
        place: where it is.
        kind: what it is.
        count: how many entries it was stored with.
        notes: how many of them are notes.
        skip: how many of them have been trimmed away since, the oldest.
        floor: the chat's floor when it was written.
        ids: hashes of the newest ids of the log, this item's included, oldest first.
        at: when it was written, in milliseconds since 1970 by the writer's clock, and never
            before the item before it.
        born: the same of the chat's first item.
        until: when it expires, in seconds since 1970; None if it never does.
        due: when the oldest living item expires, as far as its writer knew.
        reserved: what the anchor is known to reserve; 0 if there is none.
        token: which attempt to append wrote it.
        parts: how many parts hold the body; 0 if it is inline.
        text, zipped: the inline body.
    """

    place: Place
    kind: Kind
    count: int = 0
    notes: int = 0
    skip: int = 0
    floor: int = 0
    ids: bytes = b""
    at: int = 0
    born: int = 0
    until: int | None = None
    due: int | None = None
    reserved: int = 0
    token: bytes = b""
    parts: int = 0
    text: str | None = attrs.field(default=None, repr=False)
    zipped: bytes | None = attrs.field(default=None, repr=False)

    @property
    def end(self) -> int:
        """The position of its last entry; of the one before it, if it has none."""
        return self.place.position + self.count - 1

    @property
    def following(self) -> Place:
        """The place of the item after it."""
        if self.kind is Kind.ANCHOR:
            return Place(self.reserved + 1)
        if self.count:
            return Place(self.place.position + self.count)
        return Place(self.place.position, self.place.slot + 1)


_NUMBERS: Final = ("count", "notes", "skip", "floor", "at", "born", "reserved", "parts")
_OPTIONAL_NUMBERS: Final = ("until", "due")
HEADER: Final = ("pk", "sk", "v", "kind", "ids", "token", *_NUMBERS, *_OPTIONAL_NUMBERS)
"""The attributes of everything but the body."""


def to_attributes(key: ChatKey, item: LogItem) -> dict[str, Any]:
    """The item as the client takes it; what is 0, empty or None is left out."""
    attributes: dict[str, Any] = {
        **log_key(key, item.place),
        "v": {"N": str(LAYOUT)},
        "kind": {"S": item.kind.value},
    }
    for name in (*_NUMBERS, *_OPTIONAL_NUMBERS):
        if getattr(item, name):
            attributes[name] = {"N": str(getattr(item, name))}
    for name, value in (("ids", item.ids), ("token", item.token), ("zip", item.zipped)):
        if value:
            attributes[name] = {"B": value}
    if item.text is not None:
        attributes["text"] = {"S": item.text}
    return attributes


def from_attributes(attributes: Attributes) -> LogItem:
    """The item that :func:`to_attributes` wrote; a broken one if its fields cannot be read.

    Raises:
        CorruptedRecordError: it was written by a newer version.
    """
    place = Place.from_bytes(bytes(attributes["sk"]["B"])[-PLACE_BYTES:])
    try:
        check_version(attributes)
        return LogItem(
            place=place,
            kind=Kind(attributes["kind"]["S"]),
            ids=_bytes(attributes, "ids") or b"",
            token=_bytes(attributes, "token") or b"",
            until=_number(attributes, "until"),
            due=_number(attributes, "due"),
            text=attributes["text"]["S"] if "text" in attributes else None,
            zipped=_bytes(attributes, "zip"),
            **{name: _number(attributes, name) or 0 for name in _NUMBERS},
        )
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("unreadable log item %s, %s: %r", attributes["pk"], attributes["sk"], error)
        return LogItem(place=place, kind=Kind.BROKEN)


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
    """How many bytes an item of strings, numbers and binaries takes, at most.

    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_size(value) for name, value in attributes.items())


def _value_size(value: Attributes) -> int:
    ((kind, content),) = value.items()
    if kind == "N":
        return _NUMBER_BYTES
    return len(content.encode()) if kind == "S" else len(content)


def digests(ids: Sequence[str]) -> bytes:
    """The hashes of ids, one after another."""
    return b"".join(
        hashlib.blake2b(one.encode(), digest_size=DIGEST_BYTES).digest() for one in ids
    )


def newest_ids(known: bytes, added: bytes) -> bytes:
    """Which hashes an item keeps: the newest 64, or all of its own if they are more."""
    kept = max(KNOWN_IDS * DIGEST_BYTES, len(added))
    return (known + added)[-kept:]
