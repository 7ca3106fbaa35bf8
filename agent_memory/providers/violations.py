"""Find what a provider would reject in a history.

:func:`validate` lists what a provider would answer with status 400, and the page with the rule;
:func:`~agent_memory.providers.repair` returns a view without it. The end of a history counts as
work in progress: calls that still wait there for their results are no violation.

Leading system messages are accepted for all: for Anthropic and Bedrock they are the request's
own ``system`` parameter (:func:`agent_memory.providers.convert` puts them there). A later one is
refused there; recent Claude models take some, older ones do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.format import Format
from agent_memory.providers.parsing import Provider, fits, format_named, in_context, parts
from agent_memory.providers.part import Part
from agent_memory.providers.repairing import is_signed
from agent_memory.turns import ExchangeScan, facts_of, leading_system

Rule: TypeAlias = Literal[
    "format",
    "role",
    "alternation",
    "empty_content",
    "blank_text",
    "lone_document",
    "call_placement",
    "result_placement",
    "result_content",
    "unanswered_call",
    "orphaned_result",
    "duplicate_result",
    "duplicate_call",
    "call_id",
    "loose_reasoning",
    "unsigned_reasoning",
]
"""The rules that a message may break."""

_Found: TypeAlias = tuple[int, Rule, str]

_TOOL_RULES: Final = frozenset[Rule]({
    "call_placement",
    "result_placement",
    "result_content",
    "unanswered_call",
    "orphaned_result",
    "duplicate_result",
    "duplicate_call",
    "call_id",
})  # fmt: skip
_SAID: Final = ("text", "media")
_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_TOOL: Final = ParticipantRole.TOOL


@attrs.frozen
class Violation:
    """Something in a history that a provider would reject.

    Args:
        index: of the message it is in.
        rule: which rule it breaks.
        text: what is wrong, in words.
        source: the provider's page on it.
    """

    index: int
    rule: Rule
    text: str
    source: str


def validate(messages: Sequence[ConversationMessage], provider: Provider) -> list[Violation]:
    """List everything in a history that a provider would answer with status 400.

    Takes linear time.

    Args:
        messages: the history, or the view, as it would be sent.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Returns:
        the violations in the order of their messages; an empty list when it is acceptable.

    Raises:
        InvalidRequestError: if the provider is unknown.
    """
    form = format_named(provider)
    plain = [parts(message) for message in messages]
    held = in_context(messages, plain)
    found: list[tuple[int, Rule, str]] = []
    for index, (message, inside) in enumerate(zip(messages, plain, strict=True)):
        found += [(index, *wrong) for wrong in _within(message, inside, form)]
    found += _between(messages, held, form)
    found += _unpaired(messages, held, form)
    found.sort(key=lambda wrong: wrong[0])
    return [Violation(index, rule, text, _page(rule, form)) for index, rule, text in found]


def _page(rule: Rule, form: Format) -> str:
    if rule in _TOOL_RULES:
        return form.sources.tools
    if rule in ("loose_reasoning", "unsigned_reasoning"):
        return form.sources.reasoning
    return form.sources.content if rule in ("format", "blank_text") else form.sources.messages


def _within(
    message: ConversationMessage, held: tuple[Part, ...], form: Format
) -> Iterator[tuple[Rule, str]]:
    """What is wrong with one message, whatever is around it."""
    role = message.role
    own_form = fits(message, form, held)
    if not own_form:
        yield "format", f"it is not written in the format {form.name}"
    if form.is_empty(message, held):
        yield "empty_content", "it has no content"
    if own_form and form.required_text(held) is not None:
        yield "lone_document", "it holds a document and no text"
    for part in held:
        if part.kind == "text":
            if not part.text.strip() and (problem := form.refuses_blank(part, held)):
                yield "blank_text", problem
        elif part.kind != "media":
            yield from _wrong_with(part, role, form, own_form=own_form)
    # "The final block in an assistant message cannot be `thinking`": Anthropic's answer, and
    # that of Claude on Bedrock.
    if form.merges and role is _ASSISTANT and held and held[-1].kind == "reasoning":
        yield "loose_reasoning", "the assistant's message ends with reasoning"


def _wrong_with(
    part: Part, role: ParticipantRole, form: Format, *, own_form: bool
) -> Iterator[tuple[Rule, str]]:
    """What is wrong with a call, a result or a piece of reasoning by itself."""
    is_item = own_form and form.items  # its type tells whose it is, not its role
    if (part.kind == "call" or part.hosted) and role is not _ASSISTANT and not is_item:
        yield "call_placement", f"only the assistant calls tools, not the role {role.value}"
    if part.answers and role is not (_USER if form.merges else _TOOL):
        yield "result_placement", f"a message of role {role.value} holds a tool result"
    if part.kind == "reasoning" and form.signs_reasoning and not is_signed(part):
        yield "unsigned_reasoning", "the reasoning has no signature"
    if form.name not in part.forms:
        return
    refused = form.check_result(part) if part.answers else None
    if refused is not None:
        yield "result_content", f"the result of {part.id} {refused[0]}"
    if part.answers or (part.kind == "call" and not part.hosted and part.raw is not None):
        if part.id is None:
            yield "call_id", f"a {part.kind} has no id"
        elif form.call_id is not None and not form.call_id.fullmatch(part.id):
            yield "call_id", f"the id {part.id!r} does not match {form.call_id.pattern}"


def _between(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]], form: Format
) -> Iterator[tuple[int, Rule, str]]:
    """What is wrong with the order of messages."""
    if form.items:
        yield from _loose_items(messages, held)
    if form.later_system and not form.alternates:
        return
    head = leading_system(messages)
    for index in range(head, len(messages)):
        role = messages[index].role
        if role in SYSTEM_ROLES and not form.later_system:
            yield index, "role", "only leading system messages can be sent"
        elif form.alternates and index > head and role is messages[index - 1].role:
            yield index, "alternation", f"two messages of role {role.value} follow each other"


def _loose_items(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]]
) -> Iterator[tuple[int, Rule, str]]:
    for index, inside in enumerate(held):
        if not any(part.kind == "reasoning" for part in inside):
            continue
        # "Item of type 'reasoning' was provided without its required following item":
        # OpenAI's answer; https://platform.openai.com/docs/guides/reasoning.
        last = index + 1 == len(messages)
        if last or messages[index + 1].role is not _ASSISTANT:
            yield index, "loose_reasoning", "the item that its reasoning led to does not follow"


def _unpaired(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]], form: Format
) -> Iterator[_Found]:
    """What is wrong with the calls and results of a history; `held` are its messages' parts."""
    open_sites = open_sites_of(messages, held)
    if form.items:
        yield from _anywhere(held, open_sites)
    elif form.merges:
        turns = _turns(messages, held, form)
        yield from _adjacent(turns, open_sites)
        if any(part.hosted for inside in held for part in inside):
            yield from _hosted(turns)
    else:
        yield from _following(messages, held, open_sites)


