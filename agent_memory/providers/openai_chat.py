"""OpenAI Chat Completions: ``tool_calls`` beside the content, results as role ``tool``.

Source: https://platform.openai.com/docs/api-reference/chat/create (the ``messages`` parameter).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers.format import (
    USERS,
    Format,
    MessageDraft,
    RuleSources,
    TextReader,
    arguments_text,
    media_reader,
)
from agent_memory.providers.media import Media, decoded, from_url, mime_of
from agent_memory.providers.part import (
    Block,
    FormatName,
    Part,
    as_dict,
    as_id,
    as_list,
    as_text,
    joined,
    readable,
    without,
)

_CHAT: Final = frozenset[FormatName]({"openai_chat"})
_TEXT_KEYS: Final = frozenset({"type", "text", "prompt_cache_breakpoint"})
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")
_EXECUTED: Final = "executed_tools"
"""Groq's list of the tools that its server has run; https://console.groq.com/docs/compound."""
_BESIDE_CONTENT: Final = ("tool_calls", "refusal", "audio", "function_call")
_FUNCTION_ROLE: Final = "function"
_NO_CONTENT: Final[tuple[Any, ...]] = (None, [])
_ASSISTANT: Final = ParticipantRole.ASSISTANT
_TOOL: Final = ParticipantRole.TOOL


def _media_of(block: Block) -> Media | None:
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


def read_beside(extra: Mapping[str, Any]) -> tuple[list[Part], list[Part]]:
    """What lies before the content (reasoning of compatible servers), and what lies after it."""
    before: list[Part] = []
    for key in _REASONING_KEYS:
        text = extra.get(key)
        if isinstance(text, str) and text:
            before.append(Part("reasoning", text, payload=text, forms=_CHAT))
            break
    for entry in as_list(extra.get(_EXECUTED)):
        before += _read_executed(entry)
    after: list[Part] = []
    refusal = extra.get("refusal")
    if isinstance(refusal, str) and refusal:
        after.append(Part("text", refusal, forms=_CHAT))
    audio = as_dict(extra.get("audio"))
    if audio is not None:
        after.append(_read_spoken(audio))
    after += [_read_call(entry) for entry in as_list(extra.get("tool_calls"))]
    legacy = as_dict(extra.get("function_call"))
    if legacy is not None:
        name, arguments = as_id(legacy.get("name")), legacy.get("arguments")
        after.append(Part("call", name=name, payload=arguments, forms=_CHAT))
    return before, after


def _read_spoken(audio: Block) -> Part:
    """A reply in sound: its words, where they are known."""
    said = as_text(audio.get("transcript"))
    if said.strip():
        return Part("text", said, payload=audio, forms=_CHAT)
    return Part("media", name="audio", payload=audio, forms=_CHAT)


def _read_executed(entry: object) -> tuple[Part, ...]:
    tool = as_dict(entry) or {}
    name, given = as_id(tool.get("type")), tool.get("arguments")
    call = Part("call", name=name, payload=given, hosted=True, forms=_CHAT)
    found = {key: tool[key] for key in tool if key not in ("type", "arguments", "index")}
    text = readable(found)
    if not text:
        return (call,)
    return (call, Part("result", text, payload=entry, hosted=True, forms=_CHAT))


def _read_call(entry: object) -> Part:
    call = as_dict(entry)
    if call is None:
        return Part("other", raw=entry, forms=_CHAT)
    custom = as_dict(call.get("custom"))
    body = custom or as_dict(call.get("function")) or {}
    return Part(
        "call",
        id=as_id(call.get("id")),
        name=as_id(body.get("name")),
        payload=body.get("input") if custom is not None else body.get("arguments"),
        raw=entry,
        forms=_CHAT,
        custom=custom is not None,
    )


def read_tool_message(message: ConversationMessage, inner: tuple[Part, ...]) -> Part:
    """A message of role tool, whose content is the result."""
    content, extra = message.content, message.extra
    text = content if isinstance(content, str) else joined(inner)
    if extra.get("role") == _FUNCTION_ROLE:
        # The result of a function_call, which has no id; nobody else has a place for it.
        return Part("other", text, name="function result", raw=content, forms=_CHAT)
    # Blocks of another provider's within it have to be rewritten before OpenAI takes it.
    own = all("openai_chat" in part.forms for part in inner)
    return Part(
        "result",
        text,
        id=as_id(extra.get("tool_call_id")),
        name=as_id(extra.get("name")),
        payload=content,
        inner=inner if isinstance(content, list) else (),
        raw=content,
        forms=_CHAT if own else frozenset(),
    )


def _write_media(media: Media) -> Block | None:
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


def _write_text(text: str, _role: ParticipantRole) -> Block:
    return {"type": "text", "text": text}


def _write_call(call: Part) -> Block:
    name = call.name or "unknown"
    if call.custom:
        custom = {"name": name, "input": as_text(call.payload)}
        return {"id": call.id or "", "type": "custom", "custom": custom}
    function = {"name": name, "arguments": arguments_text(call)}
    return {"id": call.id or "", "type": "function", "function": function}


def _write_result(_result: Part, _inner: list[Block]) -> None:
    """A result is no block here but a message of its own; see :func:`_arrange`."""


