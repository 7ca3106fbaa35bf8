"""C99: URLs as consoles hand them out, against servers with TLS and without."""

from __future__ import annotations

import contextlib
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from sql_tools import IDS, ask, contents, user
from sqlalchemy import make_url

from agent_memory import InvalidRequestError, SqlChatStorage, StorageUnavailableError, open_storage
from agent_memory.storage.sql.urls import parse_target
from certificates import Authority
from engines import missing, running_mariadb, running_postgres
from servers import (
    EngineMissingError,
    mariadb_binaries,
    postgres_binaries,
    private_directory,
    unprivileged_user,
    where_others_may_look,
)

IDLE = "postgresql://user:topsecret@127.0.0.1:1/db"
IDLE_MYSQL = "mysql://user:topsecret@127.0.0.1:1/db"


@attrs.frozen
class Server:
    """A server with TLS: its URL, and certificates that fit it and that do not."""

    url: str
    authority: Path
    stranger: Path
    certificate: Path
    key: Path

    def options(self, query: str) -> str:
        names = {
            "CA": self.authority,
            "STRANGER": self.stranger,
            "CERT": self.certificate,
            "KEY": self.key,
        }
        for name, path in names.items():
            query = query.replace(f"={name}", f"={path}")
        return f"{self.url}?{query}"


@contextlib.contextmanager
def certificates(base: Path, who: str) -> Iterator[tuple[Authority, Authority, Path, Path]]:
    """An authority, another one, and a server's certificate and key, which `who` may read."""
    authority, stranger = Authority(base, "authority"), Authority(base, "stranger")
    certificate, key = authority.issue("server", address="127.0.0.1")
    for path in (authority.pem, certificate, key):
        if who:
            shutil.chown(path, who)
    yield authority, stranger, certificate, key


@pytest.fixture(scope="module")
def postgres_with_tls() -> Iterator[Server]:
    try:
        binaries = postgres_binaries()
    except EngineMissingError as error:
        missing(error)
        return
    who = unprivileged_user()
    with private_directory("postgres-tls", who) as base, certificates(base, who) as made:
        authority, stranger, certificate, key = made
        binaries = where_others_may_look(binaries, base) if who else binaries
        settings = {
            "ssl": "on",
            "ssl_cert_file": str(certificate),
            "ssl_key_file": str(key),
            "ssl_ca_file": str(authority.pem),
        }
        try:
            running = running_postgres(binaries, base, who, **settings)
            url = running.__enter__()
        except RuntimeError as error:
            if "SSL is not supported" in str(error):
                pytest.skip("this PostgreSQL was built without TLS")
            raise
        with contextlib.ExitStack() as stack:
            stack.push(running.__exit__)
            yield Server(url, authority.pem, stranger.pem, *authority.issue("client"))


@pytest.fixture(scope="module")
def mariadb_with_tls() -> Iterator[Server]:
    try:
        server, share = mariadb_binaries()
    except EngineMissingError as error:
        missing(error)
        return
    who = unprivileged_user()
    with private_directory("mariadb-tls", who) as base, certificates(base, who) as made:
        authority, stranger, certificate, key = made
        options = f"--ssl-cert={certificate}", f"--ssl-key={key}", f"--ssl-ca={authority.pem}"
        with running_mariadb(server, share, base, who, *options) as url:
            yield Server(f"{url}mysql", authority.pem, stranger.pem, *authority.issue("client"))


