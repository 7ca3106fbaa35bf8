"""The SDK's client, and making one."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Awaitable, Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, Protocol

from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.storage.dynamodb.failures import translated, verdict_of

_ATTEMPTS: Final = 3  # that may go unanswered before a request is given up


class DynamoClient(Protocol):
    """What is used of the low-level DynamoDB client of aioboto3 or aiobotocore."""

    def put_item(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Put an item."""
        ...

    def get_item(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Get an item."""
        ...

    def query(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Read items of a partition."""
        ...

    def scan(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Read items of the table."""
        ...

    def batch_write_item(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Put and delete items."""
        ...

    def create_table(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Make a table."""
        ...

    def describe_table(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Tell of a table."""
        ...

    def describe_time_to_live(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Tell of a table's TTL."""
        ...

    def update_time_to_live(self, **arguments: Any) -> Awaitable[dict[str, Any]]:
        """Turn a table's TTL on."""
        ...


def require_aioboto3() -> None:
    """Raise ``MissingDependencyError`` unless aioboto3 can be imported."""
    if importlib.util.find_spec("aioboto3") is None:
        raise MissingDependencyError("aioboto3", "dynamodb")


@contextmanager
def sdk_errors_of(table: str) -> Generator[None]:
    """Translate what the SDK raises while a client is made.

    Raises:
        InvalidRequestError: it cannot be made of these values, such as a bad endpoint_url.
        StorageUnavailableError: something that it needs is not there, such as a region.
    """
    try:
        yield
    except ValueError as error:
        raise InvalidRequestError(f"DynamoDB table {table!r}: {error}") from error
    except Exception as error:  # sorted by the table in failures.py, right below
        if verdict_of(error) is None:
            raise
        raise translated(error, table, None, stored=False) from error


def _new_session() -> Any:
    """Make a session of its own for each loop, since refreshing credentials belongs to a loop."""
    sessions: Any = importlib.import_module("aiobotocore.session")
    aioboto3: Any = importlib.import_module("aioboto3")
    inner = sessions.get_session()
    inner.register_component("data_loader", _loader(inner.get_config_variable("data_path")))
    return aioboto3.Session(botocore_session=inner)


@functools.cache
def _loader(data_path: str | None) -> Any:
    """What reads the SDK's models of AWS, megabytes of JSON, once instead of once a store."""
    loaders: Any = importlib.import_module("botocore.loaders")
    return loaders.create_loader(data_path)


async def connect(
    exits: AsyncExitStack,
    session: Any,
    region: str | None,
    endpoint_url: str | None,
    seconds: float,
) -> DynamoClient:
    """Make a client that `exits` closes. Retries are ours: the SDK's hide what was applied."""
    session = session or _new_session()
    settings: Any = importlib.import_module("botocore.config")
    config = settings.Config(
        retries={"total_max_attempts": 1},
        connect_timeout=seconds / _ATTEMPTS,
        read_timeout=seconds / _ATTEMPTS,
        parameter_validation=False,
        max_pool_connections=50,
    )
    making: Any = session.client(
        "dynamodb", region_name=region, endpoint_url=endpoint_url, config=config
    )
    client: DynamoClient = await exits.enter_async_context(making)
    return client
