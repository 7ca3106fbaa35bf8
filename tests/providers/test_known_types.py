"""Every block and item type that the SDKs of today know is read as what it is.

A type that an SDK adds fails here by its name, until it is read, written down in KINDS, and has
its row in docs/providers.md.
"""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory import providers
from agent_memory.providers import convert, repair, validate
from agent_memory.providers.violations import Rule
from agent_memory.summarizers.transcript import TranscriptLimits, entries_of
from judge import PROVIDERS, faults
from recorded import letters, texts_of
from sdk_samples import replies, samples

DOCS = Path(__file__).parents[2] / "docs" / "providers.md"
CODECS = {
    "openai": (providers.from_openai, providers.to_openai),
    "openai_responses": (providers.from_openai_responses, providers.to_openai_responses),
    "anthropic": (providers.from_anthropic, providers.to_anthropic),
    "bedrock": (providers.from_bedrock, providers.to_bedrock),
}
WHOLE = TranscriptLimits(result=10**6, call=10**6)

STATE = ["other"]
"""For the provider alone: nothing in it that a person or another provider could read."""
KINDS = {
    "openai": {
        "text": ["text"],
        "image_url": ["media"],
        "input_audio": ["media"],
        "file": ["media"],
        "tool_calls function": ["call"],
        "tool_calls custom": ["call"],
        "assistant text": ["text"],
        "assistant refusal": ["text"],
    },
    "openai_responses": {
        "additional_tools": STATE,
        "apply_patch_call": ["call"],
        "apply_patch_call_output": ["result"],
        "code_interpreter_call": ["call", "result"],
        "compaction": STATE,
        "compaction_trigger": STATE,
        "computer_call": ["call"],
        "computer_call_output": ["result"],
        "configuration_update": STATE,
        "custom_tool_call": ["call"],
        "custom_tool_call_output": ["result"],
        "file_search_call": ["call", "result"],
        "function_call": ["call"],
        "function_call_output": ["result"],
        "image_generation_call": ["call", "result"],
        "input_file": ["media"],
        "input_image": ["media"],
        "input_text": ["text"],
        "item_reference": STATE,
        "local_shell_call": ["call"],
        "local_shell_call_output": ["result"],
        "mcp_approval_request": ["call"],
        "mcp_approval_response": ["result"],
        "mcp_call": ["call", "result"],
        "mcp_list_tools": STATE,
        "output_text": ["text"],
        "program": ["call"],
        "program_output": ["result"],
        "reasoning": ["reasoning"],
        "refusal": ["text"],
        "shell_call": ["call"],
        "shell_call_output": ["result"],
        "tool_search_call": ["call"],
        "tool_search_output": ["result"],
        "web_search_call": ["call"],
    },
    "anthropic": {
        "advisor_tool_result": ["result"],
        "bash_code_execution_tool_result": ["result"],
        "code_execution_tool_result": ["result"],
        "compaction": ["text"],
        "container_upload": ["media"],
        "document": ["media"],
        "fallback": STATE,
        "image": ["media"],
        "mcp_tool_listing": STATE,
        "mcp_tool_result": ["result"],
        "mcp_tool_use": ["call"],
        "redacted_thinking": ["reasoning"],
        "search_result": ["text"],
        "server_tool_use": ["call"],
        "text": ["text"],
        "text_editor_code_execution_tool_result": ["result"],
        "thinking": ["reasoning"],
        "tool_addition": STATE,
        "tool_removal": STATE,
        "tool_result": ["result"],
        "tool_search_tool_result": ["result"],
        "tool_use": ["call"],
        "web_fetch_tool_result": ["result"],
        "web_search_tool_result": ["result"],
    },
    "bedrock": {
        "cachePoint": STATE,
        "citationsContent": ["text"],
        "document": ["media"],
        "guardContent": ["text"],
        "image": ["media"],
        "reasoningContent": ["reasoning"],
        "text": ["text"],
        "toolResult": ["result"],
        "toolUse": ["call"],
        "video": ["media"],
    },
}


