"""Versions, errors and bodies on the URL of JSON-RPC."""

import json
from typing import Any

import pytest

from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import Site, answer_of, events_of, message, message_0_3

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("method", "params", "versions"),
    [
        ("SendMessage", message("x"), ["1.0", "1.0.0", "1.1", " 1.0 "]),
        ("message/send", message_0_3("x"), ["", "0.3", "0.3.0", "0.2.5"]),
    ],
)
async def test_any_minor_version_is_accepted(site: Site, method: str, params: Any, versions: list[str]) -> None:
    for version in versions:
        await site.result("echo", method, params, headers={"A2A-Version": version})


NO_PARTS: list[Any] = [[], [{}], [{"foo": 1}]]
WRONG: list[Any] = [
    *(None, {}, {"message": {}}, {"message": None}, [1], {"context": 1, "self": 2}),
    {"message": {"messageId": "m", "role": "user", "parts": []}},
    *(make(parts=parts) for make in (message, message_0_3) for parts in NO_PARTS),
]
REFUSED: list[tuple[str, Any, str | None, int]] = [
    *(("SendMessage", message("x"), version, -32009) for version in ("", "0.3", "9.9", "abc", "10")),
    ("message/send", message_0_3("x"), "1.0", -32600),
    # The official compatibility layer answers -32600 here.
    *((method, params, None, -32602) for method in ("SendMessage", "message/send") for params in WRONG),
    *((method, {}, None, -32601) for method in ("Nope", "message/nope", "sendmessage", "agent/nope", "tasks/list")),
]


@pytest.mark.parametrize(("method", "params", "version", "code"), REFUSED)
async def test_invalid_request_is_rejected_with_its_id(
    site: Site, method: str, params: Any, version: str | None, code: int
) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    for reply_id in ("a", 7, None, ""):
        answer = (await site.rpc("echo", method, params, headers=headers, id=reply_id)).json()
        error = check("error", "0.3" if "/" in method else "1.0", answer["error"])
        assert (answer["id"], error["code"]) == (reply_id, code)
        assert code != -32009 or error["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_the_version_may_be_a_query_parameter(site: Site) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("x")}
    assert "result" in (await site.client.post("/a2a/echo?A2A-Version=1.0", json=body)).json()
    assert (await site.client.post("/a2a/echo?A2A-Version=9.9", json=body)).json()["error"]["code"] == -32009


async def test_unknown_extensions_are_ignored_and_not_echoed(site: Site) -> None:
    for name in ("A2A-Extensions", "X-A2A-Extensions"):
        response = await site.rpc("echo", "SendMessage", message("x"), headers={name: "urn:a,urn:b"})
        assert "result" in response.json()
        assert "A2A-Extensions" not in response.headers


async def test_trailing_slash_and_any_content_type_are_accepted(site: Site) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": message_0_3("hi")}
    body = json.dumps(request).encode()
    response = await site.client.post("/a2a/echo/", content=body, headers={"Content-Type": "text/plain"})
    assert answer_of(response.json()["result"]) == "hi"
    assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'{"a": NaN}', b'"\\ud800"', b"[" * 1000, b'{"id": 1e999}', b"[{}]"]
)
async def test_invalid_body_is_an_error_with_id_null(site: Site, body: bytes) -> None:
    response = await site.client.post("/a2a/echo", content=body)
    answer = response.json()
    assert (response.status_code, answer["id"]) == (200, None)
    assert answer["error"]["code"] == (-32600 if body in (b"", b"[{}]") else -32700)


async def test_notification_is_executed_without_a_response(site: Site) -> None:
    body = {"jsonrpc": "2.0", "method": "message/send", "params": message_0_3("x", contextId="noted")}
    response = await site.client.post("/a2a/echo", json=body)
    assert (response.status_code, response.content) == (204, b"")
    assert (await site.result("echo", "ListTasks", {"contextId": "noted"}))["totalSize"] == 1


async def test_optional_params_may_be_missing(fresh: Site) -> None:
    assert (await fresh.result("echo", "ListTasks"))["tasks"] == []
    assert (await fresh.error("echo", "agent/getAuthenticatedExtendedCard"))["code"] == -32004


async def test_early_stream_error_is_an_event_only_in_0_3(site: Site) -> None:
    # A client of 0.3 accepts only an event stream; one of 1.0 reads both.
    for method in ("SendStreamingMessage", "SubscribeToTask"):
        response = await site.rpc("echo", method, {})
        assert response.headers["Content-Type"] == "application/json"
        assert (response.status_code, response.json()["error"]["code"]) == (200, -32602)
    for method in ("message/stream", "tasks/resubscribe"):
        response = await site.rpc("echo", method, {})
        (event,) = events_of(response)
        assert (response.status_code, event["id"], event["error"]["code"]) == (200, 7, -32602)
    wrong = await site.rpc("echo", "message/stream", message_0_3("x"), headers={"A2A-Version": "1.0"})
    assert events_of(wrong)[0]["error"]["code"] == -32600


async def test_error_details_exist_only_in_1_0(site: Site) -> None:
    new = check("error", "1.0", await site.error("echo", "GetTask", {"id": "x"}))
    assert new["data"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "TASK_NOT_FOUND",
            "domain": "a2a-protocol.org",
            "metadata": {},
        }
    ]
    check("error", "0.3", await site.error("echo", "tasks/get", {"id": "x"}))


async def test_unknown_agent_is_404_with_a_json_rpc_error(site: Site) -> None:
    response = await site.rpc("nobody", "SendMessage", message("x"))
    assert response.status_code == 404
    assert response.json()["jsonrpc"] == "2.0"
