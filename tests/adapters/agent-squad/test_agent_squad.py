"""AgentSquadChatStorage: messages both ways, views bounded, classifiers served."""

from __future__ import annotations

import pytest
from agent_squad.classifiers import Classifier
from agent_squad.storage import InMemoryChatStorage as TheirInMemory
from agent_squad.types import ConversationMessage, ParticipantRole, TimestampedMessage
from anthropic.types import TextBlock
from squad import said, texts

from agent_memory import InMemoryChatStorage, InvalidRequestError, SummarizingChatStorage
from agent_memory.adapters import AgentSquadChatStorage
from agent_memory.adapters.agent_squad import (
    agent_squad_summarizer,
    to_agent_memory,
    to_agent_squad,
)
from agent_memory.testing import ScriptedSummarizer

IDS = ("user", "session", "agent")


@pytest.fixture
def storage():
    return AgentSquadChatStorage(InMemoryChatStorage())


CONTENTS = [
    "plain text",
    [{"text": "hello"}],
    [{"text": "a"}, {"toolUse": {"toolUseId": "t", "name": "look", "input": {"n": 1.5}}}],
    [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}],
    [],
    None,
]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("citations", [None, [], [{"title": "A", "pages": [1, 2]}]])
def test_a_message_comes_back_as_it_was(content, citations):
    """Role, content and citations, by type; the content is the caller's to edit."""
    theirs = ConversationMessage("assistant", content, citations)
    back = to_agent_squad(to_agent_memory(theirs))
    assert type(back) is ConversationMessage
    assert (back.role, back.content, back.citations) == ("assistant", content, citations)
    assert type(back.content) is type(content)


@pytest.mark.parametrize("milliseconds", [1, 1_750_000_000_123, -5])
def test_a_timestamp_comes_back_to_the_millisecond(milliseconds):
    """A TimestampedMessage keeps its own."""
    theirs = TimestampedMessage("user", [{"text": "hi"}], milliseconds)
    back = to_agent_squad(to_agent_memory(theirs), timestamped=True)
    assert type(back) is TimestampedMessage
    assert back.timestamp == milliseconds


def test_roles_may_be_given_as_their_enum():
    """They come back as its value, which is what their agents send."""
    assert to_agent_squad(to_agent_memory(said(ParticipantRole.USER, "hi"))).role == "user"


def test_content_may_hold_a_provider_s_objects():
    """As what AnthropicAgent returns does."""
    block = TextBlock(type="text", text="hi", citations=None)
    message = to_agent_memory(ConversationMessage("assistant", [block]))
    assert message.content[0]["text"] == "hi"


@pytest.mark.parametrize("wrong", [{"role": "user"}, None, "hi"])
def test_what_is_no_message_of_theirs_is_refused(wrong):
    """Before anything is stored."""
    with pytest.raises(InvalidRequestError, match="agent-squad"):
        to_agent_memory(wrong)


def test_a_timestamp_beyond_all_years_is_refused():
    """With words that say what it should be."""
    with pytest.raises(InvalidRequestError, match="milliseconds"):
        to_agent_memory(TimestampedMessage("user", [], 10**18))


def test_only_our_storages_are_taken():
    """Theirs has its own way in."""
    with pytest.raises(InvalidRequestError, match="from_agent_squad"):
        AgentSquadChatStorage(TheirInMemory())


async def test_what_is_saved_is_fetched(storage):
    """In order, two of one role too; nothing is dropped."""
    assert await storage.save_chat_message(*IDS, said("user", "one")) is True
    assert await storage.save_chat_message(*IDS, said("user", "one")) is True
    answers = [said("assistant", "two", citations=[{"n": 1}]), said("user", "three")]
    assert await storage.save_chat_messages(*IDS, answers) is True
    fetched = await storage.fetch_chat(*IDS)
    assert texts(fetched) == ["one", "one", "two", "three"]
    assert fetched[2].citations == [{"n": 1}]
    assert {type(message) for message in fetched} == {ConversationMessage}
    assert await storage.fetch_chat("nobody", "nowhere", "none") == []


