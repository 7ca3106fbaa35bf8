"""Whether a store holds all that another one does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from agent_memory.audit.chunks import Bad
from agent_memory.audit.damage import is_unreadable
from agent_memory.audit.pages import pages
from agent_memory.audit.relocating import without_hints
from agent_memory.messages import ChatKey
from agent_memory.records import ChatInfo, Entry
from agent_memory.storage.base import ChatStorage


async def missing_in(
    target: ChatStorage,
    source: ChatStorage,
    user_id: str | None = None,
    session_id: str | None = None,
    *,
    on_progress: Callable[[int], object] = abs,
) -> AsyncIterator[Bad]:
    """Compare every readable entry of a source with a target: all fields, and their order.

    The target may hold more, before, between and after.

    Args:
        target: what is to hold everything.
        source: what was copied.
        user_id, session_id: of which user or session; all by default.
        on_progress: told how many entries of the source have been compared, piece by piece.

    Yields:
        For each chat, the first entry that the target does not hold as the source does.
    """
    async for info in source.list_chats(user_id, session_id):
        found = await _first_difference(target, source, info, on_progress)
        if found is not None:
            yield found


async def _first_difference(
    target: ChatStorage, source: ChatStorage, info: ChatInfo, on_progress: Callable[[int], object]
) -> Bad | None:
    key = info.key
    others = _entries(target, key)
    async for part in pages(source, key, last=info.last):
        for entry in part.entries:
            if is_unreadable(entry):
                continue
            place = f"the chat of {key}, position {entry.position}"
            async for other in others:
                if other.id == entry.id:
                    break
            else:
                return Bad(place, f"{entry.id!r} is missing in the target, or in another place")
            if without_hints(other) != without_hints(entry):
                return Bad(place, f"{entry.id!r} is another one in the target")
        on_progress(len(part.entries))
    return None


async def _entries(storage: ChatStorage, key: ChatKey) -> AsyncIterator[Entry]:
    async for part in pages(storage, key):
        for entry in part.entries:
            yield entry
