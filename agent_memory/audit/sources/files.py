"""Conversations in files in OpenAI's message format: JSON Lines or one JSON document.

A line is a conversation, ``{"id": …, "messages": […]}`` (other fields are left), a bare list
of messages, or one message of the single conversation that the file then is. A document is a
list of messages, a conversation, or a list of conversations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import attrs

from agent_memory.audit.chunks import Bad, Chunk, Whose
from agent_memory.audit.lines import Line, Reader
from agent_memory.audit.pages import PAGE, PAGE_BYTES
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers import from_openai, from_openai_responses
from agent_memory.providers.part import as_dict, as_list

_FORM: Final = '{"id": …, "messages": [{"role": …, "content": …}, …]}'


def read_openai_lines(path: Path, whose: Whose) -> Iterator[Chunk | Bad]:
    """Read a JSON Lines file, a line at a time; the n-th line without an id is ``line-n``.

    Message ids are made of the place in the conversation, so that reading the file again, or
    once it has grown, stores nothing twice.

    Raises:
        OSError: the file cannot be read.
    """
    single = _Single(path, whose)
    with Reader(path) as reader:
        for line in reader:
            place = f"{path}, line {line.number}"
            try:
                plain: Any = json.loads(line.text)
            except (ValueError, RecursionError) as error:
                yield Bad(place, f"it is no JSON: {error}")
                continue
            if _is_message(plain):
                yield from single.add(plain, line)
            else:
                yield from _conversation(plain, whose, f"line-{line.number}", place, line.end)
    yield from single.flush()


def read_openai_document(path: Path, whose: Whose) -> Iterator[Chunk | Bad]:
    """Read a file that is one JSON document, which is held in memory.

    Raises:
        OSError: the file cannot be read.
    """
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        plain: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield Bad(str(path), f"it is no JSON: {error}")
        return
    items = as_list(plain)
    is_many = bool(items) and not _is_message(items[0])
    for index, item in enumerate(items if is_many else [plain]):
        place = f"{path}, conversation {index + 1}" if is_many else str(path)
        name = f"{path.stem}-{index + 1}" if is_many else path.stem
        yield from _conversation(item, whose, name, place, len(text))


def is_one_document(path: Path) -> bool:
    """Whether a file is one JSON document rather than JSON Lines."""
    with Reader(path) as reader:
        line = next(reader, None)
        more = None if line is None else next(reader, None)
    if line is None:
        return False
    try:
        first = json.loads(line.text)
    except (ValueError, RecursionError):
        return line.text[:1] in b"[{" and more is not None and len(line.text) < _PRETTY
    return more is None and (isinstance(first, list) or path.suffix.lower() == ".json")


_PRETTY: Final = 200
"""A broken first line longer than this is a broken line, not the start of a document."""


def _is_message(plain: object) -> bool:
    fields = as_dict(plain) or {}
    return "messages" not in fields and ("role" in fields or "type" in fields)


def _conversation(
    plain: Any, whose: Whose, name: str, place: str, done: int
) -> Iterator[Chunk | Bad]:
    fields = as_dict(plain)
    messages: Any = plain if fields is None else fields.get("messages")
    if not isinstance(cast("object", messages), list):
        yield Bad(place, f"it is no conversation; it must look like {_FORM}")
        return
    try:
        key = _key(fields or {}, whose, name)
    except InvalidRequestError as error:
        yield Bad(place, str(error))
        return
    good: list[ConversationMessage] = []
    places: list[int] = []
    for number, item in enumerate(messages, 1):
        try:
            good.append(load(item, number))
            places.append(number)
        except InvalidRequestError as error:
            yield Bad(f"{place}, message {number}", str(error))
    for start in range(0, len(good), PAGE):
        stop = start + PAGE
        yield Chunk(key, good[start:stop], places[start:stop], f"{place}, message", (), done)


def _key(fields: dict[str, Any], whose: Whose, name: str) -> ChatKey:
    given = fields.get("id", name)
    session_id = str(given) if type(given) is int else given
    return ChatKey(
        fields.get("user_id", whose.user_id), session_id, fields.get("agent_id", whose.agent_id)
    )


def load(item: object, number: int) -> ConversationMessage:
    """Make the `number`-th message of a conversation: of Chat Completions or Responses.

    Raises:
        InvalidRequestError: it is none.
    """
    fields = as_dict(item)
    if fields is None:
        raise InvalidRequestError("a message must be an object with role and content")
    kind = fields.get("type")
    reading = from_openai_responses if isinstance(kind, str) else from_openai
    try:
        (message,) = reading([fields])
    except RecursionError:
        raise InvalidRequestError("it is nested too deeply") from None
    return attrs.evolve(message, id=f"imported-{number}")


class _Single:
    """Collects the messages of a file that has one on each line."""

    def __init__(self, path: Path, whose: Whose) -> None:
        self._source = f"{path}, line"
        self._key = ChatKey(whose.user_id, path.stem or "imported", whose.agent_id)
        self._messages: list[ConversationMessage] = []
        self._places: list[int] = []
        self._number = self._size = self._done = 0

    def add(self, plain: object, line: Line) -> Iterator[Chunk | Bad]:
        self._number += 1
        self._done = line.end
        try:
            self._messages.append(load(plain, self._number))
            self._places.append(line.number)
            self._size += len(line.text)
        except InvalidRequestError as error:
            yield Bad(f"{self._source} {line.number}", str(error))
        if len(self._messages) >= PAGE or self._size > PAGE_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Chunk]:
        if self._messages:
            yield Chunk(self._key, self._messages, self._places, self._source, (), self._done)
        self._messages, self._places, self._size = [], [], 0
