"""Conversations as an agent loop drives them.

:class:`ConversationManager` starts runs and looks back; :class:`ConversationRun` is a turn of the
agent. They drive the same views, records and rules as ``SummarizingChatStorage``.
"""

from agent_memory.conversation.manager import ConversationManager
from agent_memory.conversation.run import ConversationRun
from agent_memory.conversation.threads import ThreadInfo

__all__ = ["ConversationManager", "ConversationRun", "ThreadInfo"]
