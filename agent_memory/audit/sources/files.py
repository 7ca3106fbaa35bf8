"""From a file to the messages in it: :func:`read_file` finds out which form they are in.

JSON Lines hold records of Claude Code or Codex, or conversations: ``{"id": …, "messages": […]}``,
a bare list of messages, a conversation of ChatGPT's export, or one message on each line of the
single conversation that the file then is. A document is a list of messages, a conversation, or
a list of conversations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

from agent_memory.audit.chunks import BY_PLACE, Bad, Chunk, Whose
from agent_memory.audit.lines import Reader
from agent_memory.audit.sources import chatgpt, claude_code, codex
from agent_memory.audit.sources.items import Item, Tally, in_chunks, parsed, records_of
from agent_memory.audit.sources.messages import EXPECTED, is_message, read_message
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey
from agent_memory.providers.part import Block, as_dict, as_list

_CONVERSATION: Final = '{"id": …, "messages": [{"role": …, "content": …}, …]}'
_NAMES: Final = ("id", "user_id", "agent_id", "messages", "system")
"""What is taken of a conversation."""

RecordReader = Callable[[Path, Whose, Tally], Iterator[Item | Bad]]
RECORDS: Final[Mapping[str, tuple[Callable[[Block], bool], RecordReader]]] = {
    "claude-code": (claude_code.recognise, claude_code.read),
    "codex": (codex.recognise, codex.read),
}
"""Forms whose files hold a record on each line: how one is recognised, and read."""


def read_file(path: Path, form: str | None, whose: Whose, tally: Tally) -> Iterator[Chunk | Bad]:
    """Read a file of any form but this library's own, in bounded memory unless it is a document.

    Message ids are made of the place in the conversation where the source has none, so that
    reading a file again stores nothing twice. A conversation without an id is named after its
    file, its place there and all that it holds, so that no two of them become one chat; once it
    has grown it is another one. One with an id goes on where it ended.

    Args:
        path: the file.
        form: a name of :data:`RECORDS`, any other for messages and conversations; None to
            find out.
        whose: ids for where the file has none.
        tally: counts what was read as what.

    Raises:
        OSError: the file cannot be read.
    """
    first, more = _beginning(path)
    reader = _reader_of(first) if form is None else RECORDS.get(form, (None, None))[1]
    if reader is not None:
        return in_chunks(reader(path, whose, tally))
    if _is_document(path, first, more=more):
        return in_chunks(_document(path, whose, tally))
    return in_chunks(_conversations(path, whose, tally))


def _beginning(path: Path) -> tuple[bytes, bool]:
    """Return the first line that holds something, and whether another one follows."""
    with Reader(path) as reader:
        line = next(reader, None)
        return b"" if line is None else line.text, next(reader, None) is not None


def _reader_of(first: bytes) -> RecordReader | None:
    try:
        record = as_dict(parsed(first))
    except InvalidRequestError:
        return None
    for recognise, read in RECORDS.values():
        if record is not None and recognise(record):
            return read
    return None


def _is_document(path: Path, first: bytes, *, more: bool) -> bool:
    """Whether a file is one JSON document rather than JSON Lines."""
    try:
        plain = parsed(first)
    except InvalidRequestError:
        return first[:1] in (b"[", b"{") and more and len(first) < _PRETTY
    return not more and (isinstance(plain, list) or path.suffix.lower() == ".json")


_PRETTY: Final = 200
"""A broken first line longer than this is a broken line, not the start of a document."""


def _conversations(path: Path, whose: Whose, tally: Tally) -> Iterator[Item | Bad]:
    ChatKey(whose.user_id, _stem(path), whose.agent_id)  # refuses ids before anything is read
    single: ChatKey | None = None
    count = 0
    for record in records_of(path):
        if isinstance(record, Bad):
            yield record
            continue
        place = f"{path}, line {record.number}"
        plain = record.plain
        if not is_message(plain):
            prefix = f"{_stem(path)}-{record.number}"
            for item in _conversation(plain, whose, prefix, place, tally):
                yield item if isinstance(item, Bad) else _sized(item, record.size, record.end)
            continue
        count += 1
        if single is None:
            session_id = f"{_stem(path)}-{_digest_of_lines(path)}"
            single = ChatKey(whose.user_id, session_id, whose.agent_id)
        try:
            message = read_message(plain, f"{BY_PLACE}{count}", tally)
        except InvalidRequestError as error:
            yield Bad(place, str(error))
        else:
            source = f"{path}, line"
            yield Item(single, message, source, record.number, record.size, record.end)


def _sized(item: Item, size: int, end: int) -> Item:
    # A conversation's size is that of its line: it counts once, with its first message.
    return Item(
        item.key, item.message, item.source, item.number, 0 if item.number > 1 else size, end
    )


def _document(path: Path, whose: Whose, tally: Tally) -> Iterator[Item | Bad]:
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        plain: Any = parsed(text)
    except InvalidRequestError as error:
        yield Bad(str(path), str(error))
        return
    items = as_list(plain)
    is_many = bool(items) and not is_message(items[0])
    for index, item in enumerate(items if is_many else [plain], 1):
        place = f"{path}, conversation {index}" if is_many else str(path)
        prefix = f"{_stem(path)}-{index}" if is_many else _stem(path)
        yield from _conversation(item, whose, prefix, place, tally)


_STEM: Final = 40
"""Most characters of a file's name in a session id: with the digest it is below 255 bytes."""
_DIGEST: Final = 12
"""Hexadecimal digits of a SHA-256 in a session id: 48 bits, beside the file's name and line."""


