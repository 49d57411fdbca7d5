"""Limits as official clients report them: what was refused, and when the next run may start."""

from collections.abc import AsyncGenerator
from typing import Final

import pytest
import pytest_asyncio

from tests.interop.driver import start_client
from tests.interop.test_access import CALLS, refusal_of
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGE: Final = "The agent echo may start 1 run a day; the next in"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    rates = [{"per": "agent", "agent": "echo", "runs": 1, "every": "1d"}]
    async with running(tmp_path_factory.mktemp("limited"), limits={"rate": rates}) as gateway:
        await gateway.http.post("/v1/responses", json={"model": "echo", "input": "hi"})
        yield gateway


@pytest.mark.parametrize("peer", CALLS)
async def test_official_clients_raise_the_time_of_the_next_run(gateway: Running, peer: str) -> None:
    error = await refusal_of(gateway, peer)
    assert MESSAGE in f"{error.message} {error.data}"


async def test_the_mcp_client_gets_the_time_as_an_error_result(gateway: Running) -> None:
    async with start_client("mcp", base_url=f"{gateway.url}/mcp", mode="auto") as client:
        result = await client.call("call", name="echo", message="hi")
    assert result["isError"] and MESSAGE in result["content"][0]["text"]
