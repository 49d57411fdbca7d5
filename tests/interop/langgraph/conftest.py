"""Fixtures: a gateway with the demo agents and one that waits, and the official client, asynchronous and blocking."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from babelgate.gateway import demo
from tests.interop.driver import OfficialClient, start_client
from tests.running import Running, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gates() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def gate(gates: asyncio.Event) -> asyncio.Event:
    gates.clear()
    return gates


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, gates: asyncio.Event) -> AsyncGenerator[Running]:
    async def gated(text: str) -> AsyncGenerator[str]:
        """Yield one word, and the next when the gate opens."""
        yield "first"
        await gates.wait()
        yield " second"

    agents = {name: getattr(demo, name) for name in demo.__all__}
    async with running(tmp_path_factory.mktemp("langgraph"), {**agents, "gated": gated}) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("langgraph-sdk", base_url=gateway.url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["asynchronous", "blocking"])
async def either(
    request: pytest.FixtureRequest, gateway: Running, client: OfficialClient
) -> AsyncGenerator[OfficialClient]:
    if request.param == "asynchronous":
        yield client
        return
    async with start_client("langgraph-sdk", base_url=gateway.url, sync=True) as blocking:
        yield blocking
