"""What every provider's content is made of, once its own form is set aside."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Literal, TypeAlias

import attrs

Shape: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "bedrock"]
"""The forms in which providers write a message."""

PartKind: TypeAlias = Literal["text", "call", "result", "reasoning", "media", "other"]
"""What a part is; ``other`` is a block that this library does not know."""

Block: TypeAlias = dict[str, Any]

CHAT: Final = frozenset[Shape]({"openai_chat"})
RESPONSES: Final = frozenset[Shape]({"openai_responses"})
ANTHROPIC: Final = frozenset[Shape]({"anthropic"})
BEDROCK: Final = frozenset[Shape]({"bedrock"})
TYPED: Final = CHAT | ANTHROPIC
"""``{"type": "text", "text": …}`` is written the same in both."""
OPENAI: Final = CHAT | RESPONSES
PLAIN: Final = CHAT | RESPONSES | ANTHROPIC
"""A plain string is content everywhere but in Bedrock, which takes lists only."""
ANY: Final = PLAIN | BEDROCK


@attrs.frozen
class Part:
    """One piece of a message, whichever provider's form it is written in.

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
        inner: what a result's list content holds: text and media parts.
        raw: the block as it stands in the content, in ``tool_calls``, or the whole item; None
            for what is no block (OpenAI's ``reasoning_content`` beside the content).
        forms: the shapes in which `raw` may be sent as it is.
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
    forms: frozenset[Shape] = ANY

    @property
    def waits(self) -> bool:
        """Whether this is a call that the application has to answer with a result."""
        return self.kind == "call" and not self.hosted and self.id is not None

    @property
    def answers(self) -> bool:
        """Whether this is a result that the application gave."""
        return self.kind == "result" and not self.hosted


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


def to_json(value: object) -> str:
    """`value` as JSON text that keeps all characters; bytes become base64 text."""
    return json.dumps(value, ensure_ascii=False, default=_bytes_as_text)


def _bytes_as_text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def joined(parts: tuple[Part, ...]) -> str:
    """The text of text parts, a line each."""
    return "\n".join([part.text for part in parts if part.kind == "text" and part.text])


def is_blank(part: Part) -> bool:
    """Whether this is a text part without anything but white space."""
    return part.kind == "text" and not part.text.strip()
