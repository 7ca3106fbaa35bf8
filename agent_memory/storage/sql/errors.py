"""The drivers' errors, classified by table and translated once."""

from __future__ import annotations

import enum
import sqlite3
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy.exc import (
    DBAPIError,
    SQLAlchemyError,
)
from sqlalchemy.exc import (
    TimeoutError as PoolTimeoutError,
)

from agent_memory.errors import (
    AgentMemoryError,
    CorruptedRecordError,
    MessageTooLargeError,
    StorageError,
    StorageUnavailableError,
)
from agent_memory.messages import ChatKey


class DatabaseFileError(OSError):
    """The file is missing, was replaced since it was opened, or is not a regular file."""


class Failure(enum.Enum):
    """Kinds of failure, by what may be done about them."""

    CONTENDED = "contended"
    """A deadlock or a serialisation failure: rolled back; the same again may work at once."""
    LOST = "lost"
    """The connection was lost or could not be made."""
    BUSY = "busy"
    """Locked, full, read-only, out of connections or time: nothing was stored."""
    TOO_LARGE = "too large"
    CORRUPTED = "corrupted"
    NO_TABLES = "no tables"
    OTHER = "other"


VENDOR_ERRORS: Final = (SQLAlchemyError, OSError, sqlite3.Error)
"""What drivers and SQLAlchemy raise; ``TimeoutError`` is an ``OSError``."""

_SQLITE: Final[Mapping[int, Failure]] = {
    # https://www.sqlite.org/rescode.html, primary codes
    3: Failure.BUSY,  # PERM
    5: Failure.BUSY,  # BUSY
    6: Failure.BUSY,  # LOCKED
    8: Failure.BUSY,  # READONLY
    10: Failure.BUSY,  # IOERR
    11: Failure.CORRUPTED,  # CORRUPT
    13: Failure.BUSY,  # FULL
    14: Failure.BUSY,  # CANTOPEN
    18: Failure.TOO_LARGE,  # TOOBIG
    26: Failure.CORRUPTED,  # NOTADB
}

_POSTGRESQL: Final[Mapping[str, Failure]] = {
    # https://www.postgresql.org/docs/current/errcodes-appendix.html, codes and classes
    "40001": Failure.CONTENDED,
    "40P01": Failure.CONTENDED,
    "08": Failure.LOST,
    "57P": Failure.LOST,  # shutting down, crashed, starting up
    "28": Failure.BUSY,  # not authorised
    "3D": Failure.BUSY,  # no such database
    "53": Failure.BUSY,  # disk full, too many connections
    "54": Failure.TOO_LARGE,
    "55": Failure.BUSY,
    "57": Failure.BUSY,  # cancelled, timed out
    "58": Failure.BUSY,
    "25": Failure.BUSY,  # read-only
    "42P01": Failure.NO_TABLES,
    "XX001": Failure.CORRUPTED,
    "XX002": Failure.CORRUPTED,
}

_MYSQL: Final[Mapping[int, Failure]] = {
    # https://mariadb.com/kb/en/mariadb-error-code-reference/; SQLAlchemy itself knows the codes
    # of a connection that was lost while it was used.
    1205: Failure.BUSY,  # lock wait timeout
    1213: Failure.CONTENDED,  # deadlock
    1020: Failure.CONTENDED,  # record has changed since last read
    1053: Failure.LOST,  # shutting down
    1077: Failure.LOST,
    2002: Failure.LOST,
    2003: Failure.LOST,
    1021: Failure.BUSY,  # disk full
    1030: Failure.BUSY,
    1040: Failure.BUSY,  # too many connections
    1044: Failure.BUSY,  # not authorised
    1045: Failure.BUSY,
    1049: Failure.BUSY,  # no such database
    1114: Failure.BUSY,  # table full
    1203: Failure.BUSY,
    1226: Failure.BUSY,
    1290: Failure.BUSY,  # read-only
    1317: Failure.BUSY,  # interrupted
    1698: Failure.BUSY,
    1836: Failure.BUSY,
    1969: Failure.BUSY,  # max_statement_time
    3024: Failure.BUSY,
    1118: Failure.TOO_LARGE,
    1153: Failure.TOO_LARGE,  # max_allowed_packet
    1406: Failure.TOO_LARGE,
    1146: Failure.NO_TABLES,
}


def kind_of(error: BaseException) -> Failure:
    """Say what kind of failure a driver's or SQLAlchemy's error is."""
    if isinstance(error, DatabaseFileError) or _tls_advice(error):
        return Failure.BUSY  # the same again would fail again
    if isinstance(error, DBAPIError):
        if isinstance(error.orig, TimeoutError):
            return Failure.BUSY
        if isinstance(error.orig, OSError):  # a driver that could not reach its server
            return Failure.LOST
        kind = _by_code(error.orig)
        lost = error.connection_invalidated and kind is Failure.OTHER
        return Failure.LOST if lost else kind
    if isinstance(error, PoolTimeoutError | TimeoutError):
        return Failure.BUSY
    if isinstance(error, OSError):
        return Failure.LOST
    return _by_code(error)


