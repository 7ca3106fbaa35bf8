"""Summarizers, and what they are made of; see :mod:`agent_memory.summarizers.base`."""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.summarizers.base import Summarizer, SummaryResult
    from agent_memory.summarizers.extractive import ExtractiveSummarizer
    from agent_memory.summarizers.llm import LLMSummarizer
    from agent_memory.summarizers.retrying import Retry
    from agent_memory.summarizers.sliding_window import SlidingWindowSummarizer

__all__ = [
    "ExtractiveSummarizer",
    "LLMSummarizer",
    "Retry",
    "SlidingWindowSummarizer",
    "Summarizer",
    "SummaryResult",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ExtractiveSummarizer": "agent_memory.summarizers.extractive",
        "LLMSummarizer": "agent_memory.summarizers.llm",
        "Retry": "agent_memory.summarizers.retrying",
        "SlidingWindowSummarizer": "agent_memory.summarizers.sliding_window",
        "Summarizer": "agent_memory.summarizers.base",
        "SummaryResult": "agent_memory.summarizers.base",
    },
    globals(),
)
