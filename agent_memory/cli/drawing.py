"""Terminal output: tables, transcripts and progress bars; no content is interpreted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from agent_memory.audit.escaping import clipped, one_line, visible
from agent_memory.audit.log_pages import Hole, LogItem, hole_text, note_text, part_text
from agent_memory.log import Entry, Note
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, parts
from agent_memory.providers.part import to_json

# Text may be folded to this width, so that figures have the rest.
_FOLDED_WIDTH: Final = 12
_GAP: Final = 2


def console(*, errors: bool = False) -> Console:
    """Return a console on standard output or error, without markup and emoji codes."""
    stream = sys.stderr if errors else sys.stdout
    # Chat text goes through this console: rich must read no markup or emoji codes in it.
    return Console(file=stream, markup=False, emoji=False, highlight=False)


@attrs.frozen
class Column:
    """A column of a table: its name, and whether it holds figures, which are never truncated."""

    name: str
    is_figure: bool = True


def print_table(
    out: Console,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    total: Sequence[str] | None = None,
) -> None:
    """Print a table; on a terminal too narrow for its figures, each row as lines.

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
    # rich would truncate figures silently to fit the width; a wrong figure is worse than more
    # lines.
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


class _RateColumn(ProgressColumn):
    """What is counted, and how much of it a second."""

    def render(self, task: Task) -> Text:
        """Return the column's text."""
        count = int(task.fields["counted"])
        seconds = task.elapsed or 0
        rate = f"{count / seconds:,.0f}/s" if seconds > 0 else "-/s"
        return Text(f"{count:,} messages, {rate}")


@contextmanager
def counting(action: str, total: int | None, *, shown: bool) -> Generator[Callable[..., None]]:
    """Show a bar on standard error with the number of messages, their rate and the time left.

    Nothing is drawn if standard error is not a terminal: bars would fill a log file.

    Args:
        action: what is done, such as ``"copying"``.
        total: when it is complete: a number of messages, or in the unit of `reached`.
        shown: whether anything is drawn at all.

    Yields:
        To be called with the number of further messages and, where the total counts something
        else, how far that has been reached.
    """
    out = console(errors=True)
    out.quiet = not (shown and out.is_terminal)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
        console=out,
        # Up to version 14, rich ends a bar that is disabled with an empty line; quiet prevents it.
        disable=out.quiet,
    )
    counted = completed = 0

    def advance(count: int, reached: int | None = None) -> None:
        nonlocal counted, completed
        counted += count
        # Chats are stored concurrently, so that a chunk may report less than the one before.
        completed = counted if reached is None else max(completed, reached)
        bar.update(task, completed=completed, counted=counted)

    with bar:
        task = bar.add_task(action, total=total, counted=0)
        yield advance


_STYLES: Final = {
    "user": "bold cyan",
    "assistant": "bold green",
    "system": "bold yellow",
    "developer": "bold yellow",
    "tool": "bold magenta",
}
_FOLDED: Final = 100


def print_item(out: Console, item: LogItem, *, raw: bool) -> None:
    """Write what a position of a log holds: a message, a note, or that it cannot be read.

    Args:
        out: where to.
        item: what to write.
        raw: whether to write content and extra as JSON, instead of what they say.
    """
    if isinstance(item, Hole):
        agent = one_line(item.key.agent_id)
        out.print(Text(f"hole  {item.positions}  {agent}", style="bold red"), soft_wrap=True)
        out.print(_indented(hole_text(item), "red"), soft_wrap=True)
        out.print()
    elif isinstance(item, Note):
        out.print(_head("note", "dim", item), soft_wrap=True)
        text = note_text(item)
        out.print(_indented(text if raw else clipped(text, _FOLDED), "dim"), soft_wrap=True)
        out.print()
    else:
        print_message(out, item, raw=raw)


def print_message(out: Console, message: ConversationMessage, *, raw: bool) -> None:
    """Write one message: a head, and what it says below, indented.

    Args:
        out: where to.
        message: what to write.
        raw: whether to write content and extra as JSON, instead of what they say.
    """
    role = message.role.value
    head = _head(role, _STYLES.get(role, "bold"), message)
    if message.pinned:
        head.append("  pinned", style="dim")
    out.print(head, soft_wrap=True)
    for line in _raw(message) if raw else _lines(message):
        out.print(line, soft_wrap=True)
    out.print()


def _head(word: str, style: str, entry: Entry) -> Text:
    when = entry.timestamp.strftime("%Y-%m-%d %H:%M:%S")
    agent = one_line(entry.agent_id or "")
    return Text(word, style=style).append(f"  #{entry.position}  {agent}  {when}", style="dim")


def _raw(message: ConversationMessage) -> Iterator[Text]:
    plain = {"content": message.content, "extra": message.extra, "metadata": message.metadata}
    for name, value in plain.items():
        if value or name == "content":
            text = value if isinstance(value, str) else to_json(value)
            yield _indented(f"{name}: {visible(text)}")


def _lines(message: ConversationMessage) -> Iterator[Text]:
    for part in parts(message):
        line = _line(part)
        if line is not None:
            yield line


def _line(part: Part) -> Text | None:
    """Return what a part says; a call, a result and a thought as one line each."""
    name = f" {one_line(part.name)}" if part.name else ""
    match part.kind:
        case "text":
            return _indented(visible(part.text)) if part.text else None
        case "call":
            return _indented(f"→ calls{name} {clipped(part_text(part), _FOLDED)}", "magenta")
        case "result":
            failed = " failed" if part.is_error else ""
            size = f"{len(part.text):,} characters"
            return _indented(f"←{name}{failed} ({size}) {clipped(part.text, _FOLDED)}", "magenta")
        case "reasoning":
            return _indented(f"(thought) {clipped(part.text, _FOLDED)}", "dim italic")
        case "media":
            return _indented(f"[{name.strip() or 'attachment'}]", "blue")
        case _:
            return _indented(f"[{name.strip() or 'a block that is not known'}]", "dim")


def _indented(text: str, style: str = "") -> Text:
    return Text("  " + text.replace("\n", "\n  "), style=style)
