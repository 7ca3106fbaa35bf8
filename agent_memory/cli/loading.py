"""Commands whose modules are loaded when they are used: ``--help`` needs none of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from agent_memory.errors import MissingDependencyError

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": (
        "demo:demo",
        "Store a conversation turn by turn, show what a model sees, and prove nothing is lost.",
    ),
    "ls": (
        "ls:list_chats",
        "List chats: last activity, messages, tokens (estimated), summaries, ids, first question.",
    ),
    "show": ("show:show_chat", "Write the transcript of a session, or of one agent's chat in it."),
    "view": (
        "view:view_chat",
        "Show which stored messages a model sees as they are, and which through a summary.",
    ),
    "history": (
        "history:show_history",
        "List the summaries of a chat: when, by whom, why, what each covers, saved and cost.",
    ),
    "stats": (
        "stats:show_stats",
        "Count chats, messages, tokens (estimated) and bytes, per user and agent, and summaries.",
    ),
    "verify": (
        "verify:verify_chats",
        "Read everything and tell what is wrong and where; exit code 1 if anything is.",
    ),
    "export": (
        "export:export_chats",
        "Write chats to a file: all, a user's, a session's, or one.",
    ),
    "import": (
        "import_:import_chats",
        "Store the messages of a file, or of another library's store.",
    ),
    "copy": (
        "copy:copy_chats",
        "Copy every chat from one store to another, and compare them afterwards.",
    ),
    "report": (
        "report:report_session",
        "Write a session as one HTML file that opens offline, on a phone and in print.",
    ),
    "delete": (
        "delete:delete_chats",
        "Delete a chat, a session, or everything of a user, with summaries; it asks first.",
    ),
    "prune": (
        "prune:prune_chats",
        "Delete the chats in which nothing was stored for so long; it asks first.",
    ),
}
"""What each command is called: its function, and the first line of that function's docstring."""


class _PlainHelp(TyperCommand):
    """Help as people know it: ``USER [SESSION]``, flags without a value, whole paragraphs."""

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
    """Stands for a command until it is called."""

    def __init__(self, name: str) -> None:
        super().__init__(name, help=COMMANDS[name][1])

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Begin to run the command itself."""
        return load(self.name or "").make_context(*args, **kwargs)


def _without_braces(piece: str) -> str:
    return piece[1:-1] if piece.startswith("{") else piece


def _flags_without_values(params: Any) -> Any:
    """Have no option that takes no value shown as if it took one (``--json <bool>``)."""
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
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=_PlainHelp)(getattr(loaded, function))
    command = typer.main.get_command(alone)
    # A line's end within a paragraph is the source's, and no terminal is as wide.
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join([text.replace("\n", " ") for text in paragraphs])
    return command
