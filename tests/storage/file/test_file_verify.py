"""`verify` names what is damaged, where, and nothing else."""

from __future__ import annotations

from file_support import IDS, KEY, make_unreadable, problems, raw_lines, saved, users

from agent_memory import FileChatStorage


async def test_verify_finds_nothing_in_a_sound_store(tmp_path):
    """After batches, trims, deletions and summaries."""
    await saved(tmp_path, users(3), users(2, "more "))
    async with FileChatStorage(tmp_path) as storage:
        await storage.trim_chat(*IDS, 2)
        await storage.save_chat_messages("user", "other", "agent", users(1))
        await storage.delete_chat("user", "other", "agent")
    assert await problems(tmp_path) == []


async def test_c25_verify_names_file_line_and_byte(log):
    """Of each damaged place."""
    make_unreadable(log, 2)
    make_unreadable(log, 4)
    found = await problems(log.parents[2])
    starts = [log.read_bytes().index(b"####"), log.read_bytes().rindex(b"\n####") + 1]
    assert [problem.location for problem in found] == [
        f"{log}, line 3, byte {starts[0]}",
        f"{log}, line 5, byte {starts[1]}",
    ]
    assert {problem.key for problem in found} == {KEY}


async def test_verify_tells_of_every_kind_of_damage(tmp_path):
    """A torn end, a bad first line, positions out of order, strays, leftovers."""
    for session in ("torn", "first", "order", "newer", "trim"):
        async with FileChatStorage(tmp_path) as storage:
            await storage.save_chat_messages("user", session, "agent", users(2))
    files = {path.parent.name: path for path in tmp_path.rglob("*.jsonl")}
    files["torn"].write_bytes(files["torn"].read_bytes() + b'{"pos')
    files["first"].write_bytes(b"?" + files["first"].read_bytes())
    one, two, three = raw_lines(files["order"])
    files["order"].write_bytes(one + two + two + three)
    files["newer"].write_bytes(files["newer"].read_bytes().replace(b'"v":1', b'"v":9', 1))
    (files["trim"].parent / "agent.jsonl.tmp").write_bytes(b"half")
    (files["trim"].parent / "NOT OURS.jsonl").write_bytes(b"hello\n")
    found = await problems(tmp_path)
    told = {None if p.key is None else p.key.session_id: p.reason for p in found}
    assert len(found) == len(told) == 6
    assert "save that never ended" in told["torn"]
    assert "first line does not say" in told["first"]
    assert "position 1 follows 1" in told["order"]
    assert "upgrade" in told["newer"]
    assert "trim that never ended" in told["trim"]
    assert "says which chat it is" in told[None]


async def test_verify_looks_where_it_is_asked_to(tmp_path):
    """At one user, session or chat."""
    async with FileChatStorage(tmp_path) as storage:
        for ids in ("asx", "asy", "atx", "bsx"):
            await storage.save_chat_message(*ids, users(1)[0])
    for path in tmp_path.rglob("*.jsonl"):
        make_unreadable(path, 1)
    counts = [len(await problems(tmp_path, *ids)) for ids in ("", "a", "as", "asx")]
    assert counts == [4, 3, 2, 1]
