"""From messages of any form to one provider's, and what that provider cannot take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.frozen import thaw
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.anthropic import write_text
from agent_memory.providers.openai_responses import dump_item, item_of
from agent_memory.providers.part import Block, Part, Shape
from agent_memory.providers.plain import dump_message
from agent_memory.providers.reading import parts
from agent_memory.providers.writing import Draft, block_for, derived_id, draft

Provider: TypeAlias = Literal["openai", "openai_chat", "openai_responses", "anthropic", "bedrock"]
"""A provider's API; ``"openai"`` is Chat Completions."""

SHAPES: Final[dict[str, Shape]] = {
    "openai": "openai_chat",
    "openai_chat": "openai_chat",
    "openai_responses": "openai_responses",
    "anthropic": "anthropic",
    "bedrock": "bedrock",
}
_APART: Final = frozenset[Shape]({"anthropic", "bedrock"})
_CALLS_KEY: Final = "tool_calls"


@attrs.frozen
class LeftOut:
    """Something that a provider's form has no place for.

    Args:
        index: of the message it was in.
        part: what was left out; of a result whose error flag was dropped, the result.
        reason: why.
    """

    index: int
    part: Part
    reason: str


@attrs.frozen
class Reshaped:
    """Messages in one provider's form, and what could not be carried into it."""

    messages: list[ConversationMessage]
    left_out: list[LeftOut]


@attrs.frozen
class Conversion:
    """What to send to a provider, and what could not be carried into its form.

    Args:
        messages: plain, editable dicts in the provider's form.
        system: the leading system messages' blocks, for the request's own ``system`` parameter
            (Anthropic and Bedrock; always empty for OpenAI, which takes them as messages).
        left_out: what was left out, in order.
    """

    messages: list[Block]
    system: list[Block]
    left_out: list[LeftOut]


def shape_named(provider: str) -> Shape:
    """The shape of a provider's messages.

    Raises:
        InvalidRequestError: the name is not one of :data:`Provider`.
    """
    shape = SHAPES.get(provider)
    if shape is None:
        known = ", ".join(repr(name) for name in SHAPES)
        raise InvalidRequestError(f"provider must be one of {known}, not {provider!r}")
    return shape


def fits(message: ConversationMessage, shape: Shape, held: tuple[Part, ...]) -> bool:
    """Whether a message may be sent in this form without being rewritten."""
    if shape != "openai_chat" and message.role is ParticipantRole.TOOL:
        return shape == "openai_responses" and item_of(message) is not None
    if shape == "bedrock" and isinstance(message.content, str):
        return False
    return all(shape in part.forms for part in held)


def reshape(messages: Iterable[ConversationMessage], provider: Provider) -> Reshaped:
    """Bring messages of any form into one provider's.

    A message that is in that form already is passed on as it is, the same object. Any other is
    rewritten from its parts: results become messages of role tool for OpenAI, and blocks of one
    user message for Anthropic and Bedrock; calls that came as items of their own join the
    assistant's message before them. The first message made of another keeps its id.

    Raises:
        InvalidRequestError: the provider is unknown.
    """
    shape = shape_named(provider)
    made: list[ConversationMessage] = []
    left_out: list[LeftOut] = []
    joins = False
    for index, message in enumerate(messages):
        held = parts(message)
        if fits(message, shape, held):
            made.append(message)
            joins = False
            continue
        left_out += _missing(index, message, held, shape)
        known = [part for part in held if part.kind != "other"]
        for number, new in enumerate(draft(message.role, known, shape, {})):
            merged = _join(made[-1], new, shape) if made and joins else None
            if merged is None:
                made.append(_message(new, message, number))
            else:
                made[-1] = merged
            joins = True
    return Reshaped(made, left_out)


def _message(new: Draft, source: ConversationMessage, number: int) -> ConversationMessage:
    return attrs.evolve(
        source, role=new.role, content=new.content, extra=dict(new.extra),
        id=derived_id(source, number), usage=source.usage if number == 0 else None,
    )  # fmt: skip


