"""One run: what the model sees, what is stored when, and what a run refuses."""

from __future__ import annotations

import pytest
from talking import heads, turn

from agent_memory import (
    ConversationManager,
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    StorageConflictError,
    SummarizingChatStorage,
    TransformingChatStorage,
)
from agent_memory.providers import validate
from rig import IDS, call, result, texts, user


async def test_the_model_sees_the_history_and_the_run(storage):
    """A run begins with what was said before it."""
    manager = ConversationManager(storage)
    await turn(manager, "one")
    _, seen = await turn(manager, "two")
    assert texts(seen) == ["ask one", "answer one", "ask two"]


async def test_messages_may_be_asked_for_many_times(storage):
    """Each tool round sees everything before it, in order, once."""
    run = await ConversationManager(storage).start_run(*IDS)
    run.add(user("ask"))
    seen = await run.messages()
    for number in range(5):
        run.add([call(f"c{number}"), result(f"c{number}")])
        longer = await run.messages()
        assert longer[: len(seen)] == seen
        assert len(longer) == len(seen) + 2
        seen = longer
    assert await run.messages() == seen


async def test_what_is_returned_is_a_fresh_list(storage):
    """A caller who edits it changes nothing."""
    run = await ConversationManager(storage).start_run(*IDS)
    run.add(user("ask"))
    (await run.messages()).clear()
    assert texts(await run.messages()) == ["ask"]


async def test_pending_messages_are_stored_before_anything_else(storage):
    """Nothing reaches a model, or a summarizer, that is not in the store."""
    found = []

    class Looking:
        async def summarize(self, messages, context_tokens):
            found.append(texts(await storage.fetch_chat(*IDS)))

    manager = ConversationManager(storage, Looking())
    await turn(manager, "one")
    run = await manager.start_run(*IDS)
    run.add(user("ask two"))
    await run.messages()
    assert found[-1] == ["ask one", "answer one", "ask two"]


async def test_messages_carry_the_runs_id(storage):
    """That is how a log tells its runs apart."""
    run, _ = await turn(ConversationManager(storage), run_id="mine")
    assert {message.run_id for message in await storage.fetch_chat(*IDS)} == {run.id} == {"mine"}


async def test_a_message_added_twice_is_stored_and_counted_once(storage):
    """A caller may add everything it holds again."""
    run = await ConversationManager(storage).start_run(*IDS)
    message = user("ask")
    run.add(message)
    tokens = run.context_tokens
    run.add([message, message])
    assert run.context_tokens == tokens
    await run.messages()
    run.add(message)
    assert run.context_tokens == tokens
    assert texts(await run.messages()) == ["ask"]


async def test_an_id_added_again_with_other_content_is_refused_at_once(storage):
    """And nothing of that call is added."""
    run = await ConversationManager(storage).start_run(*IDS)
    run.add(user("ask", id="m1"))
    with pytest.raises(InvalidRequestError, match="give a changed message a new id"):
        run.add([user("fine"), user("other", id="m1")])
    assert texts(run.pending) == ["ask"]


async def test_an_id_that_is_in_the_chat_with_other_content_can_be_withdrawn(storage):
    """The store refuses it; the run goes on without it."""
    manager = ConversationManager(storage)
    await storage.save_chat_message(*IDS, user("old", id="m1"))
    run = await manager.start_run(*IDS)
    tokens = run.context_tokens
    run.add([user("new", id="m1"), user("ask")])
    with pytest.raises(StorageConflictError):
        await run.messages()
    run.withdraw("m1")
    assert texts(await run.messages()) == ["old", "ask"]
    assert run.context_tokens > tokens
    with pytest.raises(InvalidRequestError, match="not pending"):
        run.withdraw("m1")


async def test_a_message_that_is_in_the_chat_already_is_neither_stored_nor_counted_again(storage):
    """Saving it through the run is a repeat like any other."""
    message = user("ask")
    await storage.save_chat_message(*IDS, message)
    run = await ConversationManager(storage).start_run(*IDS)
    tokens = run.context_tokens
    run.add(message)
    assert run.context_tokens == tokens
    assert texts(await run.messages()) == ["ask"]


@pytest.mark.parametrize("given", [None, 7, "text", [user("fine"), "text"], {"role": "user"}])
async def test_what_is_no_message_is_refused(given):
    """Early, and with nothing added."""
    run = await ConversationManager(InMemoryChatStorage()).start_run(*IDS)
    with pytest.raises(InvalidRequestError, match="takes"):
        run.add(given)
    assert run.pending == ()


