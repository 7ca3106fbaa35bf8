"""How many tokens a message takes in a model's context: estimates and exact counts.

Nothing here reads a bill. What a provider reported (``message.usage``) is always better; these
counts serve for what came after the last report, and where there is none.

Of a text the bytes of each kind of character are counted with ``bytes.translate``, which runs at
about a gigabyte a second: in UTF-8 the lead byte of a character tells its script. The weights
were fitted to OpenAI's o200k vocabulary on prose, code, JSON, logs, ids and the translations
of a large program into 35 languages, aiming at 1.2 times the true count.
"""

from __future__ import annotations

import abc
import logging
import string
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast, runtime_checkable

from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import media_in, parts
from agent_memory.providers.part import Part, to_json

__all__ = ["HeuristicTokenCounter", "TiktokenCounter", "TokenCounter"]

_log = logging.getLogger(__name__)

MESSAGE_OVERHEAD: Final = 4
"""Tokens a message costs beside its content: three that frame it and one for the role.

Source: "How to count tokens with tiktoken", https://cookbook.openai.com/examples/
how_to_count_tokens_with_tiktoken."""
CALL_OVERHEAD: Final = 8
"""Tokens that frame a tool call or a result, its id included; measured on o200k prompts."""

MEDIA_TOKENS: Final[Mapping[str, int]] = {
    "image": 1_600,
    "document": 3_000,
    "audio": 2_000,
    "video": 10_000,
}
"""What a picture, document, recording or film counts, whatever its size in bytes.

An image is at most about 1,600 tokens with Anthropic (https://docs.anthropic.com/en/docs/
build-with-claude/vision) and about 1,100 with OpenAI's 2,048 pixel limit; a page of a PDF is
1,500 to 3,000 (https://docs.anthropic.com/en/docs/build-with-claude/pdf-support). Recordings
and films are billed by their length, which is not in the message; two minutes and one."""

_UNKNOWN_BLOCK_LIMIT: Final = 2_000
"""A block that no provider format knows may hold encoded bytes; it counts at most this much."""


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of messages. Called often: it should be quick, and must be plain."""

    def count(self, message: ConversationMessage) -> int:
        """Return how many tokens the message takes in a model's context, its frame included."""
        ...


class _Counted(weakref.ref[ConversationMessage]):
    """What a message takes, for as long as it lives."""

    __slots__ = ("place", "tokens")
    place: int
    tokens: int


class _PerMessage(abc.ABC):
    """Counts each message object once; a count lives as long as its message.

    By identity: ids are unique within a chat only, so that messages of many chats may hash
    alike, and comparing them by value would make counting slower with every chat.
    """

    def __init__(self) -> None:
        counts: dict[int, _Counted] = {}

        def forget(gone: weakref.ref[ConversationMessage]) -> None:
            place = cast("_Counted", gone).place
            if counts.get(place) is gone:
                del counts[place]

        self._counts = counts
        self._forget = forget

    def count(self, message: ConversationMessage) -> int:
        """Return how many tokens the message takes in a model's context, its frame included."""
        place = id(message)
        known = self._counts.get(place)
        if known is not None and known() is message:
            return known.tokens
        tokens = self._count(message)
        counted = self._counts[place] = _Counted(message, self._forget)
        counted.place, counted.tokens = place, tokens
        return tokens

    @abc.abstractmethod
    def _count(self, message: ConversationMessage) -> int: ...


class _CountingParts(_PerMessage):
    """Counts the parts of a message, given a way to count text."""

    def __init__(self, media_tokens: Mapping[str, int] | None) -> None:
        super().__init__()
        self._media = {**MEDIA_TOKENS, **_checked_media(media_tokens or {})}

    @abc.abstractmethod
    def count_text(self, text: str) -> int:
        """Return how many tokens a text takes."""

    def _count(self, message: ConversationMessage) -> int:
        content = message.content
        if type(content) is str and not message.extra:
            return MESSAGE_OVERHEAD + self.count_text(content)
        return MESSAGE_OVERHEAD + sum([self._part(part) for part in parts(message)])

    def _part(self, part: Part) -> int:
        if part.kind == "media":
            return self._media_part(part)
        if part.kind == "call":
            return CALL_OVERHEAD + self.count_text(f"{part.name or ''} {part.arguments}")
        if part.kind == "result":
            media = [self._part(inner) for inner in part.inner if inner.kind == "media"]
            return CALL_OVERHEAD + self.count_text(part.text) + sum(media)
        if part.kind == "other":
            return min(self.count_text(to_json(part.raw)), _UNKNOWN_BLOCK_LIMIT)
        return self.count_text(part.text)

    def _media_part(self, part: Part) -> int:
        flat = self._media.get(part.name or "", self._media["document"])
        media = media_in(part) if part.name == "document" else None
        # A document given as text is read as text, however long.
        return flat if media is None or media.text is None else self.count_text(media.text)


