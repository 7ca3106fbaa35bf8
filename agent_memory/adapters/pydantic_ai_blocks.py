"""Pydantic AI's message parts as content blocks, and back; on their dumped form, plain dicts.

What a model is shown becomes a block in Anthropic's form, which this library reads; the rest of
the part (its residue: timestamps, tool names, application metadata) is kept beside it. Nothing
is held twice, and fields that are not known here come back as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from agent_memory.providers.part import Block, as_dict, as_list, as_text

Residue: TypeAlias = dict[str, Any]

OPAQUE: Final = "pydantic_ai"
"""The type of blocks for what has no common form: a cache point, speech, a native tool's part."""

_AS_ERRORS: Final = frozenset({"failed", "retried"})  # pydantic_ai.messages.ERROR_OUTCOMES
_URLS: Final[Mapping[str, str]] = {"image-url": "image", "document-url": "document"}
_DUMPED, _STANDARD = "-_", "+/"  # pydantic writes URL-safe base64, providers take the standard one
_TO_STANDARD: Final = str.maketrans(_DUMPED, _STANDARD)
_TO_DUMPED: Final = str.maketrans(_STANDARD, _DUMPED)
_JSON_STYLES: Final[tuple[tuple[bool, bool], ...]] = tuple(
    (compact, ascii_only) for compact in (True, False) for ascii_only in (False, True)
)
"""How models write arguments: with or without blanks, with or without escapes."""


class MisfitError(ValueError):
    """The blocks are not those that the residue was left from: somebody rewrote the message."""


def blocks_of(part: Mapping[str, Any]) -> tuple[list[Block], Residue]:
    """The blocks of a dumped part (without its None fields), and what they do not hold."""
    kind, content = part["part_kind"], part.get("content")
    if kind == "tool-call" and part.get("tool_call_id"):
        return _call(part)
    if kind == "tool-return" and part.get("tool_call_id"):
        return _result(part)
    if kind == "thinking":
        return _thinking(part)
    if kind == "user-prompt" and isinstance(content, list):
        pairs = [_item(item) for item in as_list(part["content"])]
        residue = _without(part, "content")
        return [block for block, _ in pairs], {**residue, "items": [rest for _, rest in pairs]}
    if isinstance(content, str):
        return [_text(content)], _without(part, "content")
    return [{"type": OPAQUE, "part": dict(part)}], {"part_kind": kind, "opaque": True}


def span_of(residue: Residue) -> int:
    """How many blocks a part took."""
    listed = residue["part_kind"] == "user-prompt" and "items" in residue
    return len(residue["items"]) if listed else 1


def part_of(blocks: list[Block], residue: Residue) -> dict[str, Any]:
    """The dumped part again.

    Raises:
        MisfitError: the blocks are others.
    """
    rest = dict(residue)
    kind = rest["part_kind"]
    if rest.pop("opaque", False):
        return dict(_body(blocks[0], OPAQUE)["part"])
    if kind == "tool-call":
        return _call_back(blocks[0], rest)
    if kind == "tool-return":
        return _result_back(blocks[0], rest)
    if kind == "thinking":
        return _thinking_back(blocks[0], rest)
    if "items" in rest:
        pairs = zip(blocks, rest.pop("items"), strict=True)
        return {**rest, "content": [_item_back(block, left) for block, left in pairs]}
    return {**rest, "content": _body(blocks[0], "text")["text"]}


def _without(part: Mapping[str, Any], *names: str) -> Residue:
    return {name: value for name, value in part.items() if name not in names}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _body(block: Block, kind: str) -> Block:
    if block.get("type") != kind:
        raise MisfitError(f"expected a block of type {kind!r}, not {block.get('type')!r}")
    return block


# ---------------------------------------------------------------------------------- tool calls


def _call(part: Mapping[str, Any]) -> tuple[list[Block], Residue]:
    given = part.get("args")
    residue = _without(part, "args", "tool_call_id", "tool_name")
    body: Any = {} if given is None else given
    style = None
    if given is None:
        residue["args"] = None
    elif isinstance(given, str):
        body, style = _parsed(given)
        if style is not None:
            residue["args"] = list(style)
    use = {"type": "tool_use", "id": part["tool_call_id"], "name": part["tool_name"]}
    return [{**use, "input": body}], residue


def _call_back(block: Block, rest: Residue) -> dict[str, Any]:
    body = _body(block, "tool_use")
    arguments: Any = body["input"]
    if "args" in rest:
        style = rest["args"]
        arguments = None if style is None else _written(arguments, (style[0], style[1]))
    return {**rest, "args": arguments, "tool_call_id": body["id"], "tool_name": body["name"]}


