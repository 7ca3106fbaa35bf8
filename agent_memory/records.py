"""The names of :mod:`agent_memory.log` under an earlier name, for programs that use it."""

from agent_memory.log import (
    ChatInfo,
    Covered,
    Entry,
    LogSlice,
    Note,
    SummaryRecord,
    corrupted_note,
    is_corrupted,
    same_payload,
)

__all__ = [
    "ChatInfo",
    "Covered",
    "Entry",
    "LogSlice",
    "Note",
    "SummaryRecord",
    "corrupted_note",
    "is_corrupted",
    "same_payload",
]
