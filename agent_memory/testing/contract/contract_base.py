"""The base of the contract's tests: fixtures, knobs and helpers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence, Sized
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar, cast

import pytest
import pytest_asyncio

from agent_memory.keys import ChatKey
from agent_memory.log import Covered, SummaryRecord
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.summaries import SummaryStore

MakeStorage = Callable[[], ChatStorage]
"""Gives a new storage object over the medium of the test."""

KEY: Final = ChatKey("user", "session", "agent")
"""The chat that tests use when any will do."""

START: Final = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)


_Test = TypeVar("_Test", bound=Callable[..., Any])


def differs_by_engine(test: _Test) -> _Test:
    """Mark a test of what an engine may do in its own way: order, ids, sizes, locks, races.

    It is for stores that share their code with one that runs the whole contract: a class of
    tests that has no time for more can pick the functions with the attribute
    ``differs_by_engine``. (An attribute, since a pytest mark has to be registered by whoever
    runs the suite.)
    """
    test.__dict__["differs_by_engine"] = True
    return test


class ContractBase:
    """The fixtures and knobs of :class:`agent_memory.testing.ChatStorageTests`."""

    pytestmark = pytest.mark.asyncio

    large_message_bytes: ClassVar[int] = 5_000_000
    """Size of the large message; a store may refuse it with ``MessageTooLargeError``."""

    saves_in_a_row: ClassVar[int] = 1_000
    """Saves in the tight loop of case C13."""

    saves_per_process: ClassVar[int] = 200
    """What each of two processes saves in case C20."""

    listed_chats: ClassVar[int] = 230
    """How many chats there are where a listing must not stop at a page's end."""

    cancelled_steps: ClassVar[int] = 40
    """A call is cancelled after each of this many steps of the event loop, then ever later."""

    serves_any_loop: ClassVar[bool] = True
    """False for a store that a caller's engine or client ties to one event loop."""

    @pytest_asyncio.fixture
    async def storage(self, make_storage: MakeStorage) -> AsyncIterator[ChatStorage]:
        """The store under test."""
        async with make_storage() as storage:
            yield storage

    @pytest_asyncio.fixture
    async def other(
        self, storage: ChatStorage, make_storage: MakeStorage
    ) -> AsyncIterator[ChatStorage]:
        """A second storage object over the same medium."""
        skip_if_private(storage)
        async with make_storage() as other:
            yield other

    @pytest_asyncio.fixture
    async def records(self, storage: ChatStorage) -> SummaryStore:
        """Where the store under test keeps summary records."""
        store = storage.summaries()
        if store is None:
            pytest.skip(f"{type(storage).__name__} keeps no summary records")
        return store

    async def corrupt(self, storage: ChatStorage, key: ChatKey, position: int) -> None:
        """Make the stored entry at `position` unreadable, behind the store's back.

        Override it, so that the tests of corrupt records run; without it they are skipped.
        """
        pytest.skip(f"{type(self).__name__} has no corrupt(storage, key, position)")


def skip_if_private(storage: ChatStorage) -> None:
    """Skip a test of several storage objects where each has a medium of its own."""
    if storage.scope == "process":
        pytest.skip(
            f"{type(storage).__name__} shares nothing with another object (scope 'process')"
        )


def ids(key: ChatKey = KEY) -> tuple[str, str, str]:
    """The three ids that the methods of a store take."""
    return key.user_id, key.session_id, key.agent_id


def user(content: Any = "hello", **fields: Any) -> ConversationMessage:
    """Make a message of the user's."""
    return ConversationMessage("user", content, **fields)


def users(count: int, prefix: str = "message ") -> list[ConversationMessage]:
    """Make numbered messages of the user's."""
    return [user(f"{prefix}{number}") for number in range(1, count + 1)]


def seconds(number: float) -> datetime:
    """The moment that many seconds after a fixed one."""
    return START + timedelta(seconds=number)


async def save(
    storage: ChatStorage, *messages: ConversationMessage, key: ChatKey = KEY
) -> list[ConversationMessage]:
    """Save a batch."""
    return await storage.save_chat_messages(*ids(key), messages)


async def raw(storage: ChatStorage, key: ChatKey = KEY) -> list[ConversationMessage]:
    """The whole raw chat."""
    return await storage.fetch_chat_since(*ids(key), 0)


def contents(messages: Iterable[ConversationMessage]) -> list[Any]:
    """What the messages say."""
    return [message.content for message in messages]


def positions(messages: Iterable[ConversationMessage]) -> list[int | None]:
    """Where the messages are."""
    return [message.position for message in messages]


def counted(start: int, stop: int) -> list[int | None]:
    """The positions from `start` to `stop`, both included."""
    return list(range(start, stop + 1))


def record_at(
    messages: Sequence[ConversationMessage], floor: int = 0, **fields: Any
) -> SummaryRecord:
    """Make a summary record that covers these stored messages."""
    first, last = messages[0], messages[-1]
    given: dict[str, Any] = {
        "summary": (user("what was said so far"),),
        "head": (),
        "position": last.position,
        "message_id": last.id,
        "floor": floor,
        "covered": Covered(first.position or 0, last.position or 0, len(messages)),
    }
    return SummaryRecord(**{**given, **fields})


def assert_same(given: Any, got: Any, path: str = "content") -> None:
    """Assert equality by value, type and key order; frozen containers count as plain ones."""
    steps: Any
    if isinstance(given, dict):
        assert isinstance(got, dict), path
        steps = cast("dict[str, Any]", given)
        assert list(steps) == list(cast("dict[str, Any]", got)), path
    elif isinstance(given, list):
        assert isinstance(got, list), path
        steps = range(len(cast("Sized", given)))
        assert len(steps) == len(cast("Sized", got)), path
    else:
        _assert_same_scalar(given, got, path)
        return
    for step in steps:
        assert_same(given[step], got[step], f"{path}[{step!r}]")


def _assert_same_scalar(given: Any, got: Any, path: str) -> None:
    assert type(given) is type(got), path
    assert given == got, path
    if isinstance(given, float):
        assert math.copysign(1, given) == math.copysign(1, got), path


def assert_same_messages(
    given: Sequence[ConversationMessage], got: Sequence[ConversationMessage]
) -> None:
    """Assert that every field of every message came back as it went in."""
    assert [message.id for message in given] == [message.id for message in got]
    for one, other in zip(given, got, strict=True):
        assert_same(one.content, other.content)
        assert_same(one.extra, other.extra, "extra")
        assert_same(one.metadata, other.metadata, "metadata")
        assert one == other
