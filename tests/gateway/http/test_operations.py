"""Names of requests: each handler of each protocol has its own name, from a fixed set."""

from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters import ADAPTERS
from babelgate.gateway.http.operations import GATEWAY, OTHER, Operations
from tests.bridge import client
from tests.gateway.http.issuing import Issuing
from tests.gateway.reports import Recorder
from tests.opened import opened

GOLDEN = Path(__file__).parent / "operations.txt"
"""Every protocol and operation of a route, one pair a line."""
A2A: dict[str, Any] = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}


def call(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


REQUESTS: list[tuple[str, str, Any, tuple[str, str, int, bool]]] = [
    ("GET", "/", None, (GATEWAY, "index", 200, False)),
    ("GET", "/healthz", None, (GATEWAY, "healthz", 200, False)),
    ("GET", "/nothing/here", None, (GATEWAY, OTHER, 404, False)),
    ("OPTIONS", "/acp/runs", None, ("acp", OTHER, 204, False)),
    ("GET", "/acp/agents", None, ("acp", "list_agents", 200, False)),
    ("GET", "/agent/echo/acp/agents", None, ("acp", "list_agents", 200, False)),
    ("GET", "/acp/nothing", None, ("acp", OTHER, 404, False)),
    ("POST", "/threads", {}, ("langchain", "thread.create", 200, False)),
    ("POST", "/store/items/search", {}, ("langchain", "store.search", 200, False)),
    ("GET", "/v1/models", None, ("openai", "models.list_models", 200, False)),
    ("POST", "/a2a/echo", call("SendMessage", A2A), ("a2a", "SendMessage", 200, False)),
    ("POST", "/a2a/echo", call("SendStreamingMessage", A2A), ("a2a", "SendStreamingMessage", 200, True)),
    ("POST", "/a2a/echo", call("Whatever", {}), ("a2a", "call", 200, False)),
    ("POST", "/mcp", call("tools/list", {}), ("mcp", "tools/list", 200, True)),
    ("POST", "/vercel-ui/echo", {"prompt": "hi"}, ("vercel-ui", "send_messages", 200, True)),
]


@pytest.mark.parametrize(("method", "path", "body", "named"), REQUESTS, ids=lambda each: str(each)[:40])
async def test_request_is_reported_with_its_operation(
    tmp_path: Path, method: str, path: str, body: Any, named: tuple[str, str, int, bool]
):
    observer = Recorder()
    headers = {"A2A-Version": "1.0", "Accept": "application/json, text/event-stream"}
    async with opened(tmp_path, observer=observer) as gateway, client(gateway.app) as http:
        response = await http.request(method, path, json=body, headers=headers)
        assert response.status_code == named[2], response.text
    (report,) = (each for each in observer.reports if each[0] == "request")
    assert report[1:4] == named[:3]
    is_stream = named[3]
    assert (report[4] is None) == is_stream
    assert observer.of("stream_opened", "stream_closed") == (
        [("stream_opened", named[0]), ("stream_closed", named[0])] if is_stream else []
    )


async def test_handlers_of_a_protocol_have_different_names(tmp_path: Path, accept: bool):
    async with opened(tmp_path) as gateway:
        operations, names = Operations(), dict[tuple[str, str], set[str]]()
        for route in gateway.app.app.routes:
            for handler in getattr(route, "route_handlers", None) or [route.route_handler]:
                found = operations.find({"path": route.path, "route_handler": handler, "state": {}})
                names.setdefault(found, set()).add(handler.fn.__qualname__)
    ambiguous = {name: functions for name, functions in names.items() if len(functions) > 1 and name[1] != OTHER}
    assert ambiguous == {}
    assert {protocol for protocol, _ in names} == {GATEWAY, *(adapter.name for adapter in ADAPTERS)}
    assert len(names) < 250
    text = "".join(f"{protocol} {operation}\n" for protocol, operation in sorted(names))
    if accept:
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text, "labels of metrics have changed, which breaks dashboards"


@pytest.mark.parametrize(
    ("path", "headers", "reported"),
    [
        ("/acp/agents", {"Authorization": "Bearer alice-0123456789"}, [("key", "accepted")]),
        ("/acp/agents", {"X-Api-Key": "alice-0123456789"}, [("key", "accepted")]),
        ("/acp/agents", {"X-Api-Key": "wrong"}, [("key", "refused")]),
        ("/acp/agents", {"Authorization": "Bearer a.b.c"}, [("token", "refused")]),
        ("/acp/agents", {}, [("none", "refused")]),
        ("/healthz", {}, []),
    ],
)
async def test_check_of_a_credential_is_reported(
    tmp_path: Path, path: str, headers: dict[str, str], reported: list[tuple[str, str]]
):
    observer, issuers = Recorder(), {"corp": Issuing().inline()}
    keys = {"alice": "alice-0123456789"}
    async with opened(tmp_path, observer=observer, keys=keys, issuers=issuers) as gateway, client(gateway.app) as http:
        await http.get(path, headers=headers)
    assert observer.of("auth") == [("auth", *each) for each in reported]
