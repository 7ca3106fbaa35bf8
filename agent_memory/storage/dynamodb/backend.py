"""The parts of a store, put together around one client."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from agent_memory.storage.dynamodb.calls import Calls
from agent_memory.storage.dynamodb.forgetting import Forgetter
from agent_memory.storage.dynamodb.lanes import Lanes
from agent_memory.storage.dynamodb.listing import Lister
from agent_memory.storage.dynamodb.purging import Purger
from agent_memory.storage.dynamodb.reader import LogReader
from agent_memory.storage.dynamodb.summaries import Records
from agent_memory.storage.dynamodb.writer import LogWriter


@attrs.frozen
class Backend:
    """What a store's coroutines need; it does not refer to the store."""

    calls: Calls
    reader: LogReader
    writer: LogWriter
    forgetter: Forgetter
    lister: Lister
    purger: Purger
    records: Records


def assemble(calls: Calls, now: Callable[[], int], ttl: int | None, ttl_attribute: str) -> Backend:
    """Put the parts together.

    Args:
        calls: requests to the table.
        now: returns the time in milliseconds since 1970.
        ttl: how many seconds entries live; None for ever.
        ttl_attribute: the attribute that tells DynamoDB when to remove an item.
    """
    lanes = Lanes()
    reader = LogReader(calls, now)
    writer = LogWriter(calls, reader, lanes, ttl, ttl_attribute)
    lister = Lister(calls, reader)
    records = Records(calls, reader, ttl, ttl_attribute)
    return Backend(
        calls,
        reader,
        writer,
        Forgetter(calls, reader, writer, records),
        lister,
        Purger(calls, reader, lister, lanes),
        records,
    )
