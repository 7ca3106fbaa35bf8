"""What the tests of summarizers share: the model server, a clock, and small chats."""

from __future__ import annotations

import pytest

from agent_memory.models.openai import OpenAIChatModel
from agent_memory.summarizers import LLMSummarizer, Retry
from model_server import ModelServer


@pytest.fixture
async def server():
    async with ModelServer() as running:
        yield running


class Time:
    """A clock that only sleeping moves on."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def clock(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def retry(self, **options):
        return Retry(clock=self.clock, sleep=self.sleep, chance=lambda: 0.0, **options)


@pytest.fixture
def time():
    return Time()


@pytest.fixture(params=["chat", "responses"])
def make(request, server, time):
    """Makes a summarizer for the server, with either API."""

    def make(**options):
        llm = OpenAIChatModel(server.client(), "test-model", api=request.param)
        options.setdefault("retry", time.retry())
        return LLMSummarizer(llm, **options)

    return make
