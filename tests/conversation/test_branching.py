"""Going on from an earlier run: the fork shares the beginning, and the parent stays as it is."""

from __future__ import annotations

import asyncio

import pytest
from talking import LONG, Summarizer, heads, turn, turns

from agent_memory import (
    ChatKey,
    ConversationManager,
    InvalidRequestError,
    Note,
    SummaryResult,
    Usage,
)
from agent_memory.testing import GatedChatStorage
from rig import IDS, KEY, texts, user


async def snapshot(storage, ids=IDS):
    """All there is of a chat: log, floor and records."""
    key = ChatKey(*ids)
    log = await storage._read(key)
    return list(log.entries), log.floor, await storage.summaries().list_summaries(key)


async def test_a_run_that_is_not_the_tip_forks(storage):
    """Into a session of its own, with everything up to the end of that run."""
    manager = ConversationManager(storage)
    await turns(manager, 3, text="x")
    fork, seen = await turn(manager, "instead", after_run_id="r2")
    assert texts(seen) == ["ask 1 x", "answer 1 x", "ask 2 x", "answer 2 x", "ask instead"]
    assert fork.key.session_id != "session"
    assert (fork.key.user_id, fork.key.agent_id) == ("user", "agent")
    transcript = await manager.load_transcript(
        fork.key.user_id, fork.key.session_id, fork.key.agent_id
    )
    assert texts(transcript) == [*texts(seen), "answer instead"]
    originals = (await storage.fetch_chat(*IDS))[:4]
    assert transcript[:4] == originals  # ids, times and runs too


async def test_the_parent_and_its_summaries_are_untouched(storage):
    """Log, positions and records, before and after the fork has been written to."""
    manager = ConversationManager(storage, Summarizer())
    await turns(manager, 5)
    before = await snapshot(storage)
    for number in range(5):
        await turn(manager, f"{number} {LONG}", after_run_id="r1")
    assert await snapshot(storage) == before
    assert len(before[2]) > 0


async def test_the_tip_goes_on_in_the_thread_itself(storage):
    """There is nothing to fork."""
    manager = ConversationManager(storage)
    await turns(manager, 2)
    run = await manager.start_run(*IDS, after_run_id="r2")
    assert run.key == KEY
    assert len(await manager.list_threads()) == 1


async def test_an_unknown_run_is_an_error_and_makes_nothing(storage):
    """Of this thread; another thread's run is unknown, too."""
    manager = ConversationManager(storage)
    await turns(manager, 2)
    await turn(manager, ids=("user", "elsewhere", "agent"), run_id="other")
    for run_id in ("other", "r3", ""):
        with pytest.raises(InvalidRequestError, match="has no run"):
            await manager.start_run(*IDS, after_run_id=run_id)
    with pytest.raises(InvalidRequestError, match="has no run"):
        await manager.start_run("user", "nothing", "agent", after_run_id="r1")
    assert len(await manager.list_threads()) == 2


async def test_a_fork_of_a_fork(storage):
    """Each has a session; each shares what it was made from."""
    manager = ConversationManager(storage)
    await turns(manager, 3, text="x")
    first, _ = await turn(manager, "first", after_run_id="r2", run_id="f1")
    await turn(manager, "more", ids=_ids(first), run_id="f2")
    second, seen = await turn(manager, "second", ids=_ids(first), after_run_id="f1")
    assert heads(seen) == [*("ask 1", "answer 1", "ask 2", "answer 2"), "ask first",
                           "answer first", "ask second"]  # fmt: skip
    third, seen = await turn(manager, "third", ids=_ids(second), after_run_id="r1")
    assert heads(seen) == ["ask 1", "answer 1", "ask third"]
    assert len({run.key.session_id for run in (first, second, third)} | {"session"}) == 4


def _ids(run):
    return run.key.user_id, run.key.session_id, run.key.agent_id


async def test_an_id_that_came_back_forks_after_its_last_block(storage):
    """That is where this run ended."""
    manager = ConversationManager(storage)
    for name in ("r1", "r2", "r1", "r3"):
        await turn(manager, name, run_id=name)
    _, seen = await turn(manager, "now", after_run_id="r1")
    assert heads(seen)[-3:] == ["ask r1", "answer r1", "ask now"]
    assert len(seen) == 7


async def test_the_fork_may_be_named(storage):
    """But not after a session that is in use."""
    manager = ConversationManager(storage)
    await turns(manager, 2, text="x")
    run = await manager.start_run(*IDS, after_run_id="r1", fork_session_id="mine")
    assert run.key.session_id == "mine"
    for taken in ("mine", "session"):
        with pytest.raises(InvalidRequestError, match="is in use"):
            await manager.start_run(*IDS, after_run_id="r1", fork_session_id=taken)


async def test_forks_at_once_are_independent(storage):
    """Ten from one run, none sees another."""
    manager = ConversationManager(storage)
    await turns(manager, 3, text="x")
    forks = await asyncio.gather(
        *(turn(manager, f"{number}", after_run_id="r1") for number in range(10))
    )
    assert [texts(seen)[-1] for _, seen in forks] == [f"ask {number}" for number in range(10)]
    assert len({run.key.session_id for run, _ in forks}) == 10
    assert all(len(seen) == 3 for _, seen in forks)


