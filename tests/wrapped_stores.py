"""Wrapped stores for other processes, which import this instead of a module of tests."""

from __future__ import annotations

from agent_memory import SummarizingChatStorage, TransformingChatStorage
from agent_memory.storage.urls import open_storage
from agent_memory.testing import ScriptedSummarizer


async def failing_summarizer(history, keep_last):
    raise ConnectionError("no model today")


def summarizing_in_vain(make_inner):
    """A wrapper whose summarizer always fails, from four messages on."""
    return SummarizingChatStorage(make_inner(), failing_summarizer, trigger_at=2, keep_last=1)


def summarizing_often(url):
    """A wrapper that summarizes often, with summaries that remember what they were given."""
    return SummarizingChatStorage(open_storage(url), ScriptedSummarizer(), 3, 1)


def same(message):
    return message


def transforming(make_inner):
    return TransformingChatStorage(make_inner(), same, same)
