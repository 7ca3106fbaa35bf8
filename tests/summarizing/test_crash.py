"""Workers that save and summarize one chat, killed with SIGKILL at random moments."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from agent_memory.storage.urls import open_storage
from rig import violations
from storage.hard_use import CHAT, whole_batches
from storage.writer import Order, answers, start
from wrapped_stores import summarizing_often


@pytest.fixture(
    params=[
        "sqlite",
        "file",
        pytest.param("postgres", marks=pytest.mark.matrix),
        pytest.param("dynamodb", marks=pytest.mark.matrix),
    ]
)
def url(request, tmp_path):
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/chats.db"
        case "file":
            return f"file:{tmp_path}/chats"
        case "postgres":
            return request.getfixturevalue("postgres_url")
    endpoint = request.getfixturevalue("quick_dynamodb_endpoint")
    return (
        f"dynamodb://crash{tmp_path.name}?region=us-east-1&endpoint={endpoint}&create_table=true"
    )


def kill_both(orders, moments):
    """Start two workers, kill both after a random number of saves, return what each was told."""
    processes = [start(order) for order in orders]
    heard = [[] for _ in orders]
    for _ in range(moments.randrange(1, 12)):
        for process, told in zip(processes, heard, strict=True):
            told.append(tuple(map(int, process.stdout.readline().split())))
    for process in processes:
        process.kill()
    return [told + answers(process) for process, told in zip(processes, heard, strict=True)]


async def check_after(url, orders, acknowledged):
    """Raw is what was acknowledged, and at most one whole batch more; the view conserves it."""
    async with open_storage(url) as storage:
        raw = await storage.fetch_chat_since(*CHAT, 0)
    assert [message.position for message in raw] == [*range(1, len(raw) + 1)]
    batches = whole_batches(raw)
    for order, told in zip(orders, acknowledged, strict=True):
        mine = [(n, p) for name, n, p in batches if name == order.name]
        assert mine[: len(told)] == told
        assert len(mine) <= len(told) + 1
    async with summarizing_often(url) as storage:
        view = await storage.fetch_chat(*CHAT)
        assert violations(view, raw) == []
        assert await storage.fetch_chat_since(*CHAT, 0) == raw
        return len(view), await storage.compaction_history(*CHAT)


async def kill_often(url, kills):
    moments = random.Random(kills)
    for number in range(kills):
        orders = [
            Order(
                make_storage=partial(summarizing_often, url),
                name=f"{side}{number}",
                batches=100_000,
                size=3,
                chats=(CHAT,),
                fetching=True,
            )
            for side in ("a", "b")
        ]
        acknowledged = await asyncio.to_thread(kill_both, orders, moments)
        shown, records = await check_after(url, orders, acknowledged)
    assert records != []
    assert shown <= 7


@pytest.mark.parametrize("kills", [2, pytest.param(3, marks=pytest.mark.matrix)])
async def test_killed_workers_leave_raw_and_views_right(url, kills):
    """What was acknowledged is there, and every view stands for all of it."""
    await kill_often(url, kills)


@pytest.mark.soak
async def test_two_hundred_kills_leave_raw_and_views_right(url):
    """100 rounds of two killed processes."""
    await kill_often(url, 100)
