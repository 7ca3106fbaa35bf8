"""``agent-memory import``, ``export`` and ``copy``: chats into stores and files."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, get_args

import attrs
import typer

from agent_memory.audit import jsonl
from agent_memory.audit.chat_copy import chunks_of, missing_in
from agent_memory.audit.chat_import import ImportCounts, Importer, checked
from agent_memory.audit.chunks import DefaultIds, Tally
from agent_memory.audit.escaping import one_line
from agent_memory.audit.exporting import ExportFormat, export, resume_at
from agent_memory.audit.findings import Finding
from agent_memory.audit.log_pages import Hole
from agent_memory.audit.selection import Scope, select
from agent_memory.audit.sources import SourceFormat, open_source
from agent_memory.cli.app import FAILED
from agent_memory.cli.drawing import counting
from agent_memory.cli.stores import (
    AnyAgent,
    AnySession,
    AnyUser,
    GrepOption,
    JsonOption,
    SinceOption,
    StoreOption,
    UntilOption,
    given,
    no_such_chat,
    opened,
    plural,
    print_json,
    say,
    utf8,
)
from agent_memory.errors import InvalidRequestError
from agent_memory.storage.urls import open_storage, without_secrets


async def import_chats(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A file, or the URL of a database.", show_default=False
        ),
    ],
    store: StoreOption = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="jsonl (what export writes), messages (JSON or JSON Lines), claude-code, codex, "
            "agent-squad, openai-agents or langchain (their tables). Detected by default.",
        ),
    ] = None,
    user: Annotated[
        str, typer.Option(help="The user, where the source does not say.", callback=utf8)
    ] = "imported",
    agent: Annotated[
        str, typer.Option(help="The agent, where the source does not say.", callback=utf8)
    ] = "agent",
    table: Annotated[
        str | None, typer.Option(help="The table, if it does not have its usual name.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Report bad records and skip them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Store the messages of a file, or of another library's store.

    A file whose first record is of no known format is refused before anything is written; a bad
    record further on ends the import, naming its file and line. Running it again stores nothing
    twice, and resumes an interrupted import.
    """
    chosen: SourceFormat | None = form  # type: ignore[assignment]  # open_source checks it
    given(store)
    # The source comes first: opening the store may create it, and a refused source must leave
    # nothing behind.
    opening = await open_source(source, chosen, DefaultIds(user, agent), table=table)
    stream = opening.stream if keep_going else await checked(opening.stream)
    async with opened(store, create=True) as target:
        with counting("importing", opening.total, shown=not json) as advance:
            importer = Importer(
                target, keep_going=keep_going, on_bad=_say_finding, on_progress=advance
            )
            moved = await importer.move(stream)
    if moved == ImportCounts():
        say(f"there was nothing to import in {without_secrets(source)}")
    print_counts(moved, json=json, tally=opening.tally)


def _say_finding(finding: Finding | Hole) -> None:
    say(str(finding))


def print_counts(moved: ImportCounts, *, json: bool, tally: Tally | None = None) -> None:
    """Print the statistics of an import; exit with code 1 if a record was bad.

    Args:
        moved: what was stored.
        json: whether to write it for programs.
        tally: what the records were read as, where the source is not a store.
    """
    if json:
        counted = {} if tally is None else attrs.asdict(tally)
        print_json({**attrs.asdict(moved), **counted})
    else:
        for line in [*_words(moved), *_counts(tally or Tally())]:
            print(one_line(line))
    if moved.bad:
        raise typer.Exit(FAILED)


def _words(moved: ImportCounts) -> list[str]:
    held = f"; {moved.present:,} were there already" if moved.present else ""
    lines = [f"{plural(moved.messages, 'message')} of {plural(moved.chats, 'chat')} stored{held}"]
    if moved.notes:
        lines.append(f"{plural(moved.notes, 'note')} stored")
    if moved.summaries:
        lines.append(f"{plural(moved.summaries, 'summary', 'summaries')} carried")
    if moved.summaries_left:
        left = plural(moved.summaries_left, "summary", "summaries")
        lines.append(f"{left} not carried: the target's chat differs")
    if moved.bad:
        lines.append(f"{plural(moved.bad, 'record')} left out")
    return lines


def _counts(tally: Tally) -> list[str]:
    counts = {"read as": tally.read, "not taken over": tally.left_out}
    return [
        f"{verb} {', '.join([f'{kind} ({count:,})' for kind, count in counter.most_common()])}"
        for verb, counter in counts.items()
        if counter
    ]


_FORMATS = get_args(ExportFormat)


