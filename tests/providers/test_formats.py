"""What only a format's own module knows, and what holds for every format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import agent_memory.providers
from agent_memory import providers
from agent_memory.fitting import fit_to_tokens
from agent_memory.messages import ConversationMessage
from agent_memory.providers import convert, format_of, parts, repair, validate
from agent_memory.providers.parsing import FORMATS
from agent_memory.summarizers.transcript import TranscriptLimits, entries_of
from agent_memory.turns import group, is_open

PACKAGE = Path(agent_memory.providers.__file__).parent
HELLO = {"role": "user", "content": "hello"}
KNOWS_FORMATS = {"parsing.py", *(f"{form.name}.py" for form in FORMATS)}


def names_in(module):
    code = re.sub(r'"""(?s:.*?)"""|#[^\n]*', "", module.read_text(encoding="utf-8"))
    return [form.name for form in FORMATS if f'"{form.name}"' in code]


def test_only_a_format_names_itself():
    """Conversion, validation and repair are written against the value: no name is compared."""
    others = [path for path in PACKAGE.glob("*.py") if path.name not in KNOWS_FORMATS]
    assert {path.name: names_in(path) for path in others if names_in(path)} == {}
    for form in FORMATS:
        assert set(names_in(PACKAGE / f"{form.name}.py")) == {form.name}


# Loading


def test_the_old_role_function_comes_back():
    """Chat Completions still takes it; the role of such a message is tool here."""
    items = [
        HELLO,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "forty-two"},
    ]
    messages = providers.from_openai(items)
    assert providers.to_openai(messages) == items
    assert messages[2].role.value == "tool"
    assert validate(messages, "openai") == []


@pytest.mark.parametrize("item", [{"id": "msg_1"}, {"id": "msg_1", "type": None}])
def test_an_item_reference_needs_no_type(item):
    """As the SDK allows."""
    (message,) = providers.from_openai_responses([item])
    assert providers.to_openai_responses([message]) == [item]
    assert [(part.kind, part.name) for part in parts(message)] == [("other", "item_reference")]


def test_a_message_that_hides_its_format_is_marked():
    """A field that nobody knows returns to the format it came from, and to no other."""
    item = {"role": "user", "content": [{"type": "text", "text": "hi", "mood": "good"}]}
    (message,) = providers.from_openai([item])
    assert format_of(message) == "openai_chat"
    assert providers.to_openai([message]) == [item]
    assert convert([message], "openai").messages == [item]
    assert "mood" not in repr(convert([message], "anthropic").messages)
    assert convert(providers.from_anthropic([item]), "anthropic").messages == [item]


def test_a_message_that_shows_its_format_is_not_marked():
    """Nor one in which formats do not differ: what is stored is what was given."""
    items = [HELLO, {"role": "assistant", "content": "hi", "refusal": None}]
    assert [dict(message.extra) for message in providers.from_openai(items)] == [
        {},
        {"refusal": None},
    ]


def test_cache_control_of_nobody_in_particular_goes_to_anthropic_alone():
    """A message made by hand may be either's; the field is Anthropic's."""
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    message = ConversationMessage("user", [block])
    assert validate([message], "openai") == validate([message], "anthropic") == []
    assert convert([message], "anthropic").messages[0]["content"] == [block]
    assert convert([message], "openai").messages[0]["content"] == [{"type": "text", "text": "hi"}]


def test_tools_that_a_chat_server_ran_are_read():
    """Groq lists them beside the content: hosted calls with results, in nobody else's request."""
    run = {"index": 0, "type": "search", "arguments": '{"query": "x"}', "output": "found it"}
    item = {"role": "assistant", "content": "done", "executed_tools": [run]}
    (message,) = providers.from_openai([item])
    call, result, _ = parts(message)
    assert (call.kind, call.name, call.hosted) == ("call", "search", True)
    assert (result.kind, result.text, result.hosted) == ("result", "found it", True)
    conversion = convert([message], "anthropic")
    assert conversion.messages == [{"role": "assistant", "content": "done"}]
    assert len(conversion.left_out) == 2


# Ids and turns