def _checked_media(costs: Mapping[str, int]) -> Mapping[str, int]:
    for kind, cost in costs.items():
        if kind not in MEDIA_TOKENS or type(cost) is not int or cost < 0:
            raise InvalidRequestError(
                f"media_tokens maps {', '.join(MEDIA_TOKENS)} to ints of at least 0, "
                f"not {kind!r} to {cost!r}"
            )
    return costs


class HeuristicTokenCounter(_CountingParts):
    """Estimates tokens from the kinds of characters, without any vocabulary.

    Between 0.9 and 1.6 times what OpenAI's o200k vocabulary counts on chats of usual length,
    in English, code, JSON and most other scripts; it errs high. A message of 200 characters
    costs a few microseconds. Single short sentences deviate more, sums less.

    Args:
        media_tokens: flat costs that replace some of :data:`MEDIA_TOKENS`.

    Raises:
        InvalidRequestError: a cost is negative or for an unknown kind.
    """

    def __init__(self, *, media_tokens: Mapping[str, int] | None = None) -> None:
        super().__init__(media_tokens)

    def count_text(self, text: str) -> int:
        """Return about how many tokens a text takes; 0 for the empty one."""
        return estimate_text_tokens(text)


class TiktokenCounter(_CountingParts):
    """Counts text exactly with OpenAI's tokenizer; needs the extra ``tiktoken``.

    The vocabulary is downloaded by tiktoken when it is first used. Where that fails, the
    heuristic stands in and one warning is logged. Text that looks like a special token
    (``<|endoftext|>``) is counted as the text it is.

    Args:
        encoding: the name of a tiktoken encoding, or such an encoding itself.
        media_tokens: flat costs that replace some of :data:`MEDIA_TOKENS`.

    Raises:
        MissingDependencyError: tiktoken is not installed.
        InvalidRequestError: tiktoken knows no encoding of that name.
    """

    def __init__(
        self, encoding: Any = "o200k_base", *, media_tokens: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(media_tokens)
        self._encode = (
            _load_encoding(encoding) if isinstance(encoding, str) else encoding.encode_ordinary
        )

    def count_text(self, text: str) -> int:
        """Return how many tokens a text takes."""
        if self._encode is None:
            return estimate_text_tokens(text)
        return len(self._encode(text))


def _load_encoding(name: str) -> Callable[[str], list[int]] | None:
    try:
        import tiktoken  # noqa: PLC0415  an optional extra, imported where it is needed
    except ImportError as error:
        raise MissingDependencyError("tiktoken", "tiktoken") from error
    try:
        return tiktoken.get_encoding(name).encode_ordinary
    except ValueError as error:
        if "Unknown encoding" in str(error):
            raise InvalidRequestError(f"tiktoken knows no encoding {name!r}") from error
        _warn_estimating(name, error)
    except Exception as error:  # noqa: BLE001  a download fails in any way a network does
        _warn_estimating(name, error)
    return None


def _warn_estimating(name: str, error: Exception) -> None:
    _log.warning(
        "tiktoken cannot load the encoding %r (%s: %s); tokens are estimated instead. Put the "
        "file where TIKTOKEN_CACHE_DIR points, or use HeuristicTokenCounter",
        name,
        type(error).__name__,
        error,
    )


class GuardedTokenCounter(_PerMessage):
    """A caller's own counter, asked once a message, with a stand-in for when it fails.

    Args:
        counter: anything with ``count(message) -> int``.
        stand_in: what counts where `counter` raises or returns no int of at least 0; by
            default a :class:`HeuristicTokenCounter`. The first time a warning is logged.

    Raises:
        InvalidRequestError: `counter` has no method ``count``.
    """

    def __init__(self, counter: TokenCounter, *, stand_in: TokenCounter | None = None) -> None:
        super().__init__()
        given = cast("object", counter)
        if not isinstance(given, TokenCounter):
            raise InvalidRequestError(
                f"a token counter has a method count(message); {type(given).__name__} has none"
            )
        self._counter = counter
        self._stand_in = stand_in or HeuristicTokenCounter()
        self._warned = False

    def _count(self, message: ConversationMessage) -> int:
        try:
            counted = self._counter.count(message)
        except Exception as error:  # noqa: BLE001  foreign code; a chat never fails for a count
            self._warn(f"raised {type(error).__name__}: {error}")
        else:
            if type(counted) is int and counted >= 0:
                return counted
            self._warn(f"returned {counted!r}, which is not an int of at least 0")
        return self._stand_in.count(message)

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "token counter %s %s; estimates stand in (said once)",
                type(self._counter).__name__,
                what,
            )


