"""Writing a report as one HTML file in which no content is obeyed."""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final

import attrs

from agent_memory._version import __version__
from agent_memory.audit.digest import ChatDigest
from agent_memory.audit.log import Hole, first_of, hole_text
from agent_memory.audit.report.charts import WIDTH, ContextChart, context_chart, time_line
from agent_memory.audit.report.collecting import ChatReport, SessionReport
from agent_memory.audit.seeing import Stretch
from agent_memory.audit.visible import clipped, one_line, visible
from agent_memory.errors import MissingDependencyError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, parts, text_of
from agent_memory.providers.part import to_json
from agent_memory.records import Note, SummaryRecord

MOST_MESSAGES: Final = 2_000
"""Messages of a chat that are shown one by one, the newest; of the others, how many."""
_MOST_CHARACTERS: Final = 20_000
_EXCERPT: Final = 100


@attrs.frozen
class Piece:
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
class Entry:
    """A message as the page shows it; `place` is its position, ``""`` for made ones."""

    role: str
    place: str
    when: str
    tokens: str
    pinned: bool
    pieces: Sequence[Piece]


@attrs.frozen
class Row:
    """Raw messages that stand alike in the view, and how; `left_out` is how many are not shown."""

    standing: str
    number: int
    first: int
    last: int
    count: int
    tokens: int
    left_out: int
    entries: Sequence[Entry]


@attrs.frozen
class Summary:
    """A summary record: what it says and what it was made of."""

    number: int
    is_live: bool
    record: SummaryRecord
    entries: Sequence[Entry]
    excerpts: Sequence[tuple[int, str, str]]
    left_out: int


@attrs.frozen
class Chat:
    """A chat as the page shows it."""

    index: int
    agent: str
    stored: int
    stored_tokens: int
    seen: int
    seen_tokens: int
    rows: Sequence[Row]
    view: Sequence[Entry]
    summaries: Sequence[Summary]
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
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = _read("style.css")
    return environment.from_string(_read("page.html")).render(
        user=one_line(report.user_id),
        session=one_line(report.session_id),
        chats=[_chat(index, chat) for index, chat in enumerate(report.chats)],
        line=time_line(report),
        messages=len(report.order),
        first=_when(report.order[0]) if report.order else "",
        last=_when(report.order[-1]) if report.order else "",
        width=WIDTH,
        style=style,
        # Only this style sheet, by its digest: whatever a message holds, no browser runs it.
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )


def _read(name: str) -> str:
    return resources.files("agent_memory.audit.report").joinpath(name).read_text(encoding="utf-8")


def _chat(index: int, chat: ChatReport) -> Chat:
    explanation = chat.explanation
    newest = chat.messages[-1].position or 0 if chat.messages else 0
    shown_from = newest - MOST_MESSAGES + 1
    live = len(explanation.summaries)
    return Chat(
        index=index,
        agent=one_line(chat.key.agent_id),
        stored=len(explanation.messages),
        stored_tokens=sum(chat.tokens.values()),
        seen=len(explanation.view),
        seen_tokens=chat.seen_tokens,
        rows=_rows(chat, shown_from),
        view=[_entry(message, chat) for message in explanation.view[-MOST_MESSAGES:]],
        summaries=[
            _summary(number, record, chat, is_live=number == live)
            for number, record in enumerate(explanation.summaries, 1)
        ],
        chart=context_chart(chat.turns),
        holes=", ".join([hole.positions for hole in chat.holes]),
        digest=chat.digest,
    )


