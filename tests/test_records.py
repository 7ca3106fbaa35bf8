"""Notes, summary records, and what a store tells of a chat."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from agent_memory import (
    ChatInfo,
    ChatKey,
    ConversationMessage,
    InvalidRequestError,
    Note,
)
from agent_memory.errors import (
    AgentMemoryError,
    CorruptedRecordError,
    MissingDependencyError,
    StorageError,
    StorageUnavailableError,
)
from agent_memory.records import Covered, LogSlice, SummaryRecord, same_payload


def test_notes_are_equal_wherever_they_are():
    """The place is no part of a note, as with messages."""
    note = Note("run", {"tokens": 1}, id="1")
    placed = note.placed(3, "agent")
    assert placed == note
    assert (placed.position, placed.agent_id, hash(placed)) == (3, "agent", hash(note))
    assert note != Note("run", {"tokens": 2}, id="1", timestamp=note.timestamp)


def test_a_note_is_immutable_and_checked():
    """Its data is frozen and in the domain of content."""
    with pytest.raises(TypeError):
        Note("run", {"a": [1]}).data["a"].append(2)
    with pytest.raises(InvalidRequestError, match=r"data\['a'\]"):
        Note("run", {"a": {1, 2}})
    with pytest.raises(InvalidRequestError, match="kind"):
        Note("")


def test_payloads_of_different_kinds_differ():
    """A note is never a repeat of a message, nor the other way round."""
    note, message = Note("run", id="1"), ConversationMessage("user", {}, id="1")
    assert not same_payload(note, message)
    assert not same_payload(message, note)
    assert same_payload(note, Note("run", id="1"))
    assert not same_payload(note, Note("other", id="1"))


def test_a_slice_tells_messages_from_notes():
    """Only the messages, in order."""
    one, two = ConversationMessage("user", "1"), ConversationMessage("user", "2")
    assert LogSlice([one, Note("run"), two]).messages == [one, two]


def test_a_chat_counts_what_lives():
    """From the floor to the last."""
    assert ChatInfo(ChatKey("u", "s", "a"), 3, 10).entries == 7


def record_of(covered, **more):
    """A record that covers these messages, up to its position."""
    return SummaryRecord(
        summary=(), head=(), position=covered.last, message_id="m", covered=covered, **more
    )


@pytest.mark.parametrize(
    ("floor", "last", "fits"),
    [(2, 9, True), (2, 5, True), (2, 4, False), (3, 9, False), (1, 9, False), (0, 0, False)],
)
def test_a_record_fits_its_own_floor_and_a_log_that_reaches_it(floor, last, fits):
    """At another floor, or beyond the log, it is void."""
    assert record_of(Covered(3, 5, 3), floor=2).fits(floor, last) is fits


def test_a_record_at_its_floor_never_fits():
    """It would stand for nothing that lives."""
    assert not record_of(Covered(1, 2, 2), floor=2).fits(2, 9)


def test_a_record_still_has_the_names_of_0_1():
    """It is made and stored with them; to read them warns."""
    record = record_of(Covered(3, 5, 3), floor=2, known=9, told=7)
    assert (record.known_through, record.summarized_through) == (9, 7)
    with pytest.warns(DeprecationWarning, match="known_through"):
        assert record.known == 9
    with pytest.warns(DeprecationWarning, match="summarized_through"):
        assert record.told == 7


def test_a_record_is_stamped_when_it_is_made():
    """With an id of its own and the current time."""
    before = datetime.now(UTC)
    made = [record_of(Covered(1, 1, 1), floor=0) for _ in range(2)]
    assert made[0].id != made[1].id
    assert before <= made[0].created_at <= datetime.now(UTC)


def test_errors_have_one_root_and_their_builtin_kin():
    """Callers may catch ValueError and ImportError as they are used to."""
    assert issubclass(InvalidRequestError, AgentMemoryError)
    assert issubclass(InvalidRequestError, ValueError)
    assert issubclass(MissingDependencyError, ImportError)
    assert issubclass(StorageUnavailableError, StorageError)


def test_errors_tell_their_facts():
    """Key, location, and whether anything was stored."""
    key = ChatKey("u", "s", "a")
    error = StorageUnavailableError("gone", key=key, stored=None)
    assert (str(error), error.key, error.stored) == ("gone", key, None)
    assert CorruptedRecordError("bad", location="f:3").location == "f:3"
    assert StorageError("x").stored is False


def test_a_missing_dependency_says_what_to_install():
    """The extra by name; the error survives a process border."""
    error = pickle.loads(pickle.dumps(MissingDependencyError("asyncpg", "postgres")))
    assert "pip install 'agent-memory-storage[postgres]'" in str(error)
    assert (error.package, error.extra) == ("asyncpg", "postgres")
