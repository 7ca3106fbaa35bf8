"""``agent-memory verify``, ``stats``, ``delete`` and ``prune``."""

from __future__ import annotations

from typing import Annotated, Final

import attrs
import typer
from rich.console import Console

from agent_memory.audit.chat_stats import Totals, count
from agent_memory.audit.deletion import Removed, delete, parse_age, prune
from agent_memory.audit.escaping import one_line
from agent_memory.audit.findings import Finding
from agent_memory.audit.selection import Scope
from agent_memory.audit.verification import VerifyCounts, digest_of, verify
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
    print_json,
    say,
)
from agent_memory.errors import InvalidRequestError
from agent_memory.storage.base import ChatStorage


async def verify_chats(
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
    """Read everything and report what is wrong and where; exit code 1 if anything is.

    Checked are positions (no gaps), records (readable), batches (whole), tool calls and results
    (paired), and summaries (consistent with the messages). Nothing is changed.

    A digest is the same on every store that holds the same entries. Kept elsewhere, it shows
    later that nothing up to its last position has changed: compute it again with --through.
    """
    if through is not None and not digest:
        raise InvalidRequestError("--through goes with --digest")
    scope = Scope(user, session, agent)
    verified, found = VerifyCounts(), 0
    async with opened(store) as storage:
        with counting("reading", await scope.entries(storage), shown=not json) as advance:
            async for finding in verify(
                storage, user, session, agent, verified=verified, on_progress=advance
            ):
                found += 1
                _print_finding(finding, json=json)
        if digest:
            found += await _print_digests(storage, scope, through, json=json)
    if not verified.chats and not found and user is not None:
        raise no_such_chat(store, scope)
    if json:
        print_json({**attrs.asdict(verified), "wrong": found})
    else:
        size = f"{plural(verified.chats, 'chat')}, {plural(verified.entries, 'entry', 'entries')}"
        verdict = plural(found, "problem") if found else "all is well"
        print(f"{verdict}: {size}, {plural(verified.summaries, 'summary', 'summaries')} read")
    # For scripts and cron jobs: the exit code is the result.
    if found:
        raise typer.Exit(FAILED)


async def _print_digests(
    storage: ChatStorage, scope: Scope, through: int | None, *, json: bool
) -> int:
    """Write each chat's digest; return of how many there is none up to that position."""
    trimmed = 0
    async for info in scope.chats(storage):
        try:
            digest = await digest_of(storage, info, through=through)
        except InvalidRequestError as error:  # trimmed beyond that position
            trimmed += 1
            wrong = Finding(f"through {through}", str(error), info.key, "positions")
            _print_finding(wrong, json=json)
            continue
        if json:
            log = {"floor": digest.floor, "last": digest.last, "holes": digest.holes}
            print_json({**attrs.asdict(info.key), "sha256": digest.sha256, **log})
        else:
            span = f"floor {digest.floor}, last {digest.last}"
            print(f"sha256 {digest.sha256}  {span}  {one_line(str(info.key))}")
    return trimmed


def _print_finding(finding: Finding, *, json: bool) -> None:
    if json:
        chat = {} if finding.key is None else attrs.asdict(finding.key)
        what = {"location": finding.location, "reason": finding.reason}
        print_json({**chat, "check": finding.check, **what})
    else:
        print(one_line(str(finding)))


_COLUMNS: Final = (
    Column("", is_figure=False),
    *map(Column, ("chats", "messages", "tokens", "bytes", "summaries", "removed")),
    Column("their cost", is_figure=False),
)


async def show_stats(
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
    scope = Scope(user, session)
    async with opened(store) as storage:
        with counting("counting", await scope.entries(storage), shown=not json) as advance:
            found = await count(storage, user, session, most_users=top, on_progress=advance)
    if not found.total.chats and user is not None:
        raise no_such_chat(store, scope)
    if json:
        agents = sorted(found.agents.items())
        print_json({
            "total": found.total,
            "user_count": found.user_count,
            "users": [{"user_id": name, **attrs.asdict(sums)} for name, sums in found.users],
            "agents": [{"agent_id": name, **attrs.asdict(sums)} for name, sums in agents],
        })  # fmt: skip
        return
    out = console()
    _print(out, "Agents", sorted(found.agents.items()), found.total)
    shown = len(found.users)
    title = "Users" if shown == found.user_count else f"Users ({shown} of {found.user_count:,})"
    _print(out, title, found.users, found.total)


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


async def delete_chats(
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
    scope = Scope(user, session, agent)
    async with opened(store) as storage:
        # Counted before the question, so that it names what is about to be lost.
        found = await delete(storage, scope, dry_run=True)
        if not found.chats:
            raise no_such_chat(store, scope)
        if not dry_run:
            confirm(f"Delete {described(found)} for good?", yes=yes)
            found = await delete(storage, scope)
    print_removed(found, dry_run=dry_run, json=json)


def described(gone: Removed) -> str:
    """Return the counts in words."""
    return (
        f"{plural(gone.chats, 'chat')} with {plural(gone.messages, 'message')} and "
        f"{plural(gone.summaries, 'summary', 'summaries')}"
    )


def print_removed(gone: Removed, *, dry_run: bool, json: bool) -> None:
    """Print what was deleted, or would be."""
    if json:
        print_json({**attrs.asdict(gone), **({"dry_run": True} if dry_run else {})})
    else:
        print(f"{'would delete' if dry_run else 'deleted'} {described(gone)}")


async def prune_chats(
    older_than: Annotated[
        str, typer.Option("--older-than", help="90d, 12h, 30m or 2w.", show_default=False)
    ],
    store: StoreOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Delete the chats in which nothing was stored for a time; it asks first.

    The store's clock counts: an imported chat is as old as its import.
    """
    age = parse_age(older_than)
    async with opened(store) as storage:
        found = await prune(storage, age, dry_run=True)
        if found.chats and not dry_run:
            confirm(f"Delete {described(found)}, untouched for {older_than}, for good?", yes=yes)
            found = await prune(storage, age)
    if found.unknown:
        say(f"{plural(found.unknown, 'chat')} stay: the store does not know their age")
    print_removed(found, dry_run=dry_run, json=json)
