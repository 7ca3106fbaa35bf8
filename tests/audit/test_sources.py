"""Messages that come from elsewhere: OpenAI's format, and the tables of other libraries.

The files in ``data/sources`` were written by the libraries themselves, whose names they bear.
"""

from __future__ import annotations

import json
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import aioboto3
import pytest

from agent_memory import (
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    StorageError,
    StorageUnavailableError,
    Usage,
)
from agent_memory.audit.chunks import DefaultIds
from agent_memory.audit.exporting import export
from agent_memory.audit.selection import Scope
from agent_memory.audit.sources import open_source
from agent_memory.providers import parts, to_openai, to_openai_responses
from chats_to_move import everything, moved

DATA = Path(__file__).parents[1] / "data" / "sources"
WHOSE = DefaultIds("imported", "agent")
ASK = {"role": "user", "content": "Which hut is next?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "four beds"}


def database(name, path):
    """A SQLite file made of a dump."""
    with sqlite3.connect(path) as connection:
        connection.executescript((DATA / name).read_text(encoding="utf-8"))
    connection.close()
    return path


async def chats(place, form=None, *, again=True, **options):
    """Everything that an import gives; the second import of the same gives nothing new."""
    table = options.pop("table", None)
    source = await open_source(str(place), form, WHOSE, table=table)
    target, done = await moved(source.stream, **options)
    found = await everything(target)
    if again:
        source = await open_source(str(place), form, WHOSE, table=table)
        _, twice = await moved(source.stream, target, **options)
        assert (twice.messages, twice.present) == (0, done.messages)
    await target.aclose()
    return {tuple(vars_of(key)): messages for key, messages in found.items()}


def vars_of(key):
    return key.user_id, key.session_id, key.agent_id


# ------------------------------------------------------------------------- OpenAI's format


@pytest.mark.parametrize(
    ("name", "text", "session"),
    [
        ("c.jsonl", json.dumps({"id": "one", "messages": [ASK, CALL, ANSWER]}), "one"),
        ("c.jsonl", json.dumps({"id": 7, "messages": [ASK, CALL, ANSWER]}), "7"),
        ("c.jsonl", "\n" + json.dumps({"messages": [ASK, CALL, ANSWER], "tools": []}), "c-2-#"),
        ("c.jsonl", "\n".join(map(json.dumps, [ASK, CALL, ANSWER])), "c-#"),
        ("c.json", json.dumps([ASK, CALL, ANSWER], indent=2), "c-#"),
        ("c.json", json.dumps([[ASK, CALL, ANSWER]]), "c-1-#"),
        ("c.json", json.dumps([{"id": "one", "messages": [ASK, CALL, ANSWER]}], indent=1), "one"),
        ("c.json", "\ufeff" + json.dumps({"messages": [ASK, CALL, ANSWER]}, indent=1), "c-#"),
        ("c.json", json.dumps({"messages": [ASK, CALL, ANSWER]}), "c-#"),
    ],
)
async def test_openai_s_format(tmp_path, name, text, session):
    """A conversation a line, a message a line, a list, or a list of conversations."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = await chats(path)
    ((user_id, session_id, agent_id),) = found
    assert (user_id, agent_id) == ("imported", "agent")
    assert re.sub("-[0-9a-f]{12}$", "-#", session_id) == session
    (messages,) = found.values()
    assert to_openai(messages) == [ASK, CALL, ANSWER]


async def test_ids_in_the_file_are_used(tmp_path):
    """What our own export in OpenAI's format names is stored under the same ids."""
    path = tmp_path / "c.jsonl"
    async with InMemoryChatStorage() as storage:
        await storage.save_chat_messages(
            "ada", "hike", "guide", [ConversationMessage("user", "é")]
        )
        for form in ("openai", "openai-json"):
            with path.open("wb") as out:
                await export(storage, Scope(), out, form)
            found = await chats(path)
            assert [m.content for m in found["ada", "hike", "guide"]] == ["é"]


async def test_a_grown_file_is_imported_again(tmp_path):
    """Only what is new is stored."""
    path = tmp_path / "c.jsonl"
    target = InMemoryChatStorage()
    for count in (1, 2, 3):
        path.write_text(json.dumps({"id": "x", "messages": [ASK, CALL, ANSWER][:count]}))
        _, done = await moved((await open_source(str(path), None, WHOSE)).stream, target)
        assert done.messages == 1
    await target.aclose()


FORMS_WITHOUT_ID = {
    "a line each": ("c.jsonl", lambda messages: json.dumps({"messages": messages}) + "\n"),
    "a list a line": ("c.jsonl", lambda messages: f"{json.dumps(messages)}\n\n[]\n"),
    "a message a line": ("c.jsonl", lambda messages: "\n".join(map(json.dumps, messages))),
    "a list": ("c.json", lambda messages: json.dumps(messages, indent=1)),
    "a document": ("c.json", lambda messages: json.dumps({"messages": messages}, indent=1)),
    "a list of lists": ("c.json", lambda messages: json.dumps([messages], indent=1)),
}


@pytest.mark.parametrize("form", FORMS_WITHOUT_ID)
async def test_conversations_without_ids_never_meet(tmp_path, form):
    """Files of one name whose conversations begin alike, or are each other's beginning."""
    name, written = FORMS_WITHOUT_ID[form]
    conversations = [[ASK], [ASK, CALL, ANSWER], [ASK, {**ASK, "content": "And then?"}], [CALL]]
    target = InMemoryChatStorage()
    for attempt in range(2):
        for number, conversation in enumerate(conversations):
            path = tmp_path / str(number) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(written(conversation))
            source = await open_source(str(path), None, WHOSE)
            _, done = await moved(source.stream, target)
            count = len(conversation)
            assert (done.messages, done.present) == ((0, count) if attempt else (count, 0))
    found = [to_openai(messages) for messages in (await everything(target)).values()]
    assert sorted(found, key=str) == sorted(conversations, key=str)
    await target.aclose()


@pytest.mark.parametrize("length", [2, 3, 4, 700])
async def test_another_conversation_under_a_known_id_is_left_out(tmp_path, length):
    """From where it differs, with --keep-going too; the advice is to give it another id."""
    first = [ASK, {**ASK, "content": "one"}, ASK]
    second = [ASK, *[{**ASK, "content": "two"} for _ in range(length - 1)]]
    path, seen = tmp_path / "c.jsonl", []
    lines = [json.dumps({"id": "x", "messages": messages}) for messages in (first, second)]
    path.write_text("\n".join([*lines, lines[0], json.dumps({"id": "y", "messages": second})]))
    found = await chats(path, again=False, keep_going=True, on_bad=seen.append)
    assert to_openai(found["imported", "x", "agent"]) == first
    assert to_openai(found["imported", "y", "agent"]) == second
    (bad,) = seen
    assert str(bad).startswith(f"{path}, line 2, message 2: the chat of ")
    assert "holds another conversation" in bad.reason
    assert "Give it an id of its own" in bad.reason
    target, _ = await moved((await open_source(str(path), None, WHOSE)).stream, keep_going=True)
    path.write_text(lines[1])
    _, done = await moved(
        (await open_source(str(path), None, WHOSE)).stream, target, keep_going=True
    )
    assert (done.messages, done.bad) == (0, 1)
    await target.aclose()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"id": "x"', "line 2: it is not JSON"),
        ("[" * 100_000, "line 2: it is not JSON"),
        ('{"id": "x"}', "line 2: it is no conversation"),
        ("3", "line 2: it is no conversation"),
        ('{"id": "", "messages": []}', "line 2: session_id must"),
        ('{"id": "x", "messages": [3]}', "line 2, message 1: a message must be"),
        ('{"id": "x", "messages": [{"role": "robot"}]}', "line 2, message 1: role"),
        ('{"id": "x", "messages": [{"content": ""}]}', "line 2, message 1: it has no"),
    ],
)
async def test_bad_lines_are_told(tmp_path, line, told):
    """File and line, and what is wrong; the lines around are stored."""
    path = tmp_path / "c.jsonl"
    good = json.dumps({"id": "one", "messages": [ASK]})
    path.write_text(f"{good}\n{line}\n{good.replace('one', 'two')}\n")
    seen = []
    found = await chats(path, keep_going=True, on_bad=seen.append)
    assert {key[1] for key in found} == {"one", "two"}
    assert str(seen[0]).startswith(f"{path}, {told}")
    assert len(seen) == 2  # once for each import


