"""``agent-memory export``: chats into a file."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, get_args

import typer

from agent_memory.audit import jsonl
from agent_memory.audit.copying import extent_of
from agent_memory.audit.exporting import Exported, ExportFormat, Scope, export, resume_at
from agent_memory.audit.selecting import Selection, select
from agent_memory.audit.visible import one_line
from agent_memory.cli.drawing import counting_bar
from agent_memory.cli.failures import FAILED
from agent_memory.cli.stores import (
    AnyAgent,
    AnySession,
    AnyUser,
    GrepOption,
    SinceOption,
    StoreOption,
    UntilOption,
    no_such_chat,
    opened,
    plural,
    run_async,
    say,
)
from agent_memory.errors import InvalidRequestError
from agent_memory.storage.base import ChatStorage

_FORMATS = get_args(ExportFormat)


def export_chats(
    user: AnyUser = None,
    session: AnySession = None,
    agent: AnyAgent = None,
    store: StoreOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; standard output without it.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="jsonl: lossless, for import. openai: a conversation a line. openai-json: one "
            "list of conversations. markdown: to read.",
        ),
    ] = "jsonl",
    since: SinceOption = None,
    until: UntilOption = None,
    grep: GrepOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a file whose export was interrupted.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    _keep_going: Annotated[
        bool, typer.Option("--keep-going", hidden=True, help="As it always is.")
    ] = False,
) -> None:
    """Write chats to a file: all, a user's, a session's, or one.

    The format jsonl carries everything: messages, notes, positions and summaries. Not carried
    is when the store received a message, which is not the message's own time stamp. In each
    format notes have their places, and so have positions that cannot be read; where there are
    any, the exit code is 1. A session is one document of markdown, its agents as they spoke.

    With --since, --until or --grep a part is written, which says so at its beginning and is
    for reading: not for import, and without summaries.
    """
    if form not in _FORMATS:
        raise InvalidRequestError(f"--format is one of {', '.join(_FORMATS)}, not {form!r}")
    chosen: ExportFormat = form  # type: ignore[assignment]  # checked above
    selection = select(since, until, grep)
    if selection and resume:
        raise InvalidRequestError("--resume goes on with whole chats: no --since, --until, --grep")
    place = _resumed_at(output, chosen, resume=resume, force=force)
    scope = Scope(user, session, agent)
    is_resumable = chosen == "jsonl" and not selection
    with _file(output, append=resume, is_resumable=is_resumable) as out:
        done = run_async(_export(store, scope, out, chosen, place, selection))
        size = out.tell() if out.seekable() and output is not None else 0
    if output is not None:
        written = plural(done.entries, "entry", "entries")
        print(one_line(f"{output}: {written}, {size / 1000:,.0f} kB"))  # noqa: T201
    if done.left_out:
        say(f"{plural(done.left_out, 'part')} of messages have no place in OpenAI's format")
    if done.bad:
        say(f"{plural(done.bad, 'position')} cannot be read; each is marked in its place")
        raise typer.Exit(FAILED)


def _resumed_at(
    output: Path | None, form: ExportFormat, *, resume: bool, force: bool
) -> jsonl.Place | None:
    if resume:
        if output is None or form != "jsonl" or force:
            raise InvalidRequestError("--resume goes with --output and the format jsonl")
        return resume_at(_unfinished(output))
    if output is not None and output.exists() and not force:
        raise InvalidRequestError(f"{output} exists: --resume goes on with it, --force replaces")
    return None


def _part_of(output: Path) -> Path:
    """Return what a file is called until it is whole."""
    return output.with_name(f"{output.name}.part")


def _unfinished(output: Path) -> Path:
    """Return the file that an interrupted export has left: under its own name, or in part."""
    part = _part_of(output)
    return part if part.exists() else output


@contextmanager
def _file(output: Path | None, *, append: bool, is_resumable: bool) -> Generator[BinaryIO]:
    """Open the output. A file gets its name when it is whole.

    Until then it is ``….part``, which is left behind only where --resume can go on with it.
    """
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    if output.exists() and not output.is_file():  # a device, a pipe: nothing to be renamed
        with output.open("wb") as file:
            yield file
        return
    path = _unfinished(output) if append else _part_of(output)
    try:
        with path.open("ab" if append else "wb") as file:
            yield file
        path.replace(output)
    except BaseException:
        if path.exists() and not (is_resumable and path.stat().st_size):
            path.unlink()
        raise


async def _export(
    store: str | None,
    scope: Scope,
    out: BinaryIO,
    form: ExportFormat,
    place: jsonl.Place | None,
    selection: Selection,
) -> Exported:
    async with opened(store) as storage:
        total = await _total(storage, scope)
        if not total and scope.user_id is not None:  # before anything is written
            raise no_such_chat(store, scope)
        with counting_bar(shown=out is not sys.stdout.buffer) as bar:
            task = bar.add_task("exporting", total=total)
            return await export(
                storage,
                scope,
                out,
                form,
                since=place,
                selection=selection,
                on_hole=lambda hole: say(str(hole)),
                on_progress=lambda count: bar.advance(task, count),
            )


async def _total(storage: ChatStorage, scope: Scope) -> int:
    if scope.agent_id is None:
        return (await extent_of(storage, scope.user_id, scope.session_id)).entries
    return sum([info.entries async for info in scope.chats(storage)])
