"""Playing conversations into a store as an orchestrator would, and proving what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs

from agent_memory.cli.conversations import Conversation
from agent_memory.cli.watching import ViewWatch
from agent_memory.events import Compacted, Event
from agent_memory.explaining import Explanation
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers import text_of
from agent_memory.providers.plain import dump_message
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizing import SummarizingChatStorage
from agent_memory.tokens import HeuristicTokenCounter, TokenCounter

AGENT: Final = "agent"
"""The agent whose chats the conversations become."""


@attrs.define
class Played:
    """What one conversation came to.

    Args:
        conversation: what was played.
        view: what a model sees at its end.
        summary: the text of what stands in the view for older messages; ``""`` for nothing.
        messages: how many were stored.
        tokens: of all of them, estimated.
        view_tokens: of the view, estimated.
        compactions: how often a summary was made.
        answers: how often the model was asked.
        tokens_read: what it read on all these occasions.
        tokens_unshortened: what it would have read if each time it had been shown everything.
        views: how many views were looked at.
        explanation: what became of each message; None where the store does not tell.
        splits: a line for each tool exchange that a view has torn apart.
        faults: a line for whatever else was not as promised.
    """

    conversation: Conversation
    view: list[ConversationMessage] = attrs.field(factory=list[ConversationMessage])
    summary: str = ""
    messages: int = 0
    tokens: int = 0
    view_tokens: int = 0
    compactions: int = 0
    answers: int = 0
    tokens_read: int = 0
    tokens_unshortened: int = 0
    views: int = 0
    explanation: Explanation | None = None
    splits: list[str] = attrs.field(factory=list[str])
    faults: list[str] = attrs.field(factory=list[str])


class Player:
    """Plays conversations into one store, and counts.

    Args:
        user_id: whose chats they become; each conversation's id becomes a session.
        counter: counts tokens; by default an estimate.
    """

    def __init__(self, user_id: str, counter: TokenCounter | None = None) -> None:
        self.user_id = user_id
        self._counter = counter or HeuristicTokenCounter()
        self._compactions: dict[str, int] = {}

    def on_event(self, event: Event) -> None:
        """Count the summaries; for the store's ``on_event``."""
        if isinstance(event, Compacted):
            session = event.key.session_id
            self._compactions[session] = self._compactions.get(session, 0) + 1

    async def play(
        self, storage: ChatStorage, conversation: Conversation, on_saved: Callable[[], object]
    ) -> Played:
        """Save a conversation message by message, and look at the view after each.

        Args:
            storage: the store whose views are looked at.
            conversation: what to save.
            on_saved: called after each message.
        """
        played, watch = Played(conversation), ViewWatch()
        key = self.user_id, conversation.id, AGENT
        for message in conversation.messages:
            if message.role is ParticipantRole.ASSISTANT:
                played.answers += 1
                played.tokens_read += self._tokens(played.view)
                played.tokens_unshortened += played.tokens
            await storage.save_chat_message(*key, message)
            watch.saved(message)
            played.messages += 1
            played.tokens += self._counter.count(message)
            played.view = await storage.fetch_chat(*key)
            _look(played, watch)
            on_saved()
        played.view_tokens = self._tokens(played.view)
        played.summary = "\n".join(text_of(made) for made in watch.made_in(played.view))
        played.compactions = self._compactions.get(conversation.id, 0)
        if isinstance(storage, SummarizingChatStorage):
            played.explanation = await storage.explain(*key)
        return played

    async def prove(self, storage: ChatStorage, played: Played) -> None:
        """Compare what a store holds, read anew, with what was given; add to the faults."""
        conversation, key = played.conversation, (self.user_id, played.conversation.id, AGENT)
        raw = await storage.fetch_chat_since(*key, 0)
        if raw != list(conversation.messages):
            played.faults.append("the stored messages are not those that were saved")
        if _text([dump_message(message) for message in raw]) != _text(conversation.source):
            played.faults.append("the stored messages are not what the file says")
        if await storage.fetch_chat(*key) != played.view:
            played.faults.append("the view is another one than before the store was reopened")

    def _tokens(self, messages: list[ConversationMessage]) -> int:
        return sum([self._counter.count(message) for message in messages])


def _look(played: Played, watch: ViewWatch) -> None:
    played.views += 1
    where = f"{played.conversation.id}, after message {played.messages}: "
    played.splits += [where + line for line in watch.split_exchanges(played.view)]
    played.faults += [where + line for line in watch.faults(played.view)]


def _text(plain: list[dict[str, Any]]) -> str:
    return json.dumps(plain, sort_keys=True)  # unlike ==, it tells 1 from 1.0 and from true
