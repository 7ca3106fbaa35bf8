"""Tests for a storage of your own, and doubles for code that uses one.

:class:`ChatStorageTests` is the contract as a pytest class (extra ``testing``)::

    class TestMyStorage(ChatStorageTests):
        @pytest.fixture
        def make_storage(self, tmp_path):
            return functools.partial(MyStorage, tmp_path / "chats")

The doubles need no pytest: :class:`SlowChatStorage`, :class:`FlakyChatStorage`,
:class:`GatedChatStorage`, :class:`CountingChatStorage` wrap any store, and
:class:`ScriptedSummarizer` stands in for a model.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.testing.contract import ChatStorageTests
    from agent_memory.testing.doubles import (
        CountingChatStorage,
        FlakyChatStorage,
        Gate,
        GatedChatStorage,
        SlowChatStorage,
    )
    from agent_memory.testing.scripted import (
        ScriptedSummarizer,
        SummarizerCall,
        blind_cut,
        witness_summary,
        witnessed,
    )

    __all__ = [
        "ChatStorageTests",
        "CountingChatStorage",
        "FlakyChatStorage",
        "Gate",
        "GatedChatStorage",
        "ScriptedSummarizer",
        "SlowChatStorage",
        "SummarizerCall",
        "blind_cut",
        "witness_summary",
        "witnessed",
    ]


_MODULES = {
    "agent_memory.testing.contract": ("ChatStorageTests",),
    "agent_memory.testing.doubles": (
        "CountingChatStorage",
        "FlakyChatStorage",
        "Gate",
        "GatedChatStorage",
        "SlowChatStorage",
    ),
    "agent_memory.testing.scripted": (
        "ScriptedSummarizer",
        "SummarizerCall",
        "blind_cut",
        "witness_summary",
        "witnessed",
    ),
}

__getattr__, __dir__ = lazy_names(
    __name__,
    {name: module for module, names in _MODULES.items() for name in names},
    globals(),
    {"ChatStorageTests": "pytest"},
)