async def test_the_callers_message_is_left_alone(storage):
    """It is neither stamped nor shared."""
    message = said("user", "one")
    await storage.save_chat_message(*IDS, message, 10)
    message.content[0]["text"] = "edited"
    (fetched,) = await storage.fetch_chat(*IDS)
    fetched.content[0]["text"] = "edited too"
    assert texts(await storage.fetch_chat(*IDS)) == ["one"]
    assert vars(message).keys() == {"role", "content", "citations"}


async def test_the_size_given_on_saves_bounds_the_view_alone(storage):
    """The raw log keeps everything; a new process knows the bound from the log."""
    for number in range(30):
        await storage.save_chat_message(*IDS, said("user", str(number)), 10)
    for view in (storage, AgentSquadChatStorage(storage.inner)):
        assert texts(await view.fetch_chat(*IDS)) == [str(n) for n in range(20, 30)]
        assert len(await view.fetch_chat(*IDS, 15)) == 15
    assert len(await storage.inner.fetch_chat(*IDS)) == 30
    await storage.save_chat_message(*IDS, said("user", "unbounded"))
    assert len(await storage.fetch_chat(*IDS)) == 31


async def test_a_bound_leaves_room_for_the_summary():
    """It is a bound of what the agent sees, not of what is summarized."""
    summarizing = SummarizingChatStorage(InMemoryChatStorage(), ScriptedSummarizer(), 6, 3)
    storage = AgentSquadChatStorage(summarizing)
    for number in range(40):
        role = ("user", "assistant")[number % 2]
        await storage.save_chat_message(*IDS, said(role, str(number)), 5)
        view = await storage.fetch_chat(*IDS)
        assert len(view) <= 5
        assert view[-1].content[0]["text"] == str(number)
    assert "Summary" in view[0].content[0]["text"]


@pytest.mark.parametrize("size", [-1, 2.5, True, "10"])
async def test_a_size_that_is_none_is_refused(storage, size):
    """And nothing is stored."""
    with pytest.raises(InvalidRequestError):
        await storage.save_chat_message(*IDS, said("user", "one"), size)
    assert await storage.inner.fetch_chat(*IDS) == []


async def test_legacy_a_repeated_role_is_dropped_if_asked():
    """Of single saves, as theirs do; their batches are not looked at."""
    storage = AgentSquadChatStorage(InMemoryChatStorage(), drop_repeated_roles=True)
    assert await storage.save_chat_message(*IDS, said("user", "one"))
    assert not await storage.save_chat_message(*IDS, said("user", "two"))
    await storage.save_chat_messages(*IDS, [said("user", "three"), said("assistant", "four")])
    assert texts(await storage.fetch_chat(*IDS)) == ["one", "three", "four"]


async def test_legacy_saves_trim_if_asked():
    """To the even number below, as theirs do."""
    storage = AgentSquadChatStorage(InMemoryChatStorage(), trim_on_save=True)
    for number in range(9):
        await storage.save_chat_message(*IDS, said("user", str(number)), 5)
    raw = await storage.inner.fetch_chat(*IDS)
    assert texts(map(to_agent_squad, raw)) == ["5", "6", "7", "8"]


async def test_legacy_a_size_of_one_trims_nothing():
    """Theirs keeps all then, too."""
    storage = AgentSquadChatStorage(InMemoryChatStorage(), trim_on_save=True)
    for number in range(3):
        await storage.save_chat_message(*IDS, said("user", str(number)), 1)
    assert len(await storage.inner.fetch_chat(*IDS)) == 3


