"""Deliberate breakages: applies each to a copy of the project; reports what no test notices.

``python tests/breakages.py`` reads ``tests/breakages/*.toml``. An entry replaces a text that
occurs once in a file, and names the few quick tests of which at least one must then fail:

    [[breakage]]
    what = "a torn tail is appended to"
    file = "agent_memory/storage/file/chat_log.py"
    old = '''exact text'''
    new = '''broken text'''
    tests = ["tests/storage/file/test_file.py::test_x", "tests/test_keys.py -k order"]

The checkout is never touched. At the end the tests that have failed run on an unbroken copy: what
fails there too proves nothing. Tests that are left to `make matrix` run as well. A breakage under
which the tests hang is caught only if a test fails by its own time-out; when the limit for a whole
entry ends the run, no test has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path("tests", "breakages")
REQUEST, OUTCOMES = "BREAKAGES_REQUEST", "BREAKAGES_OUTCOMES"
SECONDS = 600
# Start-up dominates; langsmith comes with LangChain, and its plugin takes a second. An entry may
# name tests that only `make matrix` runs, but they need not repeat things as often.
OPTIONS = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin"]
OPTIONS += ["-p", "breakages", "--matrix", "--counts=test"]
NOT_COPIED = shutil.ignore_patterns(".*", "dist", "build", "node_modules")

_T = TypeVar("_T")


class TableError(Exception):
    """A table cannot be read; the text says which one and why."""


@dataclass(frozen=True)
class Breakage:
    """One entry of a table, and the name of the table."""

    area: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.area}: {self.what}"


def load(root: Path) -> list[Breakage]:
    """Read all tables of a project.

    Raises:
        TableError: an entry lacks something, or says something unknown.
    """
    return [found for path in sorted((root / TABLES).glob("*.toml")) for found in _entries(path)]


def _entries(path: Path) -> Iterator[Breakage]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"{path}: {error}") from error
    for number, entry in enumerate(table.get("breakage", ()), start=1):
        try:
            found = Breakage(path.stem, **{**entry, "tests": tuple(entry["tests"])})
        except (TypeError, KeyError) as error:
            raise TableError(f"{path}, entry {number}: {error}") from error
        if not (found.what and found.old and found.tests) or found.old == found.new:
            raise TableError(f"{path}, entry {number}: what, old and tests say something each")
        yield found


def stale(breakage: Breakage, root: Path) -> str:
    """Why an entry no longer fits the project; empty if it does."""
    path = root / breakage.file
    if not path.is_file():
        return f"there is no {breakage.file}"
    text = path.read_text(encoding="utf-8")
    if (count := text.count(breakage.old)) != 1:
        return f"the old text occurs {count} times in {breakage.file}"
    try:
        compile(text.replace(breakage.old, breakage.new), breakage.file, "exec")
    except SyntaxError as error:
        return f"the broken {breakage.file} does not compile: {error}"
    for selection in breakage.tests:
        if not (root / _split(selection)[0].partition("::")[0]).exists():
            return f"there is no {selection}"
    return ""


def _split(selection: str) -> list[str]:
    """``FILE``, ``FILE::TEST``, or one of these with ``-k`` and words."""
    return shlex.split(selection)


# ----------------------------------------------------------- what the runs of pytest are told
# This module is also a plugin of the pytest it runs: it picks the tests, and notes what they do.


@dataclass(frozen=True)
class Request:
    """What a run of pytest is for; it reads this from a file.

    Args:
        selections: the tests, as entries name them.
        only: the ids of those to run; otherwise all that are selected.
    """

    selections: tuple[str, ...]
    only: tuple[str, ...] | None = None

    def files(self) -> list[str]:
        """Files alone: one name that is not there would end a run of all the others."""
        return sorted({_split(name)[0].partition("::")[0] for name in self.selections})


def pytest_collection_modifyitems(config, items) -> None:
    request = Request(**json.loads(os.environ[REQUEST]))
    chosen = {}
    for selection in request.selections:
        found = [item for item in items if is_selected(item, selection)]
        chosen.update((item.nodeid, item) for item in found)
        if not found:
            _note("missing", selection)
    if request.only is not None:
        chosen = {test: item for test, item in chosen.items() if test in request.only}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = chosen.values()


def is_selected(item, selection: str) -> bool:
    """Whether ``FILE``, ``FILE::TEST`` or ``FILE::TEST -k WORDS`` means a test."""
    name, *options = _split(selection)
    if item.nodeid != name and not item.nodeid.startswith((f"{name}::", f"{name}[")):
        return False
    if not options:
        return True
    return _has_words(item, options[1])


def _has_words(item, expression: str) -> bool:
    names = "\n".join(node.name for node in item.listchain() if ".py" in node.nodeid).casefold()

    def found(word: re.Match[str]) -> str:
        text = word.group()
        return text if text in ("and", "or", "not") else str(text.casefold() in names)

    return bool(eval(re.sub(r"[^\s()]+", found, expression)))  # "True and not False"


def pytest_runtest_logreport(report) -> None:
    if report.passed and report.when != "call":
        return
    _note(report.outcome, report.nodeid)
    if report.failed and "pytest-timeout" in report.longreprtext:
        _note("timed_out", report.nodeid)


def _note(kind: str, text: str) -> None:
    with open(os.environ[OUTCOMES], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps([kind, text]) + "\n")


# ------------------------------------------------------------------------- one run of pytest


@dataclass
class Outcomes:
    """What a run of pytest came to: test ids, selections that mean no test, and its output."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    timed_out: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    hung: bool = False
    output: str = ""


