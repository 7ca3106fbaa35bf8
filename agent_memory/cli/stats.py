"""``agent-memory stats``: how much there is, of whom."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any, Final

import attrs
import typer
from rich.console import Console

from agent_memory.audit.copying import extent_of
from agent_memory.audit.counting import Statistics, Totals, count
from agent_memory.audit.exporting import Scope
from agent_memory.audit.visible import one_line
from agent_memory.cli.drawing import Column, console, counting_bar, print_table
from agent_memory.cli.stores import (
    AnySession,
    AnyUser,
    JsonOption,
    StoreOption,
    no_such_chat,
    opened,
    run_async,
)

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
        print(json_.dumps(_plain(found)))  # noqa: T201  (a command line)
        return
    out = console()
    _print(out, "Agents", sorted(found.agents.items()), found.total)
    shown = len(found.users)
    title = "Users" if shown == found.user_count else f"Users ({shown} of {found.user_count:,})"
    _print(out, title, found.users, found.total)


async def _count(store: str | None, scope: Scope, top: int, *, shown: bool) -> Statistics:
    async with opened(store) as storage:
        total = (await extent_of(storage, scope.user_id, scope.session_id)).entries
        with counting_bar(shown=shown) as bar:
            task = bar.add_task("counting", total=total)
            return await count(
                storage,
                scope.user_id,
                scope.session_id,
                most_users=top,
                on_progress=lambda entries: bar.advance(task, entries),
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


def _plain(found: Statistics) -> dict[str, Any]:
    return {
        "total": attrs.asdict(found.total),
        "user_count": found.user_count,
        "users": [{"user_id": name, **attrs.asdict(totals)} for name, totals in found.users],
        "agents": [
            {"agent_id": name, **attrs.asdict(totals)}
            for name, totals in sorted(found.agents.items())
        ],
    }
