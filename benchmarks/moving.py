"""What moving a long chat costs: exporting, importing and copying, beside raw aiosqlite.

``python -m benchmarks moving`` writes rows with aiosqlite in transactions of 500, as a program
made for that alone would: the same fields of a message as JSON, in the same table layout, equally
durable. Then it fills a SQLite store, exports it to a file, imports that file
into a second store and copies the first into a third. Every step reports its rate and the
memory this process holds at a tenth of it and at its end. With ``--store URL`` the copy goes
there too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiosqlite
import attrs

from agent_memory import ChatStorage, ConversationMessage, SqlChatStorage
from agent_memory.audit.chat_copy import chunks_of, missing_in
from agent_memory.audit.chat_import import Importer
from agent_memory.audit.chunks import DefaultIds, Tally
from agent_memory.audit.exporting import export
from agent_memory.audit.log_pages import in_thread
from agent_memory.audit.selection import Scope
from agent_memory.audit.sources import read_file as read_chunks
from agent_memory.storage.urls import open_storage, without_secrets

TEXT = "The ferry leaves at 7:40 and takes four hours; three adults and the van are 422 euros. "
BATCH = 500
TARGET = 1 / 3
ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
STATM = Path("/proc/self/statm")


@attrs.define
class Step:
    """How one step goes.

    Args:
        name: what it does.
        total: how many messages it is for.
    """

    name: str
    total: int
    done: int = 0
    seconds: float = 0.0
    early: float = 0.0
    late: float = 0.0

    def advance(self, count: int, _place: int = 0) -> None:
        self.done += count
        if not self.early and self.done >= self.total / 10:
            self.early = resident_megabytes()

    @property
    def rate(self) -> float:
        return self.total / self.seconds


def resident_megabytes() -> float:
    """Return how much memory this process holds; 0 where that is not told."""
    if not STATM.exists():
        return 0.0
    return int(STATM.read_text().split()[1]) * 4096 / 1e6


def message(number: int) -> ConversationMessage:
    return ConversationMessage(("user", "assistant")[number % 2], f"{number}. {TEXT}")


def row(number: int) -> tuple[int, int, str, str]:
    """Return what is stored of a message, made the plain way."""
    name = f"id-{number:036}"
    plain = {
        "v": 1,
        "id": name,
        "role": ("user", "assistant")[number % 2],
        "content": f"{number}. {TEXT}",
        "timestamp": datetime.now(UTC).isoformat(),
    }
    return 1, number, name, ENCODE(plain)


async def raw(path: Path, step: Step) -> None:
    """Write the rows as directly as aiosqlite can."""
    async with aiosqlite.connect(path) as database:
        await database.execute("PRAGMA journal_mode = WAL")
        await database.execute("PRAGMA synchronous = FULL")
        await database.execute(
            "CREATE TABLE entries (chat INTEGER, position INTEGER, id TEXT, body TEXT, "
            "PRIMARY KEY (chat, position), UNIQUE (chat, id)) WITHOUT ROWID"
        )
        for start in range(0, step.total, BATCH):
            rows = [row(number) for number in range(start, min(start + BATCH, step.total))]
            await database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
            await database.commit()
            step.advance(len(rows))


async def fill(storage: ChatStorage, step: Step) -> None:
    for start in range(0, step.total, BATCH):
        batch = [message(number) for number in range(start, min(start + BATCH, step.total))]
        await storage.save_chat_messages("user", "session", "agent", batch)
        step.advance(len(batch))


async def write_file(storage: ChatStorage, path: Path, step: Step) -> None:
    with path.open("wb") as out:
        await export(storage, Scope(), out, "jsonl", on_progress=step.advance)


async def read_file(path: Path, target: ChatStorage, step: Step) -> None:
    chunks = read_chunks(path, "jsonl", DefaultIds("user", "agent"), Tally())
    await Importer(target, on_progress=step.advance).move(in_thread(chunks))


async def copy(source: ChatStorage, target: ChatStorage, step: Step) -> None:
    await Importer(target, on_progress=step.advance).move(chunks_of(source))


async def compare(source: ChatStorage, target: ChatStorage, step: Step) -> None:
    found = [bad async for bad in missing_in(target, source, on_progress=step.advance)]
    if found:
        raise RuntimeError(f"the copy differs: {found[0]}")


@attrs.define
class Run:
    """The steps so far."""

    total: int
    steps: list[Step] = attrs.field(factory=list[Step])

    async def step(self, name: str, work: Callable[[Step], Awaitable[None]]) -> None:
        step = Step(name, self.total)
        start = time.perf_counter()
        await work(step)
        step.seconds = time.perf_counter() - start
        step.late = resident_megabytes()
        self.steps.append(step)


async def measure(directory: Path, total: int, urls: Sequence[str]) -> list[Step]:
    """Do all steps in a directory."""
    run, file = Run(total), directory / "chats.jsonl"
    await run.step("raw aiosqlite", lambda step: raw(directory / "raw.db", step))
    async with (
        SqlChatStorage(f"sqlite:///{directory}/source.db") as source,
        SqlChatStorage(f"sqlite:///{directory}/imported.db") as imported,
        SqlChatStorage(f"sqlite:///{directory}/copied.db") as copied,
    ):
        await run.step("save", lambda step: fill(source, step))
        await run.step("export", lambda step: write_file(source, file, step))
        await run.step("import", lambda step: read_file(file, imported, step))
        await run.step("copy", lambda step: copy(source, copied, step))
        await run.step("compare", lambda step: compare(source, copied, step))
        for url in urls:
            kind = without_secrets(url).partition(":")[0]
            async with open_storage(url) as target:
                await run.step(f"copy to {kind}", partial(copy, source, target))
    await run.step("raw aiosqlite again", lambda step: raw(directory / "raw2.db", step))
    return run.steps


def ratios(steps: Sequence[Step]) -> dict[str, float]:
    """Return the rates of import and copy against the mean of the raw ones."""
    raws = [step.rate for step in steps if step.name.startswith("raw")]
    mean = sum(raws) / len(raws)
    return {step.name: step.rate / mean for step in steps if step.name in ("import", "copy")}


def print_table(steps: Sequence[Step]) -> None:
    print(f"{'':22}{'messages/s':>12}{'MB at 10 %':>12}{'MB at end':>12}")
    for step in steps:
        print(f"{step.name:22}{step.rate:>12,.0f}{step.early:>12,.0f}{step.late:>12,.0f}")
    for name, ratio in ratios(steps).items():
        print(f"{name}: {ratio:.2f} of raw aiosqlite (target {TARGET:.2f})")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks moving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=100_000, metavar="N")
    parser.add_argument("--store", action="append", default=[], metavar="URL")
    parser.add_argument("--directory", type=Path, help="where the files lie")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        steps = asyncio.run(measure(Path(directory), options.messages, options.store))
    if options.json:
        print(json.dumps([{**attrs.asdict(step), "rate": step.rate} for step in steps], indent=2))
    else:
        print_table(steps)
    return int(options.check and min(ratios(steps).values()) < TARGET)
