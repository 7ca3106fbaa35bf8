"""``agent-memory ls`` and ``show``: which chats there are, and their transcripts."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import deque
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Final

import attrs
import typer
from rich.cells import cell_len
from rich.text import Text

from agent_memory.audit.chat_stats import ChatLine, brief, line_of, newest_chats
from agent_memory.audit.escaping import clipped, visible
from agent_memory.audit.jsonl import item_line
from agent_memory.audit.log_pages import Hole, LogItem, each_of, ids_of
from agent_memory.audit.selection import Scope, Selection, select
from agent_memory.cli.app import FAILED
from agent_memory.cli.drawing import console, print_item
from agent_memory.cli.stores import (
    AnyAgent,
    AnySession,
    AnyUser,
    GrepOption,
    JsonLinesOption,
    Session,
    SinceOption,
    StoreOption,
    UntilOption,
    User,
    no_such_chat,
    opened,
    plural,
    print_json,
    say,
)
from agent_memory.log import ChatInfo
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.merging import merge_chats, merge_streams
from agent_memory.tokens import HeuristicTokenCounter

_TITLE: Final = 60
_SHORTEST_TITLE: Final = 20
# In an id they would break the list's lines.
_BREAKS: Final = {ord("\n"): "\u240a", ord("\t"): "\u2409"}


async def list_chats(
    user: AnyUser = None,
    session: AnySession = None,
    store: StoreOption = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many at most, the newest first.")
    ] = 50,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="All of them, in the order of their ids, printed while they are read."
        ),
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
    found, out = 0, console()
    width = out.width if out.is_terminal else None
    counter = HeuristicTokenCounter()
    async with opened(store) as storage:
        async for info in _infos(storage, scope, limit, every=every):
            if not found and not json:
                print(f"{'last activity':16} {'messages':>8} {'tokens':>9} {'sum.':>4}  chat")
            found += 1
            # Row by row: the first ones appear while later chats are still being read.
            line = brief(info) if only_brief else await line_of(storage, info, counter)
            if json:
                fields = attrs.asdict(line)
                print_json({**fields.pop("key"), **fields})
            else:
                print(words_of(line, width))
    if not found and user is not None:
        raise no_such_chat(store, scope)


async def _infos(
    storage: ChatStorage, scope: Scope, limit: int, *, every: bool
) -> AsyncIterator[ChatInfo]:
    if every:
        async for info in scope.chats(storage):
            yield info
        return
    for info in await newest_chats(storage, scope.user_id, scope.session_id, limit):
        yield info


def words_of(line: ChatLine, width: int | None = None) -> str:
    """Return a chat's row as text; up to three lines on a narrow terminal.

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
    """Truncate a text to a width in terminal cells."""
    shown = Text(text)
    shown.truncate(max(1, cells), overflow="ellipsis")
    return shown.plain


def _when(moment: datetime | None) -> str:
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M")


def _chat(line: ChatLine) -> str:
    """Return a chat's ids, quoted for a shell."""
    key = line.key
    names = [visible(name) for name in (key.user_id, key.session_id, key.agent_id)]
    return " ".join(shlex.quote(name.translate(_BREAKS)) for name in names)


_POLL_SECONDS: Final = 0.5


async def show_chat(
    user: User,
    session: Session,
    agent: AnyAgent = None,
    store: StoreOption = None,
    last: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only the newest N messages.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    grep: GrepOption = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Content as it is stored, nothing folded.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")
    ] = False,
    json: JsonLinesOption = False,
) -> None:
    """Write the transcript of a session, or of one agent's chat in it.

    Notes are shown in their places, and so are positions that cannot be read; where there are
    any, the exit code is 1. With --json, lines as export writes them.
    """
    scope = Scope(user, session, agent)
    selection = select(since, until, grep)
    out, entries, holes = console(), 0, 0

    def write(item: LogItem) -> None:
        nonlocal entries, holes
        if isinstance(item, Hole):
            holes += item.count
        else:
            entries += 1
        if json:
            print(item_line(_key(scope, item), item), end="")
        else:
            print_item(out, item, raw=raw)

    async with opened(store) as storage:
        infos = [info async for info in scope.chats(storage)]
        if not infos and not follow:
            raise no_such_chat(store, scope)
        async for item in _items(storage, infos, last, selection):
            write(item)
        seen = {info.key: info.last for info in infos}
        while follow:
            # Standard output may be a pipe, which Python would buffer by the block.
            sys.stdout.flush()
            await asyncio.sleep(_POLL_SECONDS)
            for item in filter(selection.takes, await _news(storage, scope, seen)):
                write(item)
    if selection and not entries:
        say("nothing is selected")
    if holes:
        say(f"{plural(holes, 'position')} cannot be read")
        raise typer.Exit(FAILED)


def _key(scope: Scope, item: LogItem) -> ChatKey:
    if isinstance(item, Hole):
        return item.key
    return ChatKey(scope.user_id or "", scope.session_id or "", item.agent_id or "")


async def _items(
    storage: ChatStorage, infos: list[ChatInfo], last: int | None, selection: Selection
) -> AsyncIterator[LogItem]:
    streams: dict[str, AsyncIterator[LogItem]] = {}
    for info in infos:
        # A selection has to look at every entry to find the newest ones that it takes.
        after = 0 if last is None or selection else await _before_newest(storage, info, last)
        streams[info.key.agent_id] = each_of(storage, info, after=after)
    chosen = selection.of(merge_streams(streams))
    async for item in chosen if last is None else _last_of(chosen, last):
        yield item


async def _last_of(items: AsyncIterator[LogItem], last: int) -> AsyncIterator[LogItem]:
    """Yield the items from the n-th newest message on, in bounded memory."""
    held: deque[LogItem] = deque()
    messages = 0
    async for item in items:
        held.append(item)
        messages += isinstance(item, ConversationMessage)
        while messages > last:
            messages -= isinstance(held.popleft(), ConversationMessage)
    while held and messages == last and not (last and isinstance(held[0], ConversationMessage)):
        held.popleft()
    for item in held:
        yield item


async def _before_newest(storage: ChatStorage, info: ChatInfo, last: int) -> int:
    """Return the position before a chat's `last` newest messages."""
    # fetch_chat counts messages alone; the log from there on has the notes and holes between.
    newest = await storage.fetch_chat(*ids_of(info.key), last) if last else []
    return (newest[0].position or 1) - 1 if newest else info.last


async def _news(storage: ChatStorage, scope: Scope, seen: dict[ChatKey, int]) -> list[LogItem]:
    fresh: dict[str, list[LogItem]] = {}
    async for info in scope.chats(storage):
        after = seen.get(info.key, 0)
        if info.last > after:
            items = each_of(storage, info, after=after)
            fresh[info.key.agent_id] = [item async for item in items]
            seen[info.key] = info.last
    return merge_chats(fresh)
