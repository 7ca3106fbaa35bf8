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

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.exchanges import CallSite, ExchangeScan, Facts, GroupKind, facts_of
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.validation import checked_count

_ASSISTANT: Final = ParticipantRole.ASSISTANT


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
    if index < 0:
        raise InvalidRequestError(f"index must be at least 0, not {index}")
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
    legal = set(scan.starts())
    first = next((index for index, asked in enumerate(asks) if asked), len(asks))
    return [
        index
        for index in range(first + 1, len(asks))
        if asks[index] and not asks[index - 1] and index in legal
    ]


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
    for index, message in enumerate(messages):
        if message.role not in SYSTEM_ROLES:
            return index
    return len(messages)


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
