"""What providers refuse, and how a view of it is repaired."""

from __future__ import annotations

import pytest

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.providers import from_openai, parts, repair, text_of, to_openai, validate
from agent_memory.turns import is_open
from histories import SHAPES, Piece, Said, render

MERGING = ("anthropic", "bedrock")


def user(text="hi"):
    return Said("user", (Piece("text", text),))


def assistant(text="done"):
    return Said("assistant", (Piece("text", text),))


def system(text="be brief"):
    return Said("system", (Piece("text", text),))


def calls(*ids, text=None, thought=False):
    pieces = [Piece("reasoning", "hm")] if thought else []
    pieces += [Piece("text", text)] if text is not None else []
    return Said("assistant", (*pieces, *(Piece("call", "lookup", name) for name in ids)))


def results(*ids, text=None):
    pieces = [Piece("result", f"found {number}", name) for number, name in enumerate(ids)]
    return Said("tool", (*pieces, *([Piece("text", text)] if text is not None else [])))


def message(role, content, **fields):
    return ConversationMessage(role, content, **fields)


def outline(messages):
    """Roles, and the kind and id (or text) of each part."""
    return [
        (
            each.role.value,
            [
                (part.kind, part.id if part.kind in ("call", "result") else part.text)
                for part in parts(each)
            ],
        )
        for each in messages
    ]


def rules(messages, provider):
    return [(found.index, found.rule) for found in validate(messages, provider)]


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param


GOOD = [
    system(), user(), calls("a", "b", text="I look", thought=True), results("b", "a"),
    assistant(), user("thanks"), assistant("welcome"),
]  # fmt: skip


# What is fine


def test_a_proper_history_has_no_violations_and_stays_as_it_is(shape):
    """The same objects come back."""
    history = render(GOOD, shape)
    assert validate(history, shape) == []
    assert all(a is b for a, b in zip(repair(history, shape), history, strict=True))


def test_an_empty_history_is_fine(shape):
    """Nothing is nothing."""
    assert validate([], shape) == []
    assert repair([], shape) == []


def test_openai_means_chat_completions():
    """The short name is the common one."""
    history = render(GOOD, "openai_chat")
    assert validate(history, "openai") == []
    assert repair(history, "openai") == history


@pytest.mark.parametrize("function", [validate, repair])
def test_an_unknown_provider_is_refused(function):
    """With the names there are."""
    with pytest.raises(InvalidRequestError, match="'anthropic'"):
        function([], "gemini")


def test_c29_calls_at_the_end_wait_and_are_no_violation(shape):
    """The view of an exchange in progress keeps it."""
    history = render([user(), calls("a", "b"), results("a")], shape)
    assert validate(history, shape) == []
    assert repair(history, shape) == history


# What is not: each provider's rules


def block(shape, text):
    return {"text": text} if shape == "bedrock" else {"type": "text", "text": text}


