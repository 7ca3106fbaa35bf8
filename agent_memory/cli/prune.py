"""``agent-memory prune``: old chats, for good."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from agent_memory.audit.forgetting import Gone, parse_age, prune, stale_extent
from agent_memory.cli.delete import described, tell_gone
from agent_memory.cli.stores import (
    DryRunOption,
    JsonOption,
    StoreOption,
    YesOption,
    confirm,
    opened,
    plural,
    run_async,
    say,
)


def prune_chats(
    older_than: Annotated[
        str, typer.Option("--older-than", help="90d, 12h, 30m or 2w.", show_default=False)
    ],
    store: StoreOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Delete the chats in which nothing was stored for so long; it asks first.

    The store's clock counts: an imported chat is as old as its import.
    """
    gone = run_async(_prune(store, parse_age(older_than), older_than, yes=yes, dry_run=dry_run))
    if gone.unknown:
        say(f"{plural(gone.unknown, 'chat')} stay: the store does not know their age")
    tell_gone(gone, dry_run=dry_run, json=json)


async def _prune(
    store: str | None, age: timedelta, said: str, *, yes: bool, dry_run: bool
) -> Gone:
    async with opened(store) as storage:
        found = await stale_extent(storage, age)
        if dry_run or not found.chats:
            return found
        confirm(f"Delete {described(found)}, untouched for {said}, for good?", yes=yes)
        return await prune(storage, age)
