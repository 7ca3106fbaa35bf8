"""OpenAI Responses: a list of items, each of which becomes one message.

A message item keeps its role and content; any other item (``function_call``, ``reasoning``,
``function_call_output``, …) lies whole in ``extra`` beside a content of None.
Source: https://platform.openai.com/docs/api-reference/responses/create (the ``input`` parameter).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from agent_memory.content import thaw
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers.format import (
    EVERYONE,
    BlockReader,
    Format,
    MessageDraft,
    RuleSources,
    TextReader,
    arguments_text,
    media_reader,
    read_block,
    safe_id,
)
from agent_memory.providers.media import Media, from_url
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

_RESPONSES: Final = frozenset[FormatName]({"openai_responses"})
_HOSTED_CALLS: Final = frozenset({
    "file_search_call",
    "web_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "program",
})  # fmt: skip
_STATE: Final = frozenset({
    *("additional_tools", "compaction", "compaction_trigger", "configuration_update"),
    *("item_reference", "mcp_list_tools"),
})  # fmt: skip
"""What is for the API alone; of an item that is not known, the text is read."""
_HOSTED_OUTPUTS: Final = frozenset({"program_output"})
_ARGUMENTS: Final = (
    *("arguments", "input", "action", "actions", "operation"),
    *("queries", "code", "revised_prompt"),
)
"""Where the kinds of calls keep what they were called with."""
_REPLY_ONLY: Final = ("created_by",)
_CUSTOM_REPLY_ONLY: Final = ("created_by", "status")
_ROLES: Final = frozenset(role.value for role in ParticipantRole)
_FAILED: Final = frozenset({"failed", "incomplete"})
_LONGEST_ID: Final = 64
"""The API answers a longer call_id with "string too long. Expected a string with maximum length
64"; https://github.com/AnswerDotAI/fastllm/issues/45."""
_CALL_ID: Final = re.compile(f".{{1,{_LONGEST_ID}}}", re.DOTALL)
_NO_OUTPUT: Final[tuple[Any, ...]] = (None, [])
_ASSISTANT: Final = ParticipantRole.ASSISTANT
_TOOL: Final = ParticipantRole.TOOL


def _load(item: Block, _given: object) -> ConversationMessage | None:
    kind = item.get("type")
    if _is_reference(item):
        return ConversationMessage(_ASSISTANT, None, extra=item)
    if not isinstance(kind, str) or kind == "message":
        return None
    return ConversationMessage(_role_of(item, kind), None, extra=item)


def _is_reference(item: Mapping[str, Any]) -> bool:
    """``item_reference``, whose type may be left out."""
    known = "id" in item and set(item) <= {"id", "type"}
    return known and item.get("type") in (None, "item_reference")


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
    if isinstance(kind, str):
        return as_dict(message.extra) if kind != "message" else None
    return as_dict(message.extra) if _is_reference(message.extra) else None


def _fits_message(message: ConversationMessage) -> bool:
    """Results are items, and refusals are parts of a message with an id, unlike Chat's."""
    if message.role is _TOOL:
        return item_of(message) is not None
    kinds = [(as_dict(block) or {}).get("type") for block in as_list(message.content)]
    return "refusal" not in kinds or "output_text" in kinds or "id" in message.extra


def read_item(item: Block) -> tuple[Part, ...]:
    """What an item says: one part, or a hosted call and the result that it holds too."""
    kind = as_text(item.get("type"))
    result = None
    if kind == "reasoning":
        part = _read_reasoning(item)
    elif _is_output(kind):
        part = _read_output(item, kind)
    elif _is_call(kind):
        part = _read_call(item, kind)
        read_result = _OWN_RESULTS.get(kind)
        result = None if read_result is None else read_result(item)
    else:
        part = _read_other(item, kind or "item_reference")
    part.raw, part.forms = item, _RESPONSES
    if result is None:
        return (part,)
    # Without raw: the call's holds it.
    return part, attrs.evolve(result, id=part.id, name=part.name, hosted=True, forms=_RESPONSES)


def _read_other(item: Block, name: str) -> Part:
    text = "" if name in _STATE else readable(item)
    # An encrypted compaction stands for all that came before it, and only OpenAI can read it.
    opaque = name == "compaction"
    return Part("other", text, name=name, opaque=opaque)


def _read_reasoning(item: Block) -> Part:
    texts = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    said = [as_text((as_dict(text) or {}).get("text")) for text in texts]
    text = "\n".join(line for line in said if line)
    return Part("reasoning", text, payload=item)


def _read_call(item: Block, kind: str) -> Part:
    given = next((item[key] for key in _ARGUMENTS if key in item), None)
    hosted = kind in _HOSTED_CALLS or item.get("execution") == "server"
    # An approval request has no call_id: its answer names its id.
    call_id = as_id(item.get("call_id"))
    if call_id is None and kind != "tool_search_call":
        call_id = as_id(item.get("id"))
    return Part(
        "call",
        id=call_id,
        name=as_id(item.get("name")) or kind.removesuffix("_call"),
        payload=given,
        hosted=hosted,
        custom=kind == "custom_tool_call",
    )


