"""Group commit: order, bounds, and that whoever waits is answered, whatever happens."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory.errors import StorageClosedError, StorageUnavailableError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import LogSlice
from agent_memory.storage._engine.append_plan import PendingSave
from agent_memory.storage._engine.background_loop import BackgroundLoop
from agent_memory.storage._engine.commit_queue import Bounds, FutureHandoff
from agent_memory.storage._engine.group_commit import LoopGroupCommit, ThreadGroupCommit
from agent_memory.storage._engine.handoff import result_of


def key(number):
    return ChatKey("u", "s", f"a{number}")


def message(number):
    return ConversationMessage("user", "text", id=f"m{number}")


class Backend:
    """Commits groups, one after another or by chat; a commit can be held, and can fail.

    `held` is an event that commits wait for, so that what is saved meanwhile gathers.
    """

    def __init__(self):
        self.groups, self.errors, self.calls = [], {}, []
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()
        self.now, self.most = 0, 0
        self.lock = threading.Lock()

    def hold(self):
        self.has_begun.clear()
        self.may_go_on.clear()

    def release(self):
        self.may_go_on.set()

    def commit(self, saves):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            group = [(save.key, [entry.id for entry in save.entries]) for save in saves]
            self.groups.append(group)
        self.has_begun.set()
        assert self.may_go_on.wait(20)
        with self.lock:
            self.now -= 1
        for save in saves:
            if error := self.errors.pop(save.entries[0].id, None):
                raise error
        return [LogSlice(list(save.entries)) for save in saves]

    async def commit_in_loop(self, saves):
        # A real await, so that other groups may begin meanwhile.
        return await asyncio.to_thread(self.commit, saves)


class Threads:
    """A store's group commit in threads."""

    def __init__(self, backend, **options):
        self.group = ThreadGroupCommit(backend.commit, name="test-commit", **options)

    async def call(self, function, where=None):
        return await self.group.call(function, where)

    async def aclose(self):
        await asyncio.wait_for(result_of(self.group.close()), 20)
        # What killed a thread is reported as it ends: by then no other test may have begun.
        for thread in threading.enumerate():
            if thread.name == "test-commit":
                await asyncio.to_thread(thread.join, 20)


class Loop:
    """The same in a loop of its own."""

    def __init__(self, backend, threads=1, **options):
        self.loop = BackgroundLoop("test-loop")
        self.group = LoopGroupCommit(
            backend.commit_in_loop, self.loop.loop, max_in_flight=threads, **options
        )

    async def call(self, function, where=None):
        async def called():
            return await asyncio.to_thread(function)

        return await self.group.call(called, where)

    async def aclose(self):
        await asyncio.wait_for(result_of(self.group.close()), 20)
        self.loop.stop()


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture(params=[Threads, Loop])
async def make(request, backend):
    made = []

    def make(**options):
        made.append(request.param(backend, **{"by": "store", **options}))
        return made[-1]

    yield make
    backend.release()
    for one in made:
        await one.aclose()


def saving(store, chat, *numbers, size=1):
    messages = [message(number) for number in numbers]
    encoded = [entry.id for entry in messages]
    return asyncio.ensure_future(store.group.save(key(chat), messages, encoded, size))


async def begun(backend):
    assert await asyncio.to_thread(backend.has_begun.wait, 20)


async def until(condition):
    while not condition():  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0)


