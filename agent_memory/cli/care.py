"""``agent-memory verify``, ``stats``, ``delete`` and ``prune``."""

from __future__ import annotations

import json as json_
from datetime import timedelta
from typing import Annotated, Any, Final

import attrs
import typer
from rich.console import Console

from agent_memory.audit.chat_copy import extent_of
from agent_memory.audit.chat_stats import Statistics, Totals, count
from agent_memory.audit.deletion import Removed, delete, extent, parse_age, prune, stale_extent
from agent_memory.audit.escaping import one_line
from agent_memory.audit.findings import Finding
from agent_memory.audit.selection import Scope
from agent_memory.audit.verification import ChatDigest, VerifyCounts, digest_of, verify
from agent_memory.cli.app import FAILED
from agent_memory.cli.drawing import Column, console, counting, print_table
from agent_memory.cli.stores import (
    AnyAgent,
    AnySession,
    AnyUser,
    DryRunOption,
    JsonLinesOption,
    JsonOption,
    StoreOption,
    User,
    YesOption,
    confirm,
    no_such_chat,
    opened,
    plural,
    run_async,
    say,
)
from agent_memory.errors import InvalidRequestError


def verify_chats(
    user: AnyUser = None,
    session: AnySession = None,
    agent: AnyAgent = None,
    store: StoreOption = None,
    digest: Annotated[
        bool,
        typer.Option("--digest", help="Write each chat's SHA-256, floor and last position, too."),
    ] = False,
    through: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="P", help="With --digest: of the positions up to P, as it was then."
        ),
    ] = None,
    json: JsonLinesOption = False,
) -> None:
    """Read everything and tell what is wrong and where; exit code 1 if anything is.

    Checked are positions (no gaps), records (readable), batches (whole), tool calls and results
    (paired), and summaries (consistent with the messages). Nothing is changed.

    A digest is the same on every store that holds the same entries. Kept elsewhere, it shows
    later that nothing up to its last position has changed: compute it again with --through.
    """
    if through is not None and not digest:
        raise InvalidRequestError("--through goes with --digest")
    scope = Scope(user, session, agent)
    verified, found = run_async(_verify(store, scope, digest, through, json=json))
    if not verified.chats and not found and user is not None:
        raise no_such_chat(store, scope)
    if json:
        print(json_.dumps({**attrs.asdict(verified), "wrong": found}))
    else:
        size = f"{plural(verified.chats, 'chat')}, {plural(verified.entries, 'entry', 'entries')}"
        verdict = plural(found, "problem") if found else "all is well"
        print(f"{verdict}: {size}, {plural(verified.summaries, 'summary', 'summaries')} read")
    # For scripts and cron jobs: the exit code is the result.
    if found:
        raise typer.Exit(FAILED)


async def _verify(
    store: str | None, scope: Scope, digest: bool, through: int | None, *, json: bool
) -> tuple[VerifyCounts, int]:
    verified, found = VerifyCounts(), 0
    ids = scope.user_id, scope.session_id, scope.agent_id
    async with opened(store) as storage:
        total = (await extent_of(storage, scope.user_id, scope.session_id)).entries
        with counting("reading", total, shown=not json) as advance:
            findings = verify(
                storage, *ids, verified=verified, on_progress=lambda count: advance(count, None)
            )
            async for finding in findings:
                found += 1
                print(json_.dumps(_plain_finding(finding)) if json else one_line(str(finding)))
        if digest:
            async for info in scope.chats(storage):
                try:
                    _print_digest(await digest_of(storage, info, through=through), json=json)
                except InvalidRequestError as error:  # trimmed beyond that position
                    found += 1
                    wrong = Finding(f"through {through}", str(error), info.key, "positions")
                    print(json_.dumps(_plain_finding(wrong)) if json else one_line(str(wrong)))
    return verified, found


def _print_digest(digest: ChatDigest, *, json: bool) -> None:
    key = digest.key
    if json:
        log = {"floor": digest.floor, "last": digest.last, "holes": digest.holes}
        print(json_.dumps({**attrs.asdict(key), "sha256": digest.sha256, **log}))
    else:
        span = f"floor {digest.floor}, last {digest.last}"
        print(f"sha256 {digest.sha256}  {span}  {one_line(str(key))}")


