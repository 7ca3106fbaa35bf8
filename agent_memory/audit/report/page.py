"""Writing a report as one HTML file in which no content is obeyed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from typing import Final

import attrs

from agent_memory._version import __version__
from agent_memory.audit.escaping import clipped, one_line, visible
from agent_memory.audit.log_pages import Hole, hole_text, part_text
from agent_memory.audit.report.charts import TIME, WIDTH, context_chart, time_line
from agent_memory.audit.report.collecting import (
    ChatReport,
    SessionReport,
    TranscriptItem,
    transcript,
)
from agent_memory.errors import MissingDependencyError
from agent_memory.log import Note
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, parts, text_of
from agent_memory.providers.part import to_json

MOST_MESSAGES: Final = 2_000
"""Messages of a chat that are shown one by one, the newest; of the others, how many."""
_MOST_CHARACTERS: Final = 20_000
_EXCERPT: Final = 100


@attrs.frozen
class PartView:
    """A part of a message as the page shows it.

    Args:
        kind: text, call, result, reasoning, media or other.
        head: one line; folded parts show only that at first.
        text: the whole of it, or its beginning.
        cut: how many characters were left out.
    """

    kind: str
    head: str
    text: str
    cut: int


@attrs.frozen
class MessageView:
    """A message as the page shows it.

    Args:
        place: its position, ``""`` for one made for the view.
        agent: its agent, where that is not plain from the place.
        anchor: its element's id, if it has one.
    """

    role: str
    place: str
    when: str
    tokens: str
    pinned: bool
    pieces: Sequence[PartView]
    agent: str = ""
    anchor: str = ""


def render(report: SessionReport) -> str:
    """Return the report as HTML. It loads nothing, runs nothing, and opens offline.

    Raises:
        MissingDependencyError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise MissingDependencyError("jinja2", "cli") from error
    # Chat text is untrusted: everything is escaped but the style sheet, and a name missing in
    # the template is an error.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"one_line": one_line, "number": "{:,}".format, "when": _when}
    style = _read("style.css")
    first_shown = [_first_shown(chat) for chat in report.chats]
    indexes = {chat.key.agent_id: index for index, chat in enumerate(report.chats)}

    def target(message: ConversationMessage) -> str:
        index, position = indexes[message.agent_id or ""], message.position or 0
        return _anchor(index, position) if position >= first_shown[index] else ""

    return environment.from_string(_read("page.html")).render(
        report=report,
        most=MOST_MESSAGES,
        entry=_entry,
        shown=partial(_shown, report=report),
        excerpt=_excerpt,
        left_out=_left_out,
        context_chart=context_chart,
        line=time_line(report, target),
        transcript=transcript(report, first_shown),
        width=WIDTH,
        style=style,
        # Only this style sheet, by its digest: whatever a message holds, no browser runs it.
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        made=datetime.now(UTC),
        version=__version__,
    )


def _read(name: str) -> str:
    return resources.files("agent_memory.audit.report").joinpath(name).read_text(encoding="utf-8")


def _left_out(chat: ChatReport) -> list[ConversationMessage]:
    first = _first_shown(chat)
    return [message for message in chat.messages if (message.position or 0) < first]


def _first_shown(chat: ChatReport) -> int:
    newest = chat.messages[-1].position or 0 if chat.messages else 0
    return newest - MOST_MESSAGES + 1


def _shown(item: TranscriptItem, report: SessionReport) -> MessageView:
    """Return a transcript's item as the page shows it; its agent is named if there are several."""
    agent = item.agent if len(report.chats) > 1 else ""
    held = item.held
    if isinstance(held, ConversationMessage):
        entry = _entry(held, report.chats[item.chat])
    else:
        entry = _mark(held)
    return attrs.evolve(entry, agent=agent, anchor=_anchor(item.chat, item.position))


def _anchor(index: int, position: int) -> str:
    return f"m{index}-{position}"


def _mark(mark: Note | Hole) -> MessageView:
    if isinstance(mark, Hole):
        text, place = hole_text(mark), mark.positions.removeprefix("#")
        return MessageView("hole", place, "", "", False, [PartView("text", "", text, 0)])
    head = f"{one_line(mark.kind)}: {clipped(to_json(mark.data), _EXCERPT)}"
    pieces = [PartView("note", head, visible(to_json(mark.data)[:_MOST_CHARACTERS]), 0)]
    when = _when(mark.timestamp)
    return MessageView("note", str(mark.position), when, "", False, pieces)


def _entry(message: ConversationMessage, chat: ChatReport | None = None) -> MessageView:
    position = message.position
    tokens = None if chat is None or position is None else chat.tokens.get(position)
    return MessageView(
        role=message.role.value,
        place="" if position is None else str(position),
        when=_when(message.timestamp),
        tokens="" if tokens is None else f"{tokens:,}",
        pinned=message.pinned,
        pieces=[_piece(part) for part in parts(message)],
    )


def _when(moment: datetime) -> str:
    return moment.strftime(TIME)


def _piece(part: Part) -> PartView:
    text = _text(part)
    cut = max(0, len(text) - _MOST_CHARACTERS)
    name = one_line(part.name or "")
    heads: dict[str, str] = {
        "call": f"calls {name or 'a tool'}: {clipped(text, _EXCERPT)}",
        "result": f"{'failed' if part.is_error else 'result'}: {clipped(text, _EXCERPT)}",
        "reasoning": f"thought: {clipped(text, _EXCERPT)}",
        "media": f"[{name or 'attachment'}]",
        "other": f"[{name or 'a block that is not known'}]",
    }
    return PartView(part.kind, heads.get(part.kind, ""), visible(text[:_MOST_CHARACTERS]), cut)


def _text(part: Part) -> str:
    return "" if part.kind == "media" else part_text(part)


def _excerpt(message: ConversationMessage) -> str:
    words = text_of(message) or " ".join(
        [f"{p.kind} {p.name or ''} {_text(p)}" for p in parts(message)]
    )
    return clipped(words, _EXCERPT)
