"""The history itself, and within the real ``Agent.run``."""

from __future__ import annotations

import attrs
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from weather_agent import Script, agent_of, unpaired

from agent_memory import (
    InvalidRequestError,
    SlidingWindowSummarizer,
    StorageUnavailableError,
    SummarizingChatStorage,
)
from agent_memory.adapters.pydantic_ai import (
    AgentMemoryHistory,
    history_processor,
    to_pydantic_ai,
)
from agent_memory.testing import FlakyChatStorage, ScriptedSummarizer, witness_summary

SAID = [ModelRequest([UserPromptPart("hello")]), ModelResponse([TextPart("hi")])]


def history_over(storage, **options):
    return AgentMemoryHistory(storage, user_id="u", session_id="s", agent_id="a", **options)


async def raw_of(storage):
    return to_pydantic_ai(await storage.fetch_all_chats("u", "s"))


def texts(messages):
    """What users and models said."""
    kinds = UserPromptPart | TextPart
    return [part.content for m in messages for part in m.parts if isinstance(part, kinds)]


async def test_messages_are_saved_and_read(history):
    """And saving them again stores nothing twice."""
    assert await history.messages() == []
    await history.save(SAID)
    await history.save(SAID)
    assert await history.messages() == SAID


async def test_all_messages_of_a_run_may_be_saved_as_well(history, storage):
    """What the chat has already is not stored again."""
    agent = agent_of(Script())
    for city in ("Oslo", "Rome"):
        result = await agent.run(city, message_history=await history.messages())
        await history.save(result.all_messages())
    assert await history.messages() == result.all_messages()
    assert len(await raw_of(storage)) == 8


async def test_a_lost_answer_stores_nothing_twice(storage):
    """The messages have ids of their own, so that saving again is safe."""
    flaky = FlakyChatStorage(storage)
    flaky.fail("after")
    with pytest.raises(StorageUnavailableError):
        await history_over(flaky).save(SAID)
    await history_over(flaky).save(SAID)
    assert await raw_of(storage) == SAID


async def test_max_history_size_bounds_what_is_shown(storage):
    """The newest; the store has all."""
    await history_over(storage).save(SAID)
    assert await history_over(storage, max_history_size=1).messages() == SAID[1:]


async def test_clear_hides_and_the_audit_still_sees(history, storage):
    """By default the log keeps what was said."""
    await history.save(SAID)
    await history.clear()
    assert await history.messages() == []
    assert await raw_of(storage) == SAID


async def test_clear_deletes_when_it_is_told_to(history, storage):
    """Nothing is left for anybody."""
    await history.save(SAID)
    await history.clear(erase=True)
    assert await raw_of(storage) == []


@pytest.mark.parametrize("wrong", [{"user_id": ""}, {"session_id": 7}, {"agent_id": "a\0"}])
def test_ids_that_are_none_are_refused_at_once(storage, wrong):
    """The error names which."""
    with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
        AgentMemoryHistory(storage, **{"user_id": "u", "session_id": "s"} | wrong)


def test_what_is_no_store_is_refused():
    """The error says what it got."""
    with pytest.raises(InvalidRequestError, match="not dict"):
        AgentMemoryHistory({}, user_id="u", session_id="s")


# ------------------------------------------------------------------------------ the processor


async def test_the_processor_saves_each_step_before_the_next(history, storage):
    """A run that dies in its third request has stored the first two steps."""
    script = Script(rounds=5)

    def dies(messages, info):
        if len(script.seen) == 2:
            raise RuntimeError("the provider is down")
        return script(messages, info)

    agent = agent_of(script, capabilities=[ProcessHistory(history.process)])
    with agent.override(model=agent_of(dies).model), pytest.raises(RuntimeError):
        await agent.run("Oslo")
    raw = await raw_of(storage)
    assert [type(message).__name__ for message in raw] == [
        "ModelRequest", "ModelResponse", "ModelRequest", "ModelResponse"
    ]  # fmt: skip


async def test_a_run_that_died_is_gone_on_with(history, storage):
    """What the caller adds to close it is saved like all else."""
    script = Script(rounds=2)

    def dies(messages, info):
        if len(script.seen) == 1:
            raise RuntimeError("the provider is down")
        return script(messages, info)

    capabilities = [ProcessHistory(history.process)]
    with pytest.raises(RuntimeError):
        await agent_of(dies, capabilities=capabilities).run("Oslo")
    held = await history.messages()
    call = held[-1].parts[-1]
    content = {"city": "Oslo", "degrees": 3.0, "round": 2}
    closing = ModelRequest([ToolReturnPart(call.tool_name, content, call.tool_call_id)])
    agent = agent_of(script, capabilities=capabilities)
    for _ in range(2):  # the second time nothing is new
        result = await agent.run(message_history=[*held, closing])
        await history.save(result.new_messages()[:1])
    raw = await raw_of(storage)
    assert unpaired(raw) == []
    assert len(raw) == 4 + 1


async def test_a_run_with_the_processor_is_saved_whole_and_equal(history, storage):
    """Each message once, whether a step or the end of the run saved it."""
    script = Script(rounds=3)
    agent = agent_of(script, capabilities=[ProcessHistory(history.process)])
    said = []
    for city in ("Oslo", "Rome"):
        result = await agent.run(city, message_history=await history.messages())
        await history.save(result.new_messages())
        said += result.new_messages()
    assert await raw_of(storage) == said
    assert len(said) == 2 * 8


