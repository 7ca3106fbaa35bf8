"""``agent-memory delete``: chats, for good."""

from __future__ import annotations

import json as json_

import attrs

from agent_memory.audit.exporting import Scope
from agent_memory.audit.forgetting import Gone, delete, extent
from agent_memory.cli.stores import (
    AnyAgent,
    AnySession,
    DryRunOption,
    JsonOption,
    StoreOption,
    User,
    YesOption,
    confirm,
    no_such_chat,
    opened,
    plural,
    run_async,
)


def delete_chats(
    user: User,
    session: AnySession = None,
    agent: AnyAgent = None,
    store: StoreOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Delete a chat, a session, or everything of a user, with summaries; it asks first.

    What stays is the number of the last message, so that no late worker brings text back.
    """
    gone = run_async(_delete(store, Scope(user, session, agent), yes=yes, dry_run=dry_run))
    tell_gone(gone, dry_run=dry_run, json=json)


async def _delete(store: str | None, scope: Scope, *, yes: bool, dry_run: bool) -> Gone:
    async with opened(store) as storage:
        found = await extent(storage, scope)
        if not found.chats:
            raise no_such_chat(store, scope)
        if dry_run:
            return found
        confirm(f"Delete {described(found)} for good?", yes=yes)
        return await delete(storage, scope)


def described(gone: Gone) -> str:
    """Say what there is to go, or has gone."""
    return (
        f"{plural(gone.chats, 'chat')} with {plural(gone.messages, 'message')} and "
        f"{plural(gone.summaries, 'summary', 'summaries')}"
    )


def tell_gone(gone: Gone, *, dry_run: bool, json: bool) -> None:
    """Write what has gone, or would."""
    if json:
        told = {**attrs.asdict(gone), **({"dry_run": True} if dry_run else {})}
        print(json_.dumps(told))  # noqa: T201  (a command line)
    else:
        print(f"{'would delete' if dry_run else 'deleted'} {described(gone)}")  # noqa: T201
