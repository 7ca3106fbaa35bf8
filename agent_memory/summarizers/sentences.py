"""Text into sentences, and sentences into terms, in any language and without a dictionary."""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(r"[\r\n\u2028\u2029]+")
# An ender, the quotes and brackets that close with it, then white space; East Asian enders
# need none. A single letter or a number before a full stop is an initial, a date or a list
# number, not an end ("J. Fennick", "3. June").
_END: Final = re.compile(
    r"(?:(?<![\s.(]\w)(?<!^\w)(?<!^\d\d)(?<!\s\d\d)\.|[!?…؟।॥])[\"'”’»)\]*_]*\s+"  # noqa: RUF001
    r"|[。！？；｡][」』”’）]*\s*"  # noqa: RUF001
)
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Za-z]\.)*(?:approx|dept|dr|e\.g|etc|fig|i\.e|incl|mr|mrs|ms|no|nr|prof"
    r"|resp|st|vs|z\.B|d\.h|bzw|ca|usw|г|ул|стр|руб|т\.е|т\.д)\.$",  # noqa: RUF001
    re.IGNORECASE,
)
_REACH: Final = 12  # characters before an end in which an abbreviation is looked for
_MARKUP: Final = re.compile(r"^(?:[-*+•·>#|]+|\d{1,2}[.)])(?:\s+|$)")
_TABLE_RULE: Final = re.compile(r"^[\s|:+=_*~#-]*$")
_WORD: Final = re.compile(r"\d+(?:[.,:/-]\d+)*+|[^\W\d_]+(?:['’-][^\W\d_]+)*+")  # noqa: RUF001
_SCRIPT_WITHOUT_SPACES: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_SHORTEST_WORD: Final = 3
_STEM: Final = 6
"""Words that begin with the same six letters count as one: a stemmer for most languages."""


def split_sentences(text: str, max_chars: int) -> list[str]:
    """Return the sentences of a text, without list marks, blanks and rules.

    Args:
        text: any text; every line break ends a sentence, as in lists and tables.
        max_chars: longer sentences are clipped in the middle, with "…".
    """
    found: list[str] = []
    for line in _LINE.split(text):
        if _TABLE_RULE.match(line):
            continue
        found += _sentences_of(_MARKUP.sub("", line.strip()))
    return [clip(sentence, max_chars) for sentence in found if sentence]


def _sentences_of(line: str) -> list[str]:
    sentences: list[str] = []
    start = 0
    for end in _END.finditer(line):
        # Only what is near is looked at: a text may be nothing but abbreviations.
        dot = end.start() + 1
        near = line[max(start, dot - _REACH) : dot]
        if end[0].rstrip() == "." and _ABBREVIATION.search(near):
            continue
        sentences.append(line[start : end.end()].strip())
        start = end.end()
    sentences.append(line[start:].strip())
    return sentences


def clip(text: str, max_chars: int) -> str:
    """Return `text` on one line, its middle left out where it is longer than `max_chars`.

    The beginning, which tells what it is about, gets two thirds.
    """
    if len(text) > 4 * max_chars:
        # What is cut out anyway need not be searched for white space.
        text = text[: 2 * max_chars] + text[-2 * max_chars :]
    text = " ".join(text.split())
    if len(text) <= max_chars:
        return text
    room = max(max_chars - 3, 1)
    head = room * 2 // 3
    tail = room - head
    return f"{text[:head].rstrip()} … {text[len(text) - tail :].lstrip()}"


def terms_of(sentence: str) -> list[str]:
    """Return what a sentence is about: folded word stems and numbers.

    Scripts that put no spaces between words give pairs of neighbouring characters.
    """
    terms: list[str] = []
    for word in _WORD.findall(sentence):
        if word[0].isdigit():
            terms.append(word)
        elif _SCRIPT_WITHOUT_SPACES.match(word):
            terms += [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
        elif len(word) >= _SHORTEST_WORD:
            terms.append(word.casefold()[:_STEM])
    return terms
