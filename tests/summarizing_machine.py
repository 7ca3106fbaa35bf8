"""A world of workers, stores that fail and summarizers that misbehave, driven step by step.

Everything runs in one event loop whose clock only moves when it is told to, so that equal steps
give equal worlds. Work that waits (at a gate of the store, for a summarizer) stays under way
from step to step. What is found wrong is gathered in `World.wrong`: raised where it happens, it
might be swallowed by the very code under test.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

import attrs

from agent_memory import (
    ChatKey,
    InMemoryChatStorage,
    StorageUnavailableError,
    SummarizerError,
    SummarizingChatStorage,
    WrapperChatStorage,
)
from agent_memory.storage.summary_store import SummaryStore
from agent_memory.testing import witness_summary, witnessed
from rig import blind, disorder, keep_from_the_middle, keep_none, rebuild_kept, torn, violations


class StillClock(asyncio.SelectorEventLoop):
    """An event loop whose time stands still between steps."""

    now = 0.0

    def time(self):
        return self.now

    def settle(self):
        """Run until everything waits for something."""
        while self._ready or (self._scheduled and self._scheduled[0]._when <= self.now):
            self.call_soon(self.stop)
            self.run_forever()


def at_once(work):
    """The result of a coroutine that never waits, without a loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Faults:
    """What the next calls of a store do: fail or wait, before or after the work."""

    def __init__(self):
        self.planned = {}
        self.held = []

    def plan(self, hook, fault):
        self.planned.setdefault(hook, deque()).append(fault)

    async def around(self, hook, work):
        planned = self.planned.get(hook)
        fault = planned.popleft() if planned else ""
        if "before" in fault:
            await self._strike(fault, stored=False)
        done = await work()
        if "after" in fault:
            await self._strike(fault, stored=None)
        return done

    async def _strike(self, fault, *, stored):
        if "fail" in fault:
            raise StorageUnavailableError("as planned", stored=stored)
        gate = asyncio.get_running_loop().create_future()
        self.held.append(gate)
        await gate

    def release(self, error=None):
        """Let what waits go on, or have it fail."""
        held, self.held = self.held, []
        for gate in held:
            if not gate.done():
                gate.set_result(None) if error is None else gate.set_exception(error)


class FaultyStorage(WrapperChatStorage):
    """One worker's way to the store that all share."""

    def __init__(self, inner, scope):
        super().__init__(inner, close_inner=False)
        self.faults = Faults()
        self._told_scope = scope

    @property
    def scope(self):
        return self._told_scope

    async def _append(self, key, entries):
        parent = super()
        return await self.faults.around("append", lambda: parent._append(key, entries))

    async def _read(self, key, **options):
        parent = super()
        return await self.faults.around("read", lambda: parent._read(key, **options))

    async def _forget(self, key, keep):
        parent = super()
        return await self.faults.around("forget", lambda: parent._forget(key, keep))

    def summaries(self):
        return FaultySummaries(super().summaries(), self.faults)


@attrs.frozen
class FaultySummaries(SummaryStore):
    inner: SummaryStore
    faults: Faults

    async def save_summary(self, key, record, *, replaces):
        return await self.faults.around(
            "save_summary", lambda: self.inner.save_summary(key, record, replaces=replaces)
        )

    async def load_summary(self, key):
        return await self.faults.around("load_summary", lambda: self.inner.load_summary(key))

    async def list_summaries(self, key):
        return await self.inner.list_summaries(key)

    async def forget_summaries(self, key):
        return await self.inner.forget_summaries(key)


def _twice(history, _keep_last):
    return [witness_summary(history), history[-1], *history[-2:]]


def _raising(error):
    def behave(_history, _keep_last):
        raise error

    return behave


