"""Tests of the token counters.

The o200k figures were computed once with tiktoken 0.14.0 and the o200k_base ranks that the npm
package js-tiktoken 1.0.21 ships; special tokens count as text. A message's true count is taken
as its content, the names and arguments of its calls, and four tokens of frame.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import types
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import from_openai
from agent_memory.tokens import (
    MEDIA_TOKENS,
    MESSAGE_OVERHEAD,
    GuardedTokenCounter,
    HeuristicTokenCounter,
    TiktokenCounter,
    estimate_text_tokens,
    guarded,
)

_ROOT = Path(__file__).parent.parent
_SAMPLES = json.loads((_ROOT / "tests/data/token_samples.json").read_text(encoding="utf-8"))
_DEMO = _ROOT / "agent_memory/cli/demo_conversation.json"
_AIRLINE = _ROOT.parent / "shared/data/airline.jsonl"
_DEMO_TOKENS = 9301
# fmt: off
_AIRLINE_TOKENS = [
    3911, 3453, 3721, 5167, 5998, 3002, 1887, 4765, 2291, 4280, 3037, 3079, 3908, 5253,
    2586, 3485, 1919, 1890, 2644, 2887, 1979, 9949, 1658, 3831, 5197, 2400, 3342, 1798,
    5891, 2395, 4323, 3592, 3644, 4882, 3093, 2239, 1803, 1811, 1920, 2494, 2937, 2043,
]
# fmt: on
_ARGUMENTS_TOKENS = 23404
_MEGABYTES = b"\x89PNG" + b"\0\xff" * 1_500_000


def _message(content, **fields):
    return ConversationMessage("user", content, **fields)


def _in_bounds(estimate, true):
    return 0.9 <= estimate / true <= 1.6


@pytest.mark.parametrize("kind", sorted(_SAMPLES))
def test_c53_estimates_lie_near_the_true_count(kind):
    """Prose, code, JSON and many scripts are estimated at 0.9 to 1.6 times o200k's count."""
    sample = _SAMPLES[kind]
    assert _in_bounds(estimate_text_tokens(sample["text"]), sample["tokens"])


def test_c53_fifty_kilobytes_of_tool_arguments():
    """Large tool arguments are counted, near the true count."""
    rows = [
        {
            "id": i,
            "sku": f"BE{i % 7}-C{i * 13 % 1000:03d}",
            "title": f"Cable for burrow camera, {i % 9} m",
            "price_eur": i * 7 % 500 + 0.5,
            "in_stock": i % 3 == 0,
        }
        for i in range(520)
    ]
    function = {"name": "import_rows", "arguments": json.dumps({"rows": rows})}
    call = {"id": "call_1", "type": "function", "function": function}
    message = ConversationMessage("assistant", None, extra={"tool_calls": [call]})
    assert _in_bounds(HeuristicTokenCounter().count(message), _ARGUMENTS_TOKENS)


def test_the_demo_conversation_is_estimated_near_its_true_count():
    """The heuristic holds its bounds on the shipped conversation."""
    messages = from_openai(json.loads(_DEMO.read_text(encoding="utf-8"))["messages"])
    counter = HeuristicTokenCounter()
    assert _in_bounds(sum(map(counter.count, messages)), _DEMO_TOKENS)


@pytest.mark.skipif(not _AIRLINE.exists(), reason="../shared/data/airline.jsonl is absent")
def test_real_conversations_are_estimated_near_their_true_counts():
    """The heuristic holds its bounds on each of 42 real conversations."""
    counter = HeuristicTokenCounter()
    lines = _AIRLINE.read_text(encoding="utf-8").splitlines()
    for line, true in zip(lines, _AIRLINE_TOKENS, strict=True):
        messages = from_openai(json.loads(line)["messages"])
        assert _in_bounds(sum(map(counter.count, messages)), true)


@given(st.text())
def test_estimates_are_small_positive_figures(text):
    """Any text, lone surrogates included, counts at least 1 and at most 3 a UTF-8 byte."""
    size = len(text.encode("utf-8", "surrogatepass"))
    assert (1 if text else 0) <= estimate_text_tokens(text) <= 1 + 3 * size


