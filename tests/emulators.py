"""Fixtures with emulators of DynamoDB: moto's server, and dynalite where node is present.

They are started, stopped and pointed elsewhere as the database servers are.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from engines import running_or_missing
from servers import (
    EngineMissingError,
    dynalite_command,
    free_port,
    private_directory,
    running,
)


@pytest.fixture(scope="session")
def botocore_data_read_once() -> Iterator[None]:
    """Each session of botocore parses a megabyte of JSON, four fifths of what a client costs."""
    from botocore.loaders import JSONFileLoader, Loader  # noqa: PLC0415 - for those who need it

    read, search = JSONFileLoader.load_file, Loader.list_available_services

    @functools.cache
    def load_once(path: str) -> object:
        return read(JSONFileLoader(), path)

    @functools.cache
    def search_once(paths: tuple[str, ...], kind: str) -> list[str]:
        return search(Loader(list(paths), include_default_search_paths=False), kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _self, path: load_once(path))
        patch.setattr(
            Loader,
            "list_available_services",
            lambda self, type_name: search_once(tuple(self.search_paths), type_name),
        )
        yield


@pytest.fixture(scope="session")
def aws_credentials(botocore_data_read_once: None) -> Iterator[None]:
    """Credentials that no AWS account knows, unless the environment has some."""
    invented = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    added = {name: value for name, value in invented.items() if name not in os.environ}
    os.environ.update(added)
    yield
    for name in added:
        os.environ.pop(name, None)


def answers(url: str) -> None:
    with contextlib.suppress(urllib.error.HTTPError):  # an error page is an answer
        urllib.request.urlopen(url, timeout=30).close()


# moto answers in threads and checks the condition of a write without a lock, so that two writers
# can both be told that they were first. A real table never does that.
_MOTO = """
import sys, threading
from moto import server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication as Application
answer, lock = Application.__call__, threading.Lock()
def one_at_a_time(*arguments):
    with lock:
        return answer(*arguments)
Application.__call__ = one_at_a_time
server.main(sys.argv[1:])
"""


@contextlib.contextmanager
def running_emulator(kind: str, command: list[str]) -> Iterator[str]:
    """Run an emulator on a free port; gives its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        private_directory(kind, "") as base,
        running(
            [part.format(port=port) for part in command],
            port,
            log=base / "server.log",
            ready=lambda: answers(url),
        ),
    ):
        yield url


@pytest.fixture(scope="session")
def moto_endpoint(aws_credentials: None) -> Iterator[str]:
    """The URL of moto's server, or of the DynamoDB that the environment names."""
    if url := os.environ.get("AGENT_MEMORY_TEST_DYNAMODB_ENDPOINT"):
        yield url
        return
    with started_moto() as url:
        yield url


def started_moto() -> contextlib.AbstractContextManager[str]:
    """Run moto's server; gives its URL."""
    return running_emulator(
        "moto", [sys.executable, "-c", _MOTO, "-H", "127.0.0.1", "-p", "{port}"]
    )


@pytest.fixture(scope="session")
def dynalite_endpoint(aws_credentials: None) -> Iterator[str]:
    """The URL of dynalite."""
    if "AGENT_MEMORY_TEST_DYNAMODB_ENDPOINT" in os.environ:
        pytest.skip("AGENT_MEMORY_TEST_DYNAMODB_ENDPOINT names one endpoint for all")
    yield from running_or_missing(started_dynalite)


def started_dynalite() -> contextlib.AbstractContextManager[str]:
    """Run dynalite; gives its URL.

    Raises:
        EngineMissingError: node or dynalite is not there.
    """
    at_once = ("--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0")
    return running_emulator(
        "dynalite", [*dynalite_command(), "--host", "127.0.0.1", "--port", "{port}", *at_once]
    )


def _quick_emulator() -> str:
    if "AGENT_MEMORY_TEST_DYNAMODB_ENDPOINT" in os.environ:
        return "moto"
    try:
        dynalite_command()
    except EngineMissingError:
        return "moto"
    return "dynalite"


QUICK = _quick_emulator()
"""The emulator for all tests: dynalite, which answers several times quicker, or else moto."""


def _emulator(name: str) -> object:
    # The other one runs what asks it to compare and swap, which emulators do in their own way.
    mark = pytest.mark.matrix(but="differs_by_engine", themes=["batches", "summary_records"])
    return pytest.param(name, marks=() if name == QUICK else mark)


@pytest.fixture(scope="session", params=[_emulator("moto"), _emulator("dynalite")])
def dynamodb_endpoint(request: pytest.FixtureRequest) -> str:
    """The URL of an emulator of DynamoDB, of each in turn."""
    return request.getfixturevalue(f"{request.param}_endpoint")


@pytest.fixture(scope="session")
def quick_dynamodb_endpoint(request: pytest.FixtureRequest) -> str:
    """The URL of the emulator that answers quicker."""
    return request.getfixturevalue(f"{QUICK}_endpoint")


@pytest.fixture
def dynamodb_table() -> str:
    """The name of a table that does not exist yet."""
    return f"test_{uuid.uuid4().hex}"
