"""From what the caller gave, a URL or an engine, to an engine's plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import attrs
from sqlalchemy import URL, Dialect, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncEngine

from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.storage.sql.schema import FAMILIES, Family
from agent_memory.storage.sql.url_options import connect_arguments

UrlOrEngine: TypeAlias = str | URL | Engine | AsyncEngine
"""What a store can be opened with."""

_DRIVERS: Final = {
    # What stands before :// and the driver used for it. SQLite's is always the blocking one:
    # the store has threads of its own for it, which is faster than an asyncio wrapper's.
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "sqlite+aiosqlite": "sqlite+pysqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+asyncmy",
    "mariadb": "mariadb+asyncmy",
}

_EXTRAS: Final = {"asyncpg": "postgres", "asyncmy": "mysql"}

_SQLITE_WITHOUT_SLASHES: Final = re.compile(r"sqlite(?:\+\w+)?:(?!//)(.*)", re.IGNORECASE)
_SQLITE_OPTIONS: Final = {"uri", "timeout", "cached_statements"}  # of the driver's own

_EXAMPLES: Final = (
    "use one such as sqlite:///chats.db, postgresql://user:password@host/database or "
    "mysql://user:password@host/database"
)


@attrs.frozen
class Target:
    """Where the chats are.

    Attributes:
        family: which kind of engine.
        url: of the engine to make, without the options of a server's URL; None when the caller
            passed an engine.
        engine: the caller's.
        in_memory: whether it is a SQLite database in this process's memory.
        shown: how it may be shown to people: no password, no query.
        connect_args: what the driver takes for the options of a server's URL.
    """

    family: Family
    url: URL | None = attrs.field(repr=False)
    engine: Engine | AsyncEngine | None
    in_memory: bool
    shown: str
    connect_args: Mapping[str, Any] = attrs.field(factory=dict[str, Any], repr=False)

    @property
    def path(self) -> Path | None:
        """The SQLite file that a URL names; None for any other target."""
        url = self.url
        if self.family != "sqlite" or url is None or self.in_memory or not url.database:
            return None
        name = url.database
        if url.query.get("uri") == "true":
            name = unquote(name.removeprefix("file:").partition("?")[0])
        return Path(name)


def parse_target(url_or_engine: object) -> Target:
    """Understand what a store was given.

    Raises:
        InvalidRequestError: it is not a usable URL or engine; the text says what to do, and never
            shows a password.
        MissingDependencyError: the driver is not installed.
    """
    if isinstance(url_or_engine, Engine | AsyncEngine):
        return _engine_target(url_or_engine)
    if not isinstance(url_or_engine, str | URL):
        raise InvalidRequestError(
            "SqlChatStorage takes a URL or a SQLAlchemy Engine or AsyncEngine, not "
            f"{type(url_or_engine).__name__}; {_EXAMPLES}"
        )
    url = _parsed(url_or_engine)
    _check_sqlite(url)
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    dialect = _dialect(url)
    family = _family(dialect.name)
    _import_driver(url, dialect)
    if family != "sqlite" and not dialect.get_async_dialect_cls(url).is_async:
        raise InvalidRequestError(
            f"{url.drivername!r} is a blocking driver; write {url.get_backend_name()}:// for "
            "the store's own, or pass a SQLAlchemy Engine that uses it"
        )
    bare, connect_args = connect_arguments(url)
    return Target(family, bare, None, _in_memory(url), _shown(url), connect_args)


def _engine_target(engine: Engine | AsyncEngine) -> Target:
    family = _family(engine.dialect.name)
    in_memory = family == "sqlite" and _in_memory(engine.url)
    return Target(family, None, engine, in_memory, _shown(engine.url))


def _parsed(text: str | URL) -> URL:
    if isinstance(text, str) and (found := _SQLITE_WITHOUT_SLASHES.match(text)):
        raise _slashes(found[1] or "chats.db")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    # Behind an @ of a password's own comes the rest of it, which would be shown as the host.
    torn = url is not None and isinstance(text, str) and "@" in f"{url.host}{url.database}"
    if url is None or (torn and url.get_backend_name() != "sqlite"):
        # Without the cause and the text: both may hold a password.
        raise InvalidRequestError(
            f"this is not a database URL (special characters in a password must be "
            f"percent-encoded); {_EXAMPLES}"
        )
    return url


def _slashes(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"a SQLite URL has three slashes before a relative path: sqlite:///{path}; "
        "four before an absolute one"
    )


def _check_sqlite(url: URL) -> None:
    """Refuse URLs that name a database in memory, or none, by mistake."""
    if url.get_backend_name() != "sqlite":
        return
    if url.host is not None:
        raise _slashes(url.host)
    if url.database == "":
        raise InvalidRequestError(
            "sqlite:/// names no file; write sqlite:///chats.db, or sqlite:// for a database in "
            "memory, which is gone when the store is closed"
        )
    ignored = set(url.query) - _SQLITE_OPTIONS
    if ignored and url.query.get("uri") != "true":
        raise InvalidRequestError(
            f"the option {min(ignored)!r} of a SQLite URL would be ignored: write "
            "sqlite:///file:chats.db?mode=ro&uri=true for an option of SQLite's own, or remove it"
        )


def _dialect(url: URL) -> type[Dialect]:
    try:
        return url.get_dialect()
    except NoSuchModuleError:
        raise InvalidRequestError(
            f"there is no database driver {url.drivername!r}; {_EXAMPLES}"
        ) from None


def _import_driver(url: URL, dialect: type[Dialect]) -> None:
    try:
        dialect.import_dbapi()
    except ImportError as error:
        driver = url.get_driver_name()
        if driver not in _EXTRAS:
            raise InvalidRequestError(
                f"the driver {driver!r} of the URL is not installed ({error})"
            ) from error
        raise MissingDependencyError(driver, _EXTRAS[driver]) from error


def _family(dialect_name: str) -> Family:
    if dialect_name not in FAMILIES:
        raise InvalidRequestError(
            f"{dialect_name} databases are not supported; use SQLite, PostgreSQL, MariaDB or MySQL"
        )
    return FAMILIES[dialect_name]


def _in_memory(url: URL) -> bool:
    if url.get_backend_name() != "sqlite":
        return False
    database = url.database or ""
    is_file = database not in {"", ":memory:", "file::memory:"}
    return not is_file or url.query.get("mode") == "memory"


def _shown(url: URL) -> str:
    # A query may hold a password too.
    bare = url.set(password=None, query={})
    return bare.set(drivername=url.get_backend_name()).render_as_string()
