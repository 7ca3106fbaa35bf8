"""Event loops that stop, end, or follow one another: nobody waits for one that does not run."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import weakref

import pytest

import matrix
from agent_memory import InMemoryChatStorage, SummarizingChatStorage
from agent_memory.testing import ScriptedSummarizer
from rig import IDS, Rig, dialogue, names, user, violations

pytestmark = pytest.mark.leaves_things  # loops that end in the middle of things

GENEROUS = 60  # seconds, for what takes milliseconds


class Stopped:
    """A loop that is stopped in the middle of things, and neither closed nor run again."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def run(self, work):
        return self.loop.run_until_complete(work)

    def close(self):
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run(asyncio.sleep(0))
        self.run(asyncio.sleep(0))
        self.loop.close()


@pytest.fixture
def stopped():
    stopped = Stopped()
    yield stopped
    stopped.close()


def elsewhere(work):
    """The result of some work in another loop, which must not hang."""
    return asyncio.run(asyncio.wait_for(work, GENEROUS))


async def reach(gate, work):
    task = asyncio.ensure_future(work)
    await gate.reached()
    return task


def left_flying(stopped, *, background=False, first=False):
    """A storage whose compaction was begun in a loop that has stopped since."""
    rig = Rig(summarizer_timeout=None, background=background)
    if first:
        stopped.run(rig.save(*dialogue(10)))
        stopped.run(reach(rig.summarizer.hold(), rig.view()))
        return rig
    stopped.run(rig.active(7))
    stopped.run(rig.talk(3))
    if background:
        stopped.run(landed(rig))
        gate = rig.summarizer.hold()
        stopped.run(rig.talk(7))
        stopped.run(gate.reached())
    else:
        stopped.run(reach(rig.summarizer.hold(), rig.talk(1)))
    return rig


async def landed(rig):
    await asyncio.gather(*(task.wait() for task in rig.storage._buffers.tasks))


HOW = [{}, {"background": True}, {"first": True}]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("call", ["fetch", "save", "compact_now", "explain", "close"])
def test_c73_nobody_waits_for_a_loop_that_was_stopped(stopped, how, call):
    """A compaction in flight counts as abandoned: each call from another loop answers."""
    rig = left_flying(stopped, **how)
    calls = {
        "fetch": rig.view,
        "save": lambda: rig.save(user("more", id="more")),
        "compact_now": lambda: rig.storage.compact_now(*IDS),
        "explain": lambda: rig.storage.explain(*IDS),
        "close": rig.storage.aclose,
    }
    elsewhere(calls[call]())
    if call != "close":
        view, raw = elsewhere(rig.view()), elsewhere(rig.raw())
        assert violations(view, raw) == []


def test_c73_what_comes_late_from_a_stopped_loop_is_dropped(stopped):
    """Another compaction took its place; the loop runs again, and changes nothing."""
    rig = Rig(summarizer_timeout=None)
    stopped.run(rig.active(7))
    stopped.run(rig.talk(3))
    gate = rig.summarizer.hold()
    task = stopped.run(reach(gate, rig.talk(1)))
    elsewhere(rig.talk(8))
    view = elsewhere(rig.view())
    assert names(view)[0] == "S"
    records = elsewhere(rig.storage.compaction_history(*IDS))
    gate.open()
    stopped.run(task)
    assert elsewhere(rig.view()) == view
    assert elsewhere(rig.storage.compaction_history(*IDS)) == records
    assert violations(view, elsewhere(rig.raw())) == []


def test_c73_a_first_read_in_a_stopped_loop_holds_up_no_other(stopped):
    """The read is begun again elsewhere; the old one's result is not installed late."""

    class Hanging(InMemoryChatStorage):
        hangs = False

        async def _read(self, key, **options):
            found = await super()._read(key, **options)
            if self.hangs:
                self.hangs = False
                waiting.set()
                await going_on.wait()
            return found

    waiting, going_on = asyncio.Event(), asyncio.Event()
    rig = Rig(Hanging())
    stopped.run(rig.save(*dialogue(10)))

    async def begin():
        fetching = asyncio.ensure_future(rig.view())
        await waiting.wait()
        return fetching

    rig.inner.hangs = True
    fetching = stopped.run(begin())
    elsewhere(rig.view())
    elsewhere(rig.talk(3))
    going_on.set()
    stopped.run(fetching)
    assert violations(elsewhere(rig.view()), elsewhere(rig.raw())) == []


