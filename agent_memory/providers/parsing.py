"""Parse messages of every known format into parts, without being told the provider.

The formats are listed in :data:`FORMATS`; a new one is a module and its entry there. What one
provider alone does beside its blocks (OpenAI's calls and items, Anthropic's hosted tools) is
read by that provider's module.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, TypeAlias, cast

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers import anthropic, bedrock, openai_chat, openai_responses
from agent_memory.providers.format import MARKERS, WRITTEN_IN, BlockReader, Format, TextReader
from agent_memory.providers.media import Media
from agent_memory.providers.part import (
    Block,
    FormatName,
    Part,
    as_dict,
    as_list,
    as_text,
    joined,
    readable,
)

_BARE_TEXT: Final = 2  # a type, and the text
Provider: TypeAlias = Literal["openai", "openai_chat", "openai_responses", "anthropic", "bedrock"]
"""A provider's API; ``"openai"`` is Chat Completions."""

FORMATS: Final[tuple[Format, ...]] = (
    openai_chat.FORMAT,
    openai_responses.FORMAT,
    anthropic.FORMAT,
    bedrock.FORMAT,
)

_NAMED: Final[Mapping[str, Format]] = {
    name: form for form in FORMATS for name in (form.provider, form.name) if name is not None
}
_STRINGS: Final = frozenset(form.name for form in FORMATS if form.takes_strings)
"""The formats in which a plain string is content."""
_TYPED: Final = frozenset(form.name for form in FORMATS if form.blocks)
"""The formats whose blocks have a ``type``."""
_UNTYPED: Final = frozenset(form.name for form in FORMATS if form.untyped)
_FIELDS: Final = frozenset(
    chain.from_iterable((*form.request_fields, *form.reply_fields) for form in FORMATS)
)
"""The fields of messages that any format knows."""


def format_named(provider: str) -> Format:
    """The format of a provider's messages.

    Raises:
        InvalidRequestError: if the name is not one of :data:`Provider`.
    """
    form = _NAMED.get(provider)
    if form is None:
        known = ", ".join(repr(name) for name in _NAMED)
        raise InvalidRequestError(f"provider must be one of {known}, not {provider!r}")
    return form


def _combined(readers: Mapping[FormatName, BlockReader]) -> BlockReader:
    """Reads a block type of one format or several: it may be sent in all that recognise it.

    What several formats write in the same way is text; each has keys of its own for it.
    """
    everybody = frozenset(readers)
    read_part = next(iter(readers.values()))
    foreign = {
        name: reader.foreign for name, reader in readers.items() if isinstance(reader, TextReader)
    }
    if foreign:
        read_part = attrs.evolve(cast("TextReader", read_part), foreign=frozenset())

    def read(block: Block) -> Part | None:
        forms = everybody
        if foreign and len(block) > _BARE_TEXT:
            keys = block.keys()
            forms = frozenset(name for name in everybody if not foreign[name] & keys)
        part = read_part(block) if forms else None
        if part is not None:
            part.raw, part.forms = block, forms
        return part

    return read


def _merged(tables: Mapping[FormatName, Mapping[str, BlockReader]]) -> Mapping[str, BlockReader]:
    found: dict[str, dict[FormatName, BlockReader]] = {}
    for name, table in tables.items():
        for kind, reader in table.items():
            found.setdefault(kind, {})[name] = reader
    return {kind: _combined(readers) for kind, readers in found.items()}


_READERS: Final = _merged({form.name: form.blocks for form in FORMATS})
"""How to read each type of content block."""
_UNTYPED_READERS: Final = _merged({form.name: form.untyped for form in FORMATS})
_READ_HOSTED: Final = _combined({anthropic.FORMAT.name: anthropic.read_result})

_TOOL: Final = ParticipantRole.TOOL
_OWN_FIELDS: Final = {
    form.name: form.request_fields | form.reply_fields | MARKERS for form in FORMATS
}
_BLOCKS: Final = _TYPED | _UNTYPED
_PAIRED: Final = ("call", "result")
_SHARED_OWNER: Final = anthropic.FORMAT.name
"""Whose blocks are those that several formats write in the same way."""
_DEFAULT_OWNER: Final = openai_chat.FORMAT.name
"""Whose fields are those that no format knows, on a message that does not show its format: the
servers that add their own speak Chat Completions."""


