"""Writing what the tests with large counts showed into a page: ``--soak-report=FILE``.

The page has a table between two markers; rows of tests that did not run stay as they were.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

BEGIN, END = "<!-- soak: written by `make soak` -->", "<!-- end of soak -->"
HEAD = ("Test", "Store", "Counts", "Outcome", "Seconds", "Day")


def described(item: pytest.Item) -> tuple[str, str, str] | None:
    """A soak test's name, store and counts; None for a test that is about no count."""
    if item.get_closest_marker("soak") is None:
        return None
    name = item.originalname or item.name
    counts = getattr(item.cls, "counts", {}).get(name) if item.cls else None
    if counts is None and not any(mark.name == "soak" for mark in item.own_markers):
        return None  # of a whole suite that is run once more
    title = (item.obj.__doc__ or "").strip().partition("\n")[0]
    store = item.callspec.id if hasattr(item, "callspec") else getattr(item.cls, "store", "")
    network = getattr(item.cls, "network", None)
    store = f"{store}, {network}" if network else store
    return name.removeprefix("test_").replace("_", " "), store, counts or title


class SoakReport:
    """A plugin that gathers rows, and writes them when the run ends.

    Args:
        path: the page.
        today: the day of the run, in ISO's form.
    """

    def __init__(self, path: Path, today: str = "") -> None:
        self._path = path
        self._today = today or dt.datetime.now(dt.UTC).date().isoformat()
        self._of_nodes: dict[str, tuple[str, str, str]] = {}
        self._rows: list[tuple[str, ...]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if (row := described(item)) is not None:
                self._of_nodes[item.nodeid] = row

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known = self._of_nodes.get(report.nodeid)
        if known is not None and (report.when == "call" or report.outcome != "passed"):
            self._rows.append((*known, report.outcome, f"{report.duration:.0f}", self._today))

    def pytest_sessionfinish(self) -> None:
        if self._rows:
            text = self._path.read_text(encoding="utf-8")
            self._path.write_text(merged(text, self._rows), encoding="utf-8")


def merged(page: str, rows: list[tuple[str, ...]]) -> str:
    """Return a page with rows put into its table, in place of those of the same test and store."""
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    known = {row[:2]: row for row in (tuple(line.strip("| ").split(" | ")) for line in lines)}
    known.update((row[:2], row) for row in rows)
    written = [
        _line(HEAD),
        "|---" * len(HEAD) + "|",
        *(_line(known[key]) for key in sorted(known)),
    ]
    return f"{before}{BEGIN}\n" + "\n".join(written) + f"\n{END}{after}"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
