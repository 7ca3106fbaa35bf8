"""``agent-memory view``: what the model sees beside what is stored."""

from __future__ import annotations

import json as json_
from collections import deque
from typing import Annotated, Any, Final, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_memory.audit.exporting import Scope
from agent_memory.audit.log import Hole, first_of, hole_text, marks_of, note_text
from agent_memory.audit.seeing import Stretch, explanation_of, stretches_of, tokens_of
from agent_memory.audit.visible import clipped, safe_json, visible
from agent_memory.cli.drawing import console
from agent_memory.cli.failures import FAILED
from agent_memory.cli.stores import (
    AnyAgent,
    JsonOption,
    Session,
    StoreOption,
    User,
    chosen_chat,
    no_such_chat,
    only_looking,
    opened,
    plural,
    run_async,
    say,
)
from agent_memory.errors import InvalidRequestError
from agent_memory.explaining import Explanation
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Provider, parts
from agent_memory.providers.part import to_json
from agent_memory.records import Note, SummaryRecord
from agent_memory.storage.codec import encode_entry

_CELL: Final = 70
_WORDS: Final = {
    "verbatim": "as it is",
    "pinned": "as it is, in front",
    "repaired": "left out or changed, for the provider",
    "held_back": "held back: the call it answers is not in the view",
}


