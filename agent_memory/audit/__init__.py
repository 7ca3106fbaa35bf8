"""Inspecting, verifying, importing and exporting raw history, as ``agent-memory`` does.

Functions on stores, usable without the command line: :mod:`~agent_memory.audit.chat_copy`
(store to store), :mod:`~agent_memory.audit.chat_import` with the readers of files and of other
libraries' stores (:mod:`~agent_memory.audit.sources`), :mod:`~agent_memory.audit.exporting`,
:mod:`~agent_memory.audit.verification`, :mod:`~agent_memory.audit.chat_stats`,
:mod:`~agent_memory.audit.deletion` and :mod:`~agent_memory.audit.report`.
"""
