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
which the tests hang is caught only if a test fails by its own time-out (``--timeout 20`` after its
name sets one); when the limit for a whole entry (``seconds = 300`` sets another) ends the run, no
test has failed.

Most of a run of pytest used to be imports. So one process imports the packages that
``tests/breakages/preload.txt`` names, and is forked for each run; of the project it imports
nothing. The servers that tests ask for are started once for each copy.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import gc
import importlib
import importlib.util
import multiprocessing
import os
import queue
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path("tests", "breakages")
SECONDS, TEST_SECONDS = 120, 60  # for an entry, and for each of its tests
TIDYING_SECONDS = 10  # once a test has failed
# Rewritten asserts are for people: without them, test modules are compiled once for all runs.
# An entry may name tests that only `make matrix` runs; they need not repeat things as often.
OPTIONS = ["-q", "--tb=short", "--assert=plain", "-p", "no:cacheprovider"]
OPTIONS += ["-p", "no:langsmith_plugin", "--matrix", "--counts=test"]
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
    seconds: float | None = None  # the limit for its tests, where they need another

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
            found = Breakage(area=path.stem, **{**entry, "tests": tuple(entry["tests"])})
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
        if not (root / Selection.of(selection).file).exists():
            return f"there is no {selection}"
    return ""


# ---------------------------------------------------------------------- which tests are meant


@dataclass(frozen=True)
class Selection:
    """``FILE`` or ``FILE::TEST``, with ``-k WORDS`` and ``--timeout SECONDS`` if need be."""

    name: str
    words: str
    timeout: float | None

    @classmethod
    def of(cls, text: str) -> Selection:
        parser = argparse.ArgumentParser(prog=text, add_help=False)
        parser.add_argument("name")
        parser.add_argument("-k", dest="words", default="")
        parser.add_argument("--timeout", type=float)
        return cls(**vars(parser.parse_args(shlex.split(text))))

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]

    def means(self, item: pytest.Item) -> bool:
        name = item.nodeid
        if name != self.name and not name.startswith((f"{self.name}::", f"{self.name}[")):
            return False
        return not self.words or _has_words(item, self.words)


def _has_words(item: pytest.Item, expression: str) -> bool:
    names = "\n".join(node.name for node in item.listchain() if ".py" in node.nodeid).casefold()

    def found(word: re.Match[str]) -> str:
        text = word.group()
        return text if text in ("and", "or", "not") else str(text.casefold() in names)

    return bool(eval(re.sub(r"[^\s()]+", found, expression)))  # "True and not False"


@dataclass(frozen=True)
class Request:
    """What a run of pytest is for.

    Args:
        selections: the tests, as entries name them.
        only: the ids of those to run; otherwise all that are selected.
    """

    selections: tuple[str, ...]
    only: tuple[str, ...] | None = None

    def files(self) -> list[str]:
        """Files alone: one name that is not there would end a run of all the others."""
        return sorted({Selection.of(text).file for text in self.selections})


# ------------------------------------------------------------------------- in a forked process


