"""The page on adapters holds: its code runs, and the pattern is as short as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_memory import (
    ConversationMessage,
    ExtractiveSummarizer,
    InMemoryChatStorage,
    SummarizingChatStorage,
)
from agent_memory.providers import from_openai, validate

PAGE = Path(__file__).parents[1] / "docs" / "write_an_adapter.md"
TEXT = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.skipif(not TEXT, reason="docs are not here, only the tests")

SPOKEN = [
    {"role": "user", "content": "the weather?", "trace": {"span": 1}},
    {"role": "assistant", "content": None, "model": "m", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "content": "sunny", "tool_call_id": "c1", "name": "look", "took": 0.5},
    {"role": "assistant", "content": "It is sunny."},
]  # fmt: skip


PATTERN = BLOCKS[0].partition("\n\nasync def main")[0] if BLOCKS else ""


@pytest.fixture
def page() -> dict[str, object]:
    """The names that the pattern defines."""
    names: dict[str, object] = {}
    exec(compile(PATTERN, str(PAGE), "exec"), names)
    return names


def test_the_pattern_is_short():
    """Thirty lines of code, imports left out."""
    code = PATTERN.partition("\nOWN = ")[2]
    assert 10 < sum(bool(line.strip()) for line in code.splitlines()) <= 30


async def test_its_messages_come_back_equal(page):
    """Calls, results and the framework's own fields."""
    memory = page["Memory"](InMemoryChatStorage(), "u", "s", "a")
    await memory.add(SPOKEN)
    assert await memory.messages() == SPOKEN


async def test_its_view_is_valid_and_what_it_clears_is_hidden(page):
    """Through a store that summarizes, with tools in each turn."""
    raw = InMemoryChatStorage()
    storage = SummarizingChatStorage(raw, ExtractiveSummarizer(), trigger_at=5, keep_last=2)
    memory = page["Memory"](storage, "u", "s", "a")
    for _ in range(20):
        await memory.add(SPOKEN)
        shown = await memory.messages()
        sent = [{key: item[key] for key in item if key not in ("trace", "model", "took")}
                for item in shown]  # fmt: skip
        assert validate(from_openai(sent), "openai") == []
        assert len(shown) < 16
    await memory.clear()
    assert await memory.messages() == []
    assert len(await raw.fetch_all_chats("u", "s")) == 80


def test_messages_of_another_origin_are_dumped_too(page):
    """A summary has none of the adapter's metadata."""
    summary = ConversationMessage("user", [{"text": "what was said"}])
    assert page["dump"](summary) == [{"role": "user", "content": "what was said"}]
