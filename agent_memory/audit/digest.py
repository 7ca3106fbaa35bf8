"""A digest of a chat's log, the same on every store: :func:`digest_of`.

The canonical log is UTF-8 text. Its first line is ``agent-memory log 1``; its second the chat,
as the JSON list of user, session and agent id. A line follows for each position from the one
above the floor to the last: the entry as :func:`~agent_memory.storage.codec.encode_entry` writes
it, or ``null`` for one that cannot be read. Each line ends with a line feed. The digest is the
SHA-256 of that.

``docs/audit.md`` says the same for those who compute it without this library.

Positions are not written: a log has no gaps, so that floor and order tell them. A chat that was
trimmed and then copied to another store begins at position 1 there, and its digest is the same
(unless it holds a retraction, whose hint in positions is not copied then).
"""

from __future__ import annotations

import hashlib
import json

import attrs

from agent_memory.audit.log import Hole, each_of
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey
from agent_memory.records import ChatInfo
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import encode_entry

_HEADER = b"agent-memory log 1\n"


@attrs.frozen
class ChatDigest:
    """A digest, and of what.

    Args:
        key: which chat.
        floor: the position below the first one.
        last: the last position.
        sha256: of the canonical log between them, as 64 hexadecimal digits.
        holes: how many of the positions cannot be read.
    """

    key: ChatKey
    floor: int
    last: int
    sha256: str
    holes: int = 0


async def digest_of(
    storage: ChatStorage, info: ChatInfo, *, through: int | None = None
) -> ChatDigest:
    """Read a chat's log and return its digest; memory is bounded.

    Args:
        storage: where the chat is.
        info: which chat, and its floor and last position.
        through: the last position to take, so that an earlier digest is computed again after
            more was appended; None, or a position beyond the last, takes everything.

    Raises:
        InvalidRequestError: the chat was trimmed beyond that position.
    """
    last = info.last if through is None else min(through, info.last)
    if last <= info.floor:
        raise InvalidRequestError(
            f"the chat of {info.key} holds nothing up to position {last} any more: what is up to "
            f"{info.floor} was trimmed"
        )
    digest = hashlib.sha256(_HEADER)
    key = info.key
    chat = json.dumps([key.user_id, key.session_id, key.agent_id], ensure_ascii=False)
    digest.update(chat.encode() + b"\n")
    holes = 0
    async for item in each_of(storage, attrs.evolve(info, last=last)):
        if isinstance(item, Hole):
            holes += item.count
            for _ in range(item.count):
                digest.update(b"null\n")
        else:
            digest.update(encode_entry(item).encode() + b"\n")
    return ChatDigest(info.key, info.floor, last, digest.hexdigest(), holes)
