"""What sources of messages give: chunks of chats, and what they could not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.errors import AgentMemoryError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, SummaryRecord

BY_PLACE: Final = "imported-"
"""Begins the id of a message whose source has none: the rest is its place in the conversation."""


class BadRecordError(AgentMemoryError):
    """A record of a source cannot be taken over; the text says where it is."""


@attrs.frozen
class Whose:
    """Under which ids conversations are stored whose files do not say it.

    Args:
        user_id: whose they are.
        agent_id: with which agent.
    """

    user_id: str
    agent_id: str


@attrs.frozen
class Chunk:
    """Some entries of one chat, in order; the chunks of a chat follow one another.

    Args:
        key: which chat.
        entries: messages and notes; their ``position`` is that in the source, None where the
            source has none.
        places: where each entry is in the source, such as its line; empty where the position
            tells.
        source: what the places are counted in, such as ``"chats.jsonl, line"``.
        summaries: the chat's records, oldest first, positions as in the source; only in the
            chunk that ends a chat.
        done: how far the source has been read by now, in its own unit (bytes, messages).
    """

    key: ChatKey
    entries: Sequence[Entry]
    places: Sequence[int] = ()
    source: str = ""
    summaries: Sequence[SummaryRecord] = ()
    done: int = 0

    def place(self, index: int) -> str:
        """Say where an entry is in the source."""
        if self.places:
            return f"{self.source} {self.places[index]}"
        return f"the chat of {self.key}, position {self.entries[index].position}"


@attrs.frozen
class Bad:
    """A record that cannot be taken over.

    Args:
        place: where it is: file and line, table and row, or chat and position.
        reason: what is wrong with it.
    """

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@attrs.frozen
class Piece:
    """A part of what an export writes.

    Args:
        text: to be written as it is.
        entries: how many of the chat's entries it stands for.
        left_out: how many of their parts have no place in the format.
    """

    text: str
    entries: int = 0
    left_out: int = 0