async def is_encrypted(storage: SqlChatStorage) -> bool:
    """Whether the store's own connection is, as the server says."""
    if storage._target.family == "postgresql":
        rows = await ask(storage, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        return rows[0][0]
    ((_name, cipher),) = await ask(storage, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    return cipher != ""


@pytest.mark.parametrize(
    ("query", "encrypted"),
    [
        ("sslmode=require", True),
        ("sslmode=require&channel_binding=prefer", True),
        ("sslmode=verify-ca&sslrootcert=CA", True),
        ("sslmode=verify-full&sslrootcert=CA", True),
        ("sslmode=require&channel_binding=require&sslrootcert=CA", True),
        ("sslmode=verify-full&sslrootcert=CA&sslcert=CERT&sslkey=KEY", True),
        ("sslmode=prefer", True),
        ("sslmode=disable&gssencmode=disable", False),
        ("ssl=true", True),
        ("ssl=require", True),
        ("sslmode=require&application_name=chats&connect_timeout=10&statement_timeout=5000", True),
    ],
)
async def test_c99_a_postgresql_url_from_a_console_works(postgres_with_tls, query, encrypted):
    """It is taken as libpq takes it: encrypted and verified as it says."""
    async with open_storage(postgres_with_tls.options(query)) as storage:
        await storage.save_chat_message(*IDS, user("hello"))
        assert contents(await storage.fetch_chat(*IDS, 1)) == ["hello"]
        assert await is_encrypted(storage) is encrypted


@pytest.mark.parametrize(
    ("query", "encrypted"),
    [
        ("ssl=true", True),
        ("ssl-mode=REQUIRED", True),
        ("ssl_mode=required", True),
        ("sslMode=VERIFY_IDENTITY&ssl_ca=CA", True),
        ("ssl_ca=CA", True),
        ("ssl_ca=CA&ssl_verify_cert=true&ssl_verify_identity=true", True),
        ("ssl_mode=VERIFY_CA&ssl-ca=CA&ssl-cert=CERT&ssl-key=KEY", True),
        ("ssl=false", False),
        ("ssl-mode=DISABLED", False),
        ("ssl=true&charset=utf8mb4&connect_timeout=10", True),
    ],
)
async def test_c99_a_mysql_url_from_a_console_works(mariadb_with_tls, query, encrypted):
    """It is taken as MySQL's own client takes it."""
    async with open_storage(mariadb_with_tls.options(query)) as storage:
        await storage.save_chat_message(*IDS, user("hello 😀"))
        assert contents(await storage.fetch_chat(*IDS, 1)) == ["hello 😀"]
        assert await is_encrypted(storage) is encrypted


@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("sslmode=verify-full&sslrootcert=STRANGER", "127.0.0.1"),
        ("sslmode=verify-ca&sslrootcert=STRANGER", "127.0.0.1"),
        ("sslmode=require&sslrootcert=STRANGER", "127.0.0.1"),  # libpq verifies then, too
        ("sslmode=verify-full&sslrootcert=CA", "localhost"),  # not what the certificate names
        ("sslmode=verify-full&sslrootcert=system", "127.0.0.1"),
        ("sslmode=require&channel_binding=require", "127.0.0.1"),
    ],
)
async def test_c99_a_postgresql_server_that_is_not_trusted_gets_nothing(
    postgres_with_tls, query, host
):
    """Another authority, or another host: refused, with what to do, and at once."""
    url = postgres_with_tls.options(query).replace("127.0.0.1", host)
    storage = open_storage(url)
    with pytest.raises(StorageUnavailableError, match=r"not accepted.*sslrootcert=") as caught:
        await storage.save_chat_message(*IDS, user("hello"))
    assert caught.value.stored is False
    await storage.aclose()


@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("ssl_ca=STRANGER", "127.0.0.1"),
        ("ssl_mode=VERIFY_CA&ssl_ca=STRANGER", "127.0.0.1"),
        ("ssl_mode=REQUIRED&ssl_ca=STRANGER", "127.0.0.1"),
        ("ssl_mode=VERIFY_IDENTITY&ssl_ca=CA", "localhost"),
        ("ssl_mode=VERIFY_IDENTITY", "127.0.0.1"),
        ("ssl=true&ssl_verify_cert=true", "127.0.0.1"),
    ],
)
async def test_c99_a_mysql_server_that_is_not_trusted_gets_nothing(mariadb_with_tls, query, host):
    """As on PostgreSQL."""
    url = mariadb_with_tls.options(query).replace("127.0.0.1", host)
    storage = open_storage(url)
    with pytest.raises(StorageUnavailableError, match=r"not accepted.*ssl_ca=") as caught:
        await storage.save_chat_message(*IDS, user("hello"))
    assert caught.value.stored is False
    await storage.aclose()


async def test_c99_a_postgresql_server_without_tls_is_told(postgres_url):
    """Never an open connection where an encrypted one was asked for."""
    storage = open_storage(f"{postgres_url}?sslmode=require")
    with pytest.raises(StorageUnavailableError, match=r"has no TLS.*sslmode=disable"):
        await storage.save_chat_message(*IDS, user("hello"))
    await storage.aclose()


async def test_c99_a_mysql_server_without_tls_is_told(mariadb_url):
    """As on PostgreSQL."""
    storage = open_storage(f"{mariadb_url}?ssl_mode=REQUIRED")
    with pytest.raises(StorageUnavailableError, match="ssl_mode=DISABLED"):
        await storage.save_chat_message(*IDS, user("hello"))
    await storage.aclose()


async def test_c99_settings_reach_the_server(postgres_url):
    """What libpq sends when a session starts is sent here as well."""
    query = "application_name=my%20chats&options=-c%20work_mem%3D5MB&statement_timeout=70s"
    async with open_storage(f"{postgres_url}?{query}&connect_timeout=60") as storage:
        await storage.save_chat_message(*IDS, user("hello"))
        shown = [
            (await ask(storage, f"SHOW {name}"))[0][0]
            for name in ("application_name", "work_mem", "statement_timeout")
        ]
    assert shown == ["my chats", "5MB", "70s"]


