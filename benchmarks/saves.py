"""Saving one message into chats of several lengths, and many at once; reading the newest.

All contenders take turns, save by save, so that a slow moment of the machine hits all of them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks.contenders import (
    Contender,
    GroupCommit,
    OurFiles,
    OurMemory,
    OurSqlite,
    RawBatch,
    RawFiles,
    RawLog,
    RawRow,
    text_of,
)
from benchmarks.peers import OpenAiSqlite
from benchmarks.targets import Target, at_least, at_most
from benchmarks.timing import processed, timed


@attrs.frozen
class Sizes:
    """How much is measured.

    Args:
        kept: the lengths of the chats that are saved to.
        samples: lone saves for each.
        chats: how many save at once.
        rounds: how often they do, all contenders in turn.
        seconds: about how long each contender saves in a round.
        newest: how many messages are read of the longest of these chats.
    """

    kept: tuple[int, ...] = (10, 1_000, 5_000)
    samples: int = 101
    chats: int = 64
    rounds: int = 7
    seconds: float = 0.25
    newest: int = 20


@attrs.frozen
class Lone:
    """A save, in seconds; the median tells what is usual, the minimum what it costs."""

    median: float
    minimum: float


@attrs.define
class Row:
    """What one contender took.

    Args:
        name, kind: of the contender.
        lone: by the number of messages kept.
        at_once: messages a second of each round, many chats at once.
        cpu: seconds of the processor a message of each round takes, many chats at once.
        lone_cpu: the same of lone saves.
        newest: reading the newest messages of the longest chat.
    """

    name: str
    kind: str
    lone: dict[int, Lone] = attrs.field(factory=dict[int, Lone])
    at_once: list[float] = attrs.field(factory=list[float])
    cpu: list[float] = attrs.field(factory=list[float])
    lone_cpu: list[float] = attrs.field(factory=list[float])
    newest: Lone | None = None

    @property
    def rate(self) -> float:
        """Messages a second, the median of the rounds; 0 if it was not measured."""
        return statistics.median(self.at_once) if self.at_once else 0.0


def contenders(peers: Sequence[type[Contender]]) -> list[type[Contender]]:
    """Return all that save, the engines first."""
    return [
        RawRow,
        RawLog,
        RawBatch,
        GroupCommit,
        RawFiles,
        OurSqlite,
        OurFiles,
        OurMemory,
        *peers,
    ]


async def measure(
    makers: Sequence[type[Contender]], directory: Path, sizes: Sizes
) -> dict[type[Contender], Row]:
    """Measure all of them."""
    made = [make(_place(directory, make)) for make in makers]
    rows = {type(one): Row(one.name, one.kind) for one in made}
    for one in made:
        await one.open()
    try:
        for kept in sizes.kept:
            taking_part = [one for one in made if one.longest >= kept]
            for one, lone in (await _lone(taking_part, kept, sizes.samples)).items():
                rows[type(one)].lone[kept] = lone
        for one, took in (await _newest(made, sizes)).items():
            rows[type(one)].newest = took
        saves = {one: await _saves_in(one, sizes) for one in made}
        for _ in range(sizes.rounds):
            for one in made:
                await _round(one, rows[type(one)], sizes.chats, saves[one])
    finally:
        for one in made:
            await one.close()
    return rows


def _place(directory: Path, make: type[Contender]) -> Path:
    place = directory / make.__name__
    place.mkdir()
    return place


async def _lone(made: Sequence[Contender], kept: int, samples: int) -> dict[Contender, Lone]:
    chat = f"kept-{kept}"
    for one in made:
        await one.fill(chat, kept)
        await one.save(chat, kept)
    times: dict[Contender, list[float]] = {one: [] for one in made}
    for number in range(samples):
        for place in range(len(made)):  # each comes after each other one as often
            one = made[(place + number) % len(made)]
            times[one].append(await timed(partial(one.save, chat, kept + 1 + number)))
    return {one: Lone(statistics.median(took), min(took)) for one, took in times.items()}


async def _newest(made: Sequence[Contender], sizes: Sizes) -> dict[Contender, Lone]:
    """Time reading the newest messages of the longest chat, what each says included."""
    kept = max(sizes.kept)
    chat, last = f"kept-{kept}", text_of(kept + sizes.samples)
    times: dict[Contender, list[float]] = {}
    for one in made:
        if one.longest >= kept and await one.newest(chat, sizes.newest) is not None:
            times[one] = []
    for number in range(sizes.samples * 3):
        for place in range(len(times)):
            one = list(times)[(place + number) % len(times)]
            start = time.perf_counter()
            found = await one.newest(chat, sizes.newest)
            times[one].append(time.perf_counter() - start)
            if found is None or found[-1] != last or len(found) > sizes.newest:
                raise AssertionError(f"{one.name} does not give the newest messages")
    return {one: Lone(statistics.median(took), min(took)) for one, took in times.items()}


class _Numbers:
    """The next number of each chat: peers insist on roles that alternate."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, str], int] = {}

    def take(self, one: Contender, chat: str) -> int:
        number = self._next.get((id(one), chat), 0)
        self._next[id(one), chat] = number + 1
        return number


_numbers = _Numbers()


