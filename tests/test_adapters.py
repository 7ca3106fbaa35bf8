"""Each adapter against its framework's published package, in an environment of its own."""

from __future__ import annotations

import subprocess

import pytest

from engines import missing
from environments import FRAMEWORKS, ROOT, is_ready, python_of
from servers import EngineMissingError

TESTS = ROOT / "tests" / "adapters"


def test_every_directory_of_tests_has_its_framework():
    """No adapter's tests are forgotten by the runner."""
    directories = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert directories == FRAMEWORKS.keys()


@pytest.mark.adapters
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_adapter_works_with_the_real_package(framework):
    """The framework's own tests pass; they run where nothing but it is installed."""
    if not is_ready(framework):
        missing(EngineMissingError(f"no environment for {framework}: run `make adapters`"))
    command = [str(python_of(framework)), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(TESTS / framework)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
