"""Which tests `make test` leaves to `make matrix`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import settings

import matrix
from agent_memory.testing import ChatStorageTests

BUT = pytest.mark.matrix(but="differs_by_engine").mark
ALWAYS = ChatStorageTests.test_c20_two_processes_save_to_one_chat
BATCH = ChatStorageTests.test_c16_one_id_in_two_chats_is_two_messages
SELDOM = ChatStorageTests.test_c18_an_empty_batch_is_a_no_op


class Item:
    """What the selection reads of pytest's items."""

    def __init__(self, function, *marks):
        self.function, self._marks = function, marks

    def iter_markers(self, name):
        return [mark for mark in self._marks if mark.name == name]


def kept(items, *arguments, matrix_asked=False):
    """What a run with these arguments keeps, and what it reports as left out."""
    left, items = [], list(items)

    def note(items):
        left.extend(items)

    config = SimpleNamespace(
        getoption=lambda _name: matrix_asked,
        args=arguments,
        hook=SimpleNamespace(pytest_deselected=note),
    )
    matrix.select(config, items)
    return items, left


def test_what_differs_by_engine_is_kept():
    """A class with the exception keeps those functions, one without it none."""
    plain = Item(SELDOM)
    whole = [Item(ALWAYS, pytest.mark.matrix.mark), Item(SELDOM, pytest.mark.matrix.mark)]
    some = [Item(ALWAYS, BUT), Item(SELDOM, BUT)]
    assert kept([plain, *whole, *some], "tests") == ([plain, some[0]], [*whole, some[1]])


def test_of_what_differs_some_themes_may_be_enough():
    """Those of other modules are left out."""
    themes = [module.__module__.rpartition(".")[2] for module in (ALWAYS, BATCH)]
    assert themes == ["concurrency", "batches"]
    mark = pytest.mark.matrix(but="differs_by_engine", themes=themes[:1]).mark
    items = [Item(ALWAYS, mark), Item(BATCH, mark), Item(SELDOM, mark)]
    assert kept(items) == (items[:1], items[1:])


def test_every_mark_must_agree():
    """An emulator that is left out leaves a test out whose class keeps it."""
    item = Item(ALWAYS, BUT, pytest.mark.matrix.mark)
    assert kept([item]) == ([], [item])


def test_of_a_class_single_tests_may_be_left_out():
    """By their names."""
    mark = pytest.mark.matrix(only=[ALWAYS.__name__]).mark
    items = [Item(ALWAYS, mark), Item(SELDOM, mark)]
    assert kept(items) == (items[1:], items[:1])


def test_of_parameters_some_always_run():
    """The others carry the mark; a tuple is a value of several names."""
    first, second, third = matrix.params([(1, "a"), (2, "b"), 3], always=[(2, "b")])
    assert (first.values, second.values, third.values) == ((1, "a"), (2, "b"), (3,))
    left_out = [[mark.name for mark in param.marks] for param in (first, second, third)]
    assert left_out == [["matrix"], [], ["matrix"]]


def test_what_a_class_leaves_out_is_not_even_collected():
    """Where all runs, or a test is named, it is."""

    def config(*arguments, asked=False):
        return SimpleNamespace(getoption=lambda _name: asked, args=arguments)

    node = Item(None, BUT)
    node.config = config("tests")
    assert matrix.is_left_out(node, SELDOM)
    assert not matrix.is_left_out(node, ALWAYS)
    for node.config in (config("tests/test_x.py::TestX"), config("tests", asked=True)):
        assert not matrix.is_left_out(node, SELDOM)


def test_the_matrix_and_a_named_test_leave_nothing_out():
    """Whoever names a test means it."""
    items = [Item(ALWAYS, pytest.mark.matrix.mark), Item(SELDOM, BUT)]
    assert kept(items, matrix_asked=True) == (items, [])
    assert kept(items, "tests/test_x.py::TestX") == (items, [])


def test_the_contract_says_which_of_its_tests_differ_by_engine():
    """A part of it, in every theme."""
    tests = {name: getattr(ChatStorageTests, name) for name in dir(ChatStorageTests)
             if name.startswith("test_")}  # fmt: skip
    marked = [test for test in tests.values() if hasattr(test, "differs_by_engine")]
    assert len(tests) / 4 < len(marked) < len(tests) / 2
    themes = {test.__module__ for test in tests.values()}
    assert {test.__module__ for test in marked} == themes


def test_the_matrix_repeats_things_more_often(pytestconfig):
    """25 random examples and 200 saves in a row in every run, 200 and 1,000 in the matrix."""
    run = pytestconfig.getoption("--counts")
    full = run == "matrix" or (run is None and pytestconfig.getoption("--matrix"))
    assert settings.default.max_examples == (200 if full else 25)
    assert ChatStorageTests.saves_in_a_row == (1_000 if full else 200)
