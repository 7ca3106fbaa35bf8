"""Permissions bind root to nothing: tests of them go on as another user for a while."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

needs_permissions = pytest.mark.skipif(
    not hasattr(os, "geteuid"), reason="this system has no permissions of this kind"
)


@contextlib.contextmanager
def as_nobody(*paths: Path) -> Iterator[None]:
    """Run the block as somebody whom permissions bind, and who owns `paths`."""
    if os.geteuid() != 0:
        yield
        return
    import pwd  # noqa: PLC0415  (not on every system; used as root only)

    nobody = pwd.getpwnam("nobody")
    for path in paths:
        for below in (path, *path.rglob("*")):
            os.chown(below, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
    os.seteuid(nobody.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def directory_for_anybody() -> Iterator[Path]:
    """A directory that another user may enter: those above pytest's are its own user's alone."""
    path = Path(tempfile.mkdtemp(prefix="agent-memory-"))
    path.chmod(0o777)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