async def test_a_message_of_another_run_is_refused():
    """A run's messages are its own."""
    run = await ConversationManager(InMemoryChatStorage()).start_run(*IDS, run_id="r2")
    with pytest.raises(InvalidRequestError, match="belongs to the run 'r1'"):
        run.add(user("ask", run_id="r1"))


@pytest.mark.parametrize("run_id", ["", 7, "x" * 256])
async def test_a_run_id_is_an_id(run_id):
    """As any other."""
    with pytest.raises(InvalidRequestError, match="run_id"):
        await ConversationManager(InMemoryChatStorage()).start_run(*IDS, run_id=run_id)


async def test_usage_is_a_usage():
    """A provider's own object has to be made one first."""
    run = await ConversationManager(InMemoryChatStorage()).start_run(*IDS)
    with pytest.raises(InvalidRequestError, match="Usage"):
        run.record_usage({"input_tokens": 3})


async def test_a_summarizing_store_is_refused_wherever_it_is():
    """It says what to pass instead."""
    inner = InMemoryChatStorage()
    summarizing = SummarizingChatStorage(inner, lambda history, _keep: history)
    for storage in (summarizing, TransformingChatStorage(summarizing, lambda message: message)):
        with pytest.raises(InvalidRequestError, match="pass the store that"):
            ConversationManager(storage)
    with pytest.raises(InvalidRequestError, match="must be a ChatStorage"):
        ConversationManager({})


@pytest.mark.parametrize(
    "options",
    [
        {"on_summarizer_error": "ignore"},
        {"summarizer": 7},
        {"fallback": "text"},
        {"trigger_at": 1},
        {"keep_last": 0},
        {"summarizer_timeout": 0},
        {"provider": "nobody"},
        {"on_event": 7},
    ],
)
async def test_options_are_checked_at_once(options):
    """Each says what it wants."""
    with pytest.raises(InvalidRequestError, match=next(iter(options)).split("_", maxsplit=1)[0]):
        ConversationManager(InMemoryChatStorage(), **options)


async def test_what_the_store_scrubs_is_what_the_model_sees():
    """A transforming store inside works on the run's messages."""

    def scrub(message):
        return ConversationMessage(
            message.role, message.content.replace("secret", "***"), id=message.id, run_id="r1"
        )

    storage = TransformingChatStorage(InMemoryChatStorage(), scrub)
    run = await ConversationManager(storage).start_run(*IDS, run_id="r1")
    run.add(user("my secret"))
    assert texts(await run.messages()) == ["my ***"]


async def test_c31_a_view_for_a_provider_is_valid_after_a_death(storage):
    """A run that died after its call leaves a call without a result; the next view has none."""
    manager = ConversationManager(storage, provider="bedrock")
    dead = await manager.start_run(*IDS)
    dead.add([ConversationMessage("user", [{"text": "ask"}]), call("c1")])
    await dead.messages()
    run = await manager.start_run(*IDS)
    run.add(ConversationMessage("user", [{"text": "again"}]))
    seen = await run.messages()
    assert validate(seen, "bedrock") == []
    assert await run.messages() == seen
    assert len(await storage.fetch_chat(*IDS)) == 3


async def test_a_run_tells_what_it_is(storage):
    """For logs: its id and whose chat it is, none of the content."""
    run = await ConversationManager(storage).start_run(*IDS, run_id="r1")
    run.add(user("private"))
    assert repr(run) == "ConversationRun('r1', user 'user', session 'session', agent 'agent')"


async def test_users_never_meet(stores):
    """Whatever the ids: equal sessions, ids that look joined, names that look alike."""
    manager = ConversationManager(stores.open())
    keys = [
        ("a#b", "c", "d"),
        ("a", "b#c", "d"),
        ("a", "b", "c#d"),
        ("A", "b", "c#d"),
        ("a/b", "c", "d"),
        ("é", "s", "a"),
        ("e\u0301", "s", "a"),
    ]
    for number, ids in enumerate(keys):
        await turn(manager, str(number), ids=ids)
    for number, ids in enumerate(keys):
        transcript = await manager.load_transcript(*ids)
        assert texts(transcript) == [f"ask {number}", f"answer {number}"]
        assert (await manager.start_run(*ids)).key.user_id == ids[0]
    mine = await manager.list_threads("a")
    assert {thread.key.user_id for thread in mine} == {"a"}
    assert heads(await (await manager.start_run("b", "b#c", "d")).messages()) == []
