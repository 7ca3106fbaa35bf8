"""The contract of :class:`agent_memory.ChatStorage` as tests; see :class:`ChatStorageTests`."""

import importlib
from importlib.resources import files

from agent_memory.errors import MissingDependencyError

for _needed in ("pytest", "pytest_asyncio", "hypothesis"):
    try:
        importlib.import_module(_needed)
    except ImportError as error:
        raise MissingDependencyError(_needed.replace("_", "-"), "testing") from error

import pytest  # noqa: E402  (known to be there now)

# Before they are imported: their asserts shall tell what they compared.
pytest.register_assert_rewrite(
    *(f"{__name__}.{file.name[:-3]}" for file in files(__name__).iterdir() if file.name[0] != "_")
)

from agent_memory.testing.contract.suite import ChatStorageTests  # noqa: E402  (after the above)

__all__ = ["ChatStorageTests"]
