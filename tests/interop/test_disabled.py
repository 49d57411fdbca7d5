"""Disabled agents as official clients report them: with the reason, and without a retry."""

from collections.abc import AsyncGenerator
from typing import Final

import pytest
import pytest_asyncio

from babelgate.gateway.exchange import ActOrigin
from babelgate.gateway.storage import administration
from babelgate.gateway.storage.administration import DisabledAgent
from tests.interop.driver import start_client
from tests.interop.test_access import CALLS, refusal_of
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

REASON: Final = "It sends wrong invoices (INC-7)."
MESSAGE: Final = f"Agent echo is disabled and starts no runs: {REASON}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    disabled = DisabledAgent(name="echo", running="drain", reason=REASON, changed_at=0, changed_by="key:ops")
    async with running(tmp_path_factory.mktemp("disabled")) as gateway:
        await gateway.hub.journal.write(administration.disable_agent, disabled, ActOrigin())
        await gateway.hub.administration.refresh()
        yield gateway


@pytest.mark.parametrize("peer", CALLS)
async def test_official_clients_raise_the_reason(gateway: Running, peer: str) -> None:
    error = await refusal_of(gateway, peer)
    assert MESSAGE in f"{error.message} {error.data}"
    if peer == "openai":
        assert (error.type, error.data["tries"]) == ("InternalServerError", "0")


async def test_the_mcp_client_gets_the_reason_as_an_error_result(gateway: Running) -> None:
    async with start_client("mcp", base_url=f"{gateway.url}/mcp", mode="auto") as client:
        result = await client.call("call", name="echo", message="hi")
    assert (result["isError"], result["content"][0]["text"]) == (True, MESSAGE)
