"""Chats in a directory of JSONL files; see :class:`FileChatStorage`."""

from agent_memory.storage.file.storage import FileChatStorage
from agent_memory.storage.file.verifying import Problem

__all__ = ["FileChatStorage", "Problem"]
