"""Checking views against what was saved, without the code that makes the views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from agent_memory.messages import ConversationMessage
from agent_memory.providers import parts


class ViewWatch:
    """Knows what one chat holds so far, and tells what a view of it has got wrong.

    It finds tool exchanges by the ids of calls and results alone.
    """

    def __init__(self) -> None:
        self._saved: list[ConversationMessage] = []
        self._places: dict[str, int] = {}
        self._callers: dict[str, str] = {}
        self._partners: defaultdict[str, set[str]] = defaultdict(set)

    def saved(self, message: ConversationMessage) -> None:
        """Take note of a message that has just been stored."""
        self._places[message.id] = len(self._saved)
        self._saved.append(message)
        for part in parts(message):
            if part.waits and part.id is not None:
                self._callers[part.id] = message.id
            caller = self._callers.get(part.id or "") if part.answers else None
            if caller is not None:
                self._partners[caller].add(message.id)
                self._partners[message.id].add(caller)

    def raw_in(self, view: Iterable[ConversationMessage]) -> list[ConversationMessage]:
        """Return the messages of a view that were saved."""
        return [message for message in view if message.id in self._places]

    def made_in(self, view: Iterable[ConversationMessage]) -> list[ConversationMessage]:
        """Return the messages of a view that nobody saved: its summary."""
        return [message for message in view if message.id not in self._places]

    def split_exchanges(self, view: Iterable[ConversationMessage]) -> list[str]:
        """Return a line for each message whose tool exchange is only in part in the view."""
        shown = {message.id for message in view}
        return [
            f"message {self._places[name] + 1} is shown without the rest of its tool exchange"
            for name in shown
            if not self._partners.get(name, shown) <= shown
        ]

    def faults(self, view: Sequence[ConversationMessage]) -> list[str]:
        """Return a line for each other way in which the view is not what was saved."""
        found: list[str] = []
        raw = self.raw_in(view)
        places = [self._places[message.id] for message in raw]
        if any(message != self._saved[place] for message, place in zip(raw, places, strict=True)):
            found.append("a message in the view differs from what was saved")
        if any(one >= other for one, other in pairwise(places)):
            found.append("the view repeats messages, or shows them in another order")
        if self._saved and view[-1:] != self._saved[-1:]:
            found.append("the view does not end with the newest message")
        if not self.made_in(view) and len(raw) < len(self._saved):
            found.append("messages are missing from the view, and no summary stands for them")
        return found
