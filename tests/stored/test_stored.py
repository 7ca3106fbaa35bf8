"""What release 0.1 stored is read by this one, value by value, and can be gone on with.

``contents.py`` says what was saved, ``make.py`` how the bytes beside it were made.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import shutil
from pathlib import Path

import aioboto3
import asyncmy
import attrs
import contents
import pytest
from contents import (
    AWKWARD,
    EXPIRING,
    GONE,
    GUIDE,
    GUIDE_SAVES,
    LONG,
    PARTED,
    RECORDS,
    SUMMARIZED,
    THREAD,
    WEATHER,
    ZIPPED,
    numbered,
)

from agent_memory import (
    ChatKey,
    ConversationManager,
    ConversationMessage,
    DynamoDbChatStorage,
    FileChatStorage,
    SqlChatStorage,
    StorageConflictError,
    SummarizingChatStorage,
    Usage,
)
from agent_memory.records import Note
from agent_memory.testing.contract.contract_base import assert_same
from engines import in_thread, postgres_execute

STORED = Path(__file__).parent / "release-0.1"
CHATS = json.loads((STORED / "chats.json").read_text(encoding="utf-8"))
MESSAGE_FIELDS = {
    "id", "role", "content", "timestamp", "run_id", "pinned", "usage", "extra", "metadata",
}  # fmt: skip


# ----------------------------------------------------------------------- putting it in place


async def restore_files(_request, tmp_path):
    shutil.copytree(STORED / "files", tmp_path / "files")
    return lambda: FileChatStorage(tmp_path / "files")


async def restore_sqlite(_request, tmp_path):
    shutil.copy(STORED / "chats.db", tmp_path)
    return lambda: SqlChatStorage(f"sqlite:///{tmp_path / 'chats.db'}")


async def restore_postgresql(request, _tmp_path):
    url = request.getfixturevalue("postgres_url")
    await postgres_execute(url, (STORED / "postgresql.sql").read_text(encoding="utf-8"))
    return lambda: SqlChatStorage(url, create_tables=False)


async def restore_mariadb(request, _tmp_path):
    url = request.getfixturevalue("mariadb_url")
    address, _, database = url.rpartition("@")[2].partition("/")
    host, _, port = address.partition(":")
    user, _, password = url.partition("//")[2].rpartition("@")[0].partition(":")
    connection = await asyncmy.connect(
        host=host, port=int(port), user=user, password=password, db=database, charset="utf8mb4"
    )
    try:
        async with connection.cursor() as cursor:
            for statement in (STORED / "mariadb.sql").read_text(encoding="utf-8").split(";\n"):
                if statement:
                    await cursor.execute(statement)
        await connection.commit()
    finally:
        await connection.ensure_closed()
    return lambda: SqlChatStorage(url, create_tables=False)


async def restore_dynamodb(request, _tmp_path):
    endpoint = request.getfixturevalue("quick_dynamodb_endpoint")
    table = request.getfixturevalue("dynamodb_table")
    making = aioboto3.Session().client(
        "dynamodb", endpoint_url=endpoint, region_name="eu-central-1"
    )
    async with making as client:
        await client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "B"},
            ],
        )
        await client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})
        for line in (STORED / "dynamodb.json").read_text(encoding="utf-8").splitlines():
            item = json.loads(line, object_hook=with_bytes)
            await client.put_item(TableName=table, Item=item)
    return lambda: DynamoDbChatStorage(table, "eu-central-1", endpoint_url=endpoint)


def with_bytes(attribute):
    if attribute.keys() == {"B"}:
        return {"B": base64.b64decode(attribute["B"])}
    return attribute


BACKENDS = {
    "files": restore_files,
    "sqlite": restore_sqlite,
    "postgresql": restore_postgresql,
    "mariadb": restore_mariadb,
    "dynamodb": restore_dynamodb,
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def make(request, backend, tmp_path):
    """Makes stores over what release 0.1 stored."""
    return in_thread(BACKENDS[backend](request, tmp_path))


@pytest.fixture
async def storage(make):
    async with make() as storage:
        yield storage


# ------------------------------------------------------------------------------- what is read


def check_message(message, fields, position, key):
    """Every field is as it was saved, by type and key order; what was not given is as default."""
    assert isinstance(message, ConversationMessage)
    assert {field.name for field in attrs.fields(ConversationMessage)} == (
        MESSAGE_FIELDS | {"position", "agent_id"}
    )
    assert (message.id, message.role) == (fields["id"], fields["role"])
    assert_same(fields["content"], message.content)
    assert_same(fields.get("extra", {}), message.extra, "extra")
    assert_same(fields.get("metadata", {}), message.metadata, "metadata")
    assert message.timestamp == fields["timestamp"]
    assert message.pinned is fields.get("pinned", False)
    check_usage(message.usage, fields.get("usage"))
    assert (message.position, message.agent_id) == (position, key[2])
    if key != THREAD:  # whose runs got ids of their own
        assert message.run_id == fields.get("run_id")


def check_usage(usage, expected):
    assert (usage is None) == (expected is None)
    if usage is not None:
        assert [
            usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens,
        ] == list(expected.values())  # fmt: skip


def check_entries(entries, expected, key, first=1):
    assert len(entries) == len(expected)
    for position, (entry, fields) in enumerate(zip(entries, expected, strict=True), start=first):
        if "kind" not in fields:
            check_message(entry, fields, position, key)
            continue
        assert isinstance(entry, Note)
        assert (entry.kind, entry.id, entry.position) == (fields["kind"], fields["id"], position)
        assert_same(fields["data"], entry.data, "data")
        assert (entry.timestamp, entry.agent_id) == (fields["timestamp"], key[2])


async def log(storage, key):
    return await storage._read(ChatKey(*key))


async def test_the_chats_are_listed_as_release_0_1_listed_them(storage, backend):
    """Keys, floors, last positions and times, on each backend its own."""
    expected = [
        (ChatKey(*ids), floor, last, created and dt.datetime.fromisoformat(created),
         updated and dt.datetime.fromisoformat(updated))
        for *ids, floor, last, created, updated in CHATS[backend]
    ]  # fmt: skip
    found = [
        (info.key, info.floor, info.last, info.created_at, info.updated_at)
        async for info in storage.list_chats()
    ]
    if backend == "files":  # where it is the file's own time, which a checkout sets anew
        expected, found = ([row[:-1] for row in rows] for rows in (expected, found))
    assert found == expected
    assert len(found) >= 8


async def test_every_entry_is_as_it_was_saved(storage):
    """Messages and notes, with all their fields, their positions and the floor."""
    guide = await log(storage, GUIDE)
    check_entries(guide.entries, [fields for save in GUIDE_SAVES for fields in save], GUIDE)
    assert guide.floor == 0
    weather = await log(storage, WEATHER)
    check_entries(weather.entries, numbered("w", 7, 9), WEATHER, first=7)
    assert weather.floor == 6
    gone = await log(storage, GONE)
    assert (list(gone.entries), gone.floor) == ([], 3)
    for key in AWKWARD:
        check_entries((await log(storage, key)).entries, numbered("a", 1, 1), key)
    check_entries((await log(storage, SUMMARIZED)).entries, numbered("b", 1, 14), SUMMARIZED)


async def test_what_was_retracted_is_not_shown(storage):
    """And notes are not either; the oldest first."""
    shown = [message.id for message in await storage.fetch_chat(*GUIDE)]
    assert shown == ["m1", "m2", "m3", "m4", "m5", "m6", "m8", "m9"]
    assert [message.id for message in await storage.fetch_chat(*GUIDE, 3)] == ["m6", "m8", "m9"]


async def test_a_session_is_merged_as_it_was(storage):
    """All agents of it, by time and without reordering any chat."""
    merged = [message.id for message in await storage.fetch_all_chats("ada", "hike")]
    assert merged == ["m1", "m2", "m3", "m4", "m5", "m6", "w7", "m7", "m8", "w8", "w9", "m9"]


async def test_every_summary_record_is_as_it_was_made(storage):
    """All its fields, its head and its summary."""
    records = await storage.summaries().list_summaries(ChatKey(*GUIDE))
    assert len(records) == 2
    for record, fields in zip(records, RECORDS, strict=True):
        covered = record.covered
        assert (covered.first, covered.last, covered.count) == fields["covered"]
        check_usage(record.usage, fields["usage"])
        assert [(one.id, one.position) for one in record.head] == [("m1", 1)]
        check_message(record.head[0], GUIDE_SAVES[0][0], 1, GUIDE)
        for message, expected in zip(record.summary, fields["summary"], strict=True):
            check_message(message, expected, None, (None, None, None))
        plain = fields.keys() - {"covered", "usage", "head", "summary"}
        found = {field.alias: getattr(record, field.name) for field in attrs.fields(type(record))}
        assert {name: found[name] for name in plain} == {name: fields[name] for name in plain}
    newest = await storage.summaries().load_summary(ChatKey(*GUIDE))
    assert newest.id == "s2"


async def never(_history, _keep_last):
    raise AssertionError("a model was asked for a summary that is stored")


async def test_a_view_is_restored_from_its_record(storage):
    """No model is asked; the view is the summary that was stored, and what followed."""
    async with SummarizingChatStorage(storage, never, 4, 2, close_inner=False) as short:
        view = await short.fetch_chat(*SUMMARIZED)
        explained = (await short.explain(*SUMMARIZED)).messages
    said = "Said so far: b 1 / b 2 / b 3 / b 4 / b 5 / b 6 / b 7"
    assert view[0].content == said
    check_entries(view[1:], numbered("b", 8, 14), SUMMARIZED, first=8)
    covered = [one.message.position for one in explained if one.standing == "covered"]
    assert covered == [1, 2, 3, 4, 5, 6, 7]


async def test_a_thread_is_gone_on_with(storage):
    """What its runs cost, its title and counts; a new run inherits summary and context."""
    manager = ConversationManager(storage)
    usage = await manager.usage(*THREAD[:2])
    assert (usage.input_tokens, usage.output_tokens) == (971, 17)
    (thread,) = await manager.list_threads("cy")
    assert (thread.title, thread.runs, thread.messages) == ("t 1", 3, 6)
    written = await manager.load_transcript(*THREAD)
    assert [message.content for message in written] == [f"t {number}" for number in range(1, 7)]
    runs = [message.run_id for message in written]
    assert None not in runs
    assert runs[::2] == runs[1::2]
    assert len(set(runs)) == 3
    async with await manager.start_run(*THREAD) as run:
        run.add(ConversationMessage("user", "And back?"))
        shown = [message.content for message in await run.messages()]
        run.record_usage(Usage(1, 1))
    assert shown == [
        "Summary of the earlier conversation:\n\nA trip to Bern.",
        "t 5",
        "t 6",
        "And back?",
    ]
    assert (await manager.usage(*THREAD[:2])).input_tokens == 972


# ---------------------------------------------------------------------------- going on with it


async def test_saving_goes_on_where_release_0_1_stopped(storage, make):
    """At the next position, also of what was trimmed or deleted; another store sees it."""
    for key, last in [(GUIDE, 11), (WEATHER, 9), (GONE, 3), (AWKWARD[3], 1), (SUMMARIZED, 14)]:
        (saved,) = await storage.save_chat_message(
            *key, ConversationMessage("user", "new", id="new-1")
        )
        assert saved.position == last + 1
        batch = [ConversationMessage("user", str(n), id=f"new-{n}") for n in (2, 3)]
        await storage.save_chat_messages(*key, batch)
        async with make() as other:
            newest = await other.fetch_chat_since(*key, last)
            assert [(m.id, m.position) for m in newest] == [
                (f"new-{n}", last + n) for n in (1, 2, 3)
            ]
    check_entries(
        (await log(storage, GUIDE)).entries[:11],
        [fields for save in GUIDE_SAVES for fields in save],
        GUIDE,
    )


async def test_what_release_0_1_stored_is_known_when_it_is_saved_again(storage):
    """The newest save and its ids; another payload under one of them is a conflict."""
    again = [contents.message(fields) for fields in GUIDE_SAVES[-2]]
    stored = await storage.save_chat_messages(*GUIDE, again)
    assert [message.position for message in stored] == [8, 9, 10]
    with pytest.raises(StorageConflictError):
        await storage.save_chat_message(*GUIDE, attrs.evolve(again[0], content="other"))
    (earlier,) = await storage.save_chat_message(*GUIDE, contents.message(GUIDE_SAVES[0][1]))
    assert earlier.position == 2
    assert len((await log(storage, GUIDE)).entries) == 11


async def test_a_stored_record_is_replaced_by_its_name(storage):
    """Compared and swapped; a record that names an older one is refused."""
    records, key = storage.summaries(), ChatKey(*GUIDE)
    newest = await records.load_summary(key)
    third = attrs.evolve(newest, id="s3", replaces="s2")
    assert not await records.save_summary(key, third, replaces="s1")
    assert await records.save_summary(key, third, replaces="s2")
    assert [record.id for record in await records.list_summaries(key)] == ["s1", "s2", "s3"]


async def test_stored_chats_are_trimmed_and_deleted(storage):
    """Floors rise from where they were."""
    assert await storage.trim_chat(*WEATHER, 1) == 2
    check_entries((await log(storage, WEATHER)).entries, numbered("w", 9, 9), WEATHER, first=9)
    assert await storage.trim_chat(*GUIDE, 2) == 7
    assert [one.id for one in (await log(storage, GUIDE)).entries] == ["m8", "m9", "taken-back"]
    assert await storage.summaries().list_summaries(ChatKey(*GUIDE)) == []
    for key in [GUIDE, WEATHER, SUMMARIZED, *AWKWARD, THREAD]:
        await storage.delete_chat(*key)
        assert (await log(storage, key)).entries == []


@pytest.mark.parametrize("backend", ["dynamodb"], indirect=False)
async def test_bodies_that_were_compressed_or_cut_into_parts_are_read(storage, backend):
    """Half a megabyte inline, the same in parts, and an item that will expire."""
    first = {**numbered("z", 1, 1)[0], "role": "user", "content": LONG}
    rest = numbered("z", 2, 3)
    check_entries((await log(storage, ZIPPED)).entries, [first, *rest], ZIPPED)
    check_entries((await log(storage, EXPIRING)).entries, [first, *rest], EXPIRING)
    check_entries((await log(storage, PARTED)).entries, [first], PARTED)
    (saved,) = await storage.save_chat_message(*PARTED, ConversationMessage("user", "more"))
    assert saved.position == 2
    await storage.delete_chat(*PARTED)
    assert (await log(storage, PARTED)).entries == []
