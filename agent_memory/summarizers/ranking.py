"""Which sentences of a conversation carry the most: scores, and a choice without repetition."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.summarizers.sentences import terms_of

_NUMBER: Final = re.compile(r"\d")
_CODE: Final = re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d_])[\w-]{4,}\b|\b[A-Z]{2,}-?\d+")
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d\d|\d{1,2}\s*[月日年]"
    r"|\b\d{1,2}\.?\s+[^\W\d_]{3,9}\b|[^\W\d_]{3,9}\s+\d{1,2}(?:st|nd|rd|th)?\b"
)
_NAME: Final = re.compile(r"(?<=[^\s.!?:]\s)[A-ZÀ-ÖØ-ÞА-ЯЁΑ-Ω][^\W\d_]{2,}")
_DECISION: Final = re.compile(
    r"\b(?:decid|decision|agree|book|reserv|confirm|cancel|approv|refus|must|never|always"
    r"|deadline|due\b|prefer|allerg|important|remember|promise|budget|password|address"
    r"|entschied|beschl|gebucht|reserviert|vereinbar|muss\b|niemals|wichtig|stornier"
    r"|décid|réserv|confirmé|annul|doit\b|jamais|decidid|reserva|confirmad|cancelad|debe\b"
    r"|реш[еил]|договорил|забронир|подтвер|отмен|долж|нельзя|важно|никогда|предпочит|аллерг)"
    r"|决定|確定|确定|确认|確認|必须|必須|不能|取消|预订|預訂|重要|记住|過敏|过敏|決定|予約|결정|예약|확인|취소",
    re.IGNORECASE,
)

_BONUS_NUMBER: Final = 0.25
_BONUS_CODE: Final = 0.3
_BONUS_DATE: Final = 0.3
_BONUS_NAME: Final = 0.2
_BONUS_DECISION: Final = 0.5
_FEW_TERMS: Final = 4
_REPEATED: Final = 0.35
"""A term that is already told counts this much of what it counted before."""
_CANDIDATES_PER_CHOICE: Final = 12


@attrs.frozen
class Sentence:
    """A sentence of a conversation.

    Args:
        speaker: whose it is, as it is shown.
        text: the sentence, on one line.
        weight: how much it counts beside others, 1 being usual.
    """

    speaker: str
    text: str
    weight: float = 1.0


def choose(sentences: Sequence[Sentence], max_sentences: int, max_chars: int) -> list[Sentence]:
    """Return the sentences that tell most, in the order given.

    A greedy choice: the best first, and what it told counts less in all others, so that a
    fact repeated ten times is chosen once. Linear in the length of the text.

    Args:
        sentences: a conversation's, oldest first.
        max_sentences: how many to choose at most.
        max_chars: how long they may be together, speakers and a line break each included.
    """
    terms = [frozenset(terms_of(sentence.text)) for sentence in sentences]
    weights = _term_weights(terms)
    scores = [
        _score(sentence, found, weights, at / len(sentences))
        for at, (sentence, found) in enumerate(zip(sentences, terms, strict=True))
    ]
    best = heapq.nlargest(
        max_sentences * _CANDIDATES_PER_CHOICE,
        range(len(sentences)),
        key=lambda at: (scores[at], -at),
    )
    chosen = _spread({at: scores[at] for at in best}, terms, weights, max_sentences)
    return [sentences[at] for at in sorted(_fitting(chosen, sentences, max_chars))]


def line_of(sentence: Sentence) -> str:
    """Return how a chosen sentence is written."""
    return f"- {sentence.speaker}: {sentence.text}"


def _term_weights(terms: Sequence[frozenset[str]]) -> dict[str, float]:
    """Weigh terms by how often they occur; what every other sentence has says nothing."""
    counts = Counter(term for found in terms for term in found)
    total = len(terms) + 1
    return {term: math.log1p(count) * math.log(total / count) for term, count in counts.items()}


def _score(
    sentence: Sentence, terms: frozenset[str], weights: dict[str, float], age: float
) -> float:
    if not terms:
        return 0.0
    # The square root lies between the sum, which favours long sentences, and the mean,
    # which favours single words.
    told = sum(weights[term] for term in terms) / math.sqrt(len(terms) + 2)
    short = 0.5 if len(terms) < _FEW_TERMS else 1.0
    return told * short * sentence.weight * _bonus(sentence.text) * (0.9 + 0.2 * age)


def _bonus(text: str) -> float:
    bonus = 1.0
    if _NUMBER.search(text):
        bonus += _BONUS_NUMBER
        bonus += _BONUS_CODE if _CODE.search(text) else 0
        bonus += _BONUS_DATE if _DATE.search(text) else 0
    if _NAME.search(text):
        bonus += _BONUS_NAME
    if _DECISION.search(text):
        bonus += _BONUS_DECISION
    return bonus


def _spread(
    scores: dict[int, float],
    terms: Sequence[frozenset[str]],
    weights: dict[str, float],
    count: int,
) -> list[int]:
    """Choose greedily, best first, looking again only at what comes to the top of the heap."""
    told: Counter[str] = Counter()
    heap = [(-score, at) for at, score in scores.items() if score > 0]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < count:
        _, at = heapq.heappop(heap)
        score = scores[at] * _news(terms[at], told, weights)
        if heap and score < -heap[0][0]:
            heapq.heappush(heap, (-score, at))
            continue
        chosen.append(at)
        told.update(terms[at])
    return chosen


def _news(terms: frozenset[str], told: Counter[str], weights: dict[str, float]) -> float:
    """How much of what a sentence tells has not been told, from 0 to 1."""
    whole = sum(weights[term] for term in terms)
    fresh = sum(weights[term] * _REPEATED ** told[term] for term in terms)
    return fresh / whole if whole else 0.0


def _fitting(chosen: list[int], sentences: Sequence[Sentence], max_chars: int) -> list[int]:
    fitting: list[int] = []
    left = max_chars
    for at in chosen:
        length = len(line_of(sentences[at])) + 1
        if length <= left:
            fitting.append(at)
            left -= length
    return fitting
