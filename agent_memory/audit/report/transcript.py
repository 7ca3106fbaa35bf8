"""A session's raw log as one transcript: merged across agents, what no model sees folded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime

import attrs

from agent_memory.audit.log import Hole, first_of
from agent_memory.audit.report.collecting import ChatReport, SessionReport
from agent_memory.audit.seeing import Stretch
from agent_memory.audit.visible import one_line
from agent_memory.messages import ConversationMessage
from agent_memory.records import Note
from agent_memory.storage.merging import merge_chats


@attrs.frozen
class Item:
    """A position of an agent's log.

    Args:
        chat: the index of the chat.
        agent: its agent.
        held: what is there.
        fold: how the model sees it, if not as it is; empty if it does.
        tokens: of a message, estimated.
        timestamp: when it was said.
    """

    chat: int
    agent: str
    held: ConversationMessage | Note | Hole
    fold: str
    tokens: int
    timestamp: datetime

    @property
    def position(self) -> int:
        """The position, or the first one."""
        held = self.held
        return first_of(held) if isinstance(held, (Hole, Note)) else held.position or 0


@attrs.frozen
class Row:
    """Items in a row that are all folded or all not, and what is said of folded ones."""

    label: str
    items: Sequence[Item]


def transcript(report: SessionReport, first_shown: Sequence[int]) -> list[Row]:
    """Return the whole session, in rows.

    Args:
        report: of the session.
        first_shown: of each chat, from which position on it is shown; holes always are.
    """
    items = {
        chat.key.agent_id: _items(index, chat, first_shown[index])
        for index, chat in enumerate(report.chats)
    }
    return [Row(_label(run), run) for run in _runs(merge_chats(items))]


def _runs(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Part items where folding begins or ends, or where an agent's next summary begins."""
    run: list[Item] = []
    folds: dict[int, str] = {}
    for item in items:
        is_other = bool(run) and bool(run[-1].fold) != bool(item.fold)
        if is_other or folds.get(item.chat, item.fold) != item.fold:
            yield run
            run, folds = [], {}
        run.append(item)
        folds[item.chat] = item.fold
    if run:
        yield run


def _items(index: int, chat: ChatReport, first_shown: int) -> Iterator[Item]:
    """Yield what is shown of a chat. A note is folded where what is around it is."""
    agent, marks, before = one_line(chat.key.agent_id), deque(chat.marks), ""

    def marks_before(position: int | None, fold: str) -> Iterator[Item]:
        while marks and (position is None or first_of(marks[0]) < position):
            mark = marks.popleft()
            if isinstance(mark, Hole):
                yield Item(index, agent, mark, "", 0, mark.timestamp)
            elif first_of(mark) >= first_shown:
                yield Item(index, agent, mark, fold, 0, mark.timestamp)

    for stretch in chat.stretches:
        fold = "" if stretch.is_shown else _words(stretch)
        for message in stretch.messages:
            position = message.position or 0
            yield from marks_before(position, fold if fold == before else "")
            before = fold
            if position >= first_shown:
                tokens = chat.tokens[position]
                yield Item(index, agent, message, fold, tokens, message.timestamp)
    yield from marks_before(None, "")


def _words(stretch: Stretch) -> str:
    if stretch.standing != "covered":
        return "left out or changed"
    return f"seen through {f'summary {stretch.number}' if stretch.number else 'a summary'}"


def _label(items: Sequence[Item]) -> str:
    """Say what is folded, of each agent; empty if nothing is."""
    if not items[0].fold:
        return ""
    messages: dict[str, list[Item]] = {}
    for item in items:
        if isinstance(item.held, ConversationMessage):
            messages.setdefault(item.agent, []).append(item)
    told: list[str] = []
    for agent, found in messages.items():
        named = f"{agent} " if len(messages) > 1 else ""
        reach = f"#{found[0].position} to #{found[-1].position}"
        tokens = sum([item.tokens for item in found])
        size = f"{len(found):,} message{'' if len(found) == 1 else 's'}, {tokens:,} tokens"
        told.append(f"{named}{reach}: {size}, {found[0].fold}")
    return "; ".join(told)
