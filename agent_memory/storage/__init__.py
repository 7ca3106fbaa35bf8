"""Stores and wrappers; see :mod:`agent_memory.storage.base` for the contract."""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.storage.base import ChatStorage
    from agent_memory.storage.dynamodb import DynamoDbChatStorage
    from agent_memory.storage.file import FileChatStorage
    from agent_memory.storage.in_memory import InMemoryChatStorage
    from agent_memory.storage.sql import SqlChatStorage
    from agent_memory.storage.summaries import SummaryStore
    from agent_memory.storage.sync import SyncChatStorage
    from agent_memory.storage.transforming import TransformingChatStorage
    from agent_memory.storage.urls import open_storage
    from agent_memory.storage.wrapper import WrapperChatStorage

    __all__ = [
        "ChatStorage",
        "DynamoDbChatStorage",
        "FileChatStorage",
        "InMemoryChatStorage",
        "SqlChatStorage",
        "SummaryStore",
        "SyncChatStorage",
        "TransformingChatStorage",
        "WrapperChatStorage",
        "open_storage",
    ]


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ChatStorage": "agent_memory.storage.base",
        "DynamoDbChatStorage": "agent_memory.storage.dynamodb",
        "FileChatStorage": "agent_memory.storage.file",
        "InMemoryChatStorage": "agent_memory.storage.in_memory",
        "SqlChatStorage": "agent_memory.storage.sql",
        "SummaryStore": "agent_memory.storage.summaries",
        "SyncChatStorage": "agent_memory.storage.sync",
        "TransformingChatStorage": "agent_memory.storage.transforming",
        "WrapperChatStorage": "agent_memory.storage.wrapper",
        "open_storage": "agent_memory.storage.urls",
    },
    globals(),
    {"SqlChatStorage": "sqlalchemy"},
    moved={"SummarizingChatStorage": "agent_memory.summarizing"},
)
