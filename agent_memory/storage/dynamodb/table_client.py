"""Requests to one table: retries, pages, batches and conditional puts."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs

from agent_memory.errors import StorageError
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage.dynamodb.sdk_errors import classify, code_of, translate_error
from agent_memory.storage.dynamodb.table_layout import Attributes, item_key

logger: Final = logging.getLogger(__name__)

# A BatchWriteItem takes up to 25 requests and 16 MB.
# Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
_BATCH: Final = 25
_BATCH_BYTES: Final = 700_000  # of content; aiohttp warns of bodies that are over 1 MB in base64
_BATCHES_AT_ONCE: Final = 4


FREE: Final = "attribute_not_exists(pk)"
"""The condition that no item has the key."""


class ConditionNotMetError(Exception):
    """The condition of a write was not met.

    Args:
        unsure: whether an earlier attempt of the same write may have been applied, and so be
            the reason.
    """

    def __init__(self, *, unsure: bool) -> None:
        super().__init__("the condition of a write was not met")
        self.unsure = unsure


@attrs.define
class TableClient:
    """Sends requests to one table, and retries those that may succeed later.

    Args:
        client: a low-level client of aioboto3 or aiobotocore, which have no types of their own.
        name: the table's name.
        timeout: seconds after the first attempt, from when on none is made any more.
    """

    client: Any
    name: str
    timeout: float

    async def request(
        self, operation: str, key: ChatKey | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Send one request, again and again until it is answered or the time is up.

        Raises:
            ConditionNotMetError: its condition is not met.
            StorageUnavailableError: it failed; `stored` is None if it may have been applied.
        """
        send: Callable[..., Awaitable[dict[str, Any]]] = getattr(self.client, operation)
        backoff, unsure = Backoff(self.timeout), False
        while True:
            try:
                return await send(**arguments)
            except Exception as error:  # classify() below sorts them
                if code_of(error) == "ConditionalCheckFailedException":
                    raise ConditionNotMetError(unsure=unsure) from error
                error_class = classify(error)
                if error_class is None:
                    raise
                # Once an attempt may have been applied, the whole request may have been.
                unsure = unsure or error_class.applied
                if not error_class.retry or backoff.expired:
                    stored = None if unsure else False
                    raise translate_error(error, self.name, key, stored=stored) from error
                logger.debug("%s failed, trying again: %s", operation, type(error).__name__)
            await backoff.wait()

    async def get(self, primary_key: Attributes, key: ChatKey) -> dict[str, Any] | None:
        """Return one item, read consistently, or None."""
        answer = await self.request(
            "get_item", key, TableName=self.name, Key=primary_key, ConsistentRead=True
        )
        item: dict[str, Any] | None = answer.get("Item")
        return item

    async def put_if(
        self, item: Attributes, key: ChatKey, condition: str = FREE, **values: Attributes
    ) -> bool:
        """Put an item with a `token` on a condition; return whether it is there.

        Args:
            item: what to put.
            key: the chat, for errors.
            condition: a condition expression; ``#`` stands before attribute names. By default
                that the key is free.
            values: the expression's values by name, without the colon.
        """
        arguments = {"Item": item, **_conditional(condition, values)}
        try:
            await self.request("put_item", key, TableName=self.name, **arguments)
        except ConditionNotMetError as refused:
            if not refused.unsure:
                return False
            # An attempt that was not answered may have put the item, and so have made the
            # condition false for the next attempt. Each put has a random token: if the item there
            # has ours, it was stored; otherwise another writer was first.
            try:
                there = await self.get({"pk": item["pk"], "sk": item["sk"]}, key)
            except StorageError as error:
                error.stored = None  # of the put, which may have been applied
                raise
            return there is not None and there.get("token") == item["token"]
        return True

    async def delete_if(
        self, primary_key: Attributes, key: ChatKey, condition: str, **values: Attributes
    ) -> bool:
        """Delete an item on a condition, given as to :meth:`put_if`; return whether it did."""
        arguments = {"Key": primary_key, **_conditional(condition, values)}
        try:
            await self.request("delete_item", key, TableName=self.name, **arguments)
        except ConditionNotMetError as refused:
            # An attempt that was not answered may have deleted it.
            return refused.unsure and await self.get(primary_key, key) is None
        return True

    def query(
        self,
        user_id: str,
        low: bytes,
        high: bytes,
        *,
        key: ChatKey | None = None,
        forward: bool = True,
        limit: int | None = None,
        only: Sequence[str] = (),
    ) -> QueryPages:
        """Return the pages of items with sort keys from `low` to `high`.

        Args:
            user_id: the partition.
            low, high: the sort keys, both inclusive.
            key: the chat, for errors.
            forward: in ascending order.
            limit: the most items in a page.
            only: which attributes; all if empty.
        """
        arguments: dict[str, Any] = {
            "KeyConditionExpression": "pk = :user AND sk BETWEEN :low AND :high",
            "ExpressionAttributeValues": {
                ":user": {"S": user_id},
                ":low": {"B": low},
                ":high": {"B": high},
            },
            "ScanIndexForward": forward,
        }
        if limit is not None:
            arguments["Limit"] = limit
        return QueryPages(self, "query", key, {**arguments, **_projection(only)})

    def scan(self, *, only: Sequence[str]) -> QueryPages:
        """Return the pages of the whole table."""
        return QueryPages(self, "scan", None, _projection(only))

    async def put_all(self, items: Sequence[Attributes], key: ChatKey | None = None) -> None:
        """Put items, each atomically, in any order."""
        await self._write_all([{"PutRequest": {"Item": item}} for item in items], key)

    async def delete_all(self, items: Sequence[Attributes], key: ChatKey | None = None) -> None:
        """Delete items, given with at least their keys, in any order."""
        keys = [item_key(item["pk"]["S"], item["sk"]["B"]) for item in items]
        await self._write_all([{"DeleteRequest": {"Key": one}} for one in keys], key)

    async def _write_all(self, requests: Sequence[dict[str, Any]], key: ChatKey | None) -> None:
        groups = _groups(requests)
        for start in range(0, len(groups), _BATCHES_AT_ONCE):
            batches = [
                self._write_batch(group, key) for group in groups[start : start + _BATCHES_AT_ONCE]
            ]
            # Nothing may be in flight when an error is raised: the caller cleans up after it.
            for outcome in await asyncio.gather(*batches, return_exceptions=True):
                if outcome is not None:
                    raise outcome

    async def _write_batch(self, left: list[dict[str, Any]], key: ChatKey | None) -> None:
        backoff = Backoff(self.timeout)
        while True:
            answer = await self.request("batch_write_item", key, RequestItems={self.name: left})
            # What exceeds the throughput is not refused but handed back, to be sent again.
            unprocessed = answer.get("UnprocessedItems", {}).get(self.name, [])
            if not unprocessed:
                return
            if len(unprocessed) < len(left):
                backoff = Backoff(self.timeout)
            elif backoff.expired:
                error = TimeoutError("throttled: items stay unprocessed")
                raise translate_error(error, self.name, key, stored=False)
            left = unprocessed
            await backoff.wait()


