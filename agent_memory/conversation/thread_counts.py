"""Counting a thread's runs and messages as it grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.records import Entry


def _whole(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not int or value < 0:
        raise InvalidRequestError(f"{attribute.name} must be an int of at least 0, not {value!r}")


@attrs.frozen
class ThreadCounts:
    """How many runs and messages a thread has.

    Args:
        runs: contiguous blocks of one run id; neighbours without one are one block.
        messages: living messages.
        last_run: the run id of the newest block.

    Raises:
        InvalidRequestError: a number is negative, or something is of another type.
    """

    runs: int = attrs.field(default=0, validator=_whole)
    messages: int = attrs.field(default=0, validator=_whole)
    last_run: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(str))
    )

    def and_also(self, entries: Iterable[Entry]) -> ThreadCounts:
        """Return the counts with entries that follow those counted before."""
        runs, messages, last_run = self.runs, self.messages, self.last_run
        for entry in entries:
            if isinstance(entry, ConversationMessage):
                runs += not messages or entry.run_id != last_run
                messages += 1
                last_run = entry.run_id
        return ThreadCounts(runs, messages, last_run)
