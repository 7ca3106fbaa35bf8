"""What the wrapper adds: to a save, a fetch, a restart, to memory, and to the event loop."""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from agent_memory import (
    ChatStorage,
    ConversationMessage,
    InMemoryChatStorage,
    SummarizingChatStorage,
)
from agent_memory.turns import split_recent
from benchmarks.contenders import OurSqlite, message
from benchmarks.targets import Target, at_most
from benchmarks.timing import in_turn, timed

IDS = ("user", "session", "agent")


def summarize(history: list[ConversationMessage], keep_last: int) -> list[ConversationMessage]:
    """Stand in for a model that answers at once."""
    old, recent = split_recent(history, keep_last)
    return [ConversationMessage("user", f"[{len(old)} messages]"), *recent]


async def summarize_soon(
    history: list[ConversationMessage], keep_last: int
) -> list[ConversationMessage]:
    """Stand in for one that answers over the network."""
    await asyncio.sleep(0.001)
    return summarize(history, keep_last)


def wrapped(storage: ChatStorage, **options: Any) -> SummarizingChatStorage:
    return SummarizingChatStorage(storage, summarize, close_inner=False, **options)


async def fill(storage: ChatStorage, ids: tuple[str, str, str], count: int) -> None:
    for start in range(0, count, 500):
        batch = [message(number) for number in range(start, min(start + 500, count))]
        await storage.save_chat_messages(*ids, batch)


def run(directory: Path, tiny: bool) -> list[Target]:
    """Measure all of it."""
    for name in ("overhead", "restart", "import"):
        (directory / name).mkdir()
    length, samples, chats = (90, 2, 20) if tiny else (100_000, 201, 1_000)
    return [
        *asyncio.run(active_fetch(length, samples)),
        asyncio.run(overhead_on_save(directory / "overhead", samples)),
        *asyncio.run(restart(directory / "restart", length, samples)),
        asyncio.run(longest_pause(chats)),
        *asyncio.run(memory_of_buffers(200 if tiny else 100_000)),
        asyncio.run(memory_of_import(directory / "import", 2_000 if tiny else 1_000_000)),
    ]


async def active_fetch(length: int, samples: int) -> list[Target]:
    """The view of an active chat: short against long, against the peer's, checked or not."""
    raw = InMemoryChatStorage()
    short, long = ("short", *IDS[1:]), ("long", *IDS[1:])
    await fill(raw, short, min(100, length))
    await fill(raw, long, length)
    alone, checking = wrapped(raw, shared=False), wrapped(raw, shared=True)
    for storage in (alone, checking):
        await storage.fetch_chat(*short)
        await storage.fetch_chat(*long)
    lengths = await in_turn(
        _often(lambda: alone.fetch_chat(*short)),
        _often(lambda: alone.fetch_chat(*long)),
        samples=samples,
    )
    checked = await in_turn(
        _often(lambda: alone.fetch_chat(*long)),
        _often(lambda: checking.fetch_chat(*long)),
        samples=samples,
    )
    print(f"active fetch: {checked.first * 1e4:.2f} µs; checked for others {checked.ratio:.1f} ×")
    found = [at_most("active fetch, in memory: long chat ÷ short chat", lengths.ratio, 1.2)]
    if importlib.util.find_spec("agent_squad"):
        peer = await _peers_buffer()
        pair = await in_turn(
            _often(lambda: peer.fetch_chat(*IDS)),
            _often(lambda: alone.fetch_chat(*long)),
            samples=samples,
        )
        found.append(
            at_most("active fetch, in memory ÷ agent-squad's live buffer", pair.ratio, 10)
        )
    return found