def every_sample(*, full):
    return [
        pytest.param(provider, made, id=f"{provider}-{name}")
        for provider in PROVIDERS
        for name, made in samples(provider, full=full).items()
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_type_is_read_as_what_it_is(provider):
    """By its kind; a type that is not in KINDS is one that the SDK has added since.

    An older SDK may lack some.
    """
    load, _ = CODECS[provider]
    read = {
        name: [part.kind for message in load(made) for part in providers.parts(message)]
        for name, made in samples(provider, full=True).items()
    }
    assert read == {name: KINDS[provider].get(name) for name in read}
    assert len(read) >= 8


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_type_has_a_row_in_the_documentation(provider):
    """Under its provider's heading."""
    heading = {
        "openai": "Chat Completions",
        "openai_responses": "Responses",
        "anthropic": "Anthropic Messages",
        "bedrock": "Bedrock Converse",
    }[provider]
    _, _, section = DOCS.read_text(encoding="utf-8").partition(f"### {heading}\n")
    assert section, heading
    listed = set(re.findall(r"`([\w ]+)`", section.partition("\n### ")[0]))
    assert sorted(name for name in KINDS[provider] if name not in listed) == []


def test_every_rule_has_a_row_in_the_documentation():
    """And no row is about a rule that is gone."""
    _, _, section = DOCS.read_text(encoding="utf-8").partition("## Rules of requests\n")
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(typing.get_args(Rule))


@pytest.mark.parametrize(("provider", "made"), every_sample(full=True))
def test_all_keys_of_every_type_come_back(provider, made):
    """With all the optional keys that the SDK knows, nothing is lost on the way back."""
    load, dump = CODECS[provider]
    assert dump(load(made)) == made


HELLO = {"role": "user", "content": "hello"}
GOODBYE = {"role": "user", "content": "bye"}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("target", PROVIDERS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_type_gives_a_right_request(provider, target, full):
    """Alone between two messages of a user, as a view for each provider."""
    load, _ = CODECS[provider]
    wrong = {}
    for name, made in samples(provider, full=full).items():
        view = repair(
            [*providers.from_openai([HELLO]), *load(made), *providers.from_openai([GOODBYE])],
            target,
        )
        request = convert(view, target)
        found = [fault.kind for fault in faults(request.messages, target, request.system)]
        found += [f"{each.rule}: {each.text}" for each in validate(view, target)]
        if found:
            wrong[name] = found
    assert wrong == {}


@pytest.mark.parametrize(("provider", "made"), every_sample(full=True))
def test_what_every_type_says_is_in_the_transcript(provider, made):
    """All that a person could read; a block that only the provider can read is named."""
    load, _ = CODECS[provider]
    messages = load(made)
    transcript = letters("\n".join(entries_of(messages, WHOLE)))
    kinds = {part.kind for message in messages for part in providers.parts(message)}
    if kinds != {"other"}:
        assert [
            text for each in made for text in texts_of(each) if letters(text) not in transcript
        ] == []


def test_a_text_file_is_sent_as_text():
    """Anthropic takes base64 of PDFs alone; what Bedrock has as bytes of a .txt is text."""
    document = {"document": {"format": "txt", "name": "d", "source": {"bytes": b"Hi there"}}}
    messages = providers.from_bedrock([{"role": "user", "content": [{"text": "see"}, document]}])
    request = convert(messages, "anthropic")
    assert faults(request.messages, "anthropic") == []
    assert request.messages[0]["content"][1]["source"] == {
        "type": "text",
        "media_type": "text/plain",
        "data": "Hi there",
    }


def test_what_the_assistant_said_in_two_blocks_needs_no_id():
    """A list of output_text does, in Responses; a string does not."""
    said = [{"type": "text", "text": "one", "citations": []}, {"type": "text", "text": "two"}]
    messages = providers.from_anthropic([{"role": "assistant", "content": said}])
    request = convert(messages, "openai_responses")
    assert request.messages == [{"role": "assistant", "content": "one\ntwo"}]
    assert faults(request.messages, "openai_responses") == []


@pytest.mark.parametrize("provider", ["openai", "openai_responses", "anthropic"])
def test_what_only_replies_have_goes_nowhere(provider):
    """Every type of reply with all its keys: kept exactly, and sent back without what is refused.

    Bedrock's model has one type for both.
    """
    load, dump = CODECS[provider]
    wrong, allowed = {}, {"role: Input should be 'developer'"}
    for name, reply in replies(provider).items():
        messages = load([reply])
        assert dump(messages) == [reply]
        found = {fault.kind for fault in faults(convert(messages, provider).messages, provider)}
        if found - allowed:
            wrong[name] = found
    assert wrong == {}


def any_sequence():
    """Messages with one block each, of any types and any provider, mixed."""
    loaded = [
        (provider, item)
        for provider in PROVIDERS
        for full in (False, True)
        for made in samples(provider, full=full).values()
        for item in made
    ]
    drawn = st.lists(st.sampled_from(loaded), min_size=1, max_size=6)
    return drawn.map(lambda items: [CODECS[provider][0]([item])[0] for provider, item in items])


@given(history=any_sequence(), target=st.sampled_from(PROVIDERS))
@settings(max_examples=300)
def test_any_sequence_of_types_gives_a_right_request(history, target):
    """Calls find the results that bear their id, whichever kinds they are of."""
    view = repair(history, target)
    assert validate(view, target) == []
    assert all(a is b for a, b in zip(repair(view, target), view, strict=True))
    request = convert(view, target)
    assert [fault.kind for fault in faults(request.messages, target, request.system)] == []
