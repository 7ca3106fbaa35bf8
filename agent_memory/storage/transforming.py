"""A store that changes messages on their way in and out: :class:`TransformingChatStorage`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

import attrs

from agent_memory.errors import InvalidRequestError, StorageConflictError
from agent_memory.keys import ChatKey
from agent_memory.log import Entry, LogSlice, Note, SummaryRecord, same_payload
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.summaries import SummaryStore
from agent_memory.storage.wrapper import WrapperChatStorage

Transformation: TypeAlias = Callable[
    [ConversationMessage], "ConversationMessage | Awaitable[ConversationMessage | None] | None"
]
"""An async or plain function: the message changed, or the same, or None."""

_FIRST_LOOK = 64  # entries looked at first for those that a conflict is about


class TransformingChatStorage(WrapperChatStorage):
    """Passes each message through a function before it is stored, and back when it is read.

    Scrubbing takes an `on_save`; encryption takes both. Summary records (their summary and
    head) pass through the same functions, so that no text goes around them. Put it *inside* a
    ``SummarizingChatStorage``: that one then sees, and shows its model, what a reader would.

    Args:
        storage: the inner store.
        on_save: gets each message before it is stored and returns what is stored instead; None
            drops the message (it is neither stored nor in the save's result). What it raises
            leaves the save as it is, and nothing of the batch is stored.
        on_read: gets each stored message and returns what is handed out; None hides the message
            (the log shows a note of kind ``"hidden"`` in its place). What it raises leaves the
            read as it is.
        close_inner: whether :meth:`aclose` closes the inner store too.

    Both may be async or plain; a plain one runs at once in the caller's event loop, so it must
    be quick. Neither may wait forever: a save that has begun cannot be given up.

    A function may build a new message: its role, content, extra, metadata and usage are taken,
    and id, timestamp, run_id and pinned stay those of the original, as long as the new one has
    another id. Positions are always the store's.

    A save returns what a fetch would give: stored, then passed through `on_read`.

    Retries stay idempotent when `on_save` gives another result each time, as encryption does, if
    there is an `on_read`: what is readable is compared, not what is stored. Without `on_read`,
    `on_save` must give the same result for the same message.

    Raises:
        InvalidRequestError: an argument is not a function, or a function returned something else.
    """

    def __init__(
        self,
        storage: ChatStorage,
        on_save: Transformation | None = None,
        on_read: Transformation | None = None,
        *,
        close_inner: bool = True,
    ) -> None:
        super().__init__(storage, close_inner=close_inner)
        for name, function in (("on_save", on_save), ("on_read", on_read)):
            if function is not None and not callable(function):
                raise InvalidRequestError(
                    f"{name} must be a function that takes a message, not "
                    f"{type(function).__name__}"
                )
        self._on_save = on_save
        self._on_read = on_read

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        changed = [entry for given in entries if (entry := await self._saved(given)) is not None]
        if not changed:  # every message was dropped; the caller still gets the floor
            return LogSlice([], (await super()._read(key, last=1)).floor)
        try:
            stored = await super()._append(key, changed)
        except StorageConflictError:
            if self._on_read is None:
                raise
            repeats = await self._repeats(key, changed)
            if not repeats:
                raise
            stored = await super()._append(key, [repeats.get(e.id, e) for e in changed])
        return await self._readable(stored)

    async def _repeats(self, key: ChatKey, entries: Sequence[Entry]) -> dict[str, Entry]:
        """The stored forms of those entries that were saved before and read the same."""
        wanted = {entry.id: entry for entry in entries}
        found: dict[str, Entry] = {}
        size, seen = _FIRST_LOOK, 0
        while True:
            newest = (await super()._read(key, last=size)).entries
            for stored in newest[: len(newest) - seen]:
                given = wanted.get(stored.id)
                if given is not None and await self._read_alike(given, stored):
                    found[stored.id] = stored
            if len(found) == len(wanted) or len(newest) < size:
                return found
            size, seen = size * 4, len(newest)

    async def _read_alike(self, given: Entry, stored: Entry) -> bool:
        return same_payload(await self._read_back(given), await self._read_back(stored))

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        return await self._readable(await super()._read(key, after=after, first=first, last=last))

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        return (await self._readable(LogSlice(await super()._fetch(key, limit)))).messages

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        chats = await super()._read_session(user_id, session_id)
        return {key: await self._readable(chat) for key, chat in chats.items()}

    async def _readable(self, chat: LogSlice) -> LogSlice:
        if self._on_read is None:
            return chat
        return LogSlice([await self._read_back(entry) for entry in chat.entries], chat.floor)

    async def _saved(self, entry: Entry) -> Entry | None:
        if isinstance(entry, Note) or self._on_save is None:
            return entry
        return await _applied(self._on_save, entry, "on_save")

    async def _read_back(self, entry: Entry) -> Entry:
        if isinstance(entry, Note) or self._on_read is None:
            return entry
        changed = await _applied(self._on_read, entry, "on_read")
        if changed is None:
            return _placed_like(Note("hidden", id=entry.id, timestamp=entry.timestamp), entry)
        return _placed_like(changed, entry)

    def summaries(self) -> SummaryStore | None:
        """Return the inner store's records, passed through the same functions."""
        inner = super().summaries()
        if inner is None or (self._on_save is None and self._on_read is None):
            return inner
        return _TransformingSummaries(inner, self._on_save, self._on_read)


async def _applied(
    function: Transformation, message: ConversationMessage, name: str
) -> ConversationMessage | None:
    changed: object = function(message)
    if inspect.isawaitable(changed):
        changed = await cast("Awaitable[object]", changed)
    if changed is None:
        return None
    if not isinstance(changed, ConversationMessage):
        raise InvalidRequestError(
            f"{name} must return a ConversationMessage or None, not {type(changed).__name__}; "
            "change a message with attrs.evolve(message, content=…)"
        )
    return changed if changed.id == message.id else _identified_as(message, changed)


def _identified_as(
    original: ConversationMessage, changed: ConversationMessage
) -> ConversationMessage:
    return attrs.evolve(
        changed,
        id=original.id,
        timestamp=original.timestamp,
        run_id=original.run_id,
        pinned=original.pinned,
    )


def _placed_like(entry: Entry, original: Entry) -> Entry:
    if original.position is None or original.agent_id is None:
        return entry  # a message that is being saved, or the summary's own
    return entry.placed(original.position, original.agent_id)


@attrs.frozen
class _TransformingSummaries(SummaryStore):
    _inner: SummaryStore
    _on_save: Transformation | None
    _on_read: Transformation | None

    async def save_summary(
        self, key: ChatKey, record: SummaryRecord, *, replaces: str | None
    ) -> bool:
        changed = await _changed_record(record, self._on_save, "on_save")
        return await self._inner.save_summary(key, changed, replaces=replaces)

    async def load_summary(self, key: ChatKey) -> SummaryRecord | None:
        record = await self._inner.load_summary(key)
        return record and await _changed_record(record, self._on_read, "on_read")

    async def list_summaries(self, key: ChatKey) -> list[SummaryRecord]:
        records = await self._inner.list_summaries(key)
        return [await _changed_record(record, self._on_read, "on_read") for record in records]

    async def forget_summaries(self, key: ChatKey) -> int:
        return await self._inner.forget_summaries(key)


async def _changed_record(
    record: SummaryRecord, function: Transformation | None, name: str
) -> SummaryRecord:
    if function is None:
        return record
    return attrs.evolve(
        record,
        summary=await _changed_messages(record.summary, function, name),
        head=await _changed_messages(record.head, function, name),
    )


async def _changed_messages(
    messages: Sequence[ConversationMessage], function: Transformation, name: str
) -> tuple[ConversationMessage, ...]:
    changed: list[ConversationMessage] = []
    for message in messages:
        kept = await _applied(function, message, name)
        if kept is not None:
            changed.append(cast("ConversationMessage", _placed_like(kept, message)))
    return tuple(changed)
