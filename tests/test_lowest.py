"""The lowest versions that pyproject.toml allows, in an environment of their own."""

from __future__ import annotations

import re
import subprocess

import pytest

from engines import missing
from environments import LOWEST, ROOT, is_ready, lowest_of, python_of, requirements_of
from servers import EngineMissingError

# What meets each dependency: attrs everywhere, the drivers, the models, the command, telemetry.
TESTS = [
    "tests/storage/test_in_memory.py",
    "tests/storage/file/test_file.py",
    "tests/storage/test_sql_contract.py",
    "tests/storage/dynamodb/test_dynamodb_contract.py",
    "tests/summarizing/test_cases_summarizers.py",
    "tests/summarizing/test_cases_stores.py",
    "tests/summarizers",
    "tests/cli/test_audit.py",
    "tests/providers/test_sdk_objects.py",
    "tests/test_messages.py",
    "tests/test_telemetry.py",
    "tests/test_tokens.py",
]


def test_the_lowest_version_is_that_of_the_bound():
    """Extras stay, upper bounds go, and a requirement without a lower bound is a mistake."""
    wanted = ["attrs>=24.1", "sqlalchemy[asyncio]>=2.0.30,<2.2"]
    assert lowest_of(wanted) == ["attrs==24.1", "sqlalchemy[asyncio]==2.0.30"]
    with pytest.raises(ValueError, match="no lower bound"):
        lowest_of(["openai<4"])


def test_each_dependency_of_users_has_its_lowest_version():
    """Those of every extra without a framework are pinned; the tests' own tools are not."""
    pins = [pin for pin in requirements_of(LOWEST) if "==" in pin]
    packages = {pin.partition("==")[0].partition("[")[0] for pin in pins}
    assert {"attrs", "sqlalchemy", "aioboto3", "openai", "typer", "pytest"} <= packages
    assert packages.isdisjoint({"moto", "flask", "fastapi", "agent-memory-storage"})


def test_the_page_states_the_bounds_that_are_tested():
    """What getting_started.md says of a package begins at its lower bound."""
    page = (ROOT / "docs" / "getting_started.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"([a-z][\w-]+) ([\d.]+) to [\d.]+", page))
    pins = [pin for pin in requirements_of(LOWEST) if "==" in pin]
    wanted = dict(re.sub(r"\[\w+\]", "", pin).split("==") for pin in pins)
    assert stated == wanted


@pytest.mark.matrix
@pytest.mark.timeout(3600)
def test_the_lowest_versions_do():
    """The stores, the summarizers and the command work with them."""
    if not is_ready(LOWEST):
        missing(EngineMissingError(f"no environment {LOWEST}: run `make lowest`"))
    command = [str(python_of(LOWEST)), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
