"""The benchmarks run: at tiny sizes, so that they never rot. No figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "benchmarks").is_dir(), reason="the benchmarks are not here, only the tests"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )


def test_growth_measures_every_embedded_store():
    """Growth gives four pairs of times for each store, whose names tell the durability."""
    done = run("growth", "--short", "50", "--long", "90", "--samples", "2", "--json")
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
        assert list(works) == ["save", "fetch", "turn", "restart"]
        assert all(pair["ratio"] == pair["long"] / pair["short"] > 0 for pair in works.values())


def test_growth_of_a_store_by_url(tmp_path):
    """Any store can be measured by its URL, and a table is what people get."""
    url = f"sqlite:///{tmp_path}/chats.db"
    done = run("growth", "--short", "50", "--long", "90", "--samples", "2", "--store", url)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line for line in done.stdout.splitlines() if line.startswith("sqlite (as set up")]
    assert len(rows) == 4


def test_start_loads_nothing_foreign():
    """Start times whole processes and finds that nothing but attrs is loaded."""
    done = run("start", "--processes", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "loaded beside attrs and the standard library: nothing" in done.stdout
    assert done.stdout.count(" ms ") == 5


def test_the_list_of_benchmarks():
    """Without a name the benchmarks are listed, and the exit code says that none was run."""
    done = run()
    assert done.returncode == 2
    assert all(name in done.stdout for name in ("growth", "start"))
