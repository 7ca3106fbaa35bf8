"""Reports about providers' formats, each with the right value (C76 to C87)."""

from __future__ import annotations

import copy

import pytest

from agent_memory import InMemoryChatStorage, SummarizingChatStorage, providers
from agent_memory.messages import ConversationMessage
from agent_memory.providers import convert, validate
from agent_memory.summarizers import LLMSummarizer
from agent_memory.testing import ScriptedSummarizer
from agent_memory.tokens import HeuristicTokenCounter
from judge import PROVIDERS, faults
from rig import IDS

LOAD = {
    "openai": providers.from_openai,
    "openai_responses": providers.from_openai_responses,
    "anthropic": providers.from_anthropic,
    "bedrock": providers.from_bedrock,
}
DUMP = {
    "openai": providers.to_openai,
    "openai_responses": providers.to_openai_responses,
    "anthropic": providers.to_anthropic,
    "bedrock": providers.to_bedrock,
}
HELLO = {"role": "user", "content": "hello"}
LONG = "Found it at the beginning. " + "lorem ipsum dolor " * 4_220 + "And this is the end."
"""76,000 characters."""


def load(items, provider):
    return LOAD[provider](copy.deepcopy(items))


async def view(messages, provider, *, summarizer=None, **options):
    """What a wrapper made for the provider shows, as a request, checked both ways."""
    async with SummarizingChatStorage(
        InMemoryChatStorage(), summarizer or ScriptedSummarizer(), provider=provider, **options
    ) as storage:
        for message in messages:
            await storage.save_chat_message(*IDS, message)
            shown = await storage.fetch_chat(*IDS)
    assert validate(shown, provider) == []
    request = convert(shown, provider)
    assert request.left_out == []
    assert [fault.kind for fault in faults(request.messages, provider, request.system)] == []
    return request.messages


async def transcript(messages):
    """What the LLM summarizer's model is sent of a history."""
    sent = []

    async def model(_instruction, text, **_parameters):
        sent.append(text)
        return "notes"

    newest = [ConversationMessage("user", "so?"), ConversationMessage("assistant", "so.")]
    summarizer = LLMSummarizer(model, keep_recent_count=1)
    await summarizer.summarize([*messages, *newest], 10**6)
    return "\n".join(sent)


def calls_and_results(messages):
    """Calls and results of a request, whichever form it is in: ("call" or "result", id, JSON)."""
    found = [part for each in messages for part in providers.parts(each)]
    return [part for part in found if part.kind in ("call", "result")]


BEDROCK_TYPED = [
    {"role": "user", "content": [{"text": "hello"}]},
    {"role": "assistant", "content": [
        {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}, "type": "tool_use"}}]},
    {"role": "user", "content": [
        {"toolResult": {"toolUseId": "t1", "content": [{"text": "forty-two"}],
            "type": "tool_result"}}]},
]  # fmt: skip


@pytest.mark.parametrize("type_of_result", [None, "tool_result"])
async def test_c76_a_bedrock_call_that_names_its_type_is_an_ordinary_call(type_of_result):
    """Only server_tool_use is hosted; the result of any other call is the application's."""
    given = copy.deepcopy(BEDROCK_TYPED)
    if type_of_result is None:
        del given[2]["content"][0]["toolResult"]["type"]
    messages = load(given, "bedrock")
    (call,) = providers.parts(messages[1])
    (result,) = providers.parts(messages[2])
    assert (call.kind, call.hosted, result.kind, result.hosted) == ("call", False, "result", False)
    assert validate(messages, "bedrock") == []
    assert DUMP["bedrock"](providers.repair(messages, "bedrock")) == given
    for provider in ("openai", "openai_responses", "anthropic"):
        assert "forty-two" in repr(await view(messages, provider)), provider


