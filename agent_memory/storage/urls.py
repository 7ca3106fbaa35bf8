"""From a URL to a store, for command lines and configuration: :func:`open_storage`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from agent_memory.errors import InvalidRequestError, StorageError
from agent_memory.storage.base import ChatStorage

EXAMPLES: Final = (
    "sqlite:///chats.db, postgresql://user:password@host/database, "
    "mysql://user:password@host/database, file:./chats, "
    "dynamodb://table?region=eu-central-1, memory:"
)
"""One URL of each kind."""

_SQL: Final = frozenset({"sqlite", "postgres", "postgresql", "mysql", "mariadb"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BEGINNING: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//|(?:file|memory|sqlite|dynamodb):", re.IGNORECASE
)
_USER: Final = re.compile(r"([^:/?#@]*:).*@", re.DOTALL)
_NO_PORT: Final = re.compile(r"([^:/?#@\[]*:)(?![0-9]*(?:[/?#]|$))[^/?#]*")
_INNER: Final = re.compile(r"(://[^:/?#@]*:).*", re.DOTALL)  # such as an endpoint's
_SECRET: Final = re.compile("pass|pwd|secret|token|key|cred|auth|sig|init_command", re.IGNORECASE)
_DYNAMODB_OPTIONS: Final = ("region", "endpoint", "create_table", "ttl_attribute", "ttl_seconds")


def open_storage(url: str, *, create: bool = True) -> ChatStorage:
    """Return the store that a URL names. It connects at its first use; close it after the last.

    Args:
        url: one of

            - ``sqlite:///chats.db`` (relative), ``sqlite:////var/chats.db`` (absolute);
            - ``postgresql://user:password@host/database``, ``mysql://…``, ``mariadb://…``;
            - ``file:./chats``: a directory; special characters may be percent-encoded, ``%``,
              ``?`` and ``#`` must be;
            - ``dynamodb://table?region=…&endpoint=…``, and of the options ``create_table=true``,
              ``ttl_attribute=…``, ``ttl_seconds=…``; credentials come from the environment;
            - ``memory:``, which is gone with the process.
        create: whether a database file, its tables or a directory is created if it does not exist;
            for those who only look, a missing one is a mistake.

    Raises:
        StorageError: there is no such file or directory, and `create` is False. (Missing
            tables are reported at the first use.)
        InvalidRequestError: the URL names no store; the text says what to write instead, and
            never shows a password.
        MissingDependencyError: the store needs an extra that is not installed.
    """
    given: object = cast("object", url)
    if not isinstance(given, str):
        raise InvalidRequestError(
            f"the store's URL must be a text such as {EXAMPLES}; got {type(given).__name__}"
        )
    found = _SCHEME.match(url)
    if found is None or len(found[1]) == 1:  # C:\chats is a path
        raise InvalidRequestError(
            "the store's URL does not begin with a kind of store; write sqlite:///chats.db for "
            f"a database file, file:./chats for a directory, or one such as {EXAMPLES}"
        )
    scheme = found[1].lower()
    if scheme.partition("+")[0] in _SQL:
        return _sql(url, create=create)
    if scheme == "file":
        return _file(url, create=create)
    if scheme == "dynamodb":  # whether its table is created, the URL says
        return _dynamodb(url)
    if scheme == "memory":
        return _memory(url)
    raise InvalidRequestError(f"there is no store of kind {scheme!r}; use one of {EXAMPLES}")


def without_secrets(url: str) -> str:
    """Return a store's URL as it may be shown: passwords and other secrets replaced by ``***``.

    It rather hides too much: what lies between a colon and the last ``@`` goes, so that a
    password with special characters that should have been encoded is hidden as well; so does
    what stands in place of a port and is not one. A URL of any kind may be given, also a kind
    that does not exist, or none.
    """
    found = _BEGINNING.match(url)
    beginning = "" if found is None else found[0]
    rest = url[len(beginning) :]
    if _USER.match(rest):
        rest = _USER.sub(r"\1***@", rest, count=1)
    elif beginning.endswith("//"):
        rest = _NO_PORT.sub(r"\1***", rest, count=1) if _NO_PORT.match(rest) else rest
    inner, at, end = rest.rpartition("@")
    shown = beginning + _INNER.sub(r"\1***", inner) + at + end
    place, *options = re.split("([?&;])", shown, maxsplit=1)
    return "".join([place, *(part for text in options for part in _without_values(text))])


def _without_values(options: str) -> Iterator[str]:
    """Yield the options of a URL and what is between them, the values of secret ones hidden."""
    for part in re.split("([&;])", options):
        name, equals, _ = part.partition("=")
        yield f"{name}{equals}***" if equals and _SECRET.search(name) else part


def _sql(url: str, *, create: bool) -> ChatStorage:
    from agent_memory.storage.sql import SqlChatStorage  # noqa: PLC0415  (an extra)

    storage = SqlChatStorage(url, create_tables=create)
    path = storage.path
    if path is not None and not create:
        _check_exists(path)
    return storage


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise StorageError(f"there is no {path}")


def _file(url: str, *, create: bool) -> ChatStorage:
    from agent_memory.storage.file import FileChatStorage  # noqa: PLC0415  (an extra)

    split = _split(url)
    if split.query or split.fragment:
        raise InvalidRequestError(
            "a file: URL takes no options; write %3F for ? and %23 for # in a directory's name"
        )
    if split.netloc not in ("", "localhost"):
        raise InvalidRequestError(
            "what stands between file:// and the next slash is another host; write file:./chats "
            "for a directory here, or file:///var/chats for an absolute path"
        )
    if not split.path:
        raise InvalidRequestError("the file: URL names no directory; write file:./chats")
    path = Path(unquote(split.path)).expanduser()
    if not create:
        _check_exists(path)
    return FileChatStorage(path)


def _memory(url: str) -> ChatStorage:
    from agent_memory.storage.in_memory import InMemoryChatStorage  # noqa: PLC0415

    if url.partition(":")[2] not in ("", "//"):
        raise InvalidRequestError("a store in memory has no name and no options; write memory:")
    return InMemoryChatStorage()


def _dynamodb(url: str) -> ChatStorage:
    split = _split(url)
    table = split.netloc
    if not table or "@" in table or ":" in table or split.path not in ("", "/") or split.fragment:
        raise InvalidRequestError(
            "write dynamodb://table?region=eu-central-1, with the table's name alone before the "
            "question mark; credentials come from the environment, and an address from "
            "endpoint=http://…"
        )
    options = _options(split.query)
    create_table, ttl_seconds = _truth(options, "create_table"), _whole(options, "ttl_seconds")

    from agent_memory.storage.dynamodb import DynamoDbChatStorage  # noqa: PLC0415  (an extra)

    return DynamoDbChatStorage(
        table,
        options.get("region"),
        endpoint_url=options.get("endpoint"),
        create_table=create_table,
        ttl_attribute=options.get("ttl_attribute"),
        ttl_seconds=ttl_seconds,
    )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # such as "Invalid IPv6 URL"
        raise InvalidRequestError(f"the store's URL cannot be read: {error}") from error


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in options if name not in _DYNAMODB_OPTIONS]
    if unknown:
        raise InvalidRequestError(
            f"a dynamodb: URL has no option {unknown[0]!r}; it takes "
            f"{', '.join(_DYNAMODB_OPTIONS)}"
        )
    return options


def _truth(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidRequestError(f"{name} must be true or false, not {value!r}")
    return value == "true"


def _whole(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit():
        raise InvalidRequestError(f"{name} must be a whole number, not {value!r}")
    return int(value)
