"""Many processes, kills and deletions over a network that loses every connection in the end."""

from __future__ import annotations

import functools
from urllib.parse import urlsplit

import pytest

from agent_memory import DynamoDbChatStorage, SqlChatStorage
from storage.cutting import CuttingProxy, persistent
from storage.hard_use import HardSoak, HardUse

# Bytes. Each is enough for opening a connection and some saves, so that work goes on, and little
# enough for a cut every few saves.
# A page of DynamoDB is a megabyte.
PATIENT = {"postgres": 100, "mariadb": 100, "dynamodb": 1_000}
LIVES = {"postgres": (6_000, 40_000), "mariadb": (6_000, 40_000), "dynamodb": (1_000, 12_000)}
PORTS = {"postgresql": 5432, "mariadb": 3306, "mysql": 3306}


def through_proxy(name, url):
    parts = urlsplit(url)
    upstream = parts.hostname, parts.port or PORTS[parts.scheme]
    return CuttingProxy(upstream, LIVES[name], patient=PATIENT[name])


@pytest.fixture(scope="session")
def dynamodb_endpoint(moto_endpoint):
    return moto_endpoint  # dynalite ends when a request breaks off in its middle


class BehindProxy:
    answers_are_lost = True
    network = "connections cut"

    @pytest.fixture(params=["postgres", "mariadb"])
    async def proxy(self, request):
        self.url = request.getfixturevalue(f"{request.param}_url")
        async with through_proxy(request.param, self.url) as proxy:
            yield proxy
            assert proxy.cuts > 0  # else nothing was tested

    @pytest.fixture
    def make_storage(self, proxy):
        url = proxy.in_place_of(self.url)
        return functools.partial(persistent, functools.partial(SqlChatStorage, url))


class DynamoDbBehindProxy:
    answers_are_lost = True
    network = "connections cut"
    patience = 30  # seconds; see test_hard_use
    store = "moto"

    @pytest.fixture
    async def proxy(self, dynamodb_endpoint):
        async with through_proxy("dynamodb", dynamodb_endpoint) as proxy:
            yield proxy
            assert proxy.cuts > 0

    @pytest.fixture
    def make_storage(self, proxy, dynamodb_endpoint, dynamodb_table):
        make = functools.partial(
            DynamoDbChatStorage,
            dynamodb_table,
            "eu-central-1",
            endpoint_url=proxy.in_place_of(dynamodb_endpoint),
            create_table=True,
            timeout=self.patience,
        )
        return functools.partial(persistent, make)


@pytest.mark.matrix
class TestCutConnections(BehindProxy, HardUse):
    pass


@pytest.mark.matrix
class TestCutConnectionsOfDynamoDb(DynamoDbBehindProxy, HardUse):
    pass


@pytest.mark.soak
class TestCutConnectionsSoak(BehindProxy, HardSoak):
    pass


@pytest.mark.soak
class TestCutConnectionsSoakOfDynamoDb(DynamoDbBehindProxy, HardSoak):
    pass
