"""Load and dump a provider's dicts without loss, and convert messages between formats."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import attrs

from agent_memory.content import thaw
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers import anthropic, bedrock, openai_chat, openai_responses
from agent_memory.providers.format import (
    CONTENT_OMITTED,
    WRITTEN_IN,
    Format,
    MessageDraft,
    derived_id,
)
from agent_memory.providers.parsing import (
    Provider,
    fits,
    format_named,
    in_context,
    mark_origin,
    parts,
)
from agent_memory.providers.part import Block, Part

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_TOOL: Final = ParticipantRole.TOOL
_FUNCTION: Final = "function"
"""Chat Completions' old role for results, before there was ``tool``."""


@attrs.frozen
class LeftOut:
    """Something that a provider's format has no place for.

    Args:
        index: of the message it was in.
        part: what was left out, or the result that lost its error flag.
        reason: why.
    """

    index: int
    part: Part
    reason: str


@attrs.frozen
class Reshaped:
    """Messages in one provider's format, and what could not be carried into it."""

    messages: list[ConversationMessage]
    left_out: list[LeftOut]


@attrs.frozen
class Conversion:
    """What to send to a provider, and what could not be carried into its format.

    Args:
        messages: plain, editable dicts in the provider's format; typed as ``Any``, so that the
            SDK's calls take them under strict type checkers.
        system: the leading system messages' blocks, for the request's own ``system`` parameter
            (Anthropic and Bedrock; always empty for OpenAI, which takes them as messages).
        left_out: what was left out, in order.
    """

    messages: list[Any]
    system: list[Block]
    left_out: list[LeftOut]


def reshape(messages: Iterable[ConversationMessage], provider: Provider) -> Reshaped:
    """Bring messages of any format into one provider's.

    A message that is in that format already is passed on as it is, the same object. Any other is
    rewritten from its parts: results become messages of role tool for OpenAI, and blocks of one
    user message for Anthropic and Bedrock; calls that came as items of their own join the
    assistant's message before them. The first message made from another keeps its id.

    Raises:
        InvalidRequestError: if the provider is unknown.
    """
    return _reshape(list(messages), format_named(provider))


def _reshape(messages: Sequence[ConversationMessage], form: Format) -> Reshaped:
    plain = [parts(message) for message in messages]
    known = in_context(messages, plain)
    made: list[ConversationMessage] = []
    waiting: list[ConversationMessage] = []
    left_out: list[LeftOut] = []
    joins = False
    for index, message in enumerate(messages):
        # The parts as they stand alone: an id from the context is in no block yet, but a message
        # in its own format goes back exactly as it came.
        if fits(message, form, plain[index]):
            # Media out of results waits until all results of the exchange are written.
            if message.role is not _TOOL:
                made += waiting
                waiting.clear()
            made.append(message)
            joins = False
            continue
        held = known[index]
        left_out += _missing(index, message, held, form)
        carried = [part for part in held if part.kind != "other"]
        words = form.required_text(carried)
        if words is not None:
            carried.append(Part("text", words))
        for number, new in enumerate(form.arrange(form, message.role, carried, {})):
            if new.after_results:
                waiting.append(_message(new, message, number))
                continue
            if new.role is not _TOOL:
                made += waiting
                waiting.clear()
            merged = _join(made[-1], new, form) if made and joins else None
            if merged is None:
                made.append(_message(new, message, number))
            else:
                made[-1] = merged
            joins = True
    return Reshaped(made + waiting, left_out)


def _message(new: MessageDraft, source: ConversationMessage, number: int) -> ConversationMessage:
    return attrs.evolve(
        source, role=new.role, content=new.content, extra=dict(new.extra),
        id=derived_id(source, number), usage=source.usage if number == 0 else None,
    )  # fmt: skip


def _join(
    before: ConversationMessage, new: MessageDraft, form: Format
) -> ConversationMessage | None:
    """`before` with a draft of only calls, or only results, added; None when it stands alone.

    Providers want parallel calls in one assistant message, and Anthropic and Bedrock their
    results in one user message.
    """
    if before.role is not new.role or form.items:
        return None
    added = parts(ConversationMessage(new.role, new.content, extra=new.extra))
    if not added or not all(part.waits or part.answers for part in added):
        return None
    held = parts(before)
    if added[0].answers and not all(part.answers for part in held):
        return None
    drafts = form.arrange(form, before.role, [*held, *added], before.extra)
    if len(drafts) != 1:
        return None
    return attrs.evolve(before, content=drafts[0].content, extra=dict(drafts[0].extra))


