"""The contents of a session report, before it is drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate, chain

import attrs

from agent_memory.audit.escaping import one_line
from agent_memory.audit.log_pages import Hole, marks_of
from agent_memory.audit.verification import ChatDigest, digest_of
from agent_memory.audit.view_inspection import Stretch, explanation_of, stretches_of
from agent_memory.explaining import Explanation
from agent_memory.log import ChatInfo, Note, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.merging import merge_chats
from agent_memory.tokens import HeuristicTokenCounter, TokenCounter
from agent_memory.turns import asks


@attrs.frozen
class ModelRequest:
    """One request to the model.

    Args:
        position: of its answer.
        turn: in which of the user's turns, from 1; 0 before the first.
        seen: tokens of the view it was given, estimated.
        unshortened: tokens of all that was stored by then, estimated.
        reported: tokens of the prompt as the provider reported them, if it did.
        summaries: how many summaries were made since the request before.
    """

    position: int
    turn: int
    seen: int
    unshortened: int
    reported: int | None
    summaries: int


@attrs.frozen
class ChatReport:
    """One agent's chat.

    Args:
        explanation: what the model sees, and why.
        stretches: the raw messages by how they stand in the view.
        requests: how large the context was each time.
        tokens: of each raw message, by its position, estimated.
        seen_tokens: of the view, estimated.
        marks: what the log holds beside messages, in order.
        digest: of the log.
        turns: number of user turns: a question with everything that follows it.
    """

    explanation: Explanation
    stretches: Sequence[Stretch]
    requests: Sequence[ModelRequest]
    tokens: dict[int, int]
    seen_tokens: int
    marks: Sequence[Note | Hole]
    digest: ChatDigest
    turns: int

    @property
    def holes(self) -> list[Hole]:
        """The positions that cannot be read."""
        return [mark for mark in self.marks if isinstance(mark, Hole)]

    @property
    def key(self) -> ChatKey:
        """Which chat."""
        return self.explanation.key

    @property
    def messages(self) -> list[ConversationMessage]:
        """The raw messages."""
        return [explained.message for explained in self.explanation.messages]

    def handed_to(self, number: int) -> list[ConversationMessage]:
        """Return the messages that a summary, numbered from 1, was made of first."""
        handed = [stretch.messages for stretch in self.stretches if stretch.number == number]
        return list(chain.from_iterable(handed))


@attrs.frozen
class SessionReport:
    """A session across its agents.

    Args:
        user_id, session_id: which session.
        chats: a report of each agent's chat, by agent id.
        order: the raw messages of all of them, merged.
    """

    user_id: str
    session_id: str
    chats: Sequence[ChatReport]
    order: Sequence[ConversationMessage]


async def session_report(
    storage: ChatStorage, user_id: str, session_id: str, *, counter: TokenCounter | None = None
) -> SessionReport:
    """Read a session, whole, for a report; the chats are empty if there is none.

    Args:
        storage: the raw store.
        user_id, session_id: which session.
        counter: counts tokens; by default an estimate.
    """
    counting = counter or HeuristicTokenCounter()
    infos = [info async for info in storage.list_chats(user_id, session_id)]
    chats = [await _chat_report(storage, info, counting) for info in infos]
    order = merge_chats({chat.key.agent_id: chat.messages for chat in chats})
    return SessionReport(user_id, session_id, chats, order)


async def _chat_report(storage: ChatStorage, info: ChatInfo, counter: TokenCounter) -> ChatReport:
    explanation = await explanation_of(storage, info.key)
    tokens = {
        explained.message.position or 0: counter.count(explained.message)
        for explained in explanation.messages
    }
    return ChatReport(
        explanation,
        stretches_of(explanation, counter),
        requests_of(explanation, counter),
        tokens,
        sum([counter.count(message) for message in explanation.view]),
        await marks_of(storage, info),
        await digest_of(storage, info),
        max(turn_numbers([explained.message for explained in explanation.messages]), default=0),
    )


def turn_numbers(messages: Sequence[ConversationMessage]) -> Iterator[int]:
    """Yield the user's turn that each message is in; questions in a row begin one turn."""
    number, was_question = 0, False
    for message in messages:
        is_question = asks(message)
        number += is_question and not was_question
        was_question = is_question
        yield number


def made_at(record: SummaryRecord) -> int:
    """Return the position of the newest message when a summary was made."""
    return record.position + max(0, record.messages_after - len(record.summary))