async def test_the_processor_keeps_a_long_run_short(storage):
    """Thirty rounds of tools in one run: the model sees a bounded, valid history."""
    short = SummarizingChatStorage(storage, ScriptedSummarizer(), 5, 1)
    history, script = history_over(short), Script(rounds=30)
    agent = agent_of(script, capabilities=[ProcessHistory(history.process)])
    result = await agent.run("Oslo", usage_limits=None)
    await history.save(result.new_messages())
    assert max(map(len, script.seen)) <= 2 * 5 + 4
    assert [unpaired(seen[:-1] if len(seen) == 1 else seen) for seen in script.seen] == [
        [] for _ in script.seen
    ]
    raw = await raw_of(storage)
    assert len(raw) == 62
    assert unpaired(raw) == []


def keep_none(history, _keep_last):
    return [witness_summary(history)]


@pytest.mark.parametrize("summarizer", [ScriptedSummarizer(), keep_none], ids=["some", "none"])
@pytest.mark.parametrize("process", [True, False], ids=["processor", "between runs"])
async def test_a_summary_is_never_saved_as_if_it_had_been_said(storage, summarizer, process):
    """It goes through runs, is even merged with other requests, and is known for what it is."""
    short = SummarizingChatStorage(storage, summarizer, 3, 1)
    history = history_over(short)
    capabilities = [ProcessHistory(history.process)] if process else []
    agent, said = agent_of(Script(), capabilities=capabilities), []
    for number in range(12):
        start = await history.messages()
        result = await agent.run(f"city {number}", message_history=start)
        await history.save(result.all_messages())
        said += result.new_messages()
        await short.compact_now("u", "s", "a")
    raw = await raw_of(storage)
    assert raw == said
    assert len(raw) == 48
    assert len(await history.messages()) < 12


async def test_requests_that_pydantic_ai_merges_are_not_new(history, storage):
    """A chat that begins with two requests: a run merges them into one, under no name."""
    seeds = [ModelRequest([UserPromptPart(text)]) for text in ("I live in Oslo", "Be brief")]
    await history.save(seeds)
    agent = agent_of(Script(), capabilities=[ProcessHistory(history.process)])
    result = await agent.run("Rome", message_history=await history.messages())
    await history.save(result.new_messages())
    raw = await raw_of(storage)
    assert raw[:2] == seeds
    assert len(raw) == 2 + 4


async def test_a_history_held_in_memory_is_shortened_as_well(storage):
    """The caller passes on all messages and never loads any."""
    short = SummarizingChatStorage(storage, SlidingWindowSummarizer(4), 3, 1)
    script, held = Script(), []
    agent = agent_of(script, capabilities=[ProcessHistory(history_over(short).process)])
    for number in range(20):
        result = await agent.run(f"city {number}", message_history=held)
        held += result.new_messages()
    assert len(held) == 80
    assert max(map(len, script.seen)) <= 2 * 3 + 5
    assert await raw_of(storage) == held[:-2]  # the last step is for save()


async def test_a_streamed_run_is_saved_like_any_other(history, storage):
    """Its reply is there once the stream has ended."""
    agent = Agent(TestModel(), capabilities=[ProcessHistory(history.process)])
    for text in ("hello", "and again"):
        start = await history.messages()
        async with agent.run_stream(text, message_history=start) as stream:
            await stream.get_output()
        await history.save(stream.new_messages())
    raw = await raw_of(storage)
    assert texts(raw)[::2] == ["hello", "and again"]
    assert len(raw) == 4


async def test_a_dynamic_system_prompt_stays_what_it_is_now(history):
    """The view shows this run's value, not the one that was stored with the first run."""
    now = iter(["it is 9", "it is 10"])
    script = Script()
    agent = agent_of(script, system_prompt=(), capabilities=[ProcessHistory(history.process)])
    agent.system_prompt(dynamic=True)(lambda: next(now))
    for city in ("Oslo", "Rome"):
        result = await agent.run(city, message_history=await history.messages())
        await history.save(result.new_messages())
    prompts = [
        [p.content for m in seen for p in m.parts if isinstance(p, SystemPromptPart)]
        for seen in script.seen
    ]
    assert prompts == [["it is 9"]] * 2 + [["it is 10"]] * 2


async def test_new_messages_of_a_shortened_run_are_still_its_own(storage):
    """Pydantic AI tells them by their run, whatever the processor made of the rest."""
    short = SummarizingChatStorage(storage, SlidingWindowSummarizer(2), 3, 1)
    history = history_over(short)
    agent = agent_of(Script(), capabilities=[ProcessHistory(history.process)])
    for number in range(8):
        result = await agent.run(f"city {number}", message_history=await history.messages())
        assert texts(result.new_messages())[0] == f"city {number}"
        await history.save(result.new_messages())
    assert len(await raw_of(storage)) == 32


async def test_a_failing_store_fails_the_run(storage):
    """Nothing goes on that is not remembered."""
    flaky = FlakyChatStorage(storage)
    flaky.fail("before")
    agent = agent_of(Script(), capabilities=[ProcessHistory(history_over(flaky).process)])
    with pytest.raises(StorageUnavailableError):
        await agent.run("Oslo")


@attrs.frozen
class Deps:
    history: AgentMemoryHistory


async def test_one_agent_serves_many_chats(storage):
    """The processor asks each run for its own history."""

    def chosen(ctx: RunContext[Deps]) -> AgentMemoryHistory:
        return ctx.deps.history

    agent = Agent(
        TestModel(), deps_type=Deps, capabilities=[ProcessHistory(history_processor(chosen))]
    )
    for user in ("alice", "bob"):
        history = AgentMemoryHistory(storage, user_id=user, session_id="s")
        result = await agent.run(f"I am {user}", deps=Deps(history))
        await history.save(result.new_messages())
    for user in ("alice", "bob"):
        said = to_pydantic_ai(await storage.fetch_all_chats(user, "s"))
        assert said[0].parts[0].content == f"I am {user}"
        assert len(said) == 2
