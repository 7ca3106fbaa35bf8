"""The contract of :class:`agent_memory.ChatStorage` as tests; see :class:`ChatStorageTests`."""

from importlib.resources import files

from agent_memory.errors import MissingDependencyError

try:
    import hypothesis as _hypothesis  # noqa: F401  (asked for here, used by the modules below)
    import pytest
    import pytest_asyncio as _pytest_asyncio  # noqa: F401  (as above)
except ImportError as error:
    raise MissingDependencyError(error.name or "pytest", "testing") from error

# Before they are imported: their asserts shall tell what they compared.
pytest.register_assert_rewrite(
    *(f"{__name__}.{file.name[:-3]}" for file in files(__name__).iterdir() if file.name[0] != "_")
)

from agent_memory.testing.contract.suite import ChatStorageTests  # noqa: E402  (after the above)

__all__ = ["ChatStorageTests"]