def open_sites_of(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]]
) -> set[tuple[int, str]]:
    """The calls that the end of a history waits for."""
    start = len(messages)
    while start:
        start -= 1
        facts = facts_of(messages[start], held[start])
        if facts.is_question or facts.answers_user:
            break  # nothing before it waits any more
    waiting = ExchangeScan(messages[start:], held[start:]).waiting
    return {(start + index, call_id) for call_id, index in waiting.items()}


def _waiting(inside: tuple[Part, ...]) -> list[str]:
    return [part.id for part in inside if part.waits and part.id is not None]


def _results(inside: tuple[Part, ...]) -> list[str | None]:
    return [part.id for part in inside if part.answers]


def _repeated(calls: list[tuple[int, str]]) -> Iterator[_Found]:
    """Calls of one turn with the same id."""
    if len(calls) < 2:  # noqa: PLR2004  most turns; counting takes longer than all else here
        return
    for call_id, times in Counter([call_id for _, call_id in calls]).items():
        if times > 1:
            index = next(index for index, other in calls if other == call_id)
            yield index, "duplicate_call", f"{times} calls have the id {call_id}"


def _result(
    index: int, call_id: str | None, calls: Container[str], answered: set[str]
) -> Iterator[_Found]:
    """Note one result, and what is wrong with it."""
    if call_id is None or call_id not in calls:
        yield index, "orphaned_result", f"no call before it has the id {call_id}"
    elif call_id in answered:
        yield index, "duplicate_result", f"the call {call_id} has a result already"
    else:
        answered.add(call_id)


def _unanswered(
    index: int, calls: list[str], answered: set[str], open_sites: set[tuple[int, str]]
) -> Iterator[_Found]:
    for call_id in dict.fromkeys(calls):
        if call_id not in answered and (index, call_id) not in open_sites:
            yield index, "unanswered_call", f"no result of the call {call_id} follows it"


