"""Streams, subscriptions, lists and cancels."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway import demo
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import BOUND, Site, answer_of, events_of, message, message_0_3
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")


def kinds(events: list[Any]) -> list[str]:
    return [next(iter(event["result"])) for event in events]


# Streams


async def test_stream_of_1_0_is_the_task_followed_by_updates(site: Site) -> None:
    response = await site.rpc("echo", "SendStreamingMessage", message("Hello"))
    events = events_of(response)
    for event in events:
        assert (event["jsonrpc"], event["id"]) == ("2.0", 7)
        check("event", "1.0", event["result"])
    assert kinds(events) == ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    assert events[0]["result"]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert events[0]["result"]["task"]["history"][0]["messageId"] == "m"
    assert "event:" not in response.text
    assert "id:" not in response.text.replace('"id:', "")
    assert response.headers["Babelgate-Task"] == events[0]["result"]["task"]["id"]


async def test_stream_of_0_3_ends_with_a_final_update(site: Site) -> None:
    events = [
        check("event", "0.3", event["result"])
        for event in events_of(await site.rpc("echo", "message/stream", message_0_3("Hello")))
    ]
    assert [event["kind"] for event in events] == ["task", "status-update", *["artifact-update"] * 2, "status-update"]
    assert [event["final"] for event in events if event["kind"] == "status-update"] == [False, True]


@pytest.mark.parametrize(
    ("modes", "in_pieces"),
    [
        ([], True),
        (["text/plain"], True),
        (["application/json", "TEXT/*; q=1"], True),
        (["*/*"], True),
        (["application/json"], False),
    ],
)
@pytest.mark.parametrize("agent", ["rich", "cut"])
async def test_caller_without_text_modes_receives_whole_answers(
    site: Site, modes: list[str], in_pieces: bool, agent: str
) -> None:
    events = events_of(
        await site.rpc(agent, "SendStreamingMessage", {**message("x"), "configuration": {"acceptedOutputModes": modes}})
    )
    updates = [event["result"]["artifactUpdate"] for event in events if "artifactUpdate" in event["result"]]
    answer = [each for each in updates if each["artifact"]["artifactId"] == "answer-1"]
    assert (len(answer) > 1) is in_pieces
    assert (answer[-1].get("append", False), answer[-1]["lastChunk"]) == (False, True)
    task = await site.result(agent, "GetTask", {"id": updates[0]["taskId"]})
    assert answer[-1]["artifact"]["parts"] == task["artifacts"][0]["parts"]


async def test_question_ends_a_stream_as_final_in_0_3(site: Site) -> None:
    events = events_of(await site.rpc("ask", "message/stream", message_0_3("x")))
    assert events[-1]["result"]["status"]["state"] == "input-required"
    assert events[-1]["result"]["final"] is True


async def test_stream_has_one_task_and_no_message_events(site: Site) -> None:
    for agent in ("rich", "fail", "steps", "tools", "json", "approve"):
        events = kinds(events_of(await site.rpc(agent, "SendStreamingMessage", message("x"))))
        assert events[0] == "task"
        assert set(events[1:]) <= {"statusUpdate", "artifactUpdate"}


async def test_a_message_right_after_auth_required_continues_the_task(site: Site) -> None:
    # Official servers lose it in a race with the cleanup of the previous stream.
    done: list[Any] = []
    async with site.stream("auth", "SendStreamingMessage", message("x")) as events:
        async for event in events:
            update = event.get("statusUpdate")
            if update is not None and update["status"]["state"] == "TASK_STATE_AUTH_REQUIRED":
                done.append(await site.result("auth", "SendMessage", message("token", taskId=update["taskId"])))
    assert [answer_of(result["task"]) for result in done] == ["In."]


async def test_streams_of_a_deleted_thread_end(site: Site) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as events:
        task = (await anext(events))["task"]
        async with site.stream("gated", "SubscribeToTask", {"id": task["id"]}) as again:
            await anext(again)
            await site.hub.delete_thread("default", task["contextId"])
            async with asyncio.timeout(BOUND):
                for stream in (events, again):
                    assert [event async for event in stream][-1:] != [task]
    assert (await site.error("gated", "GetTask", {"id": task["id"]}))["code"] == -32001
    deleted = await site.error("gated", "SendMessage", message("again", contextId=task["contextId"]))
    assert deleted["code"] == -32602


# Subscribing


async def test_subscription_to_a_waiting_task_continues_to_its_end(site: Site) -> None:
    task = (await site.result("ask", "SendMessage", message("x")))["task"]
    async with site.stream("ask", "SubscribeToTask", {"id": task["id"]}) as events:
        assert (await anext(events))["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answered = asyncio.ensure_future(site.result("ask", "SendMessage", message("Ada", taskId=task["id"])))
        rest = [event async for event in events]
        await asyncio.wait_for(answered, BOUND)
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("method", ["SubscribeToTask", "tasks/resubscribe"])
async def test_a_terminal_task_cannot_be_subscribed_to(site: Site, method: str) -> None:
    task = (await site.result("echo", "SendMessage", message("x")))["task"]
    response = await site.rpc("echo", method, {"id": task["id"]})
    answer = events_of(response)[0] if "/" in method else response.json()
    assert answer["error"]["code"] == -32004


async def test_replay_of_a_waiting_task_ends_at_its_question(site: Site) -> None:
    task = (await site.result("approve", "SendMessage", message("x")))["task"]

    async def replayed() -> list[str]:
        response = await site.rpc("approve", "SubscribeToTask", {"id": task["id"]}, headers={"Babelgate-From": "0"})
        updates = [event["result"].get("statusUpdate") for event in events_of(response)]
        return [update["status"]["state"] for update in updates if update is not None]

    assert (await replayed())[-1] == "TASK_STATE_INPUT_REQUIRED"
    for text in ('{"approved": true}', '{"approved": false}'):
        await site.rpc("approve", "SendMessage", message(text, taskId=task["id"]))
    states = await replayed()
    assert states.count("TASK_STATE_INPUT_REQUIRED") == 2
    assert states[-1] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("start", ["-1", "x", "1.5", "", "9" * 30])
async def test_start_other_than_a_number_is_invalid(site: Site, start: str) -> None:
    task = (await site.result("echo", "SendMessage", message("x")))["task"]
    error = await site.error("echo", "SubscribeToTask", {"id": task["id"]}, headers={"Babelgate-From": start})
    assert error["code"] == -32602


# Getting and listing


async def test_get_task_limits_the_history(site: Site) -> None:
    task = (await site.result("echo", "SendMessage", message("x")))["task"]
    assert "history" not in await site.result("echo", "GetTask", {"id": task["id"], "historyLength": 0})
    assert len((await site.result("echo", "GetTask", {"id": task["id"], "historyLength": 1}))["history"]) == 1
    assert len((await site.result("echo", "GetTask", {"id": task["id"]}))["history"]) == 2
    assert len((await site.result("echo", "tasks/get", {"id": task["id"], "historyLength": 0}))["history"]) == 2
    assert (await site.error("echo", "GetTask", {"id": task["id"], "historyLength": -1}))["code"] == -32602


async def test_send_limits_the_history(site: Site) -> None:
    params = {**message("x"), "configuration": {"historyLength": 0}}
    assert "history" not in (await site.result("echo", "SendMessage", params))["task"]


async def test_get_task_returns_the_artifacts_of_a_send(site: Site) -> None:
    task = (await site.result("rich", "SendMessage", message("x")))["task"]
    assert (await site.result("rich", "GetTask", {"id": task["id"]})) == task


async def listed(site: Site, **params: Any) -> Any:
    return check("page", "1.0", await site.result("echo", "ListTasks", params))


async def test_tasks_are_listed_newest_first_in_pages_without_artifacts(fresh: Site) -> None:
    created = [
        (await fresh.result("echo", "SendMessage", message(str(n), contextId="c")))["task"]["id"] for n in range(5)
    ]
    listed_ids: list[str] = []
    token = ""
    for size in (2, 2, 1):
        page = await listed(fresh, pageSize=2, **({"pageToken": token} if token else {}))
        assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (size, 2, 5)
        assert all("artifacts" not in task for task in page["tasks"])
        listed_ids += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
    assert token == ""
    assert listed_ids == created[::-1]
    page = await listed(fresh, includeArtifacts=True, historyLength=0)
    assert all(answer_of(task) and "history" not in task for task in page["tasks"])


async def test_tasks_are_listed_by_context_state_and_time(fresh: Site) -> None:
    first = (await fresh.result("echo", "SendMessage", message("1", contextId="one")))["task"]
    second = (await fresh.result("echo", "SendMessage", message("2")))["task"]
    await fresh.result("ask", "SendMessage", message("x"))
    assert [task["id"] for task in (await listed(fresh, contextId="one"))["tasks"]] == [first["id"]]
    assert [task["id"] for task in (await listed(fresh, contextId=second["contextId"]))["tasks"]] == [second["id"]]
    assert (await listed(fresh, contextId="nobody"))["tasks"] == []
    assert (await listed(fresh, status="TASK_STATE_COMPLETED"))["totalSize"] == 2
    assert (await listed(fresh, status="TASK_STATE_WORKING"))["totalSize"] == 0
    assert (await listed(fresh, statusTimestampAfter="2999-01-01T00:00:00Z"))["totalSize"] == 0
    after = second["status"]["timestamp"]
    assert second["id"] in [task["id"] for task in (await listed(fresh, statusTimestampAfter=after))["tasks"]]


@pytest.mark.parametrize(
    "wrong",
    [{"pageSize": 0}, {"pageSize": 101}, {"pageToken": "bogus"}, {"status": "bogus"}, {"historyLength": -1}],
)
async def test_invalid_list_params_are_rejected(site: Site, wrong: Any) -> None:
    assert (await site.error("echo", "ListTasks", wrong))["code"] == -32602


# Cancelling


async def test_cancel_of_an_ended_or_unknown_task_is_an_error(site: Site) -> None:
    task = (await site.result("ask", "SendMessage", message("x")))["task"]
    await site.result("ask", "tasks/cancel", {"id": task["id"]})
    for method in ("CancelTask", "tasks/cancel"):
        assert (await site.error("ask", method, {"id": task["id"]}))["code"] == -32002
        assert (await site.error("ask", method, {"id": "unknown"}))["code"] == -32001


async def test_tasks_of_stateless_runs_are_not_listed(tmp_path: Path) -> None:
    async with running(tmp_path, {"echo": demo.echo}) as gateway:
        chat = {"model": "echo", "messages": [{"role": "user", "content": "Hi"}]}
        stateless = {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": "Hi"}]}}
        for path, body in (
            ("/runs/wait", stateless),
            ("/v1/chat/completions", chat),
            ("/v1/responses", {"model": "echo", "input": "Hi", "store": False}),
            ("/v1/chat/completions", {**chat, "store": True}),
        ):
            assert (await gateway.http.post(path, json=body)).status_code == 200
        for params in ({}, {"status": "TASK_STATE_COMPLETED"}, {"pageSize": 1}):
            call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
            listed = await gateway.http.post("/a2a/echo", json=call, headers={"A2A-Version": "1.0"})
            result = listed.json()["result"]
            assert (len(result["tasks"]), result["totalSize"], result["nextPageToken"]) == (1, 1, "")
