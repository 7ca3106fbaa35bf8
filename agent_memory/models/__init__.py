"""Language models that summarizers may use; see :mod:`agent_memory.models.chat_model`."""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.models.chat_model import ChatModel, Completion, ModelError
    from agent_memory.models.openai import OpenAIChatModel

    __all__ = ["ChatModel", "Completion", "ModelError", "OpenAIChatModel"]


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ChatModel": "agent_memory.models.chat_model",
        "Completion": "agent_memory.models.chat_model",
        "ModelError": "agent_memory.models.chat_model",
        "OpenAIChatModel": "agent_memory.models.openai",
    },
    globals(),
    {"OpenAIChatModel": "openai"},
)
