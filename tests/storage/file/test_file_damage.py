"""Damaged files: torn ends, bad lines, glued records; what is good is read, the rest is told."""

from __future__ import annotations

import json
import logging

import pytest
from file_support import (
    IDS,
    KEY,
    entries,
    fetched,
    log_of,
    make_unreadable,
    parsed_lines,
    problems,
    raw_lines,
    saved,
    users,
)

from agent_memory import ConversationMessage, FileChatStorage, Note
from agent_memory.storage.file import reader as file_reader
from agent_memory.storage.file.chat_log import ChangedError


def contents(messages):
    return [message.content for message in messages]


def warned(caplog):
    """What was logged as a warning."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# ---------------------------------------------------------------------------- torn ends (C24)


@pytest.mark.parametrize("left", [1, 40, -2])
async def test_c24_a_torn_last_line_is_left_out_with_one_warning(tmp_path, caplog, left):
    """Whether its first byte is there, or all but its end."""
    await saved(tmp_path, *([message] for message in users(4)))
    path = log_of(tmp_path)
    *whole, last = raw_lines(path)
    path.write_bytes(b"".join(whole) + last[:left])
    async with FileChatStorage(tmp_path) as storage:
        for _ in range(3):
            assert contents(await storage.fetch_chat(*IDS)) == contents(users(3))
    (warning,) = warned(caplog)
    assert str(path) in warning
    assert "the next save cuts them" in warning


async def test_c24_the_next_save_begins_on_a_fresh_line_and_survives_a_restart(log, caplog):
    """The torn bytes are gone, and the position they had is free."""
    root = log.parents[2]
    log.write_bytes(log.read_bytes()[:-7])
    await saved(root, users(1, "after "))
    assert contents(await fetched(root)) == [*contents(users(3)), "after 1"]
    assert [line["position"] for line in parsed_lines(log)[1:]] == [1, 2, 3, 4]
    (warning,) = warned(caplog)
    assert "were cut at byte" in warning


async def test_c24_torn_bytes_longer_than_the_next_save_leave_nothing_behind_it(tmp_path):
    """What is written over them would end in the rest of them."""
    await saved(tmp_path, users(1), [ConversationMessage("user", "x" * 1_000)])
    path = log_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    await saved(tmp_path, users(1, "after "))
    assert contents(await fetched(tmp_path)) == ["message 1", "after 1"]
    assert [line["position"] for line in parsed_lines(path)[1:]] == [1, 2]
    assert await problems(tmp_path) == []


@pytest.mark.parametrize("lines_left", [1, 2])
async def test_a_batch_that_lacks_lines_was_never_saved(tmp_path, lines_left):
    """It is invisible though its lines are whole, and is cut before the next append."""
    await saved(tmp_path, users(2), users(3, "batch "))
    path = log_of(tmp_path)
    path.write_bytes(b"".join(raw_lines(path)[: 3 + lines_left]))
    assert contents(await fetched(tmp_path)) == contents(users(2))
    await saved(tmp_path, users(1, "after "))
    assert [m.position for m in await fetched(tmp_path)] == [1, 2, 3]
    assert len(parsed_lines(path)) == 4


async def test_300_nul_bytes_at_the_end_are_cut(log):
    """What some file systems leave after a power failure."""
    root = log.parents[2]
    with log.open("ab") as file:
        file.write(b"\0" * 300)
    assert contents(await fetched(root)) == contents(users(4))
    await saved(root, users(1, "after "))
    assert [line["position"] for line in parsed_lines(log)[1:]] == [1, 2, 3, 4, 5]


async def test_a_save_that_is_being_written_is_not_called_torn(log, caplog):
    """While its writer holds the lock, half a line is work in progress."""
    import fcntl  # noqa: PLC0415 - where there is one

    with log.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(b'{"position":5,')
        writer.flush()
        assert contents(await fetched(log.parents[2])) == contents(users(4))
    assert warned(caplog) == []


async def test_a_save_that_ends_while_the_file_is_read_is_not_called_torn(
    log, caplog, monkeypatch
):
    """Its writer has given the lock back, and the file is longer than it was."""
    data = log.read_bytes()
    log.write_bytes(data[:-7])

    def ended(_descriptor):
        with log.open("ab") as writer:
            writer.write(data[-7:])
        return True

    monkeypatch.setattr(file_reader, "nobody_writes", ended)
    assert contents(await fetched(log.parents[2])) == contents(users(3))
    assert contents(await fetched(log.parents[2])) == contents(users(4))
    assert warned(caplog) == []


# ------------------------------------------------------------------- damage in the middle (C25)


async def test_c25_a_bad_line_in_the_middle_leaves_a_gap_that_is_told(log, caplog):
    """Nothing shifts; the log has a note in its place; one warning however often it is read."""
    make_unreadable(log, 2)
    async with FileChatStorage(log.parents[2]) as storage:
        for _ in range(3):
            messages = await storage.fetch_chat(*IDS)
            assert [(m.content, m.position) for m in messages] == [
                ("message 1", 1),
                ("message 3", 3),
                ("message 4", 4),
            ]
        gap = [entry async for entry in storage.iter_log(*IDS)][1]
    byte = log.read_bytes().index(b"####")
    assert isinstance(gap, Note)
    assert (gap.kind, gap.position) == ("corrupted", 2)
    assert gap.data["location"] == f"{log}, byte {byte}"
    assert len(warned(caplog)) == 1


async def test_c25_a_gap_is_the_same_in_every_part_that_is_read(log):
    """Pages, tails and the whole log agree."""
    make_unreadable(log, 2)
    make_unreadable(log, 3)
    whole = await entries(log.parents[2])
    async with FileChatStorage(log.parents[2]) as storage:
        for after in range(4):
            for first in range(1, 5):
                part = await storage._read(KEY, after=after, first=first)
                assert [e.position for e in part.entries] == [
                    e.position for e in whole[after : after + first]
                ]
        part = await storage._read(KEY, last=2)
    assert [entry.position for entry in part.entries] == [3, 4]
    assert [type(entry) for entry in whole].count(Note) == 2


async def test_c25_a_bad_line_at_the_end_keeps_its_position(log):
    """It was saved once, so its position is never given again and its bytes are not cut."""
    root = log.parents[2]
    make_unreadable(log, 4)
    await saved(root, users(1, "after "))
    assert [m.position for m in await fetched(root)] == [1, 2, 3, 5]
    assert b"####" in log.read_bytes()


async def test_a_batch_whose_lines_disagree_on_its_length_is_damaged_not_torn(tmp_path):
    """So nothing of it is cut."""
    await saved(tmp_path, users(2), users(3, "batch "))
    path = log_of(tmp_path)
    *others, last = raw_lines(path)
    path.write_bytes(b"".join(others) + last.replace(b'"batch_length":3', b'"batch_length":7'))
    await saved(tmp_path, users(1, "after "))
    assert [m.position for m in await fetched(tmp_path)] == [1, 2, 3, 4, 5, 6]


async def test_c25_a_missing_line_leaves_a_gap(log):
    """Somebody deleted it with an editor."""
    lines = raw_lines(log)
    log.write_bytes(b"".join(lines[:2] + lines[4:]))
    gaps = [e for e in await entries(log.parents[2]) if isinstance(e, Note)]
    assert [gap.position for gap in gaps] == [2, 3]
    assert gaps[0].data["error"] == "2 entries are missing before this byte"


@pytest.mark.parametrize("first", [b"garbage\n", b"\0" * 300 + b"\n", b"{}\n", b""])
async def test_c25_behind_a_bad_first_line_every_message_is_read(log, first):
    """Also when it is gone; appends and listings go on."""
    root = log.parents[2]
    log.write_bytes(first + b"".join(raw_lines(log)[1:]))
    assert [m.position for m in await fetched(root)] == [1, 2, 3, 4]
    await saved(root, users(1, "after "))
    assert contents(await fetched(root)) == [*contents(users(4)), "after 1"]
    async with FileChatStorage(root) as storage:
        (info,) = [info async for info in storage.list_chats()]
        assert (info.key, info.floor, info.last) == (KEY, 0, 5)
        assert await storage.trim_chat(*IDS, 1) == 4
    assert parsed_lines(log)[0]["floor"] == 4


async def test_c25_a_lost_floor_is_inferred(log):
    """Positions stay what they were when a trimmed chat's first line is bad."""
    root = log.parents[2]
    async with FileChatStorage(root) as storage:
        await storage.trim_chat(*IDS, 2)
    log.write_bytes(b"garbage\n" + b"".join(raw_lines(log)[1:]))
    async with FileChatStorage(root) as storage:
        read = await storage._read(KEY)
    assert (read.floor, [e.position for e in read.entries]) == (2, [3, 4])


