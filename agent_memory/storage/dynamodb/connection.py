"""Connecting a store: its options, the SDK's client, and creating the table."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import re
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from agent_memory.errors import (
    InvalidRequestError,
    MissingDependencyError,
    StorageUnavailableError,
)
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage.dynamodb.sdk_errors import classify, code_of, translate_error
from agent_memory.storage.dynamodb.table_client import TableClient
from agent_memory.storage.dynamodb.table_layout import HEADER
from agent_memory.validation import checked_count, checked_seconds

DEFAULT_TTL_ATTRIBUTE: Final = "expires_at"

# A name, or the ARN of a table (in another account).
# Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PutItem.html
_TABLE: Final = re.compile(r"[a-zA-Z0-9_.-]{3,255}|arn:[^\s]{1,1000}")
_TAKEN: Final = frozenset({*HEADER, "text", "zip", "id", "prev", "number"})


def checked_options(
    table_name: object,
    endpoint_url: object,
    *,
    ttl_attribute: object,
    ttl_seconds: object,
    timeout: object,
) -> None:
    """Check a store's options.

    Raises:
        InvalidRequestError: one is invalid; the text says which, and what is valid.
    """
    if not isinstance(table_name, str) or not _TABLE.fullmatch(table_name):
        raise InvalidRequestError(
            f"table_name must be 3 to 255 letters, digits, '_', '-' or '.', not {table_name!r}"
        )
    if endpoint_url is not None:
        check_endpoint(endpoint_url)
    if ttl_seconds is not None:
        checked_count(ttl_seconds, "ttl_seconds", at_least=1)
    if ttl_attribute is not None:
        _check_attribute(ttl_attribute, ttl_seconds)
    checked_seconds(timeout, "timeout")


def check_endpoint(endpoint_url: object) -> None:
    """Check the address of an emulator or a private endpoint.

    Raises:
        InvalidRequestError: it is not a text, or holds credentials.
    """
    if not isinstance(endpoint_url, str):
        raise InvalidRequestError(
            f"endpoint_url must be a URL such as 'http://localhost:8000', not a "
            f"{type(endpoint_url).__name__}"
        )
    if "@" in urlsplit(endpoint_url).netloc:  # the SDK would write it into its log
        raise InvalidRequestError(
            "endpoint_url must not hold a user or password: credentials come from the "
            "environment or from session="
        )


def _check_attribute(ttl_attribute: object, ttl_seconds: object) -> None:
    if ttl_seconds is None:
        raise InvalidRequestError(
            "ttl_attribute says where an item's expiry stands; give ttl_seconds too, or neither"
        )
    if not isinstance(ttl_attribute, str) or not ttl_attribute or ttl_attribute in _TAKEN:
        raise InvalidRequestError(
            f"ttl_attribute must be an attribute name that the layout does not use, "
            f"not {ttl_attribute!r}; it uses {', '.join(sorted(_TAKEN))}"
        )


_ATTEMPTS: Final = 3  # that may go unanswered before a request is given up


def require_aioboto3() -> None:
    """Raise ``MissingDependencyError`` unless aioboto3 can be imported."""
    if importlib.util.find_spec("aioboto3") is None:
        raise MissingDependencyError("aioboto3", "dynamodb")


@contextmanager
def sdk_errors_of(table: str) -> Generator[None]:
    """Translate what the SDK raises while a client is made.

    Raises:
        InvalidRequestError: an option is invalid, such as a bad endpoint_url.
        StorageUnavailableError: something is missing, such as a region.
    """
    try:
        yield
    except ValueError as error:
        raise InvalidRequestError(f"DynamoDB table {table!r}: {error}") from error
    except Exception as error:  # classify() below sorts them
        if classify(error) is None:
            raise
        raise translate_error(error, table, None, stored=False) from error


def _new_session() -> Any:
    """Make a session: each loop needs its own, because refreshing credentials uses its loop."""
    sessions: Any = importlib.import_module("aiobotocore.session")
    aioboto3: Any = importlib.import_module("aioboto3")
    inner = sessions.get_session()
    inner.register_component("data_loader", _loader(inner.get_config_variable("data_path")))
    return aioboto3.Session(botocore_session=inner)


@functools.cache
def _loader(data_path: str | None) -> Any:
    """Load the SDK's models of AWS, megabytes of JSON, once instead of once per store."""
    loaders: Any = importlib.import_module("botocore.loaders")
    return loaders.create_loader(data_path)


