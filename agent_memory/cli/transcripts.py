"""Messages as people read them in a terminal: coloured, calls and results folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from agent_memory.audit.visible import clipped, one_line, visible
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, parts
from agent_memory.providers.part import to_json

_STYLES: Final = {
    "user": "bold cyan",
    "assistant": "bold green",
    "system": "bold yellow",
    "developer": "bold yellow",
    "tool": "bold magenta",
}
_FOLDED: Final = 100


def print_message(out: Console, message: ConversationMessage, *, raw: bool) -> None:
    """Write one message: a head, and what it says below, indented.

    Args:
        out: where to.
        message: what to write.
        raw: whether to write content and extra as JSON, instead of what they say.
    """
    role = message.role.value
    head = Text(f"{role}", style=_STYLES.get(role, "bold"))
    when = message.timestamp.strftime("%Y-%m-%d %H:%M:%S")
    agent = one_line(message.agent_id or "")
    pinned = "  pinned" if message.pinned else ""
    head.append(f"  #{message.position}  {agent}  {when}{pinned}", style="dim")
    out.print(head, soft_wrap=True)
    for line in _raw(message) if raw else _lines(message):
        out.print(line, soft_wrap=True)
    out.print()


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
            given = part.payload if isinstance(part.payload, str) else to_json(part.payload)
            return _indented(f"→ calls{name} {clipped(given, _FOLDED)}", "magenta")
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
