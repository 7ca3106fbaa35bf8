"""Anthropic Messages: everything is a typed block of the content.

Source: https://docs.anthropic.com/en/api/messages and
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_memory.messages import ConversationMessage, ParticipantRole, Usage
from agent_memory.providers.format import (
    NO_OUTPUT,
    SAFE_ID,
    USERS,
    BlockReader,
    Format,
    RuleSources,
    TextReader,
    arguments_of,
    arrange_blocks,
    is_blank_block,
    media_reader,
    read_block,
    safe_id,
)
from agent_memory.providers.media import Media, MediaKind, decoded
from agent_memory.providers.part import (
    Block,
    FormatName,
    Part,
    as_dict,
    as_id,
    as_list,
    as_text,
    is_blank,
    joined,
    readable,
    without,
)

_ANTHROPIC: Final = frozenset[FormatName]({"anthropic"})
_HOSTED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
HOSTED_RESULT: Final = "_tool_result"
"""How the types of hosted tools' results end, of tools newer than this library too."""
# Source: https://docs.anthropic.com/en/docs/build-with-claude/vision.
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def _load(plain: Block, given: object) -> ConversationMessage | None:
    if isinstance(given, Mapping) or plain.get("type") != "message" or "role" not in plain:
        return None
    # A reply: what may be sent back is role and content.
    usage = usage_of(plain.get("usage"))
    return ConversationMessage(plain["role"], plain.get("content"), usage=usage)


def usage_of(reported: object) -> Usage | None:
    """Return what Anthropic reports of a reply; None where it reports nothing."""
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
    )


def read_result(block: Block) -> Part:
    """``tool_result``, and the blocks of type `HOSTED_RESULT` of the tools that Anthropic runs."""
    content = block.get("content")
    hosted = block.get("type") != "tool_result"
    held = as_dict(content)
    inner = tuple(_read_inner(item) for item in as_list(content))
    if hosted and held is not None:
        inner = tuple(_read_inner(item) for item in _fetched(held))
    text = content if isinstance(content, str) else joined(inner)
    if hosted and not text and not isinstance(content, str):
        text = readable(content)
    return Part(
        "result",
        text,
        id=as_id(block.get("tool_use_id")),
        payload=content,
        is_error=block.get("is_error") is True
        or as_text((held or {}).get("type")).endswith("_error"),
        hosted=hosted,
        inner=inner,
    )


def _fetched(result: Block) -> list[Any]:
    """The document that ``web_fetch`` brought: its address, then text or a file."""
    document = as_dict(result.get("content"))
    if document is None:
        return []
    source = as_dict(document.get("source")) or {}
    if source.get("type") != "text":
        return [document]
    said = [
        as_text(result.get("url")),
        as_text(document.get("title")),
        as_text(source.get("data")),
    ]
    return [{"type": "text", "text": text} for text in said if text]


def _read_inner(item: object) -> Part:
    return read_block(_INNER, _ANTHROPIC, item)


def _read_thinking(block: Block) -> Part:
    return Part(
        "reasoning",
        as_text(block.get("thinking")),
        payload=block,
        signature=as_id(block.get("signature")),
        redacted=as_id(block.get("data")),
    )


def _read_search_result(block: Block) -> Part:
    said = [as_text((as_dict(item) or {}).get("text")) for item in as_list(block.get("content"))]
    return Part("text", "\n".join(filter(None, said)))


def _read_compaction(block: Block) -> Part:
    """The API's own summary of what came before; where it has no text only Claude can read it."""
    text = block.get("content")
    if isinstance(text, str) and text.strip():
        return Part("text", text, name="compaction")
    return Part("other", name="compaction", opaque=True)


def _read_state(block: Block) -> Part:
    """Instructions to the API, which say nothing to anybody else."""
    name = as_text(block.get("type"))
    return Part("other", name=name, payload=block)


def _media_of(block: Block) -> Media | None:
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


_BLOCKS: Final[Mapping[str, BlockReader]] = {
    # Chat Completions writes text in the same way; this key is OpenAI's.
    "text": TextReader(frozenset({"prompt_cache_breakpoint"})),
    "tool_use": _read_call,
    "server_tool_use": _read_call,
    "mcp_tool_use": _read_call,
    "tool_result": read_result,
    "thinking": _read_thinking,
    "redacted_thinking": _read_thinking,
    "image": media_reader("image", _media_of),
    "document": media_reader("document", _media_of),
    "container_upload": media_reader("document", _media_of),
    "search_result": _read_search_result,
    "compaction": _read_compaction,
    "tool_addition": _read_state,
    "tool_removal": _read_state,
    "tool_reference": _read_state,
    "browser_state": _read_state,
    "mcp_tool_listing": _read_state,
    "fallback": _read_state,
}
# A result holds no results; a history from elsewhere that nests them would recurse without end.
_INNER: Final = {kind: reader for kind, reader in _BLOCKS.items() if kind != "tool_result"}