@pytest.mark.parametrize(
    ("name", "text"), [("c.json", "[" * 50 + "\n"), ("c.json", "[{\n"), ("c.json", '{"a": 1}')]
)
async def test_a_broken_document(tmp_path, name, text):
    """One bad record, with the file's name."""
    path, seen = tmp_path / name, []
    path.write_text(text)
    assert await chats(path, keep_going=True, on_bad=seen.append) == {}
    assert str(seen[0]).startswith(str(path))


async def test_what_openai_s_format_cannot_hold_is_counted():
    """Parts without a place are counted; a tool's exchange is converted whole."""
    import io  # noqa: PLC0415

    video = {"video": {"format": "mp4", "source": {"bytes": b"\x00"}}}
    call = {"toolUse": {"toolUseId": "t", "name": "look", "input": {"a": 1}}}
    result = {"toolResult": {"toolUseId": "t", "content": [{"text": "42"}]}}
    async with InMemoryChatStorage() as storage:
        messages = [("user", [video]), ("assistant", [call]), ("user", [result])]
        made = [ConversationMessage(role, content) for role, content in messages]
        await storage.save_chat_messages("ada", "hike", "guide", made)
        out = io.BytesIO()
        done = await export(storage, Scope(), out, "openai")
    (line,) = out.getvalue().splitlines()
    assert done.left_out == 1
    assert [message["role"] for message in json.loads(line)["messages"]][-2:] == [
        "assistant",
        "tool",
    ]


