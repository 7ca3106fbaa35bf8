"""What all tests share: the engines, and the watch for what a test leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import leaks
import matrix
from emulators import (  # noqa: F401  (fixtures, used by their names)
    aws_credentials,
    botocore_data_read_once,
    dynalite_endpoint,
    dynamodb_endpoint,
    dynamodb_table,
    moto_endpoint,
    quick_dynamodb_endpoint,
)
from engines import (  # noqa: F401  (as above)
    mariadb_server,
    mariadb_url,
    postgres_database,
    postgres_server,
    postgres_url,
)
from loop_clock import loop_clock  # noqa: F401  (as above)
from soak_report import SoakReport


def pytest_addoption(parser: pytest.Parser) -> None:
    matrix.add_option(parser)
    parser.addoption(
        "--soak-report", type=Path, metavar="FILE", help="write the figures of soak tests there"
    )


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption("--soak-report")
    if page is not None:
        config.pluginmanager.register(SoakReport(page))
    config.addinivalue_line("markers", "leaves_things: what it leaves behind is meant to stay")
    matrix.configure(config)
    leaks.watch_event_loops()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    is_test = name.startswith("test_") and callable(obj)
    return [] if is_test and matrix.is_left_out(collector, obj) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    matrix.select(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    # Around the whole test, so that the event loop's own thread pool has ended as well.
    item.stash[_BEFORE] = leaks.Snapshot.now()
    leaks.abandoned.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    left = item.stash[_BEFORE].left_over() + leaks.abandoned
    if left and item.get_closest_marker("leaves_things") is None:
        pytest.fail("the test left behind:\n" + "\n".join(left), pytrace=False)
    return result


_BEFORE = pytest.StashKey[leaks.Snapshot]()
