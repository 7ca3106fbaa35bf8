"""Words to speak of summarized chats in: messages, stores around stores, and what to expect."""

from __future__ import annotations

import itertools

from agent_memory import (
    ChatKey,
    ConversationMessage,
    InMemoryChatStorage,
    SummarizingChatStorage,
)
from agent_memory.providers import parts
from agent_memory.summarizing.compaction import Snapshot
from agent_memory.testing import ScriptedSummarizer, witness_summary, witnessed
from agent_memory.turns import facts_of, must_stay

IDS = ("user", "session", "agent")
KEY = ChatKey(*IDS)


def user(text="hello", **fields):
    return ConversationMessage("user", text, **fields)


def assistant(text="hi", **fields):
    return ConversationMessage("assistant", text, **fields)


def system(text="be brief", **fields):
    return ConversationMessage("system", text, **fields)


def call(*names, **fields):
    """An assistant's message that calls a tool for each name, in Bedrock's form."""
    blocks = [{"toolUse": {"toolUseId": name, "name": "look", "input": {}}} for name in names]
    return ConversationMessage("assistant", blocks, **fields)


def result(*names, **fields):
    """A message with the result of each call."""
    blocks = [{"toolResult": {"toolUseId": name, "content": [{"text": "42"}]}} for name in names]
    return ConversationMessage("user", blocks, **fields)


def dialogue(count, *, start=1):
    """So many messages, a user's and an assistant's in turn, with the ids m1, m2, and so on."""
    numbers = range(start, start + count)
    makers = {1: user, 0: assistant}
    return [makers[number % 2](f"say {number}", id=f"m{number}") for number in numbers]


def placed(messages, *, after=0):
    """The messages as a store would have placed them."""
    return [
        message.placed(after + index, "agent") for index, message in enumerate(messages, start=1)
    ]


def snapshot_of(messages, *, block=(), head=(), fresh=False):
    """What a summarizer may be given of a view with this tail."""
    return Snapshot(tuple(head), tuple(block), tuple(messages), fresh)


def summary(text="what was said", **fields):
    return user(text, **fields)


def keep_none(history, _keep_last):
    """A summary of everything, and nothing else."""
    return [witness_summary(history)]


def blind(history, keep_last):
    """A summary of all but the newest messages, cut by counting alone."""
    old, recent = history[: -keep_last * 2], history[-keep_last * 2 :]
    return [witness_summary(old), *recent] if old else list(recent)