class Pytest:
    """Runs pytest in copies of the project; `stop` ends whatever is running."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(
        self, copy: Path, request: Request, *options: str, seconds: float | None = None
    ) -> Outcomes:
        with tempfile.TemporaryDirectory(prefix="breakages-") as directory:
            log = Path(directory, "outcomes")
            log.touch()
            told = {REQUEST: json.dumps(asdict(request)), OUTCOMES: str(log)}
            outcomes = self._run(copy, [*options, *request.files()], told, seconds)
            for line in log.read_text(encoding="utf-8").splitlines():
                kind, text = json.loads(line)
                getattr(outcomes, kind).append(text)
        return outcomes

    def _run(
        self, copy: Path, arguments: list[str], told: dict[str, str], seconds: float | None
    ) -> Outcomes:
        with self._lock:
            if self._stopped:
                return Outcomes(output="interrupted")
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *OPTIONS, *arguments],
                cwd=copy,
                env=environment(copy) | told,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # so that what the tests started ends with them
            )
            self._running.add(process)
        try:
            return Outcomes(output=process.communicate(timeout=seconds)[0])
        except subprocess.TimeoutExpired:
            _kill(process)
            return Outcomes(hung=True, output=process.communicate()[0])
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def environment(copy: Path) -> dict[str, str]:
    """The environment in which the copy is imported, by subprocesses too.

    An editable installation is an entry of site-packages: what PYTHONPATH names comes before.
    With CI hypothesis tries the same examples every time; the tests named are quick ones.
    """
    paths = os.pathsep.join((str(copy), str(copy / "tests")))
    return {**os.environ, "PYTHONPATH": paths, "CI": "1", "PYTEST_TIMEOUT": "120"}


# ------------------------------------------------------------------------------------ copies


@contextlib.contextmanager
def copies(root: Path, count: int) -> Iterator[list[Path]]:
    """Copies of a project, compiled files included; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="breakages-") as directory:
        found = [Path(directory, str(number), root.name) for number in range(count)]
        for copy in found:
            shutil.copytree(root, copy, ignore=NOT_COPIED, symlinks=True)
        yield found


@contextlib.contextmanager
def broken(breakage: Breakage, copy: Path) -> Iterator[None]:
    """Apply a breakage to a copy, and take it back."""
    path = copy / breakage.file
    text = path.read_text(encoding="utf-8")
    try:
        _write(path, text.replace(breakage.old, breakage.new))
        yield
    finally:
        _write(path, text)


def _write(path: Path, text: str) -> None:
    # Python takes a compiled file of the same size and second for the right one.
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------ trials


CAUGHT, SURVIVED, STALE, SKIPPED = "caught", "SURVIVED", "STALE", "skipped"


@dataclass(frozen=True)
class Verdict:
    """What became of a breakage, with the words for it.

    Args:
        outcome: one of the four.
        because: the words.
        output: pytest's.
        noticed_by: the id of the test that failed.
    """

    outcome: str
    because: str = ""
    output: str = ""
    noticed_by: str = ""


def attempt(pytest: Pytest, breakage: Breakage, copy: Path, seconds: float) -> Verdict:
    """Run an entry's tests with its breakage."""
    with broken(breakage, copy):
        outcomes = pytest.run(copy, Request(breakage.tests), "-x", seconds=seconds)
    if outcomes.failed:
        test = outcomes.failed[0]
        how = ", by its time-out" if outcomes.timed_out else ""
        return Verdict(CAUGHT, f"{test}{how}", noticed_by=test)
    if outcomes.hung:
        return Verdict(SURVIVED, "the tests hang, and none fails", outcomes.output)
    if outcomes.passed:
        return Verdict(SURVIVED, "no test failed", outcomes.output)
    if outcomes.skipped:
        return Verdict(SKIPPED, "its tests are skipped on this machine")
    return Verdict(STALE, "the tests cannot even be imported", outcomes.output)


