"""Language models that summarizers may use; see :mod:`agent_memory.models.base`."""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.models.base import ChatModel, Completion, ModelError
    from agent_memory.models.openai import OpenAIChatModel

    __all__ = ["ChatModel", "Completion", "ModelError", "OpenAIChatModel"]


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ChatModel": "agent_memory.models.base",
        "Completion": "agent_memory.models.base",
        "ModelError": "agent_memory.models.base",
        "OpenAIChatModel": "agent_memory.models.openai",
    },
    globals(),
    {"OpenAIChatModel": "openai"},
)
