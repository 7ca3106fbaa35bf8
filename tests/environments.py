"""Virtual environments beside ``.venv``: one for each framework, and with the lowest versions.

    python tests/environments.py [NAME …]

makes those that are missing or outdated, below ``.venvs/``, with pip; it never fails. What could
not be installed is skipped by the tests, aloud (tests/test_adapters.py, tests/test_lowest.py). A
name is a framework's or ``lowest``; without one, the frameworks' are made. To run one by hand::

    .venvs/agent-squad/bin/python -m pytest tests/adapters/agent-squad
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = Path(os.environ.get("AGENT_MEMORY_ADAPTER_VENVS", ROOT / ".venvs"))

# Framework (it is also the name of its extra, and of the directory of its tests) -> what its
# tests need beside that extra and "adapter-test".
FRAMEWORKS: dict[str, list[str]] = {
    # Its agents still pass arguments that later clients refuse.
    "agent-squad": ["anthropic>=0.49,<0.60"],
    "openai-agents": ["openai-agents[encrypt]"],
    "langchain": ["langchain>=1,<2"],
    "pydantic-ai": [],
}
LOWEST = "lowest"  # the core and every extra that needs no framework
# Tools of the tests: users never install them, so they may be as new as pip likes.
_TOOLS = {"test", "adapter-test"}


def python_of(name: str) -> Path:
    """The interpreter of an environment, whether it is there or not."""
    scripts = "Scripts" if os.name == "nt" else "bin"
    return HOME / name / scripts / "python"


def is_ready(name: str) -> bool:
    """Whether an environment is there, and not outdated."""
    stamp = HOME / name / "installed"
    return stamp.exists() and stamp.read_text() == _digest(name)


def requirements_of(name: str) -> list[str]:
    """What pip is asked to install."""
    extras = _extras_of(name)
    wanted = [f"{ROOT}[{','.join(extras)}]"]
    if name == LOWEST:
        return [*wanted, *lowest_of(_declared(extras, without=_TOOLS))]
    return [*wanted, *FRAMEWORKS[name]]


def _extras_of(name: str) -> list[str]:
    return ["test"] if name == LOWEST else ["adapter-test", name]


def lowest_of(requirements: list[str]) -> list[str]:
    """The lowest version that each requirement allows: ``a>=1,<2`` becomes ``a==1``."""
    pins = []
    for requirement in requirements:
        match = re.match(r"([\w.-]+(?:\[[\w,]+\])?)>=([\w.]+)", requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no lower bound")
        pins.append(f"{match[1]}=={match[2]}")
    return pins


def install(name: str) -> str | None:
    """Make an environment if need be; return why that failed, or None."""
    if is_ready(name):
        return None
    _say(f"installing {name} into {HOME / name} … (a minute or two)")
    begun = time.monotonic()
    try:
        # The packages that are there stay: an update takes seconds.
        if not python_of(name).exists():
            shutil.rmtree(HOME / name, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(HOME / name)])
        command = [str(python_of(name)), "-m", "pip", "install", "-q"]
        # Most of what is installed is never imported: compiling it would take half of the time.
        options = ["--disable-pip-version-check", "--no-compile"]
        _run([*command, *options, "-e", *requirements_of(name)])
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{name} could not be installed: {getattr(error, 'stderr', '') or error}"
    (HOME / name / "installed").write_text(_digest(name))
    _say(f"{name} is installed, in {time.monotonic() - begun:.0f} s")
    return None


def _say(text: str) -> None:
    sys.stderr.write(f"environments: {text}\n")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _digest(name: str) -> str:
    """A text that changes when an environment must be made again."""
    needed = [requirements_of(name), _declared(_extras_of(name)), sys.version]
    return hashlib.sha256(json.dumps(needed).encode()).hexdigest()


def _declared(extras: list[str], without: set[str] = frozenset()) -> list[str]:
    """What pyproject.toml asks for, for some extras and those that they name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def closure(wanted: list[str], seen: set[str]) -> Iterator[str]:
        for extra in wanted:
            if extra in seen:
                continue
            seen.add(extra)
            for requirement in project["optional-dependencies"].get(extra, ()):
                name, _, rest = requirement.partition("[")
                if name == project["name"]:
                    yield from closure(rest.rstrip("]").split(","), seen)
                elif extra not in without:
                    yield requirement

    return [*project["dependencies"], *closure(extras, set())]


if __name__ == "__main__":
    names = sys.argv[1:] or [*FRAMEWORKS]
    with ThreadPoolExecutor(2) as threads:
        for name, problem in zip(names, threads.map(install, names), strict=True):
            if problem is not None:
                _say(f"{problem}; {name} will be skipped")
