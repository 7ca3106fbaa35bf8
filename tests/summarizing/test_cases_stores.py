"""Cases where a store matters: damaged records, long turns and held-back results on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory import LLMSummarizer
from agent_memory.storage.urls import open_storage
from rig import IDS, KEY, Rig, call, dialogue, names, orphans, result, user, violations
from storage.dynamodb.dynamodb_table import items_of
from storage.sql_tools import change


@pytest.fixture(params=["sqlite", "file", "postgres", "dynamodb"])
async def stores(request, tmp_path):
    """Opens the same chats again and again, as one process after another has them."""
    urls = {"sqlite": f"sqlite:///{tmp_path}/chats.db", "file": f"file:{tmp_path}/chats"}
    url = urls.get(request.param)
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    if request.param == "dynamodb":
        endpoint = request.getfixturevalue("quick_dynamodb_endpoint")
        name = f"cases{tmp_path.name.replace('_', '')[-40:]}"
        url = f"dynamodb://{name}?region=us-east-1&endpoint={endpoint}&create_table=true"
    opened = []

    def again():
        opened.append(open_storage(url))
        return opened[-1]

    yield request.param, again, tmp_path
    for storage in opened:
        await storage.aclose()


def edit(directory, change):
    """Change the only file of summaries in a directory."""
    (path,) = Path(directory).rglob("*.summaries")
    path.write_bytes(change(path.read_bytes()))


async def spoil(kind, storage, directory):
    """Damage the newest summary record behind the store's back."""
    if kind in ("sqlite", "postgres"):
        await change(storage, "UPDATE agent_memory_records SET body = substr(body, 1, 40)")
    elif kind == "file":
        edit(directory, lambda body: body[:-20] + b"#" * 19 + b"\n")
    else:
        parts = [item for item in await items_of(storage, b"s") if "zip" in item]

        async def damage(backend):
            await backend.table.put_all([{**part, "zip": {"B": b"damaged"}} for part in parts])

        await storage._in_loop(damage(storage._open_components))


async def test_c110_a_damaged_record_is_replaced_so_that_a_restart_asks_no_model(stores, caplog):
    """One more summary is paid for, and no further one at each restart."""
    kind, again, directory = stores
    first = Rig(again())
    await first.active(7)
    await spoil(kind, first.inner, directory)
    second = Rig(again())
    assert names(await second.view()) == ["S", "m6", "m7"]
    assert len(second.calls) == 1
    assert "it will be replaced" in caplog.text
    third = Rig(again())
    assert await third.view() == await second.view()
    assert third.calls == []
    assert third.events[0].restored


@pytest.mark.parametrize("stores", ["sqlite", "file"], indirect=True)
async def test_c110_a_newer_version_s_record_is_left_alone(stores, caplog):
    """It may be read again after an upgrade."""
    kind, again, directory = stores
    first = Rig(again())
    await first.active(7)
    if kind == "sqlite":
        newer = """UPDATE agent_memory_records SET body = replace(body, '"v":1', '"v":99')"""
        await change(first.inner, newer)
    else:
        edit(directory, lambda body: body.replace(b'"v":1', b'"v":99'))
    for _ in range(2):
        rig = Rig(again())
        assert names(await rig.view()) == ["S", "m6", "m7"]
        assert len(rig.calls) == 1
    assert "version 99" in caplog.text
    assert "until rebuild()" in caplog.text
    assert await rig.inner.summaries().list_summaries(KEY) == []


async def found(instruction, transcript, **_parameters):
    return "They looked for it."


async def test_c66_c69_a_long_turn_with_a_late_result_is_the_same_after_a_restart(stores):
    """Bounded, the question there once, the result of a covered call held back."""
    _, again, _ = stores
    rig = Rig(again(), summarizer=LLMSummarizer(found), trigger_at=5, keep_last=1)
    await rig.save(user("find it", id="question"), call("late", id="call late"))
    await rig.save(result("late", id="interim"))
    for number in range(12):
        await rig.save(call(f"t{number}"), result(f"t{number}"))
        assert len(await rig.view()) <= 11
    await rig.save(result("late", id="final"), *dialogue(1, start=2))
    view = await rig.view()
    assert names(view)[:2] == ["S", "question"]
    assert orphans(view) == []
    assert "final" not in names(view)
    reopened = Rig(again(), summarizer=LLMSummarizer(found), trigger_at=5, keep_last=1)
    assert await reopened.view() == view
    explained = await reopened.storage.explain(*IDS)
    assert [e.message.id for e in explained.messages if e.standing == "held_back"] == ["final"]


async def test_c69_the_next_summarizer_is_handed_what_was_held_back(stores):
    """Then it is covered, on every store."""
    _, again, _ = stores
    rig = Rig(again(), trigger_at=3, keep_last=1)
    await rig.save(call("x", id="call"), result("x", id="interim"), *dialogue(6))
    await rig.view()
    await rig.save(result("x", id="final"))
    assert "final" not in names(await rig.view())
    await rig.save(*dialogue(6, start=7))
    assert violations(await rig.view(), await rig.raw()) == []
    assert any("final" in names(asked.history) for asked in rig.calls)