class Plugin:
    """Picks the tests in a run of pytest, and tells the command what they do."""

    def __init__(self, request: Request, command: Connection) -> None:
        self._request = request
        self._command = command

    def pytest_sessionstart(self) -> None:
        """Let hypothesis find an example that fails; making it short may take minutes."""
        if hypothesis := sys.modules.get("hypothesis"):
            phases = set(hypothesis.Phase) - {hypothesis.Phase.shrink, hypothesis.Phase.explain}
            hypothesis.settings.register_profile("breakages", phases=phases)
            hypothesis.settings.load_profile("breakages")

    def pytest_collection_modifyitems(self, config, items) -> None:
        chosen = {}
        for text in self._request.selections:
            selection = Selection.of(text)
            found = [item for item in items if selection.means(item)]
            chosen.update((item.nodeid, item) for item in found)
            if not found:
                self._command.send(("missing", text))
            if selection.timeout is not None:
                for item in found:
                    item.add_marker(pytest.mark.timeout(selection.timeout))
        if (only := self._request.only) is not None:
            chosen = {test: item for test, item in chosen.items() if test in only}
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in chosen])
        items[:] = chosen.values()

    def pytest_runtest_logreport(self, report) -> None:
        if report.passed and report.when != "call":
            return
        self._command.send((report.outcome, report.nodeid))
        if report.failed and (limit := _TIMEOUT.search(report.longreprtext)):
            self._command.send(("timed_out", limit.group(1)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef, request) -> None:
        """Give the URL of a server that runs already in place of starting one."""
        if fixturedef.argname in ENGINES:
            self._command.send(("engine", fixturedef.argname))
            if url := self._command.recv():
                fixturedef.func = lambda **_needed: url


_TIMEOUT = re.compile(r"Timeout \(>([\d.]+)s\) from pytest-timeout")


def run_pytest(
    copy: Path, arguments: list[str], request: Request, command: Connection, output: str
) -> None:
    """Be ``python -m pytest`` in a copy of the project; what a forked process does."""
    os.setsid()  # so that what the tests start ends with them
    with Path(output).open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(copy)
    os.environ.update(environment(copy))
    sys.dont_write_bytecode = True
    here, paths = str(Path(__file__).parent), [str(copy), str(copy / "tests")]
    sys.path[:] = paths + [path for path in sys.path if path != here]
    sys.argv[:] = ["pytest", *arguments]
    if project := _modules_of(ROOT):
        raise RuntimeError(f"of the project itself nothing may be preloaded: {project}")
    gc.freeze()  # pytest and some tests collect garbage: none of it is among what was preloaded
    code = pytest.main(arguments, plugins=[Plugin(request, command)])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # no test waits for what a breakage has left running


def _modules_of(root: Path) -> list[str]:
    """The modules of the project that are imported, besides this one."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [
        name
        for name, file in files.items()
        if file and file != __file__ and Path(file).is_relative_to(root)
        if "site-packages" not in file
    ]


def environment(copy: Path) -> dict[str, str]:
    """The environment in which the copy is imported, by subprocesses too.

    An editable installation is an entry of site-packages: what PYTHONPATH names comes before.
    With CI hypothesis tries the same examples every time; the tests named are quick ones. Nothing
    is compiled to a file: Python takes one of the same size and second for the right one.
    """
    return {
        "PYTHONPATH": os.pathsep.join((str(copy), str(copy / "tests"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_TIMEOUT": str(TEST_SECONDS),
        "CI": "1",
    }


# ------------------------------------------------------------------------- one run of pytest


@dataclass
class Outcomes:
    """What a run of pytest came to: test ids, selections that mean no test, and its output.

    Args:
        timed_out: the limits that ended a test.
        hung: the limit for all of them ended the run.
    """

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    timed_out: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    hung: bool = False
    output: str = ""


ENGINES = {
    "postgres_server": "engines.started_postgres",
    "mariadb_server": "engines.started_mariadb",
    "moto_endpoint": "emulators.started_moto",
    "dynalite_endpoint": "emulators.started_dynalite",
}
"""The fixtures that start a server, and the functions with which they do."""


class Engines:
    """The servers that the runs in one copy share, each started when a test first needs it.

    Tests make databases and tables of their own; a run that is killed leaves some of them.
    """

    def __init__(self) -> None:
        self._started = contextlib.ExitStack()
        self._urls: dict[str, str] = {}

    def url(self, fixture: str) -> str:
        """The URL of a server; empty if the fixture has to say what is missing."""
        if fixture not in self._urls:
            self._urls[fixture] = self._start(*ENGINES[fixture].split("."))
        return self._urls[fixture]

    def _start(self, module: str, function: str) -> str:
        start = getattr(importlib.import_module(module), function)
        try:
            return self._started.enter_context(start())
        except importlib.import_module("servers").EngineMissingError:
            return ""

    def close(self) -> None:
        """Stop them; the next run that needs one gets a new one."""
        self._started.close()
        self._urls.clear()


@dataclass
class Place:
    """A copy of the project, in which one run goes on at a time."""

    copy: Path
    engines: Engines = field(default_factory=Engines)


class Pytest:
    """Runs pytest in copies of the project; `stop` ends whatever is running."""

    def __init__(self, preloaded: list[str]) -> None:
        # The server has one thread, as what is forked must.
        self._server = multiprocessing.get_context("forkserver")
        self._server.set_forkserver_preload(["__main__", *preloaded])
        self._running: set[BaseProcess] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(
        self, place: Place, request: Request, *options: str, seconds: float | None = None
    ) -> Outcomes:
        with tempfile.TemporaryDirectory(prefix="breakages-") as directory:
            output = Path(directory, "output")
            output.touch()
            arguments = [*OPTIONS, f"--basetemp={directory}/files", *options, *request.files()]
            ours, theirs = self._server.Pipe()
            process = self._server.Process(
                target=run_pytest, args=(place.copy, arguments, request, theirs, str(output))
            )
            with ours:
                with theirs:
                    if not self._start(process):
                        return Outcomes(output="interrupted")
                outcomes = self._listen(process, ours, place.engines, seconds)
            outcomes.output = output.read_text(encoding="utf-8", errors="replace")
            return outcomes

    def _start(self, process: BaseProcess) -> bool:
        with self._lock:
            if not self._stopped:
                process.start()
                self._running.add(process)
            return not self._stopped

    def _listen(
        self, process: BaseProcess, run: Connection, engines: Engines, seconds: float | None
    ) -> Outcomes:
        """Note what a run tells until it ends."""
        outcomes, begun, waiting = Outcomes(), time.monotonic(), [run, process.sentinel]
        while True:
            left = None if seconds is None else max(0.0, begun + seconds - time.monotonic())
            ready = wait(waiting, left)
            if run in ready:
                try:
                    kind, text = run.recv()
                except (EOFError, ConnectionResetError):  # its end is near
                    waiting.remove(run)
                    continue
                if kind == "engine":
                    asked = time.monotonic()
                    run.send(engines.url(text))
                    begun += time.monotonic() - asked
                else:
                    getattr(outcomes, kind).append(text)
                if kind == "failed" and seconds is not None:  # all there is to know
                    begun = min(begun, time.monotonic() - seconds + TIDYING_SECONDS)
            elif not ready:
                outcomes.hung = True
                _kill(process)
                engines.close()  # who knows what was done to them
                break
            else:
                break
        process.join()
        self._running.discard(process)
        return outcomes

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: BaseProcess) -> None:
    process.kill()  # before it has a group of its own, too
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)


# ------------------------------------------------------------------------------------ copies


@contextlib.contextmanager
def copies(root: Path, count: int) -> Iterator[list[Path]]:
    """Copies of a project, all of it compiled; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="breakages-") as directory:
        found = [Path(directory, str(number), root.name) for number in range(count)]
        for copy, source in zip(found, [root, *found], strict=False):
            shutil.copytree(source, copy, ignore=NOT_COPIED, symlinks=True)
            compileall.compile_dir(copy, quiet=2)  # what is compiled already is kept
        yield found


