"""A sample of every block and item type that the providers' SDKs know, made from their types.

``samples(provider)`` gives, for each type by its name, messages that hold one block (or are one
item) of it; ``replies(provider)`` the same for the types of replies, with all their keys. What is
in them is made up from the names of the keys, so that a text can be found again: the key `stdout`
holds "the stdout".
"""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any

import pydantic
import typing_extensions
from anthropic.types.beta import BetaContentBlock, BetaContentBlockParam
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionContentPartParam,
    ChatCompletionMessage,
    ChatCompletionMessageToolCallUnionParam,
)
from openai.types.responses import ResponseInputContentParam, ResponseOutputItem
from openai.types.responses.response_input_param import ResponseInputItemParam

from judge import converse_input, hints_of, members_of, tags_of

PNG = "iVBORw0KGgoA"
_SPECIAL = {
    "arguments": '{"q": "the arguments"}',
    "data": PNG,
    "url": "https://example.org/the-url",
    "image_url": "https://example.org/the-image",
    "file_url": "https://example.org/the-file",
    "file_data": f"data:application/pdf;base64,{PNG}",
    "bytes": b"\x89PNG",
    "name": "the_name",
    "id": "id_1",
    "call_id": "call_1",
    "tool_use_id": "call_1",
    "toolUseId": "call_1",
    "approval_request_id": "call_1",
    "tool_call_id": "call_1",
    "signature": "c2ln",
    "media_type": "image/png",
}
_USERS = ("text", "image", "document", "container_upload", "search_result", "tool_result")


def types_of(union: Any) -> dict[str, Any]:
    """Return the members of an SDK's union by the values of their ``type``."""
    return {tag: member for member in members_of(union) for tag in tags_of(member)}


def samples(provider: str, *, full: bool = False) -> dict[str, list[Any]]:
    """Return messages with one block or item of each type; `full` with all optional keys."""
    return {
        "openai": _chat,
        "openai_responses": _responses,
        "anthropic": _anthropic,
        "bedrock": _bedrock,
    }[provider](full)


def _chat(full: bool) -> dict[str, list[Any]]:
    made = {
        tag: [{"role": "user", "content": [sample(kind, full=full)]}]
        for tag, kind in types_of(ChatCompletionContentPartParam).items()
    }
    for tag, kind in types_of(ChatCompletionMessageToolCallUnionParam).items():
        made[f"tool_calls {tag}"] = [
            {"role": "assistant", "tool_calls": [sample(kind, full=full)]}
        ]
    said = hints_of(ChatCompletionAssistantMessageParam)["content"]
    for tag, kind in _types_within(said).items():
        made[f"assistant {tag}"] = [{"role": "assistant", "content": [sample(kind, full=full)]}]
    return made


def _responses(full: bool) -> dict[str, list[Any]]:
    items = {
        tag: [sample(kind, full=full)]
        for tag, kind in types_of(ResponseInputItemParam).items()
        if tag not in ("(none)", "message")
    }
    content = {
        tag: [{"role": "user", "content": [sample(kind, full=full)]}]
        for tag, kind in types_of(ResponseInputContentParam).items()
    }
    output = next(
        member
        for member in members_of(ResponseInputItemParam)
        if "ResponseOutput" in member.__name__
    )
    said = {
        tag: [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [sample(kind, full=full)],
            }
        ]
        for tag, kind in _types_within(hints_of(output)["content"]).items()
    }
    return items | content | said


def _anthropic(full: bool) -> dict[str, list[Any]]:
    return {
        tag: [
            {
                "role": "user" if tag in _USERS else "assistant",
                "content": [sample(kind, full=full)],
            }
        ]
        for tag, kind in types_of(BetaContentBlockParam).items()
    }


def _bedrock(full: bool) -> dict[str, list[Any]]:
    block = converse_input().members["messages"].member.members["content"].member
    by_assistant = ("toolUse", "reasoningContent", "citationsContent")
    return {
        name: [
            {
                "role": "assistant" if name in by_assistant else "user",
                "content": [{name: _bedrock_sample(member, name, full)}],
            }
        ]
        for name, member in block.members.items()
    }


