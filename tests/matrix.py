"""What `make test` leaves to `make matrix`: tests that differ from others in their engine alone.

``@pytest.mark.matrix`` on a test, a class or a parameter: it runs with ``--matrix`` alone.
``@pytest.mark.matrix(but="differs_by_engine")``: the same, but for functions with this attribute
(of the contract: those about order, ids, sizes, locks, races), which always run.
``@pytest.mark.matrix(but=…, themes=["batches"])``: of those only the ones in these modules.
``@pytest.mark.matrix(only=["test_x"])``: of a class, these tests alone.
``@pytest.mark.parametrize("size", matrix.params(SIZES, always=[1]))``: the other sizes.

A test that is named (``FILE::TEST``) runs in any case.

Where a test repeats something, the matrix repeats it more often: ``COUNTS``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from agent_memory.testing.contract.contract_base import ContractBase

MARKER = (
    "matrix(but=ATTRIBUTE, themes=MODULES, only=NAMES): left to `make matrix`, unless the "
    "function has the attribute, and is in one of the modules; of a class, these tests alone"
)
EXAMPLES = {"test": 25, "matrix": 200}
COUNTS = {"saves_in_a_row": 200, "saves_per_process": 50, "cancelled_steps": 20}
"""What the contract does so often in `make test`; in the matrix it takes its own counts."""


def params(values: Iterable[Any], *, always: Collection[Any]) -> list[Any]:
    """Parameters of a test, of which only `always` run in every run.

    Tuples are values of several names.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in always else pytest.mark.matrix,
        )
        for value in values
    ]


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--matrix", action="store_true", help="every test on every engine; what `make matrix` runs"
    )
    parser.addoption(
        "--counts", choices=EXAMPLES, help="random examples and repetitions as in this run"
    )


def configure(config: pytest.Config) -> None:
    """Register the marker, and have tests repeat things as often as the run is for."""
    config.addinivalue_line("markers", MARKER)
    # No deadlines: what a test takes says more about the machine than about the code. In CI the
    # examples are the same every time; everywhere else the search goes on.
    for name, count in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            derandomize="CI" in os.environ,
            suppress_health_check=[HealthCheck.too_slow],
        )
    run = config.getoption("--counts") or ("matrix" if config.getoption("--matrix") else "test")
    settings.load_profile(run)
    if run == "test":
        for name, count in COUNTS.items():
            setattr(ContractBase, name, count)


def is_left_out(collector: pytest.Collector, test: object) -> bool:
    """Whether this run leaves a test of a class to the matrix, whatever its parameters are.

    To ask before its items are made saves a third of what collecting them takes.
    """
    return not _runs_all(collector.config) and _is_for_the_matrix(collector, test)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what this run leaves to the matrix."""
    if _runs_all(config):
        return
    left_out = [item for item in items if _is_for_the_matrix(item, _function(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_for_the_matrix(item, _function(item))]


def _runs_all(config: pytest.Config) -> bool:
    return config.getoption("--matrix") or any("::" in argument for argument in config.args)


def _function(item: pytest.Item) -> object:
    return getattr(item, "function", None)


def _is_for_the_matrix(node: pytest.Item | pytest.Collector, function: object) -> bool:
    marks = node.iter_markers("matrix")
    return any(not _is_excepted(function, **mark.kwargs) for mark in marks)


def _is_excepted(
    function: object, but: str = "", themes: Collection[str] = (), only: Collection[str] = ()
) -> bool:
    if only:
        return getattr(function, "__name__", "") not in only
    if not getattr(function, but, False):
        return False
    return not themes or function.__module__.rpartition(".")[2] in themes
