"""Transport of requests without a stored session: status codes, media types, heartbeats, and clients that receive
nothing."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.adapters.kit.server import heartbeat
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.server import direct
from babelgate.adapters.mcp.server.calls import ToolCalls
from babelgate.canonical import AgentInfo, Invocation
from tests.adapters.mcp.site import ACCEPT, Client, Modern, Wire, messages_of, text_of
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
JSON: Final = {"Accept": "application/json"}
EVENTS: Final = {"Accept": "text/event-stream"}
HELLO: Final = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
RELEASE: Final = asyncio.Event()


async def echo(text: str) -> str:
    return text


async def silent(text: str) -> str:
    """Return when the test sets `RELEASE`."""
    await RELEASE.wait()
    return text


async def placed(call: Invocation) -> str:
    return "placed"


placed.info = AgentInfo(  # pyright: ignore[reportFunctionMemberAccess]
    name="placed",
    schemas={"input": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}},
)
AGENTS: Final[Wire] = {each.__name__: each for each in (echo, silent, placed)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("mcp"), AGENTS) as gateway:
        yield gateway


def changed(request: Wire, headers: Wire, body: Wire | None = None) -> Wire:
    """Return a request with other headers, of which None removes one, and with members of its body replaced."""
    merged = {name: value for name, value in {**request["headers"], **headers}.items() if value is not None}
    members = {name: value for name, value in {**request["json"], **(body or {})}.items() if value is not None}
    return {**request, "headers": merged, "json": members}


RESPONSE: Final[Wire] = {"method": None, "params": None, "result": {}}


@pytest.mark.parametrize(
    ("headers", "body", "modern", "older"),
    [
        ({}, {}, (200, None), (200, None)),
        (JSON, {}, (200, None), (200, None)),
        ({"Accept": "*/*"}, {}, (200, None), (200, None)),
        (EVENTS, {}, (406, None), (406, -32600)),
        ({"Accept": "image/png"}, {}, (406, None), (406, -32600)),
        ({"Content-Type": "text/plain"}, {}, (400, None), (400, None)),
        ({}, {"id": None, "method": "notifications/initialized"}, (202, None), (202, None)),
        ({}, RESPONSE, (400, -32600), (202, None)),
        ({"Mcp-Name": None}, {}, (400, -32020), (200, None)),
        ({}, {"method": "nope"}, (400, -32020), (200, -32601)),
        ({"Mcp-Method": "nope"}, {"method": "nope"}, (404, -32601), (200, -32601)),
        ({"Mcp-Method": "ping"}, {"method": "ping"}, (404, -32601), (200, None)),
        ({"Mcp-Method": "server/discover"}, {"method": "server/discover"}, (200, None), (200, -32601)),
        ({"Mcp-Method": "initialize"}, {"method": "initialize"}, (404, -32601), (200, -32602)),
        ({"MCP-Protocol-Version": "2099-01-01"}, {"id": None}, (400, -32022), (400, -32022)),
    ],
)
async def test_a_message_is_answered_by_the_rules_of_its_version(
    gateway: Running, headers: Wire, body: Wire, modern: tuple[int, int | None], older: tuple[int, int | None]
) -> None:
    for client, (status, code) in ((Modern(gateway.http), modern), (Client(gateway.http), older)):
        request = client.request("tools/call", {"name": "echo", "arguments": {"message": "go"}})
        response = await gateway.http.request(**changed(request, headers, body))
        assert response.status_code == status, response.text
        is_message = "text/plain" not in headers.values() and response.content != b""
        error: Wire = messages_of(response)[-1].get("error", {}) if is_message else {}
        assert error.get("code") == code, response.text


async def test_only_older_versions_always_stream(gateway: Running) -> None:
    for client, kind in ((Modern(gateway.http), "application/json"), (Client(gateway.http), "text/event-stream")):
        response = await gateway.http.request(**client.request("tools/list", {}))
        assert response.headers["content-type"] == kind
        response = await gateway.http.request(**changed(client.request("tools/list", {}), JSON))
        assert response.headers["content-type"] == "application/json"


async def test_a_handshake_opens_a_session_that_is_not_stored(gateway: Running) -> None:
    for headers in (ACCEPT, JSON):
        response = await gateway.http.request(**changed(Client(gateway.http).request("initialize", HELLO), headers))
        result = messages_of(response)[-1]["result"]
        assert (result["protocolVersion"], result["serverInfo"]["name"]) == ("2025-06-18", "babelgate")
        assert len(response.headers["mcp-session-id"]) == 64
    unknown = {**HELLO, "protocolVersion": "1999-01-01"}
    assert (await Client(gateway.http).ask("initialize", unknown))["result"]["protocolVersion"] == "2025-11-25"


async def test_a_header_must_repeat_its_argument(gateway: Running) -> None:
    request = Modern(gateway.http).request("tools/call", {"name": "placed", "arguments": {"region": "eu"}})
    for value, status in (("eu", 200), ("us", 400), (None, 400)):
        response = await gateway.http.request(**changed(request, {"Mcp-Param-Region": value}))
        assert response.status_code == status, response.text


async def test_a_silent_call_becomes_a_stream_with_heartbeats(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_PING", 0.1)
    for client in (Modern(gateway.http), Client(gateway.http)):
        RELEASE.clear()
        request = client.request("tools/call", {"name": "silent", "arguments": {"message": "go"}})
        async with asyncio.timeout(BOUND), gateway.http.stream(**request) as response:
            assert response.headers["content-type"] == "text/event-stream"
            lines: list[str] = []
            async for line in response.aiter_lines():
                lines.append(line)
                if line.startswith(":"):
                    RELEASE.set()
        last = next(line for line in lines if line.startswith("data: "))
        assert text_of(json.loads(last.removeprefix("data: "))["result"]) == "go"


@pytest.mark.parametrize("leaves", [True, False], ids=["disconnects", "receives nothing"])
async def test_a_client_that_does_not_read_its_response_is_cut(
    gateway: Running, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr(heartbeat, "SEND_TIMEOUT", BOUND if leaves else 0.1)
    sent: list[Wire] = []
    is_blocked = asyncio.Event()

    async def send(message: Wire) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            is_blocked.set()
            await asyncio.Event().wait()

    async def receive() -> Wire:
        await is_blocked.wait()
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    hub: Any = gateway.hub
    response: Any = direct.DirectServer(hub, ToolCalls(hub)).response
    message = w.Envelope.model_validate({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    scope: Wire = {"headers": [(b"content-type", b"application/json"), (b"accept", b"*/*")], "state": {}}
    async with asyncio.timeout(BOUND):
        await response(message).to_asgi_response()(scope, receive, send)
    assert [each["type"] for each in sent] == ["http.response.start", "http.response.body"]
