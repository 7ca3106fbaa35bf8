"""Chat storage for AI agents: every raw message kept, a short view for the model.

Names are imported when they are first used, so that ``import agent_memory`` stays quick and
loads no optional dependency.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names
from agent_memory._version import __version__

if TYPE_CHECKING:
    from agent_memory.attribution import attribute_senders, attribute_to_agents, filter_messages
    from agent_memory.conversation import ConversationManager, ConversationRun, ThreadInfo
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
    from agent_memory.events import (
        Activated,
        Compacted,
        CompactionFailed,
        CompactionRequest,
        CompactionSkipped,
        Event,
        Evicted,
    )
    from agent_memory.explaining import Explanation
    from agent_memory.fitting import fit_to_tokens
    from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole, Usage
    from agent_memory.models.base import ChatModel, Completion
    from agent_memory.models.openai import OpenAIChatModel
    from agent_memory.records import ChatInfo, Covered, LogSlice, Note, SummaryRecord
    from agent_memory.storage.base import ChatStorage
    from agent_memory.storage.dynamodb import DynamoDbChatStorage
    from agent_memory.storage.file import FileChatStorage
    from agent_memory.storage.in_memory import InMemoryChatStorage
    from agent_memory.storage.sql import SqlChatStorage
    from agent_memory.storage.summary_store import SummaryStore
    from agent_memory.storage.sync import SyncChatStorage
    from agent_memory.storage.transforming import TransformingChatStorage
    from agent_memory.storage.urls import open_storage
    from agent_memory.storage.wrapper import WrapperChatStorage
    from agent_memory.summarizers.base import SummaryResult
    from agent_memory.summarizers.extractive import ExtractiveSummarizer
    from agent_memory.summarizers.llm import LLMSummarizer
    from agent_memory.summarizers.sliding_window import SlidingWindowSummarizer
    from agent_memory.summarizing import SummarizingChatStorage
    from agent_memory.tokens import HeuristicTokenCounter, TiktokenCounter, TokenCounter
    from agent_memory.turns import split_recent

    __all__ = [
        "Activated",
        "AgentMemoryError",
        "ChatInfo",
        "ChatKey",
        "ChatModel",
        "ChatStorage",
        "Compacted",
        "CompactionFailed",
        "CompactionRequest",
        "CompactionSkipped",
        "Completion",
        "ConversationManager",
        "ConversationMessage",
        "ConversationRun",
        "CorruptedRecordError",
        "Covered",
        "DynamoDbChatStorage",
        "Event",
        "Evicted",
        "Explanation",
        "ExtractiveSummarizer",
        "FileChatStorage",
        "HeuristicTokenCounter",
        "InMemoryChatStorage",
        "InvalidRequestError",
        "InvalidSummaryError",
        "LLMSummarizer",
        "LogSlice",
        "MessageTooLargeError",
        "MissingDependencyError",
        "Note",
        "OpenAIChatModel",
        "ParticipantRole",
        "SlidingWindowSummarizer",
        "SqlChatStorage",
        "StorageClosedError",
        "StorageConflictError",
        "StorageError",
        "StorageUnavailableError",
        "SummarizerError",
        "SummarizerTimeoutError",
        "SummarizingChatStorage",
        "SummaryRecord",
        "SummaryResult",
        "SummaryStore",
        "SyncChatStorage",
        "ThreadInfo",
        "TiktokenCounter",
        "TokenCounter",
        "TransformingChatStorage",
        "Usage",
        "WrapperChatStorage",
        "__version__",
        "attribute_senders",
        "attribute_to_agents",
        "filter_messages",
        "fit_to_tokens",
        "open_storage",
        "split_recent",
    ]


_MODULES = {
    "agent_memory.attribution": ("attribute_senders", "attribute_to_agents", "filter_messages"),
    "agent_memory.conversation": ("ConversationManager", "ConversationRun", "ThreadInfo"),
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
    "agent_memory.events": (
        "Activated",
        "Compacted",
        "CompactionFailed",
        "CompactionRequest",
        "CompactionSkipped",
        "Event",
        "Evicted",
    ),
    "agent_memory.explaining": ("Explanation",),
    "agent_memory.fitting": ("fit_to_tokens",),
    "agent_memory.messages": ("ChatKey", "ConversationMessage", "ParticipantRole", "Usage"),
    "agent_memory.models.base": ("ChatModel", "Completion"),
    "agent_memory.models.openai": ("OpenAIChatModel",),
    "agent_memory.records": ("ChatInfo", "Covered", "LogSlice", "Note", "SummaryRecord"),
    "agent_memory.storage.base": ("ChatStorage",),
    "agent_memory.storage.dynamodb": ("DynamoDbChatStorage",),
    "agent_memory.storage.file": ("FileChatStorage",),
    "agent_memory.storage.in_memory": ("InMemoryChatStorage",),
    "agent_memory.storage.sql": ("SqlChatStorage",),
    "agent_memory.summarizing": ("SummarizingChatStorage",),
    "agent_memory.storage.summary_store": ("SummaryStore",),
    "agent_memory.storage.sync": ("SyncChatStorage",),
    "agent_memory.storage.transforming": ("TransformingChatStorage",),
    "agent_memory.storage.urls": ("open_storage",),
    "agent_memory.storage.wrapper": ("WrapperChatStorage",),
    "agent_memory.summarizers.base": ("SummaryResult",),
    "agent_memory.summarizers.extractive": ("ExtractiveSummarizer",),
    "agent_memory.summarizers.llm": ("LLMSummarizer",),
    "agent_memory.summarizers.sliding_window": ("SlidingWindowSummarizer",),
    "agent_memory.tokens": ("HeuristicTokenCounter", "TiktokenCounter", "TokenCounter"),
    "agent_memory.turns": ("split_recent",),
}

__getattr__, __dir__ = lazy_names(
    __name__,
    {name: module for module, names in _MODULES.items() for name in names},
    globals(),
    {"OpenAIChatModel": "openai", "SqlChatStorage": "sqlalchemy"},
)
