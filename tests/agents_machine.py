"""The world of :mod:`summarizing_machine`, its chats summarized by a model, in several loops.

The model is scripted: it notes which messages its transcript told of and answers with a number,
by which a later transcript, or a look at the view, finds what went into a summary.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import attrs

from agent_memory import LLMSummarizer, SummarizingChatStorage
from agent_memory.models.chat_model import ModelError
from agent_memory.providers import parts
from agent_memory.summarizers.retrying import Retry
from agent_memory.tokens import HeuristicTokenCounter
from agent_memory.turns import group as group_messages
from misbehaving import FaultyStorage
from rig import call, held_back, names, result
from summarizing_machine import KEYS, StillClock, Worker, World

_NAMED = re.compile(r"\[([AB] \d+)\]")
_NOTES = re.compile(r"Notes (\d+)")
PLANS = ("raises", "refuses", "empty", "long", "waits")


class AtOnce(ThreadPoolExecutor):
    """Does work when it is given, without a thread: equal steps give equal worlds."""

    def submit(self, function, /, *args, **kwargs):
        done = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  whoever waits gets it
            done.set_exception(error)
        return done


class Notes:
    """What the models of all workers were told of, by the number of their answer."""

    def __init__(self):
        self._told = {}

    def take(self, transcript):
        """Return the text of a summary that tells of what a transcript tells."""
        number = len(self._told) + 1
        self._told[number] = self.told(transcript)
        return f"Notes {number}."

    def told(self, text):
        """The ids of the messages that a text names, itself or through earlier notes."""
        earlier = (self._told[int(number)] for number in _NOTES.findall(text))
        return set(_NAMED.findall(text)).union(*earlier)


class ScriptedModel:
    """Takes notes, unless something else is planned."""

    def __init__(self, notes):
        self.planned = deque()
        self.held = []
        self._notes = notes

    async def __call__(self, instruction, transcript, **_parameters):
        plan = self.planned.popleft() if self.planned else ""
        if plan == "waits":
            self.held.append(asyncio.get_running_loop().create_future())
            await self.held[-1]
        if plan in ("raises", "refuses"):
            raise ModelError("as planned", transient=plan == "raises")
        if plan == "empty":
            return " "
        text = self._notes.take(transcript)
        return text + " And so on." * 2_000 if plan == "long" else text

    def release(self):
        held, self.held = self.held, []
        for gate in held:
            if not gate.done():
                gate.set_result(None)


@attrs.frozen
class AgentSetting:
    """How a world is made up.

    Args:
        workers: how many storages share the store.
        options: of `SummarizingChatStorage`.
        keep: the summarizer's `keep_recent_count`.
        attempts: how often the model is asked.
        calm: whether nothing goes wrong, so that each view is bounded.
    """

    workers: int
    options: dict
    keep: int | None
    attempts: int
    calm: bool


class AgentWorld(World):
    """Workers whose summarizer is an `LLMSummarizer`, in two loops, one of them at a time."""

    def __init__(self, setting):
        self.notes = Notes()
        self.loops = []
        super().__init__(setting)
        self.loops = [self.loop, self.new_loop()]

    def new_loop(self):
        loop = StillClock()
        loop.set_default_executor(AtOnce(1))
        return loop

    def new_worker(self):
        setting = self.setting
        store = FaultyStorage(self.inner, "network" if setting.workers > 1 else "process")
        model = ScriptedModel(self.notes)
        summarizer = LLMSummarizer(
            model,
            keep_recent_count=setting.keep,
            retry=Retry(attempts=setting.attempts, chance=lambda: 0.5),
        )
        storage = SummarizingChatStorage(store, summarizer, close_inner=False, **setting.options)
        return Worker(setting, store, model, model, storage)

    def covers(self, message):
        if message.position is not None:
            return [message.id]
        return self.notes.told(" ".join(part.text for part in parts(message)))

    # ------------------------------------------------------------------------- loops

    def switch(self, number):
        """Do what comes next in one of the loops; the others only go on."""
        self.loop = self.loops[number]

    def run_anew(self):
        """End the loop and go on in a new one, as a program of many ``asyncio.run`` does."""
        old, self.loop = self.loop, self.new_loop()
        self.loops.append(self.loop)
        self.loops.remove(old)
        old.now = self.loop.now = max(loop.now for loop in self.loops)
        self.close(old)
        self.go_on()

    def settle(self):
        while True:
            for loop in self.loops:
                loop.settle()
            if not any(loop._ready for loop in self.loops):
                return

    def pass_time(self):
        for loop in self.loops:
            loop.now += 61
        self.go_on()

    def close(self, loop):
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.settle()
        loop.close()

    # ------------------------------------------------------------------------- the end

    def end(self):
        for _ in range(4):
            for worker in self.workers:
                worker.forget_plans()
                worker.release()
            self.pass_time()
        for worker, key in itertools.product(self.workers, KEYS):
            self.do(worker.storage.compact_now(*attrs.astuple(key)))
            self.pass_time()
            explaining = worker.storage.explain(*attrs.astuple(key))
            self.begin(explaining, self._check_explained)
        for other in [loop for loop in self.loops if loop is not self.loop]:
            self.loops.remove(other)
            self.close(other)
        super().end()

    def _check_explained(self, explanation):
        view = list(explanation.view)
        shown = {message.id for message in view}
        told = {name for m in view if m.position is None for name in self.covers(m)}
        raw = [explained.message for explained in explanation.messages]
        back = {message.id for message in held_back(view, raw)}
        for explained in explanation.messages:
            name = explained.message.id
            right = {
                "verbatim": name in shown,
                "pinned": name in shown,
                "covered": name in told,
                "held_back": name in back,
                "retracted": name not in shown,
            }
            if not right.get(explained.standing):
                self.wrong.append(f"{name} is explained as {explained.standing}")
        self.check_bounded(view, raw)

    # ------------------------------------------------------------------------- bounds

    def _check_fetched(self, key, before, view, limit):
        super()._check_fetched(key, before, view, limit)
        if self.setting.calm:
            self.check_bounded(view, self.log(key).messages)

    def check_bounded(self, view, raw):
        """A quarter above the trigger by messages, twice by tokens, and what cannot be cut.

        That is the longest exchange, which a late result makes long, and what one save brings.
        """
        options = self.setting.options
        shown = [message for message in view if not message.pinned and message.role != "system"]
        most = 2 * options.get("trigger_at", 20)
        whole = max((group.stop - group.start for group in group_messages(raw)), default=0) + SAVE
        if len(shown) > most + max(2, most // 4) + whole:
            self.wrong.append(f"{len(shown)} messages are shown: {' '.join(names(shown))}")
        limit = options.get("trigger_tokens")
        tokens = sum(map(HeuristicTokenCounter().count, shown))
        if limit is not None and tokens > 2 * limit + whole * TOKENS:
            self.wrong.append(f"{tokens} tokens are shown")


SAVE = 8
"""Messages of one save, at most."""
TOKENS = 30
"""Of one message, at most."""


def asks(name, *numbers, narration=""):
    """A message that calls a tool for each number; what is called is told in its arguments."""
    message = call(*(f"{name}/{number}" for number in numbers))
    blocks = [
        {"toolUse": {**block["toolUse"], "input": {"of": f"[{name}]"}}}
        for block in message.content
    ]
    said = [{"text": narration}] if narration else []
    return attrs.evolve(message, content=[*said, *blocks], id=name)


def answers(name, *calls):
    """A message with results."""
    message = result(*calls)
    blocks = [
        {"toolResult": {**block["toolResult"], "content": [{"text": f"[{name}] 42"}]}}
        for block in message.content
    ]
    return attrs.evolve(message, content=blocks, id=name)