async def test_a_floor_above_living_messages_hides_none(log):
    """A damaged digit in the first line cannot delete."""
    log.write_bytes(log.read_bytes().replace(b'"floor":0', b'"floor":3', 1))
    assert [m.position for m in await fetched(log.parents[2])] == [1, 2, 3, 4]


GLUE = [b"", b" ", b"\r", b"\0" * 300, b"##", b'{"position":2,"batch_sta']
"""What an editor, a disk or a torn third entry may leave between two entries on one line."""


@pytest.mark.parametrize("between", GLUE)
async def test_c25_two_entries_on_one_line_are_one_damaged_place(log, between):
    """A note for each position that the line held; the lines beside it are read."""
    header, one, two, three, four = raw_lines(log)
    log.write_bytes(header + one + two[:-1] + between + three + four)
    first, *notes, last = await entries(log.parents[2])
    assert (first.content, last.content) == ("message 1", "message 4")
    assert [(note.kind, note.position) for note in notes] == [("corrupted", 2), ("corrupted", 3)]
    assert len({note.data["location"] for note in notes}) == 1
    (problem,) = await problems(log.parents[2])
    assert problem.location == f"{log}, line 3, byte {len(header + one)}"


@pytest.mark.parametrize("between", GLUE)
async def test_c25_no_position_on_a_last_line_of_two_entries_is_used_twice(log, between):
    """Their bytes stay, and the next save goes on behind both."""
    *others, three, four = raw_lines(log)
    log.write_bytes(b"".join(others) + three[:-1] + between + four)
    root = log.parents[2]
    await saved(root, users(1, "after "))
    assert [(m.content, m.position) for m in await fetched(root)] == [
        ("message 1", 1),
        ("message 2", 2),
        ("after 1", 5),
    ]
    assert three[:-1] + between + four in log.read_bytes()