@given(st.text(max_size=50), st.text(max_size=50))
def test_more_text_is_not_fewer_tokens_by_much(one, other):
    """Two texts together count about what they count apart."""
    apart = estimate_text_tokens(one) + estimate_text_tokens(other)
    assert estimate_text_tokens(one + other) <= apart * 3 + 2


_IMAGES = {
    "bedrock": {"image": {"format": "png", "source": {"bytes": _MEGABYTES}}},
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA" * 1_000_000},
    },
    "openai": {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "AAAA" * 1_000_000},
    },
}


@pytest.mark.parametrize("provider", sorted(_IMAGES))
def test_c52_an_image_costs_the_same_whatever_its_size(provider):
    """Three megabytes of picture count a flat figure in every provider's shape."""
    counted = HeuristicTokenCounter().count(_message([_IMAGES[provider]]))
    assert counted == MESSAGE_OVERHEAD + MEDIA_TOKENS["image"]


def test_c52_an_image_within_a_tool_result_costs_the_same():
    """A picture that a tool returned counts flat, and the text beside it as text."""
    content = [{"text": "the chart"}, _IMAGES["bedrock"]]
    result = {"toolResult": {"toolUseId": "t1", "content": content}}
    counted = HeuristicTokenCounter().count(_message([result]))
    assert MEDIA_TOKENS["image"] < counted < MEDIA_TOKENS["image"] + 30


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        (
            "document",
            {"document": {"format": "pdf", "name": "d", "source": {"bytes": _MEGABYTES}}},
        ),
        (
            "audio",
            {"type": "input_audio", "input_audio": {"data": "AAAA" * 10_000, "format": "wav"}},
        ),
        ("video", {"video": {"format": "mp4", "source": {"bytes": _MEGABYTES}}}),
    ],
)
def test_c52_documents_audio_and_video_cost_flat_figures(kind, block):
    """No medium is counted by its bytes."""
    counted = HeuristicTokenCounter().count(_message([block]))
    assert counted == MESSAGE_OVERHEAD + MEDIA_TOKENS[kind]


def test_a_document_given_as_text_is_counted_as_text():
    """What the model reads as text costs by its length."""
    source = {"type": "text", "media_type": "text/plain", "data": "A line of text.\n" * 5_000}
    counted = HeuristicTokenCounter().count(_message([{"type": "document", "source": source}]))
    assert counted > 3 * MEDIA_TOKENS["document"]


def test_media_costs_can_be_set():
    """A caller who knows better sets the flat costs."""
    counter = HeuristicTokenCounter(media_tokens={"image": 85})
    assert counter.count(_message([_IMAGES["bedrock"]])) == MESSAGE_OVERHEAD + 85


@pytest.mark.parametrize("costs", [{"image": -1}, {"hologram": 5}, {"image": 1.5}])
def test_impossible_media_costs_are_refused(costs):
    """A wrong cost is an error at once, not a wrong count later."""
    with pytest.raises(InvalidRequestError, match="media_tokens"):
        HeuristicTokenCounter(media_tokens=costs)


def test_unknown_blocks_count_a_bounded_figure():
    """A block of no known shape cannot blow the count up."""
    block = {"type": "from_the_future", "data": "QUJD" * 500_000}
    assert HeuristicTokenCounter().count(_message([block])) <= MESSAGE_OVERHEAD + 2_000


def test_metadata_costs_nothing():
    """What is never sent to a model is not counted."""
    counter = HeuristicTokenCounter()
    plain = counter.count(_message("hello"))
    assert counter.count(_message("hello", metadata={"trace": "x" * 10_000})) == plain


class _Counting:
    """A counter that remembers what it was asked."""

    def __init__(self, answer=7):
        self.asked = []
        self.answer = answer

    def count(self, message):
        self.asked.append(message.id)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_c56_a_message_is_counted_once():
    """However often a count is asked for, the counter sees the message once."""
    inner = _Counting()
    counter = guarded(inner)
    messages = [_message(f"m{i}") for i in range(50)]
    for _ in range(20):
        assert [counter.count(message) for message in messages] == [7] * 50
    assert len(inner.asked) == 50


