"""OpenAI Responses: a list of items, each of which becomes one message.

A message item keeps its role and content; any other item (``function_call``, ``reasoning``,
``function_call_output``, …) lies whole in ``extra`` beside a content of None.
Source: https://platform.openai.com/docs/api-reference/responses/create (the ``input`` parameter).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from agent_memory.frozen import thaw
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers.media import Media, from_url
from agent_memory.providers.part import (
    RESPONSES,
    Block,
    Part,
    as_dict,
    as_id,
    as_list,
    as_text,
    joined,
    to_json,
)
from agent_memory.providers.plain import load_each, load_message

_HOSTED_CALLS: Final = frozenset({
    "file_search_call",
    "web_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "program",
})  # fmt: skip
_HOSTED_OUTPUTS: Final = frozenset({"program_output"})
_ROLES: Final = frozenset(role.value for role in ParticipantRole)
_FAILED: Final = frozenset({"failed", "incomplete"})


def from_openai_responses(items: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Responses items, one of each: dicts or the SDK's objects.

    Calls and reasoning get the role assistant, outputs the role tool.
    :func:`agent_memory.providers.to_openai_responses` gives exactly the same dicts back.

    Raises:
        InvalidRequestError: an item is none; the text names it.
    """
    return load_each(items, _load)


def _load(item: Block) -> ConversationMessage:
    kind = item.get("type")
    if not isinstance(kind, str) or kind == "message":
        return load_message(item)
    return ConversationMessage(_role_of(item, kind), None, extra=item)


def _role_of(item: Block, kind: str) -> str:
    role = item.get("role")
    if isinstance(role, str) and role in _ROLES:
        return role
    return "tool" if _is_output(kind) and kind not in _HOSTED_OUTPUTS else "assistant"


def _is_output(kind: str) -> bool:
    return kind.endswith("_output") or kind == "mcp_approval_response"


def _is_call(kind: str) -> bool:
    return kind.endswith("_call") or kind in ("mcp_approval_request", "program")


def item_of(message: ConversationMessage) -> Block | None:
    """The item that a message keeps whole in ``extra``, or None when it is no such message."""
    if message.content is not None:
        return None
    kind = message.extra.get("type")
    return as_dict(message.extra) if isinstance(kind, str) and kind != "message" else None


def dump_item(item: Block) -> Block:
    """The item as a plain, editable dict."""
    plain: Block = thaw(item)
    return plain


def read_item(item: Block) -> Part:
    """What an item (or a block that looks like one) says."""
    kind = as_text(item.get("type"))
    if kind == "reasoning":
        return _read_reasoning(item)
    if _is_output(kind):
        return _read_output(item, kind)
    if _is_call(kind):
        return _read_call(item, kind)
    return Part("other", as_text(item.get("text")), name=kind, raw=item, forms=RESPONSES)


def _read_reasoning(item: Block) -> Part:
    texts = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    said = [as_text((as_dict(text) or {}).get("text")) for text in texts]
    text = "\n".join(line for line in said if line)
    return Part("reasoning", text, payload=item, raw=item, forms=RESPONSES)


def _read_call(item: Block, kind: str) -> Part:
    given = next((item[key] for key in ("arguments", "input", "action") if key in item), None)
    hosted = kind in _HOSTED_CALLS or item.get("execution") == "server"
    # An approval request has no call_id: its answer names its id.
    call_id = as_id(item.get("call_id")) or as_id(item.get("id"))
    name = as_id(item.get("name")) or kind.removesuffix("_call")
    return Part(
        "call", id=call_id, name=name, payload=given, hosted=hosted, raw=item, forms=RESPONSES
    )


def _read_output(item: Block, kind: str) -> Part:
    call_id = as_id(item.get("call_id")) or as_id(item.get("approval_request_id"))
    if kind == "local_shell_call_output":
        call_id = call_id or as_id(item.get("id"))
    given = item.get("output", item.get("result"))
    inner = tuple(_read_inner(block) for block in as_list(given))
    screenshot = as_dict(given)
    if screenshot is not None:
        inner = (_read_inner(screenshot),)
    text = given if isinstance(given, str) else joined(inner)
    return Part(
        "result",
        text,
        id=call_id,
        name=as_id(item.get("name")),
        payload=given,
        is_error=as_id(item.get("status")) in _FAILED,
        hosted=kind in _HOSTED_OUTPUTS or item.get("execution") == "server",
        inner=inner,
        raw=item,
        forms=RESPONSES,
    )


def _read_inner(block: object) -> Part:
    found = as_dict(block)
    kind = as_text(found.get("type")) if found else ""
    reader = READERS.get(kind)
    if found is None or reader is None:
        return Part("other", name=kind or None, raw=block, forms=RESPONSES)
    return reader(found)


def _read_text(block: Block) -> Part:
    return Part("text", as_text(block.get("text")), raw=block, forms=RESPONSES)


def _media_reader(name: str) -> Callable[[Block], Part]:
    def read(block: Block) -> Part:
        return Part("media", name=name, payload=block, raw=block, forms=RESPONSES)

    return read


READERS: Final[Mapping[str, Callable[[Block], Part]]] = {
    "input_text": _read_text,
    "output_text": _read_text,
    "summary_text": _read_text,
    "input_image": _media_reader("image"),
    "computer_screenshot": _media_reader("image"),
    "input_file": _media_reader("document"),
}
"""Blocks within a message item or an output."""


def media_of(block: Block) -> Media | None:
    """What a media block of a Responses message holds."""
    file_id, name = as_id(block.get("file_id")), as_id(block.get("filename"))
    if block.get("type") == "input_file":
        if file_id is not None:
            return Media("document", file_id=file_id, name=name)
        return from_url("document", block.get("file_data") or block.get("file_url"), name=name)
    if file_id is not None:
        return Media("image", file_id=file_id)
    return from_url("image", block.get("image_url"))


def write_media(media: Media) -> Block | None:
    """A content block for it; None when Responses has none."""
    url = media.data_url
    if media.kind == "image" and media.file_id is not None:
        return {"type": "input_image", "file_id": media.file_id, "detail": "auto"}
    if media.kind == "image" and url is not None:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if media.kind != "document":
        return None
    if media.text is not None:
        return {"type": "input_text", "text": media.text}
    if media.data is None:
        return None if url is None else {"type": "input_file", "file_url": url}
    name = media.name or f"document.{media.format or 'bin'}"
    return {"type": "input_file", "filename": name, "file_data": url}


def write_text(text: str, role: ParticipantRole) -> Block:
    """A text block; what the assistant said has a type of its own."""
    if role is ParticipantRole.ASSISTANT:
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def write_call(call: Part) -> Block:
    """A ``function_call`` item."""
    given = call.payload
    arguments = given if isinstance(given, str) else to_json({} if given is None else given)
    return {
        "type": "function_call",
        "call_id": call.id or "",
        "name": call.name or "unknown",
        "arguments": arguments,
    }


def write_result(result: Part, inner: list[Block]) -> Block:
    """A ``function_call_output`` item; `inner` is its content when that holds media."""
    has_media = any(part.kind == "media" for part in result.inner)
    output = inner if has_media else result.text
    return {"type": "function_call_output", "call_id": result.id or "", "output": output}
