"""What the providers refuse.

:func:`validate` names what a provider would answer with status 400, with the page that says so;
:func:`~agent_memory.providers.repair` gives a view without it. The end of a history counts as
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

from agent_memory.exchanges import Trace, facts_of
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.conversion import Provider, fits, shape_named
from agent_memory.providers.part import Part, Shape, is_blank
from agent_memory.providers.reading import parts
from agent_memory.providers.repairing import MERGING
from agent_memory.providers.results import refused
from agent_memory.turns import leading_system

Rule: TypeAlias = Literal[
    "shape",
    "role",
    "first_message",
    "alternation",
    "empty_content",
    "blank_text",
    "call_placement",
    "result_placement",
    "result_content",
    "unanswered_call",
    "orphaned_result",
    "duplicate_result",
    "duplicate_call",
    "loose_reasoning",
]
"""What can be wrong."""

Found: TypeAlias = tuple[int, Rule, str]

_CHAT: Final = "https://platform.openai.com/docs/api-reference/chat/create"
_CALLING: Final = "https://platform.openai.com/docs/guides/function-calling"
_RESPONSES: Final = "https://platform.openai.com/docs/api-reference/responses/create"
_REASONING: Final = "https://platform.openai.com/docs/guides/reasoning"
_MESSAGES: Final = "https://docs.anthropic.com/en/api/messages"
_TOOL_USE: Final = (
    "https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use"
)
_THINKING: Final = "https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking"
_AWS: Final = "https://docs.aws.amazon.com/bedrock/latest/"
_CONVERSE: Final = _AWS + "userguide/conversation-inference-call.html"
_CONTENT: Final = _AWS + "APIReference/API_runtime_ContentBlock.html"
_BEDROCK_TOOLS: Final = _AWS + "userguide/tool-use-inference-call.html"

_PAGES: Final[dict[Shape, tuple[str, str, str]]] = {
    "openai_chat": (_CHAT, _CALLING, _REASONING),
    "openai_responses": (_RESPONSES, _CALLING, _REASONING),
    "anthropic": (_MESSAGES, _TOOL_USE, _THINKING),
    "bedrock": (_CONVERSE, _BEDROCK_TOOLS, _THINKING),
}
"""For each provider the pages on messages, on tools and on reasoning."""

_TOOL_RULES: Final = frozenset[Rule]({
    "call_placement",
    "result_placement",
    "result_content",
    "unanswered_call",
    "orphaned_result",
    "duplicate_result",
    "duplicate_call",
})  # fmt: skip
_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_TOOL: Final = ParticipantRole.TOOL
_BESIDE_CONTENT: Final = ("refusal", "audio", "function_call")


@attrs.frozen
class Violation:
    """Something in a history that a provider refuses.

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
    """Name everything in a history that a provider would answer with status 400.

    Takes linear time.

    Args:
        messages: the history, or the view, as it would be sent.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Returns:
        the violations in the order of their messages; an empty list when it is acceptable.

    Raises:
        InvalidRequestError: the provider is unknown.
    """
    shape = shape_named(provider)
    held = [parts(message) for message in messages]
    found: list[tuple[int, Rule, str]] = []
    for index, (message, inside) in enumerate(zip(messages, held, strict=True)):
        found += [(index, *wrong) for wrong in _within(message, inside, shape)]
    found += _between(messages, held, shape)
    found += unpaired(messages, held, shape)
    found.sort(key=lambda wrong: wrong[0])
    return [Violation(index, rule, text, _page(rule, shape)) for index, rule, text in found]


def _page(rule: Rule, shape: Shape) -> str:
    on_messages, on_tools, on_reasoning = _PAGES[shape]
    if rule in _TOOL_RULES:
        return on_tools
    if rule == "loose_reasoning":
        return on_reasoning
    return _CONTENT if shape == "bedrock" and rule in ("shape", "blank_text") else on_messages


def _within(
    message: ConversationMessage, held: tuple[Part, ...], shape: Shape
) -> Iterator[tuple[Rule, str]]:
    """What is wrong with one message, whatever is around it."""
    role = message.role
    if not fits(message, shape, held):
        yield "shape", f"it is not written in the form of {shape}"
    if _is_empty(message, held, shape):
        yield "empty_content", "it has no content"
    if shape in MERGING and any(is_blank(part) for part in held):
        yield "blank_text", "a text block holds nothing but white space"
    for part in held:
        if (part.kind == "call" or part.hosted) and role is not _ASSISTANT:
            yield "call_placement", f"only the assistant calls tools, not the role {role.value}"
        if part.answers and role is not (_USER if shape in MERGING else _TOOL):
            yield "result_placement", f"a message of role {role.value} holds a tool result"
        problem = refused(part, shape) if part.answers and shape in part.forms else None
        if problem is not None:
            yield "result_content", f"the result of {part.id} {problem}"
    if shape in MERGING and role is _ASSISTANT and held and held[-1].kind == "reasoning":
        yield "loose_reasoning", "the assistant's message ends with reasoning"


def _is_empty(message: ConversationMessage, held: tuple[Part, ...], shape: Shape) -> bool:
    content, extra = message.content, message.extra
    if message.role is _TOOL and shape != "openai_responses":
        return False  # its content is that of the result, which is looked at as such
    if shape == "openai_responses":
        return content == [] or (content is None and not held)
    if shape != "openai_chat":
        return not held
    if content == [] or extra.get("tool_calls") == []:
        return True
    beside = any(extra.get(key) for key in ("tool_calls", *_BESIDE_CONTENT))
    return content is None and not (message.role is _ASSISTANT and beside)


def _between(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]], shape: Shape
) -> Iterator[tuple[int, Rule, str]]:
    """What is wrong with the order of messages."""
    if shape == "openai_responses":
        yield from _loose_items(messages, held)
    if shape not in MERGING:
        return
    head = leading_system(messages)
    if head < len(messages) and messages[head].role is _ASSISTANT:
        yield head, "first_message", "a conversation begins with the user"
    for index in range(head, len(messages)):
        role = messages[index].role
        if role in SYSTEM_ROLES:
            yield index, "role", "only leading system messages can be sent"
        elif shape == "bedrock" and index > head and role is messages[index - 1].role:
            yield index, "alternation", f"two messages of role {role.value} follow each other"


def _loose_items(
    messages: Sequence[ConversationMessage], held: Sequence[tuple[Part, ...]]
) -> Iterator[tuple[int, Rule, str]]:
    for index, inside in enumerate(held):
        if not any(part.kind == "reasoning" for part in inside):
            continue
        last = index + 1 == len(messages)
        if last or messages[index + 1].role is not _ASSISTANT:
            yield index, "loose_reasoning", "the item that its reasoning led to does not follow"


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
