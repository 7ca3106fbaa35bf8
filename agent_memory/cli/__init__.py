"""The command line, ``agent-memory``; needs the extra ``cli``.

Each command is one module here; :mod:`agent_memory.cli.app` puts them together.
"""

from __future__ import annotations

import sys

from agent_memory.errors import MissingDependencyError

__all__ = ["main"]

_OURS = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line with this process's arguments, and exit.

    Exit codes: 0 done; 1 it could not be done, or not all of it, or something is wrong with what
    was verified; 2 it was asked for in a way that cannot work; 130 interrupted. An
    error is one line on standard error.
    """
    try:
        from agent_memory.cli.app import run  # noqa: PLC0415  (needs the extra)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _OURS:
            raise
        sys.exit(f"agent-memory: {MissingDependencyError(missing, 'cli')}")
    sys.exit(run(sys.argv[1:]))
