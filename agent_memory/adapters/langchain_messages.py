"""LangChain's messages and ours, both ways without loss.

Written for langchain-core 1.x.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from agent_memory.errors import InvalidRequestError, MissingDependencyError

try:
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
        convert_to_messages,
        message_chunk_to_message,
    )
except ImportError as error:
    raise MissingDependencyError("langchain-core", "langchain") from error

from agent_memory.content import thaw
from agent_memory.messages import ConversationMessage, ParticipantRole, Usage
from agent_memory.providers import Part, convert, parts
from agent_memory.providers.part import to_json

Default: TypeAlias = Callable[[Any], Any]
"""Makes plain data of an object, as the `default` of ``json.dumps`` does."""

_KEY: Final = "langchain"
"""The key in a message's ``metadata`` of what is LangChain's alone."""

_CLASSES: Final[Mapping[str, type[BaseMessage]]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "chat": ChatMessage,
    "function": FunctionMessage,
}
_ROLES: Final[Mapping[str, ParticipantRole]] = {
    "human": ParticipantRole.USER,
    "ai": ParticipantRole.ASSISTANT,
    "system": ParticipantRole.SYSTEM,
    "tool": ParticipantRole.TOOL,
    "function": ParticipantRole.TOOL,
}
_BESIDE: Final = ("name", "tool_call_id")
"""What goes into ``extra``, where every provider's form has it."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "additional_kwargs": {},
    "response_metadata": {},
    "id": None,
    "name": None,
    "usage_metadata": None,
    "artifact": None,
    "status": "success",
}
"""What is not worth storing."""

_CALLS: Final = "tool_calls"
_INVALID: Final = "invalid_tool_calls"
_ERRORS: Final = "call_errors"
"""What was wrong with the last of the calls, whose arguments are no JSON."""


def from_langchain(
    messages: Iterable[BaseMessage], *, default: Default | None = None
) -> list[ConversationMessage]:
    """Make messages of LangChain's; :func:`to_langchain` gives equal ones back.

    What models and other providers understand goes to ``content`` and ``extra`` (calls as
    OpenAI writes them, unless the content has them already); what only LangChain knows
    (``id``, ``additional_kwargs``, ``response_metadata``, ``usage_metadata``, ``artifact``,
    ``status``) goes to ``metadata["langchain"]``. Nothing is held twice. A chunk becomes the
    message it is a chunk of. Each message gets a new id: LangChain's own are not unique (a
    cached reply comes with the id of the first one).

    Args:
        messages: LangChain's messages of any kind but ``RemoveMessage``.
        default: turns other objects, such as an artifact, into plain data, which is what
            comes back. By default pydantic objects become dicts, tuples lists, and
            anything else is refused.

    Raises:
        InvalidRequestError: an item is not a message, or holds what cannot be stored.
    """
    return [_loaded(index, message, default) for index, message in enumerate(messages)]


def to_langchain(messages: Iterable[ConversationMessage]) -> list[BaseMessage]:
    """Make LangChain's messages, exactly those that :func:`from_langchain` was given.

    A message of any other origin (a summary, one in a provider's own form) is converted by what
    it says, and gets the id it has here.
    """
    made: list[BaseMessage] = []
    for message in messages:
        own = _own(message) if _KEY in message.metadata else None
        made += _foreign(message) if own is None else [own]
    return made


def _loaded(index: int, message: object, default: Default | None) -> ConversationMessage:
    whole = message_chunk_to_message(message) if isinstance(message, BaseMessage) else None
    if whole is None or whole.type not in _CLASSES:
        kinds = ", ".join(kind.__name__ for kind in _CLASSES.values())
        raise InvalidRequestError(
            f"message {index} must be one of LangChain's {kinds}, not {type(message).__name__}"
        )
    try:
        return _load(whole, default)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"message {index}: {error} (or give default=, a function that makes plain data of it)"
        ) from error


