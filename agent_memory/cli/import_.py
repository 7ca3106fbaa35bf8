"""``agent-memory import``: messages of files and other libraries' stores into this one."""

from __future__ import annotations

import json as json_
from typing import Annotated

import attrs
import typer

from agent_memory.audit.chunks import Bad, Whose
from agent_memory.audit.moving import Moved, Mover
from agent_memory.audit.sources.detecting import SourceFormat, open_source
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
)


def import_chats(
    source: Annotated[
        str, typer.Argument(help="A file, or the URL of a database.", show_default=False)
    ],
    store: StoreOption = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="jsonl (what export writes), openai (JSON or JSON Lines of messages), "
            "agent-squad, openai-agents or langchain (their tables). Found out by default.",
        ),
    ] = None,
    user: Annotated[str, typer.Option(help="Whose, where the source does not say.")] = "imported",
    agent: Annotated[
        str, typer.Option(help="With which agent, where the source does not say.")
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

    Doing it again stores nothing twice; what was interrupted is resumed that way.
    """
    whose = Whose(user, agent)
    moved = run_async(_import(store, source, form, whose, table, keep_going, shown=not json))
    tell(moved, json=json)


async def _import(
    store: str | None,
    place: str,
    form: str | None,
    whose: Whose,
    table: str | None,
    keep_going: bool,
    *,
    shown: bool,
) -> Moved:
    chosen: SourceFormat | None = form  # type: ignore[assignment]  # open_source checks it
    given(store)
    source = await open_source(place, chosen, whose, table=table)  # first: it may be refused
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
            return await mover.move(source.stream)


def _say_bad(bad: Bad) -> None:
    say(str(bad))


def tell(moved: Moved, *, json: bool) -> None:
    """Write what a move came to; ends the command where something was left out."""
    if json:
        print(json_.dumps(attrs.asdict(moved)))  # noqa: T201  (a command line)
    else:
        for line in _words(moved):
            print(line)  # noqa: T201
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
