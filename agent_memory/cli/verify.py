"""``agent-memory verify``: whether a store is what it promises to be."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any

import attrs
import typer

from agent_memory.audit.copying import extent_of
from agent_memory.audit.digest import ChatDigest, digest_of
from agent_memory.audit.exporting import Scope
from agent_memory.audit.verifying import Finding, Verified, verify
from agent_memory.audit.visible import one_line
from agent_memory.cli.drawing import counting_bar
from agent_memory.cli.failures import FAILED
from agent_memory.cli.stores import (
    AnyAgent,
    AnySession,
    AnyUser,
    JsonLinesOption,
    StoreOption,
    no_such_chat,
    opened,
    plural,
    run_async,
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
        print(json_.dumps({**attrs.asdict(verified), "wrong": found}))  # noqa: T201
    else:
        size = f"{plural(verified.chats, 'chat')}, {plural(verified.entries, 'entry', 'entries')}"
        verdict = plural(found, "problem") if found else "all is well"
        print(f"{verdict}: {size}, {plural(verified.summaries, 'summary', 'summaries')} read")  # noqa: T201
    if found:
        raise typer.Exit(FAILED)


async def _verify(
    store: str | None, scope: Scope, digest: bool, through: int | None, *, json: bool
) -> tuple[Verified, int]:
    verified, found = Verified(), 0
    ids = scope.user_id, scope.session_id, scope.agent_id
    async with opened(store) as storage:
        total = (await extent_of(storage, scope.user_id, scope.session_id)).entries
        with counting_bar(shown=not json) as bar:
            task = bar.add_task("reading", total=total)
            findings = verify(
                storage,
                *ids,
                verified=verified,
                on_progress=lambda count: bar.advance(task, count),
            )
            async for finding in findings:
                found += 1
                print(json_.dumps(_plain(finding)) if json else one_line(str(finding)))  # noqa: T201
        if digest:
            async for info in scope.chats(storage):
                try:
                    _print_digest(await digest_of(storage, info, through=through), json=json)
                except InvalidRequestError as error:  # nothing of it is left up to there
                    found += 1
                    wrong = Finding(info.key, "positions", f"through {through}", str(error))
                    print(json_.dumps(_plain(wrong)) if json else one_line(str(wrong)))  # noqa: T201
    return verified, found


def _print_digest(digest: ChatDigest, *, json: bool) -> None:
    key = digest.key
    if json:
        told = {"floor": digest.floor, "last": digest.last, "holes": digest.holes}
        print(json_.dumps({**attrs.asdict(key), "sha256": digest.sha256, **told}))  # noqa: T201
    else:
        span = f"floor {digest.floor}, last {digest.last}"
        print(f"sha256 {digest.sha256}  {span}  {one_line(str(key))}")  # noqa: T201


def _plain(finding: Finding) -> dict[str, Any]:
    key = finding.key
    whose = {} if key is None else attrs.asdict(key)
    return {
        **whose,
        "check": finding.check,
        "location": finding.location,
        "reason": finding.reason,
    }
