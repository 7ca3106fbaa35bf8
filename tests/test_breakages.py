"""The command that tries deliberate breakages, and whether its entries still fit the code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import breakages

TEXT = """
def total(numbers):
    return sum(numbers) + 0

def largest(numbers):
    return max(numbers)
"""
TESTS = """
import time
from sums import total

def test_total():
    assert total([1, 2]) == 3

def test_nothing():
    pass

def test_matrix_only():
    assert total([1]) == 1

def test_known_failure():
    assert total([]) == 1
"""
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--matrix", action="store_true")
    parser.addoption("--counts")

def pytest_collection_modifyitems(config, items):
    if not config.getoption("--matrix"):
        items[:] = [item for item in items if "matrix" not in item.name]
"""
ENTRY = """
[[breakage]]
what = "{what}"
file = "sums.py"
old = '''{old}'''
new = '''{new}'''
tests = ["tests/test_sums.py{test}"]
"""


def entry(what, old, new, test="::test_total"):
    return ENTRY.format(what=what, old=old, new=new, test=test)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tests" / "breakages").mkdir(parents=True)
    shutil.copy(breakages.__file__, tmp_path / "tests")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "sums.py").write_text(TEXT)
    (tmp_path / "tests" / "test_sums.py").write_text(TESTS)
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    return tmp_path


def run(project, *entries, arguments=()):
    (project / "tests" / "breakages" / "sums.toml").write_text("".join(entries))
    done = subprocess.run(
        [sys.executable, str(project / "tests" / "breakages.py"), "-j", "2", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # half a second instead of two
    )
    assert (project / "sums.py").read_text() == TEXT  # the project itself is never broken
    return done.returncode, done.stdout + done.stderr


class TestTheCommand:
    def test_breakages_that_a_test_notices_are_caught(self, project):
        code, output = run(
            project,
            entry("off by one", "+ 0", "+ 1"),
            entry("empty", "sum(numbers)", "0", " -k 'total and not known'"),
            entry("twice", "+ 0", "+ sum(numbers)", " -k ONLY"),
        )
        assert code == 0
        assert "caught sums: off by one (tests/test_sums.py::test_total)" in output
        assert "caught sums: empty (tests/test_sums.py::test_total)" in output
        assert "caught sums: twice (tests/test_sums.py::test_matrix_only)" in output
        assert "3 caught in " in output

    def test_a_survivor_is_reported(self, project):
        code, output = run(
            project,
            entry("smallest", "max", "min"),
            entry("other tests", "+ 0", "+ 1", "::test_nothing"),
        )
        assert code == 1
        assert "SURVIVED sums: smallest (no test failed)" in output
        assert "SURVIVED sums: other tests (no test failed)" in output
        assert output.count("SURVIVED sums: other tests") == 2  # once more at the end
        assert "2 survived in " in output

    def test_an_entry_that_proves_nothing_is_stale(self, project):
        stale = {
            "the old text occurs 0 times in sums.py": ("- 0", "- 1"),
            "the old text occurs 4 times in sums.py": ("numbers", "words"),
            "the broken sums.py does not compile": ("+ 0", "+"),
            "there is no tests/test_sums.py.old": ("+ 0", "+ 1", ".old::test_total"),
            "there is no such test: tests/test_sums.py::test_gone": ("+ 0", "+ 1", "::test_gone"),
            "there is no such test: tests/test_sums.py -k gone": ("+ 0", "+ 1", " -k gone"),
            "the tests cannot even be imported": ("def total", "raise ImportError\n\ndef total"),
            "fails without the breakage too: tests/test_sums.py::test_known_failure": (
                *("+ 0", "+ 2"),
                "::test_known_failure",
            ),
        }
        code, output = run(project, *(entry(f"<{why}>", *rest) for why, rest in stale.items()))
        assert code == 1
        for why in stale:
            assert f"STALE sums: <{why}> ({why}" in output
        assert "8 stale in " in output

    def test_tests_that_hang_have_not_noticed(self, project):
        hanging = "__import__('threading').Event().wait()"
        code, output = run(
            project, entry("hangs", "sum(numbers)", hanging), arguments=["--timeout", "2"]
        )
        assert code == 1
        assert "SURVIVED sums: hangs (the tests hang, and none fails)" in output

    def test_entries_are_chosen_by_their_area_or_sentence(self, project):
        entries = entry("off by one", "+ 0", "+ 1"), entry("smallest", "max", "min")
        code, output = run(project, *entries, arguments=["OFF BY"])
        assert code == 0
        assert "1 caught in " in output
        assert run(project, *entries, arguments=["nothing"])[0] == 1

    @pytest.mark.parametrize(
        "text", ["[[breakage]]\nwhat = 1", "[[breakage", entry("nothing", "+ 0", "+ 0")]
    )
    def test_a_table_that_cannot_be_read_is_named(self, project, text):
        code, output = run(project, text)
        assert code == 1
        assert "sums.toml" in output


def test_every_entry_still_fits_the_code():
    """What no longer applies proves nothing: mend the entry where the code has changed."""
    entries = breakages.load(breakages.ROOT)
    reasons = [(entry, breakages.stale(entry, breakages.ROOT)) for entry in entries]
    stale = [f"{entry}: {reason}" for entry, reason in reasons if reason]
    assert not stale, "\n".join(stale)
    assert len(set(map(str, entries))) == len(entries)  # each says something else
