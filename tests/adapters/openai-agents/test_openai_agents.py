"""AgentMemorySession: the SDK's Session over our storages."""

from __future__ import annotations

import typing

import pytest
from agents import Agent, ModelSettings, Runner, SessionSettings, function_tool
from agents.extensions.memory import EncryptedSession
from agents.memory import Session
from agents.models.openai_responses import OpenAIResponsesModel
from agents.run import RunConfig
from openai.types.responses import ResponseInputItemParam, ResponseOutputMessage
from scripted import ScriptedModel

from agent_memory import (
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    Note,
    SummarizingChatStorage,
)
from agent_memory.adapters import AgentMemorySession
from agent_memory.providers import from_openai_responses, validate
from agent_memory.testing import ScriptedSummarizer
from model_server import ModelServer

ITEMS = [
    {"role": "user", "content": "hi"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be"}]},
    {"role": "user", "content": [{"type": "text", "text": "in Chat's form"}]},
    {
        "role": "user",
        "content": [
            {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
            {"type": "input_file", "file_id": "file_1"},
        ],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "a", "annotations": [{"type": "x"}], "logprobs": []},
            {"type": "refusal", "refusal": "no"},
        ],
    },
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c", "output": "42"},
    {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_image", "image_url": "https://x/y.png"}],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "item_reference", "id": "msg_1"},
    {"id": "msg_1"},
    {"id": "msg_1", "type": None},
]
SEEN = {item.get("type") for item in ITEMS}


def unseen_types():
    """Every other type of item that the SDK knows, with fields of its own and a nested list."""
    found = set()
    for shape in typing.get_args(ResponseInputItemParam):
        found.update(typing.get_args(typing.get_type_hints(shape).get("type")))
    return sorted(kind for kind in found - SEEN if isinstance(kind, str))


ITEMS += [
    {"type": kind, "id": "i", "call_id": "c", "nested": [{"n": 1.5, "none": None}]}
    for kind in unseen_types()
]


@pytest.fixture
def session():
    return AgentMemorySession(InMemoryChatStorage(), "s")


async def raw(session):
    return [message async for message in session.storage.iter_chat(*session._ids)]


def test_it_is_a_session():
    """By the SDK's own check."""
    session = AgentMemorySession(InMemoryChatStorage(), "s")
    assert isinstance(session, Session)
    assert session.session_id == "s"
    assert session.session_settings == SessionSettings()


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: str(item.get("type")))
async def test_an_item_comes_back_equal(session, item):
    """Of every type, and as the caller's own to edit."""
    await session.add_items([item])
    (back,) = await session.get_items()
    assert back == item
    back["more"] = 1
    assert await session.get_items() == [item]


async def test_items_come_back_in_order_and_number(session):
    """Nothing is merged or joined."""
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS
    assert len(await raw(session)) == len(ITEMS)


@pytest.mark.parametrize(
    "item",
    [{"__enc__": 1, "v": 1, "payload": "x"}, {"a": {"type": 1}}, {"type": None, "b": [1]}],
)
async def test_c96_unknown_dicts_come_back_equal(session, item):
    """What another session around this one makes of its items is nobody's business here."""
    await session.add_items([{"role": "user", "content": "hi"}, item])
    assert await session.get_items() == [{"role": "user", "content": "hi"}, item]
    assert await session.pop_item() == item


async def test_c96_the_sdk_s_encryption_around_a_session():
    """Its items are dicts without a role; what is stored is not legible."""
    storage = InMemoryChatStorage()
    inner = AgentMemorySession(storage, "s")
    session = EncryptedSession("s", inner, "0123456789abcdef0123456789abcdef")
    items = [{"role": "user", "content": "a secret"}, ITEMS[5], ITEMS[6]]
    await session.add_items(items)
    assert await session.get_items() == items
    assert "a secret" not in repr([m.to_dict() for m in await raw(inner)])
    assert await session.pop_item() == ITEMS[6]


def test_c97_an_unknown_setting_is_refused_as_the_sdk_does():
    """A slip in a name never means no limit."""
    with pytest.raises(TypeError, match="limitt"):
        AgentMemorySession(InMemoryChatStorage(), "s", session_settings={"limitt": 1})


