"""Messages as providers' APIs and LangChain write them: recognised by their whole shape.

Sources: the types of the published packages openai 3.57 (``chat``, ``responses``) and
anthropic 2.14 (``types``), https://docs.aws.amazon.com/bedrock/latest/APIReference/ (Converse),
and langchain-core 1.8: ``message_to_dict`` writes ``{"type": …, "data": {…}}``; ``dumpd``
``{"lc": 1, "type": "constructor", "id": [… , "HumanMessage"], "kwargs": {…}}``; a message's
``model_dump`` its fields alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from agent_memory.audit.chunks import Tally
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ROLES, ConversationMessage, Usage
from agent_memory.providers import (
    format_of,
    from_anthropic,
    from_bedrock,
    from_openai,
    from_openai_responses,
    parts,
)
from agent_memory.providers.anthropic import usage_of
from agent_memory.providers.conversion import load_message
from agent_memory.providers.part import Block, as_dict, as_id, as_list, as_text, to_json

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
# Where everything of a message lies that has no place of its own here.
_LANGCHAIN: Final = "langchain"


def is_langchain(record: Mapping[str, Any]) -> bool:
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
        InvalidRequestError: it is not one.
    """
    found = _fields_of(as_dict(stored) or {})
    if found is None:
        raise InvalidRequestError('it is not a message of LangChain\'s: {"type": …, "data": {…}}')
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
        usage=_langchain_usage(data.get("usage_metadata")),
        extra=_langchain_extra(data, role),
        metadata={_LANGCHAIN: rest} if rest else {},
    )


def _langchain_extra(data: Mapping[str, Any], role: object) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    given = as_dict(data.get("additional_kwargs")) or {}
    calls = as_list(given.get("tool_calls")) or [
        _call(call) for call in as_list(data.get("tool_calls"))
    ]
    # Anthropic's and Bedrock's content has the calls as blocks, and LangChain repeats them in
    # `tool_calls`: adding those again would double every call.
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
        raise InvalidRequestError("one of its tool calls is not an object")
    function = {"name": fields.get("name"), "arguments": to_json(fields.get("args"))}
    return {"id": fields.get("id"), "type": "function", "function": function}


def _langchain_usage(reported: object) -> Usage | None:
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


EXPECTED: Final = (
    'a message: {"role": …, "content": …} of OpenAI, Anthropic or Bedrock, an item of '
    'OpenAI\'s Responses, or LangChain\'s {"type": …, "data": {…}}'
)
_FORMS: Final[Mapping[str | None, str]] = {
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "bedrock": "Bedrock",
    None: "role and text",
}
# How messages are loaded that a block shows to be of this format; others as Chat's.
_LOADERS: Final = {"anthropic": from_anthropic, "bedrock": from_bedrock}
# The items of a Responses input, with the fields without which one says nothing.
_ITEMS: Final[Mapping[str, tuple[str, ...]]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "reasoning": ("summary",),
    "additional_tools": ("tools",),
    "apply_patch_call": ("call_id",),
    "apply_patch_call_output": ("call_id",),
    "code_interpreter_call": (),
    "compaction": (),
    "compaction_summary": (),
    "compaction_trigger": (),
    "computer_call": (),
    "computer_call_output": ("output",),
    "configuration_update": (),
    "file_search_call": (),
    "image_generation_call": (),
    "item_reference": ("id",),
    "local_shell_call": ("action",),
    "local_shell_call_output": ("output",),
    "mcp_approval_request": ("name",),
    "mcp_approval_response": ("approval_request_id",),
    "mcp_call": ("name",),
    "mcp_list_tools": (),
    "program": (),
    "program_output": (),
    "shell_call": ("call_id",),
    "shell_call_output": ("call_id", "output"),
    "tool_search_call": (),
    "tool_search_output": ("tools",),
    "web_search_call": (),
}
# Blocks that are known and have no text of their own.
_SAYING_NOTHING: Final = frozenset({
    "cachePoint", "guardContent", "document_url", "tool_addition", "tool_removal", "compaction",
    "tool_call", "tool_call_chunk", "server_tool_call", "server_tool_result", "non_standard",
})  # fmt: skip
# What a reply of Chat Completions may have in place of content.
_BESIDE: Final = (
    *("tool_calls", "function_call", "refusal", "audio"),
    *("reasoning", "reasoning_content", "reasoning_details"),
)
_FOREIGN: Final[Mapping[str, str]] = {
    "parts": "`parts` are written by Vercel's AI SDK and by Gemini, whose messages are not read",
    "toolInvocations": "`toolInvocations` are of Vercel's AI SDK, whose messages are not read",
}


def read_message(item: object, message_id: str, tally: Tally) -> ConversationMessage:
    """Make a message of one of any form that is read.

    Args:
        item: what stands for a message in a source.
        message_id: the id it gets.
        tally: counts as what it was read.

    Raises:
        InvalidRequestError: it matches no known format; the text says what is wrong.
    """
    fields = as_dict(item)
    if fields is None:
        raise InvalidRequestError(f"a message must be an object; expected {EXPECTED}")
    for foreign, reason in _FOREIGN.items():
        if isinstance(fields.get(foreign), list):
            raise InvalidRequestError(f"{reason}; expected {EXPECTED}")
    try:
        for recognise, read in _READERS:
            if recognise(fields):
                name, message = read(fields)
                break
        else:
            raise InvalidRequestError(_unknown(fields))
    except RecursionError:
        raise InvalidRequestError("it is nested too deeply") from None
    tally.read[name] += 1
    return attrs.evolve(message, id=message_id)


