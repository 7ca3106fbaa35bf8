"""``agent-memory view`` and ``history``: what the model sees, and the summaries behind it."""

from __future__ import annotations

from collections import deque
from json import loads
from typing import Annotated, Any, Final, get_args

import attrs
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_memory.audit.escaping import clipped, one_line, visible
from agent_memory.audit.log_pages import (
    Hole,
    hole_text,
    marks_of,
    note_text,
    part_text,
)
from agent_memory.audit.view_inspection import Stretch, explanation_of, stretches_of, tokens_of
from agent_memory.cli.app import FAILED
from agent_memory.cli.drawing import Column, console, print_table
from agent_memory.cli.stores import (
    AnyAgent,
    JsonOption,
    Session,
    StoreOption,
    User,
    chosen_chat,
    only_looking,
    opened,
    plain_hole,
    plural,
    print_json,
    say,
)
from agent_memory.errors import InvalidRequestError
from agent_memory.explaining import Explanation
from agent_memory.log import Note, SummaryRecord
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.providers import Provider, parts
from agent_memory.storage.codec import encode_entry

_CELL: Final = 70
_WORDS: Final = {
    "verbatim": "as it is",
    "pinned": "as it is, in front",
    "repaired": "left out or changed, for the provider",
    "held_back": "held back: the call it answers is not in the view",
}


async def view_chat(
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
    with only_looking():
        async with opened(store) as storage:
            info = await chosen_chat(storage, store, user, session, agent)
            explanation = await explanation_of(storage, info.key, provider=chosen)
            marks = await marks_of(storage, info)
    stretches = stretches_of(explanation)
    if json:
        print_json(_plain(explanation, stretches, marks))
    else:
        _print(console(), explanation, stretches, marks)
    holes = sum([mark.count for mark in marks if isinstance(mark, Hole)])
    if holes:
        say(f"{plural(holes, 'position')} cannot be read")
        raise typer.Exit(FAILED)


def _print(
    out: Console, explanation: Explanation, stretches: list[Stretch], marks: list[Note | Hole]
) -> None:
    coming = deque(marks)

    def add_marks(before: int | None) -> None:
        # Notes and holes belong between the messages around them, also within a folded stretch.
        while coming and (before is None or (coming[0].position or 0) < before):
            table.add_row(*_mark_row(coming.popleft()))

    table = Table(title="What is stored, and what the model sees of it", title_justify="left")
    # Positions are never wrapped; texts may be.
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
            words.append(f"→ {part.name} {part_text(part)}")
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
    return {
        **attrs.asdict(explanation.key),
        "stored_messages": len(explanation.messages),
        "stored_tokens": tokens_of([item.message for item in explanation.messages]),
        "view_tokens": tokens_of(explanation.view),
        "holes": [plain_hole(mark) for mark in marks if isinstance(mark, Hole)],
        "notes": [
            {"position": mark.position, "note": mark.kind, "id": mark.id}
            for mark in marks
            if isinstance(mark, Note)
        ],
        "view": [loads(encode_entry(message)) for message in explanation.view],
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


_COLUMNS: Final = (
    Column(""),
    Column("made"),
    *[Column(name, is_figure=False) for name in ("by", "why")],
    *map(Column, ("covers", "messages", "tokens", "saved")),
    Column("cost", is_figure=False),
)
_FIELDS: Final = (
    *("id", "replaces", "created_at", "summarizer", "reason", "position", "covered"),
    *("messages_before", "messages_after", "tokens_before", "tokens_after", "usage"),
)  # fmt: skip


async def show_history(
    user: User,
    session: Session,
    agent: AnyAgent = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the summaries of a chat: when, by whom, why, what each covers, saved and cost.

    AGENT may be left out where the session has one.
    """
    async with opened(store) as storage:
        info = await chosen_chat(storage, store, user, session, agent)
        summaries = storage.summaries()
        records = [] if summaries is None else await summaries.list_summaries(info.key)
    if json:
        print_json([{name: getattr(record, name) for name in _FIELDS} for record in records])
    elif not records:
        print("no summary has been made of this chat")
    else:
        _print_records(console(), records)


def _print_records(out: Console, records: list[SummaryRecord]) -> None:
    rows = [_cells(number, record) for number, record in enumerate(records, 1)]
    saved = sum([record.tokens_before - record.tokens_after for record in records])
    total = ["all", *[""] * 6, f"{saved:,}", _whole_cost(records)] if len(records) > 1 else None
    print_table(out, "Summaries, oldest first (tokens estimated)", _COLUMNS, rows, total)


def _cells(number: int, record: SummaryRecord) -> list[str]:
    covered = record.covered
    return [
        str(number),
        record.created_at.strftime("%Y-%m-%d %H:%M:%S"),
        one_line(record.summarizer),
        one_line(record.reason),
        f"{covered.first} - {covered.last} ({covered.count:,})",
        f"{record.messages_before:,} → {record.messages_after:,}",
        f"{record.tokens_before:,} → {record.tokens_after:,}",
        f"{record.tokens_before - record.tokens_after:,}",
        _cost(record.usage),
    ]


def _whole_cost(records: list[SummaryRecord]) -> str:
    usages = [record.usage for record in records if record.usage is not None]
    unknown = len(records) - len(usages)
    cost = _cost(sum(usages, Usage()) if usages else None)
    return f"{cost}; {unknown:,} not reported" if usages and unknown else cost


def _cost(usage: Usage | None) -> str:
    if usage is None:
        return "not reported"
    return f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"
