"""Charts as plain geometry, which the template writes as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from agent_memory.audit.escaping import clipped
from agent_memory.audit.report.collecting import ModelRequest, SessionReport
from agent_memory.messages import ConversationMessage

WIDTH: Final = 960
TIME: Final = "%Y-%m-%d %H:%M:%S"
_HEIGHT: Final = 240
_LEFT: Final = 8
_RIGHT: Final = 8
_TOP: Final = 12
_BOTTOM: Final = 28
_MOST_POINTS: Final = 600
_TICKS: Final = 4
_LANE: Final = 40


@attrs.frozen
class Tick:
    """A mark on an axis: where, and what is written there."""

    at: float
    label: str


@attrs.frozen
class ContextChart:
    """Tokens of the context at each request to the model.

    Args:
        height: of the drawing.
        seen, unshortened: the points of two lines, as SVG writes them.
        reported: the points that providers reported.
        marks: where summaries were made.
        rows, columns: the axes' marks.
    """

    height: int
    left: int
    bottom: int
    seen: str
    unshortened: str
    reported: Sequence[tuple[float, float]]
    marks: Sequence[float]
    rows: Sequence[Tick]
    columns: Sequence[Tick]


def context_chart(requests: Sequence[ModelRequest]) -> ContextChart | None:
    """Draw how large the context was; None for fewer than two requests."""
    if len(requests) < 2:  # noqa: PLR2004  (a line has two ends)
        return None
    top = _round_up(max(max(one.seen, one.unshortened, one.reported or 0) for one in requests))

    def x(index: int) -> float:
        return round(_LEFT + index * (WIDTH - _LEFT - _RIGHT) / (len(requests) - 1), 1)

    def y(tokens: float) -> float:
        return round(_HEIGHT - _BOTTOM - tokens * (_HEIGHT - _TOP - _BOTTOM) / top, 1)

    step = max(1, len(requests) // _MOST_POINTS)
    shown = sorted({*range(0, len(requests), step), len(requests) - 1})
    ends = sorted({0, len(requests) // 2, len(requests) - 1})
    return ContextChart(
        height=_HEIGHT,
        left=_LEFT,
        bottom=_HEIGHT - _BOTTOM,
        seen=" ".join(f"{x(i)},{y(requests[i].seen)}" for i in shown),
        unshortened=" ".join(f"{x(i)},{y(requests[i].unshortened)}" for i in shown),
        reported=[
            (x(i), y(tokens)) for i in shown if (tokens := requests[i].reported) is not None
        ],
        marks=sorted({x(i) for i, request in enumerate(requests) if request.summaries}),
        rows=[Tick(y(top * i / _TICKS), f"{top * i // _TICKS:,}") for i in range(_TICKS + 1)],
        columns=[Tick(x(i), f"{requests[i].turn:,}") for i in ends],
    )


def _round_up(value: int) -> int:
    """Return a value of at least this size that divides into round parts."""
    size = 1
    while size * 10 <= value:
        size *= 10
    for tenths in (10, 12, 16, 20, 24, 32, 40, 60, 80, 100):
        if size * tenths // 10 >= value:
            return max(_TICKS, size * tenths // 10)
    return max(_TICKS, value)


@attrs.frozen
class Dot:
    """A message on the time line.

    Args:
        at: where.
        role: of the message.
        target: the id of the page's element that shows it; empty if none does.
        label: what it is.
    """

    at: float
    role: str
    target: str
    label: str


@attrs.frozen
class AgentLane:
    """One agent's line: its name, where it runs, and a dot for each message."""

    name: str
    y: int
    dots: Sequence[Dot]


@attrs.frozen
class TimeLine:
    """A session in the order of its messages, a lane for each agent."""

    height: int
    lanes: Sequence[AgentLane]
    ticks: Sequence[Tick]


def time_line(
    report: SessionReport, target: Callable[[ConversationMessage], str] = lambda _message: ""
) -> TimeLine:
    """Draw who spoke when; messages that would overlap share a dot.

    Args:
        report: of the session.
        target: says which element of the page shows a message.
    """
    order = report.order
    span = max(1, len(order) - 1)

    def x(index: int) -> float:
        return round(6 + index * (WIDTH - 12) / span, 0)

    dots: dict[str, dict[tuple[float, str], Dot]] = {
        chat.key.agent_id: {} for chat in report.chats
    }
    for index, message in enumerate(order):
        at, role = x(index), message.role.value
        label = f"#{message.position} {role} {message.timestamp.strftime(TIME)}"
        dots[message.agent_id or ""].setdefault((at, role), Dot(at, role, target(message), label))
    lanes = [
        AgentLane(clipped(agent_id, 80), 30 + number * _LANE, list(found.values()))
        for number, (agent_id, found) in enumerate(dots.items())
    ]
    ticks = [
        Tick(x(index), order[index].timestamp.strftime(TIME))
        for index in sorted({0, span // 2, len(order) - 1} if len(order) > 1 else {0})
        if order
    ]
    return TimeLine(len(lanes) * _LANE + 28, lanes, ticks)
