"""Amazon Bedrock Converse: blocks with one key that says what they are.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_memory.messages import ParticipantRole
from agent_memory.providers.format import (
    EVERYONE,
    NO_OUTPUT,
    BlockReader,
    Format,
    RuleSources,
    TextReader,
    arguments_of,
    arrange_blocks,
    is_blank_block,
    media_reader,
    safe_id,
)
from agent_memory.providers.media import Media, MediaKind, decoded, mime_of
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
    to_json,
)

_USER: Final = ParticipantRole.USER
_BEDROCK: Final = frozenset[FormatName]({"bedrock"})
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
"""The documented pattern has no dot and no colon, but models make such ids, and they are taken."""
_MEDIA: Final[tuple[MediaKind, ...]] = ("image", "document", "audio", "video")
_FORMATS: Final[Mapping[str, frozenset[str]]] = {
    "image": frozenset({"png", "jpeg", "gif", "webp"}),
    "document": frozenset(
        {"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"}
    ),
}  # fmt: skip


def _read_call(block: Block) -> Part:
    use = as_dict(block.get("toolUse")) or {}
    return Part(
        "call",
        id=as_id(use.get("toolUseId")),
        name=as_id(use.get("name")),
        payload=use.get("input"),
        # Some models write a type on the application's calls too: "tool_use".
        hosted=use.get("type") == "server_tool_use",
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
        hosted=result.get("type") not in (None, "tool_result"),
        inner=inner,
    )


def _read_inner(item: object) -> Part:
    block = as_dict(item)
    part = None
    if block is not None and "json" in block:
        part = Part("text", to_json(block["json"]))
    elif block is not None and "toolResult" not in block:
        reader = next((_BLOCKS[key] for key in block if key in _BLOCKS), None)
        part = None if reader is None else reader(block)
    part = part or Part("other")
    part.raw, part.forms = item, _BEDROCK
    return part


def _read_reasoning(block: Block) -> Part:
    reasoning = as_dict(block.get("reasoningContent")) or {}
    text = as_dict(reasoning.get("reasoningText")) or {}
    redacted = reasoning.get("redactedContent")
    return Part(
        "reasoning",
        as_text(text.get("text")),
        payload=block,
        signature=as_id(text.get("signature")),
        redacted=base64.b64encode(redacted).decode() if isinstance(redacted, bytes) else None,
    )


def _read_citations(block: Block) -> Part:
    cited = as_dict(block.get("citationsContent")) or {}
    said = [as_text((as_dict(item) or {}).get("text")) for item in as_list(cited.get("content"))]
    return Part("text", "".join(said))


def _read_guarded(block: Block) -> Part:
    guarded = as_dict(block.get("guardContent")) or {}
    text = as_dict(guarded.get("text"))
    if text is None:
        return Part("media", name="image", payload=block)
    return Part("text", as_text(text.get("text")))


def _read_cache_point(block: Block) -> Part:
    return Part("other", name="cachePoint", payload=block)


def _media_of(block: Block) -> Media | None:
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


_BLOCKS: Final[Mapping[str, BlockReader]] = {
    "text": TextReader(),
    "toolUse": _read_call,
    "toolResult": _read_result,
    "reasoningContent": _read_reasoning,
    "image": media_reader("image", _media_of),
    "document": media_reader("document", _media_of),
    "video": media_reader("video", _media_of),
    "audio": media_reader("audio", _media_of),
    "citationsContent": _read_citations,
    "guardContent": _read_guarded,
    "cachePoint": _read_cache_point,
}


def _write_media(media: Media) -> Block | None:
    format_name = "txt" if media.text is not None else media.format
    if format_name not in _FORMATS.get(media.kind, ()):
        return None
    if media.kind == "image" and media.data:
        return {"image": {"format": format_name, "source": {"bytes": media.data}}}
    data = media.data if media.text is None else media.text.encode("utf-8", "replace")
    if media.kind != "document" or not data:
        return None
    # Letters, digits, white space, hyphens, parentheses and brackets are what it allows.
    name = re.sub(r"[^0-9A-Za-z()\[\]-]+", " ", media.name or "").strip()[:200] or "document"
    source = {"bytes": data}
    return {"document": {"format": format_name, "name": name, "source": source}}


def _write_text(text: str, _role: ParticipantRole) -> Block:
    return {"text": text}


def _write_call(call: Part) -> Block:
    name = call.name or "unknown"
    return {"toolUse": {"toolUseId": safe_id(call.id), "name": name, "input": arguments_of(call)}}


def _write_result(result: Part, inner: list[Block]) -> Block:
    has_media = any(part.kind == "media" for part in result.inner)
    text = [{"text": result.text}] if result.text.strip() else []
    content = inner if has_media else text
    if result.is_error and not content:
        content = [{"text": NO_OUTPUT}]
    body: Block = {"toolUseId": safe_id(result.id), "content": content}
    return {"toolResult": {**body, "status": "error"} if result.is_error else body}


def _write_reasoning(reasoning: Part) -> Block | None:
    """A ``reasoningContent`` block from Anthropic's; None for what no Claude signed."""
    data = decoded(reasoning.redacted)
    if data is not None:
        return {"reasoningContent": {"redactedContent": data}}
    if reasoning.signature is None:
        return None
    said = {"text": reasoning.text, "signature": reasoning.signature}
    return {"reasoningContent": {"reasoningText": said}}


