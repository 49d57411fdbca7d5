"""Budgets as official clients report them: a refusal without a retry, and the question of a paused run."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.interop.driver import start_client
from tests.interop.test_access import CALLS, refusal_of
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGE: Final = "The budget few of default is used up (1 of 1 runs)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def refusing(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    budgets = {"few": {"per": "owner", "runs": 1}}
    async with running(tmp_path_factory.mktemp("refusing"), budgets=budgets) as gateway:
        await gateway.http.post("/v1/responses", json={"model": "echo", "input": "hi"})
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pausing(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    budgets = {"few": {"per": "owner", "runs": 1, "on_limit": "pause", "raised_by": "owner"}}
    async with running(tmp_path_factory.mktemp("pausing"), budgets=budgets) as gateway:
        await gateway.http.post("/v1/responses", json={"model": "echo", "input": "hi"})
        yield gateway


@pytest.mark.parametrize("peer", CALLS)
async def test_official_clients_raise_what_is_used_up(refusing: Running, peer: str) -> None:
    error = await refusal_of(refusing, peer)
    assert MESSAGE in f"{error.message} {error.data}"
    if peer == "openai":
        assert (error.type, error.data["tries"]) == ("RateLimitError", "0")


async def test_the_mcp_client_gets_an_error_result(refusing: Running) -> None:
    async with start_client("mcp", base_url=f"{refusing.url}/mcp", mode="auto") as client:
        result = await client.call("call", name="echo", message="hi")
    assert result["isError"] and MESSAGE in result["content"][0]["text"]


@pytest.mark.parametrize("peer", CALLS)
async def test_official_clients_show_the_question_of_a_paused_run(pausing: Running, peer: str) -> None:
    path, method, arguments = CALLS[peer]
    async with start_client(peer, base_url=f"{pausing.url}{path}") as client:
        result: Any = await client.call(method, **arguments)
    assert MESSAGE in str(result), result
    assert any(word in str(result).lower() for word in ("awaiting", "input", "interrupt", "continue?")), result
