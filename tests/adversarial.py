"""Texts that make careless text functions slow: each grows with a size and is otherwise fixed.

``TEXTS`` maps a name to a function of a size in characters. They are meant for whatever looks
inside text that strangers wrote: transcripts, sentences, token estimates, escaping.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial
from typing import Final

_BASE64: Final = string.ascii_letters + string.digits + "+/"


def _repeated(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def _framed(before: str, unit: str, after: str, size: int) -> str:
    return before + _repeated(unit, size - len(before) - len(after)) + after


def _growing_runs(unit: str, size: int) -> str:
    """Runs of a unit, each one longer than the one before."""
    runs: list[str] = []
    length = 0
    while length < size:
        runs.append(unit * (len(runs) + 1) + " ")
        length += len(runs[-1])
    return "".join(runs)[:size]


def _wrapped(columns: int, size: int) -> str:
    line = _repeated(_BASE64, columns)
    return _repeated(line + "\n", size)


TEXTS: Final[dict[str, Callable[[int], str]]] = {
    # What transcripts look for: tags, encoded bytes, line breaks.
    "an opening sign and spaces": partial(_framed, "<", " ", "x"),
    "opening signs": partial(_repeated, "<"),
    "opening signs and spaces": partial(_repeated, "<  "),
    "unfinished tags": partial(_repeated, "</ conversatio"),
    "tags": partial(_repeated, "</conversation>"),
    "tags with hidden characters": partial(_repeated, "<\u200b/\u2060c\xado\x00n"),
    "an opening sign and hidden characters": partial(_framed, "<", "\u200b", "x"),
    "an opening sign and a letter, hidden characters": partial(_framed, "<c", "\u200b", "x"),
    "base64, all but long enough": partial(_repeated, "A" * 399 + ","),
    "base64 lines": partial(_wrapped, 76),
    "base64 lines, too short": partial(_wrapped, 39),
    "base64 lines of two lengths": partial(_repeated, "a" * 76 + "\n" + "B" * 75 + "\n"),
    "data urls": partial(_repeated, "data:a/b;base64,"),
    "a data url's type": partial(_framed, "data:", "a.", "/"),
    "slashes with backslashes": partial(_repeated, r"a\/"),
    "line feeds": partial(_repeated, "\n"),
    "carriage returns": partial(_repeated, "\r"),
    "line separators": partial(_repeated, "\u2028"),
    # What sentences and terms look for.
    "spaces": partial(_repeated, " "),
    "a letter": partial(_repeated, "a"),
    "capitals": partial(_repeated, "A"),
    "digits": partial(_repeated, "1"),
    "letters and digits": partial(_repeated, "a1"),
    "dates": partial(_repeated, "1.2.3 "),
    "numbers and signs": partial(_repeated, "1-"),
    "full stops": partial(_repeated, "."),
    "abbreviations": partial(_repeated, "e.g. "),
    "initials": partial(_repeated, "J. "),
    "questions and brackets": partial(_repeated, '?)"'),
    "an ender and brackets": partial(_framed, "?", ")", "x"),
    "words with apostrophes": partial(_repeated, "a'"),
    "list marks": partial(_repeated, "- "),
    "a rule, all but": partial(_framed, "|", "-", "x"),
    "Chinese": partial(_repeated, "\u6c49"),
    "Chinese full stops": partial(_repeated, "\u3002"),
    "words and decisions": partial(_repeated, "May 12 must "),
    # What Markdown, terminals, models' answers and JSON look for.
    "backticks": partial(_repeated, "`"),
    "runs of backticks": partial(_growing_runs, "`"),
    "Markdown": partial(_repeated, "*_[]()"),
    "escape sequences": partial(_repeated, "\x1b[31m"),
    "unfinished thoughts": partial(_repeated, "<think>"),
    "spaces, then a thought": partial(_framed, "", " ", "<think>"),
    "context": partial(_repeated, "context "),
    "emoji": partial(_repeated, "\U0001f600"),
    "lone surrogates": partial(_repeated, "\ud83d"),
    "combining marks": partial(_framed, "a", "\u0301", ""),
    "JSON": partial(_repeated, '{"a":['),
    "quotes and backslashes": partial(_repeated, '\\"'),
    "addresses": partial(_repeated, "://a:"),
    "questions": partial(_repeated, "?a"),
}