def _load(message: BaseMessage, default: Default | None) -> ConversationMessage:
    held: dict[str, Any] = _plain(message.model_dump(), default)
    content = held.pop("content")
    kind: str = held.pop("type")
    extra = {name: held.pop(name) for name in _BESIDE if held.get(name) is not None}
    calls, invalid = held.pop(_CALLS, []), held.pop(_INVALID, [])
    own = {
        name: value
        for name, value in held.items()
        if name not in _DEFAULTS or value != _DEFAULTS[name]
    }
    role = _role(kind, own)
    shown = {part.id for part in _calls_in(ConversationMessage(role, content))}
    written = [_written(call) for call in [*calls, *invalid] if call.get("id") not in shown]
    if written:
        extra[_CALLS] = written
    if invalid:
        own[_ERRORS] = [call.get("error") for call in invalid]
    made = ConversationMessage(
        role,
        content,
        extra=extra,
        metadata={_KEY: {"type": kind, **own}},
        usage=_usage(held.get("usage_metadata")),
    )
    if kind != "ai" or _read_calls(made) == (calls, invalid):
        return made
    # A call that says more, or other things, than providers do is kept as it is too.
    own = {"type": kind, **own, _CALLS: calls, _INVALID: invalid}
    return attrs.evolve(made, metadata={_KEY: own})


def _plain(value: Any, default: Default | None) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, default) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_plain(item, default) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, enum.Enum):
        return _plain(value.value, default)
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)  # subclasses too: LangChain's own text accessors, say
    if value is None or isinstance(value, bytes):
        return value
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(), default)
    return value if default is None else _plain(default(value), None)


def _role(kind: str, own: Mapping[str, Any]) -> ParticipantRole:
    if own.get("additional_kwargs", {}).get("__openai_role__") == "developer":
        return ParticipantRole.DEVELOPER
    return _ROLES.get(kind) or _role_named(own.get("role"))


def _role_named(role: object) -> ParticipantRole:
    known = {"human": "user", "ai": "assistant"}.get(str(role), str(role))
    return ParticipantRole(known) if known in list(ParticipantRole) else ParticipantRole.USER


def _written(call: Mapping[str, Any]) -> dict[str, Any]:
    given = call["args"]
    arguments = given if isinstance(given, str) else to_json(given)
    function = {"name": call["name"], "arguments": arguments}
    return {"id": call.get("id"), "type": "function", "function": function}


def _usage(reported: Any) -> Usage | None:
    figures: dict[str, Any] | None = reported
    if not figures:
        return None
    read: dict[str, Any] = figures.get("input_token_details") or {}
    made: dict[str, Any] = figures.get("output_token_details") or {}
    counts: list[Any] = [
        *(figures.get("input_tokens"), figures.get("output_tokens")),
        *(read.get("cache_read"), made.get("reasoning")),
    ]
    return Usage(*[count if type(count) is int and count > 0 else 0 for count in counts])


def _own(message: ConversationMessage) -> BaseMessage | None:
    """The message that was loaded; None when a view made something else of it since."""
    own: dict[str, Any] = thaw(message.metadata[_KEY])
    kind = own.pop("type")
    beside = {name: message.extra[name] for name in _BESIDE if name in message.extra}
    if message.role is not _role(kind, own) or (kind == "tool" and "tool_call_id" not in beside):
        return None
    if kind == "ai":
        calls, invalid = _read_calls(message)
        own.pop(_ERRORS, None)
        own.setdefault(_CALLS, calls)
        own.setdefault(_INVALID, invalid)
    content = "" if message.content is None else thaw(message.content)
    return _CLASSES[kind](content=content, **beside, **own)


def _calls_in(message: ConversationMessage) -> list[Part]:
    return [part for part in parts(message) if part.kind == "call" and not part.hosted]


def _read_calls(
    message: ConversationMessage,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A message's calls as LangChain writes them; and those whose arguments are no JSON."""
    errors = message.metadata[_KEY].get(_ERRORS, ())
    held = _calls_in(message)
    count = len(held) - len(errors)
    return (
        [_call(part) for part in held[:count]],
        [
            {
                "name": part.name,
                "args": part.payload,
                "id": part.id,
                "error": problem,
                "type": "invalid_tool_call",
            }
            for part, problem in zip(held[count:], errors, strict=False)
        ],
    )


def _call(part: Part) -> dict[str, Any]:
    arguments: Any = part.payload
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"input": arguments}
    return {"name": part.name, "args": thaw(arguments), "id": part.id, "type": "tool_call"}


def _foreign(message: ConversationMessage) -> list[BaseMessage]:
    written = convert([message], "openai").messages
    made = convert_to_messages(written)
    for number, new in enumerate(made):
        new.id = message.id if number == 0 else f"{message.id}-{number}"
    return made
