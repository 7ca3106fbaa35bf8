"""What strangers wrote is shown and never obeyed."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.audit.escaping import one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("over\rwritten", "over␍written"),
        ("rub\x08\x7f", "rub␈␡"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udc80", "\\udc80"),
        ("line\nline\ttab", "line\nline\ttab"),
        ("[bold]é 漢 👩‍🔬[/bold]", "[bold]é 漢 👩‍🔬[/bold]"),
    ],
)
def test_control_characters_become_visible(text, shown):
    """Escape sequences and their like turn into pictures or codes; other text stays."""
    assert visible(text) == shown


@given(st.text(st.characters()))
def test_nothing_visible_commands_a_terminal(text):
    """No control character but line end and tab is left in any text, and it can be encoded."""
    shown = visible(text)
    shown.encode()
    assert not [
        character
        for character in shown
        if unicodedata.category(character) == "Cc" and character not in "\n\t"
    ]
    assert visible(shown) == shown


@given(st.text(st.characters()))
def test_one_line_is_one_line(text):
    """A text made one line has no line end of any kind."""
    assert len(one_line(text).splitlines()) <= 1
