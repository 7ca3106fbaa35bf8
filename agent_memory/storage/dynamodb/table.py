"""Making the table."""

from __future__ import annotations

import logging
from typing import Any, Final

from agent_memory.errors import InvalidRequestError, StorageUnavailableError
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage.dynamodb.calls import Calls
from agent_memory.storage.dynamodb.failures import code_of

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


async def create_table(calls: Calls, ttl_attribute: str | None) -> None:
    """Make an on-demand table unless it is there, wait for it, and turn TTL on.

    Several processes may do so at the same moment.

    Args:
        calls: requests to the table.
        ttl_attribute: the attribute of DynamoDB's TTL; None to leave TTL as it is.

    Raises:
        InvalidRequestError: there is a table of that name with another key schema.
        StorageUnavailableError: the table is not ready in two minutes.
    """
    backoff = Backoff(_CREATION_SECONDS, _LONGEST_PAUSE)
    while (table := await _described(calls)) is None or table["TableStatus"] == "CREATING":
        if table is None:
            await _create(calls)
        if backoff.expired:
            raise StorageUnavailableError(f"DynamoDB table {calls.table!r} is still being created")
        await backoff.wait()
    _check_keys(calls.table, table)
    if ttl_attribute is not None:
        await _turn_ttl_on(calls, ttl_attribute)


async def _described(calls: Calls) -> dict[str, Any] | None:
    try:
        answer = await calls.call("describe_table", TableName=calls.table)
    except StorageUnavailableError as error:
        if error.__cause__ is not None and code_of(error.__cause__) == "ResourceNotFoundException":
            return None
        raise
    table: dict[str, Any] = answer["Table"]
    return table


async def _create(calls: Calls) -> None:
    try:
        await calls.call(
            "create_table",
            TableName=calls.table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=_KEY_SCHEMA,
            AttributeDefinitions=_KEY_TYPES,
        )
    except StorageUnavailableError as error:
        # Another process was quicker; the next look finds its table.
        if error.__cause__ is None or code_of(error.__cause__) != "ResourceInUseException":
            raise


def _check_keys(name: str, table: dict[str, Any]) -> None:
    types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    keys = [(one["AttributeName"], one["KeyType"]) for one in table["KeySchema"]]
    if keys != [("pk", "HASH"), ("sk", "RANGE")] or (types["pk"], types["sk"]) != ("S", "B"):
        raise InvalidRequestError(
            f"DynamoDB table {name!r} has the key schema {keys}; DynamoDbChatStorage needs the "
            "partition key 'pk' (S) and the sort key 'sk' (B): use another table"
        )


async def _turn_ttl_on(calls: Calls, attribute: str) -> None:
    answer = await calls.call("describe_time_to_live", TableName=calls.table)
    state = answer["TimeToLiveDescription"]
    if state["TimeToLiveStatus"] in ("ENABLED", "ENABLING"):
        used = state.get("AttributeName")
        if used != attribute:
            raise InvalidRequestError(
                f"DynamoDB table {calls.table!r} removes items by the attribute {used!r}; "
                f"pass ttl_attribute={used!r}"
            )
        return
    specification = {"Enabled": True, "AttributeName": attribute}
    try:
        await calls.call(
            "update_time_to_live", TableName=calls.table, TimeToLiveSpecification=specification
        )
    except (InvalidRequestError, StorageUnavailableError) as error:
        # Another process was quicker, or this is an emulator without TTL: readers leave out
        # what has expired in any case, only its removal is DynamoDB's part.
        logger.warning("TTL of the table %s was not turned on: %s", calls.table, error)