def _rows(chat: ChatReport, shown_from: int) -> list[Row]:
    """Return the raw log in rows: notes lie within them, and a hole parts one."""
    coming, rows = deque(chat.marks), list[Row]()

    def marks_before(position: int) -> list[Note | Hole]:
        found: list[Note | Hole] = []
        while coming and first_of(coming[0]) < position:
            found.append(coming.popleft())
        return [m for m in found if isinstance(m, Hole) or first_of(m) >= shown_from]

    def add_marks(marks: Sequence[Note | Hole]) -> None:
        if marks:
            entries = [_mark(mark) for mark in marks]
            first, last = first_of(marks[0]), first_of(marks[-1])
            rows.append(Row("verbatim", 0, first, last, 0, 0, 0, entries))

    holes = [hole.first for hole in chat.holes]
    for stretch in chat.stretches:
        for messages in _parted(stretch.messages, holes):
            add_marks(marks_before(messages[0].position or 0))
            within = marks_before(messages[-1].position or 0)
            rows.append(_row(stretch, messages, chat, shown_from, within))
    add_marks(list(coming))
    return rows


def _parted(
    messages: Sequence[ConversationMessage], holes: Sequence[int]
) -> list[list[ConversationMessage]]:
    """Part messages where there is a hole between them."""
    parts: list[list[ConversationMessage]] = [[]]
    passed: int | None = None
    for message in messages:
        before = bisect(holes, message.position or 0)
        if passed not in (None, before):
            parts.append([])
        parts[-1].append(message)
        passed = before
    return parts


def _mark(mark: Note | Hole) -> Entry:
    if isinstance(mark, Hole):
        text, place = hole_text(mark), mark.positions.removeprefix("#")
        return Entry("hole", place, "", "", False, [Piece("text", "", text, 0)])
    head = f"{one_line(mark.kind)}: {clipped(to_json(mark.data), _EXCERPT)}"
    pieces = [Piece("note", head, visible(to_json(mark.data)[:_MOST_CHARACTERS]), 0)]
    when = mark.timestamp.strftime("%Y-%m-%d %H:%M:%S")
    return Entry("note", str(mark.position), when, "", False, pieces)


def _row(
    stretch: Stretch,
    messages: Sequence[ConversationMessage],
    chat: ChatReport,
    shown_from: int,
    notes: Sequence[Note | Hole],
) -> Row:
    shown = [message for message in messages if (message.position or 0) >= shown_from]
    entries = [(message.position or 0, _entry(message, chat)) for message in shown]
    entries += [(first_of(note), _mark(note)) for note in notes]
    return Row(
        standing=stretch.standing,
        number=stretch.number,
        first=messages[0].position or 0,
        last=messages[-1].position or 0,
        count=len(messages),
        tokens=sum([chat.tokens[message.position or 0] for message in messages]),
        left_out=len(messages) - len(shown),
        entries=[entry for _, entry in sorted(entries, key=lambda item: item[0])],
    )


def _summary(number: int, record: SummaryRecord, chat: ChatReport, *, is_live: bool) -> Summary:
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
    return Summary(number, is_live, record, entries, excerpts, len(handed) - len(excerpts))


def _entry(message: ConversationMessage, chat: ChatReport | None) -> Entry:
    position = message.position
    tokens = None if chat is None or position is None else chat.tokens.get(position)
    return Entry(
        role=message.role.value,
        place="" if position is None else str(position),
        when=_when(message),
        tokens="" if tokens is None else f"{tokens:,}",
        pinned=message.pinned,
        pieces=[_piece(part) for part in parts(message)],
    )


def _when(message: ConversationMessage) -> str:
    return message.timestamp.strftime("%Y-%m-%d %H:%M:%S")


def _piece(part: Part) -> Piece:
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
    return Piece(part.kind, heads.get(part.kind, ""), visible(text[:_MOST_CHARACTERS]), cut)


def _text(part: Part) -> str:
    if part.kind == "call":
        given: Any = part.payload
        return given if isinstance(given, str) else to_json(given)
    return "" if part.kind == "media" else part.text


def _words(message: ConversationMessage) -> str:
    return text_of(message) or " ".join(
        [f"{p.kind} {p.name or ''} {_text(p)}" for p in parts(message)]
    )
