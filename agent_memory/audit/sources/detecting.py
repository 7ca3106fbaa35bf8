"""From a path or URL to the messages in it: :func:`open_source`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import attrs

from agent_memory.audit.chunks import Bad, Chunk, Whose
from agent_memory.audit.jsonl import is_line, read_jsonl
from agent_memory.audit.lines import Reader
from agent_memory.audit.pages import in_thread
from agent_memory.audit.sources.files import read_file
from agent_memory.audit.sources.items import Tally
from agent_memory.errors import AgentMemoryError, InvalidRequestError
from agent_memory.storage.codec import parse
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
class Source:
    """Messages to be read.

    Args:
        stream: what they are, in chunks.
        total: the last chunk's ``done``, where that is known.
        tally: counts, while the stream is read, what was read as what, and what was left out.
    """

    stream: AsyncIterator[Chunk | Bad]
    total: int | None = None
    tally: Tally = attrs.field(factory=Tally)


async def open_source(
    place: str, form: SourceFormat | None, whose: Whose, *, table: str | None = None
) -> Source:
    """Find out what a path or URL holds, and read it.

    Args:
        place: a file; or the URL of a database: ``sqlite:///…``, ``postgresql://…``,
            ``mysql://…``, ``dynamodb://table?region=…``.
        form: what it holds; None to find out.
        whose: ids for where the source has none.
        table: the table with the messages, where it has not its usual name.

    Raises:
        InvalidRequestError: that cannot be told, or the options do not fit together.
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
        return await _tables(place, form, whose, table)
    path = Path(place)
    if await asyncio.to_thread(_is_sqlite, path, place, is_path=not scheme):
        return await _tables(f"sqlite:///{path.as_posix()}", form, whose, table)
    return await asyncio.to_thread(_file, path, form, whose)


def _is_sqlite(path: Path, place: str, *, is_path: bool) -> bool:
    if not is_path and not path.exists():
        raise InvalidRequestError(
            f"nothing is imported from {without_secrets(place)!r}; give a file or the URL of "
            "a database. (From one of this library's own stores: agent-memory copy)"
        )
    if path.is_dir():
        raise InvalidRequestError(f"{path} is a directory; from a store, use agent-memory copy")
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def _file(path: Path, form: SourceFormat | None, whose: Whose) -> Source:
    if form in _TABLES_ONLY:
        raise InvalidRequestError(f"{path} is no database; {form} messages are in one")
    tally = Tally()
    chunks: Iterator[Chunk | Bad]
    if form == "jsonl" or (form is None and _is_export(path)):
        chunks = _counted(read_jsonl(path), tally)
    else:
        chunks = read_file(path, form, whose, tally)
    return Source(in_thread(chunks), path.stat().st_size, tally)


def _counted(chunks: Iterator[Chunk | Bad], tally: Tally) -> Iterator[Chunk | Bad]:
    for chunk in chunks:
        if isinstance(chunk, Chunk):
            tally.read["agent-memory export"] += len(chunk.entries)
        yield chunk


def _is_export(path: Path) -> bool:
    with Reader(path) as reader:
        line = next(reader, None)
    try:
        return line is not None and is_line(parse(line.text))
    except AgentMemoryError:
        return False


async def _tables(url: str, form: SourceFormat | None, whose: Whose, table: str | None) -> Source:
    from agent_memory.audit.sources.tables import open_tables  # noqa: PLC0415  (an extra)

    if form in _FILES_ONLY:
        raise InvalidRequestError(f"{form} is a format of files, not of databases")
    tally = Tally()
    stream, total = await open_tables(url, form, whose, table, tally)
    return Source(stream, total, tally)


async def _dynamodb(url: str, form: SourceFormat | None) -> Source:
    from agent_memory.audit.sources.dynamodb import read_agent_squad_table  # noqa: PLC0415

    if form not in (None, "agent-squad"):
        raise InvalidRequestError("of tables in DynamoDB, those of agent-squad can be imported")
    tally = Tally()
    return Source(read_agent_squad_table(url, tally), tally=tally)
