"""Forty lines that a user writes, from the hooks' docstrings alone, keep the whole contract."""

from __future__ import annotations

import inspect
import threading

import pytest

from agent_memory import ChatInfo, ChatStorage, ConversationMessage, LogSlice, StorageConflictError
from agent_memory.testing import ChatStorageTests


class TinyChatStorage(ChatStorage):
    def __init__(self):
        self._lock = threading.Lock()
        self._logs = {}  # key -> all entries there ever were
        self._floors = {}

    async def _append(self, key, entries):
        with self._lock:
            floor = self._floors.get(key, 0)
            log = list(self._logs.get(key, []))
            stored = []
            for entry in entries:
                known = next((old for old in log[floor:] if old.id == entry.id), None)
                if known is None:
                    known = entry.placed(len(log) + 1, key.agent_id)
                    log.append(known)
                elif type(known) is not type(entry) or not known.same_payload(entry):
                    raise StorageConflictError(f"{entry.id!r} is another message", key=key)
                stored.append(known)
            self._logs[key] = log
            return LogSlice(stored, floor)

    async def _read(self, key, *, after=0, first=None, last=None):
        with self._lock:
            floor = self._floors.get(key, 0)
            living = self._logs.get(key, [])[max(after, floor) :]
            return LogSlice(living[:first] if last is None else living[-last:], floor)

    async def _forget(self, key, keep):
        with self._lock:
            old, log = self._floors.get(key, 0), self._logs.get(key, [])
            messages = [m.position for m in log[old:] if isinstance(m, ConversationMessage)]
            if len(messages) > keep or keep == 0:
                self._floors[key] = messages[-keep] - 1 if keep else len(log)
            return max(0, len(messages) - keep)

    async def _list(self, user_id, session_id):
        for key, log in sorted(self._logs.items()):
            if user_id in (None, key.user_id) and session_id in (None, key.session_id):
                info = ChatInfo(key, self._floors.get(key, 0), len(log))
                if info.entries:
                    yield info


class TestTiny(ChatStorageTests):
    @pytest.fixture
    def make_storage(self):
        return TinyChatStorage


def test_it_is_as_short_as_it_says():
    """The whole class, four hooks, fits into 45 lines."""
    assert len(inspect.getsource(TinyChatStorage).splitlines()) <= 45
