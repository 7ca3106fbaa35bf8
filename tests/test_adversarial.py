"""What looks inside text is linear: no text that a stranger writes may stop the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from adversarial import TEXTS
from agent_memory import ConversationMessage
from agent_memory.audit.escaping import clipped, one_line, safe_json, visible
from agent_memory.audit.exporting import _escaped, _fenced
from agent_memory.models.openai import _OVERFLOW, _THOUGHT
from agent_memory.storage.urls import without_secrets
from agent_memory.summarizers.extractive import ExtractiveSummarizer
from agent_memory.summarizers.sentences import clip, split_sentences, terms_of
from agent_memory.summarizers.transcript import (
    TranscriptLimits,
    as_data,
    entries_of,
    framed,
    packed,
    shortened,
)
from agent_memory.summarizing.summarizer_call import clip_summary
from agent_memory.tokens import HeuristicTokenCounter, estimate_text_tokens

_STEP: Final = 8
_TOO_QUICK: Final = 0.01
"""CPU seconds below which nothing is measured: what is not linear takes more."""
_MOST: Final = 3 * _STEP
"""How much longer eight times the text may take: 8 if linear, 64 if quadratic."""


def _message(text: str) -> ConversationMessage:
    return ConversationMessage("user", text)


def _told(text: str) -> None:
    result = ConversationMessage("tool", text, extra={"tool_call_id": "c"})
    framed(text, entries_of([_message(text), result], TranscriptLimits()), "Write it.")


FUNCTIONS: Final[dict[str, Callable[[str], object]]] = {
    "transcript": _told,
    "transcript, as data": as_data,
    "transcript, shortened": lambda text: shortened(text, 6_000),
    "transcript, packed": lambda text: packed([text], 2_000, estimate_text_tokens),
    "sentences": lambda text: split_sentences(text, 260),
    "sentences, clipped": lambda text: clip(text, 260),
    "sentences, terms": terms_of,
    "extractive": lambda text: ExtractiveSummarizer().body([_message(text)] * 3),
    "tokens": estimate_text_tokens,
    "tokens of a message": lambda text: HeuristicTokenCounter().count(_message(text)),
    "a summary, clipped": lambda text: clip_summary(
        [_message(text)], 100, HeuristicTokenCounter().count
    ),
    "Markdown": _fenced,
    "Markdown, escaped": _escaped,
    "terminal": visible,
    "terminal, one line": one_line,
    "terminal, clipped": lambda text: clipped(text, 80),
    "terminal, JSON": safe_json,
    "a model's thoughts": lambda text: _THOUGHT.sub("", text),
    "a model's error": _OVERFLOW.search,
    "an address": without_secrets,
}


def _cpu_seconds(function: Callable[[str], object], text: str) -> float:
    """The thread's CPU time: what else the machine does hardly counts."""
    began = time.thread_time()
    function(text)
    return time.thread_time() - began


def _growth(function: Callable[[str], object], make: Callable[[int], str], size: int) -> float:
    """Return how many times as long `_STEP` times as much of a text takes."""
    small, large = make(size), make(_STEP * size)
    times = [_cpu_seconds(function, large)]
    if times[0] < _TOO_QUICK:
        return 1.0
    before = [_cpu_seconds(function, small) for _ in range(5)]
    while (growth := min(times) / max(min(before), 1e-5)) > _MOST and len(times) < 4:
        times.append(_cpu_seconds(function, large))
    return growth


@pytest.mark.parametrize("size", [2_000, pytest.param(8_000, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_c98_text_functions_are_linear(name, size):
    """Of each adversarial text eight times as much takes about eight times as long.

    A ratio of CPU times, each the least of several, so that a busy machine does not matter.
    What takes next to no time passes without being measured.
    """
    for text, make in TEXTS.items():
        assert _growth(FUNCTIONS[name], make, size) <= _MOST, text


@pytest.mark.soak
@pytest.mark.parametrize("name", FUNCTIONS)
def test_c98_a_megabyte_of_hostile_text_is_read_in_linear_time(name):
    """Each kind of text up to a megabyte."""
    for text, make in TEXTS.items():
        assert _growth(FUNCTIONS[name], make, 1_000_000 // _STEP) <= _MOST, text
