"""Push notification configs, and the posts that receivers get."""

from dataclasses import replace
from typing import Any

import pytest

from babelgate.gateway.runs.retry_schedule import RetrySchedule
from tests.adapters.a2a.receiver import Receiver
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import URL as GATEWAY
from tests.adapters.a2a.site import Site, message, message_0_3
from tests.gateway.hubs import eventually, within

pytestmark = pytest.mark.asyncio(loop_scope="module")

URL = "http://127.0.0.1:9/nobody-listens"


async def waiting(site: Site) -> str:
    return (await site.result("ask", "SendMessage", message("x")))["task"]["id"]


async def test_push_methods_of_1_0(site: Site) -> None:
    task_id = await waiting(site)
    config = {
        "id": "p1",
        "taskId": task_id,
        "url": URL,
        "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "k"},
    }
    created = await site.result("ask", "CreateTaskPushNotificationConfig", config)
    assert check("push", "1.0", created) == config
    assert await site.result("ask", "GetTaskPushNotificationConfig", {"taskId": task_id, "id": "p1"}) == config
    second = await site.result("ask", "CreateTaskPushNotificationConfig", {"taskId": task_id, "url": URL})
    assert second["id"]
    page = check("pushes", "1.0", await site.result("ask", "ListTaskPushNotificationConfigs", {"taskId": task_id}))
    assert {each["id"] for each in page["configs"]} == {"p1", second["id"]}
    first = await site.result("ask", "ListTaskPushNotificationConfigs", {"taskId": task_id, "pageSize": 1})
    more = {"taskId": task_id, "pageSize": 1, "pageToken": first["nextPageToken"]}
    rest = await site.result("ask", "ListTaskPushNotificationConfigs", more)
    assert first["configs"] + rest["configs"] == page["configs"]
    assert rest["nextPageToken"] == ""
    for _ in range(2):  # deleting is idempotent
        response = await site.rpc("ask", "DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": "p1"})
        assert response.json() == {"jsonrpc": "2.0", "id": 7, "result": None}
    assert (await site.error("ask", "GetTaskPushNotificationConfig", {"taskId": task_id, "id": "p1"}))["code"] == -32001


async def test_push_methods_of_0_3(site: Site) -> None:
    task_id = await waiting(site)
    auth = {"schemes": ["Bearer"], "credentials": "k"}
    config = {
        "taskId": task_id,
        "pushNotificationConfig": {"id": "p1", "url": URL, "token": "t", "authentication": auth},
    }
    base = "tasks/pushNotificationConfig"
    assert check("push", "0.3", await site.result("ask", f"{base}/set", config)) == config
    name = {"id": task_id, "pushNotificationConfigId": "p1"}
    assert await site.result("ask", f"{base}/get", name) == config
    assert await site.result("ask", f"{base}/get", {"id": task_id}) == config
    assert (await site.error("ask", f"{base}/get", {"id": task_id, "pushNotificationConfigId": "p9"}))["code"] == -32001
    assert check("pushes", "0.3", await site.result("ask", f"{base}/list", {"id": task_id})) == [config]
    deleted = (await site.rpc("ask", f"{base}/delete", name)).json()
    assert deleted == {"jsonrpc": "2.0", "id": 7, "result": None}
    assert await site.result("ask", f"{base}/list", {"id": task_id}) == []


async def test_push_paths_of_1_0(site: Site) -> None:
    url = f"/a2a/ask/tasks/{await waiting(site)}/pushNotificationConfigs"
    headers = {"A2A-Version": "1.0"}
    created = (await site.client.post(url, json={"url": URL, "id": "p1"}, headers=headers)).json()
    assert check("push", "1.0", created)["id"] == "p1"
    assert (await site.client.get(f"{url}/p1", headers=headers)).json() == created
    assert (await site.client.get(url, headers=headers)).json() == {"configs": [created], "nextPageToken": ""}
    response = await site.client.delete(f"{url}/p1", headers=headers)
    assert (response.status_code, response.json()) == (200, {})


@pytest.mark.parametrize(
    "body",
    [
        {"parent": "tasks/x", "configId": "p1", "config": {"name": "n", "pushNotificationConfig": {"url": URL}}},
        {"name": "n", "pushNotificationConfig": {"id": "p1", "url": URL}},
        {"taskId": "x", "pushNotificationConfig": {"id": "p1", "url": URL}},
        {"config": {"push_notification_config": {"url": URL}}, "config_id": "p1"},
        {"config": {"pushNotificationConfig": {"id": "p1", "url": URL, "authentication": {}}}},
    ],
)
async def test_push_paths_of_0_3_accept_every_form_of_body(site: Site, body: Any) -> None:
    task_id = await waiting(site)
    url = f"/a2a/ask/v1/tasks/{task_id}/pushNotificationConfigs"
    created = check("push", "0.3-rest", (await site.client.post(url, json=body)).json())
    assert created["name"] == f"tasks/{task_id}/pushNotificationConfigs/p1"
    assert (await site.client.get(f"{url}/p1")).json() == created
    assert (await site.client.get(url)).json()["configs"] == [created]
    assert (await site.client.delete(f"{url}/p1")).json() == {}
    assert (await site.client.post(url, json={"config": {}})).status_code == 422


