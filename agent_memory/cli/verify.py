"""``agent-memory verify``: whether a store is what it promises to be."""

from __future__ import annotations

import json as json_
from typing import Any

import attrs
import typer

from agent_memory.audit.copying import extent_of
from agent_memory.audit.exporting import Scope
from agent_memory.audit.verifying import Finding, Verified, verify
from agent_memory.audit.visible import one_line
from agent_memory.cli.drawing import counting_bar
from agent_memory.cli.failures import FAILED
from agent_memory.cli.stores import (
    AnySession,
    AnyUser,
    JsonLinesOption,
    StoreOption,
    no_such_chat,
    opened,
    plural,
    run_async,
)


def verify_chats(
    user: AnyUser = None,
    session: AnySession = None,
    store: StoreOption = None,
    json: JsonLinesOption = False,
) -> None:
    """Read everything and tell what is wrong and where; exit code 1 if anything is.

    Checked are positions (no gaps), records (readable), batches (whole), tool calls and results
    (paired), and summaries (consistent with the messages). Nothing is changed.
    """
    verified, found = run_async(_verify(store, Scope(user, session), json=json))
    if not verified.chats and not found and user is not None:
        raise no_such_chat(store, Scope(user, session))
    if json:
        print(json_.dumps({**attrs.asdict(verified), "wrong": found}))  # noqa: T201
    else:
        size = f"{plural(verified.chats, 'chat')}, {plural(verified.entries, 'entry')}"
        size = size.replace("entrys", "entries")
        verdict = plural(found, "problem") if found else "all is well"
        print(f"{verdict}: {size}, {plural(verified.summaries, 'summary', 'summaries')} read")  # noqa: T201
    if found:
        raise typer.Exit(FAILED)


async def _verify(store: str | None, scope: Scope, *, json: bool) -> tuple[Verified, int]:
    verified, found = Verified(), 0
    async with opened(store) as storage:
        total = (await extent_of(storage, scope.user_id, scope.session_id)).entries
        with counting_bar(shown=not json) as bar:
            task = bar.add_task("reading", total=total)
            findings = verify(
                storage,
                scope.user_id,
                scope.session_id,
                verified=verified,
                on_progress=lambda count: bar.advance(task, count),
            )
            async for finding in findings:
                found += 1
                print(json_.dumps(_plain(finding)) if json else one_line(str(finding)))  # noqa: T201
    return verified, found


def _plain(finding: Finding) -> dict[str, Any]:
    key = finding.key
    whose = {} if key is None else attrs.asdict(key)
    return {
        **whose,
        "check": finding.check,
        "location": finding.location,
        "reason": finding.reason,
    }
