"""The pure parts of DynamoDbChatStorage: keys, sizes, bodies, the log's end, what covers what."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import ChatKey, ConversationMessage
from agent_memory.errors import CorruptedRecordError, MessageTooLargeError
from agent_memory.storage.dynamodb import table_layout
from agent_memory.storage.dynamodb.log_end import (
    LogEnd,
    expired,
    next_append,
    next_floor,
    reserve_for,
    tombstone,
)
from agent_memory.storage.dynamodb.ranges import (
    live_items,
    missing_positions,
    overlapping,
    requested_range,
)
from agent_memory.storage.dynamodb.table_client import _content_size, _groups
from agent_memory.storage.dynamodb.table_layout import (
    END,
    ITEM_LIMIT,
    KNOWN_IDS,
    LOG,
    PART_ROOM,
    Kind,
    LogItem,
    SortKey,
    from_attributes,
    join_lines,
    log_key,
    pack,
    part_keys,
    prefix,
    session_prefix,
    size_of,
    split,
    split_sort_key,
    to_attributes,
    unpack,
)

ids = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60
)
keys = st.builds(ChatKey, ids, ids, ids)
places = st.builds(SortKey, st.integers(0, 2**63), st.integers(0, 2**32 - 1))
KEY = ChatKey("user", "session", "agent")
IN_PARTS = LogItem(sort_key=SortKey(1), kind=Kind.APPEND, token=b"12345678", parts=1)


def entries(count, start=0):
    return [ConversationMessage("user", str(n), id=f"id-{start + n}") for n in range(count)]


# -------------------------------------------------------------------------------------- keys


@given(keys, places)
def test_a_log_key_tells_its_chat_and_place(key, sort_key):
    """Nothing is lost in the encoding."""
    primary = log_key(key, sort_key)
    found, rest = split_sort_key(primary["pk"]["S"], primary["sk"]["B"])
    assert (found, SortKey.from_bytes(rest)) == (key, sort_key)


@given(keys, keys, places, places)
def test_log_keys_sort_as_chats_and_places_do(one, other, sort_key, later):
    """The order of the bytes is that of the values, so that queries read in order."""
    first, second = log_key(one, sort_key)["sk"]["B"], log_key(other, later)["sk"]["B"]
    expected = (one.session_id, one.agent_id, sort_key) < (other.session_id, other.agent_id, later)
    assert (first < second) == expected


near = st.text("ab\x01\xff", min_size=1, max_size=3)
near_keys = st.builds(ChatKey, near, near, near)


@example(ChatKey("u", "s", "a"), ChatKey("u", "s", "ab"))
@example(ChatKey("u", "s", "a"), ChatKey("u", "sa", "a"))
@given(keys | near_keys, near_keys)
def test_c10_no_chat_lies_within_the_range_of_another(one, other):
    """A prefix with END above it holds one chat, and nothing of a longer session id."""
    low = prefix(LOG, one)
    within = low <= prefix(LOG, other) <= low + END
    assert within == ((one.session_id, one.agent_id) == (other.session_id, other.agent_id))
    session = session_prefix(LOG, one.session_id)
    assert prefix(LOG, other).startswith(session) == (one.session_id == other.session_id)


def test_the_longest_keys_are_allowed():
    """At most 1,024 bytes of sort key and 2,048 of partition key."""
    key = ChatKey("é" * 127, "é" * 127, "é" * 127)
    item = attrs.evolve(IN_PARTS, sort_key=SortKey(2**63, 2**32 - 1))
    (primary,) = part_keys(key, item)
    assert len(primary["sk"]["B"]) <= 540
    assert len(primary["pk"]["S"].encode()) <= 255


# ------------------------------------------------------------------------------------ bodies


@given(st.binary(max_size=5000), st.integers(1, 700))
def test_pieces_are_whole_and_small_enough(content, room):
    """What is split joins to what it was."""
    pieces = split(content, room)
    assert b"".join(pieces) == content
    assert all(0 < len(piece) <= room for piece in pieces)
    assert len(pieces) == -(-len(content) // room)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=3000), st.integers(1, 4000))
def test_a_packed_body_unpacks_and_fits(text, room):
    """Whatever the form, it is the same text, and what is inline has room."""
    body = pack(text, room)
    assert sum(form not in (None, ()) for form in (body.text, body.zipped, body.parts)) == 1
    if body.text is not None:
        assert body.text == text
        assert len(text.encode()) <= room
    elif body.zipped is not None:
        assert unpack(body.zipped) == text
        assert len(body.zipped) <= room
    else:
        assert unpack(b"".join(body.parts)) == text


def test_a_body_is_plain_then_compressed_then_split():
    """The plainest form that fits."""
    assert pack("x" * 1000, 1000).text is not None
    assert pack("x" * 1001, 1000).zipped is not None
    noise = random.Random(1).randbytes(400_000).hex()
    assert len(pack(noise, ITEM_LIMIT).parts) == 2


def test_c08_what_is_too_large_is_refused_with_the_limit(monkeypatch):
    """The error tells the sizes and what to do."""
    monkeypatch.setattr(table_layout, "MAX_BODY", 1000)
    with pytest.raises(MessageTooLargeError, match="1,000 bytes"):
        pack(random.Random(1).randbytes(2000).hex(), 100)


def test_a_damaged_body_is_no_text():
    """Damage is a ValueError."""
    with pytest.raises(ValueError, match="damaged"):
        unpack(b"no zlib")


def test_entries_are_lines():
    """Encoded entries hold no newline themselves."""
    assert join_lines(["a", "b"]).split("\n") == ["a", "b"]


def test_a_full_part_is_within_the_limit():
    """Also in base64, as emulators count, with the longest key."""
    (key,) = part_keys(ChatKey("x" * 255, "x" * 255, "x" * 255), IN_PARTS)
    content = -(-PART_ROOM // 3) * 4
    assert size_of(key) + content + 200 <= ITEM_LIMIT


# ------------------------------------------------------------------------------------- items

items = st.builds(
    LogItem,
    sort_key=places,
    kind=st.sampled_from([Kind.APPEND, Kind.FLOOR, Kind.TOMBSTONE, Kind.ANCHOR]),
    count=st.integers(0, 2**40),
    notes=st.integers(0, 9),
    skip=st.integers(0, 9),
    floor=st.integers(0, 2**40),
    ids=st.binary(max_size=40),
    written_ms=st.integers(0, 2**45),
    created_ms=st.integers(0, 2**45),
    expires_at=st.none() | st.integers(1, 2**40),
    oldest_expires_at=st.none() | st.integers(1, 2**40),
    reserved=st.integers(0, 2**40),
    token=st.binary(max_size=8),
    parts=st.integers(0, 9),
    text=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    zipped=st.none() | st.binary(min_size=1),
)


@given(keys, items)
def test_an_item_comes_back_from_its_attributes(key, item):
    """Nothing is lost between value and attributes."""
    assert from_attributes(to_attributes(key, item)) == item


def test_a_broken_item_is_known_as_broken():
    """It takes no position; a log that ends with it cannot be continued."""
    broken = from_attributes({**log_key(KEY, SortKey(3)), "v": {"N": "1"}, "kind": {"S": "?"}})
    assert broken.kind is Kind.UNREADABLE
    with pytest.raises(CorruptedRecordError, match="newest"):
        LogEnd.after(broken, 0)


def test_an_item_of_a_newer_layout_is_refused():
    """Never read by guess."""
    newer = {**to_attributes(KEY, LogItem(sort_key=SortKey(1), kind=Kind.APPEND)), "v": {"N": "2"}}
    with pytest.raises(CorruptedRecordError, match="upgrade"):
        from_attributes(newer)


def test_a_size_counts_names_and_values():
    """UTF-8 for strings, bytes for binaries, generously for numbers."""
    assert size_of({"ab": {"S": "é"}, "c": {"B": b"123"}}) == 2 + 2 + 1 + 3
    assert size_of({"n": {"N": "12"}}) >= 3


@given(st.lists(st.integers(1, 500_000), max_size=60))
def test_batches_are_small_enough_and_complete(sizes):
    """At most 25 requests and, unless one alone is larger, 700,000 bytes."""
    requests = [{"PutRequest": {"Item": {"zip": {"B": bytes(size)}}}} for size in sizes]
    groups = _groups(requests)
    assert [request for one in groups for request in one] == requests
    for one in groups:
        assert len(one) <= 25
        assert len(one) == 1 or sum(map(_content_size, one)) <= 700_000


# ----------------------------------------------------------------------------- the log's end


@given(st.lists(st.integers(0, 90), max_size=12), st.integers(0, 2**40))
def test_positions_are_gap_free_whatever_is_written(steps, now):
    """Appends of n entries, and floors (0), follow each other without gap or shared place."""
    end, last, used = LogEnd(), 0, set()
    for step in steps:
        fresh = [f"{last + n + 1}" for n in range(step)]
        item = next_append(end, now, None, fresh, 0) if step else next_floor(end, now, None, last)
        assert item.sort_key not in used
        assert item.sort_key.position == last + 1
        assert all(item.sort_key > sort_key for sort_key in used)
        used.add(item.sort_key)
        end, last = LogEnd.after(item, now), last + step
        assert end.last == last
        assert end.matches([str(last)]) == ([last] if last > end.floor else [])


def test_an_item_knows_the_newest_ids():
    """The newest 64, and all of a larger batch of its own."""
    first = LogEnd.after(next_append(LogEnd(), 0, None, [f"a{n}" for n in range(100)], 0), 0)
    assert first.matches(["a0", "a99"]) == [1, 100]
    second = LogEnd.after(next_append(first, 0, None, ["b"], 0), 0)
    assert second.matches(["b"]) == [101]
    assert second.matches(["a36"]) == []
    assert second.matches(["a37"]) == [38]
    assert KNOWN_IDS == 64


def test_ids_below_the_floor_are_not_known():
    """What has been deleted can be saved again."""
    end = LogEnd.after(next_append(LogEnd(), 0, None, ["a", "b"], 0), 0)
    end = LogEnd.after(next_floor(end, 0, None, 1), 0)
    assert end.matches(["a", "b"]) == [2]


def test_expiry_never_runs_backwards():
    """An item expires no earlier than one before it, whatever clocks and limits say."""
    first = next_append(LogEnd(), 10_000, 100, ["a"], 0)
    second = next_append(LogEnd.after(first, 0), 5_000, 50, ["b"], 0)
    assert (first.expires_at, first.oldest_expires_at) == (110, 110)
    assert (second.expires_at, second.oldest_expires_at, second.written_ms) == (110, 110, 10_000)


def test_a_chat_that_began_without_a_limit_keeps_everything():
    """Later items do not expire while earlier ones never do."""
    first = next_append(LogEnd(), 10_000, None, ["a"], 0)
    second = next_append(LogEnd.after(first, 0), 20_000, 100, ["b"], 0)
    assert (second.expires_at, second.oldest_expires_at) == (None, None)


def test_a_log_that_has_expired_goes_on_above_what_was_reserved():
    """Positions are never used again."""
    end = LogEnd.after(next_append(LogEnd(), 0, 1, ["a"], 0), 0)
    gone = expired(end, reserve_for(1))
    assert (gone.following, gone.last, gone.floor) == (SortKey(1025), 1024, 1024)
    assert expired(end, 0).following == SortKey(2)  # nothing could be reserved
    anchor = LogItem(sort_key=SortKey(0), kind=Kind.ANCHOR, reserved=1024, written_ms=1)
    assert LogEnd.after(anchor, 0).following == SortKey(1025)


def test_a_tombstone_holds_no_content():
    """Place, count and age; no text, ids or parts."""
    item = LogItem(
        sort_key=SortKey(1), kind=Kind.APPEND, count=2, written_ms=7, ids=b"12345678", text="a\nb"
    )
    left = tombstone(item)
    assert (left.sort_key, left.count, left.written_ms, left.text, left.ids) == (
        SortKey(1),
        2,
        7,
        None,
        b"",
    )


@given(st.integers(0, 2**42), st.integers(-(2**40), 2**40))
def test_a_tail_is_trusted_for_ten_minutes_and_never_before_it_was_seen(as_of_ms, passed):
    """A clock that went back makes it stale."""
    assert LogEnd(as_of_ms=as_of_ms).fresh(as_of_ms + passed) == (0 <= passed <= 600_000)


# ------------------------------------------------------------------------------------- cover


@st.composite
def logs(draw):
    """A log's items with its end: batches, floors, tombstones and a ghost."""
    end, found = LogEnd(), []
    for size in draw(st.lists(st.integers(0, 5), min_size=1, max_size=12)):
        if size:
            fresh = [str(end.last + n) for n in range(size)]
            item = next_append(end, 0, None, fresh, 0)
        else:
            floor = draw(st.integers(end.floor, end.last))
            item = next_floor(end, 0, None, floor)
        found.append(item)
        end = LogEnd.after(item, 0)
    removed = draw(st.sets(st.sampled_from(range(len(found)))))
    found = [
        tombstone(item) if index in removed and item.last <= end.floor else item
        for index, item in enumerate(found)
    ]
    return draw(st.permutations(found)), end


