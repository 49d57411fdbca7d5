"""Requests leave nothing that only the garbage collector frees: it pauses a gateway with thousands of streams."""

import gc
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from typing import Final

import pytest
import pytest_asyncio

from babelgate.gateway import demo
from bench.client import KeepAliveConnection
from bench.work import GATEWAY, GRPC
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

WARM: Final = 10
"""Number of jobs before the collection, which fill caches."""
COUNTED: Final = 10
OF_GRPC: Final = ("grpc._cython.", "_cython_")
"""Beginnings of the names of what grpcio itself leaves: three objects for each call in version 1.85."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"echo": demo.echo, "stream": demo.stream}
    async with running(tmp_path_factory.mktemp("garbage"), agents, serves_grpc=True) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def open_connections() -> Generator[list[KeepAliveConnection]]:
    """Connections that stay open until the end, because a closed one does leave cycles."""
    connections: list[KeepAliveConnection] = []
    yield connections
    for each in connections:
        each.close()


@pytest.mark.parametrize("name", [*GATEWAY, *GRPC])
async def test_a_request_leaves_no_reference_cycles(
    gateway: Running, open_connections: list[KeepAliveConnection], name: str
) -> None:
    address = gateway.url if name in GATEWAY else gateway.settings.grpc.listen or ""
    connection = await KeepAliveConnection.open(int(address.rpartition(":")[2]))
    open_connections.append(connection)
    job = {**GATEWAY, **GRPC}[name]
    for number in range(WARM):
        await job(connection, number)
    gc.collect()
    gc.disable()
    try:
        for number in range(WARM, WARM + COUNTED):
            await job(connection, number)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    of_requests = {kind: count for kind, count in found.items() if count >= COUNTED and not kind.startswith(OF_GRPC)}
    assert of_requests == {}