def view_chat(
    user: User,
    session: Session,
    agent: AnyAgent = None,
    store: StoreOption = None,
    provider: Annotated[
        str | None, typer.Option(help=f"Made valid for: {', '.join(get_args(Provider))}.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show which stored messages a model sees as they are, and which through a summary.

    The view is what the newest stored summary makes of the chat; looking makes none. AGENT may
    be left out where the session has one. Positions that cannot be read are marked; where there
    are any, the exit code is 1.
    """
    if provider is not None and provider not in get_args(Provider):
        raise InvalidRequestError(f"--provider is one of {', '.join(get_args(Provider))}")
    chosen: Provider | None = provider  # type: ignore[assignment]  # checked above
    explanation, marks = run_async(_explain(store, (user, session, agent), chosen))
    if not explanation.messages and not marks:
        raise no_such_chat(store, Scope(user, session, agent))
    stretches = stretches_of(explanation)
    if json:
        print(json_.dumps(_plain(explanation, stretches, marks)))  # noqa: T201
    else:
        _print(console(), explanation, stretches, marks)
    holes = sum([mark.count for mark in marks if isinstance(mark, Hole)])
    if holes:
        say(f"{plural(holes, 'position')} cannot be read")
        raise typer.Exit(FAILED)


async def _explain(
    store: str | None, ids: tuple[str, str, str | None], provider: Provider | None
) -> tuple[Explanation, list[Note | Hole]]:
    with only_looking():
        async with opened(store) as storage:
            key = await chosen_chat(storage, store, *ids)
            explanation = await explanation_of(storage, key, provider=provider)
            return explanation, await marks_of(storage, key)


def _print(
    out: Console, explanation: Explanation, stretches: list[Stretch], marks: list[Note | Hole]
) -> None:
    coming = deque(marks)

    def add_marks(before: int | None) -> None:
        while coming and (before is None or first_of(coming[0]) < before):
            table.add_row(*_mark_row(coming.popleft()))

    table = Table(title="What is stored, and what the model sees of it", title_justify="left")
    # Figures are never folded; what is said may be.
    table.add_column("position", style="dim", no_wrap=True)
    table.add_column("stored", overflow="fold")
    table.add_column("the model sees", overflow="fold")
    for stretch in stretches:
        if stretch.is_shown or len(stretch.messages) == 1:
            for message in stretch.messages:
                add_marks(message.position or 0)
                table.add_row(str(message.position), _cell(message), _seen(stretch))
        else:
            first, last = stretch.messages[0].position, stretch.messages[-1].position
            add_marks(first or 0)
            size = f"{plural(len(stretch.messages), 'message')}, {stretch.tokens:,} tokens"
            table.add_row(f"{first} - {last}", Text(size, style="dim"), _seen(stretch))
            add_marks(last or 0)
    add_marks(None)
    out.print(table)
    for number, record in enumerate(explanation.summaries, 1):
        _print_summary(out, number, record, is_live=number == len(explanation.summaries))
    stored = tokens_of([explained.message for explained in explanation.messages])
    seen = tokens_of(explanation.view)
    out.print(
        f"stored {plural(len(explanation.messages), 'message')}, {stored:,} tokens; "
        f"seen {plural(len(explanation.view), 'message')}, {seen:,} tokens (estimated)"
    )


def _mark_row(mark: Note | Hole) -> tuple[str, Text, Text]:
    if isinstance(mark, Hole):
        text = Text(clipped(f"hole: {hole_text(mark)}", _CELL), style="bold red")
        return mark.positions.replace("#", "").replace("to", "-"), text, Text("nothing", "red")
    text = Text(clipped(f"note: {note_text(mark)}", _CELL), style="dim")
    return str(mark.position), text, Text("no part of it", "dim")


def _cell(message: ConversationMessage) -> Text:
    text = Text(f"{message.role.value}: ", style="bold")
    said = " ".join(_said(message))
    return text.append(clipped(said, _CELL), style="not bold")


def _said(message: ConversationMessage) -> list[str]:
    words: list[str] = []
    for part in parts(message):
        if part.kind == "call":
            given = part.payload if isinstance(part.payload, str) else to_json(part.payload)
            words.append(f"→ {part.name} {given}")
        elif part.kind == "result":
            words.append(f"← {part.text}")
        else:
            words.append(part.text or f"[{part.name or part.kind}]")
    return words


def _seen(stretch: Stretch) -> Text:
    if stretch.is_shown:
        return Text(_WORDS[stretch.standing], style="green")
    if stretch.standing in ("repaired", "held_back"):
        return Text(_WORDS[stretch.standing], style="red")
    return Text(f"through summary {stretch.number or '(not kept)'}", style="yellow")


def _print_summary(out: Console, number: int, record: SummaryRecord, *, is_live: bool) -> None:
    state = "in the view" if is_live else "handed on to the next one"
    covered = record.covered
    out.print(
        Text(
            f"summary {number} ({state}): covers {covered.count:,} messages, positions "
            f"{covered.first} to {covered.last}; {record.tokens_before:,} tokens became "
            f"{record.tokens_after:,}",
            style="bold",
        ),
        soft_wrap=True,
    )
    if is_live:
        for message in record.summary:
            out.print(Text("  " + visible(" ".join(_said(message))).replace("\n", "\n  ")))
        out.print()


def _plain(
    explanation: Explanation, stretches: list[Stretch], marks: list[Note | Hole]
) -> dict[str, Any]:
    key = explanation.key
    return {
        "user_id": key.user_id,
        "session_id": key.session_id,
        "agent_id": key.agent_id,
        "stored_messages": len(explanation.messages),
        "stored_tokens": tokens_of([item.message for item in explanation.messages]),
        "view_tokens": tokens_of(explanation.view),
        "holes": [
            {"first": mark.first, "last": mark.last, "place": mark.place, "reason": mark.reason}
            for mark in marks
            if isinstance(mark, Hole)
        ],
        "notes": [
            {"position": mark.position, "note": mark.kind, "id": mark.id}
            for mark in marks
            if isinstance(mark, Note)
        ],
        "view": [json_.loads(safe_json(encode_entry(message))) for message in explanation.view],
        "stretches": [
            {
                "first": stretch.messages[0].position,
                "last": stretch.messages[-1].position,
                "messages": len(stretch.messages),
                "tokens": stretch.tokens,
                "standing": stretch.standing,
                "summary_id": stretch.summary.id if stretch.summary else None,
            }
            for stretch in stretches
        ],
    }