async def turns():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_waits_together_is_committed_together(make, backend):
    """The first starts at once; what comes meanwhile shares the next group, in order."""
    store = make()
    backend.hold()
    first = saving(store, 0, 0)
    await begun(backend)
    others = [saving(store, number % 3, number) for number in range(1, 7)]
    await turns()
    backend.release()
    assert (await first).entries[0].id == "m0"
    assert [(await other).entries[0].id for other in others] == [f"m{n}" for n in range(1, 7)]
    assert backend.groups[0] == [(key(0), ["m0"])]
    assert backend.groups[1] == [(key(n % 3), [f"m{n}"]) for n in range(1, 7)]


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [
        (Bounds(saves=2), [2, 2, 1]),
        (Bounds(entries=4), [2, 2, 1]),
        (Bounds(characters=30), [3, 2]),
    ],
)
async def test_a_group_has_bounds(make, backend, bounds, sizes):
    """Nobody waits for a group without end."""
    store = make(bounds=bounds)
    backend.hold()
    first = saving(store, 0, 0, 100)
    await begun(backend)
    others = [saving(store, 0, n, 100 + n, size=10) for n in range(1, 6)]
    await turns()
    backend.release()
    await asyncio.gather(first, *others)
    assert [len(group) for group in backend.groups[1:]] == sizes


async def test_a_save_above_the_bounds_is_committed_alone(make, backend):
    """It is not refused, and takes nobody with it."""
    store = make(bounds=Bounds(characters=10))
    backend.hold()
    tasks = [saving(store, 0, 0)]
    await begun(backend)
    tasks += [saving(store, 0, 1), saving(store, 0, 2, size=99), saving(store, 0, 3)]
    await turns()
    backend.release()
    await asyncio.gather(*tasks)
    assert [[ids for _, ids in group] for group in backend.groups[1:]] == [
        [["m1"]],
        [["m2"]],
        [["m3"]],
    ]


async def test_calls_keep_their_place_among_the_saves(make, backend):
    """A trim sees what was saved before it, and nothing of what came after."""
    store = make()
    backend.hold()
    tasks = [saving(store, 0, 0)]
    await begun(backend)
    tasks += [saving(store, 0, 1), saving(store, 0, 2)]
    await turns()
    seen = asyncio.ensure_future(store.call(lambda: len(backend.groups), key(0)))
    await turns()
    tasks += [saving(store, 0, 3)]
    await turns()
    backend.release()
    assert await seen == 2
    await asyncio.gather(*tasks)
    assert [[ids for _, ids in group] for group in backend.groups] == [
        [["m0"]],
        [["m1"], ["m2"]],
        [["m3"]],
    ]


@pytest.mark.parametrize("by", ["chat", "store"])
async def test_only_one_group_of_a_chat_is_in_flight(make, backend, by):
    """By chat, other chats go on meanwhile; by store, one group at a time."""
    store = make(by=by, threads=4 if by == "chat" else 1)
    backend.hold()
    tasks = [saving(store, chat, 10 * chat + n) for n in range(3) for chat in range(3)]
    await until(lambda: len(backend.groups) == (3 if by == "chat" else 1))
    backend.release()
    await asyncio.gather(*tasks)
    assert backend.most == (3 if by == "chat" else 1)
    if by == "chat":
        assert all(len({chat for chat, _ in group}) == 1 for group in backend.groups)
    for chat in range(3):
        ids = [id_ for group in backend.groups for where, (id_,) in group if where == key(chat)]
        assert ids == [f"m{10 * chat + n}" for n in range(3)]


