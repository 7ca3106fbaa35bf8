"""Tests of the summarizer that needs no model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import from_openai, text_of
from agent_memory.summarizers import ExtractiveSummarizer
from agent_memory.summarizers.base import (
    SUMMARY_TITLE,
    is_summary,
    new_summary_id,
    summary_body,
    summary_message,
)
from agent_memory.summarizers.sentences import Sentence, choose, clip, split_sentences, terms_of

_DEMO = Path(__file__).parents[2] / "agent_memory/cli/demo_conversation.json"


def _demo():
    return from_openai(json.loads(_DEMO.read_text(encoding="utf-8"))["messages"])


def _talk(*texts):
    roles = ("user", "assistant")
    return [ConversationMessage(roles[at % 2], text) for at, text in enumerate(texts)]


def _small_talk(count):
    return [
        f"Well, that is nice to hear, and so it goes, part {'x' * (at % 5)}."
        for at in range(count)
    ]


def test_facts_of_the_demo_conversation_survive():
    """The shipped conversation's bookings, dates and rules are picked, small talk is not."""
    body = ExtractiveSummarizer().body(_demo())
    for fact in ("SK-48213", "412", "17 June", "peanut-free", "1,368 €"):
        assert fact in body
    assert "Thanks!" not in body


def test_it_is_called_as_a_function():
    """System message, summary and the newest pairs come back, the kept ones as they were."""
    history = _demo()
    result = ExtractiveSummarizer()(history, 2)
    assert result[0] == history[0]
    assert is_summary(result[1])
    assert result[2:] == history[-len(result[2:]) :]
    assert 4 <= len(result[2:]) <= 8


def test_it_is_called_as_an_object():
    """A result names what is kept, the run before the cut, and the summary."""
    history = [
        *(ConversationMessage("user", f"Remember {at}.", run_id="r1") for at in range(6)),
        *(ConversationMessage("user", f"Later {at}.", run_id="r2") for at in range(4)),
    ]
    result = ExtractiveSummarizer(keep_count=4).summarize(history, 0)
    assert list(result.messages_to_keep) == history[-4:]
    assert result.last_summarized_run_id == "r1"
    assert result.summary[0].id == result.summary_id


def test_the_summary_says_what_it_is():
    """A model that reads it learns that it is a summary, and of what kind."""
    summary = ExtractiveSummarizer()(_talk(*_small_talk(10)), 1)[0]
    assert text_of(summary).startswith(f"{SUMMARY_TITLE} (sentences picked from it")