CALLED = {
    "openai_chat": {"tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
}  # fmt: skip
BROKEN = [
    ("bedrock", [user(), user()], (1, "alternation")),
    ("bedrock", [user(), assistant(), system()], (2, "role")),
    ("anthropic", [user("  ")], (0, "blank_text")),
    ("bedrock", [user("")], (0, "blank_text")),
    ("anthropic", [Said("user", ())], (0, "empty_content")),
    ("bedrock", [Said("user", ())], (0, "empty_content")),
    ("openai_chat", [Said("user", ())], (0, "empty_content")),
    ("openai_chat", [user(), Said("assistant", ())], (1, "empty_content")),
    ("openai_responses", [Said("user", ())], (0, "empty_content")),
    *[(shape, [user(), calls("a"), user()], (1, "unanswered_call")) for shape in SHAPES],
    *[(shape, [user(), results("z")], (1, "orphaned_result")) for shape in SHAPES],
    *[
        (shape, [user(), calls("a"), results("a", "a")], (-1, "duplicate_result"))
        for shape in SHAPES
    ],
    *[
        (shape, [user(), calls("a", "a"), results("a")], (1, "duplicate_call"))
        for shape in SHAPES
        if shape != "openai_responses"
    ],
    *[
        (shape, [user(), calls("a", "b"), results("a"), results("b")], (1, "unanswered_call"))
        for shape in MERGING
    ],
    ("anthropic", [user(), Said("assistant", (Piece("reasoning", "x"),))], (1, "loose_reasoning")),
    (
        "openai_responses",
        [user(), Said("assistant", (Piece("reasoning", "x"),)), user()],
        (1, "loose_reasoning"),
    ),
]


@pytest.mark.parametrize(("provider", "said", "violation"), BROKEN)
def test_violations_are_named_and_repaired(provider, said, violation):
    """Each by its rule and message, with a page of the provider's; and the repair has none."""
    history = render(said, provider)
    found = validate(history, provider)
    index, rule = violation
    assert (index % len(history), rule) in [(each.index, each.rule) for each in found]
    assert all(each.source.startswith("https://") and each.text for each in found)
    assert validate(repair(history, provider), provider) == []


RAW = [
    ("anthropic", message("user", [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]),
        "call_placement"),
    ("bedrock", message("user", [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]),
        "call_placement"),
    ("openai", message("user", "x", extra=CALLED["openai_chat"]), "call_placement"),
    ("anthropic", message("assistant", [
        {"type": "tool_result", "tool_use_id": "a", "content": "x"}]), "result_placement"),
    ("bedrock", message("assistant", [
        {"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}]), "result_placement"),
    ("anthropic", message("user", [{"type": "tool_result", "tool_use_id": "a",
        "content": [{"type": "text", "text": " "}]}]), "result_content"),
    ("bedrock", message("user", [{"toolResult": {"toolUseId": "a",
        "content": [{"text": ""}]}}]), "result_content"),
    ("bedrock", message("user", [{"toolResult": {"toolUseId": "a",
        "content": [{"json": [1]}]}}]), "result_content"),
    ("openai", message("tool", None, extra={"tool_call_id": "a"}), "result_content"),
    ("openai", message("tool", [], extra={"tool_call_id": "a"}), "result_content"),
    ("openai", message("assistant", "x", extra={"tool_calls": []}), "empty_content"),
    ("openai", message("user", None), "empty_content"),
    ("openai", message("user", [{"text": "x"}]), "format"),
    ("openai_responses", message("user", [{"type": "text", "text": "x"}]), "format"),
    ("anthropic", message("tool", "x", extra={"tool_call_id": "a"}), "format"),
    ("anthropic", message("user", [{"text": "x"}]), "format"),
    ("anthropic", message("assistant", [{"type": "thinking", "thinking": "x"},
        {"type": "text", "text": "y"}]), "unsigned_reasoning"),
    ("bedrock", message("user", "x"), "format"),
    ("bedrock", message("user", [{"type": "text", "text": "x"}]), "format"),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "wrong", "rule"), RAW)
def test_what_one_message_holds_wrongly_is_named_and_repaired(provider, wrong, rule):
    """Calls and results in the wrong mouth, content that is refused, other providers' forms."""
    assert rule in [each.rule for each in validate([wrong], provider)]
    assert validate(repair([wrong], provider), provider) == []


@pytest.mark.parametrize("provider", MERGING)
def test_an_id_that_a_provider_refuses_is_changed_in_call_and_result(provider):
    """Both get the same, so that they stay together."""
    history = render([user(), calls("a.b!"), results("a.b!"), assistant()], provider)
    assert "call_id" in [each.rule for each in validate(history, provider)]
    mended = repair(history, provider)
    assert validate(mended, provider) == []
    ids = [part.id for each in mended for part in parts(each) if part.id is not None]
    assert len(ids) == 2
    assert len(set(ids)) == 1


def test_a_picture_from_a_tool_waits_until_all_results_are_written():
    """Chat Completions takes none in a result: the user shows it, after the exchange."""
    png = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    answers = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": png}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "two"},
    ]
    asked = render([user(), calls("a", "b")], "anthropic")
    mended = repair([*asked, message("user", answers)], "openai")
    assert [each.role.value for each in mended] == ["user", "assistant", "tool", "tool", "user"]
    assert validate(mended, "openai") == []


def test_results_after_text_in_one_message_are_a_violation():
    """They come first."""
    blocks = [
        {"type": "text", "text": "and"},
        {"type": "tool_result", "tool_use_id": "a", "content": "x"},
    ]
    history = [*render([user(), calls("a")], "anthropic"), message("user", blocks)]
    assert rules(history, "anthropic") == [(2, "result_placement")]
    repaired = repair(history, "anthropic")
    assert outline(repaired)[2] == ("user", [("result", "a"), ("text", "and")])


def test_an_answered_exchange_may_lie_apart_among_responses_items():
    """There, an output may come anywhere after its call."""
    history = render([user(), calls("a"), user("hurry"), results("a")], "openai_responses")
    assert validate(history, "openai_responses") == []


# Repairs


EMPTY = [
    message("user", []),
    message("user", ""),
    message("user", [{"text": ""}]),
    message("user", [{"text": "  "}]),
    message("user", None),
]


@pytest.mark.parametrize("provider", SHAPES)
@pytest.mark.parametrize("empty", EMPTY)
def test_c04_empty_content_leaves_no_block_that_a_provider_refuses(empty, provider):
    """Raw keeps it; the view does not show it."""
    history = [message("user", "a"), message("assistant", "b"), empty, message("user", "c")]
    view = repair(history, provider)
    assert validate(view, provider) == []
    assert [text_of(each) for each in view if text_of(each)] == ["a", "b", "c"]


def test_c04_no_content_beside_calls_is_fine():
    """OpenAI writes null there itself."""
    history = render([user(), calls("a"), results("a")], "openai_chat")
    assert history[1].content is None
    assert validate(history, "openai") == []
    assert repair(history, "openai")[1] is history[1]


@pytest.mark.parametrize("source", SHAPES)
def test_c31_a_dead_call_is_left_out(source, shape):
    """A process died after the call; the user tried again."""
    history = render([user(), calls("a"), user("again"), assistant()], source)
    view = repair(history, shape)
    assert [part for _, held in outline(view) for part in held if part[0] != "text"] == []
    assert validate(view, shape) == []
    assert repair(history, shape) == view


def test_c31_a_stray_result_is_left_out(shape):
    """A result whose call was never saved."""
    history = render([user(), assistant(), results("z"), user("next")], shape)
    assert outline(repair(history, shape)) == [
        ("user", [("text", "hi")]),
        ("assistant", [("text", "done")]),
        ("user", [("text", "next")]),
    ]


def test_c31_a_result_that_comes_too_late_is_left_out(shape):
    """The call was dead by then, and a view that was shown is never changed."""
    said = [user(), calls("a", "b"), results("a"), user("hurry")]
    early = repair(render(said, shape), shape)
    late = repair(render([*said, results("b"), assistant()], shape), shape)
    assert outline(late)[: len(early)] == outline(early)
    assert ("result", "b") not in [part for _, held in outline(late) for part in held]


def test_c32_the_first_of_two_results_stays(shape):
    """Duplicates and strays in one message are repaired away, in the view only."""
    history = render([user(), calls("a"), results("a", "a", "zzz")], shape)
    before = [each.content for each in history]
    found = [
        part for each in repair(history, shape) for part in parts(each) if part.kind == "result"
    ]
    assert [(part.id, part.text) for part in found] == [("a", "found 0")]
    assert [each.content for each in history] == before


def test_c32_interim_then_final_keeps_the_interim_one(shape):
    """Also when the second comes in a message of its own."""
    history = render([user(), calls("a"), results("a"), results("a"), assistant()], shape)
    view = repair(history, shape)
    assert validate(view, shape) == []
    assert [part for _, held in outline(view) for part in held].count(("result", "a")) == 1


@pytest.mark.parametrize("shape", ["anthropic", "bedrock", "openai_responses"])
def test_c33_reasoning_goes_with_the_call_it_led_to(shape):
    """A dead call takes its reasoning along."""
    history = render([user(), calls("a", thought=True), user("again")], shape)
    kinds = [kind for _, held in outline(repair(history, shape)) for kind, _ in held]
    assert kinds == ["text", "text"]


@pytest.mark.parametrize("shape", ["anthropic", "bedrock", "openai_responses"])
def test_c33_no_repair_makes_two_pieces_of_reasoning_neighbours(shape):
    """The one whose call is dead goes; the other stays with its call."""
    pieces = (
        Piece("reasoning", "first"), Piece("call", "lookup", "a"),
        Piece("reasoning", "second"), Piece("call", "lookup", "b"),
    )  # fmt: skip
    history = render([user(), Said("assistant", pieces), results("b"), assistant()], shape)
    held = [part for _, inside in outline(repair(history, shape)) for part in inside]
    assert held == [
        ("text", "hi"), ("reasoning", "second"), ("call", "b"), ("result", "b"), ("text", "done"),
    ]  # fmt: skip


def test_c33_a_blank_between_two_pieces_of_reasoning_takes_the_first_along():
    """Without it they would be neighbours."""
    pieces = (
        Piece("reasoning", "first"), Piece("text", "  "), Piece("reasoning", "second"),
        Piece("text", "so"),
    )  # fmt: skip
    history = render([user(), Said("assistant", pieces)], "anthropic")
    assert outline(repair(history, "anthropic"))[1] == (
        "assistant",
        [("reasoning", "second"), ("text", "so")],
    )


def test_c33_reasoning_that_was_together_stays_together():
    """What the model wrote side by side is not touched."""
    pieces = (Piece("reasoning", "a"), Piece("reasoning", "b"), Piece("text", "so"))
    for shape in ("anthropic", "bedrock", "openai_responses"):
        history = render([user(), Said("assistant", pieces)], shape)
        assert repair(history, shape) == history


@pytest.mark.parametrize("source", SHAPES)
def test_c34_the_same_faults_are_repaired_alike_in_all_shapes(source, shape):
    """Whatever form the history has, and whatever form the view."""
    said = [
        user(), calls("a", "b"), results("b"), user("next"), results("z"), calls("c"),
        results("c", "c"), assistant(),
    ]  # fmt: skip
    view = repair(render(said, source), shape)
    assert validate(view, shape) == []
    assert [part for _, held in outline(view) for part in held] == [
        ("text", "hi"), ("call", "b"), ("result", "b"), ("text", "next"), ("call", "c"),
        ("result", "c"), ("text", "done"),
    ]  # fmt: skip


@pytest.mark.parametrize("source", SHAPES)
@pytest.mark.parametrize("provider", MERGING)
def test_c64_three_results_become_one_user_message(source, provider):
    """And calls stay the assistant's."""
    said = [user(), calls("a", "b", "c"), results("b"), results("c"), results("a"), assistant()]
    view = repair(render(said, source), provider)
    assert outline(view) == [
        ("user", [("text", "hi")]),
        ("assistant", [("call", "a"), ("call", "b"), ("call", "c")]),
        ("user", [("result", "b"), ("result", "c"), ("result", "a")]),
        ("assistant", [("text", "done")]),
    ]


@pytest.mark.parametrize("provider", MERGING)
def test_c64_the_user_s_next_words_join_the_results(provider):
    """Results first, then the text."""
    view = repair(render([user(), calls("a"), results("a"), user("go on")], provider), provider)
    assert outline(view)[2:] == [("user", [("result", "a"), ("text", "go on")])]


@pytest.mark.parametrize("provider", MERGING)
def test_c65_what_held_only_repaired_parts_leaves_no_trace(provider):
    """No empty message, and its neighbours of one role become one."""
    history = render([user("a"), calls("x"), user("b"), assistant()], provider)
    assert outline(repair(history, provider)) == [
        ("user", [("text", "a"), ("text", "b")]),
        ("assistant", [("text", "done")]),
    ]


@pytest.mark.parametrize("shape", ["openai_chat", "openai_responses"])
def test_c65_openai_leaves_no_empty_message_and_merges_none(shape):
    """Neighbours of one role are fine there."""
    history = render([user("a"), calls("x"), user("b")], shape)
    view = repair(history, shape)
    assert [each.id for each in view] == [history[0].id, history[2].id]


def test_text_beside_a_dead_call_stays():
    """Only the call goes."""
    history = render([user(), calls("a", text="I look"), user("again")], "openai_chat")
    view = repair(history, "openai")
    assert outline(view)[1] == ("assistant", [("text", "I look")])
    assert "tool_calls" not in view[1].extra
    assert view[1].id == history[1].id


def test_parallel_calls_that_came_one_by_one_share_a_message_in_chat():
    """Chat Completions wants them so."""
    history = render([user(), calls("a"), calls("b"), results("a"), results("b")], "openai_chat")
    view = repair(history, "openai")
    assert validate(view, "openai") == []
    assert outline(view)[1] == ("assistant", [("call", "a"), ("call", "b")])


@pytest.mark.parametrize("provider", MERGING)
def test_the_user_is_made_to_begin(provider):
    """A greeting is kept; something of the user's is put before it, and no second time."""
    history = render([system(), assistant("Welcome!"), user()], provider)
    view = repair(history, provider)
    assert [each.role.value for each in view] == ["system", "user", "assistant", "user"]
    assert view[2:] == history[1:]
    assert repair(view, provider) == view
    assert repair(history, provider)[1].id == view[1].id


@pytest.mark.parametrize("provider", MERGING)
def test_later_system_messages_become_the_user_s(provider):
    """They stay where they are; leading ones stay what they are."""
    history = render([system("a"), user(), system("b"), assistant()], provider)
    assert outline(repair(history, provider)) == [
        ("system", [("text", "a")]),
        ("user", [("text", "hi"), ("text", "b")]),
        ("assistant", [("text", "done")]),
    ]


def test_a_merged_message_takes_over_what_the_provider_does_not_see():
    """Id, time and place of the first; pinned if any is; usage of the last."""
    first = message("user", "a", id="m1", metadata={"k": 1}).placed(7, "agent")
    second = message("user", "b", pinned=True, usage=Usage(3)).placed(8, "agent")
    (view,) = repair([first, second], "anthropic")
    assert (view.id, view.timestamp, view.position) == ("m1", first.timestamp, 7)
    assert (view.pinned, view.metadata, view.usage) == (True, {"k": 1}, Usage(3))
    assert view.content == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_results_inside_keep_what_is_not_blank():
    """Blank blocks within a result go, and JSON that is no object becomes text."""
    content = [{"text": " "}, {"json": [1, 2]}, {"text": "x"}, {"json": {"a": 1}}]
    result = {"toolResult": {"toolUseId": "a", "content": content}}
    history = [*render([user(), calls("a")], "bedrock"), message("user", [result])]
    (held,) = repair(history, "bedrock")[2].content
    assert held["toolResult"]["content"] == [{"text": "[1, 2]"}, {"text": "x"}, {"json": {"a": 1}}]


def test_calls_join_a_message_whose_dict_had_no_content():
    """The text of the joined message is not lost to the mark for its absence."""
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "a", **call}]},
        {"role": "assistant", "content": "and", "tool_calls": [{"id": "b", **call}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]
    joined = to_openai(repair(from_openai(chat), "openai"))[1]
    assert joined["content"] == "and"
    assert [each["id"] for each in joined["tool_calls"]] == ["a", "b"]


def test_what_cannot_be_carried_ends_the_wait_all_the_same():
    """A film beside the first result: Anthropic never sees it, but the second call is dead."""
    blocks = [
        {"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}},
        {"video": {"format": "mp4", "source": {"bytes": b"x"}}},
    ]
    history = [*render([user(), calls("a", "b")], "bedrock"), message("user", blocks)]
    assert not is_open(history)
    view = repair(history, "anthropic")
    assert outline(view)[1:] == [("assistant", [("call", "a")]), ("user", [("result", "a")])]


def test_words_between_two_calls_end_the_wait_among_responses_items():
    """There they are an item of their own, and the call before it is dead."""
    said = [user(), calls("a"), calls("b", text="and"), results("b")]
    view = repair(render(said, "openai_chat"), "openai_responses")
    assert validate(view, "openai_responses") == []
    assert [part for _, held in outline(view) for part in held] == [
        ("text", "hi"), ("text", "and"), ("call", "b"), ("result", "b"),
    ]  # fmt: skip
