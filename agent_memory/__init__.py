"""Chat storage for AI agents: every raw message kept, a short view for the model.

What most programs import first is here; every other public name has one home:
``agent_memory.errors``, ``.messages``, ``.log``, ``.events``, ``.storage``, ``.summarizing``,
``.summarizers``, ``.models``, ``.providers``, ``.conversation``, ``.tokens``, ``.turns``,
``.attribution``, ``.fitting``, ``.explaining``, ``.adapters``, ``.audit`` and ``.testing``.

Names are imported when they are first used, so that ``import agent_memory`` stays quick and
loads no optional dependency.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names
from agent_memory._version import __version__

if TYPE_CHECKING:
    from agent_memory.conversation import ConversationManager, ConversationRun
    from agent_memory.errors import (
        AgentMemoryError,
        InvalidRequestError,
        StorageConflictError,
        StorageError,
        StorageUnavailableError,
        SummarizerError,
    )
    from agent_memory.keys import ChatKey
    from agent_memory.log import ChatInfo, LogSlice, Note, SummaryRecord
    from agent_memory.messages import ConversationMessage, ParticipantRole, Usage
    from agent_memory.models import ChatModel, OpenAIChatModel
    from agent_memory.providers import Provider
    from agent_memory.storage import (
        ChatStorage,
        DynamoDbChatStorage,
        FileChatStorage,
        InMemoryChatStorage,
        SqlChatStorage,
        SyncChatStorage,
        TransformingChatStorage,
        WrapperChatStorage,
        open_storage,
    )
    from agent_memory.summarizers import (
        ExtractiveSummarizer,
        LLMSummarizer,
        SlidingWindowSummarizer,
        Summarizer,
        SummaryResult,
    )
    from agent_memory.summarizing import SummarizingChatStorage, SummarizingOptions

    __all__ = [
        "AgentMemoryError",
        "ChatInfo",
        "ChatKey",
        "ChatModel",
        "ChatStorage",
        "ConversationManager",
        "ConversationMessage",
        "ConversationRun",
        "DynamoDbChatStorage",
        "ExtractiveSummarizer",
        "FileChatStorage",
        "InMemoryChatStorage",
        "InvalidRequestError",
        "LLMSummarizer",
        "LogSlice",
        "Note",
        "OpenAIChatModel",
        "ParticipantRole",
        "Provider",
        "SlidingWindowSummarizer",
        "SqlChatStorage",
        "StorageConflictError",
        "StorageError",
        "StorageUnavailableError",
        "Summarizer",
        "SummarizerError",
        "SummarizingChatStorage",
        "SummarizingOptions",
        "SummaryRecord",
        "SummaryResult",
        "SyncChatStorage",
        "TransformingChatStorage",
        "Usage",
        "WrapperChatStorage",
        "__version__",
        "open_storage",
    ]


_MODULES = {
    "agent_memory.conversation": ("ConversationManager", "ConversationRun"),
    "agent_memory.errors": (
        "AgentMemoryError",
        "InvalidRequestError",
        "StorageConflictError",
        "StorageError",
        "StorageUnavailableError",
        "SummarizerError",
    ),
    "agent_memory.messages": ("ChatKey", "ConversationMessage", "ParticipantRole", "Usage"),
    "agent_memory.models": ("ChatModel", "OpenAIChatModel"),
    "agent_memory.providers": ("Provider",),
    "agent_memory.log": ("ChatInfo", "LogSlice", "Note", "SummaryRecord"),
    "agent_memory.storage": (
        "ChatStorage",
        "DynamoDbChatStorage",
        "FileChatStorage",
        "InMemoryChatStorage",
        "SqlChatStorage",
        "SyncChatStorage",
        "TransformingChatStorage",
        "WrapperChatStorage",
        "open_storage",
    ),
    "agent_memory.summarizing": ("SummarizingChatStorage", "SummarizingOptions"),
    "agent_memory.summarizers": (
        "ExtractiveSummarizer",
        "LLMSummarizer",
        "SlidingWindowSummarizer",
        "Summarizer",
        "SummaryResult",
    ),
}

# Up to 0.1 these were here, too: they still resolve, with a DeprecationWarning.
_MOVED = {
    "agent_memory.attribution": ("attribute_senders", "attribute_to_agents", "filter_messages"),
    "agent_memory.conversation": ("ThreadInfo",),
    "agent_memory.errors": (
        "CorruptedRecordError",
        "InvalidSummaryError",
        "MessageTooLargeError",
        "MissingDependencyError",
        "StorageClosedError",
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
    "agent_memory.models": ("Completion",),
    "agent_memory.log": ("Covered",),
    "agent_memory.storage": ("SummaryStore",),
    "agent_memory.tokens": ("HeuristicTokenCounter", "TiktokenCounter", "TokenCounter"),
    "agent_memory.turns": ("split_recent",),
}

__getattr__, __dir__ = lazy_names(
    __name__,
    {name: module for module, names in _MODULES.items() for name in names},
    globals(),
    {"OpenAIChatModel": "openai", "SqlChatStorage": "sqlalchemy"},
    moved={name: module for module, names in _MOVED.items() for name in names},
)
