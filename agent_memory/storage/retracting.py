"""Finding the newest message that views still show, and retracting it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import attrs

from agent_memory.errors import StorageConflictError
from agent_memory.keys import ChatKey, new_id
from agent_memory.log import Entry, LogSlice, Note, Retraction, retraction_of
from agent_memory.messages import ConversationMessage

_Read: TypeAlias = Callable[..., Awaitable[LogSlice]]
_Save: TypeAlias = Callable[[ChatKey, Sequence[Entry]], Awaitable[LogSlice]]
_FIRST_LOOK: Final = 8  # entries read at first when looking for the newest message
_PAGE: Final = 256  # the most that are read at a time


async def retract_newest_shown(
    key: ChatKey, read: _Read, save: _Save
) -> ConversationMessage | None:
    """Retract the newest message that no note retracts, and return it.

    Args:
        key: which chat.
        read: the store's hook that reads entries.
        save: appends entries.
    """
    refused: str | None = None
    while (found := await _newest_shown(key, read)) is not None:
        message, retraction = found
        # All who retract this message use one id and different tokens: the store takes the
        # first, and the others meet a conflict.
        note = attrs.evolve(retraction.to_note(token=new_id()), id=f"retracted-{message.position}")
        try:
            await save(key, [note])
        except StorageConflictError:
            if message.id == refused:
                raise  # an entry that is no retraction has this id
            refused = message.id  # another call retracted it: look for the one before
            continue
        return message
    return None


async def _newest_shown(
    key: ChatKey, read: _Read
) -> tuple[ConversationMessage, Retraction] | None:
    """Return the newest message that no note retracts, and what retracts it."""
    size = _FIRST_LOOK
    log = await read(key, last=size)
    entries: Sequence[Entry] = log.entries
    last = (entries[-1].position or 0) if entries else 0
    search = _Search(last + 1)
    while entries:
        message = search.look_at(entries)
        if message is not None:
            return message, search.retraction_of(message, last)
        size = min(2 * size, _PAGE)
        after = max(log.floor, search.passed - 1 - size)
        count = search.passed - 1 - after
        entries = (await read(key, after=after, first=count)).entries if count > 0 else []
    return None


@attrs.define
class _Search:
    """Looks for the newest message that is shown, backwards, a stretch of the log at a time.

    Args:
        passed: nothing from this position on is shown.
        gone: the ids that the notes seen so far retract and that were not met yet.
    """

    passed: int
    gone: set[str] = attrs.field(factory=set[str])

    def look_at(self, entries: Sequence[Entry]) -> ConversationMessage | None:
        """Return the newest message among the entries that is shown."""
        for entry in reversed(entries):
            position = entry.position or 0
            if position >= self.passed:
                continue
            self.passed = position
            if isinstance(entry, ConversationMessage):
                if entry.id not in self.gone:
                    return entry
                self.gone.discard(entry.id)
            else:
                self._take_in(entry, position)
        return None

    def retraction_of(self, message: ConversationMessage, last: int) -> Retraction:
        """Return what retracts the message found, in a log that ends at position `last`.

        A later search skips the entries that this note hides, with the notes among them. So the
        note repeats the ids that those retract and that were not met in the search.
        """
        return Retraction(
            frozenset({message.id, *self.gone}), hidden=(message.position or 0, last)
        )

    def _take_in(self, note: Note, position: int) -> None:
        retraction = retraction_of(note)
        if retraction is None:
            return
        self.gone |= retraction.ids
        if retraction.everything:
            self.passed = 1
        elif retraction.hidden is not None and retraction.hidden[1] == position - 1:
            # An earlier search has found all of this hidden: it need not be read again.
            self.passed = min(self.passed, retraction.hidden[0])
