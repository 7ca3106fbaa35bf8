"""From a path or URL to the messages in it: :func:`open_source` finds out which form they are in.

JSON Lines hold records of Claude Code or Codex, or conversations: ``{"id": …, "messages": […]}``,
a bare list of messages, a conversation of ChatGPT's export, or one message on each line of the
single conversation that the file then is. A document is a list of messages, a conversation, or
a list of conversations.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import attrs

from agent_memory.audit import jsonl
from agent_memory.audit.chunks import (
    BY_PLACE,
    ChatEnd,
    Chunk,
    DefaultIds,
    Line,
    SourceEntry,
    Tally,
    in_chunks,
    parsed,
    read_lines,
    read_records,
)
from agent_memory.audit.findings import Finding
from agent_memory.audit.log_pages import in_thread
from agent_memory.audit.sources import chatgpt, claude_code, codex
from agent_memory.audit.sources.messages import EXPECTED, is_message, read_message
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey
from agent_memory.providers.part import Block, as_dict, as_list
from agent_memory.storage.urls import without_secrets

SourceFormat: TypeAlias = Literal[
    "jsonl",
    "messages",
    "claude-code",
    "codex",
    "openai",
    "agent-squad",
    "openai-agents",
    "langchain",
]
"""``jsonl`` is what this library exports; ``messages`` (once called ``openai``) files of messages
and conversations in any form that is read; ``claude-code`` and ``codex`` what those keep; the
others are the tables of the libraries of that name, ``langchain`` its dumps in files too."""

_FILES_ONLY: Final = ("jsonl", "messages", "claude-code", "codex", "openai")
_TABLES_ONLY: Final = ("agent-squad", "openai-agents")
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SQL: Final = frozenset({"sqlite", "postgres", "postgresql", "mysql", "mariadb"})


@attrs.frozen
class OpenedSource:
    """Messages to be read.

    Args:
        stream: what they are, in chunks.
        total: the last chunk's ``done``, where that is known.
        tally: counts, while the stream is read, what was read as what, and what was left out.
    """

    stream: AsyncIterator[Chunk | Finding]
    total: int | None = None
    tally: Tally = attrs.field(factory=Tally)


async def open_source(
    place: str, form: SourceFormat | None, ids: DefaultIds, *, table: str | None = None
) -> OpenedSource:
    """Find out what a path or URL holds, and read it.

    Args:
        place: a file; or the URL of a database: ``sqlite:///…``, ``postgresql://…``,
            ``mysql://…``, ``dynamodb://table?region=…``.
        form: what it holds; None to find out.
        ids: for where the source has none.
        table: the table with the messages, where it has not its usual name.

    Raises:
        InvalidRequestError: the format is not recognised, or the options contradict each other.
        OSError: the file cannot be read.
    """
    if form is not None and form not in get_args(SourceFormat):
        raise InvalidRequestError(
            f"the format must be one of {', '.join(get_args(SourceFormat))}, not {form!r}"
        )
    found = _URL.match(place)
    scheme = found[1].lower().partition("+")[0] if found else ""
    if scheme == "dynamodb":
        return await _dynamodb(place, form)
    if scheme in _SQL:
        return await _tables(place, form, ids, table)
    path = Path(place)
    if await asyncio.to_thread(_is_sqlite, path, place, is_path=not scheme):
        return await _tables(f"sqlite:///{path.as_posix()}", form, ids, table)
    return await asyncio.to_thread(_file, path, form, ids)


def _is_sqlite(path: Path, place: str, *, is_path: bool) -> bool:
    if not is_path and not path.exists():
        raise InvalidRequestError(
            f"nothing is imported from {without_secrets(place)!r}; give a file or the URL of "
            "a database. (From one of this library's own stores: agent-memory copy)"
        )
    if path.is_dir():
        raise InvalidRequestError(f"{path} is a directory; from a store, use agent-memory copy")
    with path.open("rb") as file:
        # The first 16 bytes of the file format: https://www.sqlite.org/fileformat.html
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def _file(path: Path, form: SourceFormat | None, ids: DefaultIds) -> OpenedSource:
    if form in _TABLES_ONLY:
        raise InvalidRequestError(f"{path} is not a database; {form} messages are in one")
    tally = Tally()
    chunks = read_file(path, form, ids, tally)
    return OpenedSource(in_thread(chunks), path.stat().st_size, tally)


async def _tables(
    url: str, form: SourceFormat | None, ids: DefaultIds, table: str | None
) -> OpenedSource:
    from agent_memory.audit.sources.tables import open_tables  # noqa: PLC0415  (an extra)

    if form in _FILES_ONLY:
        raise InvalidRequestError(f"{form} is a format of files, not of databases")
    tally = Tally()
    stream, total = await open_tables(url, form, ids, table, tally)
    return OpenedSource(stream, total, tally)


async def _dynamodb(url: str, form: SourceFormat | None) -> OpenedSource:
    from agent_memory.audit.sources.dynamodb import read_agent_squad_table  # noqa: PLC0415

    if form not in (None, "agent-squad"):
        raise InvalidRequestError("of tables in DynamoDB, those of agent-squad can be imported")
    tally = Tally()
    return OpenedSource(read_agent_squad_table(url, tally), tally=tally)


_CONVERSATION: Final = '{"id": …, "messages": [{"role": …, "content": …}, …]}'
# What is taken of a conversation.
_NAMES: Final = ("id", "user_id", "agent_id", "messages", "system")

RecordReader = Callable[[Path, DefaultIds, Tally], Iterator[SourceEntry | ChatEnd | Finding]]
RECORDS: Final[Mapping[str, tuple[Callable[[Block], bool], RecordReader]]] = {
    "jsonl": (jsonl.is_line, jsonl.read),
    "claude-code": (claude_code.recognise, claude_code.read),
    "codex": (codex.recognise, codex.read),
}
"""Forms whose files hold a record on each line: how one is recognised, and read."""


def read_file(
    path: Path, form: str | None, ids: DefaultIds, tally: Tally
) -> Iterator[Chunk | Finding]:
    """Read a file of any form, in bounded memory unless it is a document.

    Message ids are made of the place in the conversation where the source has none, so that
    reading a file again stores nothing twice. A conversation without an id is named after its
    file, its place there and all that it holds, so that no two of them become one chat; a
    file that has grown therefore becomes another chat. One with an id is continued.

    Args:
        path: the file.
        form: a name of :data:`RECORDS`, any other for messages and conversations; None to
            find out.
        ids: for where the file has none.
        tally: counts what was read as what.

    Raises:
        OSError: the file cannot be read.
    """
    first, more = _beginning(path)
    reader = _reader_of(first) if form is None else RECORDS.get(form, (None, None))[1]
    if reader is not None:
        return in_chunks(reader(path, ids, tally))
    if _is_document(path, first, more=more):
        return in_chunks(_document(path, ids, tally))
    return in_chunks(_conversations(path, ids, tally))


def _beginning(path: Path) -> tuple[bytes, bool]:
    """Return the first line that holds something, and whether another one follows."""
    lines = [line.text for line in islice(read_lines(path), 2)]
    return lines[0] if lines else b"", len(lines) > 1


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


# A pretty-printed document begins with a short line, such as ``{``: a longer first line that
# does not parse is a damaged record, which is reported with its line number.
_PRETTY: Final = 200


def _conversations(path: Path, ids: DefaultIds, tally: Tally) -> Iterator[SourceEntry | Finding]:
    ChatKey(ids.user_id, _stem(path), ids.agent_id)  # refuses invalid ids before reading
    single: ChatKey | None = None
    count = 0

    def read_line(line: Line, plain: Any) -> Iterator[SourceEntry | Finding]:
        nonlocal single, count
        if not is_message(plain):
            prefix = f"{_stem(path)}-{line.number}"
            for item in _conversation(plain, ids, prefix, line.place, tally):
                yield item if isinstance(item, Finding) else _sized(item, line)
            return
        count += 1
        if single is None:
            session_id = f"{_stem(path)}-{_digest_of_lines(path)}"
            single = ChatKey(ids.user_id, session_id, ids.agent_id)
        yield line.holding(single, read_message(plain, f"{BY_PLACE}{count}", tally))

    return read_records(path, read_line)


def _sized(item: SourceEntry, line: Line) -> SourceEntry:
    # The size of the whole line counts once, with the first message: it bounds a chunk.
    return item._replace(size=0 if item.number > 1 else len(line.text), done=line.end)


def _document(path: Path, ids: DefaultIds, tally: Tally) -> Iterator[SourceEntry | Finding]:
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        plain: Any = parsed(text)
    except InvalidRequestError as error:
        yield Finding(str(path), str(error))
        return
    items = as_list(plain)
    is_many = bool(items) and not is_message(items[0])
    for index, item in enumerate(items if is_many else [plain], 1):
        place = f"{path}, conversation {index}" if is_many else str(path)
        prefix = f"{_stem(path)}-{index}" if is_many else _stem(path)
        yield from _conversation(item, ids, prefix, place, tally)


# Most characters of a file's name in a session id: with the digest it is below 255 bytes.
_STEM: Final = 40
# Hexadecimal digits of a SHA-256 in a session id: 48 bits, beside the file's name and line.
_DIGEST: Final = 12


def _stem(path: Path) -> str:
    return path.stem[:_STEM] or "imported"


def _digest(conversation: Any) -> str:
    """Return a digest of a conversation that does not depend on how its JSON is laid out.

    Raises:
        InvalidRequestError: it is nested too deeply.
    """
    try:
        text = json.dumps(conversation, sort_keys=True)
    except RecursionError:
        raise InvalidRequestError("it is nested too deeply") from None
    return sha256(text.encode()).hexdigest()[:_DIGEST]


def _digest_of_lines(path: Path) -> str:
    """Return a digest of a conversation of one message a line, in bounded memory."""
    digest = sha256()
    for line in read_lines(path):
        digest.update(line.text + b"\n")
    return digest.hexdigest()[:_DIGEST]


def _conversation(
    plain: Any, ids: DefaultIds, prefix: str, place: str, tally: Tally
) -> Iterator[SourceEntry | Finding]:
    fields = as_dict(plain)
    if fields is not None and chatgpt.recognise(fields):
        yield from chatgpt.read(fields, ids, place, tally)
        return
    messages: Any = plain if fields is None else fields.get("messages")
    if not isinstance(cast("object", messages), list):
        kind = (fields or {}).get("type")
        reason = f"a record of type {kind!r} is not known" if kind else "it is no conversation"
        yield Finding(
            place, f"{reason}; expected {_CONVERSATION}, or {EXPECTED.removeprefix('expected ')}"
        )
        return
    try:
        key = _key(plain, fields or {}, ids, prefix)
    except InvalidRequestError as error:
        yield Finding(place, str(error))
        return
    for field in (fields or {}).keys() - set(_NAMES):
        tally.leave(f"field {field!r} of a conversation")
    numbered: list[tuple[int, Any]] = list(enumerate(as_list(messages), 1))
    # Anthropic's requests have the system prompt beside the messages; here it is the first one.
    if fields is not None and fields.get("system"):  # as Anthropic's requests have it
        numbered.insert(0, (0, {"role": "system", "content": fields["system"]}))
    for number, item in numbered:
        try:
            message = read_message(item, f"{BY_PLACE}{number}", tally)
        except InvalidRequestError as error:
            yield Finding(f"{place}, message {number}", str(error))
        else:
            yield SourceEntry(key, message, f"{place}, message", number)


def _key(plain: Any, fields: Block, ids: DefaultIds, prefix: str) -> ChatKey:
    # A digest of the content: two files that both begin with "hello" must not become one chat.
    given = fields["id"] if "id" in fields else f"{prefix}-{_digest(plain)}"
    session_id = str(given) if type(given) is int else given
    return ChatKey(
        fields.get("user_id", ids.user_id), session_id, fields.get("agent_id", ids.agent_id)
    )
