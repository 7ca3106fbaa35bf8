"""Real conversations of tool-using agents, played turn by turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_memory.providers import from_openai
from agent_memory.testing import ScriptedSummarizer, blind_cut
from rig import KEY, Rig, torn, violations

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "airline.jsonl"


def conversations():
    with DATA.open(encoding="utf-8") as lines:
        return [from_openai(json.loads(line)["messages"]) for line in lines]


@pytest.mark.skipif(not DATA.exists(), reason=f"the real conversations are not at {DATA}")
@pytest.mark.parametrize("options", [{"trigger_at": 3}, {"trigger_at": 8, "keep_last": 2}])
async def test_no_view_of_a_real_conversation_loses_a_message_or_tears_an_exchange(options):
    """After each message, with a summarizer that cuts blindly; and every message comes back."""
    called = 0
    for messages in conversations():
        rig = Rig(summarizer=ScriptedSummarizer(cut=blind_cut), **options)
        for count, message in enumerate(messages, start=1):
            await rig.save(message)
            view, raw = await rig.view(), await rig.raw()
            assert violations(view, raw) == []
            assert torn(view, raw) == []
            assert raw == list(messages[:count])
        called += len(rig.calls)
        assert await rig.storage.fetch_all_chats(KEY.user_id, KEY.session_id) == messages
    assert called >= 42