def parts(message: ConversationMessage) -> tuple[Part, ...]:
    """Split a message into its parts, in order.

    Recognises OpenAI Chat Completions, OpenAI Responses items, Anthropic Messages and Bedrock
    Converse, also mixed in one message. Never raises: what it does not know has the kind
    ``other``.
    """
    content, extra = message.content, message.extra
    # Most messages are this, and everything built on parts is as fast as this line.
    if not extra and type(content) is str and message.role is not _TOOL:
        return (Part("text", content, raw=content, forms=_STRINGS),)
    if extra and content is None:
        item = openai_responses.item_of(message)
        if item is not None:
            return openai_responses.read_item(item)
    found = _read_content(content)
    owner = extra.get(WRITTEN_IN)
    if owner is not None:
        found = [_owned(part, owner) for part in found]
    if message.role is _TOOL and not any(part.kind == "result" for part in found):
        return (openai_chat.read_tool_message(message, tuple(found)),)
    if extra:
        before, after = openai_chat.read_beside(extra)
        found = [*before, *found, *after]
    return tuple(found)


def _read_content(content: object) -> list[Part]:
    if isinstance(content, str):
        return [Part("text", content, raw=content, forms=_STRINGS)]
    if content is None:
        return []
    blocks = as_list(content)
    if not blocks:
        # Content that is neither text nor a list is outside every provider's format.
        return [] if isinstance(content, list) else [_read_block(content)]
    return [_read_block(block) for block in blocks]


def _read_block(value: object) -> Part:
    block = as_dict(value)
    if block is None:
        # Some SDKs allow bare strings among the blocks; others reject them.
        return Part("other", as_text(value), raw=value, forms=_BLOCKS)
    kind = block.get("type")
    if not isinstance(kind, str):
        reader = next((_UNTYPED_READERS[key] for key in block if key in _UNTYPED_READERS), None)
        part = None if reader is None else reader(block)
        return part or Part("other", readable(block), raw=block, forms=_BLOCKS)
    reader = _READERS.get(kind)
    if reader is None and kind.endswith(anthropic.HOSTED_RESULT):
        reader = _READ_HOSTED
    part = None if reader is None else reader(block)
    return part or Part("other", readable(block), name=kind, raw=block, forms=_TYPED)


def _owned(part: Part, owner: FormatName) -> Part:
    """A part that could be several formats', in a message that is known to be one's."""
    if owner not in part.forms or len(part.forms) == 1 or part.raw is None:
        return part
    return attrs.evolve(part, forms=frozenset({owner}))


def text_of(message: ConversationMessage) -> str:
    """Return what a message says: its text parts, a line each; no reasoning, calls or results."""
    return joined(parts(message))


def format_of(message: ConversationMessage) -> FormatName | None:
    """Which provider's format a message is written in; None when it could be any one's.

    A plain string, or no content at all, tells nothing. Blocks ``{"type": "text", …}`` are the
    same in two formats; they count as Anthropic's, where they are the rule.
    """
    owner = message.extra.get(WRITTEN_IN)
    if isinstance(owner, str):
        return owner
    held = parts(message)
    found = _format_shown(message, held)
    return found if found is not None else _likely(message, held)


def _format_shown(message: ConversationMessage, held: Iterable[Part]) -> FormatName | None:
    """The format that a part or a field beside the content shows beyond doubt."""
    for part in held:
        if len(part.forms) == 1:
            return next(iter(part.forms))
    keys = message.extra.keys() - MARKERS
    if keys:
        holders = [form for form in FORMATS if keys & (form.request_fields | form.reply_fields)]
        if len(holders) == 1:
            return holders[0].name
    return None


def _likely(message: ConversationMessage, held: Iterable[Part]) -> FormatName | None:
    # A message item says so, although another format could have written each of its blocks.
    is_item = message.extra.get("type") == "message"
    if is_item and isinstance(message.content, str):
        return openai_responses.FORMAT.name
    shared = [part for part in held if part.kind != "other" and part.forms < _STRINGS]
    if not shared:
        return None
    if all(_SHARED_OWNER in part.forms for part in shared):
        return _SHARED_OWNER
    return openai_responses.FORMAT.name if is_item else _DEFAULT_OWNER


def media_in(part: Part) -> Media | None:
    """What a media part holds, in terms that no provider owns; None when that is not clear."""
    return part.media if part.kind == "media" else None


def fits(message: ConversationMessage, form: Format, held: tuple[Part, ...]) -> bool:
    """Whether a message may be sent in this format without being rewritten."""
    if not form.fits_message(message):
        return False
    if not form.takes_strings and isinstance(message.content, str):
        return False
    name = form.name
    for part in held:  # a plain loop: every message that is validated goes through it
        if name not in part.forms:
            return False
    return not message.extra or _has_own_fields(message, form, held)


