"""``agent-memory ls``: which chats there are."""

from __future__ import annotations

import json as json_
import shlex
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.cells import cell_len
from rich.text import Text

from agent_memory.audit.exporting import Scope
from agent_memory.audit.overview import ChatLine, brief, line_of, newest_chats
from agent_memory.audit.visible import clipped, visible
from agent_memory.cli.drawing import console
from agent_memory.cli.stores import (
    AnySession,
    AnyUser,
    JsonLinesOption,
    StoreOption,
    no_such_chat,
    opened,
    run_async,
)
from agent_memory.records import ChatInfo
from agent_memory.storage.base import ChatStorage
from agent_memory.tokens import HeuristicTokenCounter

_TITLE: Final = 60
_SHORTEST_TITLE: Final = 20
_BREAKS: Final = {ord("\n"): "\u240a", ord("\t"): "\u2409"}
"""In an id they would break the list's lines."""


def list_chats(
    user: AnyUser = None,
    session: AnySession = None,
    store: StoreOption = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="At most so many, the newest first.")
    ] = 50,
    every: Annotated[
        bool, typer.Option("--all", help="All of them, in the order of their ids, as they come.")
    ] = False,
    only_brief: Annotated[
        bool, typer.Option("--brief", help="Do not read the chats: no title, no tokens.")
    ] = False,
    json: JsonLinesOption = False,
) -> None:
    """List chats: last activity, messages, tokens (estimated), summaries, ids, first question.

    Of chats with more than 2,000 messages tokens are projected from a part, marked with ~.
    """
    scope = Scope(user, session)
    found = run_async(_list(store, scope, limit, every, only_brief, json=json))
    if not found and user is not None:
        raise no_such_chat(store, scope)


async def _list(
    store: str | None, scope: Scope, limit: int, every: bool, only_brief: bool, *, json: bool
) -> int:
    found, out = 0, console()
    width = out.width if out.is_terminal else None
    async with opened(store) as storage:
        counter = HeuristicTokenCounter()
        async for info in _infos(storage, scope, limit, every=every):
            if not found and not json:
                print(f"{'last activity':16} {'messages':>8} {'tokens':>9} {'sum.':>4}  chat")  # noqa: T201
            found += 1
            line = brief(info) if only_brief else await line_of(storage, info, counter)
            print(_json(line) if json else words_of(line, width))  # noqa: T201
    return found


async def _infos(
    storage: ChatStorage, scope: Scope, limit: int, *, every: bool
) -> AsyncIterator[ChatInfo]:
    if every:
        async for info in scope.chats(storage):
            yield info
        return
    for info in await newest_chats(storage, scope.user_id, scope.session_id, limit):
        yield info


def _json(line: ChatLine) -> str:
    key = line.key
    return json_.dumps({
        "user_id": key.user_id,
        "session_id": key.session_id,
        "agent_id": key.agent_id,
        "title": line.title,
        "messages": line.messages,
        "tokens": line.tokens,
        "is_sampled": line.is_sampled,
        "summaries": line.summaries,
        "created_at": line.created_at and line.created_at.isoformat(),
        "updated_at": line.updated_at and line.updated_at.isoformat(),
    })  # fmt: skip


def words_of(line: ChatLine, width: int | None = None) -> str:
    """Return a chat's line; on a terminal that is too narrow for it, in up to three.

    Args:
        line: of which chat.
        width: of the terminal; None writes one line, whatever its length.
    """
    tokens = "" if line.tokens is None else f"{'~' * line.is_sampled}{line.tokens:,}"
    summaries = "" if line.summaries is None else f"{line.summaries:,}"
    figures = f"{_when(line.updated_at):16} {line.messages:>8,} {tokens:>9} {summaries:>4}"
    title, chat = clipped(line.title, _TITLE) if line.title else "", _chat(line)
    whole = f"{figures}  {chat}  {title}".rstrip()
    if width is None or cell_len(whole) <= width:
        return whole
    left = width - cell_len(f"{figures}  {chat}  ")
    if left >= _SHORTEST_TITLE:
        return f"{figures}  {chat}  {_chop(title, left)}"
    return "\n".join([figures, f"  {chat}", *([f"  {_chop(title, width - 2)}"] if title else [])])


def _chop(text: str, cells: int) -> str:
    """Return a text cut to what fits into so many cells of a terminal."""
    shown = Text(text)
    shown.truncate(max(1, cells), overflow="ellipsis")
    return shown.plain


def _when(moment: datetime | None) -> str:
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M")


def _chat(line: ChatLine) -> str:
    """Name a chat as it is typed after a command."""
    key = line.key
    names = [visible(name) for name in (key.user_id, key.session_id, key.agent_id)]
    return " ".join(shlex.quote(name.translate(_BREAKS)) for name in names)
