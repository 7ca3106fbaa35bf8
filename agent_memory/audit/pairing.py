"""Following tool calls and their results through a log, however long."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from agent_memory.exchanges import facts_of
from agent_memory.messages import ConversationMessage, ParticipantRole


@attrs.define
class CallWatch:
    """Tells of calls without a result and of results without a call, message by message.

    It holds the calls that still wait, and nothing else.
    """

    _waiting: dict[str, tuple[int, bool]] = attrs.field(factory=dict[str, tuple[int, bool]])

    def look(self, message: ConversationMessage) -> Iterator[str]:
        """Take note of the next message; yield what is wrong with it."""
        facts = facts_of(message)
        for call_id in facts.results:
            if call_id is None:
                yield "a tool's result that names no call"
            elif self._waiting.pop(call_id, None) is None:
                yield f"a tool's result for {call_id!r}, a call that does not wait for one"
        goes_on = facts.has_results or message.role is ParticipantRole.ASSISTANT
        if not goes_on or facts.answers_user:
            # Something else came: calls before it will hardly be answered any more.
            self._waiting = {call: (at, True) for call, (at, _) in self._waiting.items()}
        for call_id in facts.waits:
            self._waiting[call_id] = message.position or 0, False

    def unanswered(self) -> Iterator[tuple[int, str]]:
        """Yield position and id of each call that was passed over without a result.

        One that the chat ends with may still be under way.
        """
        for call_id, (position, is_passed) in self._waiting.items():
            if is_passed:
                yield position, call_id
