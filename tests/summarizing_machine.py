"""A world of workers, stores that fail and summarizers that misbehave, driven step by step.

Everything runs in one event loop whose clock only moves when it is told to, so that equal steps
give equal worlds. Work that waits (at a gate of the store, for a summarizer) stays under way
from step to step. What is found wrong is gathered in `World.wrong`: raised where it happens, it
might be swallowed by the very code under test.
"""

from __future__ import annotations

import asyncio

import attrs

from agent_memory import (
    ChatKey,
    InMemoryChatStorage,
    LogSlice,
    StorageUnavailableError,
    SummarizerError,
    SummarizingChatStorage,
)
from agent_memory.log import visible
from agent_memory.testing import witnessed
from misbehaving import FaultyStorage, WitnessSummarizer
from rig import disorder, held_back, torn, violations


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
        return list(self.storage._buffers._by_key.values())


class World:
    """The workers, the store they share, and what is under way."""

    def __init__(self, setting):
        self.wrong = []
        self.setting = setting
        self.loop = self.new_loop()
        self.inner = InMemoryChatStorage()
        self.workers = [self.new_worker() for _ in range(setting.workers)]
        self.under_way = {}
        self.saving = {}  # the ids that saves under way bring
        self._shown = {}

    def covers(self, message):
        """The ids of the messages that went into a summary; of any other message its own."""
        return witnessed(message)

    def new_loop(self):
        return StillClock()

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
        return task

    def settle(self):
        """Run until everything waits for something."""
        self.loop.settle()

    def go_on(self):
        """Run until everything waits, and look at what has ended and what the views show."""
        self.settle()
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
        saving = worker.storage.save_chat_messages(*attrs.astuple(key), messages)
        task = self.begin(saving, lambda stored: self._check_saved(key, stored), *self._strict)
        self.saving[task] = {message.id for message in messages}

    def note(self, worker, key, note):
        saving = worker.storage.save_note(*attrs.astuple(key), note)
        self.saving[self.begin(saving, lambda _result: None, *self._strict)] = {note.id}

    @property
    def _strict(self):
        """What saves may raise beside the store's own errors."""
        return [SummarizerError] if "on_summarizer_error" in self.setting.options else []

    def fetch(self, worker, key, limit=None):
        before = self.log(key)
        self.saving = {task: ids for task, ids in self.saving.items() if not task.done()}
        unseen = set().union(*self.saving.values())
        before = LogSlice([e for e in before.entries if e.id not in unseen], before.floor)
        fetching = worker.storage.fetch_chat(*attrs.astuple(key), limit)
        self.begin(fetching, lambda view: self._check_fetched(key, before, view, limit))

    def do(self, work):
        """Start some work whose result does not matter."""
        self.begin(work, lambda _result: None, SummarizerError)

    def crash(self, index):
        """A worker's process ends, and another takes its place."""
        worker = self.workers[index]
        for buffer in worker.buffers:
            if buffer.attempts.task is not None:
                buffer.attempts.task.cancel()
        worker.forget_plans()
        worker.release(StorageUnavailableError("the process is gone"))
        self.settle()
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
        self.close(self.loop)

    def close(self, loop):
        """End a loop as ``asyncio.run`` does."""
        for task in asyncio.all_tasks(loop):
            task.cancel()
        self.settle()
        loop.close()

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
        shown_before, shown_now = visible(before.entries), visible(now.entries)
        ids_now = {message.id for message in shown_now}
        if now.floor != before.floor or not {m.id for m in shown_before} <= ids_now:
            return  # deleted or retracted meanwhile: both answers are right
        newest = max((message.position or 0 for message in view), default=0)
        # What came while the fetch was under way need not be there yet.
        self.wrong += torn(view, [m for m in shown_now if m.position <= newest])
        none_retracted = before.messages == shown_before
        back = {message.id for message in held_back(view, shown_before)}
        due = [message for message in shown_before if message.id not in back]
        if due and none_retracted and due[-1].position > newest:
            self.wrong.append(f"{due[-1].id} is the newest and not shown")
        if shown_before and not view:
            self.wrong.append("nothing is shown")
        if limit is not None:
            self.wrong += disorder(view)
            return
        known = {m.id for m in shown_before}.union(*map(self.covers, view))
        self.wrong += violations(view, [m for m in shown_now if m.id in known], covers=self.covers)

    def _look_at_views(self):
        shown = {}
        for buffer in [buffer for worker in self.workers for buffer in worker.buffers]:
            view, log = buffer.view, self.log(buffer.key)
            if view is None or view.floor != log.floor:
                continue
            state = (view, view.summary, view.head)
            earlier, grown_from, looked_at = self._shown.get(buffer, (None, [], None))
            same = earlier is not None and all(a is b for a, b in zip(earlier, state, strict=True))
            extent = (view.last, view.size, log.entries[-1:])
            if same and extent == looked_at:
                shown[buffer] = self._shown[buffer]
                continue
            messages = view.newest(None)
            known = visible([entry for entry in log.entries if entry.position <= view.last])
            self.wrong += violations(messages, known, covers=self.covers) + torn(messages, known)
            shown[buffer] = (state, messages, extent)
            if same and messages[: len(grown_from)] != grown_from:
                self.wrong.append("a view changed elsewhere than at its end")
        self._shown = shown


KEYS = [ChatKey("user", "session", "A"), ChatKey("user", "session", "B")]
