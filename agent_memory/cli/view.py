"""``agent-memory view``: what the model sees beside what is stored."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any, Final, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_memory.audit.exporting import Scope
from agent_memory.audit.jsonl import entry_line
from agent_memory.audit.seeing import Stretch, explanation_of, stretches_of, tokens_of
from agent_memory.audit.visible import clipped, visible
from agent_memory.cli.drawing import console
from agent_memory.cli.stores import (
    Agent,
    JsonOption,
    Session,
    StoreOption,
    User,
    no_such_chat,
    opened,
    plural,
    run_async,
)
from agent_memory.errors import InvalidRequestError
from agent_memory.explaining import Explanation
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers import Provider, parts
from agent_memory.providers.part import to_json
from agent_memory.records import SummaryRecord

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
    agent: Agent,
    store: StoreOption = None,
    provider: Annotated[
        str | None, typer.Option(help=f"Made valid for: {', '.join(get_args(Provider))}.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show which stored messages a model sees as they are, and which through a summary.

    The view is what the newest stored summary makes of the chat; looking makes none.
    """
    if provider is not None and provider not in get_args(Provider):
        raise InvalidRequestError(f"--provider is one of {', '.join(get_args(Provider))}")
    chosen: Provider | None = provider  # type: ignore[assignment]  # checked above
    explanation = run_async(_explain(store, ChatKey(user, session, agent), chosen))
    if not explanation.messages:
        raise no_such_chat(store, Scope(user, session, agent))
    stretches = stretches_of(explanation)
    if json:
        print(json_.dumps(_plain(explanation, stretches)))  # noqa: T201  (a command line)
    else:
        _print(console(), explanation, stretches)


async def _explain(store: str | None, key: ChatKey, provider: Provider | None) -> Explanation:
    async with opened(store) as storage:
        return await explanation_of(storage, key, provider=provider)


def _print(out: Console, explanation: Explanation, stretches: list[Stretch]) -> None:
    table = Table(title="What is stored, and what the model sees of it", title_justify="left")
    for name, style in (("position", "dim"), ("stored", ""), ("the model sees", "")):
        table.add_column(name, style=style, overflow="fold")
    for stretch in stretches:
        if stretch.is_shown or len(stretch.messages) == 1:
            for message in stretch.messages:
                table.add_row(str(message.position), _cell(message), _seen(stretch))
        else:
            first, last = stretch.messages[0].position, stretch.messages[-1].position
            size = f"{plural(len(stretch.messages), 'message')}, {stretch.tokens:,} tokens"
            table.add_row(f"{first} - {last}", Text(size, style="dim"), _seen(stretch))
    out.print(table)
    for number, record in enumerate(explanation.summaries, 1):
        _print_summary(out, number, record, is_live=number == len(explanation.summaries))
    stored = tokens_of([explained.message for explained in explanation.messages])
    seen = tokens_of(explanation.view)
    out.print(
        f"stored {plural(len(explanation.messages), 'message')}, {stored:,} tokens; "
        f"seen {plural(len(explanation.view), 'message')}, {seen:,} tokens (estimated)"
    )


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


def _plain(explanation: Explanation, stretches: list[Stretch]) -> dict[str, Any]:
    key = explanation.key
    return {
        "user_id": key.user_id,
        "session_id": key.session_id,
        "agent_id": key.agent_id,
        "stored_messages": len(explanation.messages),
        "stored_tokens": tokens_of([item.message for item in explanation.messages]),
        "view_tokens": tokens_of(explanation.view),
        "view": [json_.loads(entry_line(key, message))["entry"] for message in explanation.view],
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
