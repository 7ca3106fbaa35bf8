"""Several event loops, threads, and loops that end in the middle of things."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_memory import InMemoryChatStorage, SummarizingChatStorage
from agent_memory.summarizing.view import ChatView
from agent_memory.testing import ScriptedSummarizer
from rig import IDS, KEY, Rig, dialogue, names, summary, user, violations


class Loops:
    """Loops that a test opens by itself and closes under whatever still runs in them."""

    def __init__(self):
        self.opened = []

    def new(self):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # "destroyed but pending"
        self.opened.append(loop)
        return loop

    def abandon(self, loop):
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # that is what these tests are about
        loop.close()


@pytest.fixture
def loops():
    loops = Loops()
    yield loops
    for loop in loops.opened:
        loop.close()


async def until(gate, work):
    """Begin some work and come back when it has reached the gate."""
    task = asyncio.ensure_future(work)
    await gate.reached()
    return task


def stuck_rig(**options):
    """An active chat of ten messages whose next summary will hang."""
    rig = Rig(summarizer_timeout=None, **options)

    async def start():
        await rig.active(7)
        await rig.talk(3)

    asyncio.run(start())
    return rig


@pytest.mark.leaves_things
def test_a_loop_that_ends_during_a_summary_leaves_a_storage_that_works():
    """``asyncio.run`` cancels the summary; another loop goes on, and summarizes again."""
    rig = stuck_rig()

    async def leave():
        await until(rig.summarizer.hold(), rig.talk(1))

    asyncio.run(leave())
    assert rig.summarizer.running == 0

    async def go_on():
        await rig.talk(1)
        return await rig.view(), await rig.raw()

    view, raw = asyncio.run(go_on())
    assert violations(view, raw) == []
    assert names(view) == ["S", "m11", "m12"]


@pytest.mark.leaves_things
def test_a_summary_that_ended_with_its_loop_is_made_by_the_next_fetch():
    """It waits for it, as the first fetch of a chat does: nothing behind it would end."""
    rig = stuck_rig()

    async def leave():
        await until(rig.summarizer.hold(), rig.talk(1))

    asyncio.run(leave())
    view, raw = asyncio.run(rig.view()), asyncio.run(rig.raw())
    assert names(view) == ["S", "m10", "m11"]
    assert violations(view, raw) == []


def test_a_loop_closed_under_a_summary_leaves_a_storage_that_works(loops):
    """Without being cancelled, too: whoever comes next does not wait for it for ever."""
    rig = stuck_rig()
    loop = loops.new()
    loop.run_until_complete(until(rig.summarizer.hold(), rig.talk(1)))
    loops.abandon(loop)

    async def go_on():
        await rig.talk(1)
        view, raw = await rig.view(), await rig.raw()
        await rig.storage.aclose()
        return view, raw

    view, raw = asyncio.run(go_on())
    assert violations(view, raw) == []
    assert names(view) == ["S", "m11", "m12"]


def test_a_loop_closed_under_the_first_summary_does_not_block_fetches(loops):
    """The fetches of another loop make their own first attempt."""
    rig = Rig(summarizer_timeout=None)
    loop = loops.new()
    loop.run_until_complete(rig.save(*dialogue(9)))
    loop.run_until_complete(until(rig.summarizer.hold(), rig.view()))
    loops.abandon(loop)
    assert names(asyncio.run(rig.view())) == ["S", "m8", "m9"]


def test_a_storage_whose_loop_was_closed_under_a_summary_can_be_closed(loops):
    """There is nothing to wait for any more."""
    rig = stuck_rig(drain_timeout=None)
    loop = loops.new()
    loop.run_until_complete(until(rig.summarizer.hold(), rig.talk(1)))
    loops.abandon(loop)
    asyncio.run(rig.storage.aclose())


def test_a_loop_closed_under_a_first_load_does_not_block_fetches(loops):
    """The read that nobody finishes is begun anew."""

    class Hanging(InMemoryChatStorage):
        reads_left = -1

        async def _read(self, key, **options):
            self.reads_left -= 1
            if self.reads_left == 0:
                reached.set()
                await asyncio.get_running_loop().create_future()
            return await super()._read(key, **options)

    rig, reached = Rig(Hanging()), asyncio.Event()
    loop = loops.new()
    loop.run_until_complete(rig.save(*dialogue(9)))
    rig.inner.reads_left = 2

    async def abandon():
        fetching = asyncio.ensure_future(rig.view())
        await reached.wait()
        fetching._log_destroy_pending = False

    loop.run_until_complete(abandon())
    loops.abandon(loop)
    assert names(asyncio.run(rig.view())) == ["S", "m8", "m9"]


def test_c63_worker_threads_with_a_loop_each_share_one_storage():
    """As an orchestrator does that calls ``asyncio.run`` in a pool of threads."""
    rig = Rig(InMemoryChatStorage())

    def work(number):
        async def turn():
            await rig.save(user(f"{number}"), user(f"{number} again"))
            return await rig.view()

        return asyncio.run(turn())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(60)))
    asyncio.run(rig.save(user("the last")))  # what came during a summary is summarized now
    view, raw = asyncio.run(rig.view()), asyncio.run(rig.raw())
    assert len(raw) == 121
    assert violations(view, raw) == []
    assert len(view) <= 12
    assert rig.summarizer.most_running == 1


def test_c63_fetches_of_several_loops_wait_for_one_first_summary():
    """It is made in one of the loops; the others wait without blocking theirs."""
    release, calls = threading.Event(), []

    def plain(history, keep_last):
        calls.append(len(history))
        release.wait()
        return [summary(), *history[-2:]]

    storage = SummarizingChatStorage(InMemoryChatStorage(), plain, 3, 1)
    asyncio.run(storage.save_chat_messages(*IDS, dialogue(9)))

    async def fetch():
        fetching = asyncio.ensure_future(storage.fetch_chat(*IDS))
        await asyncio.sleep(0)
        ready.wait()
        release.set()
        return await fetching

    ready = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        views = [future.result() for future in [pool.submit(asyncio.run, fetch()) for _ in "1234"]]
    assert calls == [9]
    assert {tuple(names(view)) for view in views} == {("S", "m8", "m9")}


async def test_a_view_is_read_under_the_lock_that_guards_its_changes(monkeypatch):
    """A thread that reads it while another changes it would keep a window of a mixture."""
    rig = Rig()
    await rig.active(7)
    lock, owned = rig.storage._buffers.lock, []
    newest = ChatView.newest

    def spied(view, limit):
        owned.append(lock._is_owned())
        return newest(view, limit)

    monkeypatch.setattr(ChatView, "newest", spied)
    await rig.view(2)
    await rig.view()
    assert owned == [True, True]


async def test_what_watches_events_may_use_the_storage():
    """A handler that fetches the view of the chat it is told of gets it."""
    seen, views = [], []

    async def watch(event):
        seen.append(type(event).__name__)
        views.append(names(await rig.view()))

    rig = Rig(on_event=watch)
    await rig.active(7)
    assert seen == ["Activated", "Compacted"]
    assert views == [["S", "m6", "m7"]] * 2


def test_a_key_has_no_state_of_a_loop():
    """Nothing of a loop that is gone is needed to go on: run after run, one storage."""
    rig = Rig()
    for number in range(1, 30):
        asyncio.run(rig.save(*dialogue(1, start=number)))
        view = asyncio.run(rig.view())
        assert names(view)[-1] == f"m{number}"
    assert violations(view, asyncio.run(rig.raw())) == []
    records = asyncio.run(rig.inner.summaries().list_summaries(KEY))
    assert [record.replaces for record in records[1:]] == [record.id for record in records[:-1]]
    assert isinstance(rig.summarizer, ScriptedSummarizer)


async def test_a_compaction_that_is_cancelled_before_it_begins_holds_up_nobody():
    """As at a shutdown that cancels every task: the chat is fetched and summarized later."""
    rig = Rig()
    await rig.save(*dialogue(9))
    fetching = asyncio.ensure_future(rig.view())
    while not rig.storage._buffers.tasks:  # noqa: ASYNC110 - round by round
        await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    assert fetching.cancelled()
    assert rig.calls == []
    view = await asyncio.wait_for(rig.view(), 30)
    assert violations(view, await rig.raw()) == []
    await asyncio.wait_for(rig.talk(4), 30)
    assert len(rig.calls) == 1
    await rig.storage.aclose()
