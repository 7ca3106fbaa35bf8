"""From a log's items to the entries they hold."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note
from agent_memory.storage.codec import decode_entry
from agent_memory.storage.dynamodb.cover import Span
from agent_memory.storage.dynamodb.items import LogItem

logger: Final = logging.getLogger(__name__)


@attrs.frozen
class RawSlice:
    """A part of a log before its entries are decoded, which is left to the caller's thread.

    Args:
        key: which chat.
        table: the table's name, for errors.
        floor: the chat's floor.
        span: which positions it holds.
        held: the items that hold them, with the text of their bodies.
    """

    key: ChatKey
    table: str
    floor: int = 0
    span: Span = attrs.field(default=Span(1, 0))
    held: Sequence[tuple[LogItem, str]] = ()

    def decode(self) -> LogSlice:
        """Decode the entries; a note of kind ``"corrupted"`` stands for each that is missing."""
        texts = dict(self._texts())
        positions = range(self.span.low, self.span.high + 1)
        return LogSlice([self._entry(at, texts.get(at)) for at in positions], self.floor)

    def _texts(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for item, body in self.held:
            lines = body.split("\n")
            if len(lines) == item.count - item.skip:
                found.extend(enumerate(lines, item.place.position + item.skip))
        return found

    def _entry(self, position: int, text: str | None) -> Entry:
        location = f"DynamoDB table {self.table!r}, {self.key}, position {position}"
        try:
            # Nothing where an entry should be is no readable text either.
            return decode_entry(text or "", position, self.key.agent_id, location=location)
        except CorruptedRecordError as error:
            logger.warning("a message cannot be read and is left out: %s", location)
            note = Note(
                "corrupted",
                {"location": location, "error": str(error)},
                id=f"corrupted-{position}",
            )
            return note.placed(position, self.key.agent_id)