def _missing(
    index: int, message: ConversationMessage, held: tuple[Part, ...], form: Format
) -> list[LeftOut]:
    found = [(part, _why_not(part, message.role, form)) for part in held]
    return [LeftOut(index, part, reason) for part, reason in found if reason is not None]


def _why_not(part: Part, role: ParticipantRole, form: Format) -> str | None:
    if part.answers and part.id is not None:
        if part.is_error and not form.marks_errors:
            return "there is no mark for a failed result; its text is carried"
        lost = [item for item in part.inner if item.kind in ("media", "other")]
        gone = [item for item in lost if form.block_for(item, ParticipantRole.USER) is None]
        if gone:
            return f"a result cannot hold {gone[0].name or 'this block'}; its text is carried"
        return None
    if part.kind == "call" and role is not _ASSISTANT:
        return "only the assistant calls tools"
    if part.kind == "media" and role is _ASSISTANT and form.block_for(part, role) is None:
        return f"the assistant's message cannot hold {part.name}"
    if part.kind == "other" or form.block_for(part, role) is None:
        return f"there is no form for {part.name or part.kind}"
    return None


def dump(message: ConversationMessage, form: Format) -> Block:
    """A message that is in this format already, as the provider's dict."""
    dumped = form.dump(message)
    return dump_message(message) if dumped is None else dumped


def convert(messages: Iterable[ConversationMessage], provider: Provider) -> Conversion:
    """Write messages of any format as one provider's request, and report what was left out.

    The dicts hold only what the provider's requests have: fields of replies alone, such as
    ``annotations``, are left out, and fields that no SDK knows go back to the format they came
    from and to no other.

    Args:
        messages: in any of the four formats, or a mixture.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Raises:
        InvalidRequestError: if the provider is unknown.
    """
    form = format_named(provider)
    reshaped = _reshape(list(messages), form)
    rest = reshaped.messages
    system: list[Block] = []
    # Anthropic and Bedrock take instructions as the request's own parameter, "system".
    if form.system_apart:
        leading = 0
        while leading < len(rest) and rest[leading].role in SYSTEM_ROLES:
            system += _system_blocks(rest[leading], form)
            leading += 1
        rest = rest[leading:]
    trimmed = [form.trim(dump(message, form), message.extra.get(WRITTEN_IN)) for message in rest]
    return Conversion(trimmed, system, reshaped.left_out)


def _system_blocks(message: ConversationMessage, form: Format) -> list[Block]:
    held = [part for part in parts(message) if part.kind != "media"]
    written = [form.block_for(part, message.role) for part in held]
    return [
        thaw(block) if isinstance(block, dict) else form.write_text(block, message.role)
        for block in written
        if block is not None
    ]


def to_plain(value: Any) -> Any:
    """Return `value` with the SDKs' pydantic objects made dicts, at any depth.

    What the provider did not send is left out, as the SDKs do when they send an object back
    (``model_dump(exclude_unset=True, mode="json")``).
    """
    # By attribute: the SDKs define it under pydantic 1 too, and nothing here needs pydantic.
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        hidden = getattr(value, "__api_exclude__", None)
        return dump(exclude_unset=True, mode="json", by_alias=True, exclude=hidden)
    if isinstance(value, enum.Enum):
        return value.value
    return _plain_container(value)


def _plain_container(value: Any) -> Any:
    # Typed Any on purpose: the checkers cannot know what a caller's dict or list holds.
    held: Any = value
    if isinstance(value, Mapping):
        return {key: to_plain(held[key]) for key in held}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in held]
    return held


def load_each(
    items: Iterable[Any], load: Callable[[Block, object], ConversationMessage]
) -> list[ConversationMessage]:
    """Make a message of each item; an error names the item.

    Args:
        items: dicts, or the SDK's objects.
        load: makes a message of a plain dict, and of the item that it was made of.
    """
    if isinstance(items, Mapping | str):
        raise InvalidRequestError("give a list of messages, not a single one")
    loaded: list[ConversationMessage] = []
    for index, item in enumerate(items):
        plain = to_plain(item)
        if not isinstance(plain, dict):
            raise InvalidRequestError(
                f"message {index} must be a dict or an SDK object, not {type(item).__name__}"
            )
        try:
            loaded.append(load(cast("Block", plain), item))
        except InvalidRequestError as error:
            raise InvalidRequestError(f"message {index}: {error}") from error
    return loaded


