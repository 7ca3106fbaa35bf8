"""The README and docs/ hold: each program runs and prints what is shown, what is named exists."""

from __future__ import annotations

import asyncio
import builtins
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
from aiohttp import web

import agent_memory
import agent_memory.testing
import matrix
from agent_memory.cli.app import COMMANDS
from agent_memory.storage.hooks import StoreHooks
from agent_memory.summarizing import SummarizingOptions
from model_server import ModelServer
from pages import PAGES, ROOT, blocks

PACKAGE = Path(agent_memory.__file__).parent
README = ROOT / "README.md"
BLOCKS = blocks()
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)

pytestmark = pytest.mark.skipif(not README.exists(), reason="the pages are not here, only tests")


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


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if "pytest" not in block.notes], ids=lambda b: b.name
)
def test_a_program_runs_and_prints_what_is_shown(block, place, monkeypatch, capsys):
    """In an empty directory, with nothing before it."""
    package = block.notes.get("needs", "")
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    names = {"__name__": "__main__"}
    code = compile(block.source, str(block.page), "exec")
    if "model" in block.notes:
        with scripted_models() as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            exec(code, names)
    else:
        exec(code, names)
    printed = capsys.readouterr().out
    assert block.output in (None, printed)


FILES_OF_TESTS = [block for block in BLOCKS if "pytest" in block.notes]


@pytest.mark.parametrize(
    "block", matrix.params(FILES_OF_TESTS, always=FILES_OF_TESTS[:1]), ids=lambda b: b.name
)
def test_a_file_of_tests_passes(block, place):
    """Run as its reader would run it."""
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
    assert re.search(r"\b\d+ passed", done.stdout)


def test_every_link_inside_the_pages_leads_somewhere():
    """To a file that is there, and to a heading in it."""
    broken = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target or target.startswith("mailto:"):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings]
    return {re.sub(r"\s+", "-", heading.strip()) for heading in plain}


def test_the_page_for_stores_names_every_hook():
    """Whoever writes a store overrides what the page tells of."""
    page = (ROOT / "docs" / "write_a_store.md").read_text(encoding="utf-8")
    hooks = {name for name in vars(StoreHooks) if re.match(r"_(?!_|abc_)", name)}
    assert len(hooks) > 10
    assert [name for name in sorted(hooks) if not re.search(rf"`{name}\b", page)] == []


def test_the_page_of_the_command_line_names_every_command():
    """Each in the table."""
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert [name for name in COMMANDS if not any(f"`{name}" in row for row in rows)] == []


def test_the_tests_that_are_named_exist():
    """A page that answers with tests, by case or by file, names such as are there."""
    sources = [*(ROOT / "tests").rglob("*.py"), *(PACKAGE / "testing").rglob("*.py")]
    written = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r"`(c\d\d+)`", TEXT))
    assert len(named) > 10
    assert [case for case in sorted(named) if f"def test_{case}_" not in written] == []
    for path in re.findall(r"`((?:tests|benchmarks|examples|agent_memory)/[\w/.]+)`", TEXT):
        assert (ROOT / path).exists(), path


def test_options_and_defaults_are_those_of_the_code():
    """Each option in the table is an option, and a default given as a number is its default."""
    fields = {field.name: field.default for field in attrs.fields(SummarizingOptions)}
    defaults = {**agent_memory.SummarizingChatStorage.__init__.__kwdefaults__, **fields}
    page = (ROOT / "docs" / "summarizing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\S+)", page.partition("## Options")[2], re.MULTILINE)
    assert len(rows) > 8
    for name, said in rows:
        known = {"none": None, "no": False, "by": None, '`"log"`': "log"}
        value = known[said] if said in known else int(said.replace(",", ""))
        assert defaults[name] == value, name


def test_urls_and_names_are_those_of_the_code():
    """Every class that a page names is the library's, or Python's."""
    places = [builtins, agent_memory, agent_memory.summarizers]
    places += [agent_memory.errors, agent_memory.testing]
    theirs = {"AgentSquadChatStorage", "DictChatStorage"}
    for name in set(re.findall(r"`(\w+(?:Storage|Error|Summarizer))\b", TEXT)) - theirs:
        assert any(name in dir(place) for place in places), name
