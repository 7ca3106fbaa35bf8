"""The sentences of a text, and the most informative of them: no dictionary, any language."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from agent_memory.providers.text import cut_middle

_LINE: Final = re.compile(r"[\r\n\u2028\u2029]+")
# An ender, what closes with it, then white space; East Asian enders need none. A letter or a
# number of two digits before a full stop is an initial, a date or a list's number.
_END: Final = re.compile(
    r"(?:(?<![\s.(]\w)(?<!^\w)(?<!^\d\d)(?<!\s\d\d)\.|[!?…؟।॥])[\"'”’»)\]*_]*\s+"  # noqa: RUF001
    r"|[。！？；｡][」』”’）]*\s*"  # noqa: RUF001
)
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Za-z]\.)*(?:approx|dr|e\.g|etc|fig|i\.e|mrs?|ms|no|nr|prof|st|vs"
    r"|z\.B|d\.h|bzw|ca|г|ул|стр|руб|т\.[ед])\.$",  # noqa: RUF001
    re.IGNORECASE,
)
_REACH: Final = 12  # characters before an end in which an abbreviation is looked for
_MARKUP: Final = re.compile(r"^(?:[-*+•·>#|]+|\d{1,2}[.)])(?:\s+|$)")
_RULE: Final = re.compile(r"^[\s|:+=_*~#-]*$")
_WORD: Final = re.compile(r"\d+(?:[.,:/-]\d+)*+|[^\W\d_]+(?:['’-][^\W\d_]+)*+")  # noqa: RUF001
_WITHOUT_SPACES: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_SHORTEST_WORD: Final = 3
_STEM: Final = 6  # words that begin with the same six letters count as one
_DECISION: Final = re.compile(
    r"\b(?:decid|agree|book|reserv|confirm|cancel|approv|refus|must|never|always|deadline|due\b"
    r"|prefer|allerg|important|remember|promise|budget|password|address|entschied|beschl|gebucht"
    r"|vereinbar|muss\b|niemals|wichtig|stornier|décid|réserv|annul|doit\b|jamais|cancelad|debe\b"
    r"|реш[еил]|договорил|забронир|подтвер|отмен|долж|нельзя|важно|никогда|предпочит|аллерг)"
    r"|决定|確定|确定|确认|確認|必须|必須|不能|取消|预订|預訂|重要|记住|過敏|过敏|決定|予約|결정|예약|확인|취소",
    re.IGNORECASE,
)
_FEW_TERMS: Final = 4
_NUMBER: Final = re.compile(r"\d")
_ID: Final = re.compile(r"[A-Z]-?\d|\d[A-Z]|\d{3}")  # SK-48213, 3B, 412
_CANDIDATES: Final = 12  # sentences that are looked at for each that is chosen
_REPEATED: Final = 0.35  # the share of its worth that a term keeps once it was chosen


@attrs.frozen
class Sentence:
    """A sentence of a conversation.

    Args:
        speaker: its speaker, as shown.
        text: the sentence, on one line.
        weight: how much it counts beside others, 1 being usual.
    """

    speaker: str
    text: str
    weight: float = 1.0

    def __str__(self) -> str:
        return f"- {self.speaker}: {self.text}"


def split_sentences(text: str, max_chars: int) -> list[str]:
    """Return the sentences of a text, without list marks, blanks and rules.

    Args:
        text: any text; every line break ends a sentence, as in lists and tables.
        max_chars: longer sentences are clipped in the middle, with "…".
    """
    lines = (_MARKUP.sub("", line.strip()) for line in _LINE.split(text) if not _RULE.match(line))
    return [clip(piece, max_chars) for line in lines for piece in _pieces(line) if piece]


def _pieces(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        # Only what is near is looked at: a text may be nothing but abbreviations.
        dot = end.start() + 1
        near = line[max(start, dot - _REACH) : dot]
        if end[0].rstrip() == "." and _ABBREVIATION.search(near):
            continue
        yield line[start : end.end()].strip()
        start = end.end()
    yield line[start:].strip()


def clip(text: str, max_chars: int) -> str:
    """Return `text` on one line, its middle left out where it is longer than `max_chars`."""
    # What is cut out anyway need not be read.
    text = " ".join(cut_middle(text, 4 * max_chars, "").split())
    if len(text) <= max_chars:
        return text
    room = max(max_chars - 3, 1)
    # The beginning says what it is about: it gets two thirds.
    return " ".join(cut_middle(text, room, " … ", head=room * 2 // 3).split())


def terms_of(sentence: str) -> list[str]:
    """Return what a sentence is about: folded word stems and numbers.

    Scripts that put no spaces between words give pairs of neighbouring characters.
    """
    terms: list[str] = []
    for word in _WORD.findall(sentence):
        if word[0].isdigit():
            terms.append(word)
        elif _WITHOUT_SPACES.match(word):
            terms += [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
        elif len(word) >= _SHORTEST_WORD:
            terms.append(word.casefold()[:_STEM])
    return terms


def choose(sentences: Sequence[Sentence], max_sentences: int, max_chars: int) -> list[Sentence]:
    """Return the most informative sentences, in the order given.

    A greedy choice: the best first, and its terms count less in all others, so that a
    fact repeated ten times is chosen once. Linear in the length of the text.

    Args:
        sentences: a conversation's, oldest first.
        max_sentences: how many to choose at most.
        max_chars: how long they may be together, speakers and a line break each included.
    """
    terms = [frozenset(terms_of(sentence.text)) for sentence in sentences]
    counts = Counter(term for found in terms for term in found)
    # What every other sentence has says nothing.
    worth = {term: math.log1p(n) * math.log((len(terms) + 1) / n) for term, n in counts.items()}
    scores = [
        # What is nearer to what follows counts a little more.
        (0.9 + 0.2 * at / len(terms)) * _score(sentence, terms[at], worth)
        for at, sentence in enumerate(sentences)
    ]
    heap = [(-score, at) for at, score in enumerate(scores) if score > 0]
    heap = heapq.nsmallest(_CANDIDATES * max_sentences, heap)
    chosen_terms: Counter[str] = Counter()
    chosen: list[int] = []
    while heap and max_sentences:
        _, at = heapq.heappop(heap)
        score = scores[at] * _news(terms[at], chosen_terms, worth)
        if heap and score < -heap[0][0]:  # what was picked since makes another one better
            heapq.heappush(heap, (-score, at))
            continue
        chosen_terms.update(terms[at])
        max_sentences -= 1
        length = len(str(sentences[at])) + 1
        if length <= max_chars:
            chosen.append(at)
            max_chars -= length
    return [sentences[at] for at in sorted(chosen)]


def _score(sentence: Sentence, terms: frozenset[str], worth: dict[str, float]) -> float:
    # The square root lies between the sum, which favours long sentences, and the mean.
    information = sum(worth[term] for term in terms) / math.sqrt(len(terms) + 2)
    facts = 1.0
    for pattern in (_NUMBER, _ID, _DECISION):
        facts += 0.5 * (pattern.search(sentence.text) is not None)
    return information * facts * sentence.weight * (0.5 if len(terms) < _FEW_TERMS else 1.0)


def _news(terms: frozenset[str], chosen_terms: Counter[str], worth: dict[str, float]) -> float:
    """How much of a sentence is new, from 0 to 1."""
    fresh = sum(worth[term] * _REPEATED ** chosen_terms[term] for term in terms)
    return fresh / (sum(worth[term] for term in terms) or 1.0)