@given(
    logs(),
    st.integers(0, 40),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 9),
)
def test_every_living_position_is_held_once(log, after, first, last):
    """A span of living positions has no holes, and each lies in one item."""
    found, end = log
    requested = requested_range(end, after, first, last)
    held = overlapping(live_items(found, end), requested)
    assert missing_positions(held, requested) == []
    for position in requested:
        holders = [i for i in held if i.sort_key.position <= position <= i.last]
        assert len(holders) == 1


def test_a_missing_item_is_a_hole():
    """Each of its positions, and only within the span."""
    have = [LogItem(sort_key=SortKey(1), kind=Kind.APPEND, count=2)]
    assert missing_positions(have, range(2, 6)) == [3, 4, 5]
    later = attrs.evolve(have[0], sort_key=SortKey(5))
    assert missing_positions([*have, later], range(1, 7)) == [3, 4]


def test_an_item_that_reaches_into_the_next_is_no_part_of_the_log():
    """What a writer that slept for very long left at a place that had been given up."""
    ghost = LogItem(sort_key=SortKey(5), kind=Kind.APPEND, count=10)
    real = LogItem(sort_key=SortKey(7), kind=Kind.APPEND, count=1, floor=6)
    assert live_items([ghost, real], LogEnd.after(real, 0)) == [real]