def _parsed(text: str) -> tuple[Any, tuple[bool, bool] | None]:
    """Arguments that are an object, with how to write them as they were; else the text itself."""
    try:
        found = as_dict(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return text, None
    for style in _JSON_STYLES if found is not None else ():
        if _written(found, style) == text:
            return found, style
    return text, None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _written(value: Any, style: tuple[bool, bool]) -> str:
    compact, ascii_only = style
    separators = (",", ":") if compact else None
    return json.dumps(value, separators=separators, ensure_ascii=ascii_only)


# -------------------------------------------------------------------------------- tool results


def _result(part: Mapping[str, Any]) -> tuple[list[Block], Residue]:
    given = part.get("content")
    residue = _without(part, "content", "tool_call_id")
    body: Any = given
    listed = as_list(given)
    if any(_is_file(item) for item in listed):
        pairs = [_item(item) for item in listed]
        body, residue["items"] = [block for block, _ in pairs], [rest for _, rest in pairs]
    elif not isinstance(given, str):
        body, residue["json"] = json.dumps(given, ensure_ascii=False), True
    block = {"type": "tool_result", "tool_use_id": part["tool_call_id"], "content": body}
    if part.get("outcome") in _AS_ERRORS:
        block["is_error"] = True
    return [block], residue


def _result_back(block: Block, rest: Residue) -> dict[str, Any]:
    body = _body(block, "tool_result")
    content: Any = body["content"]
    if "items" in rest:
        pairs = zip(as_list(content), rest.pop("items"), strict=True)
        content = [_item_back(item, left) for item, left in pairs]
    elif rest.pop("json", False):
        content = json.loads(as_text(content))
    return {**rest, "content": content, "tool_call_id": body["tool_use_id"]}


# ----------------------------------------------------------------------------------- reasoning


def _thinking(part: Mapping[str, Any]) -> tuple[list[Block], Residue]:
    block: Block = {"type": "thinking", "thinking": part["content"]}
    if "signature" in part:
        block["signature"] = part["signature"]
    return [block], _without(part, "content", "signature")


def _thinking_back(block: Block, rest: Residue) -> dict[str, Any]:
    body = _body(block, "thinking")
    signed = {"signature": body["signature"]} if "signature" in body else {}
    return {**rest, "content": body["thinking"], **signed}


# --------------------------------------------------------------- what a user, or a tool, shows


def _is_file(item: object) -> bool:
    found = as_dict(item) or {}
    return as_text(found.get("kind")) in _URLS or _is_shown(found)


def _is_shown(item: Mapping[str, Any]) -> bool:
    media = as_text(item.get("media_type"))
    shown = media.startswith("image/") or media == "application/pdf"
    return item.get("kind") == "binary" and isinstance(item.get("data"), str) and shown


def _item(item: object) -> tuple[Block, Residue]:
    if isinstance(item, str):
        return _text(item), {}
    found = as_dict(item)
    if found is None or not isinstance(found.get("kind"), str):
        return _text(json.dumps(item, ensure_ascii=False)), {"json": True}
    kind: str = found["kind"]
    if kind == "text-content" and isinstance(found.get("content"), str):
        return _text(found["content"]), _without(found, "content")
    if kind in _URLS and isinstance(found.get("url"), str):
        source = {"type": "url", "url": found["url"]}
        return {"type": _URLS[kind], "source": source}, _without(found, "url")
    if _is_shown(found):
        media, data = found["media_type"], found["data"].translate(_TO_STANDARD)
        source = {"type": "base64", "media_type": media, "data": data}
        name = "document" if media == "application/pdf" else "image"
        return {"type": name, "source": source}, _without(found, "data", "media_type")
    return {"type": OPAQUE, "value": found}, {"opaque": True}


def _item_back(block: Block, residue: Residue) -> Any:
    if not residue:
        return _body(block, "text")["text"]
    if residue.get("json"):
        return json.loads(_body(block, "text")["text"])
    if residue.get("opaque"):
        return _body(block, OPAQUE)["value"]
    kind = residue["kind"]
    if kind == "text-content":
        return {**residue, "content": _body(block, "text")["text"]}
    source = as_dict(block.get("source")) or {}
    if kind in _URLS:
        return {**residue, "url": _body(source, "url")["url"]}
    body = _body(source, "base64")
    data = as_text(body["data"]).translate(_TO_DUMPED)
    return {**residue, "data": data, "media_type": body["media_type"]}
