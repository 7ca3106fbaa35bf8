"""The walk of one message, as docs/architecture.md tells it, against what is called."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import agent_memory
from agent_memory import ConversationMessage, InMemoryChatStorage, SummarizingChatStorage
from rig import IDS, dialogue

ROOT = Path(agent_memory.__file__).parent
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK = PAGE.partition("## One message")[2].partition("\n## ")[0]
MODULE = re.compile(r"`([\w/]+\.py)`")


@contextmanager
def crossed():
    """The files of the package whose functions are called meanwhile, in whichever thread."""
    files = set()

    def note(frame, event, _argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and ROOT in path.parents:
            files.add(path.relative_to(ROOT).as_posix())

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


# Made beforehand: to make a message is the application's step, none of a save.
SUMMARIES = [ConversationMessage("user", f"what was said, {number}") for number in range(4)]


def summarize(history, _keep_last):
    return [SUMMARIES.pop(), *history[-2:]]


@pytest.fixture
async def active():
    """A chat whose next message is summarized only after another one."""
    async with SummarizingChatStorage(InMemoryChatStorage(), summarize, 3, 1) as storage:
        await storage.save_chat_messages(*IDS, dialogue(9))
        await storage.fetch_chat(*IDS)
        await storage.save_chat_messages(*IDS, dialogue(2, start=10))
        yield storage


async def test_the_walk_names_every_file_that_a_message_crosses(active):
    """Without a summary, and with one; and no more files than the page says."""
    first, second = dialogue(1, start=12), dialogue(2, start=13)
    with crossed() as plain:
        await active.save_chat_messages(*IDS, first)
    assert len(await active.compaction_history(*IDS)) == 1
    with crossed() as compacting:
        await active.save_chat_messages(*IDS, second)
    assert len(await active.compaction_history(*IDS)) == 2
    # What a store does within its own package is told on the pages of stores.
    outside = {name for name in plain | compacting if not name.startswith("storage/")}
    assert outside - set(MODULE.findall(WALK)) == set()
    said = re.findall(r"That is (\d+) files|crosses (\d+) more", WALK)
    without_summary, with_one = (int("".join(numbers)) for numbers in said)
    assert len(plain) <= without_summary
    assert len(compacting - plain) <= with_one


def test_every_file_that_the_page_names_is_there():
    """A module that moved has moved on the page too."""
    assert [
        name
        for name in MODULE.findall(PAGE)
        if not (ROOT / name).exists() and not (ROOT.parent / name).exists()
    ] == []
