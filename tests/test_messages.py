"""The values: keys, usage, messages."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone

import attrs
import pytest

from agent_memory import (
    ChatKey,
    ConversationMessage,
    InvalidRequestError,
    ParticipantRole,
    Usage,
)

NOON = datetime(2024, 5, 6, 12, 0, 0, 123456, tzinfo=UTC)


def test_c10_keys_are_compared_part_by_part():
    """Keys that join to one text are different keys with different hashes."""
    keys = {ChatKey("a#b", "c", "d"), ChatKey("a", "b#c", "d"), ChatKey("a", "b", "c#d")}
    assert len(keys) == 3


def test_keys_sort_and_pickle():
    """By user, session, agent; across processes they stay equal and usable in dicts."""
    keys = [ChatKey("b", "a", "a"), ChatKey("a", "b", "a"), ChatKey("a", "a", "b")]
    assert sorted(keys) == keys[::-1]
    loaded = pickle.loads(pickle.dumps(keys[0]))
    assert (loaded, hash(loaded)) == (keys[0], hash(keys[0]))


def test_a_key_cannot_be_changed():
    """It is a value."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ChatKey("a", "b", "c").user_id = "x"


@pytest.mark.parametrize("place", ["user_id", "session_id", "agent_id"])
def test_c11_a_bad_id_is_refused_by_its_name(place):
    """The error says which of the three."""
    fields = {"user_id": "u", "session_id": "s", "agent_id": "a", place: ""}
    with pytest.raises(InvalidRequestError, match=place):
        ChatKey(**fields)


def test_usages_add_up():
    """Field by field; the total is input and output."""
    total = Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40)
    assert total == Usage(11, 22, 33, 44)
    assert total.total_tokens == 33
    with pytest.raises(TypeError):
        _ = Usage() + 1


@pytest.mark.parametrize("bad", [-1, 1.0, True, "1", None])
def test_usage_is_whole_and_not_negative(bad):
    """Anything else is refused by its field."""
    with pytest.raises(InvalidRequestError, match="cached_tokens"):
        Usage(cached_tokens=bad)


def test_a_message_is_made_from_the_least():
    """Role and content are enough; the rest has defaults."""
    before = datetime.now(UTC)
    message = ConversationMessage("user", "hello")
    assert message.role is ParticipantRole.USER
    assert before <= message.timestamp <= datetime.now(UTC)
    assert message.timestamp.tzinfo is UTC
    assert len(message.id) == 36
    assert (message.run_id, message.pinned, message.usage) == (None, False, None)
    assert (message.extra, message.metadata) == ({}, {})
    assert (message.position, message.agent_id) == (None, None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"role": "robot"}, "'user', 'assistant', 'system', 'developer', 'tool'.*'robot'"),
        ({"role": None}, "role"),
        ({"content": (1, 2)}, "content is of type tuple"),
        ({"id": ""}, "id must not be empty"),
        ({"timestamp": datetime(2024, 1, 1)}, "no time zone"),  # noqa: DTZ001  (the case itself)
        ({"timestamp": "2024-01-01"}, "datetime, not str"),
        ({"timestamp": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))}, "years 1 to"),
        ({"run_id": ""}, "run_id"),
        ({"pinned": 1}, "pinned"),
        ({"usage": {"input_tokens": 1}}, "usage"),
        ({"extra": None}, "extra must be a dict"),
        ({"extra": {"a": {1}}}, r"extra\['a'\]"),
        ({"metadata": {"a": [object()]}}, r"metadata\['a'\]\[0\]"),
    ],
)
def test_c02_bad_fields_are_refused_when_the_message_is_made(fields, said):
    """The error names the field and the path."""
    with pytest.raises(InvalidRequestError, match=said):
        ConversationMessage(**{"role": "user", "content": "x", **fields})


def test_c05_timestamps_become_utc_and_keep_microseconds():
    """The same moment, whatever zone it was given in."""
    east = NOON.astimezone(timezone(timedelta(hours=9)))
    message = ConversationMessage("user", "x", timestamp=east)
    assert message.timestamp == NOON
    assert message.timestamp.isoformat() == "2024-05-06T12:00:00.123456+00:00"


def full_message():
    return ConversationMessage(
        "assistant",
        [{"text": "hi"}, {"image": {"bytes": b"\x00"}}],
        id="1",
        timestamp=NOON,
        run_id="run",
        pinned=True,
        usage=Usage(1, 2, 3, 4),
        extra={"tool_calls": [{"id": "c"}]},
        metadata={"trace": "t"},
    )


