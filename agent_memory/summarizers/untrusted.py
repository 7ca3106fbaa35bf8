"""Cleaning of untrusted text for transcripts, in linear time.

Python's ``re`` holds the interpreter while it searches, so that no time-out can stop a pattern
that backtracks. The patterns here read each character a bounded number of times: repeats that
something follows are possessive (``*+``), and none starts again within what another has read.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Final, TypeAlias

# --------------------------------------------------------------------- the transcript's own tags

_OWN_TAGS: Final = frozenset({"conversation", "previous_summary"})
"""The tags that frame a transcript, see :func:`agent_memory.summarizers.transcript.framed`."""

# Characters that are not seen: controls, the soft hyphen, marks that combine with the character
# before them or choose a variant of it, fillers, zero widths, marks of direction, surrogates.
_HIDDEN: Final = (
    "\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u1ab0-\u1aff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u20d0-\u20ff\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_OPENING: Final = "<\u02c2\u1438\u2039\u2329\u276e\u27e8\u3008\ufe64\uff1c"
_SLASHES: Final = "/\u2044\u2215\u29f8\uff0f"
_LOW_LINES: Final = "\ufe33\ufe34\ufe4d-\ufe4f\uff3f"
# An opening sign, perhaps a slash, and a word about as long as a tag's name. Behind the sign
# nothing matches another opening sign, so that no character is read for two of them.
_TAG: Final = re.compile(
    rf"[{_OPENING}](?=[\s{_HIDDEN}]*+(?:[{_SLASHES}][\s{_HIDDEN}]*+)?"
    rf"((?:(?:[^\W{_HIDDEN}]|[{_LOW_LINES}])[{_HIDDEN}]*+){{12,17}}))"
)
_UNSEEN: Final = re.compile(f"[{_HIDDEN}]+")
# Cyrillic and Greek letters that look like Latin ones.
_ALIKE: Final = str.maketrans("асеіоруѕтмѵαινορτυ", "aceiopystmvaivoptu")


def without_own_tags(text: str) -> str:
    """Return a text that holds no tag of the transcript's, nor what reads like one."""
    return _TAG.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    seen = unicodedata.normalize("NFKD", _UNSEEN.sub("", found[1]))
    name = _UNSEEN.sub("", seen).casefold().translate(_ALIKE)
    return "&lt;" if name in _OWN_TAGS else found[0]


# ----------------------------------------------------------------------------- encoded bytes

_LEAST: Final = 400
"""Fewer characters are not taken for encoded bytes: they may be an id, a hash or a key."""
_SHORTEST_LINE: Final = 40
_SAMPLE: Final = 4_000
_HASH_LENGTHS: Final = frozenset({32, 40, 56, 64, 96, 128})
"""Lines of this many hexadecimal digits list checksums (MD5, SHA-1, SHA-2)."""

_CHARACTER: Final = "A-Za-z0-9+/_-"  # base64, base64url and hexadecimal
# JSON may escape slashes, and escapes line breaks; a tool's text is often JSON within JSON.
_LINE: Final = rf"(?:[{_CHARACTER}]++|\\/)++={{0,2}}"
_BREAK: Final = r"[ \t]{0,8}(?:\r?\n|\r|(?:\\{1,4}r)?\\{1,4}n)[ \t>|]{0,8}"
_BLOCK: Final = re.compile(
    rf"(?<![{_CHARACTER}])(?=(?:[{_CHARACTER}]|\\/){{16}}){_LINE}"
    rf"(?:{_BREAK}(?=(?:[{_CHARACTER}]|\\/){{12}}){_LINE})*+"
)
_BETWEEN: Final = re.compile(_BREAK)
_HEX: Final = frozenset(string.hexdigits)
_UPPER: Final = frozenset(string.ascii_uppercase)

_Lines: TypeAlias = Sequence[tuple[int, int]]


def without_encoded(text: str) -> str:
    """Return a text in which encoded bytes are replaced by their length.

    Base64, base64url and hexadecimal are found in one run (as in ``data:`` URLs) or wrapped to
    lines of one length (MIME, PEM, ``base64``, ``xxd``), at 400 characters or more.
    """
    return _BLOCK.sub(_replaced, text)


def _replaced(found: re.Match[str]) -> str:
    block = found[0]
    if len(block) < _LEAST:
        return block
    lines = _lines_of(block)
    shown: list[str] = []
    at = copied_to = 0
    while at < len(lines):
        start, after = lines[at][0], _as_long(lines, at)
        if _are_encoded(block, lines[at:after]):
            after += _ends_with(block, lines, after)
            stop = lines[after - 1][1]
            shown += [block[copied_to:start], f"[{stop - start} characters of encoded data]"]
            copied_to = stop
        at = after
    return "".join([*shown, block[copied_to:]])


def _lines_of(block: str) -> _Lines:
    """Return where each line of a block starts and stops."""
    breaks = [found.span() for found in _BETWEEN.finditer(block)]
    starts = [0, *(stop for _, stop in breaks)]
    return list(zip(starts, [*(start for start, _ in breaks), len(block)], strict=True))


def _as_long(lines: _Lines, at: int) -> int:
    """Return where the lines end that are as long as the one at `at`, and follow it."""
    length = lines[at][1] - lines[at][0]
    after = at + 1
    while after < len(lines) and lines[after][1] - lines[after][0] == length:
        after += 1
    return after


def _are_encoded(block: str, lines: _Lines) -> bool:
    length, whole = lines[0][1] - lines[0][0], lines[-1][1] - lines[0][0]
    if whole < _LEAST or length < _SHORTEST_LINE:
        return False
    if len(lines) == 1:
        return True
    # Lists of paths, names or checksums may have lines of one length too.
    sample = "".join([block[start:stop] for start, stop in lines[: 1 + _SAMPLE // length]])
    if _HEX.issuperset(sample):
        return length not in _HASH_LENGTHS
    capitals = sum(map(sample.count, _UPPER))
    return capitals * 16 > len(sample) > sample.count("/") * 16


def _ends_with(block: str, lines: _Lines, after: int) -> bool:
    """Whether the line behind encoded ones is what their last line holds: less, and no word."""
    if after == len(lines) or block[lines[after - 1][1] - 1] == "=":
        return False
    line = block[slice(*lines[after])]
    length = lines[after - 1][1] - lines[after - 1][0]
    return len(line) < length and (line.endswith("=") or not line.isalpha())
