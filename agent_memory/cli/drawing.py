"""What is drawn on a terminal: a console for what strangers wrote, and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import attrs
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

_FOLDED_WIDTH: Final = 12
"""Text may be folded to this width, so that figures have the rest."""
_GAP: Final = 2


def console(*, errors: bool = False) -> Console:
    """Return a console for output, or for what is said beside it; no markup, no emoji codes."""
    stream = sys.stderr if errors else sys.stdout
    return Console(file=stream, markup=False, emoji=False, highlight=False)


@attrs.frozen
class Column:
    """A column of a table: its name, and whether it holds figures, which are never cut."""

    name: str
    is_figure: bool = True


def print_table(
    out: Console,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    total: Sequence[str] | None = None,
) -> None:
    """Write a table; where the terminal is too narrow for its figures, a row as lines.

    Args:
        out: where to.
        title: what it is of.
        columns: what each row holds.
        rows: the cells, as many as columns.
        total: a last row that sums up.
    """
    every = [*rows, *([total] if total else [])]
    widths = [
        max(cell_len(cell) for cell in (column.name, *(row[place] for row in every)))
        for place, column in enumerate(columns)
    ]
    needed = sum([
        width if column.is_figure else min(width, _FOLDED_WIDTH)
        for column, width in zip(columns, widths, strict=True)
    ])  # fmt: skip
    if needed + _GAP * (len(columns) - 1) > out.width:
        _print_records(out, title, columns, every)
        return
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
    )
    for column, width in zip(columns, widths, strict=True):
        if column.is_figure:
            table.add_column(column.name, justify="right", no_wrap=True, min_width=width)
        else:
            table.add_column(column.name, overflow="fold", min_width=min(width, _FOLDED_WIDTH))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if total:
        table.add_section()
        table.add_row(*(Text(cell) for cell in total))
    out.print(table)


def _print_records(
    out: Console, title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    out.print(Text(title, style="italic"))
    for head, *cells in rows:
        out.print(Text(head, style="bold"), soft_wrap=True)
        for column, cell in zip(columns[1:], cells, strict=True):
            if cell:
                out.print(Text(f"  {column.name}: {cell}"), soft_wrap=True)


def progress_bar(*, shown: bool) -> Progress:
    """Return a bar on standard error, so that the output stays clean.

    Args:
        shown: whether anything is drawn at all.
    """
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(errors=True),
        disable=not shown,
    )


class _RateColumn(ProgressColumn):
    """What is counted, and how much of it a second."""

    def render(self, task: Task) -> Text:
        """Return the column's text."""
        count = int(task.fields.get("counted", task.completed))
        seconds = task.elapsed or 0
        rate = f"{count / seconds:,.0f}/s" if seconds > 0 else "-/s"
        return Text(f"{count:,} messages, {rate}")


def counting_bar(*, shown: bool) -> Progress:
    """Return a bar on standard error that tells messages, their rate, and the time left.

    Nothing is drawn where standard error is no terminal: a log wants no bars.
    Tasks may count in another unit than messages; then they have a field ``counted``.

    Args:
        shown: whether anything is drawn at all.
    """
    out = console(errors=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
        console=out,
        disable=not (shown and out.is_terminal),
    )