def guarded(counter: TokenCounter | None) -> TokenCounter:
    """Return a counter that caches and never raises: the library's own as they are.

    Args:
        counter: a caller's counter; None gives a new :class:`HeuristicTokenCounter`.
    """
    if counter is None:
        return HeuristicTokenCounter()
    if isinstance(counter, HeuristicTokenCounter | GuardedTokenCounter):
        return counter
    return GuardedTokenCounter(counter)


_ALL: Final = bytes(range(256))


def _all_but(kept: bytes) -> bytes:
    """Return what ``translate`` has to delete so that only `kept` remains."""
    return bytes(byte for byte in _ALL if byte not in kept)


def _span(first: int, last: int) -> bytes:
    return _all_but(bytes(range(first, last + 1)))


_LOWER: Final = _all_but(string.ascii_lowercase.encode())
_UPPER: Final = _all_but(string.ascii_uppercase.encode())
_DIGIT: Final = _all_but(string.digits.encode())
_PUNCTUATION: Final = _all_but(string.punctuation.encode())
_BEYOND_ASCII: Final = bytes(range(128, 256))

_LOWER_TOKENS: Final = 0.28
_UPPER_TOKENS: Final = 0.42
_DIGIT_TOKENS: Final = 0.72
_PUNCTUATION_TOKENS: Final = 0.76
_NEWLINE_TOKENS: Final = 0.5

_UNBROKEN_TOKENS: Final = 0.8
"""Base64, hashes and keys: 1.5 characters a token. They are long, hardly broken by spaces or
punctuation, and a quarter or more of them are capitals and digits."""
_UNBROKEN_LENGTH: Final = 40

# Tokens a character, by the UTF-8 lead byte.
_SCRIPTS: Final = (
    (_span(0xC2, 0xCD), 1.2),  # Latin letters with marks, which break words up
    (_span(0xCE, 0xCF), 0.49),  # Greek
    (_span(0xD0, 0xD3), 0.39),  # Cyrillic
    (_span(0xD4, 0xD7), 0.5),  # Armenian, Hebrew
    (_span(0xD8, 0xDF), 0.43),  # Arabic and its neighbours
    (_span(0xE0, 0xE0), 0.5),  # Devanagari … Thai, Lao
    (_span(0xE1, 0xE1), 0.55),  # Georgian, Khmer, Vietnamese letters
    (_span(0xE2, 0xE2), 1.2),  # dashes, quotes, currency signs, arrows, older emoji
    (_span(0xE3, 0xE3), 0.75),  # kana, East Asian punctuation
    (_span(0xE4, 0xE9), 0.95),  # Chinese characters
    (_span(0xEA, 0xED), 0.85),  # Korean
    (_span(0xEE, 0xEF), 0.9),  # full-width forms, variation selectors
    (_span(0xF0, 0xF4), 2.0),  # emoji, rare Chinese characters
)


def estimate_text_tokens(text: str) -> int:
    """Return about how many tokens a text takes; 0 for the empty one.

    Args:
        text: any text, lone surrogates included.
    """
    if not text:
        return 0
    data = text.encode("utf-8", "surrogatepass")
    newlines = _NEWLINE_TOKENS * data.count(b"\n")
    if len(data) == len(text):
        return 1 + int(_ascii_tokens(data) + newlines)
    plain = _ascii_tokens(data.translate(None, _BEYOND_ASCII))
    beyond = sum([weight * len(data.translate(None, others)) for others, weight in _SCRIPTS])
    return 1 + int(plain + newlines + beyond)


def _ascii_tokens(data: bytes) -> float:
    lower = len(data.translate(None, _LOWER))
    upper = len(data.translate(None, _UPPER))
    digits = len(data.translate(None, _DIGIT))
    punctuation = len(data.translate(None, _PUNCTUATION))
    length = len(data)
    spaces = length - lower - upper - digits - punctuation
    if (
        length >= _UNBROKEN_LENGTH
        and spaces * 20 < length
        and punctuation * 10 < length < (upper + digits) * 4
    ):
        return _UNBROKEN_TOKENS * length
    return (
        _LOWER_TOKENS * lower
        + _UPPER_TOKENS * upper
        + _DIGIT_TOKENS * digits
        + _PUNCTUATION_TOKENS * punctuation
    )
