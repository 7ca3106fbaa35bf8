"""``agent-memory show``: a transcript."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Final

import typer

from agent_memory.audit.exporting import Scope
from agent_memory.audit.jsonl import entry_line
from agent_memory.cli.drawing import console
from agent_memory.cli.stores import (
    AnyAgent,
    JsonLinesOption,
    Session,
    StoreOption,
    User,
    no_such_chat,
    opened,
    run_async,
)
from agent_memory.cli.transcripts import print_message
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.merging import merge_chats

_POLL_SECONDS: Final = 0.5


def show_chat(
    user: User,
    session: Session,
    agent: AnyAgent = None,
    store: StoreOption = None,
    last: Annotated[
        int | None, typer.Option(min=0, help="Only so many messages, the newest.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Content as it is stored, nothing folded.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")
    ] = False,
    json: JsonLinesOption = False,
) -> None:
    """Write the transcript of a session, or of one agent's chat in it.

    With --json, lines as export writes them.
    """
    scope = Scope(user, session, agent)
    if not run_async(_show(store, scope, last, raw=raw, follow=follow, json=json)):
        raise no_such_chat(store, scope)


async def _show(
    store: str | None, scope: Scope, last: int | None, *, raw: bool, follow: bool, json: bool
) -> bool:
    out, seen = console(), dict[ChatKey, int]()
    async with opened(store) as storage:
        infos = [info async for info in scope.chats(storage)]
        if not infos and not follow:
            return False
        async for message in _messages(storage, scope, [info.key for info in infos], last):
            key = _key(scope, message)
            seen[key] = message.position or 0
            if json:
                print(entry_line(key, message), end="")  # noqa: T201  (a command line)
            else:
                print_message(out, message, raw=raw)
        if last == 0:
            seen.update({info.key: info.last for info in infos})
        while follow:
            sys.stdout.flush()
            await asyncio.sleep(_POLL_SECONDS)
            async for message in _news(storage, scope, seen):
                if json:
                    print(entry_line(_key(scope, message), message), end="")  # noqa: T201
                else:
                    print_message(out, message, raw=raw)
    return True


def _key(scope: Scope, message: ConversationMessage) -> ChatKey:
    return ChatKey(scope.user_id or "", scope.session_id or "", message.agent_id or "")


async def _messages(
    storage: ChatStorage, scope: Scope, keys: list[ChatKey], last: int | None
) -> AsyncIterator[ConversationMessage]:
    user, session = scope.user_id or "", scope.session_id or ""
    if last is not None:
        newest = {
            key.agent_id: await storage.fetch_chat(user, session, key.agent_id, last)
            for key in keys
        }
        for message in merge_chats(newest)[-last:] if last else ():
            yield message
        return
    stream = (
        storage.iter_all_chats(user, session)
        if scope.agent_id is None
        else storage.iter_chat(user, session, scope.agent_id)
    )
    async for message in stream:
        yield message


async def _news(
    storage: ChatStorage, scope: Scope, seen: dict[ChatKey, int]
) -> AsyncIterator[ConversationMessage]:
    fresh: dict[str, list[ConversationMessage]] = {}
    async for info in scope.chats(storage):
        key, after = info.key, seen.get(info.key, 0)
        if info.last > after:
            ids = key.user_id, key.session_id, key.agent_id
            fresh[key.agent_id] = await storage.fetch_chat_since(*ids, after)
            seen[key] = info.last
    for message in merge_chats(fresh):
        key = _key(scope, message)
        seen[key] = max(seen[key], message.position or 0)
        yield message
