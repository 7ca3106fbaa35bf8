"""Random walks of several runs, managers and accidents over one thread, checked at every step.

What must hold: a view shows each living message once, word for word and in order, or it has gone
into the summary that the view begins with; a run's own messages are shown; the list of threads
counts what the log holds; and what was spent is what is billed.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talking import Summarizer

from agent_memory import (
    ConversationManager,
    InMemoryChatStorage,
    StorageUnavailableError,
    SummaryResult,
    Usage,
)
from agent_memory.conversation.run_notes import ThreadCounts
from agent_memory.testing import FlakyChatStorage, witness_summary
from rig import IDS, KEY, assistant, call, result, torn, user, violations

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("ask"), st.integers(0, 3)),
        st.tuples(st.just("ask"), st.integers(0, 3)),
        st.tuples(st.just("tool"), st.integers(0, 3)),
        st.tuples(st.just("answer"), st.integers(0, 3)),
        st.tuples(st.just("see"), st.integers(0, 3)),
        st.tuples(st.just("see"), st.integers(0, 3)),
        st.tuples(st.just("save"), st.integers(0, 3)),
        st.tuples(st.just("foreign"), st.integers(1, 3)),
        st.tuples(st.just("trim"), st.integers(0, 6)),
        st.tuples(st.just("fail"), st.sampled_from(["before", "after"])),
        st.tuples(st.just("restart"), st.integers(0, 1)),
    ),
    max_size=60,
)


class Walk:
    """Four runs at most, of two managers over one flaky store."""

    def __init__(self):
        self.inner = InMemoryChatStorage()
        self.storage = FlakyChatStorage(self.inner)
        self.spent = Usage()
        self.trimmed = False
        self.managers = [self._manager(0), self._manager(1)]
        self.started = []
        self.runs = {}
        self.number = 0

    def _manager(self, which):
        def witness(messages, _tokens):
            self.number += 1
            cost = Usage(self.number, 1)
            self.spent += cost
            kept = 1 + self.number % 4
            if len(messages) < 6 or self.number % 7 == 0:
                raise _CostlyError(cost)
            cut = len(messages) - kept
            return SummaryResult(witness_summary(messages[:cut]), messages[cut:], usage=cost)

        return ConversationManager(self.storage, Summarizer(witness))

    async def step(self, kind, which, *more):
        with contextlib.suppress(StorageUnavailableError):
            await getattr(self, kind)(which, *more)

    async def start(self, which, manager):
        self.number += 1
        self.runs[which] = await self.managers[manager].start_run(*IDS)
        self.started.append(self.runs[which])

    async def restart(self, which):
        self.managers[which] = self._manager(which)

    async def ask(self, which):
        self._add(which, user(f"ask {self.number} and so on, at some length"))

    async def answer(self, which):
        self._add(which, assistant(f"answer {self.number} and so on, at some length"))
        if run := self.runs.get(which):
            run.record_usage(Usage(self.number, 1))
            self.spent += Usage(self.number, 1)

    async def tool(self, which):
        self._add(which, call(f"c{self.number}"), result(f"c{self.number}"))

    def _add(self, which, *messages):
        self.number += 1
        if run := self.runs.get(which):
            run.add(messages)

    async def see(self, which):
        run = self.runs.get(which)
        if run is None:
            return
        view = await run.messages()
        raw = (await self.inner._read(KEY)).messages
        assert violations(view, raw) == []
        assert torn(view, raw) == []
        own = [message.id for message in raw if message.run_id == run.id]
        assert [message.id for message in view if message.run_id == run.id] == own
        assert run.context_tokens >= 0

    async def save(self, which):
        if run := self.runs.get(which):
            await run.save()

    async def foreign(self, count):
        messages = [user(f"foreign {self.number} {n} at some length") for n in range(count)]
        self.number += 1
        await self.inner.save_chat_messages(*IDS, messages)

    async def trim(self, keep):
        self.trimmed = True
        await self.inner.trim_chat(*IDS, keep)

    async def fail(self, failure):
        self.storage.fail(failure)

    async def end(self):
        """Save all, and compare what is told of the thread with what is in it."""
        self.storage._script.clear()
        for run in self.started:
            await run.save()
        for which, run in self.runs.items():
            await self.see(which)
            await run.save()
        manager = ConversationManager(self.inner)
        log = (await self.inner._read(KEY)).entries
        counts = ThreadCounts().plus(log)
        threads = await manager.list_threads()
        expected = [(counts.runs, counts.messages)] if log else []
        assert [(thread.runs, thread.messages) for thread in threads] == expected
        assert sum((run.usage for run in self.started), Usage()) == self.spent
        if not self.trimmed:
            assert await manager.usage("user") == self.spent
        reloaded = await (await manager.start_run(*IDS)).messages()
        assert violations(reloaded, (await self.inner._read(KEY)).messages) == []


class _CostlyError(Exception):
    def __init__(self, usage):
        super().__init__("no")
        self.usage = usage


async def _walk(steps):
    walk = Walk()
    for step in steps:
        await walk.step(*step)
    await walk.end()
    return walk


@given(_STEPS)
def test_whatever_happens_views_and_counts_are_right(steps):
    """Two managers, four runs, lost answers, foreign messages, trims and restarts."""
    asyncio.run(_walk(steps))


@pytest.mark.soak
@settings(max_examples=5_000, deadline=None)
@given(_STEPS)
def test_views_and_counts_are_right_in_many_random_walks(steps):
    """5,000 walks of up to four runs in two managers."""
    asyncio.run(_walk(steps))
