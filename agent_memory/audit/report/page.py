"""Writing a report as one HTML file in which no content is obeyed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Final

import attrs

from agent_memory._version import __version__
from agent_memory.audit.escaping import clipped, one_line, visible
from agent_memory.audit.log_pages import Hole, hole_text, part_text
from agent_memory.audit.report.charts import TIME, WIDTH, ContextChart, context_chart, time_line
from agent_memory.audit.report.collecting import (
    ChatReport,
    SessionReport,
    TranscriptItem,
    transcript,
)
from agent_memory.audit.verification import ChatDigest
from agent_memory.errors import MissingDependencyError
from agent_memory.log import Note, SummaryRecord
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


@attrs.frozen
class TranscriptFold:
    """Entries in a row of the transcript; `label` is empty where they are not folded."""

    label: str
    entries: Sequence[MessageView]


@attrs.frozen
class SummarySection:
    """A summary record: what it says and what it was made of."""

    number: int
    is_live: bool
    record: SummaryRecord
    entries: Sequence[MessageView]
    excerpts: Sequence[tuple[int, str, str]]
    left_out: int


@attrs.frozen
class ChatSection:
    """A chat as the page shows it."""

    index: int
    agent: str
    stored: int
    stored_tokens: int
    turns: int
    seen: int
    seen_tokens: int
    left_out: int
    left_out_from: int
    view: Sequence[MessageView]
    summaries: Sequence[SummarySection]
    chart: ContextChart | None
    holes: str
    digest: ChatDigest


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
    style = _read("style.css")
    first_shown = [_first_shown(chat) for chat in report.chats]
    indexes = {chat.key.agent_id: index for index, chat in enumerate(report.chats)}

    def target(message: ConversationMessage) -> str:
        index, position = indexes[message.agent_id or ""], message.position or 0
        return _anchor(index, position) if position >= first_shown[index] else ""

    return environment.from_string(_read("page.html")).render(
        user=one_line(report.user_id),
        session=one_line(report.session_id),
        chats=[_chat(index, chat) for index, chat in enumerate(report.chats)],
        line=time_line(report, target),
        transcript=[
            TranscriptFold(row.label, [_shown(item, report) for item in row.items])
            for row in transcript(report, first_shown)
        ],
        messages=len(report.order),
        first=_when(report.order[0]) if report.order else "",
        last=_when(report.order[-1]) if report.order else "",
        width=WIDTH,
        style=style,
        # Only this style sheet, by its digest: whatever a message holds, no browser runs it.
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        made=datetime.now(UTC).strftime(f"{TIME} UTC"),
        version=__version__,
    )


def _read(name: str) -> str:
    return resources.files("agent_memory.audit.report").joinpath(name).read_text(encoding="utf-8")


def _chat(index: int, chat: ChatReport) -> ChatSection:
    explanation = chat.explanation
    left_out, left_out_from = _left_out(chat, _first_shown(chat))
    live = len(explanation.summaries)
    return ChatSection(
        index=index,
        agent=one_line(chat.key.agent_id),
        stored=len(explanation.messages),
        stored_tokens=sum(chat.tokens.values()),
        turns=chat.turns,
        seen=len(explanation.view),
        seen_tokens=chat.seen_tokens,
        left_out=left_out,
        left_out_from=left_out_from,
        view=[_entry(message, chat) for message in explanation.view[-MOST_MESSAGES:]],
        summaries=[
            _summary(number, record, chat, is_live=number == live)
            for number, record in enumerate(explanation.summaries, 1)
        ],
        chart=context_chart(chat.requests),
        holes=", ".join([hole.positions for hole in chat.holes]),
        digest=chat.digest,
    )


def _left_out(chat: ChatReport, first_shown: int) -> tuple[int, int]:
    """Return how many messages are not shown, and the position of the first."""
    hidden = [m.position or 0 for m in chat.messages if (m.position or 0) < first_shown]
    return len(hidden), hidden[0] if hidden else 0


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
    when = mark.timestamp.strftime(TIME)
    return MessageView("note", str(mark.position), when, "", False, pieces)


def _summary(
    number: int, record: SummaryRecord, chat: ChatReport, *, is_live: bool
) -> SummarySection:
    handed = [
        message
        for stretch in chat.stretches
        if stretch.number == number
        for message in stretch.messages
    ]
    excerpts = [
        (message.position or 0, message.role.value, clipped(_words(message), _EXCERPT))
        for message in handed[-MOST_MESSAGES:]
    ]
    entries = [_entry(message, None) for message in record.summary]
    return SummarySection(number, is_live, record, entries, excerpts, len(handed) - len(excerpts))


def _entry(message: ConversationMessage, chat: ChatReport | None) -> MessageView:
    position = message.position
    tokens = None if chat is None or position is None else chat.tokens.get(position)
    return MessageView(
        role=message.role.value,
        place="" if position is None else str(position),
        when=_when(message),
        tokens="" if tokens is None else f"{tokens:,}",
        pinned=message.pinned,
        pieces=[_piece(part) for part in parts(message)],
    )


def _when(message: ConversationMessage) -> str:
    return message.timestamp.strftime(TIME)


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


def _words(message: ConversationMessage) -> str:
    return text_of(message) or " ".join(
        [f"{p.kind} {p.name or ''} {_text(p)}" for p in parts(message)]
    )