async def test_an_error_reaches_each_waiter_once(make, backend):
    """Each raises a copy of its own; the next group is not concerned."""
    store = make()
    backend.hold()
    first = saving(store, 0, 0)
    await begun(backend)
    failing = [saving(store, 0, number) for number in (1, 2, 3)]
    await turns()
    backend.errors["m2"] = StorageUnavailableError("disk full")
    backend.release()
    await first
    errors = await asyncio.gather(*failing, return_exceptions=True)
    assert [str(error) for error in errors] == ["disk full"] * 3
    assert {error.key for error in errors} == {key(0)}
    assert len(set(map(id, errors))) == 3
    assert (await saving(store, 0, 4)).entries[0].id == "m4"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("interrupt", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_whatever_ends_the_work_everybody_is_told(make, backend, interrupt):
    """Those of the group, and those behind them; later saves are stored."""
    store = make(by="chat")
    backend.hold()
    first = saving(store, 0, 0)
    await begun(backend)
    second, behind = saving(store, 0, 1), saving(store, 1, 2)
    await turns()
    backend.errors["m0"] = interrupt("ended")
    backend.release()
    with pytest.raises(StorageUnavailableError) as caught:
        await asyncio.wait_for(first, 20)
    assert caught.value.stored is None
    assert caught.value.key == key(0)
    done = await asyncio.wait_for(asyncio.gather(second, behind), 20)
    assert [slice_.entries[0].id for slice_ in done] == ["m1", "m2"]
    assert (await asyncio.wait_for(saving(store, 0, 3), 20)).entries[0].id == "m3"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_interrupted_call_is_told_too(make):
    """A worker that a call ended is replaced."""
    store = make()

    def exits():
        raise SystemExit

    with pytest.raises(StorageUnavailableError):
        await asyncio.wait_for(store.call(exits), 20)
    assert await asyncio.wait_for(store.call(lambda: 7), 20) == 7


async def test_a_wrong_number_of_outcomes_leaves_nobody_waiting(make, backend):
    """A backend's own mistake is told, not waited for."""
    store = make()
    backend.commit = lambda saves: []
    store.group._commit = backend.commit if isinstance(store, Threads) else backend.commit_in_loop
    with pytest.raises(AssertionError, match="0 outcomes for 1"):
        await asyncio.wait_for(saving(store, 0, 0), 20)


async def test_outcomes_are_each_saves_own(make, backend):
    """One save in conflict fails alone."""
    store = make()
    answers = [LogSlice([]), LookupError("mine"), LogSlice([])]
    backend.hold()
    commit = backend.commit
    backend.commit = lambda saves: answers[: len(commit(saves))]
    store.group._commit = backend.commit if isinstance(store, Threads) else backend.commit_in_loop
    first = saving(store, 0, 0)
    await begun(backend)
    others = [saving(store, 0, number) for number in (1, 2, 3)]
    await turns()
    backend.release()
    await first
    outcomes = await asyncio.gather(*others, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LogSlice, LookupError, LogSlice]


async def test_closing_answers_all_that_is_owed_and_takes_nothing_more(make, backend):
    """What waits is committed first."""
    store = make()
    backend.hold()
    tasks = [saving(store, 0, 0)]
    await begun(backend)
    tasks += [saving(store, 0, number) for number in (1, 2)]
    await turns()
    closed = store.group.close()
    assert store.group.close() is closed
    with pytest.raises(StorageClosedError):
        await saving(store, 0, 3)
    assert not closed.done()
    backend.release()
    await asyncio.wait_for(result_of(closed), 20)
    assert [(await task).entries[0].id for task in tasks] == ["m0", "m1", "m2"]


async def test_an_unused_queue_closes_at_once(make):
    """No thread is needed for it."""
    assert await asyncio.wait_for(result_of(make().group.close()), 20) is None


async def test_c22_a_cancelled_save_waits_for_its_commit(make, backend):
    """Whoever is told of the cancellation knows that nothing is in flight."""
    store = make()
    backend.hold()
    task = saving(store, 0, 0)
    await begun(backend)
    for _ in range(3):
        task.cancel()
        await turns()
    assert not task.done()
    backend.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.now == 0


async def test_idleness(make, backend):
    """It is idle before the first save, and as soon as one has been answered."""
    store = make()
    assert store.group.is_idle
    backend.hold()
    task = saving(store, 0, 0)
    await begun(backend)
    assert not store.group.is_idle
    backend.release()
    await task
    assert store.group.is_idle


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 40), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    by=st.sampled_from(["chat", "store"]),
    threads=st.integers(1, 3),
    kind=st.sampled_from([Threads, Loop]),
)
def test_any_saves_and_calls_are_done_in_order_and_within_bounds(steps, by, threads, kind):
    """Whatever comes: each once, a chat's in its order, no group above the bounds."""
    bounds = Bounds(saves=4, entries=9, characters=60)
    backend, done = Backend(), []

    async def run():
        store = kind(backend, by=by, bounds=bounds, threads=threads if by == "chat" else 1)
        plain = backend.commit

        def commit(saves):
            assert len(saves) <= bounds.saves
            if len(saves) > 1:
                assert sum(len(save.entries) for save in saves) <= bounds.entries
                assert sum(save.size for save in saves) <= bounds.characters
            done.extend((save.key, save.entries[0].id) for save in saves)
            return plain(saves)

        backend.commit = commit
        if kind is Threads:
            store.group._commit = commit
        tasks = []
        for number, (chat, entries, size, is_call) in enumerate(steps):
            if is_call:
                note = key(chat), f"c{number}"
                call = store.call(lambda note=note: done.append(note), note[0])
                tasks.append(asyncio.ensure_future(call))
            else:
                ids = [100 * number + i for i in range(entries)]
                tasks.append(saving(store, chat, *ids, size=size))
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        await store.aclose()

    asyncio.run(run())
    expected = [
        (key(chat), f"c{number}" if is_call else f"m{100 * number}")
        for number, (chat, _, _, is_call) in enumerate(steps)
    ]
    if by == "store":
        assert done == expected
    for chat in range(4):
        assert [w for w in done if w[0] == key(chat)] == [w for w in expected if w[0] == key(chat)]


