"""Parts: the pieces of a message, independent of the provider's format."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import attrs

from agent_memory.providers.media import Media

FormatName: TypeAlias = str
"""The name of a wire format: ``openai_chat``, ``openai_responses``, ``anthropic``, ``bedrock``."""

PartKind: TypeAlias = Literal["text", "call", "result", "reasoning", "media", "other"]
"""What a part is; ``other`` is state for the provider alone, or a block of an unknown type."""

Block: TypeAlias = dict[str, Any]


# Not frozen, although nothing changes a part: each read creates the parts of all messages
# again, and setting the fields of a frozen class takes three times as long.
@attrs.define
class Part:
    """One piece of a message, whichever provider's format it is written in.

    Args:
        kind: what it is.
        text: what it says: the text of a text part, of a reasoning part (or its summary), of a
            result (its text blocks and JSON, joined with newlines), the refusal; ``""`` where
            there is none.
        id: of a call, or of the call that a result answers; None where the provider gave none.
        name: of the tool for calls (and for results, where given); for media ``"image"``,
            ``"audio"``, ``"document"`` or ``"video"``; for ``other`` the block's type, if any.
        payload: a call's arguments (JSON text or a dict, as the provider wrote them), a result's
            content (text, a list of blocks, or None).
        is_error: a result that reports a failure.
        hosted: a call that the provider itself runs (a web search, say), or its result. Nobody
            else has to answer it, and its result sits in the assistant's message.
        custom: a call whose arguments are free text instead of JSON, or its result.
        inner: what a result's list content holds: text and media parts.
        raw: the block as it stands in the content, in ``tool_calls``, or the whole item; None
            for what is no block (OpenAI's ``reasoning_content`` beside the content), and for
            the result that an item holds beside its call (``mcp_call``), whose raw is the call's.
        forms: the names of the formats in which `raw` may be sent as it is.
        signature: of reasoning, where its model signed it.
        redacted: reasoning that only its model can read, as base64 text.
        opaque: state that only its own provider can read and that no summary can stand for
            (an encrypted compaction); it stays in the view.
        media_of: how to read the media in `raw`.
    """

    kind: PartKind
    text: str = ""
    id: str | None = None
    name: str | None = None
    payload: Any = None
    is_error: bool = False
    hosted: bool = False
    inner: tuple[Part, ...] = ()
    raw: Any = None
    forms: frozenset[FormatName] = frozenset()
    custom: bool = False
    signature: str | None = None
    redacted: str | None = None
    opaque: bool = False
    media_of: Callable[[Block], Media | None] | None = None

    @property
    def waits(self) -> bool:
        """Whether this is a call that the application has to answer with a result."""
        return self.kind == "call" and not self.hosted and self.id is not None

    @property
    def answers(self) -> bool:
        """Whether this is a result that the application gave."""
        return self.kind == "result" and not self.hosted

    @property
    def arguments(self) -> str:
        """A call's arguments as text: JSON, unless the model wrote another text."""
        given = self.payload
        return given if isinstance(given, str) else to_json(given)

    @property
    def media(self) -> Media | None:
        """The media of a media part; None for other parts, or when it cannot be read."""
        block = as_dict(self.raw)
        return None if block is None or self.media_of is None else self.media_of(block)


def as_dict(value: object) -> Block | None:
    """`value` if it is a dict, else None."""
    found: Any = value
    return found if isinstance(value, dict) else None


def as_list(value: object) -> list[Any]:
    """`value` if it is a list, else an empty list."""
    found: Any = value
    return found if isinstance(value, list) else []


def as_text(value: object) -> str:
    """`value` if it is a string, else ``""``."""
    return value if isinstance(value, str) else ""


def as_id(value: object) -> str | None:
    """`value` if it is a string with something in it, else None."""
    return value if isinstance(value, str) and value else None


def without(value: Any, *keys: str) -> Any:
    """A dict without these keys; anything else as it is."""
    block = as_dict(value)
    return value if block is None else {key: block[key] for key in block if key not in keys}


def to_json(value: object) -> str:
    """`value` as JSON text that keeps all characters; bytes become base64 text."""
    # Not escaped: escapes cost a model tokens, and people read this text too.
    return json.dumps(value, ensure_ascii=False, default=_bytes_as_text)


def _bytes_as_text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def joined(parts: tuple[Part, ...]) -> str:
    """The text of text parts, a line each."""
    return "\n".join([part.text for part in parts if part.kind == "text" and part.text])


def is_blank(part: Part) -> bool:
    """Whether this is a text part without anything but white space."""
    return part.kind == "text" and not part.text.strip()


_BARE: Final = frozenset({"text", "content", "output", "stdout", "stderr", "logs", "lines"})
"""Keys of a hosted tool's result whose text is shown without the key's name."""
_CODES: Final = ("return_code", "exit_code")
"""Numbers that tell of a failure, unless they are 0."""
_UNREAD: Final = ("id", "type", "data", "signature", "cache_control", "status", "mime", "role")


def readable(value: object, key: str = "") -> str:
    """Everything in a hosted tool's result that a person could read, a line each.

    Ids, types, encrypted and encoded fields are left out. It is generic so that results of
    tools which providers add later can be read too.
    """
    return "\n".join(_readable(value, key))


def _readable(value: object, key: str) -> list[str]:
    if isinstance(value, str):
        text = value.strip("\n")
        if not text.strip() or _is_unread(key):
            return []
        return [text if key in _BARE or not key else f"{key}: {text}"]
    if isinstance(value, int | float) and not isinstance(value, bool) and key in _CODES:
        return [f"{key}: {value}"] if value else []
    block = as_dict(value)
    if block is not None and block.get("type") == "timeout":
        return ["timed out"]
    if block is not None:
        return [line for name, held in block.items() for line in _readable(held, name)]
    return [line for held in as_list(value) for line in _readable(held, key)]


def _is_unread(key: str) -> bool:
    return key.startswith("encrypted") or any(
        key == word or key.endswith(f"_{word}") for word in _UNREAD
    )
