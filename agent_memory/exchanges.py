"""One pass over a history that finds which calls and results belong together.

What :mod:`agent_memory.turns` is made of; the rules are told there.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import repeat
from typing import Final, Literal, NamedTuple, TypeAlias

import attrs

from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.parsing import in_context, parts
from agent_memory.providers.part import Part

GroupKind: TypeAlias = Literal["system", "user", "assistant", "exchange", "results"]
"""What a group of messages is."""

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_SAID: Final = ("text", "media")


@attrs.frozen
class CallSite:
    """A call, or a result, and where it is.

    Args:
        index: of the message it is in.
        id: of the call; None for a result that names none.
    """

    index: int
    id: str | None


class Facts(NamedTuple):
    """What matters of one message here."""

    role: ParticipantRole
    calls: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    results: tuple[str | None, ...] = ()
    has_calls: bool = False
    has_results: bool = False
    says: bool = False
    only_thinks: bool = False
    nameless: bool = False

    @property
    def answers_user(self) -> bool:
        """An assistant's message that says something and calls nothing."""
        return self.role is _ASSISTANT and self.says and not self.has_calls

    @property
    def is_question(self) -> bool:
        """A user's message that says something and holds no results."""
        return self.role is _USER and self.says and not self.has_results

    def is_orphan(self, called: Container[str]) -> bool:
        """Whether it holds nothing but results, and none of a call among these."""
        if not self.results or self.says or self.calls or self.has_calls:
            return False
        return all(name is not None and name not in called for name in self.results)


_PLAIN: Final = {
    (role, says): Facts(role, says=says) for role in ParticipantRole for says in (True, False)
}
"""The facts of messages that are a string and nothing else, which most are."""


def facts_of(message: ConversationMessage, held: tuple[Part, ...] | None = None) -> Facts:
    """What matters of `message` for grouping.

    Args:
        message: the message.
        held: its parts, where they have been read already.
    """
    content = message.content
    if isinstance(content, str) and not message.extra and message.role is not ParticipantRole.TOOL:
        return _PLAIN[message.role, bool(content) and not content.isspace()]
    calls: dict[str, None] = {}
    waits: dict[str, None] = {}
    given: list[str | None] = []
    has_calls = says = acts = False
    inside = parts(message) if held is None else held
    # One plain loop: this is where the time of everything built on it goes.
    for part in inside:
        kind = part.kind
        acts = acts or kind != "reasoning"
        if kind in _SAID:
            says = says or kind == "media" or bool(part.text.strip())
        elif kind == "result":
            given.append(part.id)
        elif kind == "call":
            has_calls = has_calls or not part.hosted
            if part.id is not None:
                calls[part.id] = None
                if not part.hosted:
                    waits[part.id] = None
    nameless = None in given or len(calls) < sum([part.kind == "call" for part in inside])
    if None in given:
        given = [part.id for part in inside if part.kind == "result" and not _is_unnamed(part)]
    # A call that is answered within its own message (as of what the provider runs) is done.
    results = tuple([call_id for call_id in given if call_id not in calls])
    answered = set(given)
    role = message.role
    if role is ParticipantRole.TOOL and any(part.hosted for part in inside):
        role = _ASSISTANT  # an item with the result of a tool that the provider ran
    return Facts(
        role,
        calls=tuple(calls),
        waits=tuple([call_id for call_id in waits if call_id not in answered]),
        results=results,
        has_calls=has_calls,
        has_results=bool(results) or role is ParticipantRole.TOOL,
        says=says,
        only_thinks=role is _ASSISTANT and not acts and bool(inside),
        nameless=nameless,
    )


def _is_unnamed(result: Part) -> bool:
    """Whether a result needs no call to be named: its provider ran the tool, and knows."""
    return result.hosted and result.id is None


class ExchangeScan:
    """One pass over a history: which neighbours belong together, and what became of the calls."""

    def __init__(
        self,
        messages: Sequence[ConversationMessage],
        held: Sequence[tuple[Part, ...]] | None = None,
    ) -> None:
        facts_known = [*map(facts_of, messages, repeat(None) if held is None else held)]
        if held is None and any(facts.nameless for facts in facts_known):
            named = in_context(messages, [parts(message) for message in messages])
            facts_known = [*map(facts_of, messages, named)]
        self.facts: Final = facts_known
        self.waiting: dict[str, int] = {}
        """Calls of the exchange at the end, and where they are."""
        self.surplus: list[CallSite] = []
        """Results that no call waits for: strays, and all but the first of one call."""
        self.unanswered: dict[tuple[int, str], None] = {}
        self._bonds: Final = [0] * (len(self.facts) + 1)
        self._latest: Final[dict[str, int]] = {}
        self._reused: Final[set[str]] = set()
        self._thinking = False
        for index, facts in enumerate(self.facts):
            follows = index > 0 and facts.role is _ASSISTANT is self.facts[index - 1].role
            # Parallel calls may come as items of their own: the turn goes on.
            continues = follows and bool(self.waiting) and not facts.answers_user
            self._bind(index, facts, follows=follows, continues=continues)
            if not continues and not facts.has_results:
                self.waiting = {}
            self._call(index, facts)
            self._answer(index, facts)
            if facts.has_results and facts.says and facts.role is not _ASSISTANT:
                # A word of the user's beside the results ends the wait like any other message.
                self.waiting = {}

    def _bond(self, first: int, last: int) -> None:
        """Keep messages `first` to `last` (inclusive) together."""
        if first < last:
            self._bonds[first + 1] += 1
            self._bonds[last + 1] -= 1

    def _bind(self, index: int, facts: Facts, *, follows: bool, continues: bool) -> None:
        """Keep a message with the one before it, where its kind alone demands that."""
        # An item of reasoning is valid only with the items of the same reply that follow it.
        self._thinking = self._thinking and follows
        if index and (facts.has_results or continues or self._thinking):
            self._bond(index - 1, index)
        self._thinking = self._thinking or facts.only_thinks

    def _call(self, index: int, facts: Facts) -> None:
        for call_id in facts.calls:
            if call_id in self._latest:
                self._reused.add(call_id)
            self._latest[call_id] = index
        for call_id in facts.waits:
            self.unanswered[index, call_id] = None
            self.waiting[call_id] = index

    def _answer(self, index: int, facts: Facts) -> None:
        for call_id in facts.results:
            called = None if call_id is None else self._latest.get(call_id)
            if call_id is None or called is None:
                self.surplus.append(CallSite(index, call_id))
                continue
            waited = (called, call_id) in self.unanswered
            if waited:
                del self.unanswered[called, call_id]
                self.waiting.pop(call_id, None)
            elif self.facts[called].has_calls:
                self.surplus.append(CallSite(index, call_id))
            if waited or call_id not in self._reused:
                self._bond(called, index)

    @property
    def open(self) -> bool:
        """Whether the history ends in an exchange that waits."""
        return bool(self.waiting) or (bool(self.facts) and self.facts[-1].only_thinks)

    def starts(self) -> list[int]:
        """Where groups begin."""
        found: list[int] = []
        depth = 0
        for index in range(len(self.facts)):
            depth += self._bonds[index]
            if not depth:
                found.append(index)
        return found

    def kind(self, start: int, stop: int) -> GroupKind:
        """What the group of messages `start` to `stop` (exclusive) is."""
        if any(facts.has_calls for facts in self.facts[start:stop]):
            return "exchange"
        first = self.facts[start]
        if first.has_results:
            return "results"
        if first.role in SYSTEM_ROLES:
            return "system"
        return "user" if first.role is _USER else "assistant"
