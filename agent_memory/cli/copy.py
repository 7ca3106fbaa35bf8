"""``agent-memory copy``: from one store to another."""

from __future__ import annotations

import json as json_
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import attrs
import typer

from agent_memory.audit.chunks import Bad
from agent_memory.audit.comparing import missing_in
from agent_memory.audit.copying import chunks_of, extent_of
from agent_memory.audit.moving import Moved, Mover
from agent_memory.cli.drawing import counting_bar
from agent_memory.cli.failures import FAILED
from agent_memory.cli.import_ import tell
from agent_memory.cli.stores import JsonOption, opened, plural, run_async, say, utf8
from agent_memory.errors import InvalidRequestError
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.urls import open_storage


def copy_chats(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A store's URL.", show_default=False)
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Another store's URL.", show_default=False)
    ],
    user: Annotated[
        str | None, typer.Option(help="Only this user's chats.", callback=utf8)
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Pass over what cannot be read, telling each.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Copy every chat from one store to another, and compare them afterwards.

    Messages, notes and summaries go along. Doing it again copies what is missing; what was
    interrupted is resumed that way.
    """
    if source == target:
        raise InvalidRequestError("source and target are the same store")
    moved, different = run_async(_copy(source, target, user, keep_going, shown=not json))
    if json:
        lines = [str(bad) for bad in different]
        print(json_.dumps({**attrs.asdict(moved), "different": lines}))  # noqa: T201
        if moved.bad or different:
            raise typer.Exit(FAILED)
        return
    for bad in different:
        say(str(bad))
    if different:
        say(f"{plural(len(different), 'chat')} differ; copy again if the source was in use")
        raise typer.Exit(FAILED)
    tell(moved, json=False)
    print("the target holds everything, compared entry by entry")  # noqa: T201


async def _copy(
    source: str, target: str, user: str | None, keep_going: bool, *, shown: bool
) -> tuple[Moved, list[Bad]]:
    async with _both(source, target) as (old, new):
        total = (await extent_of(old, user)).entries
        with counting_bar(shown=shown) as bar:
            copying = bar.add_task("copying", total=total)
            mover = Mover(
                new,
                keep_going=keep_going,
                on_bad=lambda bad: say(str(bad)),
                on_progress=lambda count, _done: bar.advance(copying, count),
            )
            moved = await mover.move(chunks_of(old, user))
            comparing = bar.add_task("comparing", total=total)
            differences = missing_in(
                new, old, user, on_progress=lambda count: bar.advance(comparing, count)
            )
            return moved, [bad async for bad in differences]


@asynccontextmanager
async def _both(source: str, target: str) -> AsyncGenerator[tuple[ChatStorage, ChatStorage]]:
    async with opened(source) as old, open_storage(target) as new:
        yield old, new
