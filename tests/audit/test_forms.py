"""Files of other programs: read as what they are, or refused with file and line.

The files in ``forms`` are of our own making, in the forms that their names say; those of
LangChain were dumped by langchain-core 1.8.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_memory import InMemoryChatStorage, Usage
from agent_memory.audit.chat_import import Importer, checked
from agent_memory.audit.chunks import DefaultIds
from agent_memory.audit.findings import BadRecordError, Finding
from agent_memory.audit.sources import chatgpt, claude_code, codex, open_source
from agent_memory.audit.sources.messages import is_langchain
from agent_memory.audit.verification import verify
from agent_memory.cli.app import run as run_here
from agent_memory.providers import (
    from_anthropic,
    from_bedrock,
    from_openai,
    from_openai_responses,
    text_of,
)
from chats_to_move import everything, moved

FORMS = Path(__file__).parent / "forms"
DATA = Path(__file__).parents[2].parent / "shared" / "data"
WHOSE = DefaultIds("imported", "agent")
SESSION = "5f0c6a52-9a3b-4b0e-8a55-0f6d2a1f7c10"
FORM_OF = {
    "anthropic.jsonl": "Anthropic",
    "bedrock.json": "Bedrock",
    "chatgpt.json": "ChatGPT",
    "claude_code.jsonl": "Claude Code",
    "codex.jsonl": "Codex",
    "langchain_dicts.json": "LangChain",
    "langchain_dumpd.json": "LangChain",
    "langchain_fields.jsonl": "LangChain",
    "openai_chat.jsonl": "OpenAI Chat",
    "openai_responses.jsonl": "OpenAI Responses",
}


async def imported(path, *, keep_going=False, on_bad=str):
    """What a file becomes: the chats' entries, and what was counted."""
    source = await open_source(str(path), None, WHOSE)
    target, _ = await moved(source.stream, keep_going=keep_going, on_bad=on_bad)
    async with target:
        found = await everything(target)
    return {(key.session_id, key.agent_id): log for key, log in found.items()}, source.tally


def said(messages):
    return [text_of(message) for message in messages]


def beside(message):
    return {name: value for name, value in message.extra.items() if name != "written_in"}


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------- C89: read as what it is


@pytest.mark.parametrize("name", sorted(FORM_OF))
def test_c89_each_form_s_text_comes_out_of_show_and_export(name, tmp_path, capsys):
    """What was said is in the transcript and in OpenAI's format, under who said it."""
    store = f"sqlite:///{tmp_path}/chats.db"
    assert run_here(["import", str(FORMS / name), "--store", store]) == 0
    told = capsys.readouterr().out
    assert f"read as {FORM_OF[name]} (" in told
    assert run_here(["export", "--format", "openai", "--store", store]) == 0
    chats = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (chat,) = [chat for chat in chats if chat["agent_id"] == "agent"]
    asked = next(m for m in chat["messages"] if m["role"] == "user")
    assert "Ødegård or Lågen?" in json.dumps(asked, ensure_ascii=False)
    answer = chat["messages"][-1]
    assert answer["role"] == "assistant"
    assert "Lågen" in json.dumps(answer, ensure_ascii=False)
    assert run_here(["show", "imported", chat["id"], "--store", store]) == 0
    shown = capsys.readouterr().out
    assert "Ødegård or Lågen?" in shown
    assert "Lågen is open" in shown or "the roof is red" in shown
    assert run_here(["verify", "--store", store]) == 0


@pytest.mark.parametrize("name", sorted(FORM_OF))
async def test_importing_again_stores_nothing(name):
    """Ids are the source's own, or made of the place: the second import finds everything."""
    target = InMemoryChatStorage()
    first = await moved((await open_source(str(FORMS / name), None, WHOSE)).stream, target)
    again = await moved((await open_source(str(FORMS / name), None, WHOSE)).stream, target)
    assert again[1].messages == 0
    assert again[1].present == first[1].messages > 3
    await target.aclose()