GOOD = {
    "blind": blind,
    "none kept": keep_none,
    "middle": keep_from_the_middle,
    "rebuilt": rebuild_kept,
    "one kept": lambda history, _keep: [witness_summary(history[:-1]), history[-1]],
}
BAD = {
    "raises": _raising(RuntimeError("down")),
    "cancelled": _raising(asyncio.CancelledError()),
    "empty": lambda _history, _keep: [],
    "text": lambda _history, _keep: "a summary",
    "none": lambda _history, _keep: None,
    "same": lambda history, _keep: history,
    "more": lambda history, _keep: [witness_summary(history), *history],
    "twice": _twice,
    "turned round": lambda history, _keep: [witness_summary(history), *reversed(history)],
    "edits": lambda history, _keep: history.clear() or [],
}
WAITS = ("waits", "ignores cancellation")


class WitnessSummarizer:
    """Behaves as planned, and sees to it that no two of its calls run for one chat."""

    def __init__(self, usual, wrong):
        self.usual = usual
        self.planned = deque()
        self.held = []
        self._running = Counter()
        self._wrong = wrong

    async def __call__(self, history, keep_last):
        plan = self.planned.popleft() if self.planned else self.usual
        chat = witnessed(history[0])[0].partition(" ")[0]
        self._running[chat] += 1
        if self._running[chat] > 1:
            self._wrong.append(f"two summarizer calls at once for {chat}")
        try:
            if plan in WAITS:
                await self._wait(stubborn=plan != "waits")
                plan = self.usual
            return {**GOOD, **BAD}[plan](history, keep_last)
        finally:
            self._running[chat] -= 1

    async def _wait(self, *, stubborn):
        gate = asyncio.get_running_loop().create_future()
        self.held.append(gate)
        while not gate.done():
            try:
                await asyncio.shield(gate)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    def release(self):
        held, self.held = self.held, []
        for gate in held:
            if not gate.done():
                gate.set_result(None)


@attrs.frozen
class Setting:
    """How a world is made up.

    Args:
        workers: how many storages share the store; several always look for other writers.
        options: of `SummarizingChatStorage`.
        fallback: whether there is one.
        usual: what the summarizers do unless something is planned.
    """

    workers: int
    options: dict
    fallback: bool
    usual: str


@attrs.define(eq=False)
class Worker:
    setting: Setting
    store: FaultyStorage
    summarizer: WitnessSummarizer
    fallback: WitnessSummarizer
    storage: SummarizingChatStorage

    @classmethod
    def over(cls, inner, setting, wrong):
        store = FaultyStorage(inner, "network" if setting.workers > 1 else "process")
        summarizer = WitnessSummarizer(setting.usual, wrong)
        fallback = WitnessSummarizer("blind", wrong)
        storage = SummarizingChatStorage(
            store,
            summarizer,
            fallback=fallback if setting.fallback else None,
            summarizer_timeout=60,
            close_inner=False,
            **setting.options,
        )
        return cls(setting, store, summarizer, fallback, storage)

    def release(self, error=None):
        self.store.faults.release(error)
        self.summarizer.release()

    def forget_plans(self):
        self.store.faults.planned.clear()
        self.summarizer.planned.clear()

    @property
    def buffers(self):
        return list(self.storage._views._buffers._by_key.values())


