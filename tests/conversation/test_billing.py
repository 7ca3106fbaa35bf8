"""What runs cost: everything counts once, whatever became of it."""

from __future__ import annotations

import contextlib

import pytest
from talking import LONG, Summarizer, turn, turns

import model_server as scripted
from agent_memory import (
    ConversationManager,
    InMemoryChatStorage,
    StorageUnavailableError,
    SummarizerError,
    SummaryResult,
    Usage,
)
from agent_memory.testing import FlakyChatStorage
from rig import IDS, assistant, user


async def test_everything_a_run_spent_is_in_its_usage(storage):
    """Requests and auxiliary calls, cached and reasoning tokens too."""
    run = await ConversationManager(storage).start_run(*IDS)
    run.record_usage(Usage(100, 10, 50, 5))
    run.record_usage(Usage(200, 20))
    run.record_auxiliary_usage(Usage(3, 1))
    assert run.usage == Usage(303, 31, 50, 5)


async def test_sums_are_queryable_afterwards(stores):
    """Of a thread, a session and a user, after a restart."""
    manager = ConversationManager(stores.open())
    await turn(manager, ids=("u", "s1", "a"), measured=Usage(1, 10))
    await turn(manager, ids=("u", "s1", "a"), measured=Usage(2, 20))
    await turn(manager, ids=("u", "s1", "b"), measured=Usage(4, 40))
    await turn(manager, ids=("u", "s2", "a"), measured=Usage(8, 80))
    await turn(manager, ids=("other", "s1", "a"), measured=Usage(16, 160))
    later = ConversationManager(stores.open())
    assert await later.usage("u", "s1", "a") == Usage(3, 30)
    assert await later.usage("u", "s1") == Usage(7, 70)
    assert await later.usage("u") == Usage(15, 150)
    assert await later.usage("u", agent_id="a") == Usage(11, 110)
    assert await later.usage("nobody") == Usage()


async def test_a_run_saved_several_times_is_billed_once(storage):
    """Each note holds what came since the one before."""
    manager = ConversationManager(storage)
    run = await manager.start_run(*IDS)
    for number in range(1, 5):
        run.record_usage(Usage(number, 1))
        await run.save()
        await run.save()
    assert run.usage == Usage(10, 4)
    assert await manager.usage("user") == Usage(10, 4)


@pytest.mark.parametrize("failures", [["before"], ["after"], ["after", "before", "after"]])
async def test_a_lost_answer_is_not_billed_twice(failures):
    """Nor forgotten."""
    storage = FlakyChatStorage(InMemoryChatStorage())
    manager = ConversationManager(storage)
    run = await manager.start_run(*IDS)
    storage.fail(*failures)
    for number in range(4):
        run.record_usage(Usage(10, number))
        run.add(user(f"{number}"))
        with contextlib.suppress(StorageUnavailableError):
            await run.save()
    await run.save()
    assert await manager.usage("user") == Usage(40, 6) == run.usage


async def test_c51_a_summary_is_billed_to_the_run_that_asked(storage, server, llm):
    """What the provider reported for it."""
    manager = ConversationManager(storage, llm(token_threshold=200))
    await turns(ConversationManager(storage), 2, measured=Usage(100, 10))
    run, _ = await turn(manager, LONG, measured=Usage(100, 10))
    assert len(server.requests) == 1
    assert server.reported.input_tokens > 0
    assert run.usage == Usage(100, 10) + server.reported
    assert await manager.usage("user") == Usage(300, 30) + server.reported


async def test_a_summary_that_failed_is_billed_too(storage, server, llm):
    """A refusal costs what any answer does."""
    server.default = scripted.refused()
    manager = ConversationManager(storage, llm())
    await turns(manager, 2)
    run, _ = await turn(manager, LONG)
    assert server.reported.total_tokens > 0
    assert run.usage == server.reported


async def test_so_it_is_for_the_strict(storage, server, llm):
    """The error reaches the caller, the cost reaches the bill."""
    server.default = scripted.answer(" ")
    manager = ConversationManager(storage, llm(), on_summarizer_error="raise")
    await turns(manager, 2)
    with pytest.raises(SummarizerError):
        await turn(manager, LONG)
    assert await manager.usage("user") == server.reported != Usage()


async def test_a_summarizer_that_failed_before_its_fallback_is_billed(storage, server, llm):
    """Both are paid."""
    server.default = scripted.refused()
    fallback = Summarizer(usage=Usage(1_000, 100))
    manager = ConversationManager(storage, llm(), fallback=fallback)
    await turns(manager, 2)
    run, seen = await turn(manager, LONG)
    assert len(seen) == 2
    assert run.usage == server.reported + Usage(1_000, 100)


@pytest.mark.parametrize(
    "answer",
    [
        lambda messages, _: SummaryResult("s", last_summarized_run_id="now", usage=Usage(7, 3)),
        lambda messages, _: SummaryResult("s", last_summarized_run_id="no", usage=Usage(7, 3)),
        lambda messages, _: SummaryResult(LONG * 9, messages[-2:], usage=Usage(7, 3)),
        lambda messages, _: SummaryResult([messages[1], messages[0]], usage=Usage(7, 3)),
    ],
    ids=["refused", "unknown run", "nothing gained", "out of order"],
)
async def test_an_answer_that_is_not_used_is_billed(storage, answer):
    """The model has been paid."""
    await turn(ConversationManager(storage), "one")
    run, seen = await turn(ConversationManager(storage, Summarizer(answer)), run_id="now")
    assert len(seen) == 3
    assert run.usage == Usage(7, 3)


async def test_an_error_of_the_applications_own_may_tell_its_cost(storage):
    """By an attribute ``usage``, as this library's errors do."""

    class OwnError(Exception):
        usage = Usage(7, 3)

    def fails(_messages, _tokens):
        raise OwnError

    await turn(ConversationManager(storage), "one")
    run, _ = await turn(ConversationManager(storage, Summarizer(fails)))
    assert run.usage == Usage(7, 3)


async def test_a_deleted_chat_takes_its_bill_along(storage):
    """Notes are entries of the log like any other."""
    manager = ConversationManager(storage)
    await turn(manager, measured=Usage(7, 3))
    await storage.delete_chat(*IDS)
    assert await manager.usage("user") == Usage()


async def test_usage_alone_is_saved(storage):
    """A run whose model refused to answer."""
    manager = ConversationManager(storage)
    async with await manager.start_run(*IDS) as run:
        run.record_auxiliary_usage(Usage(7, 3))
    assert await manager.usage("user", "session") == Usage(7, 3)
    assert await manager.load_transcript(*IDS) == []


async def test_runs_at_once_are_billed_each(storage):
    """On one thread."""
    manager = ConversationManager(storage)
    started = [await manager.start_run(*IDS) for _ in range(5)]
    for number, run in enumerate(started, start=1):
        run.add([user(f"{number}"), assistant("fine")])
        run.record_usage(Usage(number, 1))
        await run.save()
    assert await manager.usage("user") == Usage(15, 5)
