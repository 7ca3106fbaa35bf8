"""Small chats for the tests of summarizers."""

from __future__ import annotations

from agent_memory.messages import ConversationMessage
from agent_memory.summarizers.base import new_summary_id, summary_message


def run_of(name, *texts):
    """One run: the texts, said by user and assistant in turn."""
    roles = ("user", "assistant")
    return [ConversationMessage(roles[at % 2], text, run_id=name) for at, text in enumerate(texts)]


def chat(runs=8):
    """Runs r0, r1, … of one question and one answer each."""
    return [
        message
        for at in range(runs)
        for message in run_of(f"r{at}", f"question {at}", f"answer {at}")
    ]


def former_summary(body):
    """A summary as an earlier compaction left it."""
    return summary_message(body, like=None, summary_id=new_summary_id())
