"""A conversation as text that a model can summarize: all of it data, none of it instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, parts
from agent_memory.providers.text import cut_middle
from agent_memory.summarizers.untrusted import without_encoded, without_own_tags

_INDENT: Final = "    "
_LINE_BREAK: Final = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
_SAID: Final = ("text", "other")
_WHO: Final = 80
_SHORTEST_PIECE: Final = 120
"""More than the repeated "who (continued)", so that parting always comes to an end."""
_MOST_CHARS_A_TOKEN: Final = 12
_SPLIT_SLACK: Final = 400
"""How far before its end a piece of a long text may be parted at a line break or a space."""


@attrs.frozen
class TranscriptLimits:
    """How much of a tool exchange is shown; what is said in words is always shown whole.

    Args:
        result: characters of one tool result, in which the middle is left out beyond that.
        call: characters of one call's arguments, likewise.
    """

    result: int = 6_000
    call: int = 3_000


def entries_of(messages: Iterable[ConversationMessage], limits: TranscriptLimits) -> list[str]:
    """Return the transcript, an entry for each part that says or does something.

    Every entry begins with who speaks, in the first column; all further lines are indented, so
    that no text can pass for another entry. Calls and results share a number. Pictures and
    files are named, encoded bytes counted; reasoning and metadata are left out.
    """
    numbers: dict[str, int] = {}
    return [
        entry
        for message in messages
        for part in parts(message)
        for entry in _entries(part, message.role.value, numbers, limits)
    ]


def _entries(
    part: Part, role: str, numbers: dict[str, int], limits: TranscriptLimits
) -> Iterator[str]:
    # Of a block that no format knows, what a person could read is told.
    if part.kind in _SAID and part.text.strip():
        yield f"{role}: {as_data(part.text)}"
    elif part.kind == "media":
        yield f"{role}: [{_medium(part)}]"
    elif part.kind == "call":
        number = numbers.setdefault(part.id or "", len(numbers) + 1)
        shown = as_data(shortened(part.arguments, limits.call))
        yield f"{role} calls tool {as_data(part.name or '?')} (#{number}): {shown}"
    elif part.kind == "result":
        yield _result(part, numbers, limits)


def _result(part: Part, numbers: dict[str, int], limits: TranscriptLimits) -> str:
    number = numbers.get(part.id or "")
    which = "" if number is None else f" #{number}"
    outcome = "error" if part.is_error else "result"
    media = [f"[{_medium(inner)}]" for inner in part.inner if inner.kind == "media"]
    shown = " ".join([as_data(shortened(part.text, limits.result)).strip(), *media]).strip()
    return f"tool {outcome}{which}: {shown or '(empty)'}"


def _medium(part: Part) -> str:
    return part.name or "attachment"


def shortened(text: str, max_chars: int) -> str:
    """Return a text, its middle replaced by its length where it is too long.

    Encoded bytes are replaced by their length, however short the text is.
    """
    text = without_encoded(text)
    mark = f"\n[… {len(text) - max_chars} of {len(text)} characters left out …]\n"
    return cut_middle(text, max_chars, mark, head=max_chars * 2 // 3)


def as_data(text: str) -> str:
    """Return a text that can neither end the transcript nor begin an entry of it."""
    without_tags = without_own_tags(without_encoded(text))
    return _LINE_BREAK.sub("\n" + _INDENT, without_tags.strip())


def framed(previous: str, entries: Sequence[str], request: str, part: str = "") -> str:
    """Return the text for the model: the summary so far, the conversation, what is asked for.

    Args:
        previous: the summary so far, which the model updates; ``""`` for none.
        entries: of :func:`entries_of`.
        request: what to do, said last.
        part: which part of a long conversation this is, such as ``"2 of 3"``.
    """
    sections: list[str] = []
    if previous:
        sections.append(f"<previous_summary>\n{as_data(previous)}\n</previous_summary>")
    which = f' part="{part}"' if part else ""
    sections.append(f"<conversation{which}>\n" + "\n".join(entries) + "\n</conversation>")
    return "\n\n".join([*sections, request])


def packed(
    entries: Iterable[str], max_tokens: int, count: Callable[[str], int]
) -> list[list[str]]:
    """Return entries in pieces of at most `max_tokens`; entries that are longer are parted.

    Args:
        entries: of :func:`entries_of`; nothing of them is left out.
        max_tokens: how many tokens a piece may have, at least 1.
        count: counts the tokens of a text.
    """
    pieces: list[list[str]] = []
    left = 0
    for entry in entries:
        for part in _parted(entry, max_tokens, count):
            tokens = count(part) + 1
            if not pieces or tokens > left:
                pieces.append([])
                left = max_tokens
            pieces[-1].append(part)
            left -= tokens
    return pieces


def _parted(entry: str, max_tokens: int, count: Callable[[str], int]) -> Iterator[str]:
    who = entry.partition(":")[0][:_WHO]
    # Emoji take two tokens each, blanks next to none: what is read of a long text at a time
    # follows from the piece before, so that none of it is counted over and over.
    window, widest = max_tokens * 4, max_tokens * _MOST_CHARS_A_TOKEN
    again, at = "", 0
    while True:
        text = again + entry[at : at + window]
        if count(text) + 1 <= max_tokens:
            if at + window >= len(entry):
                yield text
                return
            if window < widest:
                window = min(2 * window, widest)
                continue
        size = _fitting_size(text, max_tokens, count)
        window = min(2 * size, widest)
        yield text[:size]
        at += size - len(again)
        again = f"{who} (continued): "


def _fitting_size(text: str, max_tokens: int, count: Callable[[str], int]) -> int:
    """Return how much of the beginning of a text makes one piece."""
    least = min(_SHORTEST_PIECE, len(text))
    size = min(len(text), max(least, len(text) * max_tokens // max(count(text), 1)))
    while size > least and count(text[:size]) + 1 > max_tokens:
        size = max(least, size * 9 // 10)
    if size < len(text):
        for mark in ("\n", " "):
            at = text.rfind(mark, max(least, size - _SPLIT_SLACK), size)
            if at > 0:
                return at + 1
    return size