# ------------------------------------------------------------------------ other libraries


async def test_agent_squad_s_sqlite(tmp_path):
    """Bedrock's form and the time stamps are kept; every agent's chat is one."""
    found = await chats(database("agent_squad.sql", tmp_path / "chats.db"))
    assert {key: len(messages) for key, messages in found.items()} == {
        ("ada", "hike", "guide"): 4, ("ada", "hike", "weather"): 1, ("bob", "s2", "guide"): 1,
    }  # fmt: skip
    messages = found["ada", "hike", "guide"]
    assert [part.kind for message in messages for part in parts(message)] == [
        "text", "text", "call", "result", "text",
    ]  # fmt: skip
    assert messages[1].content[0] == {"text": "The Ødegård hut."}
    assert messages[0].timestamp == datetime(2026, 11, 30, 9, 19, 38, 883000, tzinfo=UTC)


async def test_openai_agents_sqlite(tmp_path):
    """Items of the Responses API are kept as they are."""
    found = await chats(database("openai_agents.sql", tmp_path / "agents.db"))
    assert set(found) == {("imported", "hike", "agent"), ("imported", "other", "agent")}
    items = to_openai_responses(found["imported", "hike", "agent"])
    assert [item.get("type") for item in items] == [
        None, "reasoning", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert items[2] == {
        "type": "function_call", "call_id": "c1", "name": "find_hut",
        "arguments": '{"km": 12}', "id": "fc_1",
    }  # fmt: skip
    stamp = found["imported", "hike", "agent"][0].timestamp
    assert stamp == datetime(2026, 11, 30, 9, 19, 48, tzinfo=UTC)


async def test_openai_agents_sqlalchemy(tmp_path):
    """The tables that its SQLAlchemy session makes, also under another name."""
    path = database("openai_agents_sqlalchemy.sql", tmp_path / "agents.db")
    (messages,) = (await chats(path)).values()
    assert [message.content for message in messages] == ["Which hut is next?", "The Ødegård hut."]
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE agent_messages RENAME TO ours")
    connection.close()
    with pytest.raises(InvalidRequestError, match="give --table"):
        await chats(path)
    assert await chats(path, table="ours")


async def test_langchain_s_sql_history(tmp_path):
    """Roles, calls, results, names and usage have their places; the rest is in metadata."""
    found = await chats(database("langchain.sql", tmp_path / "langchain.db"))
    messages = found["imported", "hike", "agent"]
    assert [message.role.value for message in messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "tool",
    ]  # fmt: skip
    kinds = [part.kind for message in messages[2:7] for part in parts(message)]
    assert [kind for kind in kinds if kind != "text"] == ["call", "result", "call", "result"]
    assert [part.id for m in messages[2:6] for part in parts(m) if part.id] == [
        "c1",
        "c1",
        "c2",
        "c2",
    ]
    assert messages[2].usage == Usage(40, 9, 8, 0)
    assert messages[1].extra == {"name": "ada"}
    assert messages[2].metadata["langchain"]["response_metadata"] == {"model_name": "some-model"}
    assert messages[5].metadata["langchain"]["status"] == "error"


async def test_a_database_of_another_is_only_read(tmp_path):
    """Not a byte of it changes, and nothing is left beside it."""
    path = database("langchain.sql", tmp_path / "langchain.db")
    before = path.read_bytes()
    path.chmod(0o444)
    await chats(path)
    assert path.read_bytes() == before
    assert [other.name for other in tmp_path.iterdir()] == ["langchain.db"]


async def test_tables_on_a_server(postgres_url, tmp_path):
    """PostgreSQL too, streamed, thousands of rows of interleaved sessions."""
    import asyncpg  # noqa: PLC0415  (an extra; only where this engine is tested)

    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "CREATE TABLE message_store (id SERIAL PRIMARY KEY, session_id TEXT, message TEXT)"
    )
    for number in range(1200):
        stored = {"type": "human", "data": {"content": f"say {number}", "type": "human"}}
        await connection.execute(
            "INSERT INTO message_store (session_id, message) VALUES ($1, $2)",
            f"s{number % 3}",
            json.dumps(stored),
        )
    await connection.close()
    found = await chats(postgres_url)
    assert [len(messages) for messages in found.values()] == [400] * 3
    assert [m.content for m in found["imported", "s1", "agent"]][:3] == ["say 1", "say 4", "say 7"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE message_store SET message = '{nonsense' WHERE id = 2", "it is not JSON"),
        ("UPDATE message_store SET message = '{}' WHERE id = 2", "not a message of LangChain's"),
        (
            """UPDATE message_store SET message = '{"type": "remove", "data": {}}' WHERE id = 2""",
            "type 'remove' are not known",
        ),
        ("UPDATE message_store SET session_id = '' WHERE id = 2", "session_id must"),
        ("UPDATE message_store SET session_id = NULL WHERE id = 2", "session_id must"),
    ],
)
async def test_bad_rows_are_told(tmp_path, change, told):
    """Table and row, and what is wrong; the others are stored."""
    path, seen = database("langchain.sql", tmp_path / "x.db"), []
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    found = await chats(path, again=False, keep_going=True, on_bad=seen.append)
    assert sum(map(len, found.values())) == 9
    assert str(seen[0]).startswith("table message_store, id 2: ")
    assert told in seen[0].reason


