"""Notes of a run's kind that no run wrote: read where they make sense, else passed over."""

from __future__ import annotations

import pytest
from talking import turn

from agent_memory import (
    ConversationManager,
    InMemoryChatStorage,
    Note,
    Usage,
)
from rig import IDS

_ODD = [
    {},
    {"run_id": "r1"},
    {"run_id": "r1", "usage": None, "context_tokens": 5},
    {"run_id": "r1", "usage": [1, 2], "context_tokens": 5},
    {"run_id": "r1", "usage": {"input_tokens": -1}, "context_tokens": 5},
    {"run_id": "r1", "usage": {"input_tokens": True}, "context_tokens": 5},
    {"run_id": "r1", "usage": {"tokens": 3}, "context_tokens": 5},
    {"run_id": "r1", "usage": {}, "context_tokens": "many"},
    {"run_id": "r1", "usage": {}, "context_tokens": -5},
    {"run_id": "r1", "usage": {}, "context_tokens": 1.5},
    {"run_id": 7, "usage": {}, "context_tokens": 5},
    {"run_id": "", "usage": {}, "context_tokens": 5},
    {"run_id": "r1", "usage": {}, "context_tokens": 5, "record_id": 7},
    {"run_id": "r1", "usage": {}, "context_tokens": 5, "floor": None},
    {"run_id": "r1", "usage": {}, "context_tokens": 5, "counts": 7},
    {"run_id": "r1", "usage": {}, "context_tokens": 5, "counts": {"runs": "all"}},
    {"run_id": "r1", "usage": {}, "context_tokens": 5, "counts": {"messages": -1}},
    {"run_id": "r1", "usage": {}, "context_tokens": 5, "counts": {"last_run": []}},
    {"run_id": "r1", "usage": {}, "context_tokens": 5, "position": "last"},
]


@pytest.mark.parametrize("data", _ODD)
async def test_a_hostile_note_of_that_kind_is_passed_over(data):
    """An application, or somebody else, may have written it: the one before counts."""
    storage = InMemoryChatStorage()
    manager = ConversationManager(storage)
    await turn(manager, measured=Usage(5_000, 200))
    await storage.save_note(*IDS, Note("run", data))
    _, seen = await turn(manager, "again", measured=Usage(6_000, 10))
    assert len(seen) == 3
    assert (await manager.start_run(*IDS)).context_tokens == 6_010
    assert await manager.usage("user") == Usage(11_000, 210)
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (2, 4)
    await storage.save_note(*IDS, Note("run", data))
    assert (await manager.start_run(*IDS)).context_tokens == 6_010


async def test_a_note_with_more_in_it_than_this_version_knows_is_read():
    """A later version may add to it."""
    storage = InMemoryChatStorage()
    data = {"run_id": "r1", "usage": {"input_tokens": 3}, "context_tokens": 5, "new": [1]}
    await storage.save_note(*IDS, Note("run", data))
    assert (await ConversationManager(storage).start_run(*IDS)).context_tokens == 5
