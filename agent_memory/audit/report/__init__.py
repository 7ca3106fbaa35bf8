"""A session as one HTML file that needs nothing else: :func:`session_report`, :func:`render`."""

from __future__ import annotations

from agent_memory.audit.report.collecting import SessionReport, session_report
from agent_memory.audit.report.page import render

__all__ = ["SessionReport", "render", "session_report"]
