"""Versions, errors and bodies on the URL of JSON-RPC."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import Site, answer_of, events_of, message, message_0_3, opened


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.1", " 1.0 "])
async def test_any_1_x_version_is_taken_for_methods_of_1_0(site: Site, version: str) -> None:
    await site.result("echo", "SendMessage", message("x"), headers={"A2A-Version": version})


@pytest.mark.parametrize("version", ["", "0.3", "9.9", "abc", "10"])
async def test_any_other_version_or_none_is_not_supported_for_methods_of_1_0(site: Site, version: str) -> None:
    error = await site.error("echo", "SendMessage", message("x"), headers={"A2A-Version": version})
    assert error["code"] == -32009
    assert check("error", "1.0", error)["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"


@pytest.mark.parametrize("version", ["", "0.3", "0.3.0", "0.2.5"])
async def test_any_0_x_version_or_none_is_taken_for_methods_of_0_3(site: Site, version: str) -> None:
    await site.result("echo", "message/send", message_0_3("x"), headers={"A2A-Version": version})


async def test_a_method_of_0_3_with_version_1_0_is_an_invalid_request_because_0_3_has_no_version_error(
    site: Site,
) -> None:
    error = await site.error("echo", "message/send", message_0_3("x"), headers={"A2A-Version": "1.0"})
    assert check("error", "0.3", error)["code"] == -32600


async def test_the_version_may_be_a_query_parameter(site: Site) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("x")}
    assert "result" in (await site.client.post("/a2a/echo?A2A-Version=1.0", json=body)).json()
    assert (await site.client.post("/a2a/echo?A2A-Version=9.9", json=body)).json()["error"]["code"] == -32009


async def test_extensions_that_are_asked_for_are_ignored_and_none_is_echoed(site: Site) -> None:
    for name in ("A2A-Extensions", "X-A2A-Extensions"):
        response = await site.rpc("echo", "SendMessage", message("x"), headers={name: "urn:a,urn:b"})
        assert "result" in response.json()
        assert "A2A-Extensions" not in response.headers


async def test_a_slash_at_the_end_and_any_content_type_are_taken(site: Site) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": message_0_3("hi")}
    body = json.dumps(request).encode()
    response = await site.client.post("/a2a/echo/", content=body, headers={"Content-Type": "text/plain"})
    assert answer_of(response.json()["result"]) == "hi"
    assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": NaN}', b'"\\ud800"', b"[" * 1000, b'{"id": 1e999}'])
async def test_a_body_that_is_no_json_is_a_parse_error_with_id_null(site: Site, body: bytes) -> None:
    response = await site.client.post("/a2a/echo", content=body)
    assert response.status_code == 200
    answer = response.json()
    assert answer["id"] is None
    assert answer["error"]["code"] == (-32700 if body else -32600)


async def test_a_batch_is_an_invalid_request(site: Site) -> None:
    body = [{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": message_0_3("x")}]
    assert (await site.client.post("/a2a/echo", json=body)).json()["error"]["code"] == -32600


async def test_a_notification_is_carried_out_and_answered_with_nothing(site: Site) -> None:
    body = {"jsonrpc": "2.0", "method": "message/send", "params": message_0_3("x", contextId="noted")}
    response = await site.client.post("/a2a/echo", json=body)
    assert (response.status_code, response.content) == (204, b"")
    assert (await site.result("echo", "ListTasks", {"contextId": "noted"}))["totalSize"] == 1


@pytest.mark.parametrize("reply_id", ["a", 7, None, ""])
async def test_the_id_comes_back_also_in_errors(site: Site, reply_id: Any) -> None:
    for method, params in (("GetTask", {"id": "x"}), ("GetTask", {}), ("Nope", {}), ("tasks/get", [1])):
        assert (await site.rpc("echo", method, params, id=reply_id)).json()["id"] == reply_id


@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"message": {}},
        {"message": None},
        {"message": {"messageId": "m", "role": "user", "parts": []}},
        [1],
        {"context": 1, "self": 2},
    ],
)
async def test_invalid_params_are_32602_with_the_fields_in_1_0(site: Site, method: str, params: Any) -> None:
    """The official compatibility layer says -32600 here."""
    error = await site.error("echo", method, params)
    form = "0.3" if "/" in method else "1.0"
    assert check("error", form, error)["code"] == -32602


async def test_empty_parts_and_parts_that_are_nothing_are_refused(site: Site) -> None:
    wrong: list[Any] = [[], [{}], [{"foo": 1}]]
    for parts in wrong:
        assert (await site.error("echo", "SendMessage", message(parts=parts)))["code"] == -32602
        assert (await site.error("echo", "message/send", message_0_3(parts=parts)))["code"] == -32602


async def test_params_that_are_missing_where_none_are_needed_are_no_error(site: Site) -> None:
    assert (await site.result("echo", "ListTasks"))["tasks"] == []
    assert (await site.error("echo", "agent/getAuthenticatedExtendedCard"))["code"] == -32004


@pytest.mark.parametrize("method", ["Nope", "message/nope", "sendmessage", "agent/nope"])
async def test_an_unknown_method_is_32601(site: Site, method: str) -> None:
    assert (await site.error("echo", method, {}))["code"] == -32601


async def test_an_error_before_the_first_event_is_json_in_1_0_and_an_event_in_0_3(site: Site) -> None:
    """A 0.3 client refuses anything that is no event stream; a 1.0 client reads either."""
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


async def test_details_are_an_array_in_1_0_and_no_member_at_all_in_0_3(site: Site) -> None:
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


async def test_an_unknown_agent_is_404_with_an_error_of_json_rpc(site: Site) -> None:
    response = await site.rpc("nobody", "SendMessage", message("x"))
    assert response.status_code == 404
    assert response.json()["jsonrpc"] == "2.0"


async def test_a_body_that_is_too_large_is_413_with_an_error_of_json_rpc(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"body": 1000}) as site:
        response = await site.rpc("echo", "SendMessage", message("x" * 2000))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == -32600
