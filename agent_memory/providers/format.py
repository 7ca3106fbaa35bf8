"""The definition of a wire format: everything the library knows about a provider's messages.

Each format is a module that ends with a :class:`Format`; :mod:`agent_memory.providers.parsing`
lists them. Conversion, validation, repair, transcripts and token counts are written against
this class and name no provider.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.media import Media, MediaKind
from agent_memory.providers.part import (
    Block,
    FormatName,
    Part,
    as_dict,
    as_text,
    is_blank,
    to_json,
)

BlockReader: TypeAlias = Callable[[Block], Part | None]
"""Returns what a block says; None when the block belongs to another format.

The part's `raw` and `forms` are set by whoever has the block read: they are the same for all.
"""

CONTENT_OMITTED: Final = "content_omitted"
"""Key in ``extra`` of a message whose dict had no ``content`` at all, to tell it from null."""

WRITTEN_IN: Final = "written_in"
"""Key in ``extra`` of a message that does not show its format, but has fields that no other
format may get: the name of the format it was loaded from."""

MARKERS: Final = frozenset({CONTENT_OMITTED, WRITTEN_IN})
"""The keys in ``extra`` that are this library's own."""

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_TOOL: Final = ParticipantRole.TOOL


@attrs.frozen
class RuleSources:
    """The provider's documentation of its rules on messages, tools, reasoning and content."""

    messages: str
    tools: str
    reasoning: str
    content: str


@attrs.frozen
class MessageDraft:
    """A message to be made: what differs from the message it is made from.

    Args:
        role: who speaks.
        content: in the provider's format.
        extra: what goes beside it.
        after_results: it has to wait until all results around it have been written.
    """

    role: ParticipantRole
    content: Any
    extra: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    after_results: bool = False


def _nothing(_value: object) -> None:
    return None


def _is_conversational(message: ConversationMessage) -> bool:
    return message.role is not _TOOL


def _holds_no_parts(_message: ConversationMessage, held: tuple[Part, ...]) -> bool:
    return not held


def _same_block(block: Block, _owner: FormatName | None) -> Block:
    return block


@attrs.frozen
class TextReader:
    """Reads blocks that hold a text, such as ``{"type": "text", "text": …}``.

    Several formats may write such a block in the same way.

    Args:
        foreign: keys of a text block that show that it is another format's.
        key: where the text is.
    """

    foreign: frozenset[str] = frozenset()
    key: str = "text"

    def __call__(self, block: Block) -> Part | None:
        """Return the text of a block; None when it is another format's."""
        if self.foreign and self.foreign & block.keys():
            return None
        return Part("text", as_text(block.get(self.key)))


def media_reader(name: MediaKind, media_of: Callable[[Block], Media | None]) -> BlockReader:
    """Reads blocks that hold media; `media_of` decodes it, which is done only when asked for."""
    return lambda block: Part("media", name=name, payload=block, media_of=media_of)


def read_block(
    readers: Mapping[str, BlockReader], forms: frozenset[FormatName], item: object
) -> Part:
    """Read a block with a ``type`` inside a result; what no reader knows is ``other``."""
    block = as_dict(item)
    kind = as_text(block.get("type")) if block else ""
    reader = readers.get(kind)
    part = None if block is None or reader is None else reader(block)
    part = part or Part("other", name=kind or None)
    part.raw, part.forms = item, forms
    return part