def is_message(plain: object) -> bool:
    """Whether something is meant to be one message, of whatever form, not a list of them."""
    fields = as_dict(plain) or {}
    return not {"messages", "mapping"} & fields.keys() and bool({"role", "type"} & fields.keys())


def read_response_item(item: Block) -> ConversationMessage:
    """Make a message of an item of OpenAI's Responses.

    Raises:
        InvalidRequestError: its type is not known, or what belongs to the type is missing.
    """
    kind = as_text(item.get("type"))
    needed = _ITEMS.get(kind)
    if needed is None:
        raise InvalidRequestError(f"items of type {kind!r} are not known; expected {EXPECTED}")
    missing = [name for name in needed if item.get(name) is None]
    if missing:
        raise InvalidRequestError(f"an item of type {kind!r} without {missing[0]!r}")
    if kind == "message":
        check_content(item["role"], item["content"])
    try:
        (message,) = from_openai_responses([item])
    except InvalidRequestError as error:
        raise InvalidRequestError(str(error).removeprefix("message 0: ")) from error
    return message


def check_content(role: object, content: object) -> Any:
    """Return content that is text or a list of blocks whose types are all known.

    Raises:
        InvalidRequestError: it is not. An unknown block could hold text that no view, report or
            transcript would ever show.
    """
    if isinstance(content, str):
        return content
    held = as_list(content)
    if not isinstance(content, list):
        raise InvalidRequestError(f"its content must be text or a list, not {_kind_of(content)}")
    message = ConversationMessage("user" if role in ("tool", "function") else role, held)
    for index, part in enumerate(parts(message)):
        if part.kind == "other" and part.name not in _SAYING_NOTHING:
            block = as_dict(part.raw)
            if block is None or not (block.keys() & _SAYING_NOTHING):
                kind = part.name or ", ".join(block or ()) or _kind_of(part.raw)
                raise InvalidRequestError(f"content[{index}]: blocks of type {kind!r} are unknown")
        elif part.kind == "text" and not part.text and not _has_text(part.raw):
            raise InvalidRequestError(f"content[{index}]: a block of text without a text")
    return held


def _is_reply(fields: Block) -> bool:
    """A whole reply of Anthropic's, as its SDK dumps it."""
    return (
        fields.get("type") == "message" and {"role", "content", "model", "usage"} <= fields.keys()
    )


def _read_reply(fields: Block) -> tuple[str, ConversationMessage]:
    content = check_content(fields["role"], fields["content"])
    rest = {name: value for name, value in fields.items() if name not in ("role", "content")}
    usage = usage_of(fields["usage"])
    metadata = {"anthropic": rest}
    message = ConversationMessage(fields["role"], content, usage=usage, metadata=metadata)
    return "Anthropic", message


def _is_item(fields: Block) -> bool:
    return as_text(fields.get("type")) in _ITEMS


def _read_item(fields: Block) -> tuple[str, ConversationMessage]:
    return "OpenAI Responses", read_response_item(fields)


def _has_role(fields: Block) -> bool:
    return "role" in fields and "type" not in fields


def _read_role(fields: Block) -> tuple[str, ConversationMessage]:
    role, content = fields["role"], fields.get("content")
    if not isinstance(role, str) or (role not in ROLES and role != "function"):
        known = ", ".join(repr(role.value) for role in ROLES.values())
        raise InvalidRequestError(f"role must be one of {known}, not {role!r}")
    if content is not None:
        check_content(role, content)
    elif role != "assistant" or not ({"content", *_BESIDE} & fields.keys()):
        raise InvalidRequestError("it has no content")
    if not isinstance(fields.get("tool_calls", []), list | None):
        raise InvalidRequestError("its tool_calls must be a list")
    message = load_message(fields)
    if isinstance(content, str) and not message.extra:
        return _FORMS[None], message  # the same in all formats, and most messages are such
    name = format_of(message)
    shown = [next(iter(part.forms)) for part in parts(message) if len(part.forms) == 1]
    loaders = [_LOADERS[form] for form in shown if form in _LOADERS]
    try:
        (message,) = (loaders or [from_openai])[0]([fields])
    except InvalidRequestError as error:
        raise InvalidRequestError(str(error).removeprefix("message 0: ")) from error
    return _FORMS.get(name, _FORMS[None]), message


def _read_langchain(fields: Block) -> tuple[str, ConversationMessage]:
    message = langchain_message(fields, "-")
    if message.content is not None:
        check_content(message.role.value, message.content)
    return "LangChain", message


_READERS: Final[
    tuple[tuple[Callable[[Block], bool], Callable[[Block], tuple[str, ConversationMessage]]], ...]
] = (
    (is_langchain, _read_langchain),
    (_is_reply, _read_reply),
    (_is_item, _read_item),
    (_has_role, _read_role),
)


def _unknown(fields: Block) -> str:
    kind = fields.get("type")
    if isinstance(kind, str):
        return f"records of type {kind!r} are not known; expected {EXPECTED}"
    names = ", ".join([repr(name) for name in list(fields)[:8]]) or "nothing"
    return f"it has no role, but {names}; expected {EXPECTED}"


def _has_text(raw: object) -> bool:
    block = as_dict(raw)
    if block is None:
        return True
    return isinstance(block.get("text"), str) or bool(as_list(block.get("content")))


def _kind_of(value: object) -> str:
    return "null" if value is None else type(value).__name__
