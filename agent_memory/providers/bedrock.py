"""Amazon Bedrock Converse: blocks with one key that says what they are.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from agent_memory.messages import ConversationMessage
from agent_memory.providers.anthropic import arguments_of, safe_id
from agent_memory.providers.media import Media, MediaKind, decoded, mime_of
from agent_memory.providers.part import (
    BEDROCK,
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

_MEDIA: Final[tuple[MediaKind, ...]] = ("image", "document", "audio", "video")
_FORMATS: Final[Mapping[str, frozenset[str]]] = {
    "image": frozenset({"png", "jpeg", "gif", "webp"}),
    "document": frozenset(
        {"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"}
    ),
}  # fmt: skip


def from_bedrock(messages: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Converse messages, ``response["output"]["message"]`` among them.

    :func:`agent_memory.providers.to_bedrock` gives exactly the same dicts back, bytes as bytes.

    Raises:
        InvalidRequestError: an item is no message; the text names it.
    """
    return load_each(messages, load_message)


def _read_text(block: Block) -> Part:
    return Part("text", as_text(block.get("text")), raw=block, forms=BEDROCK)


def _read_call(block: Block) -> Part:
    use = as_dict(block.get("toolUse")) or {}
    return Part(
        "call",
        id=as_id(use.get("toolUseId")),
        name=as_id(use.get("name")),
        payload=use.get("input"),
        hosted=use.get("type") is not None,  # "server_tool_use"; the application's have no type
        raw=block,
        forms=BEDROCK,
    )


def _read_result(block: Block) -> Part:
    result = as_dict(block.get("toolResult")) or {}
    content = result.get("content")
    inner = tuple(_read_inner(item) for item in as_list(content))
    return Part(
        "result",
        content if isinstance(content, str) else joined(inner),
        id=as_id(result.get("toolUseId")),
        payload=content,
        is_error=result.get("status") == "error",
        hosted=result.get("type") is not None,
        inner=inner,
        raw=block,
        forms=BEDROCK,
    )


def _read_inner(item: object) -> Part:
    block = as_dict(item)
    if block is not None and "json" in block:
        return Part("text", to_json(block["json"]), raw=block, forms=BEDROCK)
    if block is None or "toolResult" in block:
        return Part("other", raw=item, forms=BEDROCK)
    return read_block(block) or Part("other", raw=block, forms=BEDROCK)


def _read_reasoning(block: Block) -> Part:
    reasoning = as_dict(block.get("reasoningContent")) or {}
    text = as_dict(reasoning.get("reasoningText")) or {}
    said = as_text(text.get("text"))
    return Part("reasoning", said, payload=block, raw=block, forms=BEDROCK)


def _read_citations(block: Block) -> Part:
    cited = as_dict(block.get("citationsContent")) or {}
    said = [as_text((as_dict(item) or {}).get("text")) for item in as_list(cited.get("content"))]
    return Part("text", "".join(said), raw=block, forms=BEDROCK)


def _read_guarded(block: Block) -> Part:
    guarded = as_dict(block.get("guardContent")) or {}
    text = as_dict(guarded.get("text"))
    if text is None:
        return Part("media", name="image", payload=block, raw=block, forms=BEDROCK)
    return Part("text", as_text(text.get("text")), raw=block, forms=BEDROCK)


def _media_reader(name: str) -> Callable[[Block], Part]:
    def read(block: Block) -> Part:
        return Part("media", name=name, payload=block, raw=block, forms=BEDROCK)

    return read


def _read_cache_point(block: Block) -> Part:
    return Part("other", name="cachePoint", payload=block, raw=block, forms=BEDROCK)


READERS: Final[Mapping[str, Callable[[Block], Part]]] = {
    "text": _read_text,
    "toolUse": _read_call,
    "toolResult": _read_result,
    "reasoningContent": _read_reasoning,
    "image": _media_reader("image"),
    "document": _media_reader("document"),
    "video": _media_reader("video"),
    "audio": _media_reader("audio"),
    "citationsContent": _read_citations,
    "guardContent": _read_guarded,
    "cachePoint": _read_cache_point,
}


def read_block(block: Block) -> Part | None:
    """What a block without a type says; None when it is not one of Bedrock's."""
    for key in block:
        reader = READERS.get(key)
        if reader is not None:
            return reader(block)
    return None


def media_of(block: Block) -> Media | None:
    """What an image, document, audio or video block holds."""
    for kind in _MEDIA:
        body = as_dict(block.get(kind))
        if body is not None:
            return _media(kind, body)
    return None


def _media(kind: MediaKind, body: Block) -> Media | None:
    source = as_dict(body.get("source")) or {}
    name = as_id(body.get("name"))
    data, text = source.get("bytes"), source.get("text")
    mime = mime_of(body.get("format")) or f"{kind}/{as_text(body.get('format'))}"
    if isinstance(data, bytes):
        return Media(kind, mime, data, name=name)
    if isinstance(text, str):
        return Media(kind, mime, text=text, name=name)
    return None


def write_media(media: Media) -> Block | None:
    """An image or document block; None when Converse has none for it."""
    if media.format not in _FORMATS.get(media.kind, ()):
        return None
    if media.kind == "image" and media.data is not None:
        return {"image": {"format": media.format, "source": {"bytes": media.data}}}
    data = media.data if media.text is None else media.text.encode("utf-8", "replace")
    if media.kind != "document" or data is None:
        return None
    # Letters, digits, white space, hyphens, parentheses and brackets are what it allows.
    name = re.sub(r"[^0-9A-Za-z()\[\]-]+", " ", media.name or "").strip() or "document"
    source = {"bytes": data}
    return {"document": {"format": media.format, "name": name, "source": source}}


def write_text(text: str) -> Block:
    """A text block."""
    return {"text": text}


def write_call(call: Part) -> Block:
    """A ``toolUse`` block."""
    name = call.name or "unknown"
    return {"toolUse": {"toolUseId": safe_id(call.id), "name": name, "input": arguments_of(call)}}


def write_result(result: Part, inner: list[Block]) -> Block:
    """A ``toolResult`` block; `inner` is its content when that holds media."""
    has_media = any(part.kind == "media" for part in result.inner)
    text = [write_text(result.text)] if result.text.strip() else []
    body: Block = {"toolUseId": safe_id(result.id), "content": inner if has_media else text}
    return {"toolResult": {**body, "status": "error"} if result.is_error else body}


def write_reasoning(reasoning: Part) -> Block | None:
    """A ``reasoningContent`` block from Anthropic's; None for what no Claude signed."""
    block = as_dict(reasoning.raw) or {}
    data, signature = decoded(block.get("data")), as_id(block.get("signature"))
    if block.get("type") == "redacted_thinking" and data is not None:
        return {"reasoningContent": {"redactedContent": data}}
    if block.get("type") != "thinking" or signature is None:
        return None
    said = {"text": reasoning.text, "signature": signature}
    return {"reasoningContent": {"reasoningText": said}}
