"""What the providers refuse, and a view of a history that they accept.

:func:`validate` names what a provider would answer with status 400, with the page that says so;
:func:`repair` gives a view without it. The end of a history counts as work in progress: calls
that still wait there for their results are no violation.

Leading system messages are accepted for all: for Anthropic and Bedrock they are the request's
own ``system`` parameter (:func:`agent_memory.shapes.convert` puts them there). A later one is
refused there; recent Claude models take some, older ones do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.pairing import unpaired
from agent_memory.repairs import MERGING, surviving
from agent_memory.rewriting import written
from agent_memory.shapes import Part, Provider, parts
from agent_memory.shapes.base import Shape, is_blank
from agent_memory.shapes.converting import fits, shape_named
from agent_memory.shapes.results import refused
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


def repair(
    messages: Sequence[ConversationMessage], provider: Provider
) -> list[ConversationMessage]:
    """Give a view of a history that a provider accepts; the history itself stays as it is.

    Rewrites what is in another form; merges neighbours of one role and gathers results into one
    message (Anthropic, Bedrock); leaves out blank text, empty messages, calls without results
    and results without calls, second results, and reasoning that leads nowhere any more; turns
    later system messages into the user's (Anthropic, Bedrock); and lets the user begin.

    - What is acceptable stays as it is: the same objects. A message made of several has the id,
      time and position of the first of them; further ones made of one have ids derived from its.
    - Equal histories give equal views, and repairing a view again changes nothing.
    - As the history grows, the view only grows at its end: what was decided is never decided
      otherwise. So a call is dead once another message than a result follows, and a result that
      comes still later is left out too. Only an exchange open at the end may change.

    Takes linear time.

    Args:
        messages: the history, in any shapes.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Raises:
        InvalidRequestError: the provider is unknown.
    """
    shape = shape_named(provider)
    return written(messages, surviving(messages, shape), shape)
