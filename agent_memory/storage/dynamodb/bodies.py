"""A log item's body: the entries' text, inline, compressed, or compressed and cut into parts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.errors import MessageTooLargeError

ITEM_LIMIT: Final = 400_000
"""The largest item in bytes, names and values together: AWS's 400 KB, read narrowly, as
emulators do and as leaves room for what AWS counts without telling.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

PART_ROOM: Final = ITEM_LIMIT * 3 // 4 - 2048
"""Bytes of content in a part. Its key and fields take less than 2 KB. The quarter is left for
emulators, which count binary content as the base64 text that it is on its way."""

MAX_PARTS: Final = 350
"""So many parts at most; an append holds at most this times :data:`PART_ROOM` compressed."""

MAX_BODY: Final = MAX_PARTS * PART_ROOM
"""The largest compressed body in bytes, about 100 MB."""


@attrs.frozen
class Body:
    """One of three: `text` as it is, `zipped` in one piece, or `parts` to be joined."""

    text: str | None = None
    zipped: bytes | None = None
    parts: Sequence[bytes] = ()


def join_lines(texts: Sequence[str]) -> str:
    """The text of a batch. The codec escapes newlines, so that they may separate entries."""
    return "\n".join(texts)


def pack(text: str, room: int) -> Body:
    """Choose the plainest form of a body that fits.

    Args:
        text: what is to be stored.
        room: bytes that are left in the item itself.

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
