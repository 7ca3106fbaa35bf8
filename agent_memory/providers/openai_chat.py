"""OpenAI Chat Completions: ``tool_calls`` beside the content, results as role ``tool``.

Source: https://platform.openai.com/docs/api-reference/chat/create (the ``messages`` parameter).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from agent_memory.messages import ConversationMessage
from agent_memory.providers.media import Media, decoded, from_url, mime_of
from agent_memory.providers.part import (
    CHAT,
    OPENAI,
    TYPED,
    Block,
    Part,
    as_dict,
    as_id,
    as_list,
    as_text,
    to_json,
)
from agent_memory.providers.plain import load_each, load_message

_TEXT_KEYS: Final = frozenset({"type", "text"})
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")


def from_openai(messages: Iterable[Any]) -> list[ConversationMessage]:
    """Make messages of Chat Completions messages: dicts or the SDK's objects.

    ``role`` and ``content`` are kept as given; everything else (``tool_calls``, ``name``,
    ``tool_call_id``, ``refusal``, …) goes to ``extra``. :func:`agent_memory.providers.to_openai`
    gives exactly the same dicts back.

    Raises:
        InvalidRequestError: an item is no message; the text names it.
    """
    return load_each(messages, load_message)


def read_text(block: Block) -> Part:
    """``{"type": "text", "text": …}``, which Anthropic writes in the same way."""
    text = as_text(block.get("text"))
    # Anthropic adds cache_control and citations to it, which OpenAI does not take.
    forms = TYPED if block.keys() <= _TEXT_KEYS else TYPED - CHAT
    return Part("text", text, raw=block, forms=forms)


def _read_refusal(block: Block) -> Part:
    return Part("text", as_text(block.get("refusal")), raw=block, forms=OPENAI)


def _media_reader(kind: str) -> Callable[[Block], Part]:
    def read(block: Block) -> Part:
        forms = OPENAI if kind == "audio" else CHAT
        return Part("media", name=kind, payload=block, raw=block, forms=forms)

    return read


READERS: Final[Mapping[str, Callable[[Block], Part]]] = {
    "text": read_text,
    "refusal": _read_refusal,
    "image_url": _media_reader("image"),
    "input_audio": _media_reader("audio"),
    "file": _media_reader("document"),
}


def read_before(extra: Mapping[str, Any]) -> list[Part]:
    """What lies beside the content and comes before it: reasoning of compatible servers."""
    for key in _REASONING_KEYS:
        text = extra.get(key)
        if isinstance(text, str) and text:
            return [Part("reasoning", text, payload=text, forms=CHAT)]
    return []


def read_after(extra: Mapping[str, Any]) -> list[Part]:
    """What lies beside the content and comes after it: refusal, audio, calls."""
    found: list[Part] = []
    refusal = extra.get("refusal")
    if isinstance(refusal, str) and refusal:
        found.append(Part("text", refusal, forms=CHAT))
    audio = as_dict(extra.get("audio"))
    if audio is not None:
        said = as_text(audio.get("transcript"))
        found.append(Part("media", said, name="audio", payload=audio, forms=CHAT))
    found += [_read_call(entry) for entry in as_list(extra.get("tool_calls"))]
    legacy = as_dict(extra.get("function_call"))
    if legacy is not None:
        name, arguments = as_id(legacy.get("name")), legacy.get("arguments")
        found.append(Part("call", name=name, payload=arguments, forms=CHAT))
    return found


def _read_call(entry: object) -> Part:
    call = as_dict(entry)
    if call is None:
        return Part("other", raw=entry, forms=CHAT)
    custom = as_dict(call.get("custom"))
    body = custom or as_dict(call.get("function")) or {}
    return Part(
        "call",
        id=as_id(call.get("id")),
        name=as_id(body.get("name")),
        payload=body.get("input") if custom is not None else body.get("arguments"),
        raw=entry,
        forms=CHAT,
    )


def media_of(block: Block) -> Media | None:
    """What a media block of Chat Completions holds."""
    kind = block.get("type")
    if kind == "image_url":
        image = as_dict(block.get("image_url")) or {}
        return from_url("image", image.get("url"))
    if kind == "input_audio":
        audio = as_dict(block.get("input_audio")) or {}
        data = decoded(audio.get("data"))
        return None if data is None else Media("audio", mime_of(audio.get("format")), data)
    file = as_dict(block.get("file")) or {}
    name, file_id = as_id(file.get("filename")), as_id(file.get("file_id"))
    if file_id is not None:
        return Media("document", file_id=file_id, name=name)
    return from_url("document", file.get("file_data"), name=name)


def write_media(media: Media) -> Block | None:
    """A content part for it; None when Chat Completions has none."""
    url = media.data_url
    if media.kind == "image" and url is not None:
        return {"type": "image_url", "image_url": {"url": url}}
    if media.kind == "audio" and media.data is not None and media.format in ("wav", "mp3", "mpeg"):
        sound = "mp3" if media.format == "mpeg" else media.format
        return {"type": "input_audio", "input_audio": {"data": media.base64, "format": sound}}
    if media.kind == "document" and media.text is not None:
        return {"type": "text", "text": media.text}
    if media.kind == "document" and media.data is not None:
        name = media.name or f"document.{media.format or 'bin'}"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return None


def write_text(text: str) -> Block:
    """A text part."""
    return {"type": "text", "text": text}


def write_call(call: Part) -> Block:
    """An entry of ``tool_calls``."""
    given = call.payload
    arguments = given if isinstance(given, str) else to_json({} if given is None else given)
    function = {"name": call.name or "unknown", "arguments": arguments}
    return {"id": call.id or "", "type": "function", "function": function}
