"""Reading conversations from JSONL files in OpenAI's message format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, cast

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import check_id
from agent_memory.messages import ConversationMessage
from agent_memory.providers import from_openai
from agent_memory.providers.part import as_dict

_FORM = '{"id": …, "messages": [{"role": …, "content": …}, …]}'


@attrs.frozen
class Conversation:
    """A conversation as a file holds it.

    Args:
        id: names it within the file.
        messages: what was said.
        source: the same messages as the plain dicts they were read from.
    """

    id: str
    messages: tuple[ConversationMessage, ...]
    source: list[dict[str, Any]]


def demo_conversation() -> Conversation:
    """Return the conversation that comes with this package."""
    text = resources.files("agent_memory.cli").joinpath("demo_conversation.json").read_bytes()
    return _parse(text)


def read_conversations(path: Path) -> list[Conversation]:
    """Read all conversations of a JSONL file, one a line; blank lines are passed over.

    Raises:
        InvalidRequestError: a line is no conversation, an id comes twice, or there is none at
            all; the text names file and line.
        OSError: the file cannot be read.
    """
    found: dict[str, tuple[int, Conversation]] = {}
    for number, line in _lines(path):
        try:
            conversation = _parse(line)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}, line {number}: {error}") from error
        if conversation.id in found:
            earlier = found[conversation.id][0]
            raise InvalidRequestError(
                f"{path}, line {number}: the id {conversation.id!r} is already on line {earlier}"
            )
        found[conversation.id] = number, conversation
    if not found:
        raise InvalidRequestError(f"{path} holds no conversation; a line looks like {_FORM}")
    return [conversation for _, conversation in found.values()]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    # Bytes, because text mode would also end lines at a lone carriage return.
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            stripped = line.removeprefix(b"\xef\xbb\xbf").strip()
            if stripped:
                yield number, stripped


def _parse(text: bytes) -> Conversation:
    try:
        plain: Any = json.loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError too
        raise InvalidRequestError(f"it is no JSON: {error}") from error
    conversation = as_dict(plain) or {}
    if not {"id", "messages"} <= conversation.keys():
        raise InvalidRequestError(f"it is no conversation; it must look like {_FORM}")
    name = check_id(conversation["id"], "id")
    source: Any = conversation["messages"]
    if not isinstance(cast("object", source), list):
        raise InvalidRequestError("its messages are no list")
    try:
        return Conversation(name, tuple(from_openai(source)), source)
    except RecursionError:
        raise InvalidRequestError("its messages are nested too deeply") from None
