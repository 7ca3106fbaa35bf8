"""Which chats, and which entries of them: by ids, by time, and by what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import attrs

from agent_memory.audit.log_pages import Hole, LogItem, note_text, part_text, peeked
from agent_memory.errors import InvalidRequestError
from agent_memory.log import ChatInfo, Note
from agent_memory.messages import ConversationMessage
from agent_memory.providers import parts
from agent_memory.storage.base import ChatStorage


@attrs.frozen
class Scope:
    """Which chats: all, those of a user, of a session, or one.

    Raises:
        InvalidRequestError: an id is given without those before it.
    """

    user_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.agent_id is not None and self.session_id is None) or (
            self.session_id is not None and self.user_id is None
        ):
            raise InvalidRequestError("give user, session and agent in this order")

    async def chats(self, storage: ChatStorage) -> AsyncIterator[ChatInfo]:
        """Yield these chats of a store, in key order."""
        async for info in storage.list_chats(self.user_id, self.session_id):
            if self.agent_id in (None, info.key.agent_id):
                yield info

    async def entries(self, storage: ChatStorage) -> int:
        """Count the messages and notes of these chats, without reading them."""
        return sum([info.entries async for info in self.chats(storage)])


@attrs.frozen
class Selection:
    """Which entries of a log are selected; all by default.

    Args:
        since: only entries with this timestamp or a later one.
        before: only entries with an earlier timestamp.
        grep: only entries in which this stands, in upper or lower case: in what was said or
            thought, in the names, arguments and results of tool calls, in the data of a note.
    """

    since: datetime | None = None
    before: datetime | None = None
    grep: str = ""

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return self.since is not None or self.before is not None or bool(self.grep)

    def takes(self, item: LogItem) -> bool:
        """Whether an entry is selected.

        A position that cannot be read always is: its time and text are unknown.
        """
        if isinstance(item, Hole):
            return True
        if self.since is not None and item.timestamp < self.since:
            return False
        if self.before is not None and item.timestamp >= self.before:
            return False
        wanted = self.grep.casefold()
        return not wanted or any(wanted in text.casefold() for text in _texts(item))

    async def of(self, items: AsyncIterator[LogItem]) -> AsyncIterator[LogItem]:
        """Yield those that are selected."""
        async for item in items:
            if self.takes(item):
                yield item

    async def begun(self, items: AsyncIterator[LogItem]) -> AsyncIterator[LogItem] | None:
        """Return the selected items; None if a selection leaves none."""
        first, chosen = await peeked(self.of(items))
        return None if self and first is None else chosen

    def as_dict(self) -> dict[str, str]:
        """Return the selection as JSON data."""
        return {
            **({} if self.since is None else {"since": self.since.isoformat()}),
            **({} if self.before is None else {"before": self.before.isoformat()}),
            **({"grep": self.grep} if self.grep else {}),
        }


WHOLE: Final = Selection()
"""Nothing is left out."""


def select(since: str | None, until: str | None, grep: str | None) -> Selection:
    """Return the selection that a command's options describe.

    Args:
        since: a date or a date and time in ISO 8601. Without an offset it is UTC, as all times
            are shown.
        until: the same; included is all that it names: a day to its end, a second to its end.
        grep: a text.

    Raises:
        InvalidRequestError: a time cannot be parsed, the range is empty, or the text is not
            valid Unicode.
    """
    try:
        (grep or "").encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"--grep is not valid Unicode text: {grep!r}") from None
    first = None if since is None else _moment(since, "since")
    last = None if until is None else _end_of(until)
    if first is not None and last is not None and last <= first:
        raise InvalidRequestError(f"--until {until} is before --since {since}")
    return Selection(first, last, grep or "")


def _moment(text: str, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequestError(
            f"--{name} is a date or a date and time, such as 2026-11-30, 2026-11-30T14:05 or "
            f"2026-11-30T14:05:00+01:00, not {text!r}"
        ) from None


def _end_of(text: str) -> datetime:
    # --until is inclusive, as people read it: a date to its end, a second to its end.
    moment = _moment(text, "until")
    try:
        if _is_day(text):
            return datetime.combine(moment.date() + timedelta(days=1), time(), UTC)
        return moment + timedelta(microseconds=1 if moment.microsecond else 1_000_000)
    except OverflowError:  # the last representable moment
        return datetime.max.replace(tzinfo=UTC)


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text.strip())
    except ValueError:
        return False
    return True


def _texts(item: ConversationMessage | Note) -> Iterator[str]:
    if isinstance(item, Note):
        yield note_text(item)
        return
    for part in parts(item):
        yield part.text
        yield part.name or ""
        if part.kind == "call":
            yield part_text(part)