def _arrange(
    form: Format, role: ParticipantRole, held: list[Part], extra: Mapping[str, Any]
) -> list[MessageDraft]:
    results = [draft for part in held if part.answers for draft in _result(form, part, extra)]
    rest = [
        part
        for part in held
        if not part.answers and part.kind != "call" and not _lies_beside(part, extra)
    ]
    speaker = ParticipantRole.USER if role is _TOOL else role
    calls = [part for part in held if part.kind == "call" and not form.is_within(part)]
    written = [entry for entry in (form.block_for(part, role) for part in calls) if entry]
    others = {key: value for key, value in extra.items() if key != "tool_calls"}
    if written and speaker is _ASSISTANT:
        others["tool_calls"] = written
    content = form.content_of(rest, speaker)
    empty = content == []
    beside = any(form.is_within(part) for part in held)
    spoken = [] if empty and not written and not beside else [
        MessageDraft(speaker, None if empty else content, others)
    ]  # fmt: skip
    return [*spoken, *results] if role is _ASSISTANT else [*results, *spoken]


def _lies_beside(part: Part, extra: Mapping[str, Any]) -> bool:
    """Whether a text is the refusal or the words of the sound beside the content."""
    if part.raw is not None or part.kind != "text":
        return False
    audio = as_dict(extra.get("audio")) or {}
    return part.text in (extra.get("refusal"), audio.get("transcript"))


def _result(form: Format, result: Part, extra: Mapping[str, Any]) -> list[MessageDraft]:
    """A message of role tool, which takes text alone; what else the result holds follows it.

    Source: https://platform.openai.com/docs/api-reference/chat/create, "Tool message": only
    type ``text`` is supported.
    """
    answer = {"tool_call_id": result.id or ""}
    if "openai_chat" in result.forms:
        drafts = [MessageDraft(_TOOL, result.raw, {**extra, **answer})]
    else:
        drafts = [MessageDraft(_TOOL, result.text, answer)]
    inner = [part for part in result.inner if part.kind == "media"]
    media = [block for part in inner if (block := form.block_for(part, ParticipantRole.USER))]
    if media:
        heading = _write_text(f"(From the result of tool call {result.id}:)", ParticipantRole.USER)
        drafts.append(MessageDraft(ParticipantRole.USER, [heading, *media], after_results=True))
    return drafts


def _with_id(part: Part, call_id: str) -> Any:
    entry = as_dict(part.raw)
    # A result's id lies beside the content.
    return part.raw if part.kind == "result" or entry is None else {**entry, "id": call_id}


def _check_result(result: Part) -> tuple[str, Any] | None:
    if result.payload in _NO_CONTENT:
        return "has no content", ""
    media = [part.name for part in result.inner if part.kind == "media"]
    if not media:
        return None
    texts = [part.raw for part in result.inner if part.kind != "media"]
    return f"holds {media[0]} content; it may hold text alone", texts or ""


def _is_empty(message: ConversationMessage, _held: tuple[Part, ...]) -> bool:
    content, extra = message.content, message.extra
    if message.role is _TOOL:
        return False  # its content is that of the result, which is looked at as such
    if extra and extra.get("tool_calls") == []:
        return True
    if content not in _NO_CONTENT:
        return False
    return message.role is not _ASSISTANT or not any(extra.get(key) for key in _BESIDE_CONTENT)


def _trim(message: Block, owner: FormatName | None) -> Block:
    """A message without what only the SDK's response types have.

    Source: ``ChatCompletionMessage`` against ``ChatCompletionAssistantMessageParam`` in the
    SDK; ``index`` is of streamed deltas.
    """
    trimmed = {key: value for key, value in message.items() if key not in FORMAT.reply_fields}
    # "[] is too short - 'messages.1.tool_calls'": the API's answer to an empty list.
    if not trimmed.get("tool_calls", True):
        del trimmed["tool_calls"]
    if "tool_calls" in trimmed:
        trimmed["tool_calls"] = [without(call, "index") for call in trimmed["tool_calls"]]
    audio = as_dict(trimmed.get("audio"))
    if audio is not None:
        trimmed["audio"] = {"id": audio.get("id")}
    blocks = as_list(trimmed.get("content"))
    if blocks and owner != FORMAT.name:
        trimmed["content"] = [_known_text(block) for block in blocks]
    return trimmed


def _known_text(block: Any) -> Any:
    """A text block without fields that are another format's, such as ``cache_control``."""
    held = as_dict(block)
    if held is None or held.get("type") != "text":
        return block
    return {key: value for key, value in held.items() if key in _TEXT_KEYS}


_CREATE: Final = "https://platform.openai.com/docs/api-reference/chat/create"

FORMAT: Final = Format(
    name="openai_chat",
    provider="openai",
    blocks={
        # Anthropic writes text in the same way; its citations are unknown to every Chat server.
        "text": TextReader(frozenset({"citations"})),
        "refusal": TextReader(key="refusal"),
        "image_url": media_reader("image", _media_of),
        "input_audio": media_reader("audio", _media_of),
        "file": media_reader("document", _media_of),
    },
    request_fields=frozenset(
        {
            *("name", "tool_calls", "tool_call_id", "refusal", "audio", "function_call"),
            *_REASONING_KEYS,
            _EXECUTED,
        }
    ),
    reply_fields=frozenset({"annotations"}),
    fits_message=lambda _message: True,
    write_text=_write_text,
    write_media=_write_media,
    write_call=_write_call,
    write_result=_write_result,
    media_roles=USERS,
    arrange=_arrange,
    with_id=_with_id,
    trim=_trim,
    sources=RuleSources(
        messages=_CREATE,
        tools="https://platform.openai.com/docs/guides/function-calling",
        reasoning="https://platform.openai.com/docs/guides/reasoning",
        content=_CREATE,
    ),
    check_result=_check_result,
    needs_rewrite=lambda message: message.content == [] or message.extra.get("tool_calls") == [],
    is_empty=_is_empty,
)