def _has_own_fields(message: ConversationMessage, form: Format, held: tuple[Part, ...]) -> bool:
    """Whether nothing beside the content is another format's."""
    owner = message.extra.get(WRITTEN_IN)
    if owner is not None:
        return bool(owner == form.name)
    # Fields that no format knows are a server's own: they go where the rest of the message shows.
    own = _OWN_FIELDS[form.name]
    if message.extra.keys() <= own:
        return True
    if form.items and openai_responses.item_of(message) is not None:
        return True
    if (message.extra.keys() - own) & _FIELDS:
        return False
    return (_format_shown(message, held) or _DEFAULT_OWNER) == form.name


def mark_origin(message: ConversationMessage, form: Format) -> ConversationMessage:
    """Return a loaded message with its origin, if it holds what no other format may get.

    Most messages show their format, or hold nothing in which formats differ. A few do neither,
    such as a text with a compatible server's own ``cache_control``; what they hold has to go
    back to the format it came from and to no other.
    """
    if not message.extra and isinstance(message.content, str):
        return message
    held = parts(message)
    shown = _format_shown(message, held) is not None
    if _is_trimmed(message, form) or (not shown and _is_ambiguous(message, form, held)):
        return attrs.evolve(message, extra={**message.extra, WRITTEN_IN: form.name})
    return message


def _is_ambiguous(message: ConversationMessage, form: Format, held: tuple[Part, ...]) -> bool:
    if any(part.kind == "other" for part in held) or not fits(message, form, held):
        return True
    return bool(message.extra.keys() - _FIELDS - MARKERS) and form.name != _DEFAULT_OWNER


def _is_trimmed(message: ConversationMessage, form: Format) -> bool:
    """Whether blocks lose something when it is not known where they are from."""
    if isinstance(message.content, str):
        return False
    content: Any = message.content
    plain = {"role": message.role.value, "content": content}
    return form.trim(plain, None) != form.trim(plain, form.name)


def all_parts(messages: Sequence[ConversationMessage]) -> list[tuple[Part, ...]]:
    """The parts of every message, with what only the messages around them tell.

    Calls and results without ids get some, by place: a result without one answers the first
    call without one that still waits. Results of calls with free text are marked as such.
    """
    return in_context(messages, [parts(message) for message in messages])


def in_context(
    messages: Sequence[ConversationMessage], held: list[tuple[Part, ...]]
) -> list[tuple[Part, ...]]:
    """As :func:`all_parts`, where the parts have been read; the same list if nothing changes."""
    if not any(_needs_context(inside) for inside in held):
        return held
    context = _Context()
    return [context.read(message, inside) for message, inside in zip(messages, held, strict=True)]


def _needs_context(inside: tuple[Part, ...]) -> bool:
    for part in inside:
        if part.kind in _PAIRED and (
            part.custom or (part.id is None and not part.hosted and part.raw is not None)
        ):
            return True
    return False


class _Context:
    """What a pass over a history knows of the calls so far."""

    def __init__(self) -> None:
        self._nameless: deque[str] = deque()
        self._custom: set[str] = set()

    def read(self, message: ConversationMessage, inside: tuple[Part, ...]) -> tuple[Part, ...]:
        # Chat's old function_call and some compatible servers give calls no ids; their results
        # come in the order of the calls.
        if any(_is_nameless(part, "call") for part in inside):
            self._nameless.clear()
        return tuple(self._part(message, place, part) for place, part in enumerate(inside))

    def _part(self, message: ConversationMessage, place: int, part: Part) -> Part:
        if _is_nameless(part, "call"):
            digest = hashlib.sha256(message.id.encode()).hexdigest()[:20]
            part = attrs.evolve(part, id=f"call_{digest}_{place}")
            self._nameless.append(part.id or "")
        elif _is_nameless(part, "result") and self._nameless:
            part = attrs.evolve(part, id=self._nameless.popleft())
        if part.kind == "call" and part.id is not None:
            (self._custom.add if part.custom else self._custom.discard)(part.id)
        elif part.answers and part.custom is not (part.id in self._custom):
            part = attrs.evolve(part, custom=not part.custom)
        return part


def _is_nameless(part: Part, kind: str) -> bool:
    return part.kind == kind and part.id is None and not part.hosted and part.raw is not None