async def test_claude_code_s_sessions_subagents_and_times():
    """Sessions and subagents are chats; ids and times are the records'; usage counts once."""
    found, tally = await imported(FORMS / "claude_code.jsonl")
    assert set(found) == {(SESSION, "agent"), (SESSION, "sidechain-de30ae5d")}
    main = found[SESSION, "agent"]
    assert [message.role.value for message in main] == [
        "user", "assistant", "assistant", "user", "user", "assistant",
    ]  # fmt: skip
    assert said(main)[4] == "And the weather?"  # typed while the agent worked
    assert main[0].id == "00000000-0000-4000-8000-000000000001"
    assert main[0].timestamp == datetime(2026, 11, 30, 9, 0, 1, tzinfo=UTC)
    assert [message.usage for message in main] == [
        None, Usage(2104, 9, 2000), None, None, None, Usage(20, 8),
    ]  # fmt: skip
    assert main[2].extra == {}
    assert main[2].metadata["claude_code"]["message"]["model"] == "claude-sonnet-4-6"
    assert main[3].metadata["claude_code"]["toolUseResult"]["file"]["filePath"] == "huts.txt"
    assert tally.read == {"Claude Code": 8}
    assert tally.left_out == {
        "summary": 1, "file-history-snapshot": 1, "permission-mode": 1, "queue-operation": 1,
        "system turn_duration": 1,
    }  # fmt: skip


async def test_codex_s_session_items_and_times():
    """The session is the one it names; what a user interface was told once more is counted."""
    found, tally = await imported(FORMS / "codex.jsonl")
    ((session, _),) = found
    assert session == "019ad7a4-6d3f-7b21-9a50-1f7c2f5f8d11"
    (messages,) = found.values()
    assert [message.extra.get("type") for message in messages] == [
        "message", "message", "reasoning", "function_call", "function_call_output",
        "custom_tool_call", "custom_tool_call_output", "message",
    ]  # fmt: skip
    assert said(messages)[1] == "Which hut is open, Ødegård or Lågen?"
    assert messages[1].id == "codex-3"
    assert messages[1].timestamp == datetime(2026, 11, 30, 10, 0, 2, tzinfo=UTC)
    assert tally.left_out["event_msg user_message"] == 1
    assert sum(tally.left_out.values()) == 6


async def test_chatgpt_s_current_branch():
    """The branch that is shown, with its ids and times; what is not taken is counted."""
    found, tally = await imported(FORMS / "chatgpt.json")
    (messages,) = found.values()
    assert [message.id for message in messages] == ["u1", "a0", "t0", "t1", "a1"]
    assert said(messages)[-1] == "It is Lågen: the roof is red."
    assert messages[0].timestamp == datetime(2025, 11, 30, 9, 0, 1, 250_000, tzinfo=UTC)
    assert messages[2].extra["tool_calls"][0]["function"] == {
        "name": "python", "arguments": "print(roof(image))",
    }  # fmt: skip
    assert messages[3].extra == {"tool_call_id": "t0", "name": "python"}
    asset = messages[0].metadata["chatgpt"]["content"]["parts"][0]["asset_pointer"]
    assert asset == "file-service://file-1"
    assert tally.left_out == {
        "message of another branch": 1, "empty message": 1, "file beside the conversations": 1,
    }  # fmt: skip


async def test_anthropic_s_requests_and_replies():
    """A request's system prompt comes first; a whole reply is reduced to what may be sent."""
    found, tally = await imported(FORMS / "anthropic.jsonl")
    (messages,) = found.values()
    assert [(m.id, m.role.value) for m in messages[:2]] == [
        ("imported-0", "system"), ("imported-1", "user"),
    ]  # fmt: skip
    assert messages[-1].extra == {}
    assert messages[-1].usage == Usage(50, 6, 10)
    assert messages[-1].metadata["anthropic"]["stop_reason"] == "end_turn"
    assert tally.left_out["field 'max_tokens' of a conversation"] == 1


async def test_the_three_dumps_of_langchain_are_one():
    """Each way of writing the same messages gives the same ones."""
    names = ("langchain_dicts.json", "langchain_dumpd.json", "langchain_fields.jsonl")
    chats = [next(iter((await imported(FORMS / name))[0].values())) for name in names]
    payloads = [[(m.role, m.content, dict(m.extra)) for m in messages] for messages in chats]
    assert payloads[0] == payloads[1] == payloads[2]
    assert payloads[0][3][2] == {"tool_call_id": "c1"}
    assert chats[1][2].usage == Usage(40, 6)


