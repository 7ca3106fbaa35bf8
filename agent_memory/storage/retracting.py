"""Retracting messages: views forget them, the log keeps them and a note of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from agent_memory.errors import InvalidRequestError, StorageConflictError
from agent_memory.ids import check_id, new_id
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import Entry, Note
from agent_memory.retractions import Retraction, retraction_of
from agent_memory.storage.base import ChatStorage

__all__ = ["retract_all", "retract_messages", "retract_newest"]

_FIRST_LOOK: Final = 8  # entries read at first when looking for the newest message
_PAGE: Final = 256  # the most that are read at a time


async def retract_messages(storage: ChatStorage, key: ChatKey, ids: Iterable[str]) -> Note:
    """Have every view of a chat forget some of its messages; one note is appended.

    Args:
        storage: the store, or a wrapper around it; views of a wrapper are told at once.
        key: which chat.
        ids: the messages'; those that the chat does not have yet are not affected.

    Raises:
        InvalidRequestError: there are none, or one is no id.
    """
    named = frozenset(check_id(item, "id") for item in ids)
    if not named:
        raise InvalidRequestError("ids must name at least one message")
    return await _save(storage, key, Retraction(named).to_note())


async def retract_all(storage: ChatStorage, key: ChatKey) -> Note:
    """Have every view of a chat forget all that was saved so far; one note is appended."""
    return await _save(storage, key, Retraction(everything=True).to_note())


async def retract_newest(storage: ChatStorage, key: ChatKey) -> ConversationMessage | None:
    """Have every view of a chat forget the newest message that is still shown.

    Of two calls at once each gets a message of its own, as long as the store knows the id of a
    note appended by the other (all on memory and SQL, the newest 64 entries elsewhere).

    Returns:
        The message, as it was stored; None when no message is shown any more.
    """
    await storage._ready()
    refused: str | None = None
    while (found := await _newest_shown(storage, key)) is not None:
        message, retraction = found
        # One id for all who retract this message, and a token of ours: one of them succeeds.
        note = attrs.evolve(retraction.to_note(token=new_id()), id=f"retracted-{message.position}")
        try:
            await _save(storage, key, note)
        except StorageConflictError:
            if message.id == refused:
                raise  # it is no note of a retraction that has this id
            refused = message.id  # another was quicker: the next message is the newest now
            continue
        return message
    return None


async def _save(storage: ChatStorage, key: ChatKey, note: Note) -> Note:
    return await storage.save_note(key.user_id, key.session_id, key.agent_id, note)


async def _newest_shown(
    storage: ChatStorage, key: ChatKey
) -> tuple[ConversationMessage, Retraction] | None:
    """Return the newest message that no note retracts, and what retracts it."""
    size = _FIRST_LOOK
    log = await storage._read(key, last=size)
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
        entries = (await storage._read(key, after=after, first=count)).entries if count > 0 else []
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

        Who passes over what is hidden will not see the notes there: what they retract of the
        messages before is said again.
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
