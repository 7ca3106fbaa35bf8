"""Looking at raw history, moving it and taking it to account: what ``agent-memory`` does.

Functions of stores, usable without the command line: :mod:`~agent_memory.audit.copying`
(store to store), :mod:`~agent_memory.audit.moving` with the readers of files and of other
libraries' stores (:mod:`~agent_memory.audit.sources`), :mod:`~agent_memory.audit.exporting`,
:mod:`~agent_memory.audit.verifying`, :mod:`~agent_memory.audit.counting`,
:mod:`~agent_memory.audit.overview`, :mod:`~agent_memory.audit.forgetting` and
:mod:`~agent_memory.audit.report`.
"""
