"""The public class: :class:`DynamoDbChatStorage`."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from agent_memory.errors import MessageTooLargeError, StorageClosedError
from agent_memory.log import ChatInfo, Entry, LogSlice, SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.background_loop import BackgroundLoop, CallersLoop
from agent_memory.storage._engine.group_commit import LoopGroupCommit
from agent_memory.storage._engine.handoff import result_of
from agent_memory.storage.base import ChatStorage, Scope
from agent_memory.storage.codec import encode_entry
from agent_memory.storage.dynamodb.connection import (
    DEFAULT_TTL_ATTRIBUTE,
    checked_options,
    connect,
    require_aioboto3,
    sdk_errors_of,
)
from agent_memory.storage.dynamodb.connection import create_table as make_table
from agent_memory.storage.dynamodb.log_end import KnownEnds
from agent_memory.storage.dynamodb.log_reader import LogReader
from agent_memory.storage.dynamodb.removal import LogRemover
from agent_memory.storage.dynamodb.summary_items import SummaryRecords
from agent_memory.storage.dynamodb.table_client import TableClient
from agent_memory.storage.dynamodb.table_layout import MAX_ENTRIES
from agent_memory.storage.dynamodb.writer import GROUP, LogWriter
from agent_memory.storage.hooks import Found, StoredSummaries
from agent_memory.storage.summaries import SummaryStore

T = TypeVar("T")


_ANOTHER_LOOP: Final = (
    "the client that was passed in serves the event loop that first used it; pass session= "
    "instead of client= to use a DynamoDbChatStorage from several loops"
)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Components:
    """What an open store consists of, around one client.

    They do not refer to the store, so that a forgotten one can be collected.

    Args:
        table: sends the requests.
        loop: where they are awaited.
        now: returns the time in milliseconds since 1970.
        ttl: how many seconds entries live; None for ever.
        ttl_attribute: the attribute by which DynamoDB knows when to remove an item.
    """

    def __init__(
        self,
        table: TableClient,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], int],
        *,
        ttl: int | None,
        ttl_attribute: str,
    ) -> None:
        self.table = table
        self.reader = LogReader(table, now)
        self.writer = LogWriter(table, self.reader, KnownEnds(), ttl, ttl_attribute)
        self.saves: LoopGroupCommit[str] = LoopGroupCommit(
            self.writer.commit, loop, by="chat", max_in_flight=None, bounds=GROUP
        )
        self.records = SummaryRecords(table, self.reader, ttl, ttl_attribute)
        self.remover = LogRemover(table, self.reader, self.writer, self.saves, self.records)


class DynamoDbChatStorage(ChatStorage):
    """Chats in an Amazon DynamoDB table, for any number of processes and machines.

    Durability: what a save acknowledged is stored in several zones of the region. Concurrency:
    any tasks, threads, event loops, processes and machines that use the table in one region
    (a global table's replicas in other regions are for reading).

    Args:
        table_name: the table. It needs the partition key ``pk`` (S) and the sort key ``sk`` (B),
            no index, and may be shared with nothing else.
        region: such as ``"eu-central-1"``; by default the session's.
        endpoint_url: of an emulator or a private endpoint, without credentials.
        session: an ``aioboto3.Session`` to take credentials from; by default a new one.
        client: a low-level client of aioboto3 or aiobotocore, used as it is and left open. It
            serves the event loop that first uses it. Its own retries hide which attempt was
            applied: give it ``Config(retries={"total_max_attempts": 1})``.
        create_table: create the table (on demand) unless it exists, and turn its TTL on.
        ttl_attribute: the attribute that DynamoDB's TTL looks at; by default ``expires_at``.
        ttl_seconds: how many seconds after its save a message is gone; None keeps them all.
            A chat that began without a limit keeps what it has, and what follows.
        timeout: seconds, above 0, after which a request that fails is not tried again; one
            attempt waits a third of it for an answer.
        clock: returns the time as an aware datetime. Clocks of machines that share a table
            must agree to half an hour.

    **Layout.** An append is one item: the batch, one message a line, put on the condition that
    its key, the next one in the log, is free; there are no transactions, counters or indexes.
    ``pk`` is the user id (so that ``dynamodb:LeadingKeys`` can confine a role to a user); ``sk``
    holds session, agent and position, so that a session is read with one query. A trim or delete
    puts an item that says "up to here is gone", which takes no position; what lies below is
    invisible from then on, and is removed at once. Every item carries the floor and hashes of the
    newest 64 ids (or of its own batch, if that is larger): within these a repeated save is
    noticed.

    ``purge(older_than)`` takes less than an hour as an hour, and leaves for a later call what was
    written or has expired since: other processes rely on a chat's end for ten minutes, and their
    clocks may differ by half an hour. Forgotten earlier, what is saved to the chat from then on
    could be hidden by what they append above it.

    **Cost.** A save is 1 request when this object saved to the chat in the last ten minutes, else
    2; 3 if nothing has lived in the chat for half an hour. It takes a write unit for each KB of
    text plus about 0.5 KB, and the second request a read unit for each 4 KB of the newest item.
    ``fetch_chat`` of N messages is 1 query for each MB, a read unit for each 4 KB in total (reads
    are strongly consistent). ``fetch_all_chats`` reads a session with 1 query for each MB. Listing
    takes up to 2 queries a chat; listing without a user, and ``purge``, read the whole table. A
    trim reads what lives and rewrites what goes.
    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html

    **Throughput.** Saves to one chat by one object take turns, and those that wait share an item
    (up to 100,000 characters). A partition bears 1,000 write units and 3,000 read units a second;
    one chat, and at first one user, lies in one partition: about 1,000 small saves a second in
    all, or 2.5 items of 400 KB. DynamoDB spreads busy users over more partitions in time; one
    chat, which is always written at its end, never gains from that.
    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html

    **Limits.** A save holds up to 20,000 messages. Text beyond an item's 400 KB is compressed,
    then split over as many as 350 items, about 100 MB in all; beyond, ``MessageTooLargeError``.
    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html

    Raises:
        InvalidRequestError: an argument is invalid.
        MissingDependencyError: aioboto3 is not installed.
    """

    _has_threads = True
    _append_is_cancel_safe = True  # LoopGroupCommit.save waits for the outcome
    _loop: BackgroundLoop | CallersLoop | None = None
    _components: Components | None = None

    def __init__(
        self,
        table_name: str,
        region: str | None = None,
        *,
        endpoint_url: str | None = None,
        session: Any = None,
        client: Any = None,
        create_table: bool = False,
        ttl_attribute: str | None = None,
        ttl_seconds: int | None = None,
        timeout: float = 15.0,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        checked_options(
            table_name,
            endpoint_url,
            ttl_attribute=ttl_attribute,
            ttl_seconds=ttl_seconds,
            timeout=timeout,
        )
        if client is None:
            require_aioboto3()
        self._table = table_name
        self._region = region
        self._endpoint_url = endpoint_url
        self._session = session
        self._client = client
        self._create_table = create_table
        self._ttl_attribute = ttl_attribute or DEFAULT_TTL_ATTRIBUTE
        self._ttl = ttl_seconds
        self._timeout = timeout
        self._clock = clock
        self._exits = AsyncExitStack()

    def __repr__(self) -> str:
        return f"DynamoDbChatStorage({self._table!r})"

    @property
    def scope(self) -> Scope:
        """Everything that uses the table in one region."""
        return "network"

    # ----------------------------------------------------------------------- opening, closing

    async def _open(self) -> None:
        self._exits = AsyncExitStack()
        if self._client is None:
            self._loop = BackgroundLoop(f"agent_memory dynamodb {self._table}")
        else:
            self._loop = CallersLoop(_ANOTHER_LOOP)
        try:
            self._components = await self._in_loop(self._connected())
        except BaseException:
            await self._close()
            raise

    async def _connected(self) -> Components:
        client = self._client
        if client is None:
            with sdk_errors_of(self._table):
                client = await connect(
                    self._exits, self._session, self._region, self._endpoint_url, self._timeout
                )
        table = TableClient(client, self._table, self._timeout)
        if self._create_table:
            await make_table(table, None if self._ttl is None else self._ttl_attribute)
        return Components(
            table,
            asyncio.get_running_loop(),
            _milliseconds(self._clock),
            ttl=self._ttl,
            ttl_attribute=self._ttl_attribute,
        )

    async def _close(self) -> None:
        loop, components, self._components = self._loop, self._components, None
        if isinstance(loop, BackgroundLoop):
            try:
                # Its tasks end first: a purge under way takes turns in the queue.
                await result_of(loop.drain_and_stop(partial(_finish, components, self._exits)))
            finally:
                loop.stop()
        elif components is not None:
            components.saves.close()  # what waits is still committed, in the caller's loop

    def __del__(self) -> None:
        loop = self._loop
        # In a forked process the thread does not run, and its queue is the parent's.
        if isinstance(loop, BackgroundLoop) and self._phase == "open" and not self._is_forked:
            warnings.warn(
                f"{self!r} was never closed; use 'async with' or aclose()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            with contextlib.suppress(RuntimeError):  # the interpreter is ending
                loop.drain_and_stop(self._exits.aclose)

    async def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine where the client lives; a cancellation waits for its end."""
        if self._loop is None:
            raise AssertionError("a hook was called before the store was opened")
        return await self._loop.run(work)

    @property
    def _open_components(self) -> Components:
        if self._components is None:  # hooks are called after _ready(): it has been closed since
            raise StorageClosedError("DynamoDbChatStorage is closed")
        return self._components

    # ---------------------------------------------------------------------------------- hooks

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        if len(entries) > MAX_ENTRIES:
            raise MessageTooLargeError(
                f"{len(entries):,} messages in one save; DynamoDbChatStorage appends at most "
                f"{MAX_ENTRIES:,} in one atomic step: save in several calls",
                key=key,
            )
        if self._loop is not None:  # a save waits in a queue, not in the loop
            self._loop.check()
        texts = [encode_entry(entry) for entry in entries]
        saves = self._open_components.saves
        return await saves.save(key, entries, texts, sum(map(len, texts)))

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        reader = self._open_components.reader
        return await self._in_loop(reader.read(key, after=after, first=first, last=last))

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        return await self._in_loop(self._open_components.reader.read_session(user_id, session_id))

    async def _forget(self, key: ChatKey, keep: int) -> int:
        return await self._in_loop(self._open_components.remover.forget(key, keep))

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        reader = self._open_components.reader
        users = [user_id] if user_id is not None else await self._in_loop(reader.users())
        for user in users:
            previous, is_done = None, False
            while not is_done:
                chats, previous = await self._in_loop(
                    reader.chats_after(user, session_id, previous)
                )
                is_done = previous is None
                for key, end in chats:
                    if not end.is_dead:
                        yield end.info(key)

    async def _purge(self, older_than: timedelta) -> int:
        age = int(older_than / timedelta(milliseconds=1))
        return await self._in_loop(self._open_components.remover.purge(age))

    # ------------------------------------------------------------------------------ summaries

    def summaries(self) -> SummaryStore:
        """Return the summary records, which lie in the same table."""
        return StoredSummaries(self._put_record, self._records, self._drop_records)

    async def _put_record(self, key: ChatKey, record: SummaryRecord, replaces: str | None) -> bool:
        await self._ready()
        return await self._in_loop(self._open_components.records.put(key, record, replaces))

    async def _records(self, key: ChatKey, *, newest_only: bool) -> Found:
        await self._ready()
        return await self._in_loop(
            self._open_components.records.read(key, newest_only=newest_only)
        )

    async def _drop_records(self, key: ChatKey) -> int:
        await self._ready()
        return await self._in_loop(self._open_components.records.drop(key))


def _milliseconds(clock: Callable[[], datetime]) -> Callable[[], int]:
    return lambda: int(clock().timestamp() * 1000)


async def _finish(components: Components | None, exits: AsyncExitStack) -> None:
    if components is not None:
        await asyncio.wrap_future(components.saves.close())
    await exits.aclose()