def without_breakage(
    pytest: Pytest, copy: Path, tried: list[tuple[Breakage, Verdict]]
) -> Iterator[tuple[Breakage, Verdict]]:
    """Entries that prove nothing: a test that failed fails unbroken too, or there is none.

    One run for all of them, of the tests that have failed alone.
    """
    selections = sorted({name for breakage, _ in tried for name in breakage.tests})
    only = sorted({verdict.noticed_by for _, verdict in tried if verdict.noticed_by})
    outcomes = pytest.run(
        copy, Request(tuple(selections), tuple(only)), "--continue-on-collection-errors"
    )
    for breakage, verdict in tried:
        missing = [name for name in breakage.tests if name in outcomes.missing]
        if missing:
            yield breakage, Verdict(STALE, f"there is no such test: {missing[0]}", outcomes.output)
        elif verdict.noticed_by and verdict.noticed_by not in outcomes.passed:
            because = f"fails without the breakage too: {verdict.noticed_by}"
            yield breakage, Verdict(STALE, because, outcomes.output)


def try_all(
    root: Path, chosen: list[Breakage], *, jobs: int, seconds: float
) -> Iterator[tuple[Breakage, Verdict]]:
    """Try the entries, `jobs` at a time; gives them as they end, and at last what was wrong."""
    pytest, fitting = Pytest(), []
    for breakage in chosen:
        if why := stale(breakage, root):
            yield breakage, Verdict(STALE, why)
        else:
            fitting.append(breakage)
    with copies(root, jobs) as where, ThreadPoolExecutor(jobs) as pool:
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for copy in where:
            free.put(copy)

        def in_copy(work: Callable[[Path], _T]) -> Future[_T]:
            def run() -> _T:
                copy = free.get()
                try:
                    return work(copy)
                finally:
                    free.put(copy)

            return pool.submit(run)

        try:
            yield from _try_fitting(pytest, in_copy, fitting, jobs, seconds)
        finally:
            pytest.stop()
            pool.shutdown(cancel_futures=True)


def _try_fitting(
    pytest: Pytest,
    in_copy: Callable[[Callable[[Path], _T]], Future[_T]],
    fitting: list[Breakage],
    jobs: int,
    seconds: float,
) -> Iterator[tuple[Breakage, Verdict]]:
    tried = []
    runs = {
        in_copy(partial(attempt, pytest, breakage, seconds=seconds)): breakage
        for breakage in fitting
    }
    for run in as_completed(runs):
        tried.append((runs[run], run.result()))
        yield tried[-1]
    shares = [share for number in range(jobs) if (share := tried[number::jobs])]
    checks = [
        in_copy(lambda copy, share=share: list(without_breakage(pytest, copy, share)))
        for share in shares
    ]
    for check in as_completed(checks):
        yield from check.result()


# ------------------------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    """Try the entries asked for; 1 if one survives or no longer fits."""
    asked = _parser().parse_args(arguments)
    try:
        chosen = [entry for entry in load(ROOT) if _is_asked_for(entry, asked.names)]
    except TableError as error:
        print(error, file=sys.stderr)
        return 1
    if not chosen:
        print("no entry has such a name", file=sys.stderr)
        return 1
    started, verdicts = time.monotonic(), {}
    print(f"{len(chosen)} breakages; the tests that notice them run without them at last")
    tried = try_all(ROOT, chosen, jobs=min(asked.jobs, len(chosen)), seconds=asked.timeout)
    for breakage, verdict in tried:
        verdicts[breakage] = verdict
        words = f" ({verdict.because})" if verdict.because else ""
        count = f"[{len(verdicts)}/{len(chosen)}]"
        print(f"{count} {verdict.outcome} {breakage}{words}", flush=True)
        if asked.verbose and verdict.outcome in (SURVIVED, STALE):
            print(verdict.output)
    _print_summary(verdicts)
    print(f" in {time.monotonic() - started:.0f} s")
    return 1 if any(one.outcome in (SURVIVED, STALE) for one in verdicts.values()) else 0


def _print_summary(verdicts: dict[Breakage, Verdict]) -> None:
    """What needs somebody's attention, and how many there are of each kind."""
    for breakage, verdict in verdicts.items():
        if verdict.outcome in (SURVIVED, STALE):
            print(f"{verdict.outcome} {breakage} ({verdict.because}): {', '.join(breakage.tests)}")
    counted = Counter(verdict.outcome for verdict in verdicts.values())
    counts = [f"{counted[name]} {word}" for name, word in _WORDS.items() if counted[name]]
    print(", ".join(counts), end="")


_WORDS = {CAUGHT: "caught", SURVIVED: "survived", STALE: "stale", SKIPPED: "skipped"}


def _is_asked_for(breakage: Breakage, names: list[str]) -> bool:
    text = str(breakage).casefold()
    return not names or any(name.casefold() in text for name in names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="breakages", description="Which breakages go unnoticed?")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="only entries with this in their area or sentence"
    )
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("-v", "--verbose", action="store_true", help="show pytest's output")
    parser.add_argument(
        "--timeout",
        type=float,
        default=SECONDS,
        metavar="SECONDS",
        help="for the tests of an entry",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