_REOPENING: Final = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
)


def needs_reopening(error: BaseException) -> bool:
    """Whether a SQLite connection would fail for ever, also when its file has been repaired."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    repairable = isinstance(code, int) and code & 0xFF in _REOPENING
    return repairable or isinstance(error, DatabaseFileError)


def _by_code(error: Any) -> Failure:
    sqlite_code = getattr(error, "sqlite_errorcode", None)
    if isinstance(sqlite_code, int):
        return _SQLITE.get(sqlite_code & 0xFF, _sqlite_by_text(error))
    if isinstance(error, sqlite3.DataError | OverflowError):
        return Failure.TOO_LARGE
    number = _mysql_number(error)
    if number is not None:  # before the SQLSTATE, which says less
        return _MYSQL.get(number, Failure.OTHER)
    state = _sqlstate(error)
    if state is not None:
        prefixes = (state, state[:3], state[:2])
        return next((_POSTGRESQL[p] for p in prefixes if p in _POSTGRESQL), Failure.OTHER)
    return Failure.OTHER


def _mysql_number(error: Any) -> int | None:
    arguments = getattr(error, "args", ())
    return arguments[0] if arguments and type(arguments[0]) is int else None


def _sqlstate(error: Any) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state if isinstance(state, str) else None


def _sqlite_by_text(error: Any) -> Failure:
    # "no such table" has no code of its own.
    return Failure.NO_TABLES if "no such table" in str(error) else Failure.OTHER


def translate(
    error: BaseException, *, key: ChatKey | None = None, stored: bool | None = False
) -> AgentMemoryError:
    """Return the error of this library for one of a driver's or SQLAlchemy's.

    Args:
        error: what was raised.
        key: the chat concerned.
        stored: False when nothing was stored, None when that is unknown.
    """
    text = _text(error)
    kind = kind_of(error)
    if kind is Failure.TOO_LARGE:
        return MessageTooLargeError(
            f"the database refused a message as too large: {text}", key=key, stored=stored
        )
    if kind is Failure.CORRUPTED:
        return CorruptedRecordError(f"the database is damaged: {text}", key=key)
    if kind is Failure.NO_TABLES:
        return StorageError(
            f"the store's tables are gone: {text}. Open a new store, with create_tables=True, "
            "to make them",
            key=key,
            stored=stored,
        )
    if kind is Failure.OTHER:
        return StorageError(f"the database refused: {text}", key=key, stored=stored)
    unsure = "" if stored is False else "; whether it was stored is unknown: save it again"
    return StorageUnavailableError(
        f"the database is not available: {text}{_tls_advice(error)}{unsure}",
        key=key,
        stored=stored,
    )


def _tls_advice(error: BaseException) -> str:
    """Say what to do where a server was not trusted, or has no TLS; an empty text otherwise."""
    causes = [*_causes(error)]
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return (
            ". The server's certificate was not accepted: name the authority that signed it in "
            "the database URL, with sslrootcert=… (PostgreSQL) or ssl_ca=… (MySQL), and the host "
            "as the certificate names it"
        )
    if any(map(_says_no_tls, causes)):
        return (
            ". The server has no TLS: enable it there, or write sslmode=disable (MySQL: "
            "ssl_mode=DISABLED) in the database URL where the network may be trusted"
        )
    return ""


def _says_no_tls(error: BaseException) -> bool:
    if isinstance(error, ssl.SSLError):  # asyncmy begins without asking; this is no answer in TLS
        return error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
    return isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error)  # asyncpg


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__


def _text(error: BaseException) -> str:
    # Not SQLAlchemy's text, which holds the statement and, with it, what people wrote.
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(cause, PoolTimeoutError):
        return "no connection of the pool became free in time"
    if isinstance(cause, DatabaseFileError):
        return str(cause)
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__


class TransactionFailedError(Exception):
    """A transaction failed for good; never leaves this package.

    Args:
        error: the driver's or SQLAlchemy's error.
        stored: False when nothing was stored, None when that is unknown.
    """

    def __init__(self, error: BaseException, *, stored: bool | None) -> None:
        super().__init__(error)
        self.error = error
        self.stored = stored

    def translated(self, key: ChatKey | None) -> AgentMemoryError:
        """Return this library's error for it, with the driver's as its cause."""
        result = translate(self.error, key=key, stored=self.stored)
        result.__cause__ = self.error
        return result


def is_rolled_back(error: BaseException) -> bool:
    """Whether an error at the commit proves that nothing was stored.

    The server, or SQLite, has to say so itself. A connection that was lost proves nothing: the
    commit may have been carried out, and its answer lost.
    """
    kind = kind_of(error)
    if kind is Failure.CONTENDED:
        return True
    cause = getattr(error, "orig", error)
    code = getattr(cause, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)
    # PostgreSQL answered that the commit failed, and not because it was going down.
    return (
        _sqlstate(cause) is not None and kind is not Failure.LOST and _mysql_number(cause) is None
    )
