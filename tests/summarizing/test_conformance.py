"""A summarizing storage keeps the contract of what it wraps; tests/storage has more stores."""

from __future__ import annotations

from functools import partial

import pytest

from agent_memory import (
    InMemoryChatStorage,
    SummarizingChatStorage,
    TransformingChatStorage,
)
from agent_memory.testing import ChatStorageTests, witness_summary


async def never(history, keep_last):
    """A summarizer that no chat of these tests is long enough for."""
    raise AssertionError("it was asked")


async def shorten(history, keep_last):
    """One for chats that do get long."""
    return [witness_summary(history[:-2]), *history[-2:]]


def around(make_inner, summarizer=never, trigger_at=100_000):
    """Wrap what a picklable function makes."""
    return SummarizingChatStorage(make_inner(), summarizer, trigger_at, 1)


def unchanged(message):
    return message


def twice_around(make_inner):
    """A wrapper of a wrapper of a wrapper."""
    return around(partial(TransformingChatStorage, around(make_inner), unchanged))


class Around(ChatStorageTests):
    """The stores' own tests run the large counts."""

    saves_in_a_row = 200
    saves_per_process = 50


@pytest.mark.matrix
class TestAroundMemory(Around):
    @pytest.fixture
    def make_storage(self):
        return partial(around, InMemoryChatStorage)


@pytest.mark.matrix
class TestAroundWrappers(Around):
    @pytest.fixture
    def make_storage(self):
        return partial(twice_around, InMemoryChatStorage)


class TestAroundMemorySummarizing(Around):
    """With summaries being made: all that is raw stays as the contract says."""

    @pytest.fixture
    def make_storage(self):
        return partial(around, InMemoryChatStorage, shorten, 2)

    # These expect fetch_chat to be raw, which it is not here.
    test_c14_a_limit_gives_the_newest_oldest_first = None
    test_c63_threads_with_loops_of_their_own = None
    test_what_is_retracted_is_in_the_log_and_not_fetched = None