def test_c73_a_loop_that_stops_while_others_wait_is_given_up():
    """A thread's loop is stopped under the first summary that a fetch of another loop awaits."""
    rig = Rig(summarizer_timeout=None)
    loop, began = asyncio.new_event_loop(), threading.Event()
    gate = rig.summarizer.hold()

    def work():
        async def fetch():
            await rig.save(*dialogue(10))
            fetching = asyncio.ensure_future(rig.view())
            await gate.reached()
            began.set()
            await fetching

        task = loop.create_task(fetch())
        loop.run_forever()
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(asyncio.sleep(0))
        for other in asyncio.all_tasks(loop):
            other.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(GENEROUS)

    async def wait():
        fetching = asyncio.ensure_future(rig.view())
        await asyncio.sleep(0)
        loop.call_soon_threadsafe(loop.stop)
        return await fetching

    view = elsewhere(wait())
    thread.join(GENEROUS)
    assert violations(view, elsewhere(rig.raw())) == []


# ------------------------------------------------------------------------- C113


class NoRecords(InMemoryChatStorage):
    def summaries(self):
        return None


class Failing:
    """Raises a new error each time: one that is kept keeps the frames of its loop."""

    def __init__(self):
        self.calls = []

    async def __call__(self, _history, _keep_last):
        self.calls.append(1)
        raise ConnectionError("the model is down")


KINDS = {
    "failing": (InMemoryChatStorage, Failing),
    "no records": (NoRecords, ScriptedSummarizer),
    "working": (InMemoryChatStorage, ScriptedSummarizer),
}


def count(kind, options, run):
    store, make = KINDS[kind]
    rig = Rig(store(), summarizer=make(), on_event=None, **options)
    loops = run(rig)
    return len(rig.calls), rig, loops


def one_loop(rig):
    async def all_of_it():
        for number in range(50):
            await rig.save(*dialogue(1, start=number + 1))
            await rig.view()
        await rig.storage.aclose()

    asyncio.run(all_of_it())


def fifty_loops(rig):
    loops = []

    async def once(number):
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await rig.save(*dialogue(1, start=number + 1))
        await rig.view()
        for _ in range(5):
            await asyncio.sleep(0)  # enough for what is behind to begin, not for it to end

    for number in range(50):
        asyncio.run(once(number))
    return loops


HOW = [{}, {"background": True}, {"shared": True}]


@pytest.mark.parametrize(
    ("kind", "options"),
    matrix.params(
        list(itertools.product(sorted(KINDS), HOW)),
        always=list(zip(sorted(KINDS), HOW, strict=True)),
    ),
)
def test_c113_fifty_loops_ask_the_model_as_often_as_one(kind, options):
    """And nothing of a closed loop stays alive."""
    expected, _, _ = count(kind, options, one_loop)
    calls, rig, loops = count(kind, options, fifty_loops)
    assert calls <= max(expected, 50 // 4 + 1)  # in the background one loop skips some
    view = elsewhere(rig.view())
    assert violations(view, elsewhere(rig.raw())) == []
    gc.collect()
    assert [loop for loop in loops if loop() is not None] == []


def test_c113_a_model_that_never_answers_in_time_is_not_asked_by_every_loop():
    """In the background each loop ends before its summary does: the wait doubles."""

    async def slow(_history, _keep_last):
        asked.append(1)
        await asyncio.Event().wait()

    asked = []
    rig = Rig(summarizer=slow, background=True, hard_limit=1_000)
    fifty_loops(rig)
    assert 2 <= len(asked) <= 10


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.matrix)])
def test_c113_a_thousand_chats_contend_for_slots_in_loops_that_end(count):
    """Whoever waits in a loop that was closed is given none, and keeps none."""
    storage = SummarizingChatStorage(
        InMemoryChatStorage(), ScriptedSummarizer(), 2, 1, max_concurrent_summaries=2
    )
    chats = [("user", "session", f"agent {number}") for number in range(count)]

    async def save():
        for ids in chats:
            await storage.save_chat_messages(*ids, dialogue(6))

    async def abandon():
        tasks = [asyncio.ensure_future(storage.fetch_chat(*ids)) for ids in chats]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def fetch():
        return await asyncio.gather(*(storage.fetch_chat(*ids) for ids in chats))

    asyncio.run(save())
    asyncio.run(abandon())
    assert all(len(view) < 6 for view in asyncio.run(fetch()))