@pytest.mark.parametrize("name", sorted(FORM_OF))
def test_a_record_has_the_shape_of_one_form(name):
    """No record is recognised as two things."""
    text = (FORMS / name).read_text(encoding="utf-8")
    records = lines(FORMS / name) if name.endswith("l") else json.loads(text)
    for record in records:
        shapes = (*[form.recognise for form in (claude_code, codex, chatgpt)], is_langchain)
        recognised = [recognise for recognise in shapes if recognise(record)]
        assert len(recognised) <= 1
        is_own = name.split("_")[0].split(".")[0] in ("claude", "codex", "chatgpt", "langchain")
        assert len(recognised) == is_own


# --------------------------------------------------------------- C89: or it is refused


VERCEL = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
CLAUDE = {"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-11-30T09:00:00Z"}
CODEX = {"timestamp": "2026-11-30T09:00:00Z", "type": "response_item"}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"type": "banana"}, "records of type 'banana' are not known"),
        (VERCEL, "Vercel's AI SDK"),
        ({**VERCEL, "content": "hi"}, "Vercel's AI SDK"),
        ({"messages": [VERCEL]}, "message 1: `parts`"),
        (
            {"role": "assistant", "content": [{"type": "tool-call", "toolName": "f"}]},
            "'tool-call'",
        ),
        ({"role": "user", "content": [{"type": "text", "value": "hi"}]}, "without a text"),
        ({"role": "user", "content": {"text": "hi"}}, "text or a list, not dict"),
        ({"role": "user", "text": "hi"}, "it has no content"),
        ({"role": "user", "content": None}, "it has no content"),
        ({"role": "robot", "content": "hi"}, "role must be one of"),
        ({"role": "assistant", "content": "", "tool_calls": "f"}, "must be a list"),
        ({"type": "function_call", "name": "f"}, "without 'call_id'"),
        ({"type": "human", "content": "hi"}, "records of type 'human' are not known"),
        ({"type": "robot", "data": {"content": "hi"}}, "type 'robot' are not known"),
        ({"type": "human", "data": {"text": "hi"}}, "without content"),
        ({"uuid": "c", "name": "n", "chat_messages": []}, "it is no conversation"),
        (CLAUDE, "its message is not of the role 'user'"),
        ({**CLAUDE, "message": {"role": "user", "content": 3}}, "text or a list, not int"),
        ({**CLAUDE, "message": {"role": "assistant", "content": "hi"}}, "not of the role 'user'"),
        ({**CLAUDE, "type": "shout", "message": "hi"}, "type 'shout' with 'message'"),
        ({**CODEX, "payload": {"type": "banana"}}, "items of type 'banana' are not known"),
        ({**CODEX, "payload": {"type": "message", "role": "user"}}, "without 'content'"),
        ({**CODEX, "type": "banana", "payload": {}}, "lines of type 'banana' are not known"),
        ({"mapping": {"a": {}}, "current_node": "b"}, "no way from current_node to 'b'"),
        ({"mapping": {"a": {}}, "current_node": None}, "names no message"),
        ([], None),
        (3, "it is no conversation"),
    ],
)
def test_c89_what_is_not_read_is_refused_before_anything_is_written(
    record, told, tmp_path, capsys
):
    """The first record decides: file, line, what was expected; not even a store is made."""
    path, database = tmp_path / "c.jsonl", tmp_path / "chats.db"
    path.write_text(json.dumps(record) + "\n")
    code = run_here(["import", str(path), "--store", f"sqlite:///{database}"])
    error = capsys.readouterr().err
    if told is None:
        assert code == 0
        return
    assert code == 1
    assert f"{path}, line 1" in error
    assert told in error
    assert "nothing was stored" in error
    assert len(error.splitlines()) == 1
    assert not database.exists()


@pytest.mark.parametrize("name", [name for name in sorted(FORM_OF) if name.endswith("l")])
async def test_a_bad_record_further_on_ends_the_import(name, tmp_path):
    """With file and line, and how many entries came before it; these are stored."""
    path = tmp_path / name
    whole = (FORMS / name).read_text(encoding="utf-8")
    path.write_text(whole + '{"type": "banana"}\n', encoding="utf-8")
    source = await open_source(str(path), None, WHOSE)
    target = InMemoryChatStorage()
    mover = Importer(target)
    with pytest.raises(BadRecordError) as caught:
        await mover.move(await checked(source.stream))
    count = sum(map(len, (await everything(target)).values()))
    number = len(whole.splitlines()) + 1
    assert str(caught.value).startswith(f"{path}, line {number}: ")
    assert f"stored before it: {count} entries" in str(caught.value)
    assert count == sum((await imported(FORMS / name))[1].read.values())
    await target.aclose()