def test_c76_a_hosted_bedrock_call_says_server_tool_use():
    """Its result sits in the assistant's message, and nobody else answers it."""
    messages = load([
        BEDROCK_TYPED[0],
        {"role": "assistant", "content": [
            {"toolUse": {"toolUseId": "s1", "name": "nova_grounding", "input": {},
                "type": "server_tool_use"}},
            {"toolResult": {"toolUseId": "s1", "content": [{"text": "x"}],
                "type": "nova_grounding_result"}},
            {"text": "done"}]},
    ], "bedrock")  # fmt: skip
    call, result, _ = providers.parts(messages[1])
    assert call.hosted
    assert result.hosted
    assert validate(messages, "bedrock") == []


def hosted(result):
    """An assistant's message with a hosted call and its result, in Anthropic's form."""
    return {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s1", "name": "code_execution",
            "input": {"code": "go()"}},
        {**result, "tool_use_id": "s1"}]}  # fmt: skip


RAN = {"stdout": LONG, "stderr": "", "return_code": 0, "content": []}
TEXT_SOURCE = {"type": "text", "media_type": "text/plain", "data": LONG}
HOSTED = {
    "mcp_call": ("openai_responses", {"type": "mcp_call", "id": "m1", "name": "ask",
        "server_label": "s", "arguments": '{"q": "why"}', "output": LONG}),
    "mcp_call error": ("openai_responses", {"type": "mcp_call", "id": "m1", "name": "ask",
        "server_label": "s", "arguments": "{}", "error": {"type": "mcp_tool_execution_error",
        "content": [{"type": "text", "text": LONG}]}}),
    "code_interpreter_call": ("openai_responses", {"type": "code_interpreter_call", "id": "c1",
        "container_id": "x", "status": "completed", "code": "print(1)",
        "outputs": [{"type": "logs", "logs": LONG}]}),
    "code_interpreter_call code": ("openai_responses", {"type": "code_interpreter_call",
        "id": "c1", "container_id": "x", "status": "completed", "code": LONG, "outputs": None}),
    "file_search_call": ("openai_responses", {"type": "file_search_call", "id": "f1",
        "queries": ["what is it"], "status": "completed", "results": [
        {"file_id": "file-1", "filename": "a.txt", "score": 0.5, "text": LONG}]}),
    "code_execution": ("anthropic", hosted({"type": "code_execution_tool_result",
        "content": {"type": "code_execution_result", **RAN}})),
    "bash_code_execution": ("anthropic", hosted({"type": "bash_code_execution_tool_result",
        "content": {"type": "bash_code_execution_result", **RAN}})),
    "web_fetch": ("anthropic", hosted({"type": "web_fetch_tool_result", "content": {
        "type": "web_fetch_result", "url": "https://e.org", "content": {"type": "document",
        "source": TEXT_SOURCE}}})),
    "text_editor": ("anthropic", hosted({"type": "text_editor_code_execution_tool_result",
        "content": {"type": "text_editor_code_execution_view_result", "file_type": "text",
        "content": LONG}})),
    "mcp_tool_result": ("anthropic", {"role": "assistant", "content": [
        {"type": "mcp_tool_use", "id": "s1", "name": "ask", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "s1", "content": [
            {"type": "text", "text": LONG}]}]}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTED)
async def test_c77_results_of_hosted_tools_are_read_and_counted(name):
    """In the transcript, cut as any long result; and by tokens, as any long text."""
    provider, item = HOSTED[name]
    assert len(LONG) >= 76_000
    messages = load([HELLO, item], provider)
    assert faults([item], provider) == []
    sent = await transcript(messages)
    assert "Found it at the beginning." in sent
    assert "And this is the end." in sent
    assert len(sent) < 12_000
    counted = HeuristicTokenCounter().count(messages[1])
    text = HeuristicTokenCounter().count(ConversationMessage("user", LONG))
    assert 0.9 * text <= counted <= 1.2 * text


PATCH = {
    "type": "apply_patch_call",
    "call_id": "p1",
    "status": "completed",
    "operation": {"type": "update_file", "path": "a.py", "diff": "@@ -1 +1 @@ old_line new_line"},
}
SHELL = {"type": "shell_call", "call_id": "sh1", "action": {"commands": ["ls --almost-all"]}}
LISTED = {
    "type": "shell_call_output",
    "call_id": "sh1",
    "output": [
        {
            "stdout": "a.txt listed",
            "stderr": "a warning",
            "outcome": {"type": "exit", "exit_code": 0},
        }
    ],
}
ASKED = {
    "type": "mcp_approval_request",
    "id": "m1",
    "name": "wipe_disk",
    "arguments": "{}",
    "server_label": "s",
}
REFUSED = {
    "type": "mcp_approval_response",
    "approval_request_id": "m1",
    "approve": False,
    "reason": "far too dangerous",
}
TOLD = {
    "apply_patch": ([PATCH, {"type": "apply_patch_call_output", "call_id": "p1",
        "status": "failed", "output": "no such line"}],
        ["a.py", "old_line new_line", "no such line"]),
    "shell": ([SHELL, LISTED], ["ls --almost-all", "a.txt listed", "a warning"]),
    "local_shell": ([
        {"type": "local_shell_call", "id": "l1", "call_id": "lc1", "status": "completed",
            "action": {"type": "exec", "command": ["ls", "-la"], "env": {}}},
        {"type": "local_shell_call_output", "id": "lc1", "output": '{"stdout": "b.txt"}'}],
        ["-la", "b.txt"]),
    "approval": ([ASKED, REFUSED], ["wipe_disk", "far too dangerous"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
async def test_c78_what_responses_calls_and_answers_say_is_carried(name):
    """Into other providers' calls and results, and into the transcript."""
    items, told = TOLD[name]
    messages = load([HELLO, *items], "openai_responses")
    assert faults(items, "openai_responses") == []
    sent = await transcript(messages)
    assert [text for text in told if text not in sent] == []
    assert (await view(messages, "openai_responses"))[1:] == items
    for provider in ("openai", "anthropic", "bedrock"):
        conversion = convert(messages, provider)
        carried = repr(conversion.messages) + repr(conversion.left_out)
        assert [text for text in told if text not in carried] == [], provider
        assert [text for text in told if text not in repr(await view(messages, provider))] == []


async def test_c78_a_refused_approval_is_told_from_a_granted_one():
    """Without a reason, too."""
    seen = set()
    for approve in (True, False):
        answer = {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": approve}
        messages = load([HELLO, ASKED, answer], "openai_responses")
        seen.add(await transcript(messages))
        for provider in ("openai", "anthropic", "bedrock"):
            seen.add((provider, repr(await view(messages, provider))))
    assert len(seen) == 2 * 4


OPAQUE = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAopaque"}
READABLE = {"role": "assistant", "content": [
    {"type": "compaction", "content": "The user is called Ada."}]}  # fmt: skip


def chatter(count):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": f"say {i}"} for i in range(count)]


async def test_c79_an_unreadable_compaction_stays_in_the_head():
    """A summarizer cannot read it, so that only its own provider still has what it says."""
    messages = load([HELLO, OPAQUE, *chatter(12)], "openai_responses")
    summarizer = ScriptedSummarizer()
    shown = await view(
        messages, "openai_responses", summarizer=summarizer, trigger_at=3, keep_last=1
    )
    assert len(shown) < len(messages)
    assert shown.count(OPAQUE) == 1
    given = [message for call in summarizer.calls for message in call.history]
    assert given
    assert messages[1] not in given
    for provider in ("openai", "anthropic", "bedrock"):
        assert "gAAAAAopaque" not in repr(await view(messages, provider))
        assert [
            "compaction" in repr(left.part) for left in convert(messages, provider).left_out
        ] == [True]


async def test_c79_a_readable_compaction_is_read():
    """By the summarizer, and by other providers; its own gets the block back."""
    first, *rest = chatter(12)
    messages = load([first, READABLE, *rest[1:]], "anthropic")
    assert "The user is called Ada." in await transcript(messages)
    assert READABLE in await view(messages[:2], "anthropic")
    for provider in ("openai", "openai_responses", "bedrock"):
        shown = await view(messages, provider)
        assert "The user is called Ada." in repr(shown), provider
        assert "'compaction'" not in repr(shown), provider


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_c80_calls_with_an_empty_id_are_paired_by_place(provider):
    """The view makes an id up, the same for the call and its result, and for no other."""

    def call(name):
        return {"id": "", "type": "function", "function": {"name": name, "arguments": "{}"}}

    messages = load([
        HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call("f"), call("g")]},
        {"role": "tool", "tool_call_id": "", "content": "of f"},
        {"role": "tool", "tool_call_id": "", "content": "of g"},
        {"role": "assistant", "content": None, "tool_calls": [call("h")]},
        {"role": "tool", "tool_call_id": "", "content": "of h"},
        {"role": "user", "content": "thanks"},
    ], "openai")  # fmt: skip
    shown = calls_and_results(load(await view(messages, provider), provider))
    names = {part.id: part.name for part in shown if part.kind == "call"}
    assert sorted(names.values()) == ["f", "g", "h"]
    assert "" not in names
    assert None not in names
    answered = [(names[part.id], part.text) for part in shown if part.kind == "result"]
    assert answered == [("f", "of f"), ("g", "of g"), ("h", "of h")]


SEARCHED = [
    {"type": "tool_search_call", "id": "tsc_1", "call_id": None, "execution": "server",
        "status": "completed", "arguments": {"queries": ["get_exchange_rate"]}},
    {"type": "tool_search_output", "id": "tso_1", "call_id": None, "execution": "server",
        "status": "completed", "tools": [{"type": "function", "name": "get_exchange_rate",
        "parameters": {"type": "object", "properties": {}}, "strict": True}]},
]  # fmt: skip


async def test_c81_a_tool_search_that_openai_runs_is_valid_and_kept():
    """Neither item waits for anybody, and neither is an orphan."""
    items = [HELLO, *SEARCHED, {"role": "user", "content": "go on"}]
    messages = load(items, "openai_responses")
    assert validate(messages, "openai_responses") == []
    assert await view(messages, "openai_responses") == items
    for provider in ("openai", "anthropic", "bedrock"):
        assert "go on" in repr(await view(messages, provider))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_c82_a_view_holds_the_targets_own_fields_only(provider):
    """What the SDK's reply has and its request does not stays behind, as does a user's name."""
    items = [
        {"role": "user", "content": "hello", "name": "ann"},
        {"role": "assistant", "content": "hi", "refusal": None, "annotations": [],
            "function_call": None, "audio": None},
        {"role": "user", "content": "go on", "name": "bob"},
    ]  # fmt: skip
    messages = load(items, "openai")
    assert providers.to_openai(messages) == items
    shown = repr(await view(messages, provider))
    foreign = ["annotations"] if provider == "openai" else ["annotations", "refusal", "name"]
    assert [key for key in foreign if f"'{key}'" in shown] == []
    assert "hi" in shown
    assert ("ann" in shown) is (provider == "openai")


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
DREW = [
    HELLO,
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "draw", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": [
        {"type": "text", "text": "a picture"}, PICTURE]},
    {"role": "tool", "tool_call_id": "c2", "content": "nothing"},
]  # fmt: skip


async def test_c83_a_picture_in_a_chat_result_moves_behind_the_results():
    """A tool message holds text only: the picture follows in a user's message."""
    shown = await view(load(DREW, "openai"), "openai")
    assert [message["role"] for message in shown] == ["user", "assistant", "tool", "tool", "user"]
    assert "a picture" in repr(shown[2]["content"])
    assert PICTURE in shown[4]["content"]
    assert any(
        found.rule == "result_content" for found in validate(load(DREW, "openai"), "openai")
    )


@pytest.mark.parametrize("provider", ["openai_responses", "anthropic", "bedrock"])
async def test_c83_a_picture_in_a_chat_result_stays_in_it_elsewhere(provider):
    """The other three take pictures within results."""
    shown = load(await view(load(DREW, "openai"), provider), provider)
    results = [part for part in calls_and_results(shown) if part.kind == "result"]
    assert [len([i for i in part.inner if i.kind == "media"]) for part in results] == [1, 0]


FREE_TEXT = '*** Begin Patch\n*** Update File: "a.py"\n+x = {}\n*** End Patch'
CUSTOM = {
    "openai": [HELLO,
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": FREE_TEXT}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "patched"}],
    "openai_responses": [HELLO,
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": FREE_TEXT},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "patched"}],
}  # fmt: skip


@pytest.mark.parametrize("source", CUSTOM)
@pytest.mark.parametrize("target", CUSTOM)
async def test_c84_a_custom_tools_free_text_stays_a_custom_call(source, target):
    """Chat and Responses have the same thing under two names."""
    assert await view(load(CUSTOM[source], source), target) == CUSTOM[target]


@pytest.mark.parametrize("source", CUSTOM)
@pytest.mark.parametrize("target", ["anthropic", "bedrock"])
async def test_c84_a_custom_tools_free_text_is_an_argument_elsewhere(source, target):
    """Arguments are a dict there, which holds the text exactly."""
    call, _ = calls_and_results(load(await view(load(CUSTOM[source], source), target), target))
    assert list(call.payload.values()) == [FREE_TEXT]


SEARCHING = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


async def test_c85_a_hosted_call_without_its_result_is_left_out():
    """A paused turn that the user did not let go on: Anthropic refuses the call that is left."""
    text = {"type": "text", "text": "Let me look."}
    paused = [HELLO, {"role": "assistant", "content": [text, SEARCHING]}]
    messages = load([*paused, {"role": "user", "content": "never mind"}], "anthropic")
    found = validate(messages, "anthropic")
    assert [(each.index, each.rule) for each in found] == [(1, "unanswered_call")]
    shown = await view(messages, "anthropic")
    assert "server_tool_use" not in repr(shown)
    assert "Let me look." in repr(shown)
    # While the turn is paused it goes on with what it has.
    assert validate(load(paused, "anthropic"), "anthropic") == []
    assert SEARCHING in (await view(load(paused, "anthropic"), "anthropic"))[-1]["content"]
    # Its result may come in the message that goes on with the turn.
    resumed = [*paused, {"role": "assistant", "content": [FOUND, text]}]
    assert validate(load(resumed, "anthropic"), "anthropic") == []


@pytest.mark.parametrize("signature", [{}, {"signature": ""}, {"signature": None}])
async def test_c86_thinking_without_a_signature_is_left_out(signature):
    """What a cut stream leaves; Anthropic verifies the signature and refuses the block."""
    thinking = {"type": "thinking", "thinking": "hm", **signature}
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "3"}
    items = [
        HELLO,
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "hi"}, call]},
        {"role": "user", "content": [result]},
    ]  # fmt: skip
    messages = load(items, "anthropic")
    assert providers.to_anthropic(messages) == items
    assert [each.index for each in validate(messages, "anthropic")] == [1]
    shown = await view(messages, "anthropic")
    assert shown[1]["content"] == [{"type": "text", "text": "hi"}, call]
    signed = copy.deepcopy(items)
    signed[1]["content"][0] = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert validate(load(signed, "anthropic"), "anthropic") == []
    assert (await view(load(signed, "anthropic"), "anthropic"))[1] == signed[1]


