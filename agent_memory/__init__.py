"""Chat storage for AI agents: every raw message kept, a short view for the model.

Names are imported when they are first used, so that ``import agent_memory`` stays quick and
loads no optional dependency.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names
from agent_memory._version import __version__

if TYPE_CHECKING:
    from agent_memory.errors import (
        AgentMemoryError,
        CorruptedRecordError,
        InvalidRequestError,
        InvalidSummaryError,
        MessageTooLargeError,
        MissingDependencyError,
        StorageClosedError,
        StorageConflictError,
        StorageError,
        StorageUnavailableError,
        SummarizerError,
        SummarizerTimeoutError,
    )
    from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole, Usage
    from agent_memory.records import ChatInfo, Covered, LogSlice, Note, SummaryRecord
    from agent_memory.storage.base import ChatStorage
    from agent_memory.storage.dynamodb import DynamoDbChatStorage
    from agent_memory.storage.file import FileChatStorage
    from agent_memory.storage.in_memory import InMemoryChatStorage
    from agent_memory.storage.sql import SqlChatStorage
    from agent_memory.storage.summarizing import SummarizingChatStorage
    from agent_memory.storage.summary_store import SummaryStore
    from agent_memory.storage.sync import SyncChatStorage
    from agent_memory.storage.transforming import TransformingChatStorage
    from agent_memory.storage.urls import open_storage
    from agent_memory.storage.wrapper import WrapperChatStorage

__all__ = [
    "AgentMemoryError",
    "ChatInfo",
    "ChatKey",
    "ChatStorage",
    "ConversationMessage",
    "CorruptedRecordError",
    "Covered",
    "DynamoDbChatStorage",
    "FileChatStorage",
    "InMemoryChatStorage",
    "InvalidRequestError",
    "InvalidSummaryError",
    "LogSlice",
    "MessageTooLargeError",
    "MissingDependencyError",
    "Note",
    "ParticipantRole",
    "SqlChatStorage",
    "StorageClosedError",
    "StorageConflictError",
    "StorageError",
    "StorageUnavailableError",
    "SummarizerError",
    "SummarizerTimeoutError",
    "SummarizingChatStorage",
    "SummaryRecord",
    "SummaryStore",
    "SyncChatStorage",
    "TransformingChatStorage",
    "Usage",
    "WrapperChatStorage",
    "__version__",
    "open_storage",
]

_MODULES = {
    "agent_memory.errors": (
        "AgentMemoryError",
        "CorruptedRecordError",
        "InvalidRequestError",
        "InvalidSummaryError",
        "MessageTooLargeError",
        "MissingDependencyError",
        "StorageClosedError",
        "StorageConflictError",
        "StorageError",
        "StorageUnavailableError",
        "SummarizerError",
        "SummarizerTimeoutError",
    ),
    "agent_memory.messages": ("ChatKey", "ConversationMessage", "ParticipantRole", "Usage"),
    "agent_memory.records": ("ChatInfo", "Covered", "LogSlice", "Note", "SummaryRecord"),
    "agent_memory.storage.base": ("ChatStorage",),
    "agent_memory.storage.dynamodb": ("DynamoDbChatStorage",),
    "agent_memory.storage.file": ("FileChatStorage",),
    "agent_memory.storage.in_memory": ("InMemoryChatStorage",),
    "agent_memory.storage.sql": ("SqlChatStorage",),
    "agent_memory.storage.summarizing": ("SummarizingChatStorage",),
    "agent_memory.storage.summary_store": ("SummaryStore",),
    "agent_memory.storage.sync": ("SyncChatStorage",),
    "agent_memory.storage.transforming": ("TransformingChatStorage",),
    "agent_memory.storage.urls": ("open_storage",),
    "agent_memory.storage.wrapper": ("WrapperChatStorage",),
}

__getattr__, __dir__ = lazy_names(
    __name__, {name: module for module, names in _MODULES.items() for name in names}, globals()
)