def test_the_summary_takes_the_shape_of_the_chat():
    """In a Bedrock chat it is a Bedrock block, in an Anthropic one Anthropic's."""
    bedrock = [ConversationMessage("user", [{"text": f"We need {at} boats."}]) for at in range(9)]
    summary = ExtractiveSummarizer()(bedrock, 1)[0]
    assert list(summary.content[0]) == ["text"]
    typed = [
        {"type": "text", "text": "We need a boat."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    ]
    anthropic = [
        *(ConversationMessage("user", "We need boats.") for _ in range(6)),
        ConversationMessage("assistant", typed),
    ]
    assert ExtractiveSummarizer()(anthropic, 1)[0].content[0]["type"] == "text"


def test_nothing_old_means_nothing_to_do():
    """A short history comes back as it is, and as an object the answer is "not yet"."""
    history = _talk("a", "b", "c")
    assert ExtractiveSummarizer()(history, 2) == history
    assert ExtractiveSummarizer().summarize(history, 0) is None


def test_a_lone_former_summary_is_not_summarized_again():
    """When all that is old is a summary, there is nothing to gain."""
    summary = summary_message("- user: x", like=None, summary_id=new_summary_id())
    history = [summary, *_talk("a", "b")]
    assert ExtractiveSummarizer()(history, 1) == history


def test_order_and_speakers_are_kept():
    """Sentences stand in the order they were said, each with its speaker."""
    history = _talk(
        "We decided to sail on 3 June.",
        "Booked for 3 June, reference AB-123.",
        "Noor is allergic to peanuts, remember that.",
        "Noted, ok.",
    )
    lines = ExtractiveSummarizer().body(history).splitlines()
    assert lines[0].startswith("- user: We decided")
    assert lines[1].startswith("- assistant: Booked")
    assert lines[2].startswith("- user: Noor is allergic")


def test_decisions_and_figures_are_favoured():
    """Among much small talk the sentences with numbers and decisions are the ones picked."""
    texts = _small_talk(60)
    texts[17] = "We decided that the deposit of 342 euros is due on 20 May."
    texts[40] = "Careful, Noor must never eat peanuts."
    body = ExtractiveSummarizer(max_sentences=2).body(_talk(*texts))
    assert "342" in body
    assert "peanuts" in body


def test_repetitions_are_told_once():
    """A fact said twenty times takes one line."""
    texts = ["The ferry SK-48213 leaves at 07:40."] * 20 + ["Maren Oskar charges 340 euros."]
    body = ExtractiveSummarizer(max_sentences=2).body(_talk(*texts))
    assert body.count("SK-48213") == 1
    assert "340" in body


@pytest.mark.parametrize(
    ("texts", "fact"),
    [
        (
            ["你好。今天天气不错。"] * 8 + ["我们决定六月三日出发，船票号码是四八二一三。"],
            "六月三日",
        ),
        (["Привет, как дела сегодня."] * 8 + ["Решили выйти 3 июня, билет СК-48213."], "3 июня"),
        (
            ["こんにちは。いい天気ですね。"] * 8 + ["六月三日に出発すると決定しました。"],
            "六月三日",
        ),
        (["مرحبا كيف حالك اليوم."] * 8 + ["قررنا السفر يوم 3 يونيو برقم 48213."], "48213"),
    ],
)
def test_it_works_in_any_language(texts, fact):
    """The fact is picked out of greetings, whatever the script."""
    assert fact in ExtractiveSummarizer(max_sentences=2).body(_talk(*texts))


def test_tool_calls_results_and_errors_are_told():
    """A call shows its name, a result what it said, an error that it was one."""
    blocks = [
        ("assistant", {"toolUse": {"toolUseId": "a", "name": "book", "input": {"day": 3}}}),
        (
            "user",
            {
                "toolResult": {
                    "toolUseId": "a",
                    "content": [{"text": "sold out on 3 June"}],
                    "status": "error",
                }
            },
        ),
    ]
    body = ExtractiveSummarizer().body(
        [ConversationMessage(role, [block]) for role, block in blocks]
    )
    assert "- assistant: called book: day: 3" in body
    assert "- tool error: sold out on 3 June" in body


def test_media_and_reasoning_are_left_out():
    """Bytes and private thoughts are no sentences."""
    content = [
        {"image": {"format": "png", "source": {"bytes": b"\0" * 5000}}},
        {"reasoningContent": {"reasoningText": {"text": "I must decide on 3 June."}}},
    ]
    body = ExtractiveSummarizer().body([ConversationMessage("assistant", content)])
    assert body == "(Nothing in it was text.)"


def test_c43_a_hundred_rounds_do_not_make_it_grow():
    """Each round takes the former summary as input, and the bound holds in all of them."""
    summarizer = ExtractiveSummarizer(max_chars=1_000)
    view = []
    for at in range(100):
        view += _talk(
            *[f"On day {at} we decided to book hut {at}-{n} for {n} euros." for n in range(8)]
        )
        view = summarizer(view, 1)
        assert sum(is_summary(message) for message in view) == 1
        assert len(summary_body(view[0])) <= 1_000
    assert "day 99" in text_of(view[0])


def test_the_former_summary_is_carried_on():
    """What the former summary told is still told when nothing better came."""
    former = summary_message(
        "- user: We decided on 3 June, booking SK-48213.", like=None, summary_id=new_summary_id()
    )
    body = ExtractiveSummarizer(max_sentences=3).body([former, *_talk(*_small_talk(30))])
    assert "- user: We decided on 3 June, booking SK-48213." in body
    assert SUMMARY_TITLE not in body


def test_a_models_summary_is_carried_on():
    """As a stand-in for a model it keeps what the model's summary told."""
    former = summary_message(
        "They booked SK-48213 for 3 June. Noor is allergic to peanuts.",
        like=None,
        summary_id=new_summary_id(),
    )
    body = ExtractiveSummarizer(max_sentences=4).body([former, *_talk(*_small_talk(30))])
    assert "- earlier: They booked SK-48213 for 3 June." in body


@pytest.mark.parametrize("length", [1_000, 20_000, 300_000])
def test_the_length_is_bounded(length):
    """However long the texts, the body keeps to its limit."""
    words = "The ferry 12 leaves Dunmarrow on 3 June " * (length // 40)
    body = ExtractiveSummarizer(max_chars=500).body(_talk(words, words + ". " + words))
    assert 0 < len(body) <= 500


@given(st.lists(st.text(max_size=80), min_size=1, max_size=12), st.integers(200, 600))
def test_any_text_gives_a_bounded_body(texts, limit):
    """No text breaks it: the body is never blank, never too long, a line a sentence."""
    body = ExtractiveSummarizer(max_chars=limit, max_sentences=5).body(_talk(*texts))
    assert body.strip()
    assert len(body) <= limit
    assert len(body.split("\n")) <= 5


def test_the_result_is_always_the_same():
    """Two runs over one history pick the same sentences."""
    assert ExtractiveSummarizer().body(_demo()) == ExtractiveSummarizer().body(_demo())


def test_a_long_history_gives_no_longer_summary():
    """Eight times the history gives as many sentences at most."""
    large = [message for _ in range(8) for message in _demo()]
    assert len(ExtractiveSummarizer(max_sentences=24).body(large).splitlines()) <= 24


@pytest.mark.parametrize(
    "options", [{"max_sentences": 0}, {"max_chars": 100}, {"keep_count": 0}, {"max_chars": "9"}]
)
def test_impossible_limits_are_refused(options):
    """A limit that no summary can keep is an error at once."""
    with pytest.raises(InvalidRequestError):
        ExtractiveSummarizer(**options)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            "We met Dr. Weber on 3. June (see fig. 4).",
            ["We met Dr. Weber on 3. June (see fig. 4)."],
        ),
        ("1. First\n- second\n|---|\n\n* third", ["First", "second", "third"]),
        ("今天出发！明天回来。好", ["今天出发！", "明天回来。", "好"]),
        ("क्या हाल है? ठीक है। अच्छा", ["क्या हाल है?", "ठीक है।", "अच्छा"]),
        ("It costs 3.50 euros at 10:30.", ["It costs 3.50 euros at 10:30."]),
        ("", []),
        (" \n\u2028 ", []),
    ],
)
def test_sentences_are_split(text, sentences):
    """Enders of many scripts end a sentence; abbreviations, figures and list marks do not."""
    assert split_sentences(text, 200) == sentences


