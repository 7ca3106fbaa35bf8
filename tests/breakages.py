"""Deliberate breakages: applies each to a copy of the project; reports what no test notices.

``python tests/breakages.py`` reads ``tests/breakages/*.toml``. An entry replaces a text that
occurs once in a file, and names the few quick tests of which at least one must then fail:

    [[breakage]]
    what = "a torn tail is appended to"
    file = "agent_memory/storage/file/chat_log.py"
    old = '''exact text'''
    new = '''broken text'''
    tests = ["tests/storage/file/test_file.py::test_x", "tests/test_ids.py -k order"]

The checkout is never touched. The named tests run first on an unbroken copy: what fails there
proves nothing. A breakage under which the tests hang is caught only if a test fails by its own
time-out; when the limit for a whole entry ends the run, no test has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path("tests", "breakages")
OUTCOMES = "BREAKAGES_OUTCOMES"
SECONDS = 300
NOT_COPIED = shutil.ignore_patterns(".*", "dist", "build", "node_modules")


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
    return shlex.split(selection)


# ------------------------------------------------------------------------- one run of pytest


@dataclass
class Outcomes:
    """What a run of pytest came to: test ids, and its output."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    timed_out: bool = False
    hung: bool = False
    output: str = ""


def pytest_runtest_logreport(report) -> None:
    """Note each outcome in a file: this module is also a plugin of the pytest it runs."""
    if report.passed and report.when != "call":
        return
    timed_out = report.failed and "pytest-timeout" in report.longreprtext
    with open(os.environ[OUTCOMES], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps([report.outcome, report.nodeid, timed_out]) + "\n")


class Pytest:
    """Runs pytest in copies of the project; `stop` ends whatever is running."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, copy: Path, *arguments: str, seconds: float | None = None) -> Outcomes:
        with tempfile.TemporaryDirectory(prefix="breakages-") as directory:
            log = Path(directory, "outcomes")
            log.touch()
            outcomes = self._run(copy, arguments, log, seconds)
            for line in log.read_text(encoding="utf-8").splitlines():
                outcome, test, timed_out = json.loads(line)
                getattr(outcomes, outcome).append(test)
                outcomes.timed_out |= timed_out
        return outcomes

    def _run(
        self, copy: Path, arguments: tuple[str, ...], log: Path, seconds: float | None
    ) -> Outcomes:
        # Start-up dominates; langsmith comes with LangChain, and its plugin takes a second.
        options = ("-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin")
        with self._lock:
            if self._stopped:
                return Outcomes(output="interrupted")
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, "-p", "breakages", *arguments],
                cwd=copy,
                env=environment(copy) | {OUTCOMES: str(log)},
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
    return {**os.environ, "PYTHONPATH": paths, "CI": "1", "PYTEST_TIMEOUT": "60"}


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
    """What became of a breakage, with the words for it."""

    outcome: str
    because: str = ""
    output: str = ""


class Baseline:
    """What the named tests say about the unbroken project."""

    def __init__(self) -> None:
        self._found: dict[str, Outcomes] = {}

    def note(self, selection: str, outcomes: Outcomes) -> None:
        self._found[selection] = outcomes

    def trouble(self, breakage: Breakage) -> Verdict | None:
        """Why an entry is not worth a run: its tests fail unbroken, are none, or are skipped."""
        all_found = [(selection, self._found[selection]) for selection in breakage.tests]
        for selection, found in all_found:
            if found.failed or found.hung:
                return Verdict(STALE, f"fails without the breakage too: {selection}", found.output)
            if not found.passed and not found.skipped:
                return Verdict(STALE, f"there is no such test: {selection}", found.output)
        if not any(found.passed for _, found in all_found):
            return Verdict(SKIPPED, "its tests are skipped on this machine")
        return None


def take_baseline(
    pytest: Pytest, pool: ThreadPoolExecutor, where: list[Path], chosen: Iterable[Breakage]
) -> Baseline:
    """Run every named test once, in few runs: one a copy, and one for each ``-k``."""
    baseline = Baseline()
    selections = sorted({name for breakage in chosen for name in breakage.tests})
    plain = [name for name in selections if len(_split(name)) == 1]
    free = _queue(where)
    together = [plain[number :: len(where)] for number in range(len(where))]
    asked = [names for names in together if names]
    asked += [[name] for name in selections if len(_split(name)) > 1]
    runs = {pool.submit(_in_copy, free, _run_together(pytest, names)): names for names in asked}
    for run in as_completed(runs):
        for name, outcomes in run.result().items():
            baseline.note(name, outcomes)
    return baseline


def _run_together(pytest: Pytest, names: list[str]) -> Callable[[Path], dict[str, Outcomes]]:
    def run(copy: Path) -> dict[str, Outcomes]:
        outcomes = pytest.run(copy, *(part for name in names for part in _split(name)))
        if len(names) == 1:
            return {names[0]: outcomes}
        if outcomes.hung or not outcomes.passed + outcomes.failed + outcomes.skipped:
            # One name that pytest does not find ends the run of all of them.
            return {name: pytest.run(copy, *_split(name)) for name in names}
        return {name: _only(outcomes, _split(name)[0]) for name in names}

    return run


def _only(outcomes: Outcomes, name: str) -> Outcomes:
    def those(tests: list[str]) -> list[str]:
        return [
            test
            for test in tests
            if test == name or test.startswith((f"{name}::", f"{name}[", f"{name}/"))
        ]

    found = Outcomes(those(outcomes.passed), those(outcomes.failed), those(outcomes.skipped))
    found.output = outcomes.output if found.failed or not found.passed else ""
    return found


def attempt(pytest: Pytest, breakage: Breakage, copy: Path, seconds: float) -> Verdict:
    """Run an entry's tests with its breakage."""
    together = [_split(name)[0] for name in breakage.tests if len(_split(name)) == 1]
    others = [_split(name) for name in breakage.tests if len(_split(name)) > 1]
    verdict = Verdict(SURVIVED, "no test failed")
    with broken(breakage, copy):
        for arguments in ([together] if together else []) + others:
            outcomes = pytest.run(copy, "-x", *arguments, seconds=seconds)
            if outcomes.failed:
                how = ", by its time-out" if outcomes.timed_out else ""
                return Verdict(CAUGHT, f"{outcomes.failed[0]}{how}")
            if outcomes.hung:
                verdict = Verdict(SURVIVED, "the tests hang, and none fails", outcomes.output)
            elif not outcomes.passed + outcomes.skipped:
                return Verdict(STALE, "the tests cannot even be imported", outcomes.output)
    return verdict


