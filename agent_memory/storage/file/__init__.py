"""Chats in a directory of JSONL files; see :class:`FileChatStorage`."""

from agent_memory.storage.file.reader import Problem
from agent_memory.storage.file.storage import FileChatStorage

__all__ = ["FileChatStorage", "Problem"]
