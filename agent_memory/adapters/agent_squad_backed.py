"""A storage of agent-squad's as one of ours: :func:`agent_memory.adapters.from_agent_squad`."""

from __future__ import annotations

import copy
import hashlib
import inspect
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from weakref import WeakValueDictionary

import attrs

from agent_memory.errors import InvalidRequestError, StorageError, StorageUnavailableError
from agent_memory.keys import ChatKey, check_id
from agent_memory.log import ChatInfo, Entry, LogSlice, Note
from agent_memory.messages import ConversationMessage
from agent_memory.providers.part import as_dict, as_list, as_text
from agent_memory.storage._engine.append_plan import conflict
from agent_memory.storage._engine.event_loops import SharedSemaphore
from agent_memory.storage.base import ChatStorage

_REMEMBERED: Final = 64  # messages of a chat whose ids are known, as on files and DynamoDB
_CHATS: Final = 1_000  # chats of which any are
_SPEAKER: Final = re.compile(r"^\[(.+?)\] ")
_UNTOLD: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AgentSquadBackedStorage(ChatStorage):
    """Our contract over a storage of agent-squad's, with what that can hold.

    It keeps role and content, and what their storage keeps beside these. **What it cannot
    promise**, because theirs has no place or no call for it:

    - Ids, timestamps, runs, usage, pins, metadata and extra fields live as long as this object
      remembers the message (the newest 64 of each of the 1,000 chats used last). What is read
      later has an id made of its place and content, the timestamp their storage gives, or 1970.
    - A repeated save is noticed only while the message is remembered.
    - Positions are places in what their storage returns: they shift when another program has it
      trim (it does so on a save with `max_history_size`). One program at a time, so: a save reads
      the chat first, and is not atomic against others, nor across a crash.
    - Nothing can be deleted or trimmed: these calls raise ``StorageError``. Notes are refused.
    - Chats are found by the agents given, those used through this object, and those that their
      ``fetch_all_chats`` names; a listing without a session finds those used alone.
    - There is no place for summary records: after a restart chats are summarized again.

    Args:
        storage: theirs; whoever made it closes it.
        agents: ids of agents whose chats there may be.
        to_ours: makes a message of ours of one of theirs, with further fields.
        to_theirs: makes a message of theirs, with its timestamp.
    """

    def __init__(
        self,
        storage: Any,
        agents: Iterable[str],
        *,
        to_ours: Callable[..., ConversationMessage],
        to_theirs: Callable[[ConversationMessage], Any],
    ) -> None:
        self._theirs = storage
        self._to_ours = to_ours
        self._to_theirs = to_theirs
        self._agents = frozenset(check_id(agent, "agents") for agent in agents)
        self._saved: OrderedDict[ChatKey, dict[int, ConversationMessage]] = OrderedDict()
        # A semaphore lives while a save has its turn or waits for one.
        self._turns: WeakValueDictionary[ChatKey, SharedSemaphore] = WeakValueDictionary()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"AgentSquadBackedStorage({type(self._theirs).__name__})"

    # -------------------------------------------------------------------------------- hooks

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        given = [_message(entry, key) for entry in entries]
        async with self._turn(key):
            log = await self._whole(key)
            known = {message.id: message for message in log}
            for message in given:
                if message.id in known and not known[message.id].same_payload(message):
                    raise conflict(key, message.id)
            new = [message for message in given if message.id not in known]
            if new:
                theirs = list(map(self._to_theirs, new))
                await self._call("save_chat_messages", key, theirs)
                placed = self._remember(key, new, len(log))
                known.update((message.id, message) for message in placed)
        return LogSlice([known[message.id] for message in given])

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        log = (await self._whole(key))[after:]
        if first is not None:
            log = log[:first]
        return LogSlice(log if last is None else log[max(0, len(log) - last) :])

    async def _forget(self, key: ChatKey, keep: int) -> int:
        raise StorageError(
            "agent-squad's ChatStorage has no call that deletes or trims; do it where "
            f"{type(self._theirs).__name__} keeps its chats",
            key=key,
        )

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        with self._lock:
            keys = {
                key
                for key in self._saved
                if user_id in (None, key.user_id) and session_id in (None, key.session_id)
            }
        if user_id is not None and session_id is not None:
            for agent in await self._agents_of(user_id, session_id):
                keys.add(ChatKey(user_id, session_id, agent))
        for key in sorted(keys):
            log = await self._whole(key)
            if log:
                yield ChatInfo(key, 0, len(log))

    async def _agents_of(self, user_id: str, session_id: str) -> set[str]:
        """Return the agents that may have a chat in a session."""
        found = set(self._agents)
        for message in await self._call("fetch_all_chats", user_id, session_id):
            for block in as_list(message.content):
                speaker = _SPEAKER.match(as_text((as_dict(block) or {}).get("text")))
                if speaker is not None:
                    found.add(speaker[1])
        return found

    # ------------------------------------------------------------------------------- theirs

    async def _call(self, name: str, *arguments: Any) -> Any:
        key = arguments[0] if isinstance(arguments[0], ChatKey) else None
        ids = () if key is None else attrs.astuple(key)
        try:
            answer = getattr(self._theirs, name)(*ids, *arguments[key is not None :])
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # theirs raises whatever its driver does
            raise StorageUnavailableError(
                f"{type(self._theirs).__name__}.{name} failed: {error}", key=key, stored=None
            ) from error

    async def _whole(self, key: ChatKey) -> list[ConversationMessage]:
        """Return the whole chat, each message with what is remembered of it."""
        timed = hasattr(self._theirs, "fetch_chat_with_timestamp")
        name = "fetch_chat_with_timestamp" if timed else "fetch_chat"
        theirs = await self._call(name, key)
        with self._lock:
            saved = dict(self._saved.get(key, {}))
        found = enumerate(theirs, start=1)
        return [self._read_back(key, at, message, saved.get(at)) for at, message in found]

    def _read_back(
        self, key: ChatKey, position: int, theirs: Any, known: ConversationMessage | None
    ) -> ConversationMessage:
        plain = copy.copy(theirs)
        plain.content = _plain(theirs.content)
        made = self._to_ours(plain, id=_derived_id(key, position, plain))
        if known is not None and (known.role, known.content) == (made.role, made.content):
            return known
        if not hasattr(theirs, "timestamp"):
            made = attrs.evolve(made, timestamp=_UNTOLD)
        return made.placed(position, key.agent_id)

    def _remember(
        self, key: ChatKey, messages: Sequence[ConversationMessage], after: int
    ) -> list[ConversationMessage]:
        placed = [m.placed(after + at, key.agent_id) for at, m in enumerate(messages, start=1)]
        with self._lock:
            saved = self._saved.setdefault(key, {})
            self._saved.move_to_end(key)
            saved.update((message.position or 0, message) for message in placed)
            for position in sorted(saved)[:-_REMEMBERED]:
                del saved[position]
            while len(self._saved) > _CHATS:
                self._saved.popitem(last=False)
        return placed

    def _turn(self, key: ChatKey) -> AbstractAsyncContextManager[None]:
        """Let the saves of one chat take turns, on whatever event loops they are."""
        with self._lock:
            turns = self._turns.get(key)
            if turns is None:
                turns = self._turns[key] = SharedSemaphore(1)
        return turns.slot()


def _message(entry: Entry, key: ChatKey) -> ConversationMessage:
    if isinstance(entry, Note):
        raise InvalidRequestError(
            f"agent-squad's storages hold messages alone, no notes such as {entry.kind!r} "
            f"(in the chat of {key})"
        )
    return entry


def _plain(value: Any) -> Any:
    """Undo what databases make of numbers and bytes."""
    held: Any = value
    if isinstance(value, list):
        return [_plain(item) for item in held]
    if isinstance(value, dict):
        return {name: _plain(held[name]) for name in held}
    if isinstance(value, Decimal):  # as boto3 reads numbers
        return int(value) if value == value.to_integral_value() else float(value)
    if type(value).__name__ == "Binary":  # as boto3 reads bytes
        return bytes(value)
    return value


def _derived_id(key: ChatKey, position: int, plain: Any) -> str:
    role = getattr(plain.role, "value", plain.role)
    hashed = repr((attrs.astuple(key), position, role, plain.content))
    return "squad-" + hashlib.sha256(hashed.encode("utf-8", "surrogatepass")).hexdigest()[:32]
