"""What users may import, and from where: the top of the package, and one home for the rest."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import agent_memory
import agent_memory.storage

ROOT = Path(agent_memory.__file__).parents[1]
API_PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")

# What users write first. A name is added for a reason, and not taken away without a warning.
TOP = {
    *("ChatStorage", "InMemoryChatStorage", "FileChatStorage", "SqlChatStorage"),
    *("DynamoDbChatStorage", "open_storage"),
    *("SummarizingChatStorage", "TransformingChatStorage", "SyncChatStorage"),
    *("WrapperChatStorage", "SummarizingOptions"),
    *("ConversationManager", "ConversationRun"),
    *("ConversationMessage", "ChatKey", "ParticipantRole", "Usage", "Provider"),
    *("LogSlice", "Note", "ChatInfo", "SummaryRecord"),
    *("Summarizer", "SummaryResult", "ExtractiveSummarizer", "LLMSummarizer"),
    *("SlidingWindowSummarizer", "ChatModel", "OpenAIChatModel"),
    *("AgentMemoryError", "InvalidRequestError", "StorageError", "StorageConflictError"),
    *("StorageUnavailableError", "SummarizerError"),
}
# Names that were at the top in 0.1, and the homes that the warning names.
MOVED = {
    **dict.fromkeys(
        ("attribute_senders", "attribute_to_agents", "filter_messages"), "agent_memory.attribution"
    ),
    "ThreadInfo": "agent_memory.conversation",
    **dict.fromkeys(
        (
            *("CorruptedRecordError", "InvalidSummaryError", "MessageTooLargeError"),
            *("MissingDependencyError", "StorageClosedError", "SummarizerTimeoutError"),
        ),
        "agent_memory.errors",
    ),
    **dict.fromkeys(
        (
            *("Activated", "Compacted", "CompactionFailed", "CompactionRequest"),
            *("CompactionSkipped", "Event", "Evicted"),
        ),
        "agent_memory.events",
    ),
    "Explanation": "agent_memory.explaining",
    "fit_to_tokens": "agent_memory.fitting",
    "Completion": "agent_memory.models",
    "Covered": "agent_memory.log",
    "SummaryStore": "agent_memory.storage",
    **dict.fromkeys(
        ("HeuristicTokenCounter", "TiktokenCounter", "TokenCounter"), "agent_memory.tokens"
    ),
    "split_recent": "agent_memory.turns",
}
# The modules that the API reference lists as a whole; adapters are looked at beside their
# frameworks, in tests/adapters.
HOMES = [
    name
    for name in re.findall(r"^::: (\S+)$(?!\n    options)", API_PAGE, re.MULTILINE)
    if name.rpartition(".")[2].islower()
    and name != "agent_memory.open_storage"
    and not name.startswith("agent_memory.adapters.")
]


def test_the_top_has_what_programs_import_first():
    """A name more is a name that every newcomer reads."""
    assert set(agent_memory.__all__) == TOP | {"__version__"}
    assert len(TOP) <= 36


def test_the_reference_lists_the_top():
    """Its table and the package agree."""
    table = "\n".join(line for line in API_PAGE.splitlines() if line.startswith("| "))
    assert set(re.findall(r"`(\w+)`", table)) == TOP


@pytest.mark.parametrize("name", MOVED)
def test_a_name_that_left_the_top_still_resolves(name):
    """Programs written for 0.1 run, and are told of the new home, where they import it."""
    home = MOVED[name]
    with pytest.warns(DeprecationWarning, match=rf"`from {home} import {name}`") as caught:
        value = getattr(agent_memory, name)
    assert value is getattr(importlib.import_module(home), name)
    assert caught[0].filename == __file__
    assert name in importlib.import_module(home).__all__
    assert name not in agent_memory.__all__
    assert name not in dir(agent_memory)


def test_the_summarizing_store_left_the_package_of_stores():
    """It is built on them."""
    with pytest.warns(DeprecationWarning, match="from agent_memory.summarizing import"):
        assert agent_memory.storage.SummarizingChatStorage is agent_memory.SummarizingChatStorage


def test_an_import_of_a_moved_name_is_warned_of_in_each_program():
    """The warning points at the line that imports, and a second module is warned as well."""
    program = "from agent_memory import StorageClosedError\n"
    for name in ("first.py", "second.py"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            exec(compile(program, name, "exec"), {"__name__": name})
        assert {(warning.filename, warning.lineno) for warning in caught} == {(name, 1)}


@pytest.mark.parametrize("home", HOMES)
def test_a_home_says_what_is_public(home):
    """Each module of the reference has an `__all__` of names that are there."""
    module = importlib.import_module(home)
    names = module.__all__
    assert sorted(names) == list(names)
    assert all(getattr(module, name) is not None for name in names)


def test_a_public_name_has_one_home():
    """No two modules of the reference offer one name: where to import it from is no question."""
    homes: dict[str, list[str]] = {}
    for home in HOMES:
        for name in importlib.import_module(home).__all__:
            homes.setdefault(name, []).append(home)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_all_of_it_can_be_imported_with_a_star():
    """`import *` warns of nothing: no moved name is among them."""
    program = "from agent_memory import *\nprint(len(dir()))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