CALL = {"toolUse": {"toolUseId": "t", "name": "look", "input": {}}}
IMAGE = {"image": {"format": "png", "source": {"bytes": b"\x00"}}}
SHOWN = [
    ([{"text": "a"}, CALL, {"text": "b"}], [{"text": "[agent] a"}, CALL, {"text": "b"}]),
    ([CALL, {"text": "a"}, IMAGE], [{"text": "[agent] a"}, CALL, IMAGE]),
    ([CALL, IMAGE], [{"text": "[agent] (call look, media image)"}, CALL, IMAGE]),
    ("plain", [{"text": "[agent] plain"}]),
    ([], [{"text": "[agent]"}]),
    (None, [{"text": "[agent]"}]),
]


@pytest.mark.parametrize(("content", "shown"), SHOWN)
async def test_c23_all_chats_name_the_agent_and_keep_every_part(storage, content, shown):
    """Text first, as their classifiers read nothing else; whatever the message is made of."""
    await storage.save_chat_messages(
        *IDS, [said("user", "hi"), ConversationMessage("assistant", content)]
    )
    user, assistant = await storage.fetch_all_chats("user", "session")
    assert user.content == [{"text": "hi"}]
    assert assistant.content == shown
    assert "[agent]" in Classifier.format_messages([user, assistant])
    (_, raw) = await storage.inner.fetch_all_chats("user", "session")
    assert raw.content == content


async def test_all_chats_are_raw_and_of_every_agent():
    """No summary in them, and no bound."""
    summarizing = SummarizingChatStorage(InMemoryChatStorage(), ScriptedSummarizer(), 4, 1)
    storage = AgentSquadChatStorage(summarizing)
    for number in range(30):
        agent = ("one", "two")[number // 2 % 2]
        role = ("user", "assistant")[number % 2]
        await storage.save_chat_message("u", "s", agent, said(role, str(number)), 4)
        await storage.fetch_chat("u", "s", agent)
    shown = texts(await storage.fetch_all_chats("u", "s"))
    assert [text.split()[-1] for text in shown] == [str(number) for number in range(30)]
    assert shown[1] == "[one] 1"
    assert shown[3] == "[two] 3"


# ------------------------------------------------------------------------------- summarizers


class _Duck:
    def __init__(self, role, content):
        self.role, self.content = role, content


@pytest.mark.parametrize(
    "made",
    [
        ConversationMessage(role="user", content=[{"text": "They met."}]),
        ConversationMessage(role=ParticipantRole.USER, content=[{"text": "They met."}]),
        _Duck("user", [{"text": "They met."}]),
        {"role": "user", "content": [{"text": "They met."}]},
    ],
    ids=["theirs", "their role", "duck", "dict"],
)
@pytest.mark.parametrize("how", ["async", "plain", "lambda"])
async def test_c74_a_summarizer_may_return_their_messages(made, how):
    """The summary may be theirs, or anything with a role and content; what is kept is ours."""

    async def in_async(history, keep_last):
        return [made, *history[-2 * keep_last :]]

    def plain(history, keep_last):
        return [made, *history[-2 * keep_last :]]

    function = {
        "async": in_async,
        "plain": plain,
        "lambda": lambda h, k: in_async(h, keep_last=k),
    }[how]
    summarizing = SummarizingChatStorage(
        InMemoryChatStorage(), agent_squad_summarizer(function), trigger_at=3, keep_last=1
    )
    adapter = AgentSquadChatStorage(summarizing)
    async with summarizing:
        for at in range(8):
            message = ConversationMessage(("user", "assistant")[at % 2], [{"text": f"m{at}"}])
            await adapter.save_chat_message("u", "s", "a", message)
        view = await adapter.fetch_chat("u", "s", "a")
    assert view[0].content == [{"text": "They met."}]
    assert len(view) < 8
    assert texts(view[1:]) == [f"m{at}" for at in range(9 - len(view), 8)]


async def test_c74_what_is_no_message_is_named():
    """An object without role or content is refused with its full name."""
    summarize = agent_squad_summarizer(lambda history, keep_last: [object()])
    with pytest.raises(InvalidRequestError, match=r"role and content, not builtins\.object"):
        summarize([], 1)