def keep_from_the_middle(history, keep_last):
    """A summary, one message of the old part as it is, and the newest ones."""
    old, recent = history[: -keep_last * 2], history[-keep_last * 2 :]
    if len(old) < 3:
        return [witness_summary(history)]
    middle = old[len(old) // 2]
    return [witness_summary(old), middle, *recent]


def rebuild_kept(history, keep_last):
    """A summary, and the newest messages made anew, with other ids."""
    old, recent = history[: -keep_last * 2], history[-keep_last * 2 :]
    anew = [
        ConversationMessage(message.role, message.content, extra=dict(message.extra))
        for message in recent
    ]
    return [witness_summary(old), *anew]


class Rig:
    """A `SummarizingChatStorage` over a store, its summarizer, and what `on_event` was told.

    Args:
        inner: the store inside; by default one in memory.
        trigger_at, keep_last, options: as the storage takes them.
        summarizer: by default a `ScriptedSummarizer`.
    """

    def __init__(self, inner=None, *, summarizer=None, trigger_at=3, keep_last=1, **options):
        self.inner = inner if inner is not None else InMemoryChatStorage()
        self.summarizer = summarizer if summarizer is not None else ScriptedSummarizer()
        self.events = []
        options.setdefault("on_event", self.events.append)
        self.storage = SummarizingChatStorage(
            self.inner, self.summarizer, trigger_at, keep_last, **options
        )
        self._numbers = itertools.count(1)

    async def save(self, *messages, ids=IDS):
        return await self.storage.save_chat_messages(*ids, messages)

    async def view(self, limit=None, ids=IDS):
        return await self.storage.fetch_chat(*ids, limit)

    async def raw(self, ids=IDS):
        """What the store inside holds, as it holds it."""
        return list((await self.inner._read(ChatKey(*ids))).messages)

    async def talk(self, count, ids=IDS):
        """Save so many messages of a dialogue one by one, and return them as stored."""
        stored = []
        for _ in range(count):
            (message,) = dialogue(1, start=next(self._numbers))
            stored += await self.save(message, ids=ids)
        return stored

    async def active(self, count=7, ids=IDS):
        """Have a chat of so many messages, saved and fetched; return its view."""
        await self.save(*dialogue(count), ids=ids)
        self._numbers = itertools.count(count + 1)
        return await self.view(ids=ids)

    def kinds(self):
        """The names of the events so far, in order."""
        return [type(event).__name__ for event in self.events]

    @property
    def calls(self):
        return self.summarizer.calls


def texts(messages):
    return [message.content for message in messages]


def names(messages):
    """The ids of the messages of the log; ``S`` for what a summarizer made."""
    return ["S" if message.position is None else message.id for message in messages]


def violations(view, raw, *, covered_before=(), covers=witnessed):
    """What is wrong with a view, by promise 2; empty if it is right.

    Each living message must be in the view, once and equal and in order, or have gone into one
    of the witness summaries that the view shows; and nothing else may be there. `covers` gives
    the ids of the messages that went into a summary.
    """
    living = {message.id: message for message in raw}
    shown = [message for message in view if message.position is not None]
    found = [f"{m.id} is shown twice" for m in shown if names(shown).count(m.id) > 1]
    found += [f"{m.id} is shown and deleted" for m in shown if m.id not in living]
    found += [f"{m.id} is changed" for m in shown if m.id in living and m != living[m.id]]
    made = [message for message in view if message.position is None]
    covered = {name for message in made for name in covers(message)} | set(covered_before)
    found += [f"{name} is deleted and summarized" for name in covered - living.keys()]
    lost = living.keys() - covered - {message.id for message in shown}
    if covered:
        lost -= {message.id for message in held_back(view, raw)}
    return sorted({*found, *(f"{name} is lost" for name in lost)}) + disorder(shown)


def held_back(view, raw):
    """The messages of the log that are not shown since they answer calls that are not, either."""
    shown = {message.id for message in view}
    called = {name for m in view if m.position is None for name in facts_of(m).calls}
    found = []
    for message in raw:
        if message.id in shown:
            called.update(facts_of(message).calls)
        elif facts_of(message).is_orphan(called):
            found.append(message)
    return found


def orphans(view):
    """The messages of a view that answer calls, none of which is in it before them."""
    called = set()
    found = []
    for message in view:
        found += [message] if facts_of(message).is_orphan(called) else []
        called.update(facts_of(message).calls)
    return found


def disorder(shown):
    """Whether messages of the log are out of order; what pins withhold comes first."""
    shown = [message for message in shown if message.position is not None]
    places = [message.position for message in shown]
    descents = [index for index in range(1, len(places)) if places[index] < places[index - 1]]
    pinned = any(map(must_stay, shown[: descents[0]])) if descents else False
    return ["out of order"] if len(descents) > pinned else []


def torn(view, raw):
    """The tool exchanges of the log of which the view shows only a part.

    Only calls that still waited when their result came count: what comes after another message
    is late, and its call may be gone by then.
    """
    shown = {message.id for message in view}
    waiting, follows_calls = {}, False
    found = []
    for message in raw:
        held = parts(message)
        results = [part.id for part in held if part.kind == "result"]
        calls = [part.id for part in held if part.kind == "call"]
        found += [
            f"{name}: {waiting[name].id} and {message.id} are torn apart"
            for name in results
            if name in waiting and (waiting[name].id in shown) != (message.id in shown)
        ]
        others = any(part.kind not in ("call", "result", "reasoning") for part in held)
        goes_on = bool(calls) and follows_calls
        if not held or (others and not calls) or (calls and not goes_on):
            waiting = {}
        follows_calls = bool(calls)
        waiting = {name: call for name, call in waiting.items() if name not in results}
        waiting.update(dict.fromkeys(calls, message))
    return found
