"""LangChain's messages as its histories store them and as its functions dump them.

Source: langchain-core 1.8: ``message_to_dict`` writes ``{"type": …, "data": {…}}``; ``dumpd``
``{"lc": 1, "type": "constructor", "id": [… , "HumanMessage"], "kwargs": {…}}``; a message's
``model_dump`` its fields alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.providers import parts
from agent_memory.providers.part import as_dict, as_id, as_list, to_json

_ROLES: Final = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "SystemMessageChunk": "system",
    "tool": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
}
_CLASSES: Final = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}
_CARRIED: Final = frozenset({"content", "type", "name", "tool_call_id", "tool_calls", "role"})
_METADATA: Final = "langchain"
"""Where everything of a message lies that has no place of its own here."""


def recognise(record: Mapping[str, Any]) -> bool:
    """Whether a record is one of LangChain's messages, in any of the three ways."""
    return _fields_of(record) is not None


def _fields_of(record: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the kind of a message and its fields."""
    kind, data = record.get("type"), as_dict(record.get("data"))
    if not isinstance(kind, str):
        return None
    if data is not None and "role" not in record:
        return kind, data
    kwargs, path = as_dict(record.get("kwargs")), as_list(record.get("id"))
    if record.get("lc") == 1 and kind == "constructor" and kwargs is not None and path:
        name = str(path[-1])
        return _CLASSES.get(name.removesuffix("Chunk"), name), kwargs
    if {"content", "additional_kwargs", "response_metadata"} <= record.keys():
        return kind, record
    return None


def langchain_message(stored: object, message_id: str) -> ConversationMessage:
    """Make a message of a stored one: Chat Completions' form, the rest in ``metadata``.

    Raises:
        InvalidRequestError: it is none.
    """
    found = _fields_of(as_dict(stored) or {})
    if found is None:
        raise InvalidRequestError('it is no message of LangChain\'s: {"type": …, "data": {…}}')
    kind, data = found
    role = _ROLES.get(kind) or (data.get("role") if kind.startswith(("chat", "Chat")) else None)
    if role is None:
        raise InvalidRequestError(f"LangChain's messages of type {kind!r} are not known")
    if not isinstance(data.get("content"), str | list):
        raise InvalidRequestError(f"a message of LangChain's of type {kind!r} without content")
    rest = {name: value for name, value in data.items() if name not in _CARRIED and value}
    return ConversationMessage(
        role,
        data.get("content"),
        id=message_id,
        usage=_usage(data.get("usage_metadata")),
        extra=_extra(data, role),
        metadata={_METADATA: rest} if rest else {},
    )


def _extra(data: Mapping[str, Any], role: object) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    given = as_dict(data.get("additional_kwargs")) or {}
    calls = as_list(given.get("tool_calls")) or [
        _call(call) for call in as_list(data.get("tool_calls"))
    ]
    # Some providers' content holds the calls as blocks of its own.
    inside = {part.id for part in parts(ConversationMessage("assistant", data.get("content")))}
    missing = [call for call in calls if (as_dict(call) or {}).get("id") not in inside]
    if missing:
        extra["tool_calls"] = missing
    if as_dict(given.get("function_call")):
        extra["function_call"] = given["function_call"]
    if role == "tool" and as_id(data.get("tool_call_id")):
        extra["tool_call_id"] = data["tool_call_id"]
    if as_id(data.get("name")):
        extra["name"] = data["name"]
    return extra


def _call(call: object) -> dict[str, Any]:
    fields = as_dict(call)
    if fields is None:
        raise InvalidRequestError("one of its tool calls is none")
    function = {"name": fields.get("name"), "arguments": to_json(fields.get("args"))}
    return {"id": fields.get("id"), "type": "function", "function": function}


def _usage(reported: object) -> Usage | None:
    usage = as_dict(reported)
    if usage is None:
        return None
    inputs = as_dict(usage.get("input_token_details")) or {}
    outputs = as_dict(usage.get("output_token_details")) or {}
    return Usage(
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        inputs.get("cache_read") or 0,
        outputs.get("reasoning") or 0,
    )
