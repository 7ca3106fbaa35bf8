"""What an append does to a log whose end is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from agent_memory.errors import StorageConflictError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note, same_payload
from agent_memory.storage._engine.append_plan import conflict
from agent_memory.storage.dynamodb.log_end import LogEnd
from agent_memory.storage.dynamodb.table_layout import MAX_ENTRIES

GROUP_CHARACTERS: Final = 100_000
"""Waiting appends are put together up to this size, so that none makes another one big."""


@attrs.define(eq=False)
class Save:
    """One waiting call of ``_append``.

    Args:
        entries: what to append; ids unique among them.
        texts: the same, encoded.

    Attributes:
        outcome: what was stored, once it is.
        error: why nothing was, once that is known.
    """

    entries: Sequence[Entry]
    texts: Sequence[str]
    outcome: LogSlice | None = None
    error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.outcome is not None or self.error is not None

    @property
    def size(self) -> int:
        """Characters of text."""
        return sum(map(len, self.texts))


@attrs.frozen
class Plan:
    """What to append, and what each save will have stored once that is done.

    Args:
        entries, texts: what is new, in order.
        results: what each save that may be stored gets back.
        refusals: why the others may not.
    """

    entries: Sequence[Entry]
    texts: Sequence[str]
    results: Sequence[tuple[Save, list[Entry]]]
    refusals: Sequence[tuple[Save, StorageConflictError]]

    @property
    def notes(self) -> int:
        """How many of the new entries are notes."""
        return sum(isinstance(entry, Note) for entry in self.entries)


def group(waiting: Sequence[Save]) -> list[Save]:
    """Choose which waiting saves go into one item: the first, and what fits beside it."""
    chosen: list[Save] = []
    size = count = 0
    for save in waiting:
        size, count = size + save.size, count + len(save.entries)
        if chosen and (size > GROUP_CHARACTERS or count > MAX_ENTRIES):
            break
        chosen.append(save)
    return chosen


def plan(key: ChatKey, end: LogEnd, saves: Sequence[Save], known: Mapping[str, Entry]) -> Plan:
    """Place what is new after the log's end, and find what is not new.

    Args:
        key: which chat.
        end: the log's end.
        saves: in order; each is taken whole or refused whole.
        known: stored entries by id; at least those of the saves whose hashes the log's end holds.
    """
    known = dict(known)
    entries: list[Entry] = []
    texts: list[str] = []
    results: list[tuple[Save, list[Entry]]] = []
    refusals: list[tuple[Save, StorageConflictError]] = []
    for save in saves:
        clashing = [
            entry.id
            for entry in save.entries
            if entry.id in known and not same_payload(known[entry.id], entry)
        ]
        if clashing:
            refusals.append((save, conflict(key, clashing[0])))
            continue
        for entry, text in zip(save.entries, save.texts, strict=True):
            if entry.id not in known:
                position = end.last + len(entries) + 1
                known[entry.id] = entry.placed(position, key.agent_id)
                entries.append(entry)
                texts.append(text)
        results.append((save, [known[entry.id] for entry in save.entries]))
    return Plan(entries, texts, results, refusals)