async def test_forbidden_urls_and_invalid_secrets_are_rejected(site: Site) -> None:
    task_id = await waiting(site)
    for wrong in (
        {"url": "http://10.0.0.1/x"},
        {"url": URL, "token": "a\r\nX: y"},
        {"url": URL, "authentication": {"scheme": "Bearer", "credentials": "ü"}},
        {"url": URL, "id": "x" * 300},
        {"url": ""},
    ):
        params = {"taskId": task_id, **wrong}
        assert (await site.error("ask", "CreateTaskPushNotificationConfig", params))["code"] == -32602
    inline = {**message("x"), "configuration": {"taskPushNotificationConfig": {"url": "http://10.0.0.1/x"}}}
    assert (await site.error("ask", "SendMessage", inline))["code"] == -32602


async def test_config_of_1_0_receives_one_stream_response_per_event(site: Site, receiver: Receiver) -> None:
    push = {"url": receiver.url, "token": "t", "authentication": {"scheme": "Bearer", "credentials": "k"}}
    params = {**message("Hello"), "configuration": {"taskPushNotificationConfig": push}}
    task = (await site.result("echo", "SendMessage", params))["task"]
    posts = await receiver.until("TASK_STATE_COMPLETED")
    bodies = [check("event", "1.0", each.body) for each in posts]
    assert bodies[0]["task"]["id"] == task["id"]
    assert len(bodies) == 5
    assert {each.headers["x-a2a-notification-token"] for each in posts} == {"t"}
    assert {each.headers["authorization"] for each in posts} == {"Bearer k"}


async def test_config_of_0_3_receives_whole_tasks(site: Site, receiver: Receiver) -> None:
    # The official compatibility layer pushes them in the form of 1.0.
    params = {**message_0_3("x"), "configuration": {"pushNotificationConfig": {"url": receiver.url, "token": "t"}}}
    task = await site.result("ask", "message/send", params)
    posts = await receiver.until("input-required")
    await site.result("ask", "SendMessage", message("Ada", taskId=task["id"]))
    posts += await receiver.until('"completed"')
    bodies = [check("task", "0.3", each.body) for each in posts]
    assert bodies[-1]["artifacts"][0]["parts"] == [{"kind": "text", "text": "Hello, Ada."}]
    assert [body["status"]["state"] for body in bodies][:3] == ["submitted", "working", "input-required"]


async def test_later_config_receives_only_later_events(site: Site, receiver: Receiver) -> None:
    task_id = await waiting(site)
    await site.result("ask", "CreateTaskPushNotificationConfig", {"taskId": task_id, "url": receiver.url})
    await site.result("ask", "SendMessage", message("Ada", taskId=task_id))
    bodies = [each.body for each in await receiver.until("TASK_STATE_COMPLETED")]
    assert [next(iter(body)) for body in bodies] == ["statusUpdate", *["artifactUpdate"] * 2, "statusUpdate"]


async def test_abandoned_config_continues_when_it_is_created_again(
    site: Site, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliverer = vars(site.hub)["_parts"].deliverer
    rules = replace(deliverer._rules(), schedule=RetrySchedule(()))
    monkeypatch.setattr(deliverer, "_rules", lambda: rules)
    task_id = await waiting(site)
    receiver.status = 503
    config = {"id": "p1", "taskId": task_id, "url": receiver.url}
    await site.result("ask", "CreateTaskPushNotificationConfig", config)
    await site.result("ask", "SendMessage", message("Ada", taskId=task_id))
    refused = await receiver.until("TASK_STATE_WORKING")
    key = ("default", task_id, "p1")
    await within(eventually(lambda: key not in vars(deliverer)["_deliveries"]), "the end of all attempts")
    fetched = await site.result("ask", "GetTaskPushNotificationConfig", {"taskId": task_id, "id": "p1"})
    assert fetched == config
    page = await site.result("ask", "ListTaskPushNotificationConfigs", {"taskId": task_id})
    assert page["configs"] == [config]
    receiver.status = 200
    await site.result("ask", "CreateTaskPushNotificationConfig", config)
    posts = await receiver.until("TASK_STATE_COMPLETED")
    assert posts[0].body == refused[0].body
    bodies = [next(iter(each.body)) for each in posts]
    assert bodies == ["statusUpdate", *["artifactUpdate"] * 2, "statusUpdate"]


async def test_config_sent_with_an_answer_receives_events(site: Site, receiver: Receiver) -> None:
    task_id = await waiting(site)
    params = {**message("Ada", taskId=task_id), "configuration": {"taskPushNotificationConfig": {"url": receiver.url}}}
    await site.result("ask", "SendMessage", params)
    assert (await receiver.until("TASK_STATE_COMPLETED"))[-1].body["statusUpdate"]["taskId"] == task_id


async def test_large_file_is_pushed_as_a_gateway_url(site: Site, receiver: Receiver) -> None:
    params = message(parts=[{"raw": "YWFh" * 1000, "filename": "a"}])
    params["configuration"] = {"taskPushNotificationConfig": {"url": receiver.url}}
    await site.result("files", "SendMessage", params)
    posts = await receiver.until("TASK_STATE_COMPLETED")
    assert f"'url': '{GATEWAY}/a2a/files/files/" in str([each.body for each in posts])
