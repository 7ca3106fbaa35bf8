"""The history itself, and within the real ``RunnableWithMessageHistory``."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from weather_chain import ScriptedModel, chain_of

from agent_memory import (
    ConversationMessage,
    InvalidRequestError,
    SlidingWindowSummarizer,
    SqlChatStorage,
    StorageUnavailableError,
    SummarizingChatStorage,
)
from agent_memory.adapters.langchain import AgentMemoryChatMessageHistory, to_langchain
from agent_memory.testing import FlakyChatStorage

# It works as long as LangChain 1.x does; that it is to go with 2.0 is told to its users.
pytestmark = pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")

CONFIG = {"configurable": {"session_id": "s"}}
IDS = ("u", "s", "a")
SAID = [HumanMessage("hello"), AIMessage("hi", id="r1")]


def factory(storage, **options):
    def history_of(session_id):
        return AgentMemoryChatMessageHistory(
            storage, user_id="u", session_id=session_id, agent_id="a", **options
        )

    return history_of


def test_messages_are_added_and_read_blocking(history):
    """Outside any event loop, as most chains run."""
    assert isinstance(history, BaseChatMessageHistory)
    history.add_messages(SAID)
    history.add_user_message("how are you?")
    assert history.messages == [*SAID, HumanMessage("how are you?")]


async def test_messages_are_added_and_read_async(history):
    """The same, awaited."""
    await history.aadd_messages(SAID)
    assert await history.aget_messages() == SAID


async def test_blocking_calls_within_a_running_loop_work(history):
    """In a notebook, say: the loop waits for them."""
    history.add_messages(SAID)
    assert history.messages == await history.aget_messages() == SAID


def test_blocking_calls_in_many_threads_share_one_store(tmp_path):
    """Each `asyncio.run` and each thread its own way in; all of it arrives."""
    storage = SqlChatStorage(f"sqlite:///{tmp_path}/chats.db")

    async def talk():
        history = factory(storage)("s")
        threads = [asyncio.to_thread(factory(storage)("s").add_messages, SAID) for _ in range(5)]
        await asyncio.gather(history.aadd_messages(SAID), *threads)

    asyncio.run(talk())
    assert len(factory(storage)("s").messages) == 12
    asyncio.run(storage.aclose())


def test_adding_nothing_is_nothing(history):
    """LangChain does so when a chain returns no messages."""
    history.add_messages([])
    assert history.messages == []


async def test_clear_hides_and_the_audit_still_sees(history, storage):
    """By default the log keeps what was said, and what was said later is shown."""
    await history.aadd_messages(SAID)
    await history.aclear()
    assert await history.aget_messages() == []
    await history.aadd_messages(SAID[:1])
    assert await history.aget_messages() == SAID[:1]
    assert to_langchain(await storage.fetch_all_chats("u", "s")) == [*SAID, SAID[0]]


def test_clear_deletes_when_it_is_told_to(storage):
    """erase_on_clear: nothing is left for anybody."""
    history = factory(storage, erase_on_clear=True)("s")
    history.add_messages(SAID)
    history.clear()
    assert history.messages == []
    assert asyncio.run(storage.fetch_all_chats("u", "s")) == []


def test_equal_messages_are_all_kept(history):
    """Saying the same twice, or a cached reply with the same id, is said twice."""
    history.add_messages(SAID)
    history.add_messages(SAID)
    assert history.messages == SAID * 2


async def test_adding_again_what_failed_stores_nothing_twice(storage):
    """An answer that was lost after the store had the messages; the ids are remembered."""
    flaky = FlakyChatStorage(storage)
    history = factory(flaky)("s")
    flaky.fail("after")
    with pytest.raises(StorageUnavailableError):
        await history.aadd_messages(SAID)
    await history.aadd_messages(SAID)
    assert await history.aget_messages() == SAID
    await history.aadd_messages(SAID)
    assert await history.aget_messages() == SAID * 2


async def test_max_history_size_bounds_what_is_shown(storage):
    """The newest; the store has all."""
    history = factory(storage, max_history_size=1)("s")
    await history.aadd_messages(SAID)
    assert await history.aget_messages() == SAID[1:]


async def test_a_history_shows_one_moment_until_it_is_added_to(storage):
    """Two reads of one run agree, whatever others do in between."""
    history, other = factory(storage)("s"), factory(storage)("s")
    await other.aadd_messages(SAID)
    assert await history.aget_messages() == SAID
    await other.aadd_messages(SAID)
    assert await history.aget_messages() == SAID
    await history.aadd_messages(SAID[:1])
    assert await history.aget_messages() == [*SAID, *SAID, SAID[0]]


@pytest.mark.parametrize("wrong", [{"user_id": ""}, {"session_id": 7}, {"agent_id": "a\0"}])
def test_ids_that_are_none_are_refused_at_once(storage, wrong):
    """Not at the end of the first run, where LangChain would only log it."""
    with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
        AgentMemoryChatMessageHistory(storage, **{"user_id": "u", "session_id": "s"} | wrong)


def test_what_is_no_store_is_refused():
    """The error says what it got."""
    with pytest.raises(InvalidRequestError, match="not dict"):
        AgentMemoryChatMessageHistory({}, user_id="u", session_id="s")


def test_a_failed_save_after_a_run_is_logged_as_an_error(storage, caplog):
    """LangChain itself only warns of it, and hands out the reply."""
    flaky = FlakyChatStorage(storage)
    flaky.fail("before")
    chat = RunnableWithMessageHistory(FakeListChatModel(responses=["hi"]), factory(flaky))
    assert chat.invoke([HumanMessage("hello")], CONFIG).text == "hi"
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (
        "2 messages of user 'u', session 's', agent 'a' were not saved" in errors[0].getMessage()
    )


async def test_a_chain_with_tools_gets_its_history(storage):
    """Prompt, placeholder, calls, results with artifacts: the next turn sees all of it."""
    model = ScriptedModel()
    chat = RunnableWithMessageHistory(
        chain_of(model), factory(storage),
        input_messages_key="question", history_messages_key="history",
    )  # fmt: skip
    first = await chat.ainvoke({"question": "Oslo"}, CONFIG)
    second = await asyncio.to_thread(chat.invoke, {"question": "Rome"}, CONFIG)
    expected = [HumanMessage("Oslo"), *first, HumanMessage("Rome"), *second]
    assert model.seen[2][1:-1] == expected[:4]
    assert to_langchain(await storage.fetch_all_chats("u", "s")) == expected
    assert first[1].artifact == {"city": "Oslo", "degrees": 21.5}


async def test_a_bare_model_gets_its_history(storage):
    """Messages in, message out; LangChain takes the history off its input by counting."""
    model = ScriptedModel()
    chat = RunnableWithMessageHistory(model, factory(storage))
    for city in ("Oslo", "Rome", "Bern"):
        await chat.ainvoke([HumanMessage(city)], CONFIG)
    raw = to_langchain(await storage.fetch_all_chats("u", "s"))
    assert [message.text for message in raw[::2]] == ["Oslo", "Rome", "Bern"]
    assert len(raw) == 6


async def test_streaming_saves_the_whole_message(storage):
    """The chunks add up to one."""
    model = FakeListChatModel(responses=["hello there"])
    chat = RunnableWithMessageHistory(model, factory(storage))
    async for _ in chat.astream([HumanMessage("hi")], CONFIG):
        pass
    said = await factory(storage)("s").aget_messages()
    assert [message.text for message in said] == ["hi", "hello there"]
    assert type(said[1]) is AIMessage


async def test_no_message_is_lost_when_the_view_shrinks_within_a_run(storage):
    """Another worker saves, and the chat is summarized, between LangChain's two reads."""
    short = SummarizingChatStorage(storage, SlidingWindowSummarizer(2), 2, 1)
    await factory(short)("s").aadd_messages(SAID * 2)

    async def meanwhile(messages):
        for _ in range(4):
            await short.save_chat_message(*IDS, ConversationMessage("user", "beside"))
        assert len(await short.fetch_chat(*IDS)) < len(messages)
        return AIMessage("answer")

    chain = RunnableLambda(lambda messages: AIMessage("answer"), meanwhile)
    chat = RunnableWithMessageHistory(chain, factory(short))
    await chat.ainvoke([HumanMessage("question")], CONFIG)
    raw = to_langchain(await storage.fetch_all_chats("u", "s"))
    assert [message.text for message in raw[-2:]] == ["question", "answer"]
    assert len(raw) == 4 + 4 + 2


async def test_runs_at_the_same_moment_lose_nothing(storage):
    """Each has its own history object, as RunnableWithMessageHistory makes them."""
    chat = RunnableWithMessageHistory(ScriptedModel(), factory(storage))
    cities = [f"city {number}" for number in range(8)]
    await asyncio.gather(*(chat.ainvoke([HumanMessage(city)], CONFIG) for city in cities))
    raw = to_langchain(await storage.fetch_all_chats("u", "s"))
    assert sorted(m.text for m in raw if isinstance(m, HumanMessage)) == cities
    assert len(raw) == 16
