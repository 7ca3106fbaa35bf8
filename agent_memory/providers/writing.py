"""From parts to messages in one provider's form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers import anthropic, bedrock, openai_chat, openai_responses
from agent_memory.providers.media import Media
from agent_memory.providers.part import CHAT, RESPONSES, Block, Part, Shape
from agent_memory.providers.reading import media_in

_MEDIA: Final[Mapping[Shape, Callable[[Media], Block | None]]] = {
    "openai_chat": openai_chat.write_media,
    "openai_responses": openai_responses.write_media,
    "anthropic": anthropic.write_media,
    "bedrock": bedrock.write_media,
}
_CALLS: Final[Mapping[Shape, Callable[[Part], Block]]] = {
    "openai_chat": openai_chat.write_call,
    "openai_responses": openai_responses.write_call,
    "anthropic": anthropic.write_call,
    "bedrock": bedrock.write_call,
}
_RESULTS: Final[Mapping[Shape, Callable[[Part, list[Block]], Block]]] = {
    "openai_responses": openai_responses.write_result,
    "anthropic": anthropic.write_result,
    "bedrock": bedrock.write_result,
}
_REASONING: Final[Mapping[Shape, Callable[[Part], Block | None]]] = {
    "anthropic": anthropic.write_reasoning,
    "bedrock": bedrock.write_reasoning,
}
_ASSISTANT: Final = ParticipantRole.ASSISTANT
_TOOL: Final = ParticipantRole.TOOL


@attrs.frozen
class Draft:
    """A message to be: what differs from the one it is made from.

    Args:
        role: who speaks.
        content: in the provider's form.
        extra: what goes beside it.
    """

    role: ParticipantRole
    content: Any
    extra: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


def derived_id(message: ConversationMessage, number: int) -> str:
    """The id of the `number`-th message made from one; the first keeps the id.

    Equal for equal input, so that a view made twice is the same.
    """
    if number == 0:
        return message.id
    digest = hashlib.sha256(message.id.encode()).hexdigest()[:32]
    return f"derived-{digest}-{number}"


def block_for(part: Part, shape: Shape, role: ParticipantRole) -> Block | str | None:
    """A block of `shape` for a part; None when that provider has none for it.

    A part that is written in that form already is used as it stands.
    """
    if part.raw is not None and shape in part.forms:
        raw: Block | str = part.raw
        return raw
    match part.kind:
        case "text":
            return _text(part.text, shape, role)
        case "call" if part.waits:
            return _CALLS[shape](part)
        case "reasoning" if shape in _REASONING:
            return _REASONING[shape](part)
        case "result" if part.answers and part.id is not None and shape in _RESULTS:
            inner = [block_for(item, shape, ParticipantRole.USER) for item in part.inner]
            return _RESULTS[shape](part, [block for block in inner if isinstance(block, dict)])
        case "media":
            media = media_in(part)
            return None if media is None else _MEDIA[shape](media)
        case _:
            return None


def _text(text: str, shape: Shape, role: ParticipantRole) -> Block:
    if shape == "bedrock":
        return bedrock.write_text(text)
    if shape == "openai_responses":
        return openai_responses.write_text(text, role)
    return openai_chat.write_text(text)


def draft(
    role: ParticipantRole, held: Iterable[Part], shape: Shape, extra: Mapping[str, Any]
) -> list[Draft]:
    """Write parts as messages of one provider; parts it cannot take are passed over.

    Args:
        role: the role of the message that held them.
        held: its parts.
        shape: the provider's form.
        extra: what lies beside the content, if the message is in that form already.
    """
    found = list(held)
    if shape == "openai_chat":
        return _chat(role, found, extra)
    if shape == "openai_responses":
        return _responses(role, found, extra)
    return _blocks(role, found, shape, extra)


def _content(held: Iterable[Part], shape: Shape, role: ParticipantRole) -> Any:
    """A list of blocks, or the plain string where it is nothing but one."""
    written = [(part, block_for(part, shape, role)) for part in held]
    kept = [(part, block) for part, block in written if block is not None]
    lone_text = len(kept) == 1 and kept[0][0].kind == "text" and shape != "bedrock"
    if lone_text and (isinstance(kept[0][1], str) or shape not in kept[0][0].forms):
        return kept[0][0].text
    return [
        _text(block, shape, role) if isinstance(block, str) and part.kind == "text" else block
        for part, block in kept
    ]


def _blocks(
    role: ParticipantRole, held: list[Part], shape: Shape, extra: Mapping[str, Any]
) -> list[Draft]:
    """Anthropic and Bedrock: results are blocks of a user's message, and come first in it."""
    given = [part for part in held if part.answers]
    rest = [part for part in held if not part.answers]
    if role is not _ASSISTANT:
        user = ParticipantRole.USER if role is _TOOL else role
        return _nonempty(Draft(user, _content([*given, *rest], shape, user), extra))
    drafts = _nonempty(Draft(role, _content(rest, shape, role), extra))
    user = ParticipantRole.USER
    return drafts + _nonempty(Draft(user, _content(given, shape, user)))


def _nonempty(made: Draft) -> list[Draft]:
    return [] if made.content == [] else [made]


def _chat(role: ParticipantRole, held: list[Part], extra: Mapping[str, Any]) -> list[Draft]:
    results = [_chat_result(part, extra) for part in held if part.answers]
    rest = [part for part in held if not part.answers and part.kind != "call"]
    calls = [part for part in held if part.kind == "call" and part.raw is not None]
    speaker = ParticipantRole.USER if role is _TOOL else role
    entries = [block_for(part, "openai_chat", role) for part in calls]
    written = [entry for entry in entries if entry is not None]
    others = {key: value for key, value in extra.items() if key != "tool_calls"}
    if written and speaker is _ASSISTANT:
        others["tool_calls"] = written
    content = _content(rest, "openai_chat", speaker)
    empty = content == []
    beside = any(part.raw is None and part.forms == CHAT for part in held)
    spoken = [] if empty and not written and not beside else [
        Draft(speaker, None if empty else content, others)
    ]  # fmt: skip
    return [*spoken, *results] if role is _ASSISTANT else [*results, *spoken]


def _chat_result(result: Part, extra: Mapping[str, Any]) -> Draft:
    if "openai_chat" in result.forms:
        return Draft(_TOOL, result.raw, {"tool_call_id": result.id or "", **extra})
    return Draft(_TOOL, result.text, {"tool_call_id": result.id or ""})


def _responses(role: ParticipantRole, held: list[Part], extra: Mapping[str, Any]) -> list[Draft]:
    drafts: list[Draft] = []
    spoken: list[Part] = []
    speaker = ParticipantRole.USER if role is _TOOL else role

    def say() -> None:
        content = _content(spoken, "openai_responses", speaker)
        if content != []:
            drafts.append(Draft(speaker, content, extra))
        spoken.clear()

    # A message item after a call would end the wait for its output.
    for part in sorted(held, key=lambda part: part.kind == "call"):
        own_item = part.forms == RESPONSES
        if part.kind in ("text", "media") or (part.kind == "other" and not own_item):
            spoken.append(part)
            continue
        item = block_for(part, "openai_responses", role)
        if isinstance(item, dict):
            say()
            drafts.append(Draft(_TOOL if part.kind == "result" else _ASSISTANT, None, item))
    say()
    return drafts