@attrs.frozen(eq=False, kw_only=True)
class Format:
    """How one provider writes messages, and its rules.

    Args:
        name: of the format.
        provider: the name that users give to ``provider=``, if it is another one.
        blocks: readers of content blocks that have a ``type``, by that type.
        untyped: readers of content blocks without a ``type``, by the key that names them.
        load: makes a message of a dict, given what it was made from (an SDK's object). None for
            role, content and everything else in ``extra``.
        request_fields: what a message may have beside role and content.
        reply_fields: what messages of replies have beside that and requests refuse or ignore.
        takes_strings: a plain string may be content.
        fits_message: whether a message's role and kind of content can be written as they are; by
            default all but tools' messages.
        write_text: a block for a text that someone says.
        write_media: a block for media; None when the format has none.
        write_call: a block for a call of the application's.
        write_result: a block for a result; the blocks are its content if that holds media. None
            where a result is no block.
        write_reasoning: a block for another format's reasoning; None when it cannot be carried.
        media_roles: who may send media.
        arrange: writes the parts of one role as messages.
        with_id: the raw of a call or result with another id in it.
        dump: the provider's dict for a message in this format; None for role, content, extra.
        trim: the dict without what only replies have, and, unless the message is known to have
            come from this format, without what may be another one's.
        sources: where the rules are documented.
        merges: everything is a block of the content: neighbours of one role make one message, the
            results of a turn's calls are the user's and come first in the next one, and hosted
            calls and results are refused without each other. (Otherwise results are messages of
            role tool right after their calls, or items.)
        alternates: two neighbours of one role are refused.
        user_first: some models want the user to begin.
        system_apart: leading system messages are a parameter of the request.
        later_system: a system message may come later too.
        items: messages are items of a flat list, of which a reply makes several; results come
            anywhere after their calls.
        signs_reasoning: reasoning without its signature is refused.
        marks_errors: results have a mark for failures.
        refuses_blank: why a blank text part of a message with these parts is refused; None when
            it is accepted.
        call_id: what call ids look like; None when anything but the empty string will do.
        check_result: what is refused inside a result in this format, and its raw without that;
            None when nothing is.
        is_mismatched: whether a result in this format is of another kind than its call.
        required_text: what a message with these parts has to say besides; None for nothing.
        needs_rewrite: whether a message is rewritten although each of its parts is accepted.
        is_empty: whether a message says nothing at all to the provider; by default one without
            parts.
    """

    name: FormatName
    provider: str | None = None
    blocks: Mapping[str, BlockReader]
    untyped: Mapping[str, BlockReader] = attrs.field(factory=dict[str, BlockReader])
    load: Callable[[Block, object], ConversationMessage | None] = lambda _plain, _given: None
    request_fields: frozenset[str] = frozenset()
    reply_fields: frozenset[str] = frozenset()
    takes_strings: bool = True
    fits_message: Callable[[ConversationMessage], bool] = _is_conversational
    write_text: Callable[[str, ParticipantRole], Block]
    write_media: Callable[[Media], Block | None]
    write_call: Callable[[Part], Block]
    write_result: Callable[[Part, list[Block]], Block | None]
    write_reasoning: Callable[[Part], Block | None] = _nothing
    media_roles: frozenset[ParticipantRole]
    arrange: Callable[[Format, ParticipantRole, list[Part], Mapping[str, Any]], list[MessageDraft]]
    with_id: Callable[[Part, str], Any]
    dump: Callable[[ConversationMessage], Block | None] = _nothing
    trim: Callable[[Block, FormatName | None], Block] = _same_block
    sources: RuleSources
    merges: bool = False
    alternates: bool = False
    user_first: bool = False
    system_apart: bool = False
    later_system: bool = True
    items: bool = False
    signs_reasoning: bool = False
    marks_errors: bool = False
    refuses_blank: Callable[[Part, tuple[Part, ...]], str | None] = lambda _part, _held: None
    call_id: re.Pattern[str] | None = None
    check_result: Callable[[Part], tuple[str, Any] | None]
    is_mismatched: Callable[[Part, Part], bool] = lambda _call, _result: False
    required_text: Callable[[Sequence[Part]], str | None] = _nothing
    needs_rewrite: Callable[[ConversationMessage], bool] = lambda message: message.content == []
    is_empty: Callable[[ConversationMessage, tuple[Part, ...]], bool] = _holds_no_parts

    def block_for(self, part: Part, role: ParticipantRole) -> Block | str | None:
        """A block for a part; None when this format has none for it.

        A part that is written in this format already is used as it stands.
        """
        # The exact block: rewriting it would lose fields that no part has, such as cache marks.
        if part.raw is not None and self.name in part.forms:
            raw: Block | str = part.raw
            return raw
        match part.kind:
            case "text":
                return self.write_text(part.text, role)
            case "call" if part.waits:
                return self.write_call(part)
            case "reasoning":
                return self.write_reasoning(part)
            case "result" if part.answers and part.id is not None:
                return self.write_result(part, self.blocks_for(part.inner))
            case "media" if role in self.media_roles:
                media = part.media
                return None if media is None else self.write_media(media)
            case _:
                return None

    def blocks_for(self, inner: Iterable[Part]) -> list[Block]:
        """The blocks within a result, blank text left out."""
        # A result is never the assistant's, so its media is what a user may send.
        written = [self.block_for(part, _USER) for part in inner if not is_blank(part)]
        return [block for block in written if isinstance(block, dict)]

    def content_of(self, held: Iterable[Part], role: ParticipantRole) -> Any:
        """A list of blocks, or the plain string where it is nothing but one."""
        written = [(part, self.block_for(part, role)) for part in held]
        kept = [(part, block) for part, block in written if block is not None]
        # Some servers that speak OpenAI's format accept strings alone.
        if len(kept) == 1 and kept[0][0].kind == "text" and self.takes_strings:
            part, block = kept[0]
            if isinstance(block, str) or self.name not in part.forms:
                return part.text
        return [
            self.write_text(block, role) if isinstance(block, str) else block for _, block in kept
        ]

    def may_be_blank(self, text: Part, after: Part | None) -> bool:
        """Whether a view keeps a blank text that stands before the part `after`.

        Neighbours are merged and parts are left out, so that blank text may come to stand alone,
        which is refused; but before state of the provider's (Bedrock's cache point) it may be
        there for a reason.
        """
        if not self.merges:
            return True
        if after is None or after.kind != "other":
            return False
        return self.refuses_blank(text, (text, after)) is None

    def is_within(self, part: Part) -> bool:
        """Whether a part lies beside the blocks of a message in this format, with no own block."""
        return part.raw is None and part.kind != "other" and self.name in part.forms


