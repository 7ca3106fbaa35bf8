"""The plan of an append: positions, known ids and conflicts of a group of saves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

import attrs

from agent_memory.errors import StorageConflictError
from agent_memory.keys import ChatKey
from agent_memory.log import Entry, LogSlice, same_payload

E = TypeVar("E")

Outcome: TypeAlias = LogSlice | Exception
"""The answer to one save: what is stored under its ids, or why nothing was stored."""


@attrs.define(eq=False)
class PendingSave(Generic[E]):
    """One save that waits to be committed.

    Attributes:
        key: which chat.
        entries: what to append; at least one, ids unique among them.
        encoded: the same in the form in which the backend writes them.
        size: how much it adds to a group, in characters.
    """

    key: ChatKey
    entries: Sequence[Entry]
    encoded: Sequence[E]
    size: int = 0


@attrs.frozen
class AppendPlan(Generic[E]):
    """What to write for a group of saves, and what to answer once it is durable.

    Attributes:
        additions: for each save, its new entries with their positions, and their encoded form.
        outcomes: for each save, its answer.
        last: the log's last position afterwards.
    """

    additions: Sequence[Sequence[tuple[Entry, E]]]
    outcomes: Sequence[Outcome]
    last: int

    @property
    def added(self) -> list[tuple[Entry, E]]:
        """The new entries of all saves, in order."""
        return [addition for additions in self.additions for addition in additions]


def append_plan(
    key: ChatKey,
    last: int,
    floor: int,
    saves: Sequence[PendingSave[E]],
    known: Callable[[Entry], Entry | None],
) -> AppendPlan[E]:
    """Give the entries of several saves of one chat the positions after the end of its log.

    Args:
        key: which chat.
        last: the position of its newest entry.
        floor: the chat's floor.
        saves: in order. Each is added whole or fails alone; a later one knows what an earlier
            one adds.
        known: what the log holds under an entry's id, or None. If it raises, the save fails.

    Returns:
        The plan. A save in conflict adds nothing, nor does one for which `known` failed.
    """
    fresh: dict[str, Entry] = {}
    additions: list[list[tuple[Entry, E]]] = []
    outcomes: list[Outcome] = []

    def place(save: PendingSave[E]) -> tuple[list[tuple[Entry, E]], list[Entry]]:
        added: list[tuple[Entry, E]] = []
        stored: list[Entry] = []
        for entry, encoded in zip(save.entries, save.encoded, strict=True):
            found = fresh.get(entry.id)
            if found is None:
                found = known(entry)
            if found is None:
                found = entry.placed(last + len(added) + 1, key.agent_id)
                added.append((found, encoded))
            elif not same_payload(found, entry):
                raise conflict(key, entry.id)
            stored.append(found)
        return added, stored

    for save in saves:
        try:
            added, stored = place(save)
        except Exception as error:  # noqa: BLE001 - this save fails alone; the others are stored
            additions.append([])
            outcomes.append(error)
            continue
        # Only now: a save that failed half-way must leave nothing for a later one to find.
        fresh.update({entry.id: entry for entry, _ in added})
        last += len(added)
        additions.append(added)
        outcomes.append(LogSlice(stored, floor))
    return AppendPlan(additions, outcomes, last)


def conflict(key: ChatKey, message_id: str) -> StorageConflictError:
    """The error for an id that is already in the chat with another payload."""
    return StorageConflictError(
        f"message id {message_id!r} is already in the chat of {key} with another role, content "
        "or extra; nothing was stored. Give a changed message a new id",
        key=key,
    )
