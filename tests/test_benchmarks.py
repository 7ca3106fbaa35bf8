"""The benchmarks run: at tiny sizes, so that they never rot. No figure is judged here."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "benchmarks").is_dir(), reason="the benchmarks are not here, only the tests"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run benchmarks as people do."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Run benchmarks in this process, which is quicker."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.chdir(ROOT)
    main = importlib.import_module("benchmarks.__main__").main

    def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = main(list(arguments))
        output = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, output.out, output.err)

    return run_here


def test_growth_measures_every_embedded_store(run_here):
    """Growth gives four pairs of times for each store, whose names tell the durability."""
    done = run_here("growth", "--short", "50", "--long", "90", "--samples", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["sizes"] == {"short": 50, "long": 90, "samples": 2}
    assert list(result["seconds"]) == [
        "memory (nothing on disk)",
        "files (fsync each save)",
        "files (left to the system)",
        "SQLite (WAL, synchronous=FULL)",
        "SQLite (WAL, synchronous=NORMAL)",
    ]
    for works in result["seconds"].values():
        assert list(works) == ["save", "newest", "fetch", "turn", "restart"]
        assert all(pair["ratio"] == pair["long"] / pair["short"] > 0 for pair in works.values())


def test_growth_of_a_store_by_url(run_here, tmp_path):
    """Any store can be measured by its URL, and a table is what people get."""
    url = f"sqlite:///{tmp_path}/chats.db"
    done = run_here("growth", "--short", "50", "--long", "90", "--samples", "2", "--store", url)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line for line in done.stdout.splitlines() if line.startswith("sqlite (as set up")]
    assert len(rows) == 5


def test_start_loads_nothing_foreign():
    """Start times whole processes and finds that nothing but attrs is loaded."""
    done = run("start", "--processes", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "loaded beside attrs and the standard library: nothing" in done.stdout
    assert done.stdout.count(" ms ") == 5


def test_the_table_of_saves_and_its_targets(tmp_path):
    """Every contender that needs no server saves alone and at once; each target is judged."""
    pytest.importorskip("aiosqlite", reason="the bare engine's part needs the extra `bench`")
    file = tmp_path / "figures.json"
    done = run("table", "--tiny", "--parts", "saves", "--json", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(file.read_text())
    kinds = [row["kind"] for row in figures["saves"]]
    assert (kinds.count("ours"), kinds.count("engine")) == (3, 5)
    assert all(row["rate"] > 0 for row in figures["saves"])
    assert len(figures["targets"]) >= 5
    for target in figures["targets"]:
        excess = target["value"] - target["limit"]
        assert target["met"] == (excess <= 0 if target["bound"] == "at most" else excess >= 0)


@pytest.mark.matrix
def test_what_the_wrapper_and_the_pure_parts_cost(run_here):
    """Fetches, restarts, pauses and memory, each against its target."""
    done = run_here("--tiny", "--parts", "wrapping", "pure")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.startswith(("met ", "MISSED "))]) >= 10


def test_views_of_random_histories_are_valid(run_here):
    """Our views leave no call and no result alone, and with a provider nothing is refused."""
    done = run_here("validity", "--histories", "10")
    assert (done.returncode, done.stderr) == (0, "")
    figures = {line[:44].strip(): line[44:].split() for line in done.stdout.splitlines()}
    assert figures["with a call or a result left alone"][:2] == ["0", "0"]
    assert figures["refused by the provider (Bedrock's rules)"][1] == "0"
    assert int(figures["views of valid histories"][0]) > 0


def test_the_list_of_benchmarks(run_here):
    """An unknown name lists the benchmarks, and the exit code says that none was run."""
    done = run_here("unknown")
    assert done.returncode == 2
    assert all(name in done.stdout for name in ("table", "growth", "moving", "start", "validity"))


def test_moving_measures_each_step(run_here, tmp_path):
    """Every step has its rate, and import and copy are set beside raw aiosqlite."""
    url = f"file:{tmp_path}/chats"
    done = run_here("moving", "--messages", "1200", "--store", url)
    assert done.returncode == 0, done.stderr
    for step in ("raw aiosqlite", "export", "import", "copy", "compare", "copy to file"):
        assert re.search(rf"^{step} +[\d,]+ +\d+ +\d+$", done.stdout, re.MULTILINE), step
    assert re.search(r"^import: \d\.\d\d of raw aiosqlite", done.stdout, re.MULTILINE)
