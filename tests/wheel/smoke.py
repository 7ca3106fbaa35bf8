"""The installed wheel, without any extra: ``python smoke.py CHECKOUT``, away from the sources."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import sys
from pathlib import Path

import agent_memory
from agent_memory import ConversationMessage, InMemoryChatStorage, SummarizingChatStorage
from agent_memory.errors import MissingDependencyError
from agent_memory.testing import ScriptedSummarizer


async def short_view_of_a_long_chat() -> None:
    storage = SummarizingChatStorage(
        InMemoryChatStorage(), ScriptedSummarizer(), trigger_at=3, keep_last=1
    )
    async with storage:
        for number in range(20):
            role = "assistant" if number % 2 else "user"
            message = ConversationMessage(role, f"message {number}")
            await storage.save_chat_message("user", "session", "agent", message)
        assert len(await storage.fetch_chat("user", "session", "agent")) <= 7
        assert len(await storage.fetch_all_chats("user", "session")) == 20


def main(checkout: Path) -> None:
    package = Path(agent_memory.__file__).parent
    assert checkout not in package.parents, f"{package} is the checkout, not the wheel"
    assert (package / "py.typed").exists()
    metadata = importlib.metadata.metadata("agent-memory-storage")
    assert metadata["Version"] == agent_memory.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    files = [str(file) for file in importlib.metadata.files("agent-memory-storage") or ()]
    assert any(name.endswith("licenses/LICENSE") for name in files)
    assert not any(name.startswith(("tests", "benchmarks")) for name in files)
    asyncio.run(short_view_of_a_long_chat())
    assert "agent-memory-storage[testing]" in complaint_without_pytest()
    sys.stdout.write(f"agent_memory {agent_memory.__version__} works from {package}\n")


def complaint_without_pytest() -> str:
    try:
        importlib.import_module("agent_memory.testing.contract")
    except MissingDependencyError as error:
        return str(error)
    return "pytest is here: no clean environment"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