async def connect(
    exits: AsyncExitStack,
    session: Any,
    region: str | None,
    endpoint_url: str | None,
    seconds: float,
) -> Any:
    """Make a client that `exits` closes."""
    session = session or _new_session()
    settings: Any = importlib.import_module("botocore.config")
    config = settings.Config(
        # TableClient retries: the SDK's retries hide whether an attempt may have been applied.
        retries={"total_max_attempts": 1},
        connect_timeout=seconds / _ATTEMPTS,
        read_timeout=seconds / _ATTEMPTS,
        parameter_validation=False,  # requests are built here alone: checking them only takes time
        max_pool_connections=50,
    )
    making: Any = session.client(
        "dynamodb", region_name=region, endpoint_url=endpoint_url, config=config
    )
    return await exits.enter_async_context(making)


logger: Final = logging.getLogger(__name__)

_KEY_SCHEMA: Final = [
    {"AttributeName": "pk", "KeyType": "HASH"},
    {"AttributeName": "sk", "KeyType": "RANGE"},
]
_KEY_TYPES: Final = [
    {"AttributeName": "pk", "AttributeType": "S"},
    {"AttributeName": "sk", "AttributeType": "B"},
]
_CREATION_SECONDS: Final = 120.0
_LONGEST_PAUSE: Final = 2.0


async def create_table(table: TableClient, ttl_attribute: str | None) -> None:
    """Create an on-demand table unless it exists, wait for it, and turn TTL on.

    Several processes may do so at the same moment.

    Args:
        table: sends the requests.
        ttl_attribute: the attribute of DynamoDB's TTL; None to leave TTL as it is.

    Raises:
        InvalidRequestError: there is a table of that name with another key schema.
        StorageUnavailableError: the table is not ready in two minutes.
    """
    backoff = Backoff(_CREATION_SECONDS, _LONGEST_PAUSE)
    while (found := await _described(table)) is None or found["TableStatus"] == "CREATING":
        if found is None:
            await _create(table)
        if backoff.expired:
            raise StorageUnavailableError(f"DynamoDB table {table.name!r} is still being created")
        await backoff.wait()
    _check_keys(table.name, found)
    if ttl_attribute is not None:
        await _turn_ttl_on(table, ttl_attribute)


async def _described(table: TableClient) -> dict[str, Any] | None:
    try:
        answer = await table.request("describe_table", TableName=table.name)
    except StorageUnavailableError as error:
        if error.__cause__ is not None and code_of(error.__cause__) == "ResourceNotFoundException":
            return None
        raise
    found: dict[str, Any] = answer["Table"]
    return found


async def _create(table: TableClient) -> None:
    try:
        await table.request(
            "create_table",
            TableName=table.name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=_KEY_SCHEMA,
            AttributeDefinitions=_KEY_TYPES,
        )
    except StorageUnavailableError as error:
        # Another process was quicker; describing the table finds it.
        if error.__cause__ is None or code_of(error.__cause__) != "ResourceInUseException":
            raise


def _check_keys(name: str, found: dict[str, Any]) -> None:
    types = {one["AttributeName"]: one["AttributeType"] for one in found["AttributeDefinitions"]}
    keys = [(one["AttributeName"], one["KeyType"]) for one in found["KeySchema"]]
    if keys != [("pk", "HASH"), ("sk", "RANGE")] or (types["pk"], types["sk"]) != ("S", "B"):
        raise InvalidRequestError(
            f"DynamoDB table {name!r} has the key schema {keys}; DynamoDbChatStorage needs the "
            "partition key 'pk' (S) and the sort key 'sk' (B): use another table"
        )


async def _turn_ttl_on(table: TableClient, attribute: str) -> None:
    answer = await table.request("describe_time_to_live", TableName=table.name)
    state = answer["TimeToLiveDescription"]
    if state["TimeToLiveStatus"] in ("ENABLED", "ENABLING"):
        used = state.get("AttributeName")
        if used != attribute:
            raise InvalidRequestError(
                f"DynamoDB table {table.name!r} removes items by the attribute {used!r}; "
                f"pass ttl_attribute={used!r}"
            )
        return
    specification = {"Enabled": True, "AttributeName": attribute}
    try:
        await table.request(
            "update_time_to_live", TableName=table.name, TimeToLiveSpecification=specification
        )
    except (InvalidRequestError, StorageUnavailableError) as error:
        # Another process was quicker, or this is an emulator without TTL: readers leave out
        # what has expired in any case, only its removal is DynamoDB's part.
        logger.warning("TTL of the table %s was not turned on: %s", table.name, error)
