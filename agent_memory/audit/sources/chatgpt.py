"""ChatGPT's data export: the conversations in its ``conversations.json``.

A conversation is a tree: ``mapping`` holds a node for each message, with its parent, and
``current_node`` names the last message of the branch that is shown. The format has no published
description; this follows https://github.com/mitkury/chatgpt-export-parser and the content types
named in other readers of these files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agent_memory.audit.chunks import DefaultIds, SourceEntry, Tally
from agent_memory.audit.findings import Finding
from agent_memory.errors import InvalidRequestError
from agent_memory.keys import check_id
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers.part import Block, as_dict, as_list, as_text

FORM: Final = "ChatGPT"
_METADATA: Final = "chatgpt"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Fields of a message that have a place of their own here.
_ELSEWHERE: Final = ("author", "content", "create_time", "id")
# Parts that name a file of the export; kept in the metadata.
_POINTERS: Final = frozenset({
    *("image_asset_pointer", "audio_asset_pointer", "video_container_asset_pointer"),
    "real_time_user_audio_video_asset_pointer",
})  # fmt: skip


def recognise(conversation: Block) -> bool:
    """Whether something is a conversation of ChatGPT's export."""
    return as_dict(conversation.get("mapping")) is not None and "current_node" in conversation


def read(
    conversation: Block, ids: DefaultIds, place: str, tally: Tally
) -> Iterator[SourceEntry | Finding]:
    """Read the current branch of a conversation; what only others hold is counted."""
    try:
        branch = _branch(conversation)
    except InvalidRequestError as error:
        yield Finding(place, str(error))
        return
    nodes = conversation["mapping"]
    others = len([node for node in nodes.values() if (as_dict(node) or {}).get("message")])
    began, waiting = conversation.get("create_time"), dict[str, str]()
    for number, (name, node) in enumerate(branch, 1):
        message = as_dict(node.get("message"))
        if message is None:
            continue
        others -= 1
        try:
            made = _message(message, name, began, waiting, tally)
            key = ChatKey(ids.user_id, _session(conversation), ids.agent_id)
        except InvalidRequestError as error:
            yield Finding(f"{place}, node {name!r}", str(error))
            continue
        began = message.get("create_time") or began
        if made is not None:
            tally.read[FORM] += 1
            yield SourceEntry(key, made, f"{place}, message", number)
    if others:
        tally.leave("message of another branch", others)


def _session(conversation: Block) -> Any:
    return conversation.get("conversation_id") or conversation.get("id")


def _branch(conversation: Block) -> list[tuple[str, Block]]:
    """Return the nodes from the root to the current one.

    Raises:
        InvalidRequestError: a node is missing, or its own ancestor.
    """
    nodes: Mapping[str, Any] = conversation["mapping"]
    found: list[tuple[str, Block]] = []
    seen: set[str] = set()
    name = conversation.get("current_node")
    while name is not None:
        node = as_dict(nodes.get(name)) if isinstance(name, str) else None
        # A damaged export may hold a cycle, which would be followed for ever.
        if node is None or name in seen:
            raise InvalidRequestError(f"its mapping has no way from current_node to {name!r}")
        seen.add(name)
        found.append((name, node))
        name = node.get("parent")
    if not found and nodes:
        raise InvalidRequestError("its current_node names no message")
    return found[::-1]


def _message(
    message: Block, name: str, began: object, waiting: dict[str, str], tally: Tally
) -> ConversationMessage | None:
    author, content = as_dict(message.get("author")), as_dict(message.get("content"))
    if author is None or content is None:
        raise InvalidRequestError("a message of ChatGPT's has an author and a content")
    kind, message_id = as_text(content.get("content_type")), message.get("id", name)
    reader = _READERS.get(kind)
    if reader is None:
        raise InvalidRequestError(f"content of type {kind!r} is not known")
    text = reader(content)
    pointers = [part for part in as_list(content.get("parts")) if _is_pointer(part)]
    if pointers:
        tally.leave("file beside the conversations", len(pointers))
    if not text and not pointers:
        tally.leave("empty message")
        return None
    rest = {field: value for field, value in message.items() if field not in _ELSEWHERE}
    if kind != "text":
        rest["content"] = content
    extra = _extra(message, author, text, waiting, is_thought=kind in _THOUGHTS)
    return ConversationMessage(
        author.get("role", ""),
        None if {"reasoning_content", "tool_calls"} & extra.keys() else text,
        id=check_id(message_id, "id"),
        timestamp=_time(message.get("create_time") or began),
        extra=extra,
        metadata={_METADATA: rest} if rest else {},
    )


def _extra(
    message: Block, author: Block, text: str, waiting: dict[str, str], *, is_thought: bool
) -> Block:
    """Return what stands beside the content: a thought, a call, or which call is answered.

    A message to a tool (its ``recipient``) is a call; the tool's next message answers it.
    """
    role, recipient = author.get("role"), as_text(message.get("recipient"))
    if is_thought:
        return {"reasoning_content": text}
    if role == "assistant" and recipient not in ("", "all"):
        call_id = waiting[recipient] = as_text(message.get("id"))
        function = {"name": recipient, "arguments": text}
        return {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}
    if role != "tool":
        return {}
    tool = as_text(author.get("name"))
    answered = {"tool_call_id": waiting.pop(tool)} if tool in waiting else {}
    return {**answered, "name": tool} if tool else answered


def _time(seconds: object) -> datetime:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return _EPOCH  # unknown: a fixed moment, so that importing twice makes equal messages
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidRequestError(f"its create_time {seconds!r} is not a time") from None


def _is_pointer(part: object) -> bool:
    return (as_dict(part) or {}).get("content_type") in _POINTERS


def _said_in_parts(content: Block) -> str:
    said: list[str] = []
    for part in as_list(content.get("parts")):
        fields = as_dict(part)
        if isinstance(part, str):
            said.append(part)
        elif fields is not None and isinstance(fields.get("text"), str):
            said.append(fields["text"])
        elif not _is_pointer(part):
            kind = (fields or {}).get("content_type", type(part).__name__)
            raise InvalidRequestError(f"a part of type {kind!r} is not known")
    return "\n".join(filter(None, said))


def _said_in(*names: str) -> Callable[[Block], str]:
    def read(content: Block) -> str:
        return "\n".join([text for name in names if (text := as_text(content.get(name)))])

    return read


def _thought(content: Block) -> str:
    thoughts = [as_dict(item) or {} for item in as_list(content.get("thoughts"))]
    lines = [as_text(item.get(name)) for item in thoughts for name in ("summary", "content")]
    return "\n".join(filter(None, lines))


_THOUGHTS: Final = frozenset({"thoughts", "reasoning_recap"})
_READERS: Final[Mapping[str, Callable[[Block], str]]] = {
    "text": _said_in_parts,
    "multimodal_text": _said_in_parts,
    "code": _said_in("text"),
    "execution_output": _said_in("text"),
    "system_error": _said_in("name", "text"),
    "tether_quote": _said_in("title", "url", "text"),
    "tether_browsing_display": _said_in("summary", "result"),
    "thoughts": _thought,
    "reasoning_recap": _said_in("content"),
    "user_editable_context": _said_in("user_profile", "user_instructions"),
    "model_editable_context": _said_in("model_set_context"),
}