def test_counts_live_as_long_as_their_messages():
    """Nothing of a message stays behind in the counter."""
    counter = HeuristicTokenCounter()
    message = _message("short-lived")
    counter.count(message)
    gone = weakref.ref(message)
    del message
    gc.collect()
    assert gone() is None
    assert len(counter._counts) == 0


@pytest.mark.parametrize("answer", [ValueError("no vocabulary"), -1, "12", None, True])
def test_c55_the_heuristic_stands_in_for_a_counter_that_fails(answer, caplog):
    """A counter that raises or returns nonsense costs one warning, never a save."""
    counter = guarded(_Counting(answer))
    messages = [_message("hello there"), _message("and again")]
    with caplog.at_level(logging.WARNING):
        counted = [counter.count(message) for message in messages]
    assert counted == [HeuristicTokenCounter().count(message) for message in messages]
    assert len(caplog.records) == 1


def test_what_is_no_counter_is_refused():
    """A counter without the method is an error where it is given."""
    with pytest.raises(InvalidRequestError, match="count"):
        GuardedTokenCounter(len)


def test_the_librarys_own_counter_is_not_wrapped():
    """The built-in heuristic caches and cannot fail, so that it needs no guard."""
    counter = HeuristicTokenCounter()
    assert guarded(counter) is counter
    assert isinstance(guarded(None), HeuristicTokenCounter)


class _Encoding:
    """Stands for a tiktoken encoding: a token a word; special tokens would raise in encode."""

    def encode_ordinary(self, text):
        return list(range(len(text.split())))

    def encode(self, text):
        raise AssertionError("special tokens must be allowed as text")


def test_tiktoken_counts_with_the_encoding():
    """The vocabulary's count is used, special tokens being text like any other."""
    message = _message("one <|endoftext|> three")
    assert TiktokenCounter(_Encoding()).count(message) == MESSAGE_OVERHEAD + 3


def test_a_real_encoding_takes_special_tokens_as_text():
    """Somebody who writes <|endoftext|> into a chat breaks no count."""
    tiktoken = pytest.importorskip("tiktoken")
    single_bytes = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding(
        "bytes", pat_str=".", mergeable_ranks=single_bytes, special_tokens={"<|endoftext|>": 256}
    )
    counted = TiktokenCounter(encoding).count(_message("<|endoftext|>"))
    assert counted == MESSAGE_OVERHEAD + len("<|endoftext|>")


def test_tiktoken_stands_aside_aloud_when_it_cannot_load(monkeypatch, caplog):
    """Without its file the encoding is replaced by estimates, with one warning."""

    def unreachable(name):
        raise ConnectionError("no route")

    fake = types.ModuleType("tiktoken")
    fake.get_encoding = unreachable
    monkeypatch.setitem(sys.modules, "tiktoken", fake)
    with caplog.at_level(logging.WARNING):
        counter = TiktokenCounter()
        message = _message("hello there")
        assert counter.count(message) == HeuristicTokenCounter().count(message)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "o200k_base" in caplog.text


def test_an_unknown_encoding_is_refused():
    """A misspelt encoding is an error, not a silent estimate."""
    pytest.importorskip("tiktoken")
    with pytest.raises(InvalidRequestError, match="o201k"):
        TiktokenCounter("o201k")


def test_missing_tiktoken_names_the_extra(monkeypatch):
    """Without the package the error says what to install."""
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(MissingDependencyError, match=r"\[tiktoken\]"):
        TiktokenCounter()


def test_messages_of_many_chats_that_share_their_ids_are_counted_apart(monkeypatch):
    """Ids are unique within a chat only: counting never compares messages by value."""
    counter = HeuristicTokenCounter()
    monkeypatch.setattr(ConversationMessage, "__eq__", lambda one, other: pytest.fail("compared"))
    chats = [ConversationMessage("user", "word " * number, id="m1") for number in range(1, 50)]
    counts = [counter.count(message) for message in chats]
    assert counts == sorted(set(counts))
    assert [counter.count(message) for message in chats] == counts


def test_a_count_is_forgotten_with_its_message():
    """Nothing is kept of messages that are gone."""
    counter = HeuristicTokenCounter()
    messages = [ConversationMessage("user", f"word {number}") for number in range(50)]
    assert all(counter.count(message) for message in messages)
    assert len(counter._counts) == 50
    messages.clear()
    assert counter._counts == {}
