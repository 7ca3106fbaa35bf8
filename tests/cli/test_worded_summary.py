"""The commands on a chat whose summary is a message that a summarizer wrote."""

from __future__ import annotations

import json

from executable import CONTROL, done, with_store

from agent_memory import ConversationMessage, SummarizingChatStorage
from chats_to_move import HOSTILE


def test_output_for_programs_of_a_chat_with_a_summary_in_words(tmp_path):
    """The message that a summarizer writes has no position; each command's output is JSON."""
    url, ids = f"sqlite:///{tmp_path}/chats.db", ("ada", "hike", "guide")

    def in_words(messages, keep_last):
        return [ConversationMessage("user", f"{len(messages)} {HOSTILE}"), *messages[-2:]]

    async def chat(storage):
        short = SummarizingChatStorage(storage, in_words, 4, 1, close_inner=False)
        async with short:
            for number in range(10):
                await short.save_chat_message(*ids, ConversationMessage("user", f"say {number}"))
                await short.fetch_chat(*ids)

    with_store(url, chat)
    commands = [(name, *ids) for name in ("view", "history", "show")]
    found = {}
    for command in [*commands, ("ls",), ("stats",), ("verify",)]:
        output = done(*command, "--store", url, "--json")
        assert not CONTROL.search(output)
        found[command[0]] = [json.loads(line) for line in output.splitlines()]
    ((view,), history) = found["view"], found["history"][0]
    assert HOSTILE in view["view"][0]["content"]
    assert history[0]["summarizer"].endswith("in_words")
    assert len(found["show"]) == 10
    for form in ("jsonl", "openai", "openai-json", "markdown"):
        assert "say 9" in done("export", *ids, "--store", url, "--format", form)
