"""Random worlds of agents that call tools, summarized by a model: nothing is lost or doubled."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_memory import Note
from agent_memory.turns import open_calls
from agents_machine import PLANS, AgentSetting, AgentWorld, answers, asks
from rig import assistant, system, user
from summarizing_machine import KEYS

a_worker = st.integers(0, 1)
a_chat = st.sampled_from(KEYS)
FAULTS = ("fail before", "fail after", "wait before", "wait after")
HOOKS = ("append", "read", "forget", "save_summary", "load_summary")
SAID = {"user": user, "assistant": assistant, "system": system}


def may_go_wrong(machine):
    return not machine.world.setting.calm


class Agents(RuleBasedStateMachine):
    """Long turns of tools through an `LLMSummarizer`, restarts, two workers, two loops."""

    @initialize(
        workers=st.integers(1, 2),
        options=st.sampled_from(
            [{}, {"trigger_tokens": 400}, {"trigger_at": 3, "keep_last": 1}, {"max_buffers": 1}]
        ),
        extra=st.sampled_from([{}, {"background": True}]),
        keep=st.sampled_from([None, None, 2]),
        attempts=st.integers(1, 2),
        calm=st.booleans(),
    )
    def begin(self, *, workers, options, extra, keep, attempts, calm):
        options = {**options, **({} if calm else extra)}
        self.world = AgentWorld(AgentSetting(workers, options, keep, attempts, calm))
        self.ids = {key: map(f"{key.agent_id} {{}}".format, itertools.count(1)) for key in KEYS}
        self.failed = []

    def worker(self, number):
        return self.world.workers[number % len(self.world.workers)]

    def save(self, worker, key, *messages):
        self.world.save(self.worker(worker), key, messages)
        self.failed = [(key, messages), *self.failed][:3]

    def named(self, key):
        return next(self.ids[key])

    # ------------------------------------------------------------------------- saving

    @rule(
        worker=a_worker,
        key=a_chat,
        roles=st.lists(
            st.sampled_from(["user", "user", "assistant", "system"]), min_size=1, max_size=4
        ),
        pinned=st.integers(0, 8),
    )
    def talk(self, worker, key, roles, pinned):
        names = [self.named(key) for _ in roles]
        self.save(
            worker,
            key,
            *(
                SAID[role](f"say [{name}]", id=name, pinned=not pinned)
                for role, name in zip(roles, names, strict=True)
            ),
        )

    @rule(
        worker=a_worker,
        key=a_chat,
        count=st.integers(1, 15),
        width=st.integers(1, 3),
        how=st.sets(st.sampled_from(["together", "narrated", "fetches"])),
    )
    def work(self, worker, key, count, width, how):
        """Rounds of calls, each with all its results; the agent may look before each."""
        for _ in range(count):
            name = self.named(key)
            calls = [f"{name}/{number}" for number in range(width)]
            narration = f"Let me look [{name}]." if "narrated" in how else ""
            groups = [calls] if "together" in how else [[one] for one in calls]
            self.save(
                worker,
                key,
                asks(name, *range(width), narration=narration),
                *(answers(self.named(key), *group) for group in groups),
            )
            if "fetches" in how:
                self.world.fetch(self.worker(worker), key)

    @rule(worker=a_worker, key=a_chat, count=st.integers(1, 3))
    def call_tools(self, worker, key, count):
        self.save(worker, key, asks(self.named(key), *range(count)))

    @rule(worker=a_worker, key=a_chat, data=st.data())
    def answer_calls(self, worker, key, data):
        waiting = [site.id for site in open_calls(self.world.log(key).messages)]
        if waiting:
            some = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True))
            together = data.draw(st.booleans())
            groups = [some] if together else [[name] for name in some]
            self.save(worker, key, *(answers(self.named(key), *names) for names in groups))

    @rule(worker=a_worker, key=a_chat, back=st.integers(0, 60))
    def answer_late(self, worker, key, back):
        """A result of a call from long ago, or one more result of it, or of no known call."""
        name = self.named(key)
        of = f"{key.agent_id} {max(1, int(name.split()[1]) - back)}/0"
        self.save(worker, key, answers(name, of))

    @rule(worker=a_worker, number=st.integers(0, 2))
    def save_again(self, worker, number):
        if number < len(self.failed):
            key, messages = self.failed[number]
            self.world.save(self.worker(worker), key, messages)

    # ------------------------------------------------------------------------- looking, forgetting

    @rule(worker=a_worker, key=a_chat, limit=st.sampled_from([None, None, 2, 9]))
    def fetch(self, worker, key, limit):
        self.world.fetch(self.worker(worker), key, limit)

    @precondition(may_go_wrong)
    @rule(worker=a_worker, key=a_chat, keep=st.sampled_from([0, 3, 20]))
    def trim(self, worker, key, keep):
        self.failed = [(other, messages) for other, messages in self.failed if other != key]
        storage = self.worker(worker).storage
        self.world.do(storage.trim_chat("user", "session", key.agent_id, keep))

    @precondition(may_go_wrong)
    @rule(worker=a_worker, key=a_chat, back=st.integers(1, 30), count=st.integers(1, 2))
    def retract(self, worker, key, back, count):
        ids = [message.id for message in self.world.log(key).messages[-back:][:count]]
        self.world.note(self.worker(worker), key, Note("retracted", {"ids": ids}))

    @rule(worker=a_worker, key=a_chat, what=st.sampled_from(["compact_now", "rebuild"]))
    def command(self, worker, key, what):
        storage = self.worker(worker).storage
        self.world.do(getattr(storage, what)("user", "session", key.agent_id))

    # ------------------------------------------------------------------------- loops, restarts

    @rule(number=st.integers(0, 1))
    def switch_loops(self, number):
        self.world.switch(number)

    @rule()
    def run_anew(self):
        self.world.run_anew()

    @rule(worker=a_worker)
    def crash(self, worker):
        self.world.crash(worker % len(self.world.workers))

    # ------------------------------------------------------------------------- what goes wrong

    @precondition(may_go_wrong)
    @rule(worker=a_worker, hook=st.sampled_from(HOOKS), fault=st.sampled_from(FAULTS))
    def plan_fault(self, worker, hook, fault):
        self.worker(worker).store.faults.plan(hook, fault)

    @precondition(may_go_wrong)
    @rule(worker=a_worker, plan=st.sampled_from([*PLANS, "waits"]))
    def plan_answer(self, worker, plan):
        self.worker(worker).summarizer.planned.append(plan)

    @rule(worker=a_worker)
    def release(self, worker):
        self.worker(worker).release()
        self.world.go_on()

    @precondition(lambda self: self.world.under_way)
    @rule(index=st.integers(0, 5))
    def cancel(self, index):
        self.world.cancel(index)

    @rule()
    def pass_time(self):
        self.world.pass_time()

    @invariant()
    def nothing_is_wrong(self):
        if hasattr(self, "world"):
            assert self.world.wrong == []

    def teardown(self):
        if hasattr(self, "world"):
            self.world.end()
            assert self.world.wrong == []


quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

TestAgents = Agents.TestCase
TestAgents.settings = settings(
    max_examples=max(1, settings().max_examples // 2),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=quiet,
)


@pytest.mark.soak
class TestAgentsForLong(Agents.TestCase):
    settings = settings(
        max_examples=1_000, stateful_step_count=80, deadline=None, suppress_health_check=quiet
    )
