"""Deleting chats permanently: by scope, or by age."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from agent_memory.audit.log_pages import ids_of
from agent_memory.audit.selection import Scope
from agent_memory.errors import InvalidRequestError
from agent_memory.log import ChatInfo
from agent_memory.storage.base import ChatStorage

_AGE: Final = re.compile(r"(\d{1,6}) ?(m|h|d|w)")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@attrs.define
class Removed:
    """What was, or would be, removed.

    Args:
        chats: how many chats.
        messages: how many messages; in a dry run, notes are counted too.
        summaries: how many summary records.
        unknown: how many chats stay because their age is unknown.
    """

    chats: int = 0
    messages: int = 0
    summaries: int = 0
    unknown: int = 0


def parse_age(text: str) -> timedelta:
    """Return the time span that ``90d``, ``12h``, ``30m`` or ``2w`` says.

    Raises:
        InvalidRequestError: it is not an age.
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidRequestError(f"an age is written 90d, 12h, 30m or 2w; not {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


async def delete(storage: ChatStorage, scope: Scope, *, dry_run: bool = False) -> Removed:
    """Delete chats with their summaries, and return the counts.

    Args:
        storage: where they are.
        scope: which of them.
        dry_run: whether only to count what would be removed.
    """
    gone = Removed()
    async for info in scope.chats(storage):
        await _remove(storage, info, gone, dry_run=dry_run)
    return gone


async def prune(storage: ChatStorage, older_than: timedelta, *, dry_run: bool = False) -> Removed:
    """Delete the chats in which nothing was stored for a time, and return the counts.

    A chat that is written to after it was listed stays.

    Args:
        storage: where they are.
        older_than: for how long.
        dry_run: whether only to count what would be removed.
    """
    gone = Removed()
    before = datetime.now(UTC) - older_than
    async for info in storage.list_chats():
        if info.updated_at is None:
            gone.unknown += 1
            continue
        # Listing a large store takes a while; a chat may have been continued since it was
        # listed.
        if info.updated_at < before and (dry_run or await _is_still_stale(storage, info, before)):
            await _remove(storage, info, gone, dry_run=dry_run)
    return gone


async def _is_still_stale(storage: ChatStorage, info: ChatInfo, before: datetime) -> bool:
    key = info.key
    async for now in storage.list_chats(key.user_id, key.session_id):
        if now.key == key:
            return now.updated_at is not None and now.updated_at < before
    return False


async def _remove(storage: ChatStorage, info: ChatInfo, gone: Removed, *, dry_run: bool) -> None:
    store = storage.summaries()
    records = [] if store is None else await store.list_summaries(info.key)
    removed = info.entries if dry_run else await storage.delete_chat(*ids_of(info.key))
    gone.chats += 1
    gone.messages += removed
    gone.summaries += len(records)
