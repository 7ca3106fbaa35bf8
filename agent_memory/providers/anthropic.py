"""Anthropic Messages: everything is a typed block of the content.

Source: https://docs.anthropic.com/en/api/messages and
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from agent_memory.messages import ConversationMessage, Usage
from agent_memory.providers.media import Media, MediaKind, decoded
from agent_memory.providers.openai_chat import read_text
from agent_memory.providers.part import (
    ANTHROPIC,
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

_HOSTED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def from_anthropic(messages: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Messages API messages: dicts or the SDK's objects.

    Dicts are kept exactly: :func:`agent_memory.providers.to_anthropic` gives them back. An SDK's
    ``Message`` (a reply) is reduced to what may be sent back, role and content, and its usage
    becomes ``message.usage``; a dict whose content is ``reply.content`` is fine too.

    Raises:
        InvalidRequestError: an item is no message; the text names it.
    """
    return load_each(messages, load_message, load_object=_load_reply)


def _load_reply(plain: Block) -> ConversationMessage:
    message = load_message(plain)
    if message.extra.get("type") != "message":
        return message
    return attrs.evolve(message, extra={}, usage=_usage(message.extra.get("usage")))


def _usage(reported: object) -> Usage | None:
    figures = as_dict(reported)
    if figures is None:
        return None

    def tokens(name: str) -> int:
        value = figures.get(name)
        return value if type(value) is int and value >= 0 else 0

    # Anthropic counts cached tokens beside the input tokens; Usage counts them in.
    cached = tokens("cache_read_input_tokens")
    made = tokens("cache_creation_input_tokens")
    return Usage(tokens("input_tokens") + cached + made, tokens("output_tokens"), cached)


def _read_call(block: Block) -> Part:
    return Part(
        "call",
        id=as_id(block.get("id")),
        name=as_id(block.get("name")),
        payload=block.get("input"),
        hosted=block.get("type") in _HOSTED_CALLS,
        raw=block,
        forms=ANTHROPIC,
    )


def read_result(block: Block) -> Part:
    """``tool_result``, and the ``…_tool_result`` blocks of the tools that Anthropic runs."""
    content = block.get("content")
    inner = tuple(_read_inner(item) for item in as_list(content))
    failed = as_dict(content) or {}
    return Part(
        "result",
        content if isinstance(content, str) else joined(inner),
        id=as_id(block.get("tool_use_id")),
        payload=content,
        is_error=block.get("is_error") is True or as_text(failed.get("type")).endswith("_error"),
        hosted=block.get("type") != "tool_result",
        inner=inner,
        raw=block,
        forms=ANTHROPIC,
    )


def _read_inner(item: object) -> Part:
    block = as_dict(item)
    kind = as_text(block.get("type")) if block else ""
    reader = READERS.get(kind)
    if block is None or reader is None or kind == "tool_result":
        return Part("other", name=kind or None, raw=item, forms=ANTHROPIC)
    return reader(block)


def _read_thinking(block: Block) -> Part:
    text = as_text(block.get("thinking"))
    return Part("reasoning", text, payload=block, raw=block, forms=ANTHROPIC)


def _media_reader(name: str) -> Callable[[Block], Part]:
    def read(block: Block) -> Part:
        return Part("media", name=name, payload=block, raw=block, forms=ANTHROPIC)

    return read


def _read_search_result(block: Block) -> Part:
    said = [as_text((as_dict(item) or {}).get("text")) for item in as_list(block.get("content"))]
    return Part("text", "\n".join(filter(None, said)), raw=block, forms=ANTHROPIC)


READERS: Final[Mapping[str, Callable[[Block], Part]]] = {
    "text": read_text,
    "tool_use": _read_call,
    "server_tool_use": _read_call,
    "mcp_tool_use": _read_call,
    "tool_result": read_result,
    "thinking": _read_thinking,
    "redacted_thinking": _read_thinking,
    "image": _media_reader("image"),
    "document": _media_reader("document"),
    "container_upload": _media_reader("document"),
    "search_result": _read_search_result,
}


def media_of(block: Block) -> Media | None:
    """What an image or document block holds."""
    source = as_dict(block.get("source")) or {}
    kind: MediaKind = "image" if block.get("type") == "image" else "document"
    name, mime = as_id(block.get("title")), as_text(source.get("media_type"))
    match source.get("type"):
        case "base64":
            data = decoded(source.get("data"))
            return None if data is None else Media(kind, mime, data, name=name)
        case "url":
            return Media(kind, mime, url=as_id(source.get("url")), name=name)
        case "file":
            return Media(kind, mime, file_id=as_id(source.get("file_id")), name=name)
        case "text":
            return Media(kind, mime, text=as_text(source.get("data")), name=name)
        case _:
            return None


def write_media(media: Media) -> Block | None:
    """An image or document block; None when Anthropic has none."""
    if media.kind not in ("image", "document"):
        return None
    if media.text is not None:
        source: Block = {"type": "text", "media_type": "text/plain", "data": media.text}
    elif media.data is not None:
        source = {"type": "base64", "media_type": media.mime, "data": media.base64}
    elif media.url is not None:
        source = {"type": "url", "url": media.url}
    else:
        return None
    titled = {"title": media.name} if media.name and media.kind == "document" else {}
    return {"type": media.kind, "source": source, **titled}


def write_text(text: str) -> Block:
    """A text block."""
    return {"type": "text", "text": text}


def write_call(call: Part) -> Block:
    """A ``tool_use`` block."""
    return {
        "type": "tool_use",
        "id": safe_id(call.id),
        "name": call.name or "unknown",
        "input": arguments_of(call),
    }


def write_result(result: Part, inner: list[Block]) -> Block:
    """A ``tool_result`` block; `inner` is its content when that holds media."""
    has_media = any(part.kind == "media" for part in result.inner)
    content = inner if has_media else result.text
    block = {"type": "tool_result", "tool_use_id": safe_id(result.id), "content": content}
    return {**block, "is_error": True} if result.is_error else block


def write_reasoning(reasoning: Part) -> Block | None:
    """A thinking block from Bedrock's; None for reasoning that no Claude signed.

    Signatures are valid on all platforms:
    https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking.
    """
    body = as_dict((as_dict(reasoning.raw) or {}).get("reasoningContent")) or {}
    redacted, said = body.get("redactedContent"), as_dict(body.get("reasoningText"))
    if isinstance(redacted, bytes):
        return {"type": "redacted_thinking", "data": base64.b64encode(redacted).decode()}
    if said is None or as_id(said.get("signature")) is None:
        return None
    return {"type": "thinking", "thinking": reasoning.text, "signature": said["signature"]}


def arguments_of(call: Part) -> Block:
    """A call's arguments as a dict; text that is no JSON object is kept under ``input``."""
    given: Any = call.payload
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        except (ValueError, RecursionError):
            return {"input": given}
    found = as_dict({} if given is None else given)
    if found is not None:
        return found
    return {"input": given if isinstance(given, str) else to_json(given)}


def safe_id(call_id: str | None) -> str:
    """A call id in the characters that Anthropic and Bedrock allow; other ids stay apart."""
    given = call_id or ""
    if _ID.fullmatch(given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', given)[:40]}_{digest}"