def test_messages_are_equal_when_all_that_was_given_is():
    """The place in a log is no part of it; every other field is."""
    one, other = full_message(), full_message()
    assert one == other == one.placed(7, "agent")
    assert hash(one) == hash(other)
    changes = {
        "role": "user",
        "content": "x",
        "id": "2",
        "timestamp": NOON + timedelta(microseconds=1),
        "run_id": None,
        "pinned": False,
        "usage": None,
        "extra": {},
        "metadata": {},
    }
    for name, value in changes.items():
        assert attrs.evolve(one, **{name: value}) != one, name
    assert one != "1"


def test_only_role_content_and_extra_are_its_payload():
    """What idempotency compares: the rest may differ between two tries."""
    one = full_message()
    for name, value in {"timestamp": NOON + timedelta(1), "metadata": {}, "usage": None}.items():
        assert one.same_payload(attrs.evolve(one, **{name: value})), name
    for name, value in {"role": "user", "content": None, "extra": {}}.items():
        assert not one.same_payload(attrs.evolve(one, **{name: value})), name


def test_c07_a_message_is_deeply_immutable():
    """Neither its fields nor what is in them can be edited."""
    message = full_message()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        message.content = "x"
    for edit in (
        lambda: message.content.append(1),
        lambda: message.content[0].update(text="x"),
        message.extra["tool_calls"].clear,
        lambda: message.metadata.__setitem__("trace", 1),
    ):
        with pytest.raises(TypeError):
            edit()


def test_copies_of_a_message_are_the_message():
    """A value needs no copies; its content's deep copy is editable."""
    message = full_message()
    assert copy.copy(message) is message
    assert copy.deepcopy([message])[0] is message
    content = copy.deepcopy(message.content)
    content[0]["text"] = "edited"
    assert message.content[0]["text"] == "hi"


def test_a_message_pickles_with_its_place():
    """It crosses process borders whole."""
    message = full_message().placed(3, "agent")
    loaded = pickle.loads(pickle.dumps(message))
    assert loaded == message
    assert (loaded.position, loaded.agent_id) == (3, "agent")


def test_to_dict_is_plain_and_from_dict_takes_it():
    """The dict is the caller's own; what it makes is equal, without the place."""
    message = full_message().placed(3, "agent")
    plain = message.to_dict()
    assert (plain["role"], plain["position"], plain["agent_id"]) == ("assistant", 3, "agent")
    assert type(plain["content"]) is list
    again = ConversationMessage.from_dict(plain)
    assert again == message
    assert again.position is None
    plain["content"][0]["text"] = "edited"
    assert message.content[0]["text"] == "hi"


def test_to_dict_is_json_where_the_content_is():
    """Everything but bytes goes through json as it is."""
    message = ConversationMessage("user", "x", usage=Usage(1, 2), timestamp=NOON)
    assert ConversationMessage.from_dict(json.loads(json.dumps(message.to_dict()))) == message


@pytest.mark.parametrize(
    "plain",
    [
        {"role": "user"},
        {"content": "x"},
        {"role": "user", "content": "x", "surprise": 1},
        {"role": "user", "content": "x", "timestamp": "yesterday"},
        {"role": "user", "content": "x", "usage": {"surprise": 1}},
    ],
)
def test_from_dict_refuses_what_is_no_message(plain):
    """Unknown, missing and invalid fields are our typed error."""
    with pytest.raises(InvalidRequestError):
        ConversationMessage.from_dict(plain)


def test_the_repr_is_short_and_safe():
    """Long contents are cut."""
    assert len(repr(ConversationMessage("user", "x" * 10_000))) < 200
    assert "…" in repr(ConversationMessage("user", 10**4000))
    assert "position=3" in repr(ConversationMessage("user", "x").placed(3, "agent"))


@pytest.mark.parametrize("digits", [4301, 10_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_c02_an_integer_that_json_cannot_hold_is_refused(digits, sign):
    """Once stored it would make every view of its chat fail: no text has room for it."""
    with pytest.raises(InvalidRequestError, match=r"\['n'\] has more than 4,300 digits"):
        ConversationMessage("user", [{"n": sign * 10 ** (digits - 1)}])


def test_c02_the_largest_integer_that_is_taken_goes_through_json():
    """4,300 nines: json takes them, and so does everything that a model is sent through."""
    largest = 10**4300 - 1
    message = ConversationMessage("user", [{"n": largest}])
    assert json.loads(json.dumps(message.content)) == [{"n": largest}]
