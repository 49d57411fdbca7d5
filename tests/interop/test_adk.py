"""Agents of google-adk behind the gateway, item by item.

`test_frameworks` checks them in every protocol, and `test_shown` checks google-adk's client.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from tests.interop.driver import start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

URI: Final = "https://google.github.io/adk-docs/a2a/a2a-extension/"
AGENTS: Final = ("adk", "adk-new")
ANSWER: Final = "weather gave {'temp': 21}"
THOUGHT: Final = "I should look."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with start_server("adk") as server:
        upstream = {"url": server.url, "protocol": "a2a"}
        # These headers select its newer executor.
        headers = {"X-A2A-Extensions": URI, "A2A-Extensions": URI}
        configured = {"adk": upstream, "adk-new": {**upstream, "headers": headers}}
        async with running(tmp_path_factory.mktemp("gateway"), configured=configured) as gateway:
            yield gateway


async def post(http: httpx.AsyncClient, path: str, body: Any) -> Any:
    answer = await http.post(path, json=body, headers={"A2A-Version": "1.0"})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_adk_agent_is_complete_in_responses(gateway: Running, agent: str) -> None:
    response = await post(gateway.http, "/v1/responses", {"model": agent, "input": "weather"})
    items = {item["type"]: item for item in response["output"]}
    assert list(items) == ["reasoning", "mcp_call", "message"]
    assert items["reasoning"]["summary"][0]["text"] == THOUGHT
    assert (items["mcp_call"]["name"], items["mcp_call"]["output"]) == ("weather", '{"temp":21.0}')
    assert [part["text"] for part in items["message"]["content"]] == [ANSWER]
    assert (response["usage"]["input_tokens"], response["usage"]["total_tokens"]) == (8822, 8836)