def load_message(plain: Block) -> ConversationMessage:
    """Make a message of a provider's message dict; what is beside role and content is extra."""
    extra = {key: value for key, value in plain.items() if key not in ("role", "content")}
    if "role" not in plain:
        raise InvalidRequestError(f"it has no 'role'; its keys are {', '.join(plain) or 'none'}")
    if "content" not in plain:
        extra[CONTENT_OMITTED] = True
    role = plain["role"]
    if role == _FUNCTION:
        role, extra["role"] = ParticipantRole.TOOL, _FUNCTION
    return ConversationMessage(role, plain.get("content"), extra=extra)


def dump_message(message: ConversationMessage, role: ParticipantRole | None = None) -> Block:
    """The inverse of :func:`load_message`, as a plain, editable dict."""
    dumped: Block = {"role": (role or message.role).value, "content": thaw(message.content)}
    dumped.update(thaw(message.extra))
    dumped.pop(WRITTEN_IN, None)
    if dumped.pop(CONTENT_OMITTED, False):
        del dumped["content"]
    return dumped


def _load(items: Iterable[Any], form: Format) -> list[ConversationMessage]:
    def load(plain: Block, given: object) -> ConversationMessage:
        return mark_origin(form.load(plain, given) or load_message(plain), form)

    return load_each(items, load)


def _to(messages: Iterable[ConversationMessage], form: Format) -> list[Block]:
    return [dump(message, form) for message in _reshape(list(messages), form).messages]


def from_openai(messages: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Chat Completions messages: dicts or the SDK's objects.

    ``role`` and ``content`` are kept as given; everything else (``tool_calls``, ``name``,
    ``tool_call_id``, ``refusal``, …) goes to ``extra``. :func:`to_openai` gives exactly the same
    dicts back.

    Raises:
        InvalidRequestError: if an item is not a message; the error names the item.
    """
    return _load(messages, openai_chat.FORMAT)


def from_openai_responses(items: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Responses items, one of each: dicts or the SDK's objects.

    Calls and reasoning get the role assistant, outputs the role tool.
    :func:`to_openai_responses` gives exactly the same dicts back.

    Raises:
        InvalidRequestError: if an item is invalid; the error names the item.
    """
    return _load(items, openai_responses.FORMAT)


def from_anthropic(messages: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Messages API messages: dicts or the SDK's objects.

    Dicts are kept exactly: :func:`to_anthropic` gives them back. An SDK's ``Message`` (a reply)
    is reduced to what may be sent back, role and content, and its usage becomes
    ``message.usage``; a dict whose content is ``reply.content`` is fine too.

    Raises:
        InvalidRequestError: if an item is not a message; the error names the item.
    """
    return _load(messages, anthropic.FORMAT)


def from_bedrock(messages: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Converse messages, ``response["output"]["message"]`` among them.

    :func:`to_bedrock` gives exactly the same dicts back, bytes as bytes.

    Raises:
        InvalidRequestError: if an item is not a message; the error names the item.
    """
    return _load(messages, bedrock.FORMAT)


def to_openai(messages: Iterable[ConversationMessage]) -> list[Any]:
    """Write messages as Chat Completions dicts; the inverse of :func:`from_openai`.

    The dicts are typed as ``Any``, so that the SDK's calls take them under strict type checkers.

    Messages of another provider's format are converted; :func:`convert` also reports what was left
    out, and drops the fields that only replies have.
    """
    return _to(messages, openai_chat.FORMAT)


def to_openai_responses(messages: Iterable[ConversationMessage]) -> list[Any]:
    """Write messages as Responses items; the inverse of :func:`from_openai_responses`."""
    return _to(messages, openai_responses.FORMAT)


def to_anthropic(messages: Iterable[ConversationMessage]) -> list[Any]:
    """Write messages as Anthropic dicts; the inverse of :func:`from_anthropic`.

    System messages stay among them; :func:`convert` puts them apart, as the API wants them.
    """
    return _to(messages, anthropic.FORMAT)


def to_bedrock(messages: Iterable[ConversationMessage]) -> list[Any]:
    """Write messages as Converse dicts; the inverse of :func:`from_bedrock`.

    System messages stay among them; :func:`convert` puts them apart, as the API wants them.
    """
    return _to(messages, bedrock.FORMAT)