def _plain_finding(finding: Finding) -> dict[str, Any]:
    key = finding.key
    chat = {} if key is None else attrs.asdict(key)
    return {
        **chat,
        "check": finding.check,
        "location": finding.location,
        "reason": finding.reason,
    }


_COLUMNS: Final = (
    Column("", is_figure=False),
    *map(Column, ("chats", "messages", "tokens", "bytes", "summaries", "removed")),
    Column("their cost", is_figure=False),
)


def show_stats(
    user: AnyUser = None,
    session: AnySession = None,
    store: StoreOption = None,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many users, those with most tokens.")
    ] = 20,
    json: JsonOption = False,
) -> None:
    """Count chats, messages, tokens (estimated) and bytes, per user and agent, and summaries.

    Everything is read. "removed" is how many tokens summaries took out of views.
    """
    found = run_async(_count(store, Scope(user, session), top, shown=not json))
    if not found.total.chats and user is not None:
        raise no_such_chat(store, Scope(user, session))
    if json:
        print(json_.dumps(_plain_statistics(found)))
        return
    out = console()
    _print(out, "Agents", sorted(found.agents.items()), found.total)
    shown = len(found.users)
    title = "Users" if shown == found.user_count else f"Users ({shown} of {found.user_count:,})"
    _print(out, title, found.users, found.total)


async def _count(store: str | None, scope: Scope, top: int, *, shown: bool) -> Statistics:
    async with opened(store) as storage:
        total = (await extent_of(storage, scope.user_id, scope.session_id)).entries
        with counting("counting", total, shown=shown) as advance:
            return await count(
                storage,
                scope.user_id,
                scope.session_id,
                most_users=top,
                on_progress=lambda entries: advance(entries, None),
            )


def _print(out: Console, title: str, rows: list[tuple[str, Totals]], total: Totals) -> None:
    cells = [[one_line(name), *_cells(totals)] for name, totals in rows]
    print_table(out, title, _COLUMNS, cells, ["all", *_cells(total)])


def _cells(totals: Totals) -> list[str]:
    figures = (
        totals.chats,
        totals.messages,
        totals.tokens,
        totals.bytes,
        totals.summaries,
        totals.tokens_removed,
    )
    return [*(f"{figure:,}" for figure in figures), _cost(totals)]


def _cost(totals: Totals) -> str:
    if not totals.unreported:
        return f"{totals.usage.total_tokens:,}"
    if totals.unreported == totals.summaries:
        return "not reported"
    return f"{totals.usage.total_tokens:,}; {totals.unreported:,} not reported"


def _plain_statistics(found: Statistics) -> dict[str, Any]:
    return {
        "total": attrs.asdict(found.total),
        "user_count": found.user_count,
        "users": [{"user_id": name, **attrs.asdict(totals)} for name, totals in found.users],
        "agents": [
            {"agent_id": name, **attrs.asdict(totals)}
            for name, totals in sorted(found.agents.items())
        ],
    }


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
    print_removed(gone, dry_run=dry_run, json=json)


async def _delete(store: str | None, scope: Scope, *, yes: bool, dry_run: bool) -> Removed:
    async with opened(store) as storage:
        found = await extent(storage, scope)
        if not found.chats:
            raise no_such_chat(store, scope)
        if dry_run:
            return found
        # Counted before the question, so that it names what is about to be lost.
        confirm(f"Delete {described(found)} for good?", yes=yes)
        return await delete(storage, scope)


def described(gone: Removed) -> str:
    """Return the counts in words."""
    return (
        f"{plural(gone.chats, 'chat')} with {plural(gone.messages, 'message')} and "
        f"{plural(gone.summaries, 'summary', 'summaries')}"
    )


def print_removed(gone: Removed, *, dry_run: bool, json: bool) -> None:
    """Print what was deleted, or would be."""
    if json:
        counts = {**attrs.asdict(gone), **({"dry_run": True} if dry_run else {})}
        print(json_.dumps(counts))
    else:
        print(f"{'would delete' if dry_run else 'deleted'} {described(gone)}")


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
    print_removed(gone, dry_run=dry_run, json=json)


async def _prune(
    store: str | None, age: timedelta, said: str, *, yes: bool, dry_run: bool
) -> Removed:
    async with opened(store) as storage:
        found = await stale_extent(storage, age)
        if dry_run or not found.chats:
            return found
        confirm(f"Delete {described(found)}, untouched for {said}, for good?", yes=yes)
        return await prune(storage, age)