def _stem(path: Path) -> str:
    return path.stem[:_STEM] or "imported"


def _digest(conversation: Any) -> str:
    """Return what tells a conversation from others, however its JSON is laid out.

    Raises:
        InvalidRequestError: it is nested too deeply.
    """
    try:
        text = json.dumps(conversation, sort_keys=True)
    except RecursionError:
        raise InvalidRequestError("it is nested too deeply") from None
    return sha256(text.encode()).hexdigest()[:_DIGEST]


def _digest_of_lines(path: Path) -> str:
    """Return what tells a conversation of one message a line from others, in bounded memory."""
    digest = sha256()
    with Reader(path) as reader:
        for line in reader:
            digest.update(line.text + b"\n")
    return digest.hexdigest()[:_DIGEST]


def _conversation(
    plain: Any, whose: Whose, prefix: str, place: str, tally: Tally
) -> Iterator[Item | Bad]:
    fields = as_dict(plain)
    if fields is not None and chatgpt.recognise(fields):
        yield from chatgpt.read(fields, whose, place, tally)
        return
    messages: Any = plain if fields is None else fields.get("messages")
    if not isinstance(cast("object", messages), list):
        kind = (fields or {}).get("type")
        told = f"a record of type {kind!r} is not known" if kind else "it is no conversation"
        yield Bad(
            place, f"{told}; expected {_CONVERSATION}, or {EXPECTED.removeprefix('expected ')}"
        )
        return
    try:
        key = _key(plain, fields or {}, whose, prefix)
    except InvalidRequestError as error:
        yield Bad(place, str(error))
        return
    for field in (fields or {}).keys() - set(_NAMES):
        tally.leave(f"field {field!r} of a conversation")
    numbered: list[tuple[int, Any]] = list(enumerate(as_list(messages), 1))
    if fields is not None and fields.get("system"):  # as Anthropic's requests have it
        numbered.insert(0, (0, {"role": "system", "content": fields["system"]}))
    for number, item in numbered:
        try:
            message = read_message(item, f"{BY_PLACE}{number}", tally)
        except InvalidRequestError as error:
            yield Bad(f"{place}, message {number}", str(error))
        else:
            yield Item(key, message, f"{place}, message", number)


def _key(plain: Any, fields: Block, whose: Whose, prefix: str) -> ChatKey:
    given = fields["id"] if "id" in fields else f"{prefix}-{_digest(plain)}"
    session_id = str(given) if type(given) is int else given
    return ChatKey(
        fields.get("user_id", whose.user_id), session_id, fields.get("agent_id", whose.agent_id)
    )
