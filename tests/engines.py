"""Fixtures with real database servers: PostgreSQL and MariaDB.

Each engine runs once in a test session, in private directories and on free ports, and is
stopped at its end. Every test has a database or table name of its own. An environment variable
points the tests at another server; with ``AGENT_MEMORY_REQUIRE_ENGINES=1`` a missing engine is
a failure instead of a skip.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

from servers import (
    EngineMissingError,
    free_port,
    mariadb_binaries,
    postgres_binaries,
    private_directory,
    run_as,
    running,
    unprivileged_user,
    where_others_may_look,
)


def missing(error: EngineMissingError) -> NoReturn:
    """Skip aloud, or fail where engines are required."""
    if os.environ.get("AGENT_MEMORY_REQUIRE_ENGINES") == "1":
        pytest.fail(f"an engine is required: {error}")
    pytest.skip(str(error))


def running_or_missing(
    start: Callable[[], contextlib.AbstractContextManager[str]],
) -> Iterator[str]:
    """Yield the URL of an engine that runs meanwhile; for fixtures."""
    with contextlib.ExitStack() as running_engine:
        try:
            url = running_engine.enter_context(start())
        except EngineMissingError as error:
            missing(error)
        yield url


def in_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end from wherever a fixture may be called."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


def with_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=path))


# ------------------------------------------------------------------------------- PostgreSQL


async def postgres_execute(url: str, statement: str) -> None:
    import asyncpg  # noqa: PLC0415  (an extra; only where this engine is tested)

    connection = await asyncpg.connect(url, timeout=60)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a running PostgreSQL server, its maintenance database."""
    if url := os.environ.get("AGENT_MEMORY_TEST_POSTGRES_URL"):
        yield url
        return
    yield from running_or_missing(started_postgres)


@contextlib.contextmanager
def started_postgres() -> Iterator[str]:
    """Run PostgreSQL with new data; gives its URL.

    Raises:
        EngineMissingError: there is none.
    """
    binaries, user = postgres_binaries(), unprivileged_user()
    with private_directory("postgres", user) as base:
        if user:
            binaries = where_others_may_look(binaries, base)
        with running_postgres(binaries, base, user) as url:
            yield url


@contextlib.contextmanager
def running_postgres(binaries: Path, base: Path, user: str, **more_settings: str) -> Iterator[str]:
    """Run PostgreSQL with its data below `base`, which `user` owns; gives its URL."""
    data, port = base / "data", free_port()
    if not data.exists():
        initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
        run_as(user, [*initdb, "-E", "UTF8", "--locale=C", "--no-sync"], cwd=base)
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "port": port,
        "max_connections": 200,
        "fsync": "off",  # a crash of the machine is not tested, and would end the tests too
        "full_page_writes": "off",
        **more_settings,
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    with running(
        [str(binaries / "postgres"), "-D", str(data), *options],
        port,
        log=base / "server.log",
        user=user,
        ready=lambda: in_thread(postgres_execute(url, "SELECT 1")),
    ):
        yield url


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[str]:
    """The URL of a database for the tests of this process."""
    name = f"test_{uuid.uuid4().hex}"
    in_thread(postgres_execute(postgres_server, f"CREATE DATABASE {name} TEMPLATE template0"))
    yield with_path(postgres_server, f"/{name}")
    in_thread(postgres_execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


_EMPTY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$;
CREATE SCHEMA public
"""


@pytest.fixture
def postgres_url(postgres_database: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database (``postgresql://…``).

    It is emptied after each test, in a quarter of the time that making another one takes.
    """
    yield postgres_database
    in_thread(postgres_execute(postgres_database, _EMPTY))


# ---------------------------------------------------------------------------------- MariaDB


async def mariadb_execute(url: str, statement: str) -> None:
    import asyncmy  # noqa: PLC0415  (an extra; only where this engine is tested)

    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        connect_timeout=60,
    )
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(statement)
    finally:
        await connection.ensure_closed()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[str]:
    """The URL of a running MariaDB or MySQL server."""
    if url := os.environ.get("AGENT_MEMORY_TEST_MARIADB_URL"):
        yield url
        return
    yield from running_or_missing(started_mariadb)


@contextlib.contextmanager
def started_mariadb() -> Iterator[str]:
    """Run MariaDB with new data; gives its URL.

    Raises:
        EngineMissingError: there is none.
    """
    (server, share), user = mariadb_binaries(), unprivileged_user()
    with (
        private_directory("mariadb", user) as base,
        running_mariadb(server, share, base, user) as url,
    ):
        yield url


_SYSTEM_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)


def make_mariadb_data(server: Path, share: Path, base: Path, user: str) -> Path:
    """Make a data directory as MariaDB's own script does, which needs client programs too."""
    data, script = base / "data", base / "bootstrap.sql"
    head = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
    script.write_text(head + "".join((share / name).read_text() for name in _SYSTEM_TABLES))
    script.chmod(0o644)
    run_as(user, ["mkdir", str(data)], cwd=base)
    # A server that starts removes the temporary tables it finds, also those of another one.
    bootstrap = (
        '"$0" --no-defaults --bootstrap --datadir="$1" --tmpdir="$1" --log-warnings=0 <"$2"'
    )
    run_as(user, ["sh", "-c", bootstrap, str(server), str(data), str(script)], cwd=base)
    return data


@contextlib.contextmanager
def running_mariadb(
    server: Path, share: Path, base: Path, user: str, *more_options: str
) -> Iterator[str]:
    """Run MariaDB with its data below `base`, which `user` owns; gives its URL."""
    data, port, init = base / "data", free_port(), base / "init.sql"
    if not data.exists():
        make_mariadb_data(server, share, base, user)
    init.write_text(
        "CREATE USER IF NOT EXISTS 'tester'@'%' IDENTIFIED BY 'secret';\n"
        "GRANT ALL ON *.* TO 'tester'@'%';\n"
    )
    url = f"mysql://tester:secret@127.0.0.1:{port}/"
    with running(
        [
            str(server),
            "--no-defaults",
            f"--datadir={data}",
            f"--tmpdir={data}",
            f"--socket={base / 'socket'}",
            f"--pid-file={base / 'pid'}",
            f"--init-file={init}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--max-connections=200",
            "--innodb-flush-log-at-trx-commit=2",  # as for PostgreSQL: no power cuts here
            "--innodb-buffer-pool-size=64M",
            *more_options,
        ],
        port,
        log=base / "server.log",
        user=user,
        ready=lambda: in_thread(mariadb_execute(url, "SELECT 1")),
    ):
        yield url


@pytest.fixture
def mariadb_url(mariadb_server: str) -> Iterator[str]:
    """A new MariaDB database's URL (``mysql://…``); dropped after the test."""
    name = f"test_{uuid.uuid4().hex}"
    in_thread(mariadb_execute(mariadb_server, f"CREATE DATABASE {name}"))
    yield with_path(mariadb_server, f"/{name}")
    in_thread(mariadb_execute(mariadb_server, f"DROP DATABASE {name}"))