MARKS = [
    {"cache_control": {"type": "ephemeral"}},
    {"prompt_cache_breakpoint": {"mode": "explicit"}},
]


@pytest.mark.parametrize("mark", MARKS)
async def test_c87_cache_marks_on_chat_parts_come_back(mark):
    """OpenRouter's and LiteLLM's, and OpenAI's own: an exact round trip, and no violation."""
    items = [
        {"role": "system", "content": [{"type": "text", "text": "be brief", **mark}]},
        {"role": "user", "content": [{"type": "text", "text": "hello", **mark}]},
    ]
    messages = load(items, "openai")
    assert providers.to_openai(messages) == items
    assert validate(messages, "openai") == []
    assert providers.repair(messages, "openai") == messages
    assert convert(messages, "openai").messages == items
    for provider in ("openai_responses", "anthropic", "bedrock"):
        assert "hello" in repr(await view(messages, provider))


async def test_c87_cache_marks_of_another_format_stay_behind():
    """Anthropic's on a text block, which Chat writes in the same way."""
    mark = {"cache_control": {"type": "ephemeral"}}
    items = [{"role": "user", "content": [{"type": "text", "text": "hello", **mark}]}]
    messages = load(items, "anthropic")
    assert providers.to_anthropic(messages) == items
    assert convert(messages, "anthropic").messages == items
    for provider in ("openai", "openai_responses", "bedrock"):
        assert "cache_control" not in repr(await view(messages, provider))