class World:
    """The workers, the store they share, and what is under way."""

    def __init__(self, setting):
        self.wrong = []
        self.setting = setting
        self.loop = StillClock()
        self.inner = InMemoryChatStorage()
        self.workers = [self.new_worker() for _ in range(setting.workers)]
        self.under_way = {}
        self._shown = {}

    def new_worker(self):
        return Worker.over(self.inner, self.setting, self.wrong)

    def log(self, key):
        return at_once(self.inner._read(key))

    # ------------------------------------------------------------------------- doing things

    def begin(self, work, check, *expected):
        """Start some work, and check its outcome once it is there."""
        task = self.loop.create_task(work)
        self.under_way[task] = (check, (*expected, StorageUnavailableError))
        self.go_on()

    def go_on(self):
        """Run until everything waits, and look at what has ended and what the views show."""
        self.loop.settle()
        for task in [task for task in self.under_way if task.done()]:
            check, expected = self.under_way.pop(task)
            if task.cancelled():
                continue
            error = task.exception()
            if error is None:
                check(task.result())
            elif not isinstance(error, expected):
                self.wrong.append(f"{error!r} left the storage")
        self._look_at_views()

    def cancel(self, index):
        tasks = list(self.under_way)
        if tasks:
            tasks[index % len(tasks)].cancel()
            self.go_on()

    def pass_time(self):
        """More than a summarizer may take."""
        self.loop.now += 61
        self.go_on()

    def save(self, worker, key, messages):
        expected = [SummarizerError] if "on_summarizer_error" in self.setting.options else []
        saving = worker.storage.save_chat_messages(*attrs.astuple(key), messages)
        self.begin(saving, lambda stored: self._check_saved(key, stored), *expected)

    def fetch(self, worker, key, limit=None):
        before = self.log(key)
        fetching = worker.storage.fetch_chat(*attrs.astuple(key), limit)
        self.begin(fetching, lambda view: self._check_fetched(key, before, view, limit))

    def do(self, work):
        """Start some work whose result does not matter."""
        self.begin(work, lambda _result: None, SummarizerError)

    def crash(self, index):
        """A worker's process ends, and another takes its place."""
        worker = self.workers[index]
        for buffer in worker.buffers:
            if buffer.flight is not None:
                buffer.flight.task.cancel()
        worker.forget_plans()
        worker.release(StorageUnavailableError("the process is gone"))
        self.loop.settle()
        self.workers[index] = self.new_worker()
        self.go_on()

    def end(self):
        """Let everything come to its end, and look at every chat with every worker."""
        for _ in range(4):
            for worker in self.workers:
                worker.forget_plans()
                worker.release()
            self.pass_time()
        for worker in self.workers:
            for key in KEYS:
                self.fetch(worker, key)
            self.do(worker.storage.aclose())
        if self.under_way:
            self.wrong.append(f"never ended: {list(self.under_way)}")
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.settle()
        self.loop.close()

    # ------------------------------------------------------------------------- looking at them

    def _check_saved(self, key, stored):
        log = self.log(key)
        by_position = {entry.position: entry for entry in log.entries}
        self.wrong += [
            f"{message.id} was saved and is not in the log"
            for message in stored
            if message.position > log.floor and by_position.get(message.position) != message
        ]

    def _check_fetched(self, key, before, view, limit):
        now = self.log(key)
        if now.floor != before.floor:
            return  # it was deleted meanwhile: both answers are right
        self.wrong += torn(view, now.messages)
        newest = max((message.position or 0 for message in view), default=0)
        if before.messages and before.messages[-1].position > newest:
            self.wrong.append(f"{before.messages[-1].id} is the newest and not shown")
        if limit is not None:
            self.wrong += disorder(view)
            return
        known = {m.id for m in before.messages}.union(*map(witnessed, view))
        self.wrong += violations(view, [m for m in now.messages if m.id in known])

    def _look_at_views(self):
        shown = {}
        for buffer in [buffer for worker in self.workers for buffer in worker.buffers]:
            view, log = buffer.view, self.log(buffer.key)
            if view is None or view.floor != log.floor:
                continue
            messages = view.newest(None)
            known = [m for m in log.messages if m.position <= view.last]
            self.wrong += violations(messages, known) + torn(messages, known)
            state = (view, view.block, view.head)
            shown[buffer] = (state, messages)
            earlier, grown_from = self._shown.get(buffer, (None, []))
            same = earlier is not None and all(a is b for a, b in zip(earlier, state, strict=True))
            if same and messages[: len(grown_from)] != grown_from:
                self.wrong.append("a view changed elsewhere than at its end")
        self._shown = shown


KEYS = [ChatKey("user", "session", "A"), ChatKey("user", "session", "B")]
