"""A virtual environment for each framework that has an adapter, so that none can block another.

    python tests/environments.py [FRAMEWORK …]

makes those that are missing or outdated, below ``.venvs/``, with pip; it never fails. What could
not be installed is skipped by the tests, aloud (see tests/test_adapters.py). To run one
framework's tests by hand::

    .venvs/agent-squad/bin/python -m pytest tests/adapters/agent-squad
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
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


def python_of(framework: str) -> Path:
    """The interpreter of a framework's environment, whether it is there or not."""
    scripts = "Scripts" if os.name == "nt" else "bin"
    return HOME / framework / scripts / "python"


def is_ready(framework: str) -> bool:
    """Whether a framework's environment is there, and not outdated."""
    stamp = HOME / framework / "installed"
    return stamp.exists() and stamp.read_text() == _digest(framework)


def install(framework: str) -> str | None:
    """Make a framework's environment if need be; return why that failed, or None."""
    if is_ready(framework):
        return None
    _say(f"installing {framework} into {HOME / framework} … (a minute or two)")
    begun = time.monotonic()
    try:
        # The packages that are there stay: an update takes seconds.
        if not python_of(framework).exists():
            shutil.rmtree(HOME / framework, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(HOME / framework)])
        extras = f"{ROOT}[adapter-test,{framework}]"
        command = [str(python_of(framework)), "-m", "pip", "install", "-q"]
        # Most of what is installed is never imported: compiling it would take half of the time.
        options = ["--disable-pip-version-check", "--no-compile"]
        _run([*command, *options, "-e", extras, *FRAMEWORKS[framework]])
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{framework} could not be installed: {getattr(error, 'stderr', '') or error}"
    (HOME / framework / "installed").write_text(_digest(framework))
    _say(f"{framework} is installed, in {time.monotonic() - begun:.0f} s")
    return None


def _say(text: str) -> None:
    sys.stderr.write(f"adapters: {text}\n")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _digest(framework: str) -> str:
    """A text that changes when an environment must be made anew."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [project["dependencies"], FRAMEWORKS[framework], sys.version, str(ROOT)]
    wanted, seen = ["adapter-test", framework], set()
    while wanted:
        extra = wanted.pop()
        if extra in seen or extra not in extras:
            continue
        seen.add(extra)
        needed.append(extras[extra])
        for requirement in extras[extra]:
            name, _, rest = requirement.partition("[")
            if name == project["name"]:
                wanted += rest.rstrip("]").split(",")
    return hashlib.sha256(json.dumps(needed).encode()).hexdigest()


if __name__ == "__main__":
    names = sys.argv[1:] or [*FRAMEWORKS]
    with ThreadPoolExecutor(2) as threads:
        for name, problem in zip(names, threads.map(install, names), strict=True):
            if problem is not None:
                _say(f"{problem}; {name} will be skipped")