def _write_media(media: Media) -> Block | None:
    source = _source_of(media)
    if source is None:
        return None
    titled = {"title": media.name} if media.name and media.kind == "document" else {}
    return {"type": media.kind, "source": source, **titled}


def _source_of(media: Media) -> Block | None:
    """Pictures in four formats, PDFs, and documents that are plain text."""
    if media.kind not in ("image", "document"):
        return None
    if media.kind == "document" and media.as_text is not None:
        return {"type": "text", "media_type": "text/plain", "data": media.as_text}
    if media.data is not None:
        known = _IMAGES if media.kind == "image" else ("application/pdf",)
        if media.mime not in known:
            return None
        return {"type": "base64", "media_type": media.mime, "data": media.base64}
    return None if media.url is None else {"type": "url", "url": media.url}


def _write_text(text: str, _role: ParticipantRole) -> Block:
    return {"type": "text", "text": text}


def _write_call(call: Part) -> Block:
    return {
        "type": "tool_use",
        "id": safe_id(call.id),
        "name": call.name or "unknown",
        "input": arguments_of(call),
    }


def _write_result(result: Part, inner: list[Block]) -> Block:
    has_media = any(part.kind == "media" for part in result.inner)
    # "text content blocks must contain non-whitespace text": an empty string is accepted.
    content = inner if has_media else result.text if result.text.strip() else ""
    if result.is_error and not content:
        content = NO_OUTPUT
    block = {"type": "tool_result", "tool_use_id": safe_id(result.id), "content": content}
    return {**block, "is_error": True} if result.is_error else block


def _write_reasoning(reasoning: Part) -> Block | None:
    """A thinking block from Bedrock's; None for reasoning that no Claude signed.

    Signatures are valid on all platforms:
    https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking.
    """
    if reasoning.redacted is not None:
        return {"type": "redacted_thinking", "data": reasoning.redacted}
    if reasoning.signature is None:
        return None
    return {"type": "thinking", "thinking": reasoning.text, "signature": reasoning.signature}


def _with_id(part: Part, call_id: str) -> Any:
    key = "tool_use_id" if part.kind == "result" else "id"
    return {**(as_dict(part.raw) or {}), key: call_id}


def _refuses_blank(part: Part, _held: tuple[Part, ...]) -> str | None:
    return "a text block holds nothing but white space" if is_blank(part) else None


def _check_result(result: Part) -> tuple[str, Any] | None:
    content = result.payload
    kept: Any = ""
    if result.is_error and not content:
        problem = "is an error without content"
    elif isinstance(content, str):
        if not content or content.strip():
            return None
        problem = "is blank text"
    else:
        kept = [item for item in as_list(content) if not is_blank_block(item)]
        if len(kept) == len(as_list(content)):
            return None
        problem = "holds a blank text block"
    if result.is_error and not kept:
        kept = NO_OUTPUT
    return problem, {**(as_dict(result.raw) or {}), "content": kept}


def _trim(message: Block, _owner: FormatName | None) -> Block:
    """A message without what only a reply has, such as ``stop_reason``.

    Source for citations: ``CitationPageLocation`` against ``CitationPageLocationParam`` in the
    SDK, and the other places in documents likewise.
    """
    trimmed = {key: value for key, value in message.items() if key not in FORMAT.reply_fields}
    return _with_trimmed_citations(trimmed)


def _with_trimmed_citations(holder: Block) -> Block:
    """A message, or a result in it, whose texts cite documents without the ``file_id``."""
    blocks = as_list(holder.get("content"))
    return {**holder, "content": [_cited(block) for block in blocks]} if blocks else holder


def _cited(item: Any) -> Any:
    block = as_dict(item)
    if block is None:
        return item
    citations = as_list(block.get("citations"))
    if citations:
        return {**block, "citations": [without(each, "file_id") for each in citations]}
    return _with_trimmed_citations(block)


_DOCS: Final = "https://docs.anthropic.com/en/"
_MESSAGES: Final = _DOCS + "api/messages"

FORMAT: Final = Format(
    name="anthropic",
    blocks=_BLOCKS,
    load=_load,
    request_fields=frozenset({"clear_at", "output_config"}),
    reply_fields=frozenset(
        {
            *("id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage"),
            *("container", "context_management", "diagnostics"),
        }
    ),
    write_text=_write_text,
    write_media=_write_media,
    write_call=_write_call,
    write_result=_write_result,
    write_reasoning=_write_reasoning,
    media_roles=USERS,
    arrange=arrange_blocks,
    with_id=_with_id,
    trim=_trim,
    sources=RuleSources(
        messages=_MESSAGES,
        tools=_DOCS + "docs/agents-and-tools/tool-use/implement-tool-use",
        reasoning=_DOCS + "docs/build-with-claude/extended-thinking",
        content=_MESSAGES,
    ),
    merges=True,
    user_first=True,
    system_apart=True,
    signs_reasoning=True,
    marks_errors=True,
    refuses_blank=_refuses_blank,
    call_id=SAFE_ID,
    check_result=_check_result,
)