@contextlib.contextmanager
def broken(breakage: Breakage, copy: Path) -> Iterator[None]:
    """Apply a breakage to a copy, and take it back.

    The file and what is compiled of it are put aside, and come back with the times they had.
    """
    path, aside = copy / breakage.file, copy.parent / "aside"
    compiled, compiled_aside = Path(importlib.util.cache_from_source(str(path))), aside / "pyc"
    aside.mkdir(exist_ok=True)
    text = path.read_text(encoding="utf-8")
    path.rename(aside / "py")
    compiled.rename(compiled_aside)
    try:
        path.write_text(text.replace(breakage.old, breakage.new), encoding="utf-8")
        yield
    finally:
        compiled_aside.replace(compiled)
        (aside / "py").replace(path)


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


def attempt(runs: Pytest, breakage: Breakage, place: Place, seconds: float) -> Verdict:
    """Run an entry's tests with its breakage."""
    seconds = breakage.seconds or seconds
    with broken(breakage, place.copy):
        outcomes = runs.run(place, Request(breakage.tests), "-x", seconds=seconds)
    if outcomes.failed:
        test = outcomes.failed[0]
        how = f", by its time-out of {outcomes.timed_out[0]} s" if outcomes.timed_out else ""
        return Verdict(CAUGHT, f"{test}{how}", noticed_by=test)
    if outcomes.hung:
        why = f"the tests hang, and none fails before the {seconds:g} s for an entry are over"
        return Verdict(SURVIVED, why, outcomes.output)
    if outcomes.passed:
        return Verdict(SURVIVED, "no test failed", outcomes.output)
    if outcomes.skipped:
        return Verdict(SKIPPED, "its tests are skipped on this machine")
    return Verdict(STALE, "the tests cannot even be imported", outcomes.output)


def without_breakage(
    runs: Pytest, place: Place, tried: list[tuple[Breakage, Verdict]]
) -> Iterator[tuple[Breakage, Verdict]]:
    """Entries that prove nothing: a test that failed fails unbroken too, or there is none.

    One run for all of them, of the tests that have failed alone.
    """
    selections = sorted({name for breakage, _ in tried for name in breakage.tests})
    only = sorted({verdict.noticed_by for _, verdict in tried if verdict.noticed_by})
    outcomes = runs.run(
        place, Request(tuple(selections), tuple(only)), "--continue-on-collection-errors"
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
    runs, fitting = Pytest(preloaded(root)), []
    for breakage in chosen:
        if why := stale(breakage, root):
            yield breakage, Verdict(STALE, why)
        else:
            fitting.append(breakage)
    with (
        contextlib.ExitStack() as engines,
        copies(root, jobs) as where,
        ThreadPoolExecutor(jobs) as pool,
    ):
        free: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for copy in where:
            place = Place(copy)
            engines.callback(place.engines.close)
            free.put(place)

        def in_place(work: Callable[[Place], _T]) -> Future[_T]:
            def run() -> _T:
                place = free.get()
                try:
                    return work(place)
                finally:
                    free.put(place)

            return pool.submit(run)

        try:
            yield from _try_fitting(runs, in_place, fitting, jobs, seconds)
        finally:
            runs.stop()
            pool.shutdown(cancel_futures=True)


def preloaded(root: Path) -> list[str]:
    """The packages that every run of pytest finds imported; those that are not there do not."""
    path = root / TABLES / "preload.txt"
    return ["pytest", *(path.read_text(encoding="utf-8").split() if path.exists() else ())]


def _try_fitting(
    runs: Pytest,
    in_place: Callable[[Callable[[Place], _T]], Future[_T]],
    fitting: list[Breakage],
    jobs: int,
    seconds: float,
) -> Iterator[tuple[Breakage, Verdict]]:
    tried = []
    trials = {
        in_place(partial(attempt, runs, breakage, seconds=seconds)): breakage
        for breakage in fitting
    }
    for trial in as_completed(trials):
        tried.append((trials[trial], trial.result()))
        yield tried[-1]
    shares = [share for number in range(jobs) if (share := tried[number::jobs])]
    checks = [
        in_place(lambda place, share=share: list(without_breakage(runs, place, share)))
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
        count = f"[{len(verdicts)}/{len(chosen)}, {time.monotonic() - started:.0f} s]"
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