def _often(work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
    async def hundredfold() -> None:
        for _ in range(100):
            await work()

    return hundredfold


async def _peers_buffer() -> Any:
    squad: Any = importlib.import_module("agent_squad.storage")
    types: Any = importlib.import_module("agent_squad.types")
    inner = squad.InMemoryChatStorage()
    made = [
        types.ConversationMessage(role=("user", "assistant")[n % 2], content=[{"text": str(n)}])
        for n in range(50)
    ]
    await inner.save_chat_messages(*IDS, made)

    async def shorten(history: list[Any], keep_last: int) -> list[Any]:
        return history[-2 * keep_last :]

    storage = squad.SummarizingChatStorage(inner, shorten)
    await storage.fetch_chat(*IDS)
    return storage


async def overhead_on_save(directory: Path, samples: int) -> Target:
    """A save through the wrapper with nothing to summarize, against one into the store."""
    async with OurSqlite(directory).storage as raw:
        ids = ("plain", *IDS[1:]), ("wrapped", *IDS[1:])
        await fill(raw, ids[0], 100)
        await fill(raw, ids[1], 100)
        storage = wrapped(raw, shared=False)
        await storage.fetch_chat(*ids[1])
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(samples):
            if number % 30 == 0:  # far from the trigger: a fresh summary
                await storage.compact_now(*ids[1])
            for which in (0, 1) if number % 2 else (1, 0):
                target = (raw, storage)[which]
                made = message(number)
                took = await timed(partial(target.save_chat_message, *ids[which], made))
                times[which].append(took)
        ratio = statistics.median(times[1]) / statistics.median(times[0])
        return at_most("SQLite FULL: save through the wrapper ÷ inner save", ratio, 1.1)


_MIDWAY = 15
"""Messages after a summary: with those that it kept, half of what makes the next one due."""


async def restart(directory: Path, length: int, samples: int) -> list[Target]:
    """A chat's first fetch by a new wrapper, midway between two summaries; and its tail alone."""
    found: list[Target] = []
    async with OurSqlite(directory).storage as sqlite:
        for name, raw in (("in memory", InMemoryChatStorage()), ("SQLite FULL", sqlite)):
            await fill(raw, IDS, length)
            async with wrapped(raw) as storage:
                await storage.fetch_chat(*IDS)
                for number in range(_MIDWAY):
                    await storage.save_chat_message(*IDS, message(number))
                tail = len(await storage.fetch_chat(*IDS))
                record = (await storage.compaction_history(*IDS))[-1]
            unused = [wrapped(raw) for _ in range(samples)]

            async def anew(unused: list[SummarizingChatStorage] = unused) -> None:
                await unused.pop().fetch_chat(*IDS)

            async def read(raw: ChatStorage = raw, after: int = record.position) -> None:
                await raw.fetch_chat_since(*IDS, after)

            pair = await in_turn(read, anew, samples=samples)
            text = f"{name}: restart with a record at {length:,}, view of {tail} ÷ the tail"
            if raw is sqlite:
                found.append(at_most(text, pair.ratio, 3))
            else:  # nothing survives a restart there; it is what an evicted chat costs
                print(f"{text}: {pair.second * 1e6:.0f} µs, {pair.ratio:.1f} ×")
    return found


async def longest_pause(chats: int) -> Target:
    """The longest gap between ticks of a 1 ms timer while many chats are summarized."""
    storage = SummarizingChatStorage(InMemoryChatStorage(), summarize_soon)
    keys = [("user", "session", f"agent-{number}") for number in range(chats)]
    for ids in keys:
        await fill(storage, ids, 60)
    collector = _Collector()
    gaps: list[float] = []
    over = asyncio.Event()

    async def tick() -> None:
        last = time.perf_counter()
        while not over.is_set():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await asyncio.gather(*(_hold(storage, ids) for ids in keys))
    over.set()
    await ticking
    await storage.aclose()
    print(f"the garbage collector's longest pass meanwhile: {collector.stop() * 1e3:.1f} ms")
    return at_most(f"longest pause while {chats:,} chats compact", max(gaps) * 1e3, 20, "ms")


class _Collector:
    """Notes the garbage collector's longest pass, in seconds.

    What is there already, here 60 messages of each chat, is put out of its reach: else it walks
    through all that the memory store holds, again and again.
    """

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self._began = self._longest = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._longest = max(self._longest, time.perf_counter() - self._began)

    def stop(self) -> float:
        gc.callbacks.remove(self._note)
        gc.unfreeze()
        return self._longest


async def _hold(storage: ChatStorage, ids: tuple[str, str, str]) -> None:
    await asyncio.sleep(0)
    await storage.fetch_chat(*ids)


async def memory_of_buffers(chats: int) -> list[Target]:
    """Many chats through one wrapper: buffers held, and the bytes of one beside its messages."""
    most = min(1_000, chats // 2)
    raw = InMemoryChatStorage()
    ids = [("user", f"session-{number}", "agent") for number in range(chats)]
    made = [message(number) for number in range(6)]
    storage = SummarizingChatStorage(raw, summarize, 2, 1, max_buffers=most, close_inner=False)
    for one in ids:
        await raw.save_chat_messages(*one, made)
        await storage.fetch_chat(*one)
    held = storage.buffered_chats
    await storage.aclose()
    again = SummarizingChatStorage(raw, summarize, 2, 1, max_buffers=most, close_inner=False)
    gc.collect()
    tracemalloc.start()
    for one in ids[:most]:  # from their records: what is new is the buffers
        await again.fetch_chat(*one)
    gc.collect()
    each = tracemalloc.get_traced_memory()[0] / most
    tracemalloc.stop()
    await again.aclose()
    return [
        at_most(f"buffers held after {chats:,} chats ÷ max_buffers", held / most, 1),
        at_most("a buffer beside its messages", each, 1_024, "bytes"),
    ]


async def memory_of_import(directory: Path, count: int) -> Target:
    """How much memory grows from the first tenth of an import to its end."""
    async with OurSqlite(directory).storage as raw:
        storage = wrapped(raw)
        await fill(storage, IDS, count // 10)
        gc.collect()
        first = _resident()
        await fill(storage, IDS, count - count // 10)
        gc.collect()
        grown = (_resident() - first) / 1e6
    return at_most(f"memory grown while {count:,} messages are imported", grown, 50, "MB")


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096