def test_c99_drivers_get_what_they_take():
    """In the driver's own types, in place of the store's where it has one too."""
    query = "connect_timeout=5&statement_cache_size=0&target_session_attrs=read-write&dbname=x"
    target = parse_target(f"{IDLE}?{query}&host=/run/postgresql")
    assert target.connect_args == {
        "timeout": 5.0,
        "statement_cache_size": 0,
        "target_session_attrs": "read-write",
        "database": "x",
    }
    assert target.url.query == {"host": "/run/postgresql"}
    query = "connect_timeout=5&unix_socket=/run/mysql&max_allowed_packet=1000000&ssl=true"
    target = parse_target(f"{IDLE_MYSQL}?{query}")
    context = target.connect_args["ssl"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert {name: value for name, value in target.connect_args.items() if name != "ssl"} == {
        "connect_timeout": 5.0,
        "unix_socket": "/run/mysql",
        "max_allowed_packet": 1_000_000,
    }
    assert not target.url.query


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        (f"{IDLE}?sslmode=on", "sslmode .* must be disable or allow"),
        (f"{IDLE}?ssl=maybe", "sslmode .* must be"),
        (f"{IDLE}?sslmode=verify-full&sslrootcert=/no/such.pem", "sslrootcert=/no/such.pem"),
        (f"{IDLE}?sslmode=require&sslkey=/no/such.key", "sslkey .* needs sslcert"),
        (f"{IDLE}?sslmode=require&sslcert={__file__}", "PEM"),
        (f"{IDLE}?sslmode=verify-full", "sslrootcert=system"),
        (f"{IDLE}?sslmode=verify-ca&sslrootcert=system", "goes with sslmode=verify-full"),
        (f"{IDLE}?sslmode=disable&channel_binding=require", "needs TLS"),
        (f"{IDLE}?channel_binding=always", "channel_binding .* must be"),
        (f"{IDLE}?target_session_attrs=master", "target_session_attrs .* must be any or primary"),
        (f"{IDLE}?connect_timeout=soon", "connect_timeout .* number of seconds above 0"),
        (f"{IDLE}?connect_timeout=0", "connect_timeout .* leave it out"),
        (f"{IDLE}?statement_cache_size=-1", "whole number"),
        (f"{IDLE}?gssencmode=require", "gssencmode"),
        (f"{IDLE}?client_encoding=latin1", "client_encoding .* utf8"),
        (f"{IDLE}?pgbouncer=true", "nothing for the option 'pgbouncer'.*remove it.*sslmode"),
        (f"{IDLE}?ssl_ca=ca.pem", "nothing for the option 'ssl_ca'.*sslrootcert"),
        (f"{IDLE}?sslmode=require&sslmode=disable", "'sslmode' more than once"),
        ("postgresql://me:p@topsecret?w=x@host/db", "percent-encoded"),
        (f"{IDLE_MYSQL}?ssl=maybe", "true or false"),
        (f"{IDLE_MYSQL}?ssl_mode=PREFERRED", "ssl_mode=REQUIRED"),
        (f"{IDLE_MYSQL}?ssl_mode=on", "ssl_mode .* must be DISABLED"),
        (f"{IDLE_MYSQL}?ssl_ca=/no/such.pem", "ssl_ca=/no/such.pem"),
        (f"{IDLE_MYSQL}?ssl=true&ssl_verify_cert=perhaps", "ssl_verify_cert must be"),
        (f"{IDLE_MYSQL}?charset=latin1", "charset .* utf8mb4"),
        (f"{IDLE_MYSQL}?init_command=topsecret", "nothing for the option 'init_command'"),
        (f"{IDLE_MYSQL}?sslaccept=strict", "nothing for the option 'sslaccept'.*ssl_mode"),
    ],
)
@pytest.mark.parametrize("opening", [SqlChatStorage, open_storage])
def test_c99_what_the_driver_cannot_do_is_told_at_once(
    monkeypatch, tmp_path, opening, url, advice
):
    """When the store is made, with what to write instead; and no secret is in the text."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidRequestError, match=advice) as caught:
        opening(url)
    assert "topsecret" not in str(caught.value)


def test_c99_urls_without_options_are_left_alone():
    """Nothing is added where nothing was asked for."""
    for url in (IDLE, IDLE_MYSQL):
        target = parse_target(url)
        assert target.connect_args == {}
        assert target.url.database == make_url(url).database
