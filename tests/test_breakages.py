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
    return make_project(tmp_path)


def make_project(path):
    (path / "tests" / "breakages").mkdir(parents=True)
    shutil.copy(breakages.__file__, path / "tests")
    (path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (path / "sums.py").write_text(TEXT)
    (path / "tests" / "test_sums.py").write_text(TESTS)
    (path / "tests" / "conftest.py").write_text(CONFTEST)
    return path


def run(project, *entries, arguments=()):
    (project / "tests" / "breakages" / "sums.toml").write_text("".join(entries))
    done = subprocess.run(
        [sys.executable, str(project / "tests" / "breakages.py"), "-j", "2", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={  # half a second instead of two
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_timeout",
        },
    )
    assert (project / "sums.py").read_text() == TEXT  # the project itself is never broken
    return done.returncode, done.stdout + done.stderr


CAUGHT = [
    entry("off by one", "+ 0", "+ 1"),
    entry("empty", "sum(numbers)", "0", " -k 'total and not known'"),
    entry("twice", "+ 0", "+ sum(numbers)", " -k ONLY"),
]
SURVIVORS = [
    entry("smallest", "max", "min"),
    entry("other tests", "+ 0", "+ 1", "::test_nothing"),
]
HANGING = "__import__('threading').Event().wait()"
HANGS = [
    entry("hangs", "sum(numbers)", HANGING) + "seconds = 1\n",
    entry("is given up", "sum(numbers)", HANGING, "::test_total --timeout 0.2"),
]
STALE = {
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


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run for most of it: each imports pytest anew."""
    stale = [entry(f"<{why}>", *rest) for why, rest in STALE.items()]
    project = make_project(tmp_path_factory.mktemp("project"))
    return run(project, *CAUGHT, *SURVIVORS, *stale, *HANGS)


class TestTheCommand:
    def test_breakages_that_a_test_notices_are_caught(self, ran):
        _, output = ran
        assert "caught sums: off by one (tests/test_sums.py::test_total)" in output
        assert "caught sums: empty (tests/test_sums.py::test_total)" in output
        assert "caught sums: twice (tests/test_sums.py::test_matrix_only)" in output

    def test_a_survivor_is_reported(self, ran):
        code, output = ran
        assert code == 1
        assert "SURVIVED sums: smallest (no test failed)" in output
        assert "SURVIVED sums: other tests (no test failed)" in output
        assert output.count("SURVIVED sums: other tests") == 2  # once more at the end

    def test_an_entry_that_proves_nothing_is_stale(self, ran):
        _, output = ran
        for why in STALE:
            assert f"STALE sums: <{why}> ({why}" in output

    def test_tests_that_hang_have_not_noticed(self, ran):
        """Unless the limit that ends one is its own."""
        _, output = ran
        told = "the tests hang, and none fails before the 1 s for an entry are over"
        assert f"SURVIVED sums: hangs ({told})" in output
        assert "caught sums: is given up (tests/test_sums.py::test_total, by its time" in output

    def test_all_are_counted(self, ran):
        _, output = ran
        assert "4 caught, 3 survived, 8 stale in " in output

    def test_entries_are_chosen_by_their_area_or_sentence(self, project):
        entries = entry("off by one", "+ 0", "+ 1"), entry("smallest", "max", "min")
        code, output = run(project, *entries, arguments=["OFF BY"])
        assert code == 0
        assert "1 caught in " in output

    @pytest.mark.parametrize(
        "text", ["[[breakage]]\nwhat = 1", "[[breakage", entry("nothing", "+ 0", "+ 0")]
    )
    def test_a_table_that_cannot_be_read_is_named(self, project, text):
        (project / "tests" / "breakages" / "sums.toml").write_text(text)
        with pytest.raises(breakages.TableError, match=r"sums\.toml"):
            breakages.load(project)

    def test_a_name_that_no_entry_has_is_an_error(self, capsys):
        assert breakages.main(["no entry has this"]) == 1
        assert "no entry has such a name" in capsys.readouterr().err


def test_every_entry_still_fits_the_code():
    """What no longer applies proves nothing: mend the entry where the code has changed."""
    entries = breakages.load(breakages.ROOT)
    reasons = [(entry, breakages.stale(entry, breakages.ROOT)) for entry in entries]
    stale = [f"{entry}: {reason}" for entry, reason in reasons if reason]
    assert not stale, "\n".join(stale)
    assert len(set(map(str, entries))) == len(entries)  # each says something else
