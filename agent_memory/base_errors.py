"""The errors that the smallest values raise; :mod:`agent_memory.errors` has all.

They have a module of their own, since errors of stores carry a chat's key, and a key checks its
ids: without it the two would import each other.
"""

from __future__ import annotations

_HOME = "agent_memory.errors"  # where they are imported from: tracebacks and pickles say so


class AgentMemoryError(Exception):
    """Base of all errors of this library."""

    __module__ = _HOME


class InvalidRequestError(AgentMemoryError, ValueError):
    """The caller asked for something that can never work: a bad id, size, URL or content.

    Raised before anything is written.
    """

    __module__ = _HOME


class MissingDependencyError(AgentMemoryError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: the name of the missing distribution, as it is installed.
        extra: the extra of this distribution that brings it.
    """

    __module__ = _HOME

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package!r} is not installed; "
            f"install it with: pip install 'agent-memory-storage[{extra}]' "
            f"(in a checkout: pip install '.[{extra}]')"
        )
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingDependencyError], tuple[str, str]]:
        return type(self), (self.package, self.extra)