def _join(before: ConversationMessage, new: Draft, shape: Shape) -> ConversationMessage | None:
    """`before` with a draft of only calls, or only results, added; None when it stands alone.

    Providers want parallel calls in one assistant message, and Anthropic and Bedrock their
    results in one user message.
    """
    if before.role is not new.role or shape == "openai_responses":
        return None
    if shape == "openai_chat":
        calls = new.extra.get(_CALLS_KEY)
        if new.role is not ParticipantRole.ASSISTANT or not calls or new.content is not None:
            return None
        together = [*before.extra.get(_CALLS_KEY, ()), *calls]
        return attrs.evolve(before, extra={**before.extra, _CALLS_KEY: together})
    added = parts(ConversationMessage(new.role, new.content))
    if not added or not all(part.waits or part.answers for part in added):
        return None
    held = parts(before)
    if added[0].answers and not all(part.answers for part in held):
        return None
    (joined,) = draft(before.role, [*held, *added], shape, before.extra)
    return attrs.evolve(before, content=joined.content)


def _missing(
    index: int, message: ConversationMessage, held: tuple[Part, ...], shape: Shape
) -> list[LeftOut]:
    found = [(part, _why_not(part, message.role, shape)) for part in held]
    return [LeftOut(index, part, reason) for part, reason in found if reason is not None]


def _why_not(part: Part, role: ParticipantRole, shape: Shape) -> str | None:
    is_openai = shape in ("openai_chat", "openai_responses")
    if part.kind == "result" and part.answers and part.id is not None:
        if is_openai and part.is_error:
            return "there is no mark for a failed result; its text is carried"
        lost = [item for item in part.inner if item.kind in ("media", "other")]
        if lost and (shape == "openai_chat" or any(_gone(item, shape) for item in lost)):
            return f"a result cannot hold {lost[0].name or 'this block'}; its text is carried"
        return None
    if part.kind == "call" and role is not ParticipantRole.ASSISTANT:
        return "only the assistant calls tools"
    if part.kind == "media" and role is ParticipantRole.ASSISTANT:
        written = block_for(part, shape, role) is not None and shape == "bedrock"
        return None if written else f"the assistant's message cannot hold {part.name}"
    if part.kind == "other" or _gone(part, shape):
        return f"there is no form for {part.name or part.kind}"
    return None


def _gone(part: Part, shape: Shape) -> bool:
    return block_for(part, shape, ParticipantRole.USER) is None


def dump(message: ConversationMessage, shape: Shape) -> Block:
    """A message that is in this form already, as the provider's dict."""
    item = item_of(message) if shape == "openai_responses" else None
    return dump_message(message) if item is None else dump_item(item)


def convert(messages: Iterable[ConversationMessage], provider: Provider) -> Conversion:
    """Write messages of any form as one provider's request, and tell what it could not carry.

    Args:
        messages: in any of the four shapes, or a mixture.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Raises:
        InvalidRequestError: the provider is unknown.
    """
    shape = shape_named(provider)
    reshaped = reshape(messages, provider)
    rest = reshaped.messages
    system: list[Block] = []
    if shape in _APART:
        leading = 0
        while leading < len(rest) and rest[leading].role in SYSTEM_ROLES:
            system += _system_blocks(rest[leading], shape)
            leading += 1
        rest = rest[leading:]
    return Conversion([dump(message, shape) for message in rest], system, reshaped.left_out)


def _system_blocks(message: ConversationMessage, shape: Shape) -> list[Block]:
    written = [block_for(part, shape, message.role) for part in parts(message)]
    return [
        thaw(block) if isinstance(block, dict) else write_text(block)
        for block in written
        if block is not None
    ]


def to_openai(messages: Iterable[ConversationMessage]) -> list[Block]:
    """Write messages as Chat Completions dicts; the inverse of :func:`from_openai`.

    Messages of another provider's form are converted; :func:`convert` also tells what could
    not be carried.
    """
    return _to(messages, "openai_chat")


def to_openai_responses(messages: Iterable[ConversationMessage]) -> list[Block]:
    """Write messages as Responses items; the inverse of :func:`from_openai_responses`."""
    return _to(messages, "openai_responses")


def to_anthropic(messages: Iterable[ConversationMessage]) -> list[Block]:
    """Write messages as Anthropic dicts; the inverse of :func:`from_anthropic`.

    System messages stay among them; :func:`convert` puts them apart, as the API wants them.
    """
    return _to(messages, "anthropic")


def to_bedrock(messages: Iterable[ConversationMessage]) -> list[Block]:
    """Write messages as Converse dicts; the inverse of :func:`from_bedrock`.

    System messages stay among them; :func:`convert` puts them apart, as the API wants them.
    """
    return _to(messages, "bedrock")


def _to(messages: Iterable[ConversationMessage], shape: Shape) -> list[Block]:
    return [dump(message, shape) for message in reshape(messages, shape).messages]