_Turn: TypeAlias = tuple[ParticipantRole, list[tuple[int, tuple[Part, ...]]]]


def _turns(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]], form: Format
) -> list[_Turn]:
    """The messages with their parts; neighbours of the assistant's count as one message.

    Bedrock, which wants roles to alternate, takes none. All results of a turn have to be in one
    message. Source: https://docs.anthropic.com/en/api/messages, "messages".
    """
    turns: list[_Turn] = []
    for index, inside in enumerate(held):
        role = messages[index].role
        joins = turns and turns[-1][0] is role is _ASSISTANT and not form.alternates
        if not joins:
            turns.append((role, []))
        turns[-1][1].append((index, inside))
    return turns


def _adjacent(turns: Sequence[_Turn], open_sites: set[tuple[int, str]]) -> Iterator[_Found]:
    """Anthropic and Bedrock: all results in the next turn, at its beginning."""
    before: dict[str, int] = {}
    for role, inside in turns:
        answered: set[str] = set()
        others = False
        for index, held in inside:
            # Anthropic, implement-tool-use: "tool_result blocks must come first".
            given = [part for part in held if part.answers]
            for part in given:
                yield from _result(index, part.id, before, answered)
            if given and (others or not all(part.answers for part in held[: len(given)])):
                yield index, "result_placement", "results come before anything else in a message"
            others = others or len(given) < len(held)
        for call_id, index in before.items():
            yield from _unanswered(index, [call_id], answered, open_sites)
        before = {}
        if role is _ASSISTANT:
            calls = [(index, call_id) for index, held in inside for call_id in _waiting(held)]
            for index, call_id in calls:
                before.setdefault(call_id, index)
            yield from _repeated(calls)
    for call_id, index in before.items():
        yield from _unanswered(index, [call_id], set(), open_sites)


def _hosted(turns: Sequence[_Turn]) -> Iterator[_Found]:
    """Calls of hosted tools: answered by the assistant, before the user goes on."""
    waiting: dict[str | None, int] = {}
    for role, inside in turns:
        if role is not _ASSISTANT:
            # Results alone continue a paused turn, in which hosted calls may still run.
            if waiting and any(part.kind in _SAID for _, held in inside for part in held):
                for call_id, index in waiting.items():
                    yield index, "unanswered_call", f"no result of the call {call_id} follows it"
                waiting = {}
            continue
        hosted = [(index, part) for index, held in inside for part in held if part.hosted]
        for index, part in hosted:
            if part.kind == "call":
                if part.id in waiting:
                    yield index, "duplicate_call", f"two calls have the id {part.id}"
                waiting.setdefault(part.id, index)
            elif waiting.pop(part.id, None) is None:
                yield index, "orphaned_result", f"no call before it has the id {part.id}"


def _following(
    messages: Sequence[ConversationMessage],
    held: Sequence[tuple[Part, ...]],
    open_sites: set[tuple[int, str]],
) -> Iterator[_Found]:
    """Chat Completions: a message of role tool for each call, right after them."""
    calls: list[str] = []
    known: set[str] = set()
    answered: set[str] = set()
    called_at = -1
    for index, inside in enumerate(held):
        # "An assistant message with 'tool_calls' must be followed by tool messages responding to
        # each 'tool_call_id'": OpenAI's answer where another message comes first.
        if messages[index].role is not _TOOL:
            yield from _unanswered(called_at, calls, answered, open_sites)
            calls = _waiting(inside) if messages[index].role is _ASSISTANT else []
            called_at, known = index, set(calls)
            answered.clear()
            yield from _repeated([(index, call_id) for call_id in calls])
        for call_id in _results(inside):
            yield from _result(index, call_id, known, answered)
    yield from _unanswered(called_at, calls, answered, open_sites)


def _anywhere(
    held: Sequence[tuple[Part, ...]], open_sites: set[tuple[int, str]]
) -> Iterator[_Found]:
    """Responses: an output for each call somewhere after it."""
    called: dict[str, int] = {}
    answered: set[str] = set()
    leading = True
    for index, inside in enumerate(held):
        # With previous_response_id the calls are on the server, and outputs come alone.
        leading = leading and all(part.answers for part in inside)
        for call_id in _waiting(inside):
            # An id called again waits for an output of its own.
            called[call_id] = index
            answered.discard(call_id)
        for result_id in _results(inside) if not leading else ():
            yield from _result(index, result_id, called, answered)
    for call_id, index in called.items():
        yield from _unanswered(index, [call_id], answered, open_sites)
