"""Tool results without what a provider refuses inside them."""

from __future__ import annotations

from typing import Any, Final

import attrs

from agent_memory.providers.part import (
    Block,
    Part,
    Shape,
    as_dict,
    as_list,
    as_text,
    is_blank,
    to_json,
)

_EMPTY: Final[tuple[Any, ...]] = (None, [])


def cleaned(result: Part, shape: Shape) -> Part:
    """A result that a provider accepts; the same object when it accepts this one.

    Anthropic and Bedrock refuse text blocks without text, and Bedrock takes only objects as
    JSON (https://docs.aws.amazon.com/bedrock/latest/APIReference/
    API_runtime_ToolResultContentBlock.html). OpenAI wants a text or at least one block.
    """
    if shape not in result.forms:
        return _foreign(result)
    match shape:
        case "openai_chat":
            return attrs.evolve(result, raw="") if result.raw in _EMPTY else result
        case "openai_responses":
            return _item(result)
        case "anthropic":
            return _anthropic(result)
        case "bedrock":
            return _bedrock(result)


def _foreign(result: Part) -> Part:
    """What conversion will write; blank text is left out of it."""
    inner = tuple(part for part in result.inner if not is_blank(part))
    text = result.text if result.text.strip() else ""
    return attrs.evolve(result, inner=inner, text=text)


def _item(result: Part) -> Part:
    item = as_dict(result.raw)
    if item is None or "output" not in item or item["output"] not in _EMPTY:
        return result
    return attrs.evolve(result, raw={**item, "output": ""})


def _anthropic(result: Part) -> Part:
    content, block = result.payload, as_dict(result.raw)
    if block is None:
        return result
    if isinstance(content, str):
        blank = bool(content) and not content.strip()
        return attrs.evolve(result, raw={**block, "content": ""}) if blank else result
    kept = [item for item in as_list(content) if not _is_blank_block(item)]
    if len(kept) == len(as_list(content)):
        return result
    return attrs.evolve(result, raw={**block, "content": kept})


def _bedrock(result: Part) -> Part:
    block = as_dict(result.raw)
    body = as_dict(block.get("toolResult")) if block is not None else None
    if block is None or body is None or not refused(result, "bedrock"):
        return result
    kept = [_as_object(item) for item in as_list(result.payload) if not _is_blank_block(item)]
    kept = [item for item in kept if not _is_blank_block(item)]
    return attrs.evolve(result, raw={**block, "toolResult": {**body, "content": kept}})


def _as_object(item: Any) -> Any:
    block = as_dict(item)
    if block is None or "json" not in block or isinstance(block["json"], dict):
        return item
    text: Block = {"text": to_json(block["json"])}
    return text


def _is_blank_block(item: object) -> bool:
    block = as_dict(item)
    if block is None or block.get("type", "text") != "text" or "text" not in block:
        return False
    return not as_text(block["text"]).strip()


def refused(result: Part, shape: Shape) -> str | None:
    """What a provider refuses inside a result that is in its form; None when nothing."""
    content = result.payload
    if shape in ("openai_chat", "openai_responses"):
        has_output = shape == "openai_chat" or "output" in (as_dict(result.raw) or {})
        return "has no content" if has_output and content in _EMPTY else None
    if isinstance(content, str) and content and not content.strip():
        return "is blank text"
    for item in as_list(content):
        block = as_dict(item)
        if _is_blank_block(item):
            return "holds a blank text block"
        if (
            shape == "bedrock"
            and block
            and "json" in block
            and not isinstance(block["json"], dict)
        ):
            return "holds JSON that is no object"
    return None
