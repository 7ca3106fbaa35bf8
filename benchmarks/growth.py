"""What a save, a fetch and a restart cost in a short chat and in a long one.

``python -m benchmarks growth`` fills two chats of each store, one short and one long, and then
works on both in turn. Each figure is a median; the ratio is long against short: 1 means that
the length makes no difference.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

from agent_memory import ChatStorage, ConversationMessage, SummarizingChatStorage
from agent_memory.turns import split_recent
from benchmarks.stores import StoreCase, embedded, servers, started
from benchmarks.timing import Pair, Work, fsync_seconds, in_turn

TEXT = "The ferry leaves at 7:40 and takes four hours; three adults and the van are 422 euros. "
BATCH = 500


@attrs.frozen
class Sizes:
    """How long the chats are, in messages, and how often each piece of work is done."""

    short: int = 100
    long: int = 100_000
    samples: int = 101


@attrs.frozen
class Growth:
    """What one store takes, in seconds.

    Args:
        save: one message, saved in the raw chat.
        newest: the newest 20 messages of the raw chat.
        fetch: the view of an active chat.
        turn: one message saved, and the view fetched, of an active chat.
        restart: the view of a summarized chat, fetched by a wrapper that has never seen it.
    """

    save: Pair
    newest: Pair
    fetch: Pair
    turn: Pair
    restart: Pair


def summarize(history: list[ConversationMessage], keep_last: int) -> list[ConversationMessage]:
    """Stand in for a model that answers at once."""
    old, recent = split_recent(history, keep_last)
    return [ConversationMessage("user", f"[{len(old)} messages]"), *recent]


def wrapped(storage: ChatStorage) -> SummarizingChatStorage:
    return SummarizingChatStorage(storage, summarize, close_inner=False)


class Chat:
    """One chat of some length, and the pieces of work on it."""

    def __init__(self, storage: ChatStorage, user_id: str) -> None:
        self._storage = storage
        self._key = (user_id, "session", "agent")
        self._active = wrapped(storage)

    async def fill(self, length: int) -> None:
        for start in range(0, length, BATCH):
            batch = [_message(number) for number in range(start, min(start + BATCH, length))]
            await self._storage.save_chat_messages(*self._key, batch)

    async def save(self) -> None:
        await self._storage.save_chat_message(*self._key, _message(0))

    async def newest(self) -> None:
        await self._storage.fetch_chat(*self._key, max_history_size=20)

    async def fetch(self) -> None:
        await self._active.fetch_chat(*self._key)

    async def turn(self) -> None:
        await self._active.save_chat_message(*self._key, _message(1))
        await self._active.fetch_chat(*self._key)

    async def restart(self) -> None:
        async with wrapped(self._storage) as storage:
            await storage.fetch_chat(*self._key)

    async def close(self) -> None:
        await self._active.aclose()


def _message(number: int) -> ConversationMessage:
    return ConversationMessage(("user", "assistant")[number % 2], f"{number}. {TEXT}")


async def measure(case: StoreCase, sizes: Sizes) -> Growth:
    """Measure one store."""
    async with case.make() as storage:
        short, long = Chat(storage, "short"), Chat(storage, "long")
        await short.fill(sizes.short)
        await long.fill(sizes.long)
        save = await _both(short.save, long.save, sizes)
        newest = await _both(short.newest, long.newest, sizes)
        await short.fetch()  # which activates it, and makes the first summary
        await long.fetch()
        growth = Growth(
            save=save,
            newest=newest,
            fetch=await _both(short.fetch, long.fetch, sizes),
            turn=await _both(short.turn, long.turn, sizes),
            restart=await _both(short.restart, long.restart, sizes),
        )
        for chat in (short, long):
            await chat.close()
        for user_id in ("short", "long"):
            await storage.delete_chats(user_id)
        return growth


async def _both(short: Work, long: Work, sizes: Sizes) -> Pair:
    await short()  # once unmeasured: what is loaded at the first use
    await long()
    return await in_turn(short, long, samples=sizes.samples)


def print_table(sizes: Sizes, results: dict[str, Growth]) -> None:
    heads = f"at {sizes.short:,}", f"at {sizes.long:,}"
    print(f"{'store':34}{'work':10}{heads[0]:>14}{heads[1]:>14}{'ratio':>8}")
    for name, growth in results.items():
        for work, pair in _pairs(growth):
            row = f"{pair.first * 1e6:>11,.0f} µs{pair.second * 1e6:>11,.0f} µs"
            print(f"{name:34}{work:10}{row}{pair.ratio:>8.2f}")


def _pairs(growth: Growth) -> list[tuple[str, Pair]]:
    return [(field.name, getattr(growth, field.name)) for field in attrs.fields(Growth)]


def print_json(sizes: Sizes, results: dict[str, Growth]) -> None:
    figures = {
        name: {
            work: {"short": pair.first, "long": pair.second, "ratio": pair.ratio}
            for work, pair in _pairs(growth)
        }
        for name, growth in results.items()
    }
    print(json.dumps({"sizes": attrs.asdict(sizes), "seconds": figures}, indent=2))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for field in attrs.fields(Sizes):
        parser.add_argument(f"--{field.name}", type=int, default=field.default, metavar="N")
    parser.add_argument("--store", action="append", default=[], metavar="URL")
    parser.add_argument(
        "--servers", action="store_true", help="PostgreSQL and MariaDB, as the tests start them"
    )
    parser.add_argument("--directory", type=Path, help="where the embedded stores lie")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    sizes = Sizes(options.short, options.long, options.samples)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory, ExitStack() as stack:
        synced = fsync_seconds(directory)
        more = stack.enter_context(started()) if options.servers else []
        cases = more or servers(options.store) or embedded(Path(directory))
        results = {case.name: asyncio.run(measure(case, sizes)) for case in cases}
        if options.json:
            print_json(sizes, results)
            return 0
        print(f"4 KB written and synced take {synced * 1e6:,.0f} µs here.\n")
    print_table(sizes, results)
    return 0
