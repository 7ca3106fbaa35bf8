"""The commands, put together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, TextIO

import typer

from agent_memory._version import __version__
from agent_memory.cli.failures import FAILED, INTERRUPTED, report
from agent_memory.cli.loading import CommandsOnDemand

app = typer.Typer(
    cls=CommandsOnDemand,
    help="Chat storage for AI agents: every raw message kept, a short view for the model.",
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agent-memory {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _soften(*streams: TextIO) -> None:
    """Have streams replace what their encoding does not know, instead of failing."""
    for stream in streams:
        reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; an error is one line on standard error."""
    _soften(sys.stdout, sys.stderr)
    command = typer.main.get_command(app)
    try:
        code = command.main(list(arguments), prog_name="agent-memory", standalone_mode=False)
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (nobody wants a traceback; AGENT_MEMORY_DEBUG shows it)
        return report(error, arguments)
    return code if isinstance(code, int) else 0