# ------------------------------------------------------------------------------ threads alone


async def test_a_chat_that_waits_outside_keeps_no_other_waiting(backend):
    """While a thread waits for another process's lock, another one stands in."""
    may_go_on = threading.Event()
    group = None

    def commit(saves):
        if saves[0].key == key(0):
            with group.blocking():
                assert may_go_on.wait(20)
        return [LogSlice(list(save.entries)) for save in saves]

    group = ThreadGroupCommit(commit, name="test-commit", by="chat", threads=1)
    store = Threads.__new__(Threads)
    store.group = group
    locked = saving(store, 0, 0)
    for chat in range(1, 5):
        await asyncio.wait_for(saving(store, chat, chat), 20)
    assert not locked.done()
    may_go_on.set()
    await asyncio.wait_for(locked, 20)
    await store.aclose()
    assert not [thread for thread in threading.enumerate() if thread.name == "test-commit"]


async def test_no_more_threads_than_asked_for(backend):
    """However many chats wait."""
    store = Threads(backend, by="chat", threads=3)
    backend.hold()
    tasks = [saving(store, chat, chat) for chat in range(20)]
    await begun(backend)
    await turns()
    backend.release()
    await asyncio.gather(*tasks)
    assert backend.most <= 3
    await store.aclose()


async def test_a_save_that_arrives_while_its_worker_falls_asleep_is_picked_up(backend):
    """Thousands of times in a row; one that is missed would wait for ever."""
    store = Threads(backend, by="chat", threads=2)
    for number in range(2_000):
        await asyncio.wait_for(saving(store, number % 2, number), 20)
    await store.aclose()


