"""The examples run as they stand, against the scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import runpy
import subprocess
import sys
import traceback
from pathlib import Path
from unittest import mock

import pytest

import model_server as scripted
from agent_memory import ConversationManager, Usage, open_storage
from agent_memory.providers import validate
from model_server import ModelServer, Reply

ROOT = Path(__file__).parents[1]
THREAD = ("me", "example", "assistant")


@pytest.fixture
async def server():
    async with ModelServer() as running:
        yield running


def calls_clock(request):
    """The model calls the one tool there is, twice at once."""
    calls = [
        {"id": name, "type": "function", "function": {"name": "clock", "arguments": "{}"}}
        for name in ("c1", "c2")
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
    return Reply(body={"id": "x", "object": "chat.completion", "created": 1, "model": "m",
                       "choices": [choice], "usage": usage})  # fmt: skip


EXAMPLE = ROOT / "examples/agent_loop.py"


async def ask(server, chats, question, run=None):
    """Run the example, without a key if there is no server; give its exit code and output."""
    environment = {**os.environ, "CHATS": str(chats), "PYTHONPATH": str(ROOT)}
    environment.pop("OPENAI_API_KEY", None)
    if server is not None:
        environment |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test-key"}
    return await asyncio.to_thread(run or run_here, question, environment)


def run_here(question, environment):
    """Run it in this process, which has imported what it needs."""
    output, code = io.StringIO(), 0
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch("sys.argv", [str(EXAMPLE), question]),
        mock.patch("sys.path", [str(EXAMPLE.parent), *sys.path]),
        contextlib.redirect_stdout(output),
    ):
        try:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        except Exception:  # noqa: BLE001  (what Python itself would print)
            traceback.print_exc(file=output)
            code = 1
    return code, output.getvalue()


def run_apart(question, environment):
    """Run it as its reader does, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), question],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout


def test_the_agent_loop_is_short():
    """It is there to be read."""
    lines = (ROOT / "examples/agent_loop.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60


async def test_the_agent_loop_calls_tools_and_remembers(server, tmp_path):
    """Two questions in two processes: the second sees the first, with its tool exchange."""
    chats = tmp_path / "chats.db"
    server.script(calls_clock, scripted.answer("It is noon."), scripted.answer("You asked."))
    code, printed = await ask(server, chats, "What time is it?")
    assert (code, printed.splitlines()[0]) == (0, "It is noon.")
    code, printed = await ask(server, chats, "What did I ask?", run_apart)
    assert (code, printed.splitlines()[0]) == (0, "You asked.")
    sent = server.requests[-1].body["messages"]
    assert [message["role"] for message in sent] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "user")
    ]
    assert sent[3]["tool_call_id"] == "c1"
    async with open_storage(f"sqlite:///{chats}") as storage:
        manager = ConversationManager(storage)
        transcript = await manager.load_transcript(*THREAD)
        assert validate(transcript, "openai") == []
        assert len({message.run_id for message in transcript}) == 2
        assert await manager.usage("me") == server.reported + Usage(40, 8)
        (thread,) = await manager.list_threads("me")
        assert (thread.title, thread.runs, thread.messages) == ("What time is it?", 2, 7)


async def test_the_agent_loop_runs_without_a_key(tmp_path):
    """A script answers: a first result needs no account."""
    code, printed = await ask(None, tmp_path / "chats.db", "What time is it?")
    assert code == 0
    assert printed.startswith("(no OPENAI_API_KEY")
    assert "The tool says: 20" in printed


async def test_the_agent_loop_keeps_the_question_when_the_model_fails(server, tmp_path):
    """It ends with the error, and the next run sees what was asked."""
    chats = tmp_path / "chats.db"
    server.default = scripted.unauthorized()
    code, printed = await ask(server, chats, "Are you there?")
    assert code == 1
    assert "AuthenticationError" in printed
    server.default = scripted.answer("I am.")
    code, _ = await ask(server, chats, "Are you there now?")
    assert code == 0
    asked = [message["content"] for message in server.requests[-1].body["messages"][1:]]
    assert asked == ["Are you there?", "Are you there now?"]