async def test_of_two_forks_into_one_session_at_once_one_is_refused(storage):
    """And adds nothing to the other's, though it had found the session empty."""
    gated = GatedChatStorage(storage, close_inner=False)
    manager = ConversationManager(gated)
    await turns(ConversationManager(storage), 3, text="x")
    gates = [gated.hold("append"), gated.hold("append")]
    forks = [
        asyncio.create_task(manager.start_run(*IDS, after_run_id=run, fork_session_id="one"))
        for run in ("r1", "r2")
    ]
    for gate in gates:
        await gate.reached()
    for gate in gates:
        gate.open()
    results = await asyncio.gather(*forks, return_exceptions=True)
    refused = [result for result in results if isinstance(result, InvalidRequestError)]
    assert len(refused) == 1
    won = results.index(next(result for result in results if result not in refused))
    stored = await storage.fetch_chat("user", "one", "agent")
    assert len(stored) == 2 * (won + 1)


async def test_a_fork_says_where_it_comes_from(storage):
    """In a note of its log."""
    manager = ConversationManager(storage)
    await turns(manager, 2)
    run = await manager.start_run(*IDS, after_run_id="r1", fork_session_id="mine")
    log = [entry async for entry in storage.iter_log(*_ids(run))]
    (note,) = [entry for entry in log if isinstance(entry, Note)]
    assert note.kind == "fork"
    assert (note.data["session_id"], note.data["run_id"]) == ("session", "r1")


async def test_a_fork_costs_nothing(storage):
    """What its beginning cost was billed to the parent."""
    manager = ConversationManager(storage, Summarizer(usage=Usage(50, 5)))
    await turns(manager, 5, measured=Usage(100, 10))
    before = await manager.usage("user")
    run = await manager.start_run(*IDS, after_run_id="r4")
    assert run.usage == Usage()
    assert await manager.usage("user") == before


async def test_a_fork_begins_with_the_newest_summary_before_it(storage):
    """Whoever starts it: no model is asked again for what it has summarized."""
    await turns(ConversationManager(storage, Summarizer(usage=Usage(50, 5))), 6)
    (*_, newest) = await storage.summaries().list_summaries(KEY)
    raw = await storage.fetch_chat(*IDS)
    run = await ConversationManager(storage).start_run(*IDS, after_run_id="r5")
    seen = await run.messages()
    assert seen[0] == newest.summary[0]
    assert seen[1:] == [m for m in raw if m.position > newest.position and m.run_id != "r6"]
    again = await ConversationManager(storage).start_run(*_ids(run))
    assert await again.messages() == seen
    (record,) = await storage.summaries().list_summaries(run.key)
    assert record.covered.count == newest.covered.count
    assert record.usage is None


async def test_a_fork_before_every_summary_begins_with_raw(storage):
    """A summary that stands for more than is shared is not shown."""
    manager = ConversationManager(storage, Summarizer())
    await turns(manager, 6)
    run = await manager.start_run(*IDS, after_run_id="r1")
    assert heads(await run.messages()) == ["ask 1", "answer 1"]
    assert await storage.summaries().list_summaries(run.key) == []


async def test_a_fork_shows_no_summary_of_what_was_retracted(storage):
    """The summary tells of it; the fork begins with raw messages, without the retracted one."""
    await turns(ConversationManager(storage, Summarizer()), 6)
    (*_, newest) = await storage.summaries().list_summaries(KEY)
    first = (await storage.fetch_chat(*IDS))[0]
    assert first.position <= newest.position
    await storage.retract(*IDS, [first.id])
    run = await ConversationManager(storage).start_run(*IDS, after_run_id="r5")
    seen = await run.messages()
    assert seen[0].position is not None
    assert first.id not in [message.id for message in seen]
    assert await storage.summaries().list_summaries(run.key) == []


async def test_a_fork_keeps_what_is_pinned(storage):
    """The summary's head comes along, in the fork's own log."""
    manager = ConversationManager(storage, Summarizer())
    run = await manager.start_run(*IDS)
    run.add(user("remember this", pinned=True))
    await run.save()
    await turns(manager, 5)
    fork = await manager.start_run(*IDS, after_run_id="r4")
    seen = await fork.messages()
    assert heads(seen)[:2] == ["remember this", "SUMMARY"]
    assert seen[0].position == 1


async def test_a_fork_of_a_summarized_thread_is_summarized_further(storage):
    """The copied record is the predecessor of the next."""
    manager = ConversationManager(storage, Summarizer())
    await turns(manager, 6)
    fork = await manager.start_run(*IDS, after_run_id="r5")
    for number in range(5):
        _, seen = await turn(manager, f"{number} {LONG}", ids=_ids(fork))
    records = await storage.summaries().list_summaries(fork.key)
    assert [record.replaces for record in records[1:]] == [record.id for record in records[:-1]]
    assert len(records) > 1
    assert seen[0] == records[-1].summary[0]


async def test_a_forks_occupancy_is_that_of_what_it_shows(storage):
    """Neither the parent's note nor what its view was believed to take."""
    plain = ConversationManager(storage)
    await turns(plain, 3, text="x", measured=Usage(9_000, 10))
    run = await plain.start_run(*IDS, after_run_id="r1")
    assert 0 < run.context_tokens < 100


async def test_a_fork_from_a_run_of_a_trimmed_thread(storage):
    """What was trimmed is gone; what is left is shared."""
    manager = ConversationManager(storage, Summarizer(lambda m, _t: SummaryResult("s", m[-1:])))
    await turns(manager, 5)
    await storage.trim_chat(*IDS, 6)
    run = await ConversationManager(storage).start_run(*IDS, after_run_id="r4")
    assert heads(await run.messages()) == ["ask 3", "answer 3", "ask 4", "answer 4"]
    with pytest.raises(InvalidRequestError, match="has no run"):
        await manager.start_run(*IDS, after_run_id="r1")
