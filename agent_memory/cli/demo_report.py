"""What the demo tells: for people, and for machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

import attrs
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agent_memory.audit.escaping import one_line, visible
from agent_memory.cli.drawing import console
from agent_memory.cli.replay import Played
from agent_memory.explaining import Explanation

_MOST_ROWS: Final = 12


@attrs.frozen(kw_only=True)
class Report:
    """The outcome of the demo.

    Args:
        store: the store's URL, without secrets.
        user_id: under whom the conversations are stored.
        reopened: whether the store was closed and opened anew before it was read for the proof.
        played: what each conversation came to.
    """

    store: str
    user_id: str
    reopened: bool
    played: tuple[Played, ...]

    @property
    def splits(self) -> list[str]:
        """A line for each tool exchange that a view tore apart."""
        return [line for one in self.played for line in one.splits]

    @property
    def faults(self) -> list[str]:
        """A line for whatever else was not as promised."""
        return [line for one in self.played for line in one.faults]

    @property
    def broken(self) -> bool:
        """Whether anything was not as promised."""
        return bool(self.splits or self.faults)

    def total(self, of: Callable[[Played], int]) -> int:
        """Return a figure for all conversations together."""
        return sum([of(one) for one in self.played])


def as_json(report: Report) -> str:
    """Return the report as JSON, in ASCII, so that no content can command a terminal."""
    plain = {
        "store": report.store,
        "user_id": report.user_id,
        "reopened": report.reopened,
        "conversations": [_plain(one) for one in report.played],
        "messages": report.total(lambda one: one.messages),
        "views_checked": report.total(lambda one: one.views),
        "exchanges_split": report.splits,
        "faults": report.faults,
    }
    return json.dumps(plain, indent=2)


def _plain(one: Played) -> dict[str, Any]:
    return {
        "id": one.conversation.id,
        "messages": one.messages,
        "tokens": one.tokens,
        "view_messages": len(one.view),
        "view_tokens": one.view_tokens,
        "compactions": one.compactions,
        "answers": one.answers,
        "tokens_read": one.tokens_read,
        "tokens_unshortened": one.tokens_unshortened,
        "summary": one.summary,
        "standing": [] if one.explanation is None else standing_lines(one.explanation),
    }


def print_report(report: Report) -> None:
    """Write the report for people to standard output."""
    out = console()
    longest = max(report.played, key=lambda one: one.tokens)
    out.print(_sizes(report))
    if longest.summary:
        name = one_line(longest.conversation.id)
        out.print(Text(f"\nWhat stands for the older messages of {name}:", style="bold"))
        out.print(Padding(Text(visible(longest.summary)), (0, 0, 0, 2), expand=False))
    if longest.explanation is not None:
        out.print(Text("\nWhat became of its messages:", style="bold"))
        for line in standing_lines(longest.explanation):
            out.print(Text(f"  {line}"))
    out.print()
    _print_proof(out, report)


def standing_lines(explanation: Explanation) -> list[str]:
    """Return a line for each stretch of messages that stand alike in the view."""
    made = {record.id: number for number, record in enumerate(explanation.summaries, start=1)}
    lines: list[str] = []
    alike = groupby(explanation.messages, key=lambda one: (one.standing, one.summary_id))
    for (standing, summary_id), stretch in alike:
        places = [explained.message.position for explained in stretch]
        span = f"{places[0]}" if len(places) == 1 else f"{places[0]} to {places[-1]}"
        by = f" by summary {made[summary_id]} of {len(made)}" if summary_id in made else ""
        lines.append(f"{span}: {standing}{by}")
    return lines


def _sizes(report: Report) -> Table:
    table = Table(title="What is kept, and what the model sees at the end")
    table.add_column("conversation", overflow="fold")
    for name in ("kept", "tokens", "seen", "tokens", "summaries"):
        table.add_column(name, justify="right")
    by_size = sorted(report.played, key=lambda one: one.tokens, reverse=True)
    for one in by_size[:_MOST_ROWS]:
        _add_row(table, one_line(one.conversation.id), [one])
    if len(by_size) > _MOST_ROWS:
        rest = by_size[_MOST_ROWS:]
        _add_row(table, f"{len(rest)} more", rest)
    if len(by_size) > 1:
        table.add_section()
        _add_row(table, f"all {len(by_size)}", by_size)
    return table


def _add_row(table: Table, name: str, rows: list[Played]) -> None:
    figures = (
        sum([one.messages for one in rows]),
        sum([one.tokens for one in rows]),
        sum([len(one.view) for one in rows]),
        sum([one.view_tokens for one in rows]),
        sum([one.compactions for one in rows]),
    )
    table.add_row(name, *(f"{figure:,}" for figure in figures))


def _print_proof(out: Console, report: Report) -> None:
    messages = report.total(lambda one: one.messages)
    views = report.total(lambda one: one.views)
    read, whole = (
        report.total(lambda one: one.tokens_read),
        report.total(lambda one: one.tokens_unshortened),
    )
    answers = report.total(lambda one: one.answers)
    out.print(f"The model was asked {answers:,} times. It read {read:,} tokens (estimated)")
    out.print(f"instead of {whole:,}, which is {_share(read, whole)}.")
    how = "was closed, reopened and read" if report.reopened else "was read again"
    out.print(f"\nThe store {one_line(report.store)} {how}.", soft_wrap=True)
    for line in (*report.splits, *report.faults):
        out.print(Text(f"BROKEN  {one_line(line)}", style="bold red"))
    if not report.broken:
        out.print(Text(f"OK  All {messages:,} messages came back equal.", style="green"))
        out.print(Text(f"OK  None of {views:,} views split a tool exchange.", style="green"))
        out.print(Text("OK  The views came back equal; no summary was made anew.", style="green"))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%} of it" if whole else "nothing"
