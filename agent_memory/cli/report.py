"""``agent-memory report``: a session as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent_memory.audit.report import SessionReport, render, session_report
from agent_memory.audit.selection import Scope
from agent_memory.cli.app import FAILED
from agent_memory.cli.stores import (
    JsonOption,
    Session,
    StoreOption,
    User,
    no_such_chat,
    only_looking,
    opened,
    plain_hole,
    plural,
    print_json,
    say,
)
from agent_memory.errors import InvalidRequestError


async def report_session(
    user: User,
    session: Session,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The HTML file to write.", show_default=False)
    ],
    store: StoreOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a session as one HTML file that opens offline, on a phone and in print.

    It shows the time line across agents, the context at each request to the model with its
    summaries, and what is stored beside what the model sees. Nothing in a message can become
    markup or script. Positions that cannot be read are marked; where there are any, the exit
    code is 1.
    """
    if output.exists() and not force:
        raise InvalidRequestError(f"{output} exists; --force replaces it")
    with only_looking():
        async with opened(store) as storage:
            report = await session_report(storage, user, session)
    if not report.chats:
        raise no_such_chat(store, Scope(user, session))
    # Rendered completely before the file is opened: a failure leaves an existing report as it
    # is.
    html = render(report)
    size = output.write_bytes(html.encode())
    if json:
        print_json({"output": str(output), "bytes": size, **_statistics(report)})
    else:
        print(f"{output}: {plural(len(report.order), 'message')}, {size / 1000:,.0f} kB")
    holes = [hole for chat in report.chats for hole in chat.holes]
    for hole in holes:
        say(str(hole))
    if holes:
        raise typer.Exit(FAILED)


def _statistics(report: SessionReport) -> dict[str, Any]:
    return {
        "user_id": report.user_id,
        "session_id": report.session_id,
        "messages": len(report.order),
        "agents": [
            {
                "agent_id": chat.key.agent_id,
                "messages": len(chat.messages),
                "tokens": sum(chat.tokens.values()),
                "turns": chat.turns,
                "requests": len(chat.requests),
                "view_messages": len(chat.explanation.view),
                "view_tokens": chat.seen_tokens,
                "summaries": len(chat.explanation.summaries),
                "holes": [plain_hole(hole) for hole in chat.holes],
                "sha256": chat.digest.sha256,
            }
            for chat in report.chats
        ],
    }
