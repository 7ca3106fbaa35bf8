"""Ids, and the key of a chat that is made of three: which strings may be one, and new ones."""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from typing import Any, Final

import attrs

from agent_memory.base_errors import InvalidRequestError

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
            f"{name} {value!r} must not contain lone surrogates (it is not valid Unicode text)"
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
    now = f"{time.time_ns() // 1_000_000:012x}"
    chance = _chance()
    text = chance.hex()
    # 7 is the version; the variant is the bits 10, and two random ones.
    variant = "89ab"[chance[9] & 3]
    return f"{now[:8]}-{now[8:]}-7{text[:3]}-{variant}{text[3:6]}-{text[6:18]}"


# Asking the system lets other threads run: a task that makes messages would wait for a thread
# that stores some, and the groups that share a commit would stay small.
_chances: Final[deque[bytes]] = deque()
_CHANCE: Final = 10  # bytes
_AT_ONCE: Final = 256


def _chance() -> bytes:
    """Return random bytes from the system, never the same ones twice."""
    try:
        return _chances.pop()
    except IndexError:
        fresh = os.urandom(_CHANCE * (_AT_ONCE + 1))
        starts = range(_CHANCE, len(fresh), _CHANCE)
        _chances.extend(fresh[start : start + _CHANCE] for start in starts)
        return fresh[:_CHANCE]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_chances.clear)  # else two processes make the same ids


def id_field(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check a field of an attrs class: an id."""
    check_id(value, attribute.name)


def optional_id_field(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check a field of an attrs class: an id, or None."""
    if value is not None:
        check_id(value, attribute.name)


@attrs.frozen(order=True, cache_hash=True)
class ChatKey:
    """Names one chat. Keys are never joined into one string, so that they cannot collide.

    Args:
        user_id: whose chat it is; the tenant.
        session_id: which conversation of that user.
        agent_id: with which agent.

    Each is 1 to 255 UTF-8 bytes, any characters but NUL and lone surrogates.

    Raises:
        InvalidRequestError: an id is invalid.
    """

    user_id: str = attrs.field(validator=id_field)
    session_id: str = attrs.field(validator=id_field)
    agent_id: str = attrs.field(validator=id_field)

    def __str__(self) -> str:
        return f"user {self.user_id!r}, session {self.session_id!r}, agent {self.agent_id!r}"


def chat_key(user_id: str, session_id: str, agent_id: str) -> ChatKey:
    """Return the key of a chat; the most recently used ones are not checked again.

    Raises:
        InvalidRequestError: an id is invalid.
    """
    try:
        return _known_key(user_id, session_id, agent_id)
    except TypeError:  # no string, and not even hashable
        return ChatKey(user_id, session_id, agent_id)


_known_key = functools.lru_cache(maxsize=1024)(ChatKey)