async def test_without_a_thread_a_save_fails_at_once(backend, monkeypatch):
    """It must not wait for one that will never be; when one can be had again, it works."""
    store = Threads(backend, by="store")

    def cannot(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        with pytest.raises(StorageUnavailableError, match="no thread") as caught:
            await saving(store, 0, 0)
    assert caught.value.stored is False
    assert (await saving(store, 0, 1)).entries[0].id == "m1"
    await store.aclose()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_without_another_thread_those_behind_an_ended_one_fail_at_once(backend, monkeypatch):
    """The worker is gone and none can be started: nobody is left waiting."""
    store = Threads(backend, by="store")
    backend.hold()
    first = saving(store, 0, 0)
    await begun(backend)
    behind = saving(store, 0, 1)
    await turns()

    def cannot(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", cannot)
    backend.errors["m0"] = SystemExit()
    backend.release()
    for task in (first, behind):
        with pytest.raises(StorageUnavailableError):
            await asyncio.wait_for(task, 20)
    monkeypatch.undo()
    assert (await saving(store, 0, 2)).entries[0].id == "m2"
    await store.aclose()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_what_a_thread_keeps_is_closed_at_its_end(backend):
    """When the queue is closed, and when something killed the thread."""
    names = []

    def finish():
        names.append(threading.current_thread().name)

    store = Threads(backend, by="store", finish=finish)
    await saving(store, 0, 0)
    backend.errors["m1"] = SystemExit()
    with pytest.raises(StorageUnavailableError):
        await saving(store, 0, 1)
    await saving(store, 0, 2)
    await store.aclose()
    assert names == ["test-commit", "test-commit"]


class AnsweredError(Exception):
    """Is made from a server's answer, and cannot be copied."""

    def __init__(self, answer):
        super().__init__(f"status {answer.status}")


def test_an_error_that_cannot_be_copied_reaches_its_waiter(backend):
    """As it is."""
    group = ThreadGroupCommit(backend.commit, name="test-commit", by="store")
    error = AnsweredError(SimpleNamespace(status=418))

    def fails():
        raise error

    with pytest.raises(AnsweredError, match="status 418"):
        group.post(fails).result(20)
    assert group.post(lambda: 7).result(20) == 7
    end(group)


def interrupted_with_one_behind(group):
    """Post a call that ends its thread, and one behind it; return their futures.

    Futures, because a save that is never answered cannot be given up by its test either.
    """
    may_end = threading.Event()

    def ends():
        assert may_end.wait(20)
        raise SystemExit

    futures = group.post(ends), group.post(lambda: 7)
    may_end.set()
    return futures


def end(group):
    """Close a queue, and wait for its threads: what killed one is reported when it ends."""
    group.close().result(20)
    for thread in threading.enumerate():
        if thread.name == "test-commit":
            thread.join(20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_killed_thread_is_replaced(backend):
    """What waits behind it is done by another one."""
    group = ThreadGroupCommit(backend.commit, name="test-commit", by="store")
    ended, behind = interrupted_with_one_behind(group)
    with pytest.raises(StorageUnavailableError):
        ended.result(20)
    assert behind.result(20) == 7
    end(group)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_thread_was_woken_for_is_done_when_it_was_killed_before_it_took_it(
    backend, monkeypatch
):
    """The one that takes its place is woken for it too."""
    group = ThreadGroupCommit(backend.commit, name="test-commit", by="store")
    real, killed = group._take, []

    def killed_once():
        if not killed:
            killed.append(threading.current_thread())
            raise SystemExit
        return real()

    monkeypatch.setattr(group, "_take", killed_once)
    assert group.post(lambda: 7).result(20) == 7
    assert killed
    end(group)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_killed_thread_that_cannot_be_replaced_leaves_nobody_waiting(backend, monkeypatch):
    """They are told that nothing was done."""
    group = ThreadGroupCommit(backend.commit, name="test-commit", by="store")
    real = threading.Thread.start
    started = []

    def only_once(self):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(self)
        real(self)

    monkeypatch.setattr(threading.Thread, "start", only_once)
    ended, behind = interrupted_with_one_behind(group)
    for future in (ended, behind):
        with pytest.raises(StorageUnavailableError):
            future.result(20)
    end(group)


@pytest.mark.parametrize("by", ["chat", "store"])
def test_what_waits_behind_a_call_needs_no_further_save(backend, by):
    """The end of one batch of a lane makes its next one ready."""
    group = ThreadGroupCommit(backend.commit, name="test-commit", by=by, threads=1)
    may_end = threading.Event()
    first = group.post(lambda: may_end.wait(20), key(0))
    behind = [group.post(lambda number=number: number, key(0)) for number in range(3)]
    may_end.set()
    assert first.result(20)
    assert [future.result(20) for future in behind] == [0, 1, 2]
    end(group)


def test_a_thread_that_stood_in_for_another_ends(backend):
    """When that one no longer waits outside the process, one thread is left."""
    group = ThreadGroupCommit(backend.commit, name="test-commit", by="chat", threads=1)
    may_end, pause = threading.Event(), threading.Event()

    def waits_outside():
        with group.blocking():
            assert may_end.wait(20)

    blocked = group.post(waits_outside, key(0))
    assert [group.post(lambda: 7, key(number)).result(20) for number in (1, 2)] == [7, 7]
    may_end.set()
    assert blocked.result(20) is None
    for _ in range(2_000):
        alive = [one for one in threading.enumerate() if one.name == "test-commit"]
        if len(alive) == 1:
            break
        pause.wait(0.005)
    assert len(alive) == 1
    end(group)


async def test_idle_work_is_done_while_nothing_waits(backend):
    """And again after the time that it asks for."""
    done = [Future() for _ in range(3)]
    left = list(done)

    def idle():
        if left:
            left.pop(0).set_result(threading.current_thread().name)
        return 0.001 if left else None

    store = Threads(backend, by="store", idle=idle)
    await saving(store, 0, 0)
    assert await asyncio.wait_for(result_of(done[2]), 20) == "test-commit"
    await saving(store, 0, 1)
    await store.aclose()


async def test_threads_do_not_keep_a_store_alive():
    """They know the queue; a forgotten store is collected and closes it."""

    class Store:
        def __init__(self):
            self.group = ThreadGroupCommit(_commit, name="test-commit", by="store")
            weakref.finalize(self, self.group.close)

    store = Store()
    await saving(store, 0, 0)
    (thread,) = [one for one in threading.enumerate() if one.name == "test-commit"]
    seen = weakref.ref(store)
    del store
    gc.collect()
    assert seen() is None
    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()


def _commit(saves):
    return [LogSlice(list(save.entries)) for save in saves]


# --------------------------------------------------------------------------------- loops alone


def test_a_loop_that_ends_tells_whose_work_it_cut_short():
    """`asyncio.run` cancels all tasks at its end: begun is unknown, not begun is not stored."""
    outcomes = []

    async def commit(saves):
        for save in saves:
            if save.key == key(0):
                await asyncio.Event().wait()
        return [LogSlice(list(save.entries)) for save in saves]

    class Store:
        def __init__(self):
            self.group = LoopGroupCommit(
                commit, asyncio.get_running_loop(), by="chat", max_in_flight=None
            )

    async def main():
        store = Store()

        async def save(chat):
            try:
                await saving(store, chat, chat)
            except BaseException as error:
                outcomes.append((chat, type(error), getattr(error, "stored", "")))
                raise

        tasks = [asyncio.ensure_future(save(0))]
        for _ in range(10):
            await asyncio.sleep(0)
        return tasks

    def run():
        asyncio.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    # The caller was cancelled too; what matters is that its wait ended, and the loop with it.
    assert outcomes == [(0, asyncio.CancelledError, "")]


async def test_a_cancelled_group_is_told_whether_it_had_begun():
    """A task that never ran has stored nothing."""
    may_end = asyncio.Event()

    async def commit(saves):
        await may_end.wait()
        return [LogSlice(list(save.entries)) for save in saves]

    class Store:
        group = LoopGroupCommit(commit, asyncio.get_running_loop(), by="chat", max_in_flight=None)

    def put(chat, number):
        # No save of a task: one that is never answered would outlast the test.
        handoff = FutureHandoff()
        Store.group._put(handoff, PendingSave(key(chat), [message(number)], [f"m{number}"]))
        return handoff

    begun_save = put(0, 0)
    await turns()
    (begun_task,) = Store.group._tasks
    unbegun = put(1, 1)
    await until(lambda: len(Store.group._tasks) == 2)
    for task in Store.group._tasks:
        task.cancel()
    await turns()
    assert begun_task.cancelled()
    assert begun_save.done()
    assert unbegun.done()
    errors = begun_save.exception(), unbegun.exception()
    assert [type(error) for error in errors] == [StorageUnavailableError] * 2
    assert [error.stored for error in errors] == [None, False]
    may_end.set()
    assert (await saving(Store, 0, 2)).entries[0].id == "m2"
