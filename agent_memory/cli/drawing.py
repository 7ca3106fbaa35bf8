"""What is drawn on a terminal: a console for what strangers wrote, and progress bars."""

from __future__ import annotations

import sys

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
from rich.text import Text


def console(*, errors: bool = False) -> Console:
    """Return a console for output, or for what is said beside it; no markup, no emoji codes."""
    stream = sys.stderr if errors else sys.stdout
    return Console(file=stream, markup=False, emoji=False, highlight=False)


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
