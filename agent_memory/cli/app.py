"""The command line's entry: finds commands by name, loads them lazily, reports failures."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from agent_memory._version import __version__
from agent_memory.audit.escaping import one_line
from agent_memory.errors import AgentMemoryError, InvalidRequestError, MissingDependencyError

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

_DEBUG: Final = "AGENT_MEMORY_DEBUG"


def report_failure(error: BaseException, arguments: Sequence[str] = ()) -> int:
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

    # An argument in the wrong place, such as a URL given as a user, may hold a password that the
    # error text repeats.
    text, code = _explain(error)
    for argument in arguments:
        for given in (argument, argument.partition("=")[2]):
            shown = without_secrets(given)
            if given and shown != given:
                text = text.replace(given, shown)
    print(f"agent-memory: {one_line(text)}", file=sys.stderr)
    return code


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, InvalidRequestError):
        return str(error), USAGE
    if isinstance(error, AgentMemoryError):
        return str(error), FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", FAILED
    # Errors of the argument parser: its exception classes have no stable import path.
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


COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": (
        "demo:demo",
        "Store a conversation turn by turn, show what a model sees, and prove nothing is lost.",
    ),
    "ls": (
        "chats:list_chats",
        "List chats: last activity, messages, tokens (estimated), summaries, ids, first question.",
    ),
    "show": (
        "chats:show_chat",
        "Write the transcript of a session, or of one agent's chat in it.",
    ),
    "view": (
        "views:view_chat",
        "Show which stored messages a model sees as they are, and which through a summary.",
    ),
    "history": (
        "views:show_history",
        "List the summaries of a chat: when, by whom, why, what each covers, saved and cost.",
    ),
    "stats": (
        "care:show_stats",
        "Count chats, messages, tokens (estimated) and bytes, per user and agent, and summaries.",
    ),
    "verify": (
        "care:verify_chats",
        "Read everything and report what is wrong and where; exit code 1 if anything is.",
    ),
    "export": (
        "transfer:export_chats",
        "Write chats to a file: all, a user's, a session's, or one.",
    ),
    "import": (
        "transfer:import_chats",
        "Store the messages of a file, or of another library's store.",
    ),
    "copy": (
        "transfer:copy_chats",
        "Copy every chat from one store to another, and compare them afterwards.",
    ),
    "report": (
        "report:report_session",
        "Write a session as one HTML file that opens offline, on a phone and in print.",
    ),
    "delete": (
        "care:delete_chats",
        "Delete a chat, a session, or everything of a user, with summaries; it asks first.",
    ),
    "prune": (
        "care:prune_chats",
        "Delete the chats in which nothing was stored for a time; it asks first.",
    ),
}
"""What each command is called: its coroutine, and the first line of that one's docstring."""


class _PlainHelp(TyperCommand):
    """Help in the usual form: ``USER [SESSION]``, flags without a value, whole paragraphs."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands after the name; required arguments without braces."""
        return [_without_braces(piece) for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> Any:
        """Return options and arguments."""
        return _flags_without_values(super().get_params(ctx))


class CommandsOnDemand(TyperGroup):
    """The group of all commands."""

    def get_params(self, ctx: Any) -> Any:
        """Return options and arguments."""
        return _flags_without_values(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return their names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """Return a command, not yet loaded."""
        return _CommandOnDemand(cmd_name) if cmd_name in COMMANDS else None


class _CommandOnDemand(TyperCommand):
    """A placeholder that loads the command when it is called."""

    def __init__(self, name: str) -> None:
        super().__init__(name, help=COMMANDS[name][1])

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Load the command and continue with it."""
        return load(self.name or "").make_context(*args, **kwargs)


def _without_braces(piece: str) -> str:
    return piece[1:-1] if piece.startswith("{") else piece


def _flags_without_values(params: Any) -> Any:
    """Hide the value placeholder of flags, which typer shows as ``--json <bool>``."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def load(name: str) -> Any:
    """Return a command with its options.

    Raises:
        MissingDependencyError: a package of the extra is not installed.
    """
    module, _, function = COMMANDS[name][0].partition(":")
    try:
        loaded = importlib.import_module(f"agent_memory.cli.{module}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing != "rich":
            raise
        raise MissingDependencyError(missing, "cli") from error
    # An application of one command: loading this one must not import all others.
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=_PlainHelp)(_in_event_loop(getattr(loaded, function)))
    command = typer.main.get_command(alone)
    # Line breaks within a paragraph come from the docstring; let the terminal wrap instead.
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join([text.replace("\n", " ") for text in paragraphs])
    return command


def _in_event_loop(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a command that typer can call; its signature is what typer reads options from."""

    @functools.wraps(command)
    def run_command(*arguments: Any, **options: Any) -> None:
        import asyncio  # noqa: PLC0415  (--help needs none)

        asyncio.run(command(*arguments, **options))

    return run_command


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
    """Make streams escape characters outside their encoding, instead of failing."""
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
    except BrokenPipeError:  # the reader closed the pipe, as head does
        # Python flushes stdout at exit and would report the closed pipe a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (nobody wants a traceback; AGENT_MEMORY_DEBUG shows it)
        return report_failure(error, arguments)
    return code if isinstance(code, int) else 0
