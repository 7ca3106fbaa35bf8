"""Ids: which strings may be one, and how new ones are made."""

from __future__ import annotations

import os
import time
from typing import Final

from agent_memory.errors import InvalidRequestError

MAX_ID_BYTES: Final = 255
"""The longest id, in UTF-8 bytes: it fits every backend's key."""


def check_id(value: object, name: str) -> str:
    """Return `value` if it may be an id.

    Args:
        value: 1 to 255 UTF-8 bytes of any characters but NUL and lone surrogates.
        name: how the error calls it, such as ``"user_id"``.

    Raises:
        InvalidRequestError: it may not.
    """
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name} must be a string, not {type(value).__name__}")
    if not value:
        raise InvalidRequestError(f"{name} must not be empty")
    if "\0" in value:
        raise InvalidRequestError(f"{name} {value!r} must not contain NUL")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"{name} {value!r} must not contain lone surrogates (it is no valid Unicode text)"
        ) from None
    if size > MAX_ID_BYTES:
        raise InvalidRequestError(
            f"{name} is {size} bytes of UTF-8 long; at most {MAX_ID_BYTES} are allowed "
            "(hash longer keys before you use them as ids)"
        )
    return str(value)


def new_id() -> str:
    """Return a new UUIDv7: 48 bits of milliseconds since 1970, then random bits.

    Source of the layout: RFC 9562, section 5.7. Ids sort roughly by the time they were made,
    which keeps database indexes compact; nothing in this library relies on that order.
    """
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF000 << 64) | 0x7000 << 64
    value = value & ~(0xC000 << 48) | 0x8000 << 48
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
