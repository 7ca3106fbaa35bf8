"""The README holds: its Python runs, the output it shows is what comes, the tests it names exist.

HTML comments before a block of Python say how it is run: ``before:`` and code that goes first;
``continues`` with the names of the block before; ``model``: a scripted server stands in for the
providers; ``needs: package``: skipped without it; ``pytest``: it is a file of tests;
``not run: reason``.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType

import attrs
import pytest
from aiohttp import web

import agent_memory
from model_server import ModelServer

PACKAGE = Path(agent_memory.__file__).parent
README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.exists() else ""

BLOCK = re.compile(
    r"(?P<comments>(?:<!--(?:(?!-->).)*-->\s*\n)*)```python\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
COMMENT = re.compile(r"<!--\s*(\S.*?)\s*-->", re.DOTALL)

pytestmark = pytest.mark.skipif(not TEXT, reason="README.md is not here, only the tests")


@attrs.frozen
class Block:
    """A block of Python, and what is said about it."""

    line: int
    code: str
    output: str | None
    notes: dict[str, str]

    @property
    def source(self) -> str:
        """The code, moved down so that errors name the README's lines."""
        before = self.notes.get("before", "")
        gap = max(0, self.line - 1 - len(before.splitlines()) - 1)
        return before + "\n" + "\n" * gap + self.code


def blocks() -> list[Block]:
    found = []
    for match in BLOCK.finditer(TEXT):
        notes = {}
        for comment in COMMENT.findall(match["comments"]):
            name, _, rest = comment.partition(":")
            notes[name.strip()] = rest.strip("\n")
        line = TEXT.count("\n", 0, match.start("code")) + 1
        found.append(Block(line, match["code"], match["output"], notes))
    return found


def chains() -> list[list[Block]]:
    """Blocks that share their names, from the one that begins to the last that continues."""
    found: list[list[Block]] = []
    for block in blocks():
        if "pytest" in block.notes or "not run" in block.notes:
            continue
        if "continues" in block.notes:
            found[-1].append(block)
        else:
            found.append([block])
    return found


def execute(block: Block, names: dict[str, object]) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(block.source, str(README), "exec", flags=flags)
    if code.co_flags & CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


async def _claude(request: web.Request) -> web.Response:
    body = await request.json()
    assert body["system"]
    assert body["messages"][0]["content"]
    content = [{"type": "text", "text": "The summary."}]
    return web.json_response(
        {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
         "content": content, "stop_reason": "end_turn", "stop_sequence": None,
         "usage": {"input_tokens": 10, "output_tokens": 3}}
    )  # fmt: skip


async def _serve(started: threading.Event, addresses: dict[str, str], stop: asyncio.Event) -> None:
    app = web.Application()
    app.router.add_post("/v1/messages", _claude)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ModelServer() as server:
        addresses["OPENAI_BASE_URL"] = server.base_url
        addresses["ANTHROPIC_BASE_URL"] = "http://{}:{}".format(*runner.addresses[0][:2])
        started.set()
        await stop.wait()
    await runner.cleanup()


@contextmanager
def scripted_models() -> Iterator[dict[str, str]]:
    """Run stand-ins for the providers in a thread; give the environment that leads to them."""
    started, addresses, running = threading.Event(), {}, {}

    async def main() -> None:
        running.update(loop=asyncio.get_running_loop(), stop=asyncio.Event())
        await _serve(started, addresses, running["stop"])

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(30)
    try:
        yield {**addresses, "OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    finally:
        running["loop"].call_soon_threadsafe(running["stop"].set)
        thread.join()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory to run in, without keys of anybody's."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize("chain", chains(), ids=lambda chain: f"line {chain[0].line}")
def test_python_runs_and_prints_what_is_shown(chain, place, monkeypatch, capsys):
    """Each block runs in an empty directory, and prints what the README says it prints."""
    names: dict[str, object] = {"__name__": "__main__"}
    left_out: list[str] = []
    with scripted_models() as environment:
        for block in chain:
            package = block.notes.get("needs", "").strip()
            if package and importlib.util.find_spec(package) is None:
                left_out.append(f"line {block.line} not run: {package} is missing")
                continue
            for name, value in environment.items() if "model" in block.notes else ():
                monkeypatch.setenv(name, value)
            execute(block, names)
            printed = capsys.readouterr().out
            assert block.output in (None, printed)
    if left_out:
        pytest.skip("; ".join(left_out))


@pytest.mark.parametrize(
    "block",
    [block for block in blocks() if "pytest" in block.notes],
    ids=lambda b: f"line {b.line}",
)
def test_files_of_tests_pass(block, place):
    """A block that is a file of tests passes, run as its reader would run it."""
    (place / "test_it.py").write_text(block.source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b\d{2,} passed", done.stdout)


def test_what_is_not_run_says_why():
    """A block that cannot run gives its reason, and hardly any cannot."""
    reasons = [block.notes["not run"] for block in blocks() if "not run" in block.notes]
    assert all(len(reason) > 10 for reason in reasons)
    assert len(reasons) <= 1 < len(blocks())


def test_the_tests_that_are_named_exist():
    """The README answers questions with tests by case, benchmarks and files: all are there."""
    sources = [*(README.parent / "tests").rglob("*.py"), *(PACKAGE / "testing").rglob("*.py")]
    written = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r"`(c\d\d)`", TEXT))
    assert named
    assert [case for case in sorted(named) if f"def test_{case}_" not in written] == []
    for path in re.findall(r"`((?:benchmarks/)?[A-Z]+(?:\.md)?)`", TEXT):
        assert (README.parent / path).exists()


def test_options_and_defaults_are_those_of_the_code():
    """Each option in the table is a parameter, and a default given as a number is its default."""
    fields = agent_memory.SummarizingChatStorage.__init__.__kwdefaults__
    positional = agent_memory.SummarizingChatStorage.__init__.__defaults__
    defaults = {**fields, "trigger_at": positional[0], "keep_last": positional[1]}
    rows = re.findall(r"^\| `(\w+)` \| (\S+)", TEXT.partition("## Options")[2], re.MULTILINE)
    assert len(rows) > 8
    for name, said in rows:
        known = {"none": None, "no": False, "by": None, '`"log"`': "log"}
        value = known[said] if said in known else int(said.replace(",", ""))
        assert defaults[name] == value, name


def test_urls_and_names_are_those_of_the_code():
    """Every class and function of the library that the text names is there to be imported."""
    for name in set(re.findall(r"`(\w+(?:Storage|Error|Summarizer))\b", TEXT)):
        assert hasattr(agent_memory, name) or hasattr(agent_memory.summarizers, name), name