async def test_which_of_two(tmp_path):
    """A file with two libraries' tables needs --from."""
    path = database("langchain.sql", tmp_path / "x.db")
    database("agent_squad.sql", path)
    with pytest.raises(InvalidRequestError, match="agent-squad and langchain; say which"):
        await chats(path)
    assert len(await chats(path, "langchain")) == 2


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A directory to work in that holds some files."""
    monkeypatch.chdir(tmp_path)
    database("langchain.sql", "x.db")
    sqlite3.connect("empty.db").executescript("CREATE TABLE t (x)").connection.close()
    Path("text.jsonl").write_text("{}")


@pytest.mark.parametrize(
    ("place", "form", "error", "told"),
    [
        ("sqlite:///no.db", None, StorageError, "there is no no.db"),
        (
            "postgresql://me:hunter2@127.0.0.1:1/db",
            None,
            StorageUnavailableError,
            "cannot be read",
        ),
        ("http://host/x", None, InvalidRequestError, "nothing is imported from"),
        (".", None, InvalidRequestError, "is a directory; from a store"),
        ("x.db", "nonsense", InvalidRequestError, "format must be one of"),
        ("x.db", "openai", InvalidRequestError, "is a format of files"),
        ("empty.db", None, InvalidRequestError, "holds none of the tables"),
        ("text.jsonl", "agent-squad", InvalidRequestError, "is not a database"),
        ("dynamodb://t?nonsense=1", None, InvalidRequestError, "write dynamodb://table"),
        ("dynamodb://t", "langchain", InvalidRequestError, "agent-squad can be imported"),
        ("missing.jsonl", None, FileNotFoundError, "missing.jsonl"),
    ],
)
async def test_what_is_asked_wrongly(places, place, form, error, told):
    """A clear error, without a secret."""
    with pytest.raises(error, match=told) as caught:
        await chats(place, form)
    assert "hunter2" not in str(caught.value)


async def test_agent_squad_s_dynamodb(dynamodb_endpoint, dynamodb_table):
    """One item a chat; sessions with a # in their ids; equal messages stay two."""
    items = json.loads((DATA / "agent_squad_dynamodb.json").read_text(encoding="utf-8"))
    region = "eu-central-1"
    session = aioboto3.Session(region_name=region)
    async with session.client("dynamodb", endpoint_url=dynamodb_endpoint) as client:
        await client.create_table(
            TableName=dynamodb_table,
            KeySchema=[
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "SK", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "PK", "AttributeType": "S"},
                {"AttributeName": "SK", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        await client.get_waiter("table_exists").wait(TableName=dynamodb_table)
        for item in items:
            await client.put_item(TableName=dynamodb_table, Item=item)
        url = f"dynamodb://{dynamodb_table}?region={region}&endpoint={dynamodb_endpoint}"
        found = await chats(url)
        assert {key: len(messages) for key, messages in found.items()} == {
            ("ada", "hike#2", "guide"): 5, ("bob", "s2", "weather"): 1,
        }  # fmt: skip
        call = found["ada", "hike#2", "guide"][1].content[1]["toolUse"]
        assert call["input"] == {"km": 12}
        assert type(call["input"]["km"]) is int
        # The oldest messages are gone and a new one has come: only that one is stored.
        target = InMemoryChatStorage()
        await moved((await open_source(url, None, WHOSE)).stream, target)
        conversation = (
            items[0]["conversation"]["L"]
            if items[0]["PK"]["S"] == "ada"
            else items[1]["conversation"]["L"]
        )
        later = json.loads(json.dumps(conversation[0]).replace("Which hut", "Which path"))
        ada = next(item for item in items if item["PK"]["S"] == "ada")
        ada["conversation"]["L"] = [*conversation[2:], later]
        await client.put_item(TableName=dynamodb_table, Item=ada)
        _, done = await moved((await open_source(url, None, WHOSE)).stream, target)
        assert (done.messages, done.present) == (1, 4)
        await target.aclose()
        with pytest.raises(StorageUnavailableError, match="'no_such_table' cannot be read"):
            await chats(url.replace(dynamodb_table, "no_such_table"))
