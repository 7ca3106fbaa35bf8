"""From an exception to the one line and the exit code that a command ends with."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from agent_memory.audit.visible import one_line
from agent_memory.errors import AgentMemoryError, InvalidRequestError

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

_DEBUG: Final = "AGENT_MEMORY_DEBUG"


def report(error: BaseException, arguments: Sequence[str] = ()) -> int:
    """Write one line about an error to standard error, and return the exit code.

    With ``AGENT_MEMORY_DEBUG`` set to anything, the traceback is written before it.

    Args:
        error: what was raised.
        arguments: what the command was called with: where the line repeats one, such as a URL
            in a wrong place, its password is hidden.
    """
    if os.environ.get(_DEBUG):
        traceback.print_exception(error)
    from agent_memory.storage.urls import without_secrets  # noqa: PLC0415  (--help needs no store)

    text, code = _explain(error)
    for argument in arguments:
        for given in (argument, argument.partition("=")[2]):
            shown = without_secrets(given)
            if given and shown != given:
                text = text.replace(given, shown)
    print(f"agent-memory: {one_line(text)}", file=sys.stderr)  # noqa: T201  (a command line)
    return code


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, InvalidRequestError):
        return str(error), USAGE
    if isinstance(error, AgentMemoryError):
        return str(error), FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", FAILED
    # What the parser of arguments raises; its classes have no stable place to import them from.
    wording: Callable[[], str] | None = getattr(error, "format_message", None)
    if wording is not None:
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "agent-memory")
        return f"{wording()} (see: {command} --help)", getattr(error, "exit_code", USAGE)
    kind = type(error).__name__
    return (
        f"unexpected {kind}: {error} (this is a bug; {_DEBUG}=1 shows where)",
        FAILED,
    )