def _read_output(item: Block, kind: str) -> Part:
    call_id = as_id(item.get("call_id")) or as_id(item.get("approval_request_id"))
    if kind == "local_shell_call_output":
        call_id = call_id or as_id(item.get("id"))
    given = item.get("output", item.get("result"))
    screenshot = as_dict(given)
    blocks = as_list(given) if screenshot is None else [screenshot]
    inner = tuple(read_block(_BLOCKS, _RESPONSES, block) for block in blocks)
    failed = as_id(item.get("status")) in _FAILED
    text = given if isinstance(given, str) else joined(inner)
    if kind == "shell_call_output":
        inner, text = (), readable(given)
        failed = failed or any(_has_failed(chunk) for chunk in blocks)
    elif kind == "tool_search_output":
        text = readable(item.get("tools"))
    elif kind == "mcp_approval_response":
        failed = item.get("approve") is not True
        verdict = "denied" if failed else "approved"
        reason = as_id(item.get("reason"))
        text = verdict if reason is None else f"{verdict}: {reason}"
    return Part(
        "result",
        text,
        id=call_id,
        name=as_id(item.get("name")),
        payload=given,
        is_error=failed,
        hosted=kind in _HOSTED_OUTPUTS or item.get("execution") == "server",
        inner=inner,
        custom=kind == "custom_tool_call_output",
    )


def _has_failed(chunk: Any) -> bool:
    """Whether a shell command timed out, or ended with another code than 0."""
    outcome = as_dict((as_dict(chunk) or {}).get("outcome")) or {}
    return outcome.get("type") == "timeout" or outcome.get("exit_code") not in (None, 0)


def _read_item_block(block: Block) -> Part:
    return read_item(block)[0]


# Items of hosted tools that hold the result of their call too.


def _read_mcp(item: Block) -> Part | None:
    output, error = item.get("output"), item.get("error")
    if error is None:
        return None if output is None else Part("result", as_text(output), payload=output)
    failure = error if isinstance(error, str) else readable(error)
    said = "\n".join(filter(None, [failure or "failed", as_text(output)]))
    return Part("result", said, payload=error, is_error=True)


def _read_found(item: Block) -> Part | None:
    results = item.get("results")
    return Part("result", readable(results), payload=results) if results else None


def _read_executed(item: Block) -> Part | None:
    outputs = item.get("outputs")
    if not outputs:
        return None
    blocks = [as_dict(output) or {} for output in as_list(outputs)]
    logs = [as_text(block.get("logs")) for block in blocks if block.get("type") == "logs"]
    inner = tuple(_hosted_image(block.get("url")) for block in blocks if block.get("url"))
    return Part("result", "\n".join(filter(None, logs)), payload=outputs, inner=inner)


def _read_generated(item: Block) -> Part | None:
    result = item.get("result")
    return None if not result else Part("result", payload=None, inner=(_hosted_image(result),))


def _hosted_image(url: object) -> Part:
    """A picture that a hosted tool made: part of its item, with no block of its own."""
    return Part("media", name="image", payload=url)


_OWN_RESULTS: Final[Mapping[str, Callable[[Block], Part | None]]] = {
    "mcp_call": _read_mcp,
    "file_search_call": _read_found,
    "code_interpreter_call": _read_executed,
    "image_generation_call": _read_generated,
}
"""The hosted calls whose item holds the result too."""


def _media_of(block: Block) -> Media | None:
    file_id, name = as_id(block.get("file_id")), as_id(block.get("filename"))
    if block.get("type") == "input_file":
        if file_id is not None:
            return Media("document", file_id=file_id, name=name)
        return from_url("document", block.get("file_data") or block.get("file_url"), name=name)
    if file_id is not None:
        return Media("image", file_id=file_id)
    return from_url("image", block.get("image_url"))


_BLOCKS: Final[Mapping[str, BlockReader]] = {
    "input_text": TextReader(),
    "output_text": TextReader(),
    "summary_text": TextReader(),
    "refusal": TextReader(key="refusal"),
    "input_image": media_reader("image", _media_of),
    "computer_screenshot": media_reader("image", _media_of),
    "input_file": media_reader("document", _media_of),
    # Items that some frameworks put into the content as blocks.
    "reasoning": _read_item_block,
    "function_call": _read_item_block,
    "function_call_output": _read_item_block,
    "custom_tool_call": _read_item_block,
    "custom_tool_call_output": _read_item_block,
}
"""Blocks within a message item or an output."""


def _write_media(media: Media) -> Block | None:
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


def _write_text(text: str, role: ParticipantRole) -> Block:
    if role is _ASSISTANT:
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def _write_call(call: Part) -> Block:
    body = {"call_id": _short_id(call.id), "name": call.name or "unknown"}
    if call.custom:
        return {"type": "custom_tool_call", **body, "input": as_text(call.payload)}
    return {"type": "function_call", **body, "arguments": arguments_text(call)}