def _with_id(part: Part, call_id: str) -> Any:
    block = as_dict(part.raw) or {}
    key = "toolResult" if part.kind == "result" else "toolUse"
    return {**block, key: {**(as_dict(block.get(key)) or {}), "toolUseId": call_id}}


def _refuses_blank(part: Part, held: tuple[Part, ...]) -> str | None:
    """Empty text is refused, white space only where nothing else is said."""
    if part.kind != "text" or part.text.strip():
        return None
    if not part.text:
        return "a text block is empty"
    alone = all(is_blank(other) for other in held)
    return "nothing but white space is said" if alone else None


def _check_result(result: Part) -> tuple[str, Any] | None:
    # Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/
    # API_runtime_ToolResultContentBlock.html.
    problem = None
    if result.is_error and not result.payload:
        problem = "is an error without content"
    kept: list[Any] = []
    for item in as_list(result.payload):
        block = as_dict(item)
        if is_blank_block(item):
            problem = problem or "holds a blank text block"
        elif block and "json" in block and not isinstance(block["json"], dict):
            problem = problem or "holds JSON that is no object"
            kept.append({"text": to_json(block["json"])})
        else:
            kept.append(item)
    if problem is None:
        return None
    if result.is_error and not kept:
        kept = [{"text": NO_OUTPUT}]
    raw = as_dict(result.raw) or {}
    body = as_dict(raw.get("toolResult")) or {}
    return problem, {**raw, "toolResult": {**body, "content": kept}}


def _required_text(held: Sequence[Part]) -> str | None:
    """A message with documents has to hold text too; else the name of the first of them.

    Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html,
    "content": "If you include a ContentBlock with a document field in the array, you must also
    include a ContentBlock with a text field."
    """
    if any(part.kind == "text" and part.text for part in held):
        return None
    for part in held:
        block = FORMAT.block_for(part, _USER) if part.kind == "media" else None
        document = as_dict(block.get("document")) if isinstance(block, dict) else None
        if document is not None:
            return f"(Document: {as_text(document.get('name')) or 'document'})"
    return None


_AWS: Final = "https://docs.aws.amazon.com/bedrock/latest/"

FORMAT: Final = Format(
    name="bedrock",
    blocks={},
    untyped=_BLOCKS,
    takes_strings=False,
    write_text=_write_text,
    write_media=_write_media,
    write_call=_write_call,
    write_result=_write_result,
    write_reasoning=_write_reasoning,
    media_roles=EVERYONE,
    arrange=arrange_blocks,
    with_id=_with_id,
    sources=RuleSources(
        messages=_AWS + "userguide/conversation-inference-call.html",
        tools=_AWS + "userguide/tool-use-inference-call.html",
        reasoning="https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking",
        content=_AWS + "APIReference/API_runtime_ContentBlock.html",
    ),
    merges=True,
    alternates=True,
    user_first=True,
    system_apart=True,
    later_system=False,
    marks_errors=True,
    refuses_blank=_refuses_blank,
    call_id=_CALL_ID,
    check_result=_check_result,
    required_text=_required_text,
)
