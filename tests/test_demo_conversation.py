"""Tests of the conversation that ships with the library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_memory.providers import from_openai, parts, to_openai
from agent_memory.turns import dead_calls, is_open, leading_system, surplus_results

_FILE = Path(__file__).parent.parent / "agent_memory/cli/demo_conversation.json"


@pytest.fixture(scope="module")
def plain():
    return json.loads(_FILE.read_text(encoding="utf-8"))["messages"]


def test_its_tool_exchanges_are_whole(plain):
    """Every call is answered once, and nothing is answered that was not called."""
    messages = from_openai(plain)
    assert dead_calls(messages) == []
    assert surplus_results(messages) == []
    assert not is_open(messages)


def test_it_shows_what_chats_are_made_of(plain):
    """A system prompt, about 35 user turns, parallel calls, errors and one long result."""
    messages = from_openai(plain)
    calls = [[p for p in parts(message) if p.kind == "call"] for message in messages]
    results = [str(message.content) for message in messages if message.role == "tool"]
    assert leading_system(messages) == 1
    assert sum(message.role == "user" for message in messages) == 34
    assert sum(len(found) > 1 for found in calls) >= 5
    assert sum(text.startswith("Error:") for text in results) == 2
    assert max(map(len, results)) > 2_000


def test_it_goes_through_the_library_unchanged(plain):
    """What is loaded is given back as it was."""
    assert to_openai(from_openai(plain)) == plain
