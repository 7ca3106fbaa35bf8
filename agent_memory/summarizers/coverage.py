"""The coverage of a summary: how many messages it was made from, and from when to when.

It is kept in the metadata of the summary's message, which the store's record holds, so that the
next summary can add to it, after a restart too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from agent_memory.messages import ConversationMessage

_KEY: Final = "covers"


@attrs.frozen
class Coverage:
    """The messages that a summary was made from, those of the summaries before it included.

    Args:
        messages: how many; None where an earlier summary does not say.
        first: when the oldest was said; None likewise.
        last: when the newest was said.
        through: the newest position among them, 0 where none has one.
    """

    messages: int | None
    first: datetime | None
    last: datetime
    through: int

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the summary's message holds of it."""
        first = self.first and self.first.isoformat()
        fields = {"messages": self.messages, "first": first, "last": self.last.isoformat()}
        return {_KEY: {**fields, "through": self.through}}

    def __str__(self) -> str:
        last = self.last.astimezone(UTC)
        if self.messages is None or self.first is None:
            return f"until {last:%Y-%m-%d %H:%M} UTC"
        first = self.first.astimezone(UTC)
        count = "1 message" if self.messages == 1 else f"{self.messages:,} messages"
        end = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
        return f"{count}, {first:%Y-%m-%d %H:%M} to {end} UTC"


def coverage_of(
    messages: Sequence[ConversationMessage], summaries: Collection[str]
) -> Coverage | None:
    """Return what a summary of messages covers; None if there is nothing to cover.

    Args:
        messages: what is summarized.
        summaries: the ids of those among them that are earlier summaries.
    """
    earlier = [_read(message) for message in messages if message.id in summaries]
    known = [coverage for coverage in earlier if coverage is not None]
    through = max((coverage.through for coverage in known), default=0)
    # What stayed in the view beside an earlier summary, such as a question, is given again.
    new = [
        message
        for message in messages
        if message.id not in summaries and (message.position is None or message.position > through)
    ]
    times = [message.timestamp for message in new]
    ends = [*(coverage.last for coverage in known), *times]
    if not ends:
        return None
    counts = [coverage.messages for coverage in known if coverage.messages is not None]
    starts = [coverage.first for coverage in known if coverage.first is not None]
    is_complete = len(counts) == len(starts) == len(earlier)
    return Coverage(
        sum(counts) + len(new) if is_complete else None,
        min([*starts, *times]) if is_complete else None,
        max(ends),
        max((message.position or 0 for message in new), default=through),
    )


def _read(summary: ConversationMessage) -> Coverage | None:
    """Return what a summary says of itself; None where it says nothing, as before release 0.2."""
    stored: Any = summary.metadata.get(_KEY)
    try:
        first = stored["first"]
        return Coverage(
            stored["messages"],
            None if first is None else datetime.fromisoformat(first),
            datetime.fromisoformat(stored["last"]),
            int(stored["through"]),
        )
    except (TypeError, KeyError, ValueError):
        return None
