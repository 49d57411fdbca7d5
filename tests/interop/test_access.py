"""Refusals by access rules as official clients report them."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.interop.driver import ClientError, start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGE: Final = "anonymous may not run echo: no rule of access allows it."
CALLS: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "acp": ("/acp", "run_sync", {"agent": "echo", "input": "hi"}),
    "a2a-1.0": ("/a2a/echo", "send", {"text": "hi"}),
    "a2a-0.3": ("/a2a/echo", "send", {"text": "hi"}),
    "langgraph-sdk": (
        "",
        "runs.wait",
        {"thread_id": None, "assistant_id": "echo", "input": {"messages": [{"role": "user", "content": "hi"}]}},
    ),
    "openai": ("/v1", "create", {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}),
}
"""Path of the base URL, method and arguments of a client's call that starts a run."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    rules = [
        {"who": "*", "allow": ["discover", "read"]},
        {"who": "*", "agents": ["stream"], "allow": "*"},
        {"who": "*", "agents": ["ask"], "deny": "*"},
    ]
    async with running(tmp_path_factory.mktemp("access"), access=rules) as gateway:
        yield gateway


async def refusal_of(gateway: Running, peer: str) -> ClientError:
    """Return the error that a client raises for its call."""
    path, method, arguments = CALLS[peer]
    async with start_client(peer, base_url=f"{gateway.url}{path}") as client:
        with pytest.raises(ClientError) as raised:
            await client.call(method, **arguments)
    return raised.value


@pytest.mark.parametrize("peer", CALLS)
async def test_official_clients_raise_the_words_of_a_refusal(gateway: Running, peer: str) -> None:
    error = await refusal_of(gateway, peer)
    assert MESSAGE in f"{error.message} {error.data}"


async def test_the_mcp_client_gets_the_words_as_an_error_result(gateway: Running) -> None:
    async with start_client("mcp", base_url=f"{gateway.url}/mcp", mode="auto") as client:
        tools = {tool["name"] for tool in await client.call("tools")}
        result = await client.call("call", name="echo", message="hi")
    assert "ask" not in tools and "echo" in tools
    assert (result["isError"], result["content"][0]["text"]) == (True, MESSAGE)