def test_long_texts_are_clipped_in_the_middle():
    """Beginning and end stay, on one line, within the limit."""
    clipped = clip("beginning " + "x" * 5_000 + "\nthe end", 60)
    assert clipped.startswith("beginning")
    assert clipped.endswith("the end")
    assert len(clipped) <= 60
    assert "\n" not in clipped


def test_terms_fold_case_and_endings():
    """Forms of one word are one term; scripts without spaces give pairs of characters."""
    assert terms_of("Reservations reservation") == ["reserv", "reserv"]
    assert terms_of("出发日期") == ["出发", "发日", "日期"]
    assert terms_of("12:30 at 3.5") == ["12:30", "3.5"]


def test_choosing_skips_what_does_not_fit():
    """A sentence that is too long for what is left makes way for a shorter one."""
    long = Sentence("user", "Decided on 3 June: " + "much to say about boats " * 20, 9.0)
    short = Sentence("user", "Booked hut 17 on 3 June.")
    assert choose([long, short], 5, 100) == [short]


def test_choosing_prefers_what_is_new():
    """A second wording of a fact makes way for a lesser fact that was not told yet."""
    facts = [
        Sentence("user", "Booked the ferry SK-48213 for 3 June at 07:40."),
        Sentence("user", "The ferry SK-48213 is booked for 3 June at 07:40."),
        Sentence("user", "Maren brings sandwiches along for everybody."),
    ]
    assert choose(facts, 2, 1_000)[1] == facts[2]