async def test_the_sdk_s_objects_are_taken(session):
    """As dicts of what was set."""
    message = ResponseOutputMessage.model_validate(ITEMS[4] | {"content": []})
    await session.add_items([message])
    assert await session.get_items() == [ITEMS[4] | {"content": []}]


@pytest.mark.parametrize("wrong", ["hi", 1, {}, {"content": "hi"}, {"role": "nobody"}])
async def test_what_is_no_item_is_refused_with_all_of_its_batch(session, wrong):
    """Nothing of it is stored."""
    with pytest.raises(InvalidRequestError):
        await session.add_items([ITEMS[0], wrong])
    assert await session.get_items() == []


async def test_limits(session):
    """The newest items; those of the settings where none is given."""
    await session.add_items(ITEMS)
    assert await session.get_items(3) == ITEMS[-3:]
    assert await session.get_items(0) == []
    assert await session.get_items(10_000) == ITEMS
    with pytest.raises(InvalidRequestError):
        await session.get_items(-1)
    for settings in (SessionSettings(limit=2), {"limit": 2}):
        limited = AgentMemorySession(session.storage, "s", session_settings=settings)
        assert await limited.get_items() == ITEMS[-2:]
        assert await limited.get_items(4) == ITEMS[-4:]


async def test_sessions_are_apart():
    """By user, session and agent."""
    storage = InMemoryChatStorage()
    await AgentMemorySession(storage, "s", user_id="one").add_items([ITEMS[0]])
    assert await AgentMemorySession(storage, "s", user_id="two").get_items() == []
    assert await AgentMemorySession(storage, "t", user_id="one").get_items() == []
    assert await AgentMemorySession(storage, "s", user_id="one", agent_id="x").get_items() == []


@pytest.mark.parametrize("wrong", [{"storage": {}}, {"session_id": ""}, {"session_settings": 3}])
def test_wrong_arguments_are_refused(wrong):
    """Before anything is used."""
    arguments = {"storage": InMemoryChatStorage(), "session_id": "s", **wrong}
    with pytest.raises(InvalidRequestError):
        AgentMemorySession(**arguments)


async def test_popping_takes_the_newest_and_leaves_the_log_whole(session):
    """One by one to the empty session; auditors see items and notes."""
    await session.add_items(ITEMS[:3])
    assert [await session.pop_item() for _ in range(4)] == [ITEMS[2], ITEMS[1], ITEMS[0], None]
    assert await session.get_items() == []
    await session.add_items([ITEMS[5]])
    assert await session.get_items() == [ITEMS[5]]
    assert len(await raw(session)) == 4
    log = [entry async for entry in session.storage.iter_log(*session._ids)]
    assert [note.kind for note in log if isinstance(note, Note)] == ["retracted"] * 3


async def test_clearing_leaves_the_log_whole(session):
    """The session begins anew."""
    await session.add_items(ITEMS)
    await session.clear_session()
    assert (await session.get_items(), await session.pop_item()) == ([], None)
    await session.add_items(ITEMS[:2])
    assert await session.get_items() == ITEMS[:2]
    assert len(await raw(session)) == len(ITEMS) + 2


async def test_clearing_may_erase():
    """By the constructor's option, or call by call."""
    storage = InMemoryChatStorage()
    for session, options in (
        (AgentMemorySession(storage, "a", erase_on_clear=True), {}),
        (AgentMemorySession(storage, "b"), {"erase": True}),
    ):
        await session.add_items(ITEMS)
        await session.clear_session(**options)
        assert (await session.get_items(), await raw(session)) == ([], [])
    session = AgentMemorySession(storage, "c", erase_on_clear=True)
    await session.add_items(ITEMS[:1])
    await session.clear_session(erase=False)
    assert len(await raw(session)) == 1


async def test_a_chat_of_another_origin_is_given_as_items():
    """Written in Chat Completions' form by somebody else."""
    storage = InMemoryChatStorage()
    session = AgentMemorySession(storage, "s")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    foreign = [
        ConversationMessage("user", "hi"),
        ConversationMessage("assistant", None, extra={"tool_calls": [call]}),
        ConversationMessage("tool", "42", extra={"tool_call_id": "c"}),
    ]
    await storage.save_chat_messages(*session._ids, foreign)
    await session.add_items([ITEMS[0]])
    items = await session.get_items()
    assert [item.get("type") for item in items] == [
        None,
        "function_call",
        "function_call_output",
        None,
    ]