async def test_c77_what_a_spoken_reply_says_is_read():
    """The transcript of Chat's audio: by the summarizer, and by other providers as text."""
    audio = {
        "id": "audio_1",
        "data": "AAAA",
        "expires_at": 1,
        "transcript": "Trains leave at nine.",
    }
    items = [HELLO, {"role": "assistant", "content": None, "audio": audio}]
    messages = load(items, "openai")
    assert providers.to_openai(messages) == items
    assert "Trains leave at nine." in await transcript(messages)
    assert (await view(messages, "openai"))[1]["audio"] == {"id": "audio_1"}
    for provider in ("openai_responses", "anthropic", "bedrock"):
        assert "Trains leave at nine." in repr(await view(messages, provider)), provider


@pytest.mark.parametrize(
    ("outcome", "told"),
    [({"type": "exit", "exit_code": 2}, "2"), ({"type": "timeout"}, "time")],
)
async def test_c78_how_a_shell_command_ended_is_told(outcome, told):
    """A failure without a word on stderr is a failure all the same."""
    chunk = {"stdout": "", "stderr": "", "outcome": outcome}
    output = {"type": "shell_call_output", "call_id": "sh1", "output": [chunk]}
    messages = load([HELLO, SHELL, output], "openai_responses")
    sent = await transcript(messages)
    (entry,) = [line for line in sent.splitlines() if line.startswith("tool ")]
    assert told in entry.partition(": ")[2]
    for provider in ("openai", "anthropic", "bedrock"):
        results = [
            part
            for part in calls_and_results(load(await view(messages, provider), provider))
            if part.kind == "result"
        ]
        assert told in results[0].text, provider
    assert providers.parts(messages[2])[0].is_error


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
async def test_a_failed_result_without_a_word_gets_one(provider):
    """Anthropic and Bedrock refuse a result that is an error and has no content."""
    items = {
        "anthropic": [
            HELLO,
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": ""}]},
        ],
        "bedrock": [
            {"role": "user", "content": [{"text": "hello"}]},
            {"role": "assistant", "content": [
                {"toolUse": {"toolUseId": "t1", "name": "f", "input": {}}}]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "t1", "status": "error", "content": []}}]},
        ],
    }  # fmt: skip
    own = load(items[provider], provider)
    assert [each.rule for each in validate(own, provider)] == ["result_content"]
    for source, given in items.items():
        shown = await view(load(given, source), provider)
        (result,) = [
            part for part in calls_and_results(load(shown, provider)) if part.kind == "result"
        ]
        assert result.text.strip()
        assert result.is_error


async def test_a_document_alone_gets_a_text_beside_it():
    """Bedrock wants a text block in a message with a document."""
    document = {"document": {"format": "pdf", "name": "report", "source": {"bytes": b"%PDF"}}}
    messages = load([{"role": "user", "content": [document]}], "bedrock")
    assert len(validate(messages, "bedrock")) == 1
    (shown,) = await view(messages, "bedrock")
    assert document in shown["content"]
    assert any(block.get("text", "").strip() for block in shown["content"])