@attrs.define
class QueryPages:
    """The pages of a query or scan, each read when it is asked for.

    A page holds up to 1 MB. One without items may have others after it.
    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.Pagination.html

    Attributes:
        done: whether the last page has been read.
    """

    _table: TableClient
    _operation: str
    _key: ChatKey | None
    _arguments: dict[str, Any]
    done: bool = attrs.field(default=False, init=False)

    async def next(self) -> list[dict[str, Any]]:
        """Read the next page that has items; an empty list is the end."""
        items: list[dict[str, Any]] = []
        # An eventually consistent read may miss what was acknowledged a second ago.
        arguments = {"TableName": self._table.name, "ConsistentRead": True, **self._arguments}
        while not items and not self.done:
            answer = await self._table.request(self._operation, self._key, **arguments)
            start = answer.get("LastEvaluatedKey")
            self._arguments["ExclusiveStartKey"] = arguments["ExclusiveStartKey"] = start
            self.done = start is None
            items = answer["Items"]
        return items

    async def all(self) -> list[dict[str, Any]]:
        """Read all pages that are left."""
        items: list[dict[str, Any]] = []
        while not self.done:
            items += await self.next()
        return items


def _conditional(condition: str, values: Attributes) -> dict[str, Any]:
    arguments: dict[str, Any] = {"ConditionExpression": condition}
    if names := set(re.findall(r"#\w+", condition)):
        arguments["ExpressionAttributeNames"] = {name: name[1:] for name in names}
    if values:
        arguments["ExpressionAttributeValues"] = {f":{n}": v for n, v in values.items()}
    return arguments


def _projection(only: Sequence[str]) -> dict[str, Any]:
    """Ask for some attributes; by aliases, because some of the names are reserved words."""
    if not only:
        return {}
    names = {f"#{number}": name for number, name in enumerate(only)}
    return {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}


def _groups(requests: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: list[list[dict[str, Any]]] = []
    room = 0
    for request in requests:
        size = _content_size(request)
        if not groups or len(groups[-1]) == _BATCH or size > room:
            groups.append([])
            room = _BATCH_BYTES
        groups[-1].append(request)
        room -= size
    return groups


def _content_size(request: dict[str, Any]) -> int:
    item = request.get("PutRequest", {}).get("Item", {})
    return sum(len(content) for value in item.values() for content in value.values())
