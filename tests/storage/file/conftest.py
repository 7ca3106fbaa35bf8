"""Fixtures of the file store's tests."""

from __future__ import annotations

import pytest
from file_support import log_of, run, saved, users


@pytest.fixture
def log(tmp_path):
    """A chat of four single saves."""
    run(saved(tmp_path, *([message] for message in users(4))))
    return log_of(tmp_path)
