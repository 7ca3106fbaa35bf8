"""Helpers of the commands: options, opening a store, choosing a chat, confirmations."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import attrs
import typer

from agent_memory.audit.escaping import one_line
from agent_memory.audit.log_pages import Hole
from agent_memory.audit.selection import Scope
from agent_memory.errors import AgentMemoryError, InvalidRequestError
from agent_memory.log import ChatInfo
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.urls import EXAMPLES, open_storage, without_secrets

STORE = "AGENT_MEMORY_STORE"
# Most agents that an error names.
_NAMED: Final = 10

StoreOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help=f"The store: {EXAMPLES}. By default what {STORE} says.",
        envvar=STORE,
        show_envvar=False,
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
JsonLinesOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Write JSON, an object a line, for programs.")
]
SinceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Only from this time on: 2026-11-30, 2026-11-30T14:05:00, with +01:00 or in UTC.",
    ),
]
UntilOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only until this time, that day or second included."),
]
DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def utf8(text: str | None) -> str | None:
    """Return an id as it was typed, also under LC_ALL=C.

    There Python decodes arguments as ASCII and turns other bytes into lone surrogates; they are
    read as UTF-8 instead.
    """
    if text is None:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        with suppress(UnicodeError):
            return os.fsencode(text).decode()
    return text


GrepOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Only messages, tool calls and notes that hold this text, in any case.",
        callback=utf8,
    ),
]


def _id_argument(metavar: str) -> Any:
    return typer.Argument(metavar=metavar, show_default=False, callback=utf8)


User: TypeAlias = Annotated[str, _id_argument("USER")]
Session: TypeAlias = Annotated[str, _id_argument("SESSION")]
AnyUser: TypeAlias = Annotated[str | None, _id_argument("USER")]
AnySession: TypeAlias = Annotated[str | None, _id_argument("SESSION")]
AnyAgent: TypeAlias = Annotated[str | None, _id_argument("AGENT")]


class UnknownChatError(AgentMemoryError):
    """The store holds no such chat."""


def given(store: str | None) -> str:
    """Return the URL that was given.

    Raises:
        InvalidRequestError: no URL was given.
    """
    if not store:
        raise InvalidRequestError(f"which store? Give --store URL or set {STORE}; {EXAMPLES}")
    return store


@asynccontextmanager
async def opened(store: str | None, *, create: bool = False) -> AsyncGenerator[ChatStorage]:
    """Open a store for a command, and close it.

    Args:
        store: its URL, if one was given.
        create: whether to create missing files and tables; only writing commands do.
    """
    # A mistyped path must be an error, not a new and empty store.
    async with open_storage(given(store), create=create) as storage:
        yield storage


@contextmanager
def only_looking() -> Generator[None]:
    """Silence warnings about overdue summaries, which inspecting a view does not make."""
    log = logging.getLogger("agent_memory.summarizing.buffers")
    level = log.level
    # The warning advises on summarizers, and there is none in a command.
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def no_such_chat(store: str | None, scope: Scope) -> UnknownChatError:
    """Return the error for a scope without chats."""
    words = ("user", "session", "agent")
    ids = (scope.user_id, scope.session_id, scope.agent_id)
    named = ", ".join(
        f"{word} {value!r}" for word, value in zip(words, ids, strict=True) if value is not None
    )
    return UnknownChatError(
        f"{without_secrets(given(store))} holds no chat{' of ' + named if named else ''}"
    )


async def chosen_chat(
    storage: ChatStorage, store: str | None, user: str, session: str, agent: str | None
) -> ChatInfo:
    """Return the chat that is meant: that of the agent, or the only one of the session.

    Raises:
        UnknownChatError: there is none.
        InvalidRequestError: no agent is given, and the session has several.
    """
    scope = Scope(user, session, agent)
    infos = [info async for info in scope.chats(storage)]
    if not infos:
        raise no_such_chat(store, scope)
    if len(infos) > 1:
        names = [repr(info.key.agent_id) for info in infos[:_NAMED]]
        more = [f"{len(infos) - _NAMED:,} more"] if len(infos) > _NAMED else []
        raise InvalidRequestError(
            f"session {session!r} has {len(infos):,} agents; say which: {', '.join(names + more)}"
        )
    return infos[0]


def print_json(plain: Any) -> None:
    """Write a value as one line of JSON: moments in ISO 8601, records by their fields."""
    print(json.dumps(plain, default=_as_json))


def _as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else attrs.asdict(value)


def say(text: str) -> None:
    """Print a line to standard error."""
    print(one_line(text), file=sys.stderr)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless ``--yes`` was passed.

    Raises:
        InvalidRequestError: stdin is not a terminal.
        typer.Abort: the answer is no.
    """
    if yes:
        return
    # A script's empty or unrelated input must never confirm a deletion.
    if not sys.stdin.isatty():
        raise InvalidRequestError(f"{question} stdin is not a terminal; pass --yes")
    typer.confirm(one_line(question), abort=True, err=True)


def plain_hole(hole: Hole) -> dict[str, Any]:
    """Return positions that cannot be read, as JSON holds them."""
    return {"first": hole.first, "last": hole.last, "place": hole.place, "reason": hole.reason}


def plural(count: int, word: str, words: str | None = None) -> str:
    """Return a count with its word: ``1 message``, ``2,000 messages``."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"