async def test_a_bad_message_keeps_nothing_before_it_back(tmp_path):
    """What comes before a bad message of a conversation is stored, also when it ends there."""
    path = tmp_path / "c.jsonl"
    good = {"role": "user", "content": "hi"}
    path.write_text(json.dumps({"id": "x", "messages": [good, good, {"role": "robot"}, good]}))
    source, target = await open_source(str(path), None, WHOSE), InMemoryChatStorage()
    with pytest.raises(BadRecordError, match=r"line 1, message 3: role .* before it: 2 entries"):
        await Importer(target).move(source.stream)
    seen: list[Finding] = []
    found, _ = await imported(path, keep_going=True, on_bad=seen.append)
    assert [m.id for m in found["x", "agent"]] == ["imported-1", "imported-2", "imported-4"]
    assert len(seen) == 1
    await target.aclose()


async def test_chats_that_take_turns_keep_their_order(tmp_path):
    """Thousands of records of a session and its subagent in turn: each chat is in order."""
    path = tmp_path / "c.jsonl"
    with path.open("w") as out:
        for number in range(1_500):
            message = {"role": "user", "content": f"say {number}"}
            record = {**CLAUDE, "uuid": f"u{number}", "message": message}
            out.write(json.dumps({**record, "isSidechain": number % 2 == 1}) + "\n")
    found, _ = await imported(path)
    assert said(found["s", "agent"]) == [f"say {n}" for n in range(0, 1_500, 2)]
    assert said(found["s", "sidechain"]) == [f"say {n}" for n in range(1, 1_500, 2)]


async def test_a_long_file_is_read_in_bounded_chunks(tmp_path):
    """However long a conversation is, and however large its messages: a save's worth at a time."""
    path = tmp_path / "c.jsonl"
    for count, size in ((2_000, 10), (40, 500_000)):
        message = json.dumps({"role": "user", "content": "x" * size}) + "\n"
        path.write_text(message * count)
        source = await open_source(str(path), None, WHOSE)
        lengths = [len(chunk.entries) async for chunk in source.stream]
        assert sum(lengths) == count
        assert max(lengths) <= 500
        assert max(lengths) * size < 5_000_000


def test_the_summary_for_programs(tmp_path, capsys):
    """--json tells what was read as what and what was left out, too."""
    store = f"sqlite:///{tmp_path}/chats.db"
    assert run_here(["import", str(FORMS / "codex.jsonl"), "--json", "--store", store]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["read"] == {"Codex": 8}
    assert told["left_out"]["turn_context"] == 1
    backup = str(tmp_path / "backup.jsonl")
    assert run_here(["export", "-o", backup, "--store", store]) == 0
    capsys.readouterr()
    assert run_here(["import", backup, "--json", "--store", f"file:{tmp_path}/copy"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["read"], told["messages"]) == ({"agent-memory export": 8}, 8)


@pytest.mark.skipif(not DATA.exists(), reason=f"the recorded exchanges are not at {DATA}")
async def test_every_recorded_exchange_is_read(tmp_path):
    """556 exchanges that live APIs accepted: none is refused, and all come out equal."""
    path = tmp_path / "recorded.jsonl"
    read = {
        "openai": from_openai,
        "openai_responses": from_openai_responses,
        "anthropic": from_anthropic,
        "bedrock": from_bedrock,
    }
    expected = {}
    with path.open("w", encoding="utf-8") as out:
        for record in lines(DATA / "recorded.jsonl"):
            messages = record["request"] + record["reply"]
            expected[record["id"]] = read[record["provider"]](messages)
            out.write(json.dumps({"id": record["id"], "messages": messages}) + "\n")
    source = await open_source(str(path), None, WHOSE)
    async with InMemoryChatStorage() as target:
        await moved(source.stream, target)
        found = await everything(target)
        assert [f for f in [f async for f in verify(target)] if f.check != "exchanges"] == []
    assert {key.session_id for key in found} == set(expected)
    for key, messages in found.items():
        wanted = expected[key.session_id]
        assert [m.content for m in messages] == [m.content for m in wanted]
        # A lone text block with cache_control does not tell whether it is Chat's or Anthropic's.
        assert [beside(m) for m in messages] == [beside(m) for m in wanted]
        assert [m.role for m in messages] == [m.role for m in wanted]
