"""Writing to a terminal what strangers wrote: shown, never obeyed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

_CONTROL: Final = {
    # C0 and DEL have pictures of their own; a newline and a tab do no harm.
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    # C1 holds one-character forms of the escape sequences.
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    # These turn the direction of writing around, so that text reads as what it is not.
    **{
        code: f"\\u{code:04x}"
        for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
    },
}


def visible(text: str) -> str:
    r"""Return a text in which nothing can command a terminal: such characters become visible.

    Line ends and tabs stay; escape, the other control characters and marks of direction are
    replaced by their picture or code, lone surrogates by ``\udc80``.
    """
    shown = text.translate(_CONTROL)
    return shown.encode("utf-8", "backslashreplace").decode()


def one_line(text: str) -> str:
    """Return a text as one visible line."""
    return " ".join(visible(text).split())


def soften(*streams: TextIO) -> None:
    """Have streams replace what their encoding does not know, instead of failing."""
    for stream in streams:
        reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


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
