"""``agent-memory history``: the summaries of a chat, what each saved and cost."""

from __future__ import annotations

import json as json_
from typing import Any, Final

import attrs
from rich.console import Console

from agent_memory.audit.exporting import Scope
from agent_memory.audit.visible import one_line
from agent_memory.cli.drawing import Column, console, print_table
from agent_memory.cli.stores import (
    AnyAgent,
    JsonOption,
    Session,
    StoreOption,
    User,
    chosen_chat,
    no_such_chat,
    opened,
    run_async,
)
from agent_memory.messages import Usage
from agent_memory.records import SummaryRecord

_COLUMNS: Final = (
    Column(""),
    Column("made"),
    *[Column(name, is_figure=False) for name in ("by", "why")],
    *map(Column, ("covers", "messages", "tokens", "saved")),
    Column("cost", is_figure=False),
)


def show_history(
    user: User,
    session: Session,
    agent: AnyAgent = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the summaries of a chat: when, by whom, why, what each covers, saved and cost.

    AGENT may be left out where the session has one.
    """
    records = run_async(_records(store, user, session, agent))
    if records is None:
        raise no_such_chat(store, Scope(user, session, agent))
    if json:
        print(json_.dumps([_plain(record) for record in records]))  # noqa: T201  (a command line)
    elif not records:
        print("no summary has been made of this chat")  # noqa: T201
    else:
        _print(console(), records)


async def _records(
    store: str | None, user: str, session: str, agent: str | None
) -> list[SummaryRecord] | None:
    async with opened(store) as storage:
        key = await chosen_chat(storage, store, user, session, agent)
        summaries = storage.summaries()
        records = [] if summaries is None else await summaries.list_summaries(key)
        scope = Scope(key.user_id, key.session_id, key.agent_id)
        is_known = bool(records) or [info async for info in scope.chats(storage)]
        return records if is_known else None


def _print(out: Console, records: list[SummaryRecord]) -> None:
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


def _plain(record: SummaryRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "replaces": record.replaces,
        "created_at": record.created_at.isoformat(),
        "summarizer": record.summarizer,
        "reason": record.reason,
        "position": record.position,
        "covered": attrs.asdict(record.covered),
        "messages_before": record.messages_before,
        "messages_after": record.messages_after,
        "tokens_before": record.tokens_before,
        "tokens_after": record.tokens_after,
        "usage": None if record.usage is None else attrs.asdict(record.usage),
    }