def replies(provider: str) -> dict[str, Any]:
    """Return what a provider may answer: messages, or Responses items, by the type's name."""
    if provider == "openai":
        return {"message": _of_model(ChatCompletionMessage)}
    if provider == "openai_responses":
        return {model.__name__: _of_model(model) for model in _models(ResponseOutputItem)}
    return {
        model.__name__: {"role": "assistant", "content": [_of_model(model)]}
        for model in _models(BetaContentBlock)
    }


def _models(union: Any) -> list[Any]:
    if typing.get_origin(union) is typing.Annotated:
        return _models(typing.get_args(union)[0])
    return list(typing.get_args(union))


def _of_model(model: Any) -> dict[str, Any]:
    """All fields of a reply's model, by the names that the provider gives them."""
    return {
        field.alias or name: sample(field.annotation, name, full=True)
        for name, field in model.model_fields.items()
    }


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel)


def _types_within(hint: Any) -> dict[str, Any]:
    """Return the members of the unions anywhere within a type."""
    if typing_extensions.is_typeddict(hint):
        return dict.fromkeys(tags_of(hint), hint)
    found: dict[str, Any] = {}
    for arg in typing.get_args(hint):
        found |= _types_within(arg)
    return found


def sample(kind: Any, key: str = "", *, full: bool = False) -> Any:
    """Make a value of a request type.

    Args:
        kind: the type, such as a TypedDict of an SDK.
        key: the key that it is for.
        full: with all optional keys, too.
    """
    if typing_extensions.is_typeddict(kind):
        return {
            name: sample(hint, name, full=full)
            for name, hint in hints_of(kind).items()
            if full or typing.get_origin(hint) is typing_extensions.Required
        }
    if _is_model(kind):
        return _of_model(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return args[0]
    if origin in (typing_extensions.Required, typing_extensions.NotRequired, typing.Annotated):
        return sample(args[0], key, full=full)
    if origin in (typing.Union, types.UnionType):
        # The unions of requests list models of replies too; those of replies list nothing else.
        known = [each for each in members_of(kind) if each is not type(None)]
        return _sample_of_union(known or _members(kind), key, full)
    if origin is dict:
        return {}
    if origin is not None:
        return [sample(args[0], key, full=full)]
    made = {str: _SPECIAL.get(key, f"the {key}"), int: 1, float: 0.5, bool: True, object: "x"}
    return made.get(kind, "x")


def _members(union: Any) -> list[Any]:
    """Return the members of a union of replies, nested unions opened."""
    origin, args = typing.get_origin(union), typing.get_args(union)
    if origin is typing.Annotated:
        return _members(args[0])
    if origin in (typing.Union, types.UnionType):
        return [member for arg in args for member in _members(arg)]
    return [union]


def _sample_of_union(members: list[Any], key: str, full: bool) -> Any:
    """Of the members the one that says most: no error, and a dict before a list before a text."""

    def richness(member: Any) -> tuple[bool, int]:
        if typing_extensions.is_typeddict(member):
            return "Error" not in member.__name__, 2 + len(hints_of(member))
        if _is_model(member):
            return "Error" not in member.__name__, 2 + len(member.model_fields)
        return True, 1 if typing.get_origin(member) not in (None, typing.Literal) else 0

    known = [member for member in members if member is not type(None)]
    return sample(max(known, key=richness), key, full=full)


def _bedrock_sample(shape: Any, key: str, full: bool) -> Any:
    match shape.type_name:
        case "structure":
            if getattr(shape, "is_document_type", False):
                return {"q": f"the {key}"}
            names = list(shape.members) if full else list(shape.required_members)
            if shape.metadata.get("union"):
                names = names[:1] or list(shape.members)[:1]
            return {name: _bedrock_sample(shape.members[name], name, full) for name in names}
        case "list":
            return [_bedrock_sample(shape.member, key, full)]
        case "string" if shape.enum:
            return shape.enum[0]
        case "string":
            return _SPECIAL.get(key, f"the {key}")
        case "blob":
            return b"\x89PNG"
        case "boolean":
            return True
        case _:
            return 1