async def export_chats(
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
        bool, typer.Option("--resume", help="Continue the file of an interrupted export.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: JsonOption = False,
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
    if json and output is None:
        raise InvalidRequestError(
            "--json prints figures to standard output: write the export to a file with --output"
        )
    # An export of a part cannot be resumed: nothing in the file says what was left out between
    # its lines.
    if selection and resume:
        raise InvalidRequestError("--resume does not take --since, --until or --grep")
    place = _resumed_at(output, chosen, resume=resume, force=force)
    scope = Scope(user, session, agent)
    is_resumable = chosen == "jsonl" and not selection
    async with opened(store) as storage:
        total = await scope.entries(storage)
        if not total and user is not None:  # raised before the output is created
            raise no_such_chat(store, scope)
        with (
            _file(output, append=resume, is_resumable=is_resumable) as out,
            counting("exporting", total, shown=output is not None) as advance,
        ):
            done = await export(
                storage,
                scope,
                out,
                chosen,
                since=place,
                selection=selection,
                on_hole=_say_finding,
                on_progress=advance,
            )
            size = out.tell() if out.seekable() and output is not None else 0
    if json:
        print_json({"output": str(output), "bytes": size, **attrs.asdict(done)})
    elif output is not None:
        written = plural(done.entries, "entry", "entries")
        print(one_line(f"{output}: {written}, {size / 1000:,.0f} kB"))
    if done.left_out:
        say(f"{plural(done.left_out, 'part')} of messages have no place in OpenAI's format")
    if done.bad:
        say(f"{plural(done.bad, 'position')} cannot be read; each is marked in its place")
        raise typer.Exit(FAILED)


def _resumed_at(
    output: Path | None, form: ExportFormat, *, resume: bool, force: bool
) -> jsonl.ResumePoint | None:
    if resume:
        if output is None or form != "jsonl" or force:
            raise InvalidRequestError("--resume needs --output and the format jsonl")
        return resume_at(_unfinished(output))
    if output is not None and output.exists() and not force:
        raise InvalidRequestError(f"{output} exists: --resume continues it, --force replaces it")
    return None


def _part_of(output: Path) -> Path:
    """Return the name of a file until it is complete."""
    return output.with_name(f"{output.name}.part")


def _unfinished(output: Path) -> Path:
    """Return the file of an interrupted export: the partial one, or one with the final name."""
    part = _part_of(output)
    return part if part.exists() else output


@contextmanager
def _file(output: Path | None, *, append: bool, is_resumable: bool) -> Generator[BinaryIO]:
    """Open the output. A file gets its name when it is complete.

    Until then it is ``….part``, which is kept after a failure only if --resume can continue it.
    """
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    if output.exists() and not output.is_file():  # a rename would replace a device or pipe
        with output.open("wb") as file:
            yield file
        return
    path = _unfinished(output) if append else _part_of(output)
    try:
        with path.open("ab" if append else "wb") as file:
            yield file
        # Atomic: readers find the old file or the complete new one.
        path.replace(output)
    except BaseException:
        if path.exists() and not (is_resumable and path.stat().st_size):
            path.unlink()
        raise


async def copy_chats(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A store's URL.", show_default=False)
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Another store's URL.", show_default=False)
    ],
    user: Annotated[
        str | None, typer.Option(help="Only this user's chats.", callback=utf8)
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Report what cannot be read and skip it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Copy every chat from one store to another, and compare them afterwards.

    Messages, notes and summaries are copied. Running it again copies what is missing, and
    resumes an interrupted copy. Summaries are left out where messages get other positions in the
    target, as after a trim of the source; the counts say how many.
    """
    if source == target:
        raise InvalidRequestError("source and target are the same store")
    async with opened(source) as old, open_storage(target) as new:
        total = await Scope(user).entries(old)
        with counting("copying", total, shown=not json) as advance:
            importer = Importer(
                new, keep_going=keep_going, on_bad=_say_finding, on_progress=advance
            )
            moved = await importer.move(chunks_of(old, user))
        # Compared even if nothing was stored: the target may have been changed since the last
        # copy.
        with counting("comparing", total, shown=not json) as advance:
            differences = missing_in(new, old, user, on_progress=advance)
            different = [str(finding) async for finding in differences]
    if json:
        print_json({**attrs.asdict(moved), "different": different})
        if moved.bad or different:
            raise typer.Exit(FAILED)
        return
    for line in different:
        say(line)
    if different:
        say(f"{plural(len(different), 'chat')} differ; copy again if the source was in use")
        raise typer.Exit(FAILED)
    print_counts(moved, json=False)
    print("the target holds everything, compared entry by entry")