# -------------------------------------------------------------------------- the real Runner


@function_tool
def weather(of: int) -> str:
    """Tell the weather."""
    return f"sunny {of}"


@function_tool
def clock(of: int) -> str:
    """Tell the time."""
    return f"noon {of}"


@pytest.fixture
async def server():
    async with ModelServer() as running:
        yield running


@pytest.fixture
def agent(server):
    model = OpenAIResponsesModel("test-model", server.client())
    billing = Agent("billing", model=model, tools=[clock])
    return Agent("front", model=model, tools=[weather, clock], handoffs=[billing])


QUIET = RunConfig(tracing_disabled=True, model_settings=ModelSettings(store=False))


async def test_a_run_with_tools_and_a_handoff_is_remembered(server, agent, session):
    """What the next run's model gets is what the runs before said, called and got."""
    model = ScriptedModel(server)
    for question in ("weather+clock: both?", "transfer_to_billing: money", "and now?"):
        await Runner.run(agent, question, session=session, run_config=QUIET)
    items = await session.get_items()
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "reasoning",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
        "message",
        "user",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
        "user",
        "message",
    ]
    assert validate(from_openai_responses(items), "openai_responses") == []
    assert model.inputs[-1] == items[:-1]
    assert len(await raw(session)) == len(items)


async def test_summaries_keep_what_the_model_gets_short(server, agent):
    """The view is bounded and valid at every run; the log has every item."""
    summarizing = SummarizingChatStorage(
        InMemoryChatStorage(), ScriptedSummarizer(), 6, 2, provider="openai_responses"
    )
    session, model = AgentMemorySession(summarizing, "s"), ScriptedModel(server)
    everything = []
    for number in range(20):
        result = await Runner.run(agent, f"weather: {number}", session=session, run_config=QUIET)
        everything += result.to_input_list()[-5:]
    assert max(map(len, model.inputs)) < 25
    for given in model.inputs:
        assert validate(from_openai_responses(given), "openai_responses") == []
    plain = AgentMemorySession(summarizing.inner, "s")
    assert len(await plain.get_items()) == len(everything) == 100
    account = await summarizing.explain(*session._ids)
    assert account.count("covered") > 70


async def test_popping_through_a_summary_makes_it_anew(server, agent):
    """An item that only a summary tells of can be popped, too; the summary forgets it."""
    summarizer = ScriptedSummarizer()
    summarizing = SummarizingChatStorage(InMemoryChatStorage(), summarizer, 4, 1)
    session = AgentMemorySession(summarizing, "s")
    ScriptedModel(server)
    for number in range(8):
        await Runner.run(agent, f"hello {number}", session=session, run_config=QUIET)
    assert summarizer.calls
    popped = [await session.pop_item() for _ in range(14)]
    assert popped[-1]["content"] == "hello 1"
    items = await session.get_items()
    assert [item["content"] for item in items[:1]] == ["hello 0"]
    assert len(items) == 2
    assert len(await raw(session)) == 16


async def test_a_streamed_run_is_remembered(session):
    """As any other."""
    testing = pytest.importorskip("agents.testing", reason="openai-agents has it from 0.21 on")
    call = testing.function_call("weather", {"of": 1}, call_id="c1")
    model = testing.ScriptedModel([[call], [testing.assistant_message("It is sunny.")]])
    agent = Agent("front", model=model, tools=[weather])
    result = Runner.run_streamed(agent, "how is it?", session=session, run_config=QUIET)
    kinds = [event.type async for event in result.stream_events()]
    assert "run_item_stream_event" in kinds
    items = await session.get_items()
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_the_settings_of_a_run_limit_what_it_gets(server, agent, session):
    """The SDK asks for a number of items."""
    model = ScriptedModel(server)
    for number in range(5):
        await Runner.run(agent, f"hello {number}", session=session, run_config=QUIET)
    limited = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=4))
    await Runner.run(agent, "the last", session=session, run_config=limited)
    assert model.inputs[-1][0]["content"] == "hello 3"
    assert len(model.inputs[-1]) == 5
