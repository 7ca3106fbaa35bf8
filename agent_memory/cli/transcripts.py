"""Messages as people read them in a terminal: coloured, calls and results folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from agent_memory.audit.log import Hole, LogItem, hole_text, note_text
from agent_memory.audit.visible import clipped, one_line, visible
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, parts
from agent_memory.providers.part import to_json
from agent_memory.records import Entry, Note

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
