"""Which messages belong together, and where a history may therefore be cut.

A *group* is indivisible: a user's message; a system message; an assistant's message with its
tool calls, the reasoning that belongs to it, and all their results, however these come (parallel,
out of order, in one message or several, with other messages between, which then belong to the
group too). Everything here is a pure function of the messages, takes linear time, and works for
all of the providers' forms and for mixtures of them.

Rules where a history is not what a provider would take:

- A result belongs to the call with its id, wherever that is. A second result for the same call
  (an interim one, then the final one) stays in the same group; the first one counts.
- An id that is called several times is matched with the latest call that still waits. What fits
  none (a stray) is left where it is: in the group of the message before it.
- Calls wait only until another message than a result comes; then they are *dead*.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import accumulate, pairwise, repeat, takewhile
from typing import Final, Literal, NamedTuple, TypeAlias

import attrs

from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.parsing import in_context, parts
from agent_memory.providers.part import Part
from agent_memory.validation import checked_count

__all__ = [
    "CallSite",
    "Group",
    "GroupKind",
    "asks",
    "cut_points",
    "dead_calls",
    "group",
    "is_open",
    "leading_system",
    "open_calls",
    "open_length",
    "runs",
    "safe_start",
    "split_recent",
    "surplus_results",
    "unanswered_question",
    "unanswered_questions",
    "working_turn",
]

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
        # What its provider ran needs no name: the provider knows.
        named = [part for part in inside if not (part.hosted and part.id is None)]
        given = [part.id for part in named if part.kind == "result"]
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
        depths = accumulate(self._bonds[:-1])
        return [index for index, depth in enumerate(depths) if not depth]

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


@attrs.frozen
class Group:
    """Messages ``start`` to ``stop`` (exclusive) of a history, which must not be parted.

    Args:
        start: index of its first message.
        stop: index after its last message.
        kind: ``exchange`` when it holds tool calls; ``results`` for results at the very start of
            a history, whose calls are not in it; else by whose message it is.
        open: it is the last group and still waits: for results of its calls, or for what its
            reasoning leads to.
    """

    start: int
    stop: int
    kind: GroupKind
    open: bool = False


def group(messages: Sequence[ConversationMessage]) -> list[Group]:
    """Split a history into its indivisible groups, in order and without gaps.

    A group that is not open stays as it is when the history goes on, with three exceptions, in
    which groups join: a late result of one of its calls comes, a stray result comes right after
    it, or it is the last one, holds reasoning, and the assistant goes on (of a reply that comes
    item by item, as OpenAI's Responses do, no item says that it is the last). Groups never
    part.
    """
    scan = ExchangeScan(messages)
    starts = scan.starts()
    end = len(scan.facts)
    return [
        Group(start, stop, scan.kind(start, stop), open=stop == end and scan.open)
        for start, stop in pairwise([*starts, end])
    ]


def cut_points(messages: Sequence[ConversationMessage]) -> list[int]:
    """All indexes at which a history may be cut in two, rising.

    0 is always among them; the length is, unless the history ends in an open group.
    """
    scan = ExchangeScan(messages)
    starts = scan.starts() or [0]
    return starts if scan.open or not scan.facts else [*starts, len(scan.facts)]


def safe_start(messages: Sequence[ConversationMessage], index: int) -> int:
    """The largest legal cut that is not after `index`.

    Args:
        messages: the history.
        index: where a cut is wanted; 0 or more, more than the length means the length.

    Raises:
        InvalidRequestError: `index` is negative.
    """
    checked_count(index, "index")
    return max(cut for cut in cut_points(messages) if cut <= index)


def split_recent(
    messages: Sequence[ConversationMessage], keep_last: int
) -> tuple[list[ConversationMessage], list[ConversationMessage]]:
    """Split a history into what to summarize and what to keep; for writers of summarizers.

    Args:
        messages: the history.
        keep_last: how many pairs of messages (user and assistant) to keep, at least 1. The kept
            part is widened to whole groups, so that no tool exchange is torn.

    Returns:
        the old messages and the recent ones; together they are the history.

    Raises:
        InvalidRequestError: `keep_last` is not an int of at least 1.
    """
    checked_count(keep_last, "keep_last", at_least=1)
    cut = safe_start(messages, max(0, len(messages) - 2 * keep_last))
    return list(messages[:cut]), list(messages[cut:])


def is_open(messages: Sequence[ConversationMessage]) -> bool:
    """Whether a history ends in an exchange that still waits for results.

    Reasoning at the very end waits too, for what it leads to. Any other message after the calls
    than a result of theirs ends the wait: whatever is unanswered then is dead. Only the end of
    the history is looked at, however long it is.
    """
    return ExchangeScan(messages[_end_from(messages) :]).open


def open_length(messages: Sequence[ConversationMessage]) -> int:
    """How many messages the exchange at the end has that still waits; 0 if none does."""
    end = messages[_end_from(messages) :]
    return len(end) if ExchangeScan(end).open else 0


def _end_from(messages: Sequence[ConversationMessage]) -> int:
    """Where the last exchange, or message, begins: nothing before it waits any more."""
    start = len(messages)
    while start:
        start -= 1
        goes_on = start and messages[start].role is messages[start - 1].role is _ASSISTANT
        if not goes_on and not facts_of(messages[start]).has_results:
            break
    return start


def open_calls(messages: Sequence[ConversationMessage]) -> list[CallSite]:
    """The calls that a history, at its end, still waits for."""
    return [CallSite(index, call_id) for call_id, index in ExchangeScan(messages).waiting.items()]


def dead_calls(messages: Sequence[ConversationMessage]) -> list[CallSite]:
    """The calls that have no result and do not wait for one any more."""
    scan = ExchangeScan(messages)
    waiting = {(index, call_id) for call_id, index in scan.waiting.items()}
    return [CallSite(*site) for site in scan.unanswered if site not in waiting]


def surplus_results(messages: Sequence[ConversationMessage]) -> list[CallSite]:
    """Results without a call before them, and all but the first result of one call."""
    return ExchangeScan(messages).surplus


def unanswered_questions(messages: Sequence[ConversationMessage]) -> list[range]:
    """The user's messages since the assistant's last answer, as runs of neighbours.

    An answer says something and calls nothing; a message with calls, or with reasoning alone,
    is none, and neither is what the assistant says right before it calls, which OpenAI's
    Responses have as an item of its own. Messages that hold tool results are not questions.
    """
    facts = [facts_of(message) for message in messages]
    found: list[range] = []
    for index in range(_newest_answer(facts) + 1, len(facts)):
        if not facts[index].is_question:
            continue
        if found and found[-1].stop == index:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


def _newest_answer(facts: Sequence[Facts]) -> int:
    """Where the assistant last answered, rather than told what it calls next; -1 for nowhere."""
    calls_follow = False
    for index in reversed(range(len(facts))):
        if facts[index].role is not _ASSISTANT:
            calls_follow = False
        elif facts[index].has_calls:
            calls_follow = True
        elif facts[index].answers_user and not calls_follow:
            return index
    return -1


def unanswered_question(messages: Sequence[ConversationMessage]) -> range | None:
    """The first of :func:`unanswered_questions`: what the work in progress is about; or None."""
    return next(iter(unanswered_questions(messages)), None)


def runs(messages: Sequence[ConversationMessage]) -> list[range]:
    """The runs of a history, as ranges of indexes that cover it.

    A run is a block of neighbours with one ``run_id``; an id that comes back later opens a new
    one, and neighbours without an id form one. A history without any run id is split where the
    user speaks after somebody else did (what precedes the first such message belongs to it).
    """
    if all(message.run_id is None for message in messages):
        starts = _user_turns(messages)
    else:
        ids = [message.run_id for message in messages]
        starts = [index for index in range(1, len(ids)) if ids[index] != ids[index - 1]]
    bounds = [0, *starts, len(messages)] if messages else []
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _user_turns(messages: Sequence[ConversationMessage]) -> list[int]:
    scan = ExchangeScan(messages)
    asks = [facts.is_question for facts in scan.facts]
    first = next((index for index, asked in enumerate(asks) if asked), len(asks))
    return [at for at in scan.starts() if at > first and asks[at] and not asks[at - 1]]


def asks(message: ConversationMessage) -> bool:
    """Whether it is a user's message that says something and holds no results."""
    return facts_of(message).is_question


def working_turn(messages: Sequence[ConversationMessage]) -> range | None:
    """The question of the newest turn in which tools are called: its first user messages.

    Returns:
        Their indexes; None where the user asks nothing, or where no tool is called after that.
    """
    facts = [facts_of(message) for message in messages]
    start = next((at for at in reversed(range(len(facts))) if facts[at].is_question), None)
    if start is None or not any(after.has_calls for after in facts[start:]):
        return None
    stop = start + 1
    while start and facts[start - 1].is_question:
        start -= 1
    return range(start, stop)


def leading_system(messages: Sequence[ConversationMessage]) -> int:
    """How many system (or developer) messages a history begins with."""
    return sum(1 for _ in takewhile(lambda message: message.role in SYSTEM_ROLES, messages))


def must_stay(message: ConversationMessage) -> bool:
    """Whether a message stays in the view whatever is summarized.

    It is pinned, or holds state that no summarizer can read and that stands for what came
    before it: an encrypted compaction of the provider's.
    """
    if message.pinned or isinstance(message.content, str):
        return message.pinned
    return any(part.opaque for part in parts(message))
