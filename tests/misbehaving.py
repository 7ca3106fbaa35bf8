"""A store that fails or waits as planned, and a summarizer that misbehaves as planned."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

import attrs

from agent_memory import StorageUnavailableError, WrapperChatStorage
from agent_memory.storage.summaries import SummaryStore
from agent_memory.testing import witness_summary, witnessed
from rig import blind, keep_from_the_middle, keep_none, rebuild_kept


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
