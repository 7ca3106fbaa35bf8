"""Where things lie in the table: the injective encoding of chats and positions into keys.

The partition key ``pk`` is the user id as it stands (a string). The sort key ``sk`` is binary:
a letter for what it is, the session id, NUL, the agent id, NUL, and then

- ``l`` (log): the position in 8 bytes and a slot in 4, both big-endian;
- ``p`` (parts of a log item that is too big): the same, a token, and the part's number;
- ``s`` (summary records): ``h`` for the head, or ``r``, number, token and the part's number.

Ids hold no NUL, so no two chats share a key or a prefix, and the order of the bytes is the
order of ``ChatKey``. The longest sort key is 535 bytes of the 1,024 that DynamoDB allows, the
longest partition key 255 of 2,048.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from agent_memory.messages import ChatKey

Attributes: TypeAlias = Mapping[str, Any]
"""An item, or its key, as the low-level client takes and gives it."""

LOG: Final = b"l"
PART: Final = b"p"
SUMMARY: Final = b"s"

PLACE_BYTES: Final = 12
TOKEN_BYTES: Final = 8
END: Final = b"\xff" * (PLACE_BYTES + TOKEN_BYTES + 4)
"""Sorts behind everything that follows a chat's prefix."""


@attrs.frozen(order=True)
class Place:
    """A log item's place: the position of its first entry and, among equal ones, a slot.

    Items without entries (a floor that rose) share the position of the entry to come and count
    slots up; so every state of a log has exactly one next place, and two writers that know the
    same state meet in it.
    """

    position: int
    slot: int = 0

    def to_bytes(self) -> bytes:
        """The place as part of a sort key."""
        return self.position.to_bytes(8, "big") + self.slot.to_bytes(4, "big")

    @classmethod
    def from_bytes(cls, encoded: bytes) -> Place:
        """The place that :meth:`to_bytes` wrote."""
        return cls(int.from_bytes(encoded[:8], "big"), int.from_bytes(encoded[8:12], "big"))


def last_place_at(position: int) -> Place:
    """The highest place that shares a position."""
    return Place(position, 2**32 - 1)


def prefix(kind: bytes, key: ChatKey) -> bytes:
    """What the sort keys of one kind of item of one chat begin with."""
    return session_prefix(kind, key.session_id) + key.agent_id.encode() + b"\0"


def session_prefix(kind: bytes, session_id: str) -> bytes:
    """What the sort keys of one kind of item of one session begin with."""
    return kind + session_id.encode() + b"\0"


def item_key(user_id: str, sort: bytes) -> dict[str, Any]:
    """The primary key of an item."""
    return {"pk": {"S": user_id}, "sk": {"B": sort}}


def log_key(key: ChatKey, place: Place) -> dict[str, Any]:
    """The primary key of a log item."""
    return item_key(key.user_id, prefix(LOG, key) + place.to_bytes())


def part_prefix(key: ChatKey, place: Place, token: bytes = b"") -> bytes:
    """What the sort keys of the parts of one log item begin with."""
    return prefix(PART, key) + place.to_bytes() + token


def part_key(key: ChatKey, place: Place, token: bytes, number: int) -> dict[str, Any]:
    """The primary key of one part."""
    sort = part_prefix(key, place, token) + number.to_bytes(4, "big")
    return item_key(key.user_id, sort)


def split_sort_key(user_id: str, sort: bytes) -> tuple[ChatKey, bytes]:
    """Return the chat that an item belongs to, and what follows its prefix."""
    session, agent, rest = sort[1:].split(b"\0", 2)
    return ChatKey(user_id, session.decode(), agent.decode()), rest
