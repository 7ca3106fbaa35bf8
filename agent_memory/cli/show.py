"""``agent-memory show``: a transcript."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated, Final

import attrs
import typer

from agent_memory.audit.exporting import Scope
from agent_memory.audit.jsonl import item_line
from agent_memory.audit.log import Hole, LogItem, each_of
from agent_memory.audit.selecting import Selection, select
from agent_memory.cli.drawing import console
from agent_memory.cli.failures import FAILED
from agent_memory.cli.stores import (
    AnyAgent,
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
    run_async,
    say,
)
from agent_memory.cli.transcripts import print_item
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import ChatInfo
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.merging import merge_chats, merge_streams

_POLL_SECONDS: Final = 0.5


def show_chat(
    user: User,
    session: Session,
    agent: AnyAgent = None,
    store: StoreOption = None,
    last: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only so many messages, the newest.")
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
    shown = run_async(_show(store, scope, last, selection, raw=raw, follow=follow, json=json))
    if not shown.chats:
        raise no_such_chat(store, scope)
    if selection and not shown.entries:
        say("nothing is selected")
    if shown.holes:
        say(f"{plural(shown.holes, 'position')} cannot be read")
        raise typer.Exit(FAILED)


@attrs.define
class _Shown:
    """What was written.

    Args:
        chats: how many chats there are.
        entries: how many messages and notes were written.
        holes: how many positions could not be read.
        seen: up to which position each chat was shown.
    """

    chats: int = 0
    entries: int = 0
    holes: int = 0
    seen: dict[ChatKey, int] = attrs.field(factory=dict[ChatKey, int])


async def _show(
    store: str | None,
    scope: Scope,
    last: int | None,
    selection: Selection,
    *,
    raw: bool,
    follow: bool,
    json: bool,
) -> _Shown:
    out, shown = console(), _Shown()

    def write(item: LogItem) -> None:
        if isinstance(item, Hole):
            shown.holes += item.count
        else:
            shown.entries += 1
        if json:
            print(item_line(_key(scope, item), item), end="")  # noqa: T201  (a command line)
        else:
            print_item(out, item, raw=raw)

    async with opened(store) as storage:
        infos = [info async for info in scope.chats(storage)]
        shown.chats = len(infos) + follow
        async for item in _items(storage, infos, last, selection):
            write(item)
        shown.seen = {info.key: info.last for info in infos}
        while follow:
            sys.stdout.flush()
            await asyncio.sleep(_POLL_SECONDS)
            for item in filter(selection.takes, await _news(storage, scope, shown.seen)):
                write(item)
    return shown


def _key(scope: Scope, item: LogItem) -> ChatKey:
    if isinstance(item, Hole):
        return item.key
    return ChatKey(scope.user_id or "", scope.session_id or "", item.agent_id or "")


async def _items(
    storage: ChatStorage, infos: list[ChatInfo], last: int | None, selection: Selection
) -> AsyncIterator[LogItem]:
    if last is None or selection:
        streams = {info.key.agent_id: each_of(storage, info) for info in infos}
        chosen = selection.of(merge_streams(streams))
        async for item in chosen if last is None else _last_of(chosen, last):
            yield item
        return
    for item in _newest(await _ends(storage, infos, last), last):
        yield item


async def _last_of(items: AsyncIterator[LogItem], last: int) -> AsyncIterator[LogItem]:
    """Yield what there is from the newest messages on; no more than these are held."""
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


async def _ends(
    storage: ChatStorage, infos: list[ChatInfo], last: int
) -> dict[str, list[LogItem]]:
    """Read each chat from its `last` newest messages on."""
    found: dict[str, list[LogItem]] = {}
    for info in infos:
        key = info.key
        ids = key.user_id, key.session_id, key.agent_id
        newest = await storage.fetch_chat(*ids, last) if last else []
        after = (newest[0].position or 1) - 1 if newest else info.last
        found[key.agent_id] = [item async for item in each_of(storage, info, after=after)]
    return found


def _newest(chats: dict[str, list[LogItem]], last: int) -> list[LogItem]:
    """Merge chats, and cut what is before the newest messages."""
    merged = merge_chats(chats)
    left = last
    for index in range(len(merged) - 1, -1, -1):
        left -= isinstance(merged[index], ConversationMessage)
        if left == 0:
            return merged[index:]
    return merged if last else []


async def _news(storage: ChatStorage, scope: Scope, seen: dict[ChatKey, int]) -> list[LogItem]:
    fresh: dict[str, list[LogItem]] = {}
    async for info in scope.chats(storage):
        after = seen.get(info.key, 0)
        if info.last > after:
            items = each_of(storage, info, after=after)
            fresh[info.key.agent_id] = [item async for item in items]
            seen[info.key] = info.last
    return merge_chats(fresh)
