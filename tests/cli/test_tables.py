"""Tables on narrow terminals: no figure is cut, whatever is folded."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from executable import done
from rich.cells import cell_len
from rich.console import Console

from agent_memory import ChatKey
from agent_memory.audit.chat_stats import ChatLine
from agent_memory.cli.chats import words_of
from agent_memory.cli.drawing import Column, print_table

COLUMNS = (Column("", is_figure=False), *map(Column, ("messages", "tokens", "bytes", "removed")))
FIGURES = ["1,234,567", "987,654,321", "12,345,678,901", "55,555,555"]


@pytest.mark.parametrize("width", [120, 80, 64, 63, 50, 30])
def test_no_figure_is_cut(width):
    """Side by side where they fit, else a line each."""
    out = Console(file=io.StringIO(), width=width, markup=False)
    print_table(out, "Agents", COLUMNS, [["a name " * 6, *FIGURES]], ["all", *FIGURES])
    text = out.file.getvalue()
    assert all(text.count(figure) == 2 for figure in FIGURES)
    assert "…" not in text
    assert text.count("messages: ") == (2 if width < 64 else 0)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= max(width, 42)


@pytest.mark.parametrize("width", [80, 50])
def test_the_list_of_chats_fits_a_terminal(width):
    """Ids are never cut, because they are typed after a command; titles are."""
    moment = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)
    key = ChatKey("ada", "a-session-with-a-name", "guide")
    line = ChatLine(
        key=key,
        title="漢字 " * 30,
        messages=1_234_567,
        tokens=98_765_432,
        summaries=12_345,
        created_at=moment,
        updated_at=moment,
    )
    lines = words_of(line, width).splitlines()
    assert "2026-12-01 10:00 1,234,567 98,765,432 12,345" in lines[0]
    assert "ada a-session-with-a-name guide" in "".join(lines)
    assert all(cell_len(text) <= width for text in lines)
    assert len(words_of(line).splitlines()) == 1


@pytest.mark.parametrize("columns", ["80", "50"])
@pytest.mark.parametrize("command", [["stats"], ["history", "ada", "hike", "guide"]])
def test_the_tables_of_commands_show_every_figure(command, columns, small):
    """What the widest terminal shows is there on a narrow one."""
    wide = done(*command, "--store", small, COLUMNS="300")
    narrow = done(*command, "--store", small, COLUMNS=columns)
    figures = {word for word in wide.split() if word[0].isdigit()}
    assert len(figures) > 4
    assert figures <= set(narrow.split())