async def _saves_in(one: Contender, sizes: Sizes) -> int:
    """Return how many saves a chat does in a round; unmeasured, it warms up and makes them."""
    start = time.perf_counter()
    await _at_once(one, sizes.chats, 1)
    await _at_once(one, sizes.chats, 1)
    each = (time.perf_counter() - start) / 2
    return max(1, min(50, int(sizes.seconds / each)))


async def _round(one: Contender, row: Row, chats: int, saves: int) -> None:
    async def in_sequence() -> None:
        for _ in range(saves):
            await one.save("one", _numbers.take(one, "one"))

    rate = 0.0

    async def at_once() -> None:
        nonlocal rate
        rate = await _at_once(one, chats, saves)

    row.cpu.append(await processed(at_once) / (chats * saves))
    row.at_once.append(rate)
    if one.longest:
        row.lone_cpu.append(await processed(in_sequence) / saves)


async def _at_once(one: Contender, chats: int, saves: int) -> float:
    async def speak(chat: str) -> None:
        for _ in range(saves):
            await one.save(chat, _numbers.take(one, chat))

    async def all_speak() -> None:
        if isinstance(one, RawBatch):  # one save is a batch of what others save one by one
            for _ in range(saves * chats // 64):
                await one.save("all", 0)
        else:
            await asyncio.gather(*(speak(f"chat-{chat}") for chat in range(chats)))

    return chats * saves / await timed(all_speak)


def targets(rows: dict[type[Contender], Row]) -> list[Target]:
    """Return what is promised of saves."""
    sqlite, files = rows[OurSqlite], rows[OurFiles]
    found = [
        at_most("SQLite FULL: lone save ÷ raw aiosqlite's", lone_ratio(sqlite, rows[RawLog]), 1.7),
        at_most(
            "files fsync: lone save ÷ raw append + fsync", lone_ratio(files, rows[RawFiles]), 1.5
        ),
        at_least(
            "SQLite FULL: many chats at once ÷ a minimal group commit without checks",
            rate_ratio(sqlite, rows[GroupCommit]),
            1.0,
        ),
        at_least(
            "SQLite FULL: many chats at once ÷ raw aiosqlite, head row + message",
            rate_ratio(sqlite, rows[RawLog]),
            2.5,
        ),
        at_least(
            "files fsync: many chats at once ÷ raw append + fsync, one thread",
            rate_ratio(files, rows[RawFiles]),
            1.0,
        ),
    ]
    peers = [row for row in rows.values() if row.kind == "peer"]
    if peers:
        best = max(peers, key=lambda row: row.rate)
        name = f"SQLite FULL: many chats at once ÷ best peer ({best.name.partition(' (')[0]})"
        found.append(at_least(name, rate_ratio(sqlite, best), 5.0))
    session = rows.get(OpenAiSqlite)
    if session is not None and session.newest is not None and sqlite.newest is not None:
        name = "SQLite FULL: lone save ÷ OpenAI Agents' SQLiteSession's"
        found.append(at_most(name, lone_ratio(sqlite, session), 0.9))
        name = "SQLite: newest messages of the longest chat ÷ SQLiteSession's"
        found.append(at_most(name, sqlite.newest.median / session.newest.median, 1.0))
    return found


def lone_ratio(one: Row, other: Row) -> float:
    kept = min(one.lone)
    return one.lone[kept].median / other.lone[kept].median


def rate_ratio(one: Row, other: Row) -> float:
    return statistics.median(
        first / second for first, second in zip(one.at_once, other.at_once, strict=True)
    )


def print_table(rows: dict[type[Contender], Row], sizes: Sizes) -> None:
    """Print the lengths, then the rate, of each contender."""
    heads = "".join(f"{f'{kept:,} kept':>16}" for kept in sizes.kept)
    at_once = f"{sizes.chats} chats at once"
    first, cpu = "a message saved: median (minimum) ms", "CPU: alone, at once"
    read = f"newest {sizes.newest}"
    print(f"{first:62}{heads}{read:>16}{at_once:>20}{cpu:>22}")
    for row in rows.values():
        cells = "".join(f"{_cell(row.lone.get(kept)):>16}" for kept in sizes.kept)
        rate = f"{row.rate:,.0f} /s"
        print(f"{row.name:62}{cells}{_cell(row.newest):>16}{rate:>20}{_cpu(row):>22}")


def _cpu(row: Row) -> str:
    """Return the least microseconds of the processor: what the code takes when undisturbed."""
    lone = f"{min(row.lone_cpu) * 1e6:,.0f}" if row.lone_cpu else "–"
    return f"{lone}, {min(row.cpu) * 1e6:,.0f} µs"


def cpu_ratios(rows: dict[type[Contender], Row]) -> dict[str, float]:
    """Return the processor's part of the ratios, which other processes hardly disturb."""
    sqlite, log, group = rows[OurSqlite], rows[RawLog], rows[GroupCommit]
    return {
        "SQLite, CPU: our lone save ÷ raw head row + message": min(sqlite.lone_cpu)
        / min(log.lone_cpu),
        "SQLite, CPU at once: raw head row + message ÷ ours": min(log.cpu) / min(sqlite.cpu),
        "SQLite, CPU at once: minimal group commit ÷ ours": min(group.cpu) / min(sqlite.cpu),
    }


def _cell(lone: Lone | None) -> str:
    if lone is None:
        return "–"
    return f"{lone.median * 1e3:.2f} ({lone.minimum * 1e3:.2f})"
