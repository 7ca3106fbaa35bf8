"""The commands, put together."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from agent_memory._version import __version__
from agent_memory.cli.copy import copy_chats
from agent_memory.cli.delete import delete_chats
from agent_memory.cli.demo import demo
from agent_memory.cli.export import export_chats
from agent_memory.cli.failures import FAILED, INTERRUPTED, report
from agent_memory.cli.history import show_history
from agent_memory.cli.import_ import import_chats
from agent_memory.cli.ls import list_chats
from agent_memory.cli.prune import prune_chats
from agent_memory.cli.report import report_session
from agent_memory.cli.show import show_chat
from agent_memory.cli.stats import show_stats
from agent_memory.cli.terminal import soften
from agent_memory.cli.verify import verify_chats
from agent_memory.cli.view import view_chat

app = typer.Typer(
    help="Chat storage for AI agents: every raw message kept, a short view for the model.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo)
app.command("ls")(list_chats)
app.command("show")(show_chat)
app.command("view")(view_chat)
app.command("history")(show_history)
app.command("stats")(show_stats)
app.command("verify")(verify_chats)
app.command("export")(export_chats)
app.command("import")(import_chats)
app.command("copy")(copy_chats)
app.command("report")(report_session)
app.command("delete")(delete_chats)
app.command("prune")(prune_chats)


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


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; an error is one line on standard error."""
    soften(sys.stdout, sys.stderr)
    command = typer.main.get_command(app)
    try:
        code = command.main(list(arguments), prog_name="agent-memory", standalone_mode=False)
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (nobody wants a traceback; AGENT_MEMORY_DEBUG shows it)
        return report(error)
    return code if isinstance(code, int) else 0
