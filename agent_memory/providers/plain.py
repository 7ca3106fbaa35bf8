"""From what callers hold (dicts, the SDKs' own objects) to plain content, and back."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from agent_memory.content import thaw
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers.part import Block

CONTENT_OMITTED: Final = "content_omitted"
"""Key in ``extra`` of a message whose dict had no ``content`` at all, to tell it from null."""


WRITTEN_IN: Final = "written_in"
"""Key in ``extra`` of a message that does not show its format, but has fields nobody else may
get: the name of the format it was loaded from."""

MARKERS: Final = frozenset({CONTENT_OMITTED, WRITTEN_IN})
"""The keys in ``extra`` that are this library's own."""

_FUNCTION: Final = "function"
"""Chat Completions' old role for results, before there was ``tool``."""


def to_plain(value: Any) -> Any:
    """Return `value` with the SDKs' pydantic objects made dicts, at any depth.

    What the provider did not send is left out, as the SDKs do when they send an object back
    (``model_dump(exclude_unset=True, mode="json")``).
    """
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