def _write_result(result: Part, inner: list[Block]) -> Block:
    has_media = any(part.kind == "media" for part in result.inner)
    blocks = [block for block in map(_input_block, inner) if block is not None]
    output = blocks if has_media and blocks else result.text
    kind = "custom_tool_call_output" if result.custom else "function_call_output"
    return {"type": kind, "call_id": _short_id(result.id), "output": output}


def _short_id(call_id: str | None) -> str:
    given = call_id or ""
    return given if len(given) <= _LONGEST_ID else safe_id(given)


def _input_block(block: Block) -> Block | None:
    """A block as an output of the application's may hold it: no ``computer_screenshot``."""
    if block.get("type") != "computer_screenshot":
        return block
    media = _media_of(block)
    return None if media is None else _write_media(media)


def _is_mismatched(call: Part, result: Part) -> bool:
    """Whether an output item is of another kind than its call."""
    if "openai_responses" not in result.forms:
        return False
    kind = "custom_tool_call" if call.custom else "function_call"
    if "openai_responses" in call.forms and (as_dict(call.raw) or {}).get("type") != kind:
        return False  # such as shell_call, whose output cannot be written from text
    return (as_dict(result.raw) or {}).get("type") != f"{kind}_output"


def _arrange(
    form: Format, role: ParticipantRole, held: list[Part], extra: Mapping[str, Any]
) -> list[MessageDraft]:
    drafts: list[MessageDraft] = []
    spoken: list[Part] = []
    speaker = ParticipantRole.USER if role is _TOOL else role

    def say() -> None:
        content = form.content_of(spoken, speaker)
        if content != []:
            drafts.append(MessageDraft(speaker, _said(content, speaker, extra), extra))
        spoken.clear()

    # A message item after a call would end the wait for its output.
    for part in sorted(held, key=lambda part: part.kind == "call"):
        is_item = part.forms == _RESPONSES
        if part.kind in ("text", "media") or (part.kind == "other" and not is_item):
            spoken.append(part)
            continue
        item = form.block_for(part, role)
        if isinstance(item, dict):
            say()
            drafts.append(MessageDraft(_TOOL if part.kind == "result" else _ASSISTANT, None, item))
    say()
    return drafts


def _said(content: Any, speaker: ParticipantRole, extra: Mapping[str, Any]) -> Any:
    """The assistant's words as one string: a list of output_text needs an id and a status.

    Source: ``EasyInputMessageParam`` against ``ResponseOutputMessageParam`` in the SDK.
    """
    if speaker is not _ASSISTANT or isinstance(content, str) or "id" in extra:
        return content
    return "\n".join(as_text(block.get("text") or block.get("refusal")) for block in content)


def _with_id(part: Part, call_id: str) -> Any:
    item = as_dict(part.raw) or {}
    key = next((key for key in ("call_id", "approval_request_id") if key in item), "call_id")
    return {**item, key: call_id}


def _check_result(result: Part) -> tuple[str, Any] | None:
    item = as_dict(result.raw) or {}
    # What apply_patch put out may be left out: its status tells.
    optional = item.get("type") == "apply_patch_call_output"
    empty = "output" in item and item["output"] in _NO_OUTPUT and not optional
    return ("has no content", {**item, "output": ""}) if empty else None


def _is_empty(message: ConversationMessage, held: tuple[Part, ...]) -> bool:
    return message.content == [] or (message.content is None and not held)


def _dump(message: ConversationMessage) -> Block | None:
    item = item_of(message)
    if item is None:
        return None
    plain: Block = thaw(item)
    return plain


def _trim(item: Block, _owner: FormatName | None) -> Block:
    """An item without what only the SDK's response types have.

    Source: ``ResponseItem`` against ``ResponseInputItemParam`` in the SDK.
    """
    is_custom = as_text(item.get("type")).startswith("custom_tool_call")
    dropped = _CUSTOM_REPLY_ONLY if is_custom else _REPLY_ONLY
    trimmed: Block = without(item, *dropped)
    chunks = as_list(item.get("output")) if item.get("type") == "shell_call_output" else []
    if chunks:
        trimmed["output"] = [without(chunk, *_REPLY_ONLY) for chunk in chunks]
    return trimmed


_CREATE: Final = "https://platform.openai.com/docs/api-reference/responses/create"

FORMAT: Final = Format(
    name="openai_responses",
    blocks=_BLOCKS,
    load=_load,
    request_fields=frozenset({"type", "id", "status", "phase"}),
    fits_message=_fits_message,
    write_text=_write_text,
    write_media=_write_media,
    write_call=_write_call,
    write_result=_write_result,
    media_roles=EVERYONE - {_ASSISTANT},
    arrange=_arrange,
    with_id=_with_id,
    dump=_dump,
    trim=_trim,
    sources=RuleSources(
        messages=_CREATE,
        tools="https://platform.openai.com/docs/guides/function-calling",
        reasoning="https://platform.openai.com/docs/guides/reasoning",
        content=_CREATE,
    ),
    items=True,
    call_id=_CALL_ID,
    check_result=_check_result,
    is_mismatched=_is_mismatched,
    is_empty=_is_empty,
)
