"""REST: 1.0 below the agent's URL, 0.3 below its /v1."""

from typing import Any

import pytest

from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import Site, answer_of, events_of, message

pytestmark = pytest.mark.asyncio(loop_scope="module")

V1 = {"A2A-Version": "1.0"}


def message_rest_0_3(text: str, **more: Any) -> dict[str, Any]:
    return {"request": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": text}], **more}}


async def ok(response: Any) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


async def test_send_in_1_0_returns_the_task(site: Site) -> None:
    response = await site.client.post("/a2a/echo/message:send", json=message("Hello"), headers=V1)
    task = check("sent", "1.0", await ok(response))["task"]
    assert answer_of(task) == "Hello"
    assert response.headers["Babelgate-Task"] == task["id"]


async def test_send_in_0_3_returns_protojson(site: Site) -> None:
    response = await site.client.post("/a2a/echo/v1/message:send", json=message_rest_0_3("Hello"))
    assert answer_of(check("sent", "0.3-rest", await ok(response))["task"]) == "Hello"


async def test_send_in_0_3_without_blocking_does_not_wait(site: Site) -> None:
    body: dict[str, Any] = {**message_rest_0_3("x"), "configuration": {}}
    task = (await ok(await site.client.post("/a2a/gated/v1/message:send", json=body)))["task"]
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")


async def test_streams_are_bare_events(site: Site) -> None:
    new = await site.client.post("/a2a/echo/message:stream", json=message("Hello"), headers=V1)
    assert {name for event in events_of(new) for name in check("event", "1.0", event)} >= {"task", "statusUpdate"}
    old = await site.client.post("/a2a/echo/v1/message:stream", json=message_rest_0_3("Hello"))
    events = [check("event", "0.3-rest", event) for event in events_of(old)]
    assert events[-1]["statusUpdate"]["final"] is True
    assert "final" not in events[1]["statusUpdate"]


async def test_an_error_before_the_first_event_has_its_http_status(site: Site) -> None:
    for path, headers in (("", V1), ("/v1", {})):
        response = await site.client.post(f"/a2a/echo{path}/message:stream", json={}, headers=headers)
        assert response.status_code in (400, 422)
        assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("base", "headers"), [("/a2a/ask", V1), ("/a2a/ask/v1", {})])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_task_is_fetched_subscribed_to_and_cancelled(site: Site, base: str, headers: Any, method: str) -> None:
    task = (await site.result("ask", "SendMessage", message("x")))["task"]
    fetched = await ok(await site.client.get(f"{base}/tasks/{task['id']}?historyLength=1", headers=headers))
    assert (fetched["id"], len(fetched["history"])) == (task["id"], 1)
    url = f"{base}/tasks/{task['id']}:subscribe"
    async with site.client.stream(method, url, headers=headers) as response:
        lines = response.aiter_lines()
        assert '"task"' in await anext(lines)
        cancelled = await ok(await site.client.post(f"{base}/tasks/{task['id']}:cancel", headers=headers, json={}))
        rest = [line async for line in lines]
    state = "TASK_STATE_CANCELED" if base == "/a2a/ask" else "TASK_STATE_CANCELLED"
    assert cancelled["status"]["state"] == state
    assert state in [line for line in rest if line][-1]


async def test_tasks_are_listed_with_query_parameters_in_both_versions(fresh: Site) -> None:
    for n in range(3):
        await fresh.result("echo", "SendMessage", message(str(n), contextId="my context"))
    query = {"contextId": "my context", "pageSize": "2", "includeArtifacts": "true", "status": "TASK_STATE_COMPLETED"}
    page = check("page", "1.0", await ok(await fresh.client.get("/a2a/echo/tasks", params=query, headers=V1)))
    assert (len(page["tasks"]), page["totalSize"]) == (2, 3)
    assert answer_of(page["tasks"][0]) == "2"
    query["pageToken"] = page["nextPageToken"]
    page = await ok(await fresh.client.get("/a2a/echo/tasks", params=query, headers=V1))
    assert (len(page["tasks"]), page["nextPageToken"]) == (1, "")
    old = check("page", "0.3-rest", await ok(await fresh.client.get("/a2a/echo/v1/tasks")))
    assert old["totalSize"] == 3
    assert (await fresh.client.get("/a2a/echo/tasks?pageSize=0", headers=V1)).status_code == 400


async def test_the_version_is_checked_and_may_be_a_query_parameter(site: Site) -> None:
    response = await site.client.get("/a2a/echo/tasks")
    assert response.status_code == 400
    assert check("rest-error", "1.0", response.json())["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    await ok(await site.client.get("/a2a/echo/tasks?A2A-Version=1.0"))
    response = await site.client.get("/a2a/echo/v1/tasks", headers=V1)
    assert response.status_code == 400
    check("rest-error", "0.3", response.json())


async def test_media_type_is_a2a_json_on_request(site: Site) -> None:
    for accept, media_type in (("*/*", "application/json"), ("application/a2a+json, */*", "application/a2a+json")):
        response = await site.client.get("/a2a/echo/tasks", headers={**V1, "Accept": accept})
        assert response.headers["Content-Type"] == media_type


async def test_errors_of_1_0_are_google_rpc_statuses(site: Site) -> None:
    task = (await site.result("echo", "SendMessage", message("x")))["task"]
    for method, path, status, rpc, reason in (
        ("GET", "tasks/nope", 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("POST", f"tasks/{task['id']}:cancel", 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        ("GET", f"tasks/{task['id']}:subscribe", 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ("GET", "extendedAgentCard", 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ("POST", "message:send", 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", "nothing/here", 404, "NOT_FOUND", "NOT_FOUND"),
        ("GET", f"tasks/{task['id']}:explode", 404, "NOT_FOUND", "NOT_FOUND"),
        ("POST", f"tasks/{task['id']}", 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
        ("GET", f"tasks/{task['id']}:cancel", 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
    ):
        response = await site.client.request(method, f"/a2a/echo/{path}", headers=V1)
        error = check("rest-error", "1.0", response.json())["error"]
        assert (response.status_code, error["code"], error["status"]) == (status, status, rpc), path
        assert error["details"][0]["reason"] == reason


async def test_errors_of_0_3_have_a_message(site: Site) -> None:
    task = (await site.result("echo", "SendMessage", message("x")))["task"]
    for method, path, status, code in (
        ("GET", "tasks/nope", 404, -32001),
        ("POST", f"tasks/{task['id']}:cancel", 409, -32002),
        ("GET", f"tasks/{task['id']}:subscribe", 501, -32004),
        ("GET", "card", 501, -32004),
        ("POST", "message:send", 422, -32602),
    ):
        response = await site.client.request(method, f"/a2a/echo/v1/{path}")
        assert (response.status_code, check("rest-error", "0.3", response.json())["code"]) == (status, code), path


async def test_bodies_of_any_content_type_must_be_objects(site: Site) -> None:
    plain = {**V1, "Content-Type": "text/plain"}
    body = b'{"message":{"message_id":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}'
    assert (
        answer_of((await ok(await site.client.post("/a2a/echo/message:send", content=body, headers=plain)))["task"])
        == "hi"
    )
    for wrong in (b"[]", b"1", b"{", b"\xff\xfe"):
        response = await site.client.post("/a2a/echo/message:send", content=wrong, headers=V1)
        assert response.status_code == 400
        check("rest-error", "1.0", response.json())


async def test_path_is_split_at_its_last_colon(site: Site) -> None:
    response = await site.client.get("/a2a/echo/tasks/thread:run:subscribe", headers=V1)
    assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