def arrange_blocks(
    form: Format, role: ParticipantRole, held: list[Part], extra: Mapping[str, Any]
) -> list[MessageDraft]:
    """Where results are blocks of a user's message, and come first in it."""
    # "tool_result blocks must come first in the content array":
    # https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use
    given = [part for part in held if part.answers]
    rest = [part for part in held if not part.answers]
    if role is not _ASSISTANT:
        user = _USER if role is _TOOL else role
        return nonempty(MessageDraft(user, form.content_of([*given, *rest], user), extra))
    drafts = nonempty(MessageDraft(role, form.content_of(rest, role), extra))
    return drafts + nonempty(MessageDraft(_USER, form.content_of(given, _USER)))


def nonempty(made: MessageDraft) -> list[MessageDraft]:
    """The draft, unless it has nothing to say."""
    return [] if made.content == [] else [made]


def derived_id(message: ConversationMessage, number: int) -> str:
    """The id of the `number`-th message made from one; the first keeps the id.

    Equal for equal input, so that a view made twice is the same.
    """
    if number == 0:
        return message.id
    # A hash, because an id has a greatest length and the given one may reach it.
    digest = hashlib.sha256(message.id.encode()).hexdigest()[:32]
    return f"derived-{digest}-{number}"


def arguments_of(call: Part) -> Block:
    """A call's arguments as a dict; text that is no JSON object is kept under ``input``."""
    given: Any = call.payload
    if isinstance(given, str):
        try:
            # Models write arguments, and not always as JSON; deep nesting ends the parser.
            given = json.loads(given) if given.strip() and not call.custom else given
        except (ValueError, RecursionError):
            return {"input": given}
        if given == "" and not call.custom:
            return {}
    found = as_dict({} if given is None else given)
    if found is not None:
        return found
    return {"input": given if isinstance(given, str) else to_json(given)}


def arguments_text(call: Part) -> str:
    """A call's arguments as JSON text; what the model wrote stays as it is."""
    given = call.payload
    if call.custom:
        return to_json(arguments_of(call))
    return given if isinstance(given, str) else to_json({} if given is None else given)


NO_OUTPUT: Final = "(no output)"
"""What a failed result says where it has no content and the provider wants some."""

SAFE_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The call ids that Anthropic and Bedrock accept."""


def safe_id(call_id: str | None) -> str:
    """A call id in the characters that Anthropic and Bedrock allow; other ids stay apart."""
    given = call_id or ""
    if SAFE_ID.fullmatch(given):
        return given
    # The hash keeps "a.b" and "a:b" apart; an id may hold halves of surrogate pairs.
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', given)[:40]}_{digest}"


def is_blank_block(item: object) -> bool:
    """Whether this is a text block, typed or not, without anything but white space."""
    block = as_dict(item)
    if block is None or block.get("type", "text") != "text" or "text" not in block:
        return False
    return not as_text(block["text"]).strip()


EVERYONE: Final = frozenset({_USER, _ASSISTANT, _TOOL, *SYSTEM_ROLES})
USERS: Final = frozenset({_USER, _TOOL})
