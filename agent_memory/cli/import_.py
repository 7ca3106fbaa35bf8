"""``agent-memory import``: messages of files and other libraries' stores into this one."""

from __future__ import annotations

import json as json_
from typing import Annotated

import attrs
import typer

from agent_memory.audit.chunks import Bad, Whose
from agent_memory.audit.moving import Moved, Mover, checked
from agent_memory.audit.sources.detecting import SourceFormat, open_source
from agent_memory.audit.sources.items import Tally
from agent_memory.audit.visible import one_line
from agent_memory.cli.drawing import counting_bar
from agent_memory.cli.failures import FAILED
from agent_memory.cli.stores import (
    JsonOption,
    StoreOption,
    given,
    opened,
    plural,
    run_async,
    say,
    utf8,
)
from agent_memory.storage.urls import without_secrets


def import_chats(
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
            "agent-squad, openai-agents or langchain (their tables). Found out by default.",
        ),
    ] = None,
    user: Annotated[
        str, typer.Option(help="Whose, where the source does not say.", callback=utf8)
    ] = "imported",
    agent: Annotated[
        str, typer.Option(help="With which agent, where the source does not say.", callback=utf8)
    ] = "agent",
    table: Annotated[
        str | None, typer.Option(help="The table, where it has not its usual name.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Pass over bad records, telling each.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Store the messages of a file, or of another library's store.

    A file whose first record has not the shape of any form that is read is refused before
    anything is written; a bad record further on ends the import, naming its file and line.
    Doing it again stores nothing twice; what was interrupted is resumed that way.
    """
    whose = Whose(user, agent)
    moved, tally = run_async(
        _import(store, source, form, whose, table, keep_going, shown=not json)
    )
    if moved == Moved():
        say(f"there was nothing to import in {without_secrets(source)}")
    tell(moved, json=json, tally=tally)


async def _import(
    store: str | None,
    place: str,
    form: str | None,
    whose: Whose,
    table: str | None,
    keep_going: bool,
    *,
    shown: bool,
) -> tuple[Moved, Tally]:
    chosen: SourceFormat | None = form  # type: ignore[assignment]  # open_source checks it
    given(store)
    # Before the store is opened, which may make it: the source may be refused.
    source = await open_source(place, chosen, whose, table=table)
    stream = source.stream if keep_going else await checked(source.stream)
    async with opened(store, create=True) as target:
        with counting_bar(shown=shown) as bar:
            task = bar.add_task("importing", total=source.total, counted=0)
            counted = 0

            def on_progress(count: int, done: int) -> None:
                nonlocal counted
                counted += count
                at = max(done, int(bar.tasks[0].completed))
                bar.update(task, completed=at, counted=counted)

            mover = Mover(target, keep_going=keep_going, on_bad=_say_bad, on_progress=on_progress)
            return await mover.move(stream), source.tally


def _say_bad(bad: Bad) -> None:
    say(str(bad))


def tell(moved: Moved, *, json: bool, tally: Tally | None = None) -> None:
    """Write what a move came to; ends the command where a record was bad.

    Args:
        moved: what was stored.
        json: whether to write it for programs.
        tally: what the source's records were read as, where it is not a store of ours.
    """
    if json:
        counted = {} if tally is None else attrs.asdict(tally)
        print(json_.dumps({**attrs.asdict(moved), **counted}))  # noqa: T201  (a command line)
    else:
        for line in [*_words(moved), *_counts(tally or Tally())]:
            print(one_line(line))  # noqa: T201
    if moved.bad:
        raise typer.Exit(FAILED)


def _words(moved: Moved) -> list[str]:
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
    told = {"read as": tally.read, "not taken over": tally.left_out}
    return [
        f"{verb} {', '.join([f'{kind} ({count:,})' for kind, count in counter.most_common()])}"
        for verb, counter in told.items()
        if counter
    ]
