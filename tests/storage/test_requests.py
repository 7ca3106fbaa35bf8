"""What callers ask is checked before anything is written."""

from __future__ import annotations

from fractions import Fraction

import pytest

from agent_memory import (
    ChatKey,
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    StorageConflictError,
)
from agent_memory.storage.requests import (
    check_scope_ids,
    checked_count,
    checked_messages,
    without_repeats,
)

KEY = ChatKey("u", "s", "a")


def user(text="x", **fields):
    return ConversationMessage("user", text, **fields)


@pytest.mark.parametrize("good", [0, 1, 10**9])
def test_whole_numbers_of_at_least_nought_are_counts(good):
    """They come back as they are."""
    assert checked_count(good, "keep") == good


@pytest.mark.parametrize("bad", [-1, 1.0, True, "1", None])
def test_anything_else_is_no_count(bad):
    """Booleans are no numbers here; the error names the argument."""
    with pytest.raises(InvalidRequestError, match="keep"):
        checked_count(bad, "keep")


def test_c16_repeats_within_a_batch_are_taken_once():
    """The first of equal payloads stays, in order."""
    one, two = user("1"), user("2")
    again = user("1", id=one.id)
    assert without_repeats(KEY, [one, two, again, two]) == [one, two]


def test_c16_a_batch_that_contradicts_itself_conflicts():
    """The error names the chat and the id, and says what to do."""
    one = user("1")
    with pytest.raises(StorageConflictError, match=f"{one.id}.*new id") as caught:
        without_repeats(KEY, [one, user("2", id=one.id)])
    assert (caught.value.key, caught.value.stored) == (KEY, False)


def test_c17_a_batch_names_what_is_no_message():
    """By index and type, with advice."""
    with pytest.raises(
        InvalidRequestError, match=r"new_messages\[1\].*dict.*ConversationMessage\("
    ):
        checked_messages([user(), {"role": "user"}])
    with pytest.raises(InvalidRequestError, match="NoneType"):
        checked_messages(None)


def test_scopes_are_a_user_or_a_session_of_one():
    """A session alone names nothing; ids are checked."""
    check_scope_ids(None, None)
    check_scope_ids("u", None)
    check_scope_ids("u", "s")
    with pytest.raises(InvalidRequestError, match="give both"):
        check_scope_ids(None, "s")
    with pytest.raises(InvalidRequestError):
        check_scope_ids("", None)


class FromElsewhere:
    """A message of another library; named by its module as agent-squad's are."""


FromElsewhere.__module__ = "agent_squad.types.types"
ADAPTER = "from agent_memory.adapters.agent_squad import AgentSquadChatStorage"


@pytest.mark.parametrize("further", [(100,), (None,)])
async def test_c118_agent_squad_s_further_argument_is_answered_with_its_adapter(further):
    """Its orchestrator shows an error's text as the answer: it says what to do."""
    storage = InMemoryChatStorage()
    message = ConversationMessage("user", "hello")
    with pytest.raises(InvalidRequestError, match=ADAPTER):
        await storage.save_chat_message("user", "session", "agent", message, *further)
    with pytest.raises(InvalidRequestError, match=ADAPTER):
        await storage.save_chat_messages("user", "session", "agent", [message], *further)
    assert await storage.fetch_chat("user", "session", "agent") == []


async def test_c118_agent_squad_s_messages_are_answered_with_its_adapter():
    """A message of its own type; any other type is named with its module."""
    storage = InMemoryChatStorage()
    with pytest.raises(InvalidRequestError, match=ADAPTER):
        await storage.save_chat_message("user", "session", "agent", FromElsewhere())
    with pytest.raises(InvalidRequestError, match=r"not fractions\.Fraction; make one with"):
        await storage.save_chat_message("user", "session", "agent", Fraction(1))
