"""The watch for what tests leave behind sees threads, descriptors and tasks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest

import leaks


def test_a_thread_that_goes_on_is_noticed(monkeypatch):
    """By its name, for as long as it runs."""
    monkeypatch.setattr(leaks, "_PATIENCE_SECONDS", 0)
    before, may_end = leaks.Snapshot.now(), threading.Event()
    thread = threading.Thread(target=may_end.wait, name="left behind")
    thread.start()
    assert before.left_over() == ["thread 'left behind'"]
    may_end.set()
    thread.join()
    assert before.left_over() == []


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are listed in /proc")
def test_an_open_descriptor_is_noticed(tmp_path, monkeypatch):
    """By what it is of, until it is closed."""
    monkeypatch.setattr(leaks, "_PATIENCE_SECONDS", 0)
    before = leaks.Snapshot.now()
    number = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    assert before.left_over() == [f"descriptor {number}: {tmp_path / 'file'}"]
    os.close(number)
    assert before.left_over() == []


def test_a_task_that_a_loops_end_cancels_is_noticed():
    """Each by its repr; tasks that were waited for are not."""

    async def forgetful():
        forgotten = asyncio.ensure_future(asyncio.Event().wait())
        await asyncio.ensure_future(asyncio.sleep(0))
        return forgotten

    asyncio.run(forgetful())
    (found,) = leaks.abandoned
    leaks.abandoned.clear()
    assert "Event.wait" in found
