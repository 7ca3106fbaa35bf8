"""Whether calls and results stand where a provider wants them; part of :mod:`rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Final, Literal, TypeAlias

from agent_memory.exchanges import Trace, facts_of
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.shapes import Part
from agent_memory.shapes.base import Shape

PairingRule: TypeAlias = Literal[
    "result_placement", "unanswered_call", "orphaned_result", "duplicate_result", "duplicate_call"
]
Found: TypeAlias = tuple[int, PairingRule, str]

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_TOOL: Final = ParticipantRole.TOOL


def unpaired(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]], shape: Shape
) -> Iterator[Found]:
    """What is wrong with the calls and results of a history; `held` are its messages' parts."""
    open_sites = open_sites_of(messages, held)
    if shape == "openai_responses":
        return _anywhere(held, open_sites)
    if shape == "openai_chat":
        return _following(messages, held, open_sites)
    return _adjacent(messages, held, open_sites)


def open_sites_of(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]]
) -> set[tuple[int, str]]:
    """The calls that the end of a history waits for."""
    start = len(messages)
    while start:
        start -= 1
        facts = facts_of(messages[start], held[start])
        if facts.asks or facts.answers_user:
            break  # nothing before it waits any more
    waiting = Trace(messages[start:], held[start:]).waiting
    return {(start + index, call_id) for call_id, index in waiting.items()}


def _waiting(inside: tuple[Part, ...]) -> list[str]:
    return [part.id for part in inside if part.waits and part.id is not None]


def _results(inside: tuple[Part, ...]) -> list[str | None]:
    return [part.id for part in inside if part.answers]


def _repeated(index: int, calls: list[str]) -> Iterator[Found]:
    for call_id, times in Counter(calls).items():
        if times > 1:
            yield index, "duplicate_call", f"{times} calls have the id {call_id}"


def _result(
    index: int, call_id: str | None, calls: Container[str], answered: set[str]
) -> Iterator[Found]:
    """Note one result, and what is wrong with it."""
    if call_id is None or call_id not in calls:
        yield index, "orphaned_result", f"no call before it has the id {call_id}"
    elif call_id in answered:
        yield index, "duplicate_result", f"the call {call_id} has a result already"
    else:
        answered.add(call_id)


def _unanswered(
    index: int, calls: list[str], answered: set[str], open_sites: set[tuple[int, str]]
) -> Iterator[Found]:
    for call_id in dict.fromkeys(calls):
        if call_id not in answered and (index, call_id) not in open_sites:
            yield index, "unanswered_call", f"no result of the call {call_id} follows it"


def _adjacent(
    messages: Sequence[ConversationMessage],
    held: Sequence[tuple[Part, ...]],
    open_sites: set[tuple[int, str]],
) -> Iterator[Found]:
    """Anthropic and Bedrock: all results in the next message, at its beginning."""
    before: list[str] = []
    for index, inside in enumerate(held):
        answered: set[str] = set()
        calls = set(before)
        for call_id in _results(inside):
            yield from _result(index, call_id, calls, answered)
        yield from _unanswered(index - 1, before, answered, open_sites)
        kinds = [part.answers for part in inside]
        if True in kinds and False in kinds[: kinds.count(True)]:
            yield index, "result_placement", "results come before anything else in a message"
        before = _waiting(inside) if messages[index].role is _ASSISTANT else []
        yield from _repeated(index, before)
    yield from _unanswered(len(held) - 1, before, set(), open_sites)


def _following(
    messages: Sequence[ConversationMessage],
    held: Sequence[tuple[Part, ...]],
    open_sites: set[tuple[int, str]],
) -> Iterator[Found]:
    """Chat Completions: a message of role tool for each call, right after them."""
    calls: list[str] = []
    known: set[str] = set()
    answered: set[str] = set()
    called_at = -1
    for index, inside in enumerate(held):
        if messages[index].role is not _TOOL:
            yield from _unanswered(called_at, calls, answered, open_sites)
            calls = _waiting(inside) if messages[index].role is _ASSISTANT else []
            called_at, known = index, set(calls)
            answered.clear()
            yield from _repeated(index, calls)
        for call_id in _results(inside):
            yield from _result(index, call_id, known, answered)
    yield from _unanswered(called_at, calls, answered, open_sites)


def _anywhere(
    held: Sequence[tuple[Part, ...]], open_sites: set[tuple[int, str]]
) -> Iterator[Found]:
    """Responses: an output for each call somewhere after it."""
    called: dict[str, int] = {}
    answered: set[str] = set()
    for index, inside in enumerate(held):
        for call_id in _waiting(inside):
            called[call_id] = index
            answered.discard(call_id)
        for result_id in _results(inside):
            yield from _result(index, result_id, called, answered)
    for call_id, index in called.items():
        yield from _unanswered(index, [call_id], answered, open_sites)
