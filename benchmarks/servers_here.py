"""Servers for the benchmarks, started privately for a while: the ones that the tests start."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1] / "tests"


def from_tests(name: str) -> Any:
    """Return a module of the tests', or None where the tests are not installed with pytest."""
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


@contextlib.contextmanager
def postgres() -> Iterator[str | None]:
    """Give the URL of a PostgreSQL, with fsync=off as in the tests; None where there is none."""
    if url := os.environ.get("AGENT_MEMORY_BENCH_POSTGRES_URL"):
        yield url
        return
    servers, engines = from_tests("servers"), from_tests("engines")
    if servers is None or engines is None:
        yield None
        return
    try:
        binaries = servers.postgres_binaries()
    except servers.EngineMissingError:
        yield None
        return
    user = servers.unprivileged_user()
    with servers.private_directory("postgres", user) as base:
        if user:
            binaries = servers.where_others_may_look(binaries, base)
        with engines.running_postgres(binaries, base, user) as url:
            yield url


@contextlib.contextmanager
def mariadb() -> Iterator[str | None]:
    """Give the URL of a database on a MariaDB server; None where there is none."""
    servers, engines = from_tests("servers"), from_tests("engines")
    if servers is None or engines is None:
        yield None
        return
    try:
        server, share = servers.mariadb_binaries()
    except servers.EngineMissingError:
        yield None
        return
    user = servers.unprivileged_user()
    with (
        servers.private_directory("mariadb", user) as base,
        engines.running_mariadb(server, share, base, user) as url,
    ):
        engines.in_thread(engines.mariadb_execute(url, "CREATE DATABASE bench"))
        yield engines.with_path(url, "/bench")


@contextlib.contextmanager
def dynamodb() -> Iterator[str | None]:
    """Give the URL of an emulator of DynamoDB; None where there is none."""
    emulators = from_tests("emulators")
    if emulators is None or importlib.util.find_spec("moto") is None:
        yield None
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "testing")
    os.environ.setdefault("AWS_DEFAULT_REGION", "eu-central-1")
    command = [sys.executable, "-c", emulators._MOTO, "-H", "127.0.0.1", "-p", "{port}"]
    with emulators.running_emulator("moto", command) as url:
        yield url
