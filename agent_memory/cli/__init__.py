"""The command line, ``agent-memory``; needs the extra ``cli``.

Commands are grouped by what they do: :mod:`~agent_memory.cli.chats`,
:mod:`~agent_memory.cli.views`, :mod:`~agent_memory.cli.transfer`, :mod:`~agent_memory.cli.care`,
:mod:`~agent_memory.cli.report`, :mod:`~agent_memory.cli.demo`.
:mod:`agent_memory.cli.app` finds and runs them.
"""

from __future__ import annotations

import sys

from agent_memory.errors import MissingDependencyError

__all__ = ["main"]

_OURS = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line with this process's arguments, and exit.

    Exit codes: 0 success; 1 failure, also in part, or a problem was found; 2 wrong usage; 130
    interrupted. An error is one line on standard error.
    """
    try:
        from agent_memory.cli.app import run  # noqa: PLC0415  (needs the extra)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _OURS:
            raise
        sys.exit(f"agent-memory: {MissingDependencyError(missing, 'cli')}")
    sys.exit(run(sys.argv[1:]))
