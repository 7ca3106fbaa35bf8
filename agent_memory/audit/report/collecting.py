"""What a report of a session tells, before it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import attrs

from agent_memory.audit.digest import ChatDigest, digest_of
from agent_memory.audit.log import Hole, marks_of
from agent_memory.audit.seeing import Stretch, explanation_of, stretches_of
from agent_memory.explaining import Explanation
from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole
from agent_memory.records import ChatInfo, Note, SummaryRecord
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.merging import merge_chats
from agent_memory.tokens import HeuristicTokenCounter, TokenCounter


@attrs.frozen
class Turn:
    """One time that the model was asked.

    Args:
        position: of its answer.
        seen: tokens of the view it was given, estimated.
        unshortened: tokens of all that was stored by then, estimated.
        reported: tokens of the prompt as the provider reported them, if it did.
        summaries: how many summaries were made since the turn before.
    """

    position: int
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
        turns: how large the context was each time.
        tokens: of each raw message, by its position, estimated.
        seen_tokens: of the view, estimated.
        marks: what the log holds beside messages, in order.
        digest: of the log.
    """

    explanation: Explanation
    stretches: Sequence[Stretch]
    turns: Sequence[Turn]
    tokens: dict[int, int]
    seen_tokens: int
    marks: Sequence[Note | Hole]
    digest: ChatDigest

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
        turns_of(explanation, counter),
        tokens,
        sum([counter.count(message) for message in explanation.view]),
        await marks_of(storage, info.key),
        await digest_of(storage, info),
    )


def made_at(record: SummaryRecord) -> int:
    """Return the position of the newest message when a summary was made."""
    return record.position + max(0, record.messages_after - len(record.summary))


def turns_of(explanation: Explanation, counter: TokenCounter) -> list[Turn]:
    """Work out what each of the assistant's messages was an answer to."""
    messages = [explained.message for explained in explanation.messages]
    sums = [0, *accumulate([counter.count(message) for message in messages])]
    first = (messages[0].position or 1) if messages else 1
    turns: list[Turn] = []
    coming, live, fresh = list(explanation.summaries), None, 0
    for index, message in enumerate(messages):
        position = message.position or 0
        while coming and made_at(coming[0]) < position:
            live, fresh = coming.pop(0), fresh + 1
        if message.role is not ParticipantRole.ASSISTANT:
            continue
        seen = sums[index]
        if live is not None:
            after = min(index, max(0, live.position - first + 1))
            made = [*live.head, *live.summary]
            seen += sum([counter.count(item) for item in made]) - sums[after]
        reported = message.usage.input_tokens if message.usage else None
        turns.append(Turn(position, seen, sums[index], reported or None, fresh))
        fresh = 0
    return turns