def _queue(where: list[Path]) -> queue.SimpleQueue[Path]:
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for copy in where:
        free.put(copy)
    return free


def _in_copy(free: queue.SimpleQueue[Path], work):
    copy = free.get()
    try:
        return work(copy)
    finally:
        free.put(copy)


def try_all(
    root: Path, chosen: list[Breakage], *, jobs: int, seconds: float
) -> Iterator[tuple[Breakage, Verdict]]:
    """Try the entries, `jobs` at a time; gives them as they end."""
    pytest, fitting = Pytest(), []
    for breakage in chosen:
        if why := stale(breakage, root):
            yield breakage, Verdict(STALE, why)
        else:
            fitting.append(breakage)
    with copies(root, jobs) as where, ThreadPoolExecutor(jobs) as pool:
        try:
            yield from _try_fitting(pytest, pool, where, fitting, seconds)
        finally:
            pytest.stop()
            pool.shutdown(cancel_futures=True)


def _try_fitting(
    pytest: Pytest,
    pool: ThreadPoolExecutor,
    where: list[Path],
    fitting: list[Breakage],
    seconds: float,
) -> Iterator[tuple[Breakage, Verdict]]:
    baseline, free, runs = take_baseline(pytest, pool, where, fitting), _queue(where), {}
    for breakage in fitting:
        if trouble := baseline.trouble(breakage):
            yield breakage, trouble
        else:
            work = partial(attempt, pytest, breakage, seconds=seconds)
            runs[pool.submit(_in_copy, free, work)] = breakage
    for run in as_completed(runs):
        yield runs[run], run.result()


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
    started, verdicts = time.monotonic(), []
    print(f"{len(chosen)} breakages; first their tests without them", flush=True)
    tried = try_all(ROOT, chosen, jobs=min(asked.jobs, len(chosen)), seconds=asked.timeout)
    for number, (breakage, verdict) in enumerate(tried, start=1):
        verdicts.append(verdict)
        words = f" ({verdict.because})" if verdict.because else ""
        print(f"[{number}/{len(chosen)}] {verdict.outcome} {breakage}{words}", flush=True)
        if asked.verbose and verdict.outcome in (SURVIVED, STALE):
            print(verdict.output)
    counted = {name: sum(verdict.outcome == name for verdict in verdicts) for name in _WORDS}
    summary = ", ".join(f"{count} {_WORDS[name]}" for name, count in counted.items() if count)
    print(f"{summary} in {time.monotonic() - started:.0f} s")
    return 1 if counted[SURVIVED] or counted[STALE] else 0


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
