"""Fixtures of the tests of stores."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def sql_url(request, tmp_path):
    """The URL of a new SQL database, on each engine in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chats.db'}"
    return request.getfixturevalue(f"{request.param}_url")
