"""Inspecting, verifying, importing and exporting raw history, as ``agent-memory`` does.

Functions on stores, for programs that do without the command line:

- :func:`verify` yields what is wrong with a store, :func:`digest_of` is the digest of a chat,
  :func:`count` and :func:`newest_chats` are its figures;
- :func:`export` writes chats to a file; :class:`Importer` stores what :func:`open_source` reads;
- ``Importer(target).move(chunks_of(source))`` copies a store, :func:`missing_in` compares;
- :func:`delete` and :func:`prune` remove chats permanently;
- :func:`session_report` and :func:`render` make the HTML report of a session.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.audit.chat_copy import chunks_of, missing_in
    from agent_memory.audit.chat_import import ImportCounts, Importer, checked
    from agent_memory.audit.chat_stats import ChatLine, Statistics, Totals, count, newest_chats
    from agent_memory.audit.chunks import Chunk, DefaultIds, ExportCounts, Tally
    from agent_memory.audit.deletion import Removed, delete, prune
    from agent_memory.audit.exporting import ExportFormat, export, resume_at
    from agent_memory.audit.findings import BadRecordError, Finding
    from agent_memory.audit.jsonl import ResumePoint
    from agent_memory.audit.log_pages import Hole
    from agent_memory.audit.report import SessionReport, render, session_report
    from agent_memory.audit.selection import Scope, Selection, select
    from agent_memory.audit.sources import OpenedSource, SourceFormat, open_source
    from agent_memory.audit.verification import ChatDigest, VerifyCounts, digest_of, verify

    __all__ = [
        "BadRecordError",
        "ChatDigest",
        "ChatLine",
        "Chunk",
        "DefaultIds",
        "ExportCounts",
        "ExportFormat",
        "Finding",
        "Hole",
        "ImportCounts",
        "Importer",
        "OpenedSource",
        "Removed",
        "ResumePoint",
        "Scope",
        "Selection",
        "SessionReport",
        "SourceFormat",
        "Statistics",
        "Tally",
        "Totals",
        "VerifyCounts",
        "checked",
        "chunks_of",
        "count",
        "delete",
        "digest_of",
        "export",
        "missing_in",
        "newest_chats",
        "open_source",
        "prune",
        "render",
        "resume_at",
        "select",
        "session_report",
        "verify",
    ]


_MODULES = {
    "agent_memory.audit.chat_copy": ("chunks_of", "missing_in"),
    "agent_memory.audit.chat_import": ("ImportCounts", "Importer", "checked"),
    "agent_memory.audit.chat_stats": ("ChatLine", "Statistics", "Totals", "count", "newest_chats"),
    "agent_memory.audit.chunks": ("Chunk", "DefaultIds", "ExportCounts", "Tally"),
    "agent_memory.audit.deletion": ("Removed", "delete", "prune"),
    "agent_memory.audit.exporting": ("ExportFormat", "export", "resume_at"),
    "agent_memory.audit.findings": ("BadRecordError", "Finding"),
    "agent_memory.audit.jsonl": ("ResumePoint",),
    "agent_memory.audit.log_pages": ("Hole",),
    "agent_memory.audit.report": ("SessionReport", "render", "session_report"),
    "agent_memory.audit.selection": ("Scope", "Selection", "select"),
    "agent_memory.audit.sources": ("OpenedSource", "SourceFormat", "open_source"),
    "agent_memory.audit.verification": ("ChatDigest", "VerifyCounts", "digest_of", "verify"),
}

__getattr__, __dir__ = lazy_names(
    __name__,
    {name: module for module, names in _MODULES.items() for name in names},
    globals(),
)
