"""agent-squad's table in DynamoDB: one item a chat, the whole conversation in it.

Source: the published package agent-squad 1.1.4, ``storage/dynamodb_chat_storage.py``: ``PK`` is
the user, ``SK`` session and agent joined by ``#``, ``conversation`` a list of maps.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import attrs

from agent_memory.audit.chunks import Chunk, SourceEntry, Tally, in_chunks
from agent_memory.audit.findings import Finding
from agent_memory.audit.sources.layouts import agent_squad_message
from agent_memory.errors import (
    AgentMemoryError,
    InvalidRequestError,
    MissingDependencyError,
    StorageUnavailableError,
)
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers.part import as_dict, as_list, to_json
from agent_memory.storage.dynamodb.connection import check_endpoint

_OPTIONS: Final = ("region", "endpoint")


async def read_agent_squad_table(url: str, tally: Tally) -> AsyncIterator[Chunk | Finding]:
    """Read every chat of a table.

    An item does not number its messages, and a trim moves them: their ids are made of time
    stamp and content, so that reading again, later, stores nothing twice.

    Args:
        url: ``dynamodb://table?region=…&endpoint=…``; credentials come from the environment.
        tally: counts the messages that were read.

    Raises:
        InvalidRequestError: it is not such a URL.
        MissingDependencyError: aioboto3 is not installed.
        StorageUnavailableError: DynamoDB does not answer, or refuses.
    """
    try:
        import aioboto3  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)
        from botocore.exceptions import (  # type: ignore[import-untyped]  # noqa: PLC0415
            BotoCoreError,
            ClientError,
        )
    except ImportError as error:
        raise MissingDependencyError("aioboto3", "dynamodb") from error
    table, options = _parsed(url)
    session: Any = aioboto3.Session(region_name=options.get("region"))
    done = 0
    try:
        async with session.resource("dynamodb", endpoint_url=options.get("endpoint")) as dynamo:
            # Consistent, so that messages saved just before the import are there; a page is at
            # most 1 MB.
            scan: dict[str, Any] = {"ConsistentRead": True}
            source: Any = await dynamo.Table(table)
            while True:
                page = await source.scan(**scan)
                for item in page["Items"]:
                    for piece in in_chunks(_messages(item, table)):
                        if isinstance(piece, Finding):
                            yield piece
                            continue
                        done += len(piece.entries)
                        tally.read["table of agent-squad"] += len(piece.entries)
                        yield attrs.evolve(piece, done=done)
                if "LastEvaluatedKey" not in page:
                    return
                scan["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    except (BotoCoreError, ClientError) as error:
        raise StorageUnavailableError(f"the table {table!r} cannot be read: {error}") from error


def _parsed(url: str) -> tuple[str, dict[str, str]]:
    split = urlsplit(url)
    options = dict(parse_qsl(split.query, keep_blank_values=True))
    if not split.netloc or split.path not in ("", "/") or options.keys() - set(_OPTIONS):
        raise InvalidRequestError("write dynamodb://table?region=eu-central-1, or &endpoint=…")
    if "endpoint" in options:
        check_endpoint(options["endpoint"])
    return split.netloc, options


def _messages(item: Mapping[str, Any], table: str) -> Iterator[SourceEntry | Finding]:
    """Read one item: a chat with all of its messages."""
    sort_key = str(item.get("SK", ""))
    place = f"table {table}, item {item.get('PK')!r} / {sort_key!r}"
    # agent-squad joins session and agent with "#". Session ids may contain one; agent ids are
    # names turned into slugs and do not.
    session_id, joined, agent_id = sort_key.rpartition("#")
    if not joined or not isinstance(item.get("conversation"), list):
        yield Finding(place, "it is no chat of agent-squad's")
        return
    try:
        key = ChatKey(str(item.get("PK", "")), session_id, agent_id)
    except InvalidRequestError as error:
        yield Finding(place, str(error))
        return
    seen: dict[str, int] = {}
    for number, stored in enumerate(as_list(plain(item["conversation"])), 1):
        try:
            message = _message(stored, seen)
        except AgentMemoryError as error:
            yield Finding(f"{place}, message {number}", str(error))
        else:
            yield SourceEntry(key, message, f"{place}, message", number)


def _message(stored: object, seen: dict[str, int]) -> ConversationMessage:
    fields = as_dict(stored)
    if fields is None or not {"role", "content", "timestamp"} <= fields.keys():
        raise InvalidRequestError("a message has role, content and timestamp there")
    written = to_json([fields["role"], fields["content"], fields["timestamp"]])
    digest = hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    # Equal messages of one chat are told apart by their order.
    seen[digest] = seen.get(digest, 0) + 1
    message_id = f"agent-squad-{digest}-{seen[digest]}"
    return agent_squad_message(fields["role"], fields["content"], fields["timestamp"], message_id)


def plain(value: Any) -> Any:
    """Return a value of DynamoDB's without its own types: numbers, binaries and sets."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    held: Any = value
    if isinstance(value, dict):
        return {key: plain(held[key]) for key in held}
    if isinstance(value, list | set):
        return [plain(item) for item in held]
    held = getattr(value, "value", None)
    return bytes(held) if isinstance(held, bytes | bytearray) else value
