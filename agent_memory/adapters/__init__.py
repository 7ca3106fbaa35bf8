"""Drop-in adapters: keep your framework and change one line.

Each module imports its framework, and nothing else does: import the one you need, such as
:mod:`agent_memory.adapters.openai_agents`, or take the name from here.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.adapters.agent_squad import (
        AgentSquadChatStorage,
        agent_squad_summarizer,
        from_agent_squad,
    )
    from agent_memory.adapters.langchain import AgentMemoryChatMessageHistory
    from agent_memory.adapters.openai_agents import AgentMemorySession
    from agent_memory.adapters.pydantic_ai import AgentMemoryHistory

    __all__ = [
        "AgentMemoryChatMessageHistory",
        "AgentMemoryHistory",
        "AgentMemorySession",
        "AgentSquadChatStorage",
        "agent_squad_summarizer",
        "from_agent_squad",
    ]


_MODULES = {
    "agent_memory.adapters.agent_squad": (
        "AgentSquadChatStorage",
        "agent_squad_summarizer",
        "from_agent_squad",
    ),
    "agent_memory.adapters.langchain": ("AgentMemoryChatMessageHistory",),
    "agent_memory.adapters.openai_agents": ("AgentMemorySession",),
    "agent_memory.adapters.pydantic_ai": ("AgentMemoryHistory",),
}

__getattr__, __dir__ = lazy_names(
    __name__,
    {name: module for module, names in _MODULES.items() for name in names},
    globals(),
    {
        "AgentMemoryChatMessageHistory": "langchain_core",
        "AgentMemoryHistory": "pydantic_ai",
        "AgentMemorySession": "agents",
        "AgentSquadChatStorage": "agent_squad",
        "agent_squad_summarizer": "agent_squad",
        "from_agent_squad": "agent_squad",
    },
)
