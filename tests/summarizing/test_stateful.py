"""Random worlds: whatever happens in whatever order, nothing is lost, doubled or brought back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_memory import Note
from agent_memory.turns import open_calls
from misbehaving import BAD, GOOD, WAITS
from rig import assistant, call, result, system, user
from summarizing_machine import KEYS, Setting, World

a_worker = st.integers(0, 1)
a_chat = st.sampled_from(KEYS)
FAULTS = ("fail before", "fail after", "wait before", "wait after")
HOOKS = ("append", "read", "forget", "save_summary", "load_summary")


class Chats(RuleBasedStateMachine):
    """Chats of tool-using agents over one store that fails now and then."""

    @initialize(
        workers=st.integers(1, 2),
        max_buffers=st.integers(1, 2),
        trigger=st.sampled_from([{"trigger_at": 2}, {"trigger_at": 3}, {"trigger_tokens": 60}]),
        fallback=st.booleans(),
        extra=st.sampled_from([{}, {"background": True}, {"on_summarizer_error": "raise"}]),
        usual=st.sampled_from(sorted(GOOD)),
    )
    def begin(self, *, workers, max_buffers, trigger, fallback, extra, usual):
        options = {"trigger_at": 2, "keep_last": 1, "max_buffers": max_buffers, **trigger, **extra}
        self.world = World(Setting(workers, options, fallback, usual))
        self.ids = {key: map(f"{key.agent_id} {{}}".format, itertools.count(1)) for key in KEYS}
        self.failed = []

    def worker(self, number):
        return self.world.workers[number % len(self.world.workers)]

    def save(self, worker, key, *messages):
        self.world.save(self.worker(worker), key, messages)
        self.failed = [(key, messages), *self.failed][:3]

    # ------------------------------------------------------------------------- saving

    @rule(
        worker=a_worker,
        key=a_chat,
        kinds=st.lists(
            st.sampled_from([user, user, assistant, assistant, system]), min_size=1, max_size=4
        ),
        pinned=st.integers(0, 8),
    )
    def talk(self, worker, key, kinds, pinned):
        self.save(
            worker,
            key,
            *(
                make(f"say {number}", id=next(self.ids[key]), pinned=not pinned)
                for number, make in enumerate(kinds)
            ),
        )

    @rule(worker=a_worker, key=a_chat, count=st.integers(1, 3))
    def call_tools(self, worker, key, count):
        name = next(self.ids[key])
        self.save(worker, key, call(*(f"{name}/{n}" for n in range(count)), id=name))

    @rule(worker=a_worker, key=a_chat, data=st.data())
    def answer_calls(self, worker, key, data):
        waiting = [site.id for site in open_calls(self.world.log(key).messages)]
        if waiting:
            some = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True))
            together = data.draw(st.booleans())
            answers = [some] if together else [[name] for name in some]
            self.save(worker, key, *(result(*names, id=next(self.ids[key])) for names in answers))

    @rule(worker=a_worker, key=a_chat)
    def whole_turn(self, worker, key):
        names = [next(self.ids[key]) for _ in range(4)]
        question, answer = user("do it", id=names[0]), assistant("done", id=names[3])
        work = call(f"{names[1]}/0", id=names[1]), result(f"{names[1]}/0", id=names[2])
        self.save(worker, key, question, *work, answer)

    @rule(worker=a_worker, number=st.integers(0, 2))
    def save_again(self, worker, number):
        if number < len(self.failed):
            key, messages = self.failed[number]
            self.world.save(self.worker(worker), key, messages)

    @rule(worker=a_worker, key=a_chat)
    def note(self, worker, key):
        self.world.note(self.worker(worker), key, Note("run"))

    # ------------------------------------------------------------------------- looking, forgetting

    @rule(worker=a_worker, key=a_chat, limit=st.sampled_from([None, None, 1, 2, 5]))
    def fetch(self, worker, key, limit):
        self.world.fetch(self.worker(worker), key, limit)

    @rule(worker=a_worker, key=a_chat, keep=st.sampled_from([0, 1, 2, 3, 7]))
    def trim(self, worker, key, keep):
        self.failed = [(other, messages) for other, messages in self.failed if other != key]
        storage = self.worker(worker).storage
        self.world.do(storage.trim_chat("user", "session", key.agent_id, keep))

    @rule(worker=a_worker, key=a_chat, back=st.integers(1, 12), count=st.integers(1, 2))
    def retract(self, worker, key, back, count):
        ids = [message.id for message in self.world.log(key).messages[-back:][:count]]
        self.world.note(self.worker(worker), key, Note("retracted", {"ids": ids}))

    @rule(worker=a_worker, key=a_chat, what=st.sampled_from(["compact_now", "rebuild"]))
    def command(self, worker, key, what):
        storage = self.worker(worker).storage
        self.world.do(getattr(storage, what)("user", "session", key.agent_id))

    # ------------------------------------------------------------------------- what goes wrong

    @rule(worker=a_worker, hook=st.sampled_from(HOOKS), fault=st.sampled_from(FAULTS))
    def plan_fault(self, worker, hook, fault):
        self.worker(worker).store.faults.plan(hook, fault)

    @rule(worker=a_worker, plan=st.sampled_from([*sorted(BAD), *sorted(GOOD), *WAITS, *WAITS]))
    def plan_summary(self, worker, plan):
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

    @rule(worker=a_worker)
    def crash(self, worker):
        self.world.crash(worker % len(self.world.workers))

    @invariant()
    def nothing_is_wrong(self):
        if hasattr(self, "world"):
            assert self.world.wrong == []

    def teardown(self):
        if hasattr(self, "world"):
            self.world.end()
            assert self.world.wrong == []


quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much]

TestChats = Chats.TestCase
TestChats.settings = settings(stateful_step_count=40, deadline=None, suppress_health_check=quiet)


@pytest.mark.soak
class TestChatsForLong(Chats.TestCase):
    settings = settings(
        max_examples=2_000, stateful_step_count=100, deadline=None, suppress_health_check=quiet
    )