def requests_of(explanation: Explanation, counter: TokenCounter) -> list[ModelRequest]:
    """Work out the size of the context for each of the assistant's messages."""
    messages = [explained.message for explained in explanation.messages]
    sums = [0, *accumulate([counter.count(message) for message in messages])]
    first = (messages[0].position or 1) if messages else 1
    requests: list[ModelRequest] = []
    coming, live, fresh = list(explanation.summaries), None, 0
    for index, (message, turn) in enumerate(zip(messages, turn_numbers(messages), strict=True)):
        position = message.position or 0
        # A summary takes effect with the first request after the message at which it was made.
        while coming and made_at(coming[0]) < position:
            live, fresh = coming.pop(0), fresh + 1
        if message.role is not ParticipantRole.ASSISTANT:
            continue
        seen = sums[index]
        if live is not None:
            after = min(index, max(0, live.position - first + 1))
            made = [*live.head, *live.summary]
            seen += sum([counter.count(item) for item in made]) - sums[after]
        # Only providers know the real size of a prompt: tools and system prompt are not in the
        # chat.
        reported = message.usage.input_tokens if message.usage else None
        requests.append(ModelRequest(position, turn, seen, sums[index], reported or None, fresh))
        fresh = 0
    return requests


@attrs.frozen
class TranscriptItem:
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
        return self.held.position or 0


@attrs.frozen
class TranscriptRow:
    """Consecutive items that are all folded or all shown, with the label of folded ones."""

    label: str
    items: Sequence[TranscriptItem]


def transcript(report: SessionReport, first_shown: Sequence[int]) -> list[TranscriptRow]:
    """Return the whole session, in rows.

    Args:
        report: of the session.
        first_shown: of each chat, from which position on it is shown; holes always are.
    """
    items = {
        chat.key.agent_id: _items(index, chat, first_shown[index])
        for index, chat in enumerate(report.chats)
    }
    return [TranscriptRow(_label(run), run) for run in _runs(merge_chats(items))]


def _runs(items: Sequence[TranscriptItem]) -> Iterator[list[TranscriptItem]]:
    """Part items where folding begins or ends, or where an agent's next summary begins."""
    run: list[TranscriptItem] = []
    folds: dict[int, str] = {}
    for item in items:
        # Each summary of an agent is a fold of its own, so that its label names what it covers.
        is_other = bool(run) and bool(run[-1].fold) != bool(item.fold)
        if is_other or folds.get(item.chat, item.fold) != item.fold:
            yield run
            run, folds = [], {}
        run.append(item)
        folds[item.chat] = item.fold
    if run:
        yield run


def _items(index: int, chat: ChatReport, first_shown: int) -> Iterator[TranscriptItem]:
    """Yield what is shown of a chat. A note is folded where what is around it is."""
    agent, marks, before = one_line(chat.key.agent_id), deque(chat.marks), ""

    def marks_before(position: int | None, fold: str) -> Iterator[TranscriptItem]:
        while marks and (position is None or (marks[0].position or 0) < position):
            mark = marks.popleft()
            if isinstance(mark, Hole):
                yield TranscriptItem(index, agent, mark, "", 0, mark.timestamp)
            elif (mark.position or 0) >= first_shown:
                yield TranscriptItem(index, agent, mark, fold, 0, mark.timestamp)

    for stretch in chat.stretches:
        fold = "" if stretch.is_shown else _fold_words(stretch)
        for message in stretch.messages:
            position = message.position or 0
            yield from marks_before(position, fold if fold == before else "")
            before = fold
            if position >= first_shown:
                tokens = chat.tokens[position]
                yield TranscriptItem(index, agent, message, fold, tokens, message.timestamp)
    yield from marks_before(None, "")


def _fold_words(stretch: Stretch) -> str:
    if stretch.standing != "covered":
        return "left out or changed"
    return f"seen through {f'summary {stretch.number}' if stretch.number else 'a summary'}"


def _label(items: Sequence[TranscriptItem]) -> str:
    """Return the label of folded items, by agent; empty if nothing is folded."""
    if not items[0].fold:
        return ""
    messages: dict[str, list[TranscriptItem]] = {}
    for item in items:
        if isinstance(item.held, ConversationMessage):
            messages.setdefault(item.agent, []).append(item)
    labels: list[str] = []
    for agent, found in messages.items():
        named = f"{agent} " if len(messages) > 1 else ""
        reach = f"#{found[0].position} to #{found[-1].position}"
        tokens = sum([item.tokens for item in found])
        size = f"{len(found):,} message{'' if len(found) == 1 else 's'}, {tokens:,} tokens"
        labels.append(f"{named}{reach}: {size}, {found[0].fold}")
    return "; ".join(labels)
