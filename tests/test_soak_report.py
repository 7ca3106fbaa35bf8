"""The table of the tests with large counts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import soak_report

PAGE = f"# Title\n\n{soak_report.BEGIN}\n{soak_report.END}\n\nMore.\n"


@pytest.fixture
def pytester_like(tmp_path):
    """Runs a file of tests in a process of its own, its rows written into a page."""

    def run(page, source):
        file = tmp_path / "test_some.py"
        file.write_text(textwrap.dedent(source))
        (tmp_path / "conftest.py").write_text(
            "import pathlib, soak_report\n"
            "def pytest_configure(config):\n"
            "    config.addinivalue_line('markers', 'soak: large counts')\n"
            f"    page = pathlib.Path({str(page)!r})\n"
            "    config.pluginmanager.register(soak_report.SoakReport(page))\n"
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
        here = str(Path(__file__).parent)
        command += ["--rootdir", str(tmp_path), "-o", f"pythonpath={here}"]
        assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 1

    return run


def row(test, store, outcome="passed", seconds="7"):
    return (test, store, "2 × 3 saves", outcome, seconds, "2026-01-02")


def test_rows_are_written_and_replaced():
    """By test and store, in order; the rest of the page and of the table stays."""
    first = soak_report.merged(PAGE, [row("kills", "sqlite"), row("kills", "files", "failed")])
    again = soak_report.merged(first, [row("deletes", "sqlite"), row("kills", "files")])
    assert again.startswith("# Title\n\n")
    assert again.endswith("\n\nMore.\n")
    lines = [line for line in again.splitlines() if line.startswith("|")]
    assert lines == [
        "| Test | Store | Counts | Outcome | Seconds | Day |",
        "|---|---|---|---|---|---|",
        "| deletes | sqlite | 2 × 3 saves | passed | 7 | 2026-01-02 |",
        "| kills | files | 2 × 3 saves | passed | 7 | 2026-01-02 |",
        "| kills | sqlite | 2 × 3 saves | passed | 7 | 2026-01-02 |",
    ]


def test_a_run_writes_what_it_did(pytester_like, tmp_path):
    """Tests of large counts alone, with their counts, store and outcome."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    pytester_like(
        page,
        '''
        import pytest

        @pytest.mark.soak
        @pytest.mark.parametrize("store", ["sqlite", "files"])
        def test_much_is_saved(store):
            """Ten thousand saves."""
            assert store == "sqlite"

        @pytest.mark.soak
        class TestMany:
            counts = {"test_kills": "50 kills"}
            store = "moto"

            def test_kills(self):
                """As the class says."""

        @pytest.mark.soak
        class TestOnceMore:
            def test_contract(self):
                """No count."""

        def test_little():
            """No soak."""
        ''',
    )
    lines = [line.rpartition(" |")[0].split(" | ")[:4] for line in page.read_text().splitlines()]
    assert ["| kills", "moto", "50 kills", "passed"] in lines
    assert ["| much is saved", "files", "Ten thousand saves.", "failed"] in lines
    assert ["| much is saved", "sqlite", "Ten thousand saves.", "passed"] in lines
    assert not {"little", "contract"} & {line[0].strip("| ") for line in lines}
