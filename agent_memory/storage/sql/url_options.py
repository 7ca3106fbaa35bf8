"""The options of a server's URL, mapped to what its driver takes.

Consoles of hosted databases hand out URLs with the options of libpq or of MySQL's client. The
drivers, asyncpg and asyncmy, know few of them by these names; SQLAlchemy passes all of them on.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from sqlalchemy import URL

from agent_memory.errors import InvalidRequestError

_PG_TLS: Final = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
)
_PG_URL: Final = (
    *_PG_TLS,
    "passfile",
    "service",
    "krbsrvname",
    "gsslib",
    # Parameters of the server's, which it takes when a session starts.
    "application_name",
    "options",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "search_path",
)
"""What asyncpg understands in a URL of its own, as libpq does."""

_PG_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PG_SESSIONS: Final = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")
_PG_NEUTRAL: Final = {
    # What asyncpg does anyway; any other value it cannot do.
    "gssencmode": ("disable", "prefer"),
    "sslcompression": ("0",),
    "sslsni": ("1",),
    "client_encoding": ("utf8", "utf-8", "auto"),
}

_MYSQL_MODES: Final = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_MYSQL_FILES: Final = ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key")
_MYSQL_FLAGS: Final = ("ssl", "ssl_verify_cert", "ssl_verify_identity", "ssl_check_hostname")
_YEAR: Final = 31_536_000  # in seconds; asyncmy takes no more
_YES: Final = ("true", "1", "yes", "on")
_NO: Final = ("false", "0", "no", "off")

Options: TypeAlias = dict[str, str]
_Arguments: TypeAlias = Mapping[str, tuple[str, Callable[[str, str], Any]]]


def connect_arguments(url: URL) -> tuple[URL, dict[str, Any]]:
    """Take the options out of a server's URL.

    Returns:
        The URL without them, and the arguments that the driver takes for them; those of a driver
        that this library does not know stay where they are.

    Raises:
        InvalidRequestError: the driver has nothing that corresponds to an option; the text says
            what to write instead, and holds no value that may be a secret.
    """
    mapping = _MAPPINGS.get(url.get_driver_name())
    if mapping is None:
        return url, {}
    options = {
        name: _single(name, value) for name, value in url.query.items() if name not in _KEPT
    }
    kept = {name: value for name, value in url.query.items() if name in _KEPT}
    return url.set(query=kept), mapping(options)


_KEPT: Final = ("host", "port")  # SQLAlchemy's own, for sockets and several hosts


def _single(name: str, value: str | tuple[str, ...]) -> str:
    if isinstance(value, str):
        return value
    raise InvalidRequestError(f"the database URL has the option {name!r} more than once")


# ------------------------------------------------------------------------------- PostgreSQL


def _postgresql(options: Options) -> dict[str, Any]:
    context = _postgresql_tls(options)
    arguments: dict[str, Any] = {} if context is None else {"ssl": context}
    in_url: Options = {name: options.pop(name) for name in _PG_URL if name in options}
    if in_url:
        arguments["dsn"] = f"postgresql://?{urlencode(in_url)}"
    for name, harmless in _PG_NEUTRAL.items():
        if name in options:
            _one_of(name, options.pop(name).lower(), harmless)
    arguments |= _taken(options, _PG_ARGUMENTS)
    _refuse_rest(options, "asyncpg", (*_PG_URL, "channel_binding", *_PG_ARGUMENTS))
    return arguments


def _postgresql_tls(options: Options) -> ssl.SSLContext | None:
    """Check and complete the options about TLS.

    Returns:
        The context to use in place of these options, which asyncpg could not follow; else None.
    """
    mode = _postgresql_mode(options)
    if mode is not None:
        options["sslmode"] = mode
    _check_files("sslrootcert", options, ("sslcert", "sslkey"), options.get("sslpassword"))
    if options.get("sslrootcert") == "system":
        return _system_trust({name: options.pop(name) for name in _PG_TLS if name in options})
    if mode is not None and mode.startswith("verify") and not _has_root(options):
        raise InvalidRequestError(
            f"sslmode={mode} needs the certificate of the authority that signed the "
            "server's: add sslrootcert=/path/to/ca.pem to the database URL, or sslrootcert=system "
            "for those that the operating system trusts"
        )
    return None


def _postgresql_mode(options: Options) -> str | None:
    mode = options.get("sslmode")
    if "ssl" in options:  # asyncpg's own name, and that of other drivers
        given = options.pop("ssl")
        asked = {True: "require", False: "disable", None: given}[_as_bool(given)]
        mode = asked if mode is None else mode
    if mode is not None:
        mode = _one_of("sslmode", mode, _PG_MODES)
    elif options.get("sslrootcert") == "system":
        mode = "verify-full"  # as libpq has it
    binding = options.pop("channel_binding", "prefer")
    _one_of("channel_binding", binding, ("disable", "prefer", "require"))
    if binding != "require":
        return mode
    # asyncpg has no channel binding, which protects against a man in the middle. So does the
    # server's certificate, if it is verified.
    if mode == "disable":
        raise InvalidRequestError("channel_binding=require needs TLS: remove sslmode=disable")
    if not _has_root(options):
        options["sslrootcert"] = "system"
    return "verify-full"


def _has_root(tls: Options) -> bool:
    given = tls.get("sslrootcert") or os.environ.get("PGSSLROOTCERT")
    return bool(given) or (Path.home() / ".postgresql" / "root.crt").exists()


def _system_trust(tls: Options) -> ssl.SSLContext:
    rest = set(tls) - {"sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword"}
    if rest or tls["sslmode"] != "verify-full":
        raise InvalidRequestError(
            "sslrootcert=system goes with sslmode=verify-full, and not with "
            f"{min(rest, default='any other sslmode')}"
        )
    context = ssl.create_default_context()
    if "sslcert" in tls:
        password = tls.get("sslpassword", "")
        context.load_cert_chain(tls["sslcert"], tls.get("sslkey"), lambda: password)
    return context


# ------------------------------------------------------------------------- MySQL and MariaDB


def _mysql(options: Options) -> dict[str, Any]:
    plain = {name.lower().replace("-", "_"): text for name, text in options.items()}
    options = {"ssl_mode" if name == "sslmode" else name: text for name, text in plain.items()}
    context = _mysql_tls(options)
    arguments: dict[str, Any] = {} if context is None else {"ssl": context}
    arguments |= _taken(options, _MYSQL_ARGUMENTS)
    known = "ssl_mode", *_MYSQL_FLAGS, *_MYSQL_FILES, *_MYSQL_ARGUMENTS
    _refuse_rest(options, "asyncmy", known)
    return arguments


def _mysql_tls(options: Options) -> ssl.SSLContext | None:
    files: Options = {name: options.pop(name) for name in _MYSQL_FILES if name in options}
    mode = _mysql_mode(options, files)
    if mode in (None, "DISABLED"):
        return None
    _check_files("ssl_ca", files, ("ssl_cert", "ssl_key"), None)
    context = ssl.create_default_context(
        cafile=files.get("ssl_ca"), capath=files.get("ssl_capath")
    )
    context.check_hostname = mode == "VERIFY_IDENTITY"
    if mode == "REQUIRED":
        context.verify_mode = ssl.CERT_NONE
    if "ssl_cert" in files:
        context.load_cert_chain(files["ssl_cert"], files.get("ssl_key"), lambda: "")
    return context


def _mysql_mode(options: Options, files: Options) -> str | None:
    """Return one of ``_MYSQL_MODES``; None where nothing is said about TLS."""
    flags = {name: _flag(name, options.pop(name)) for name in _MYSQL_FLAGS if name in options}
    has_authority = "ssl_ca" in files or "ssl_capath" in files
    mode = None
    if "ssl_mode" in options:
        given = options.pop("ssl_mode").upper().replace("-", "_")
        if given == "PREFERRED":
            raise InvalidRequestError(
                "asyncmy cannot fall back from TLS to an open connection; write "
                "ssl_mode=REQUIRED in the database URL, or DISABLED"
            )
        mode = _one_of("ssl_mode", given, _MYSQL_MODES)
        mode = "VERIFY_CA" if mode == "REQUIRED" and has_authority else mode
    elif flags.get("ssl") is False:
        mode = "DISABLED"
    elif flags.get("ssl") or files:
        mode = "VERIFY_IDENTITY" if has_authority else "REQUIRED"
    identity = flags.get("ssl_verify_identity", flags.get("ssl_check_hostname"))
    if identity:
        return "VERIFY_IDENTITY"
    if identity is False and mode == "VERIFY_IDENTITY":
        mode = "VERIFY_CA"
    if flags.get("ssl_verify_cert") and mode in (None, "REQUIRED"):
        mode = "VERIFY_CA"
    return mode


# ---------------------------------------------------------------------------------- both


def _check_files(
    authority: str, tls: Options, pair: tuple[str, str], password: str | None
) -> None:
    """Refuse now what would fail at the first connection, in words of OpenSSL's."""
    certificate, key = (tls.get(name) for name in pair)
    if certificate is None and key is not None:
        raise InvalidRequestError(f"{pair[1]} in a database URL needs {pair[0]}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file = tls.get(authority)
    if file is not None and file != "system":
        _try(authority, file, lambda: context.load_verify_locations(cafile=file))
    if certificate is not None:
        loading = lambda: context.load_cert_chain(certificate, key, lambda: password or "")  # noqa: E731
        _try(pair[0], certificate, loading)


def _try(name: str, file: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        shown = name if "@" in file else f"{name}={file}"  # it may be the rest of a password
        raise InvalidRequestError(
            f"{shown} of the database URL cannot be used ({error}); give the path of a file "
            "in PEM format"
        ) from error


def _as_bool(given: str) -> bool | None:
    return {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}.get(given.lower())


def _flag(name: str, given: str) -> bool:
    flag = _as_bool(given)
    if flag is None:
        raise InvalidRequestError(f"{name} must be true or false in a database URL")
    return flag


def _one_of(name: str, given: str, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise InvalidRequestError(f"{name} of the database URL must be {' or '.join(allowed)}")
    return given


def _seconds(name: str, given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= _YEAR:
        raise InvalidRequestError(
            f"{name} of the database URL must be a number of seconds above 0; leave it out for "
            "the store's timeout"
        )
    return seconds


def _whole(name: str, given: str) -> int:
    if not (given.isascii() and given.isdigit()):
        raise InvalidRequestError(f"{name} of the database URL must be a whole number")
    return int(given)


def _refuse_rest(options: Mapping[str, str], driver: str, known: tuple[str, ...]) -> None:
    if not options:
        return
    name, value = next(iter(options.items()))
    if "@" in name + value:  # the password ran over into what looks like options
        raise InvalidRequestError(
            "the database URL cannot be understood: special characters in a password must be "
            "percent-encoded, as %40 for @ and %3F for ?"
        )
    raise InvalidRequestError(
        f"{driver} has nothing for the option {name!r} of the database URL: remove it, or give "
        "what the driver calls it in engine_options={'connect_args': {…}}. Understood are "
        f"{', '.join(known)}"
    )


def _as_given(_name: str, given: str) -> str:
    return given


def _taken(options: Options, table: _Arguments) -> dict[str, Any]:
    return {
        argument: convert(name, options.pop(name))
        for name, (argument, convert) in table.items()
        if name in options
    }


_PG_ARGUMENTS: Final[_Arguments] = {
    "connect_timeout": ("timeout", _seconds),
    "command_timeout": ("command_timeout", _seconds),
    "target_session_attrs": ("target_session_attrs", partial(_one_of, allowed=_PG_SESSIONS)),
    "statement_cache_size": ("statement_cache_size", _whole),
    "prepared_statement_cache_size": ("prepared_statement_cache_size", _whole),
    "user": ("user", _as_given),
    "password": ("password", _as_given),
    "dbname": ("database", _as_given),
}

_MYSQL_ARGUMENTS: Final[_Arguments] = {
    "connect_timeout": ("connect_timeout", _seconds),
    "read_timeout": ("read_timeout", _seconds),
    "max_allowed_packet": ("max_allowed_packet", _whole),
    "charset": ("charset", partial(_one_of, allowed=("utf8mb4",))),  # others cannot hold all text
    "user": ("user", _as_given),
    "password": ("password", _as_given),
    "unix_socket": ("unix_socket", _as_given),
    "program_name": ("program_name", _as_given),
    "read_default_file": ("read_default_file", _as_given),
    "read_default_group": ("read_default_group", _as_given),
}

_MAPPINGS: Final[Mapping[str, Callable[[Options], dict[str, Any]]]] = {
    "asyncpg": _postgresql,
    "asyncmy": _mysql,
}