def exchange(provider, call_id):
    """A call with this id and its result, in the provider's own form."""
    if provider == "anthropic":
        return providers.from_anthropic([
            HELLO,
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": call_id, "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id,
                "content": "forty-two"}]},
        ])  # fmt: skip
    return providers.from_bedrock([
        {"role": "user", "content": [{"text": "hello"}]},
        {"role": "assistant", "content": [
            {"toolUse": {"toolUseId": call_id, "name": "f", "input": {}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": call_id, "content": [{"text": "forty-two"}]}}]},
    ])  # fmt: skip


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
def test_ids_in_characters_that_are_refused_are_rewritten(provider):
    """Alike in the call and its result."""
    history = exchange(provider, "call|1")
    assert [(each.index, each.rule) for each in validate(history, provider)] == [
        (1, "call_id"),
        (2, "call_id"),
    ]
    view = repair(history, provider)
    assert validate(view, provider) == []
    (call,), (result,) = parts(view[1]), parts(view[2])
    assert call.id == result.id != "call|1"
    assert repair(exchange(provider, "call_1"), provider)[1].content == (
        exchange(provider, "call_1")[1].content
    )


def test_a_turn_of_the_assistants_may_be_two_messages_for_anthropic():
    """The API joins neighbours of one role, so that the results of both answer both."""

    def use(call_id):
        return {"type": "tool_use", "id": call_id, "name": "f", "input": {}}

    def answer(call_id):
        return {"type": "tool_result", "tool_use_id": call_id, "content": "x"}

    messages = providers.from_anthropic([
        HELLO,
        {"role": "assistant", "content": [use("a")]},
        {"role": "assistant", "content": [use("b")]},
        {"role": "user", "content": [answer("a"), answer("b")]},
    ])  # fmt: skip
    assert validate(messages, "anthropic") == []
    assert [each.rule for each in validate(messages[:2] + messages[3:], "anthropic")] == [
        "orphaned_result"
    ]


def test_results_of_what_the_provider_remembers_may_come_first_in_responses():
    """With previous_response_id; anywhere else they are orphans."""
    output = {"type": "function_call_output", "call_id": "c9", "output": "x"}
    assert validate(providers.from_openai_responses([output, HELLO]), "openai_responses") == []
    late = validate(providers.from_openai_responses([HELLO, output]), "openai_responses")
    assert [each.rule for each in late] == ["orphaned_result"]


def test_calls_without_ids_are_one_exchange():
    """So that no cut parts them from their results, and the exchange is open until both came."""
    call = {"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = providers.from_openai([
        HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "", "content": "one"},
        {"role": "tool", "tool_call_id": "", "content": "two"},
    ])  # fmt: skip
    assert [is_open(messages[:stop]) for stop in (2, 3, 4)] == [True, True, False]
    assert [(each.start, each.stop) for each in group(messages)] == [(0, 1), (1, 4)]
    assert [each.rule for each in validate(messages, "openai")] == ["call_id"] * 4


def test_a_paused_turn_may_go_on():
    """The hosted result comes with the assistant's next message; at the end it is awaited."""
    used = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    paused = [HELLO, {"role": "assistant", "content": [used]}]
    whole = [*paused, {"role": "assistant", "content": [found, {"type": "text", "text": "ok"}]}]
    for items in (paused, whole):
        messages = providers.from_anthropic(items)
        assert validate(messages, "anthropic") == []
        held = [part.raw for message in repair(messages, "anthropic") for part in parts(message)]
        assert used in held
    (lost,) = validate(providers.from_anthropic([HELLO, whole[2]]), "anthropic")
    assert lost.rule == "orphaned_result"


# What goes where


def test_a_system_message_that_changes_the_tools_stays_one():
    """Anthropic takes it in the middle; words alone become the user's, for older models."""
    change = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    told = {"role": "system", "content": "Be brief."}
    messages = providers.from_anthropic([HELLO, {"role": "system", "content": [change]}, told])
    assert validate(messages, "anthropic") == []
    view = repair(messages, "anthropic")
    assert [message.role.value for message in view] == ["user", "system", "user"]
    assert view[1] is messages[1]
    assert validate(view, "anthropic") == []


def test_an_encrypted_compaction_is_kept_when_a_history_is_cut():
    """Nothing else tells what came before it."""
    opaque = {"type": "compaction", "encrypted_content": "gAAAA"}
    words = [{"role": "user", "content": "word " * 50} for _ in range(20)]
    messages = providers.from_openai_responses([HELLO, opaque, *words])
    kept = fit_to_tokens(messages, 300)
    assert messages[1] in kept
    assert messages[0] not in kept


def test_a_text_file_goes_to_anthropic_as_text():
    """Base64 is for PDFs and pictures there."""
    document = {"document": {"name": "a", "format": "txt", "source": {"bytes": b"forty-two"}}}
    messages = providers.from_bedrock([{"role": "user", "content": [document]}])
    (block,) = convert(messages, "anthropic").messages[0]["content"]
    assert block["source"] == {"type": "text", "media_type": "text/plain", "data": "forty-two"}


def test_fields_of_a_full_reply_are_not_sent_back():
    """A dict of Anthropic's whole reply round trips, and its request holds role and content."""
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
    messages = providers.from_anthropic([HELLO, reply])
    assert providers.to_anthropic(messages)[1] == reply
    assert convert(messages, "anthropic").messages[1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
    }


def test_fields_that_two_formats_know_are_not_a_thirds():
    """``type`` is known to Responses and to Anthropic's replies, and refused by Chat."""
    item = {"type": "message", "role": "user", "content": "hi"}
    messages = providers.from_openai_responses([item])
    assert convert(messages, "openai").messages == [{"role": "user", "content": "hi"}]
    assert convert(messages, "openai_responses").messages == [item]


UNKNOWN = [
    (providers.from_openai, {"role": "user", "content": [
        {"type": "note_card", "id": "n1", "body": {"headline": "The pump leaks."}}]}),
    (providers.from_anthropic, {"role": "user", "content": [
        {"type": "note_card", "id": "n1", "body": {"headline": "The pump leaks."}}]}),
    (providers.from_openai_responses,
        {"type": "note_card", "id": "n1", "body": {"headline": "The pump leaks."}}),
    (providers.from_bedrock, {"role": "user", "content": [
        {"noteCard": {"headline": "The pump leaks."}}]}),
]  # fmt: skip


@pytest.mark.parametrize(("load", "item"), UNKNOWN)
def test_a_type_that_nobody_knows_yet_is_read_as_far_as_a_person_could(load, item):
    """It goes back to its own provider as it is, is named for others, and is summarized."""
    messages = load([item])
    own = {"from_openai": "openai", "from_anthropic": "anthropic", "from_bedrock": "bedrock"}.get(
        load.__name__, "openai_responses"
    )
    assert "The pump leaks." in "\n".join(entries_of(messages, TranscriptLimits()))
    for provider in ("openai", "openai_responses", "anthropic", "bedrock"):
        conversion = convert(repair(messages, provider), provider)
        assert ("pump" in repr(conversion.messages)) is (provider == own), provider
        named = [left.part.kind for left in convert(messages, provider).left_out]
        assert named == ([] if provider == own else ["other"])
