"""DynamoDB: requests, counted by the client's own events, against an emulator.

Times of an emulator tell nothing of DynamoDB; requests are what is waited for and paid.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.contenders import message
from benchmarks.servers_here import dynamodb, from_tests
from benchmarks.targets import Target, at_most
from benchmarks.wrapping import IDS, fill, wrapped


def run(_directory: Path, tiny: bool) -> list[Target]:
    """Count them; nothing without aioboto3, moto and the tests' proxy."""
    needed = ("aioboto3", "moto", "flask", "flask_cors", "aiohttp", "pytest")
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        print(f"not installed: {', '.join(absent)}; DynamoDB left out")
        return []
    for name in ("aiobotocore", "aiohttp.access"):  # a peer turns everybody's logging on
        logging.getLogger(name).setLevel(logging.WARNING)
    with dynamodb() as url:
        if url is None:
            print("no emulator of DynamoDB here: left out")
            return []
        return asyncio.run(_count(url, 90 if tiny else 100_000))


def _proxy() -> Any:
    from_tests("servers")  # puts the tests in reach
    name = "dynamodb_faults"
    path = Path(__file__).parents[1] / "tests" / "storage" / "dynamodb" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FaultyDynamoDb


async def _count(url: str, length: int) -> list[Target]:
    from agent_memory import DynamoDbChatStorage  # noqa: PLC0415  (an extra)

    async with _proxy()(url) as proxy:

        def make(create: bool) -> DynamoDbChatStorage:
            table = f"bench-{os.getpid()}"
            return DynamoDbChatStorage(table, endpoint_url=proxy.url, create_table=create)

        def target(name: str, limit: float) -> Target:
            counts: Counter[str] = Counter(proxy.counted())
            return at_most(f"DynamoDB, {name}", float(counts.total()), limit, "requests")

        async with make(create=True) as warm:
            await fill(warm, IDS, length)
            proxy.counted()
            await warm.fetch_chat(*IDS, max_history_size=20)
            newest = target(f"the newest 20 of {length:,}", 1)
            await warm.save_chat_message(*IDS, message(0))
            found = [newest, target("a warm writer's append", 1)]
            async with make(create=False) as cold:
                await cold.save_chat_message(*IDS, message(1))
                found.append(target("a cold writer's append", 2))
            await _views(warm, found, target, proxy)
        async with make(create=False) as cold, wrapped(cold) as storage:
            await storage.fetch_chat(*IDS)
            found.append(target("a restart: record, end and tail of one page", 3))
        return found


async def _views(warm: Any, found: list[Target], target: Any, proxy: Any) -> None:
    alone, checking = wrapped(warm, shared=False), wrapped(warm, shared=True)
    await alone.fetch_chat(*IDS)
    await checking.fetch_chat(*IDS)
    proxy.counted()
    await alone.fetch_chat(*IDS)
    found.append(target("an active fetch, shared=False", 0))
    await checking.fetch_chat(*IDS)
    found.append(target("an active fetch, shared", 1))
    await alone.aclose()
    await checking.aclose()