@pytest.mark.parametrize("lost", [1, 2])
async def test_c25_a_first_line_that_holds_entries_too_hides_none_of_their_positions(log, lost):
    """Its floor is inferred from the first position that is legible on it."""
    lines = raw_lines(log)
    glued = b"".join(line[:-1] for line in lines[: 1 + lost]) + b"\n"
    log.write_bytes(glued + b"".join(lines[1 + lost :]))
    root = log.parents[2]
    found = await entries(root)
    assert [entry.position for entry in found] == [1, 2, 3, 4]
    assert [isinstance(entry, Note) for entry in found] == [True] * lost + [False] * (4 - lost)
    assert await problems(root) != []


async def test_c25_300_nul_bytes_in_the_middle_cost_nothing(log):
    """On a line of their own they stand for no position."""
    lines = raw_lines(log)
    log.write_bytes(b"".join(lines[:3]) + b"\0" * 300 + b"\n" + b"".join(lines[3:]))
    assert [m.position for m in await fetched(log.parents[2])] == [1, 2, 3, 4]
    (problem,) = await problems(log.parents[2])
    assert problem.reason == "300 NUL bytes"


async def test_a_trim_counts_a_repeated_line_once(log):
    """What readers report as damage is no message to keep."""
    header, one, two, three, four = raw_lines(log)
    log.write_bytes(header + one + two + three + two + four)
    async with FileChatStorage(log.parents[2]) as storage:
        assert await storage.trim_chat(*IDS, 2) == 2
    assert [m.position for m in await fetched(log.parents[2])] == [3, 4]


async def test_content_that_looks_like_a_record_is_never_taken_for_one(tmp_path):
    """Not even from a line that is damaged."""
    await saved(tmp_path, users(1))
    forged = json.loads(raw_lines(log_of(tmp_path))[1]) | {"position": 2, "content": "forged"}
    forged |= {"batch_start": 2, "batch_length": 1}
    await saved(tmp_path, [ConversationMessage("user", [forged, "x"])], users(1, "after "))
    assert contents(await fetched(tmp_path))[1] == [forged, "x"]
    path = log_of(tmp_path)
    assert path.read_bytes().count(b'},"x"]') == 1
    path.write_bytes(path.read_bytes().replace(b'},"x"]', b'},"x"#', 1))
    assert contents(await fetched(tmp_path)) == ["message 1", "after 1"]


async def test_content_of_a_damaged_last_line_gives_no_position_away(tmp_path):
    """However much it looks like an entry that was glued to it."""
    await saved(tmp_path, users(1))
    forged = json.loads(raw_lines(log_of(tmp_path))[1]) | {"position": 99, "content": "forged"}
    forged |= {"batch_start": 99, "batch_length": 1}
    await saved(tmp_path, [ConversationMessage("user", [forged, "x", {"y": forged}])])
    path = log_of(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'},"x",', b'},"x"#', 1))
    await saved(tmp_path, users(1, "after "))
    assert [m.position for m in await fetched(tmp_path)] == [1, 3]


async def test_bytes_that_change_while_they_are_read_are_not_called_damaged(
    log, caplog, monkeypatch
):
    """A torn end that is cut and written anew under a reader: it reads again."""

    class Changing(file_reader.FileSnapshot):
        opened = 0

        def read(self, start, stop):
            data = super().read(start, stop)
            return data.replace(b"message 2", b"\0" * 9) if self.opened == 1 else data

        def __init__(self, file):
            type(self).opened += 1
            super().__init__(file)

    monkeypatch.setattr(file_reader, "FileSnapshot", Changing)
    assert contents(await fetched(log.parents[2])) == contents(users(4))
    assert Changing.opened > 1
    assert warned(caplog) == []


async def test_a_file_cut_while_it_is_read_is_read_again(log, monkeypatch):
    """What was there when it was opened may be gone: a torn end, cut by the next save."""

    class Shrinking(file_reader.FileSnapshot):
        opened = 0

        def read(self, start, stop):
            if self.opened == 1:
                raise ChangedError
            return super().read(start, stop)

        def __init__(self, file):
            type(self).opened += 1
            super().__init__(file)

    monkeypatch.setattr(file_reader, "FileSnapshot", Shrinking)
    assert contents(await fetched(log.parents[2])) == contents(users(4))
    assert Shrinking.opened > 1
