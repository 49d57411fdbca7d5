"""Streams, subscriptions, lists and cancels."""

import asyncio
from typing import Any

import pytest

from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import BOUND, Site, answer_of, events_of, message, message_0_3, until


def kinds(events: list[Any]) -> list[str]:
    return [next(iter(event["result"])) for event in events]


def text_of(event: Any) -> str:
    artifact = (event.get("artifactUpdate") or event)["artifact"]
    return "".join(part.get("text", "") for part in artifact["parts"])


# Streams


async def test_a_stream_of_1_0_is_the_task_and_then_only_updates_each_a_whole_answer(site: Site) -> None:
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


async def test_a_stream_of_0_3_is_the_task_and_then_updates_the_last_marked_final(site: Site) -> None:
    events = [
        check("event", "0.3", event["result"])
        for event in events_of(await site.rpc("echo", "message/stream", message_0_3("Hello")))
    ]
    assert [event["kind"] for event in events] == ["task", "status-update", *["artifact-update"] * 2, "status-update"]
    assert [event["final"] for event in events if event["kind"] == "status-update"] == [False, True]


async def test_a_stream_that_ends_at_a_question_is_final_in_0_3(site: Site) -> None:
    events = events_of(await site.rpc("ask", "message/stream", message_0_3("x")))
    assert events[-1]["result"]["status"]["state"] == "input-required"
    assert events[-1]["result"]["final"] is True


@pytest.mark.parametrize(("method", "make"), [("SendStreamingMessage", message), ("message/stream", message_0_3)])
async def test_the_first_token_is_there_before_the_agent_goes_on(site: Site, method: str, make: Any) -> None:
    async with site.stream("gated", method, make("x")) as events:
        seen = [await anext(events) for _ in range(3)]
        assert text_of(seen[-1]) == "first"
        site.gates.gate.set()
        rest = [event async for event in events]
    assert text_of(rest[0]) == " second"


async def test_no_message_event_and_no_second_task_is_ever_streamed(site: Site) -> None:
    for agent in ("rich", "fail", "steps", "tools", "json", "approve"):
        events = kinds(events_of(await site.rpc(agent, "SendStreamingMessage", message("x"))))
        assert events[0] == "task"
        assert set(events[1:]) <= {"statusUpdate", "artifactUpdate"}


async def test_several_streams_of_a_task_get_every_event_and_leaving_one_disturbs_nobody(site: Site) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as first:
        task_id = (await anext(first))["task"]["id"]
        await until(site, task_id, "part_added")
        async with site.stream("gated", "SubscribeToTask", {"id": task_id}) as second:
            assert (await anext(second))["task"]["id"] == task_id
            async with site.stream("gated", "tasks/resubscribe", {"id": task_id}) as third:
                assert (await anext(third))["kind"] == "task"
            site.gates.gate.set()
            ours = [event async for event in second]
        theirs = [event async for event in first]
    assert theirs[-len(ours) :] == ours
    assert text_of(ours[0]) == " second"
    assert answer_of(await site.result("gated", "GetTask", {"id": task_id})) == "first second"


async def test_a_caller_that_leaves_its_stream_does_not_stop_the_task(site: Site) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as events:
        task_id = (await anext(events))["task"]["id"]
    site.gates.gate.set()
    await until(site, task_id, "run_ended")
    await until(site, task_id, "task_changed", 2)
    task = await site.result("gated", "GetTask", {"id": task_id})
    assert (task["status"]["state"], answer_of(task)) == ("TASK_STATE_COMPLETED", "first second")


async def test_an_agent_that_raises_ends_its_streams_with_an_event_that_says_why(site: Site) -> None:
    """An official server kills the stream without one."""
    for method, make in (("SendStreamingMessage", message), ("message/stream", message_0_3)):
        last = events_of(await site.rpc("fail", method, make("on purpose")))[-1]["result"]
        update = last.get("statusUpdate", last)
        assert update["status"]["state"] in ("TASK_STATE_FAILED", "failed")
        assert "on purpose" in str(update["status"]["message"]["parts"])


async def test_a_message_right_after_auth_required_continues_the_task(site: Site) -> None:
    """Official servers lose it in a race with the cleanup of the stream before."""
    done: list[Any] = []
    async with site.stream("auth", "SendStreamingMessage", message("x")) as events:
        async for event in events:
            update = event.get("statusUpdate")
            if update is not None and update["status"]["state"] == "TASK_STATE_AUTH_REQUIRED":
                done.append(await site.result("auth", "SendMessage", message("token", taskId=update["taskId"])))
    assert [answer_of(result["task"]) for result in done] == ["In."]


async def test_a_stream_of_a_thread_that_is_deleted_ends(site: Site) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as events:
        task = (await anext(events))["task"]
        await site.hub.delete_thread("default", task["contextId"])
        async with asyncio.timeout(BOUND):
            assert [event async for event in events][-1:] != [task]
    assert (await site.error("gated", "GetTask", {"id": task["id"]}))["code"] == -32001
    deleted = await site.error("gated", "SendMessage", message("again", contextId=task["contextId"]))
    assert deleted["code"] == -32602


# Subscribing


async def test_a_subscription_starts_with_the_task_as_it_is_and_repeats_nothing(site: Site) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as events:
        task_id = (await anext(events))["task"]["id"]
        await until(site, task_id, "part_added")
        for method in ("SubscribeToTask", "tasks/resubscribe"):
            async with site.stream("gated", method, {"id": task_id}) as again:
                first = await anext(again)
                assert answer_of(first.get("task", first)) == "first"


async def test_a_subscription_to_a_waiting_task_shows_what_becomes_of_it(site: Site) -> None:
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


async def test_with_babelgate_from_a_stream_is_seen_again_byte_by_byte_also_of_a_terminal_task(site: Site) -> None:
    for method, again, make in (
        ("SendStreamingMessage", "SubscribeToTask", message),
        ("message/stream", "tasks/resubscribe", message_0_3),
    ):
        live = await site.rpc("rich", method, make("x", contextId="mine"))
        task_id = live.headers["Babelgate-Task"]
        replayed = await site.rpc("rich", again, {"id": task_id}, headers={"Babelgate-From": "0"})
        assert replayed.text == live.text


async def test_a_replay_from_the_middle_is_the_task_of_then_and_the_rest(site: Site) -> None:
    live = events_of(await site.rpc("stream", "SendStreamingMessage", message("a b c")))
    task = live[0]["result"]["task"]
    whole = await site.hub.reads.task("default", task["id"])
    for seq in range(whole.first_seq, whole.last_seq + 3):
        headers = {"Babelgate-From": str(seq)}
        events = events_of(await site.rpc("stream", "SubscribeToTask", {"id": task["id"]}, headers=headers))
        first, rest = events[0]["result"]["task"], events[1:]
        assert rest == (live[-len(rest) :] if rest else [])
        answer = answer_of(first)
        for update in (e["result"]["artifactUpdate"] for e in rest if "artifactUpdate" in e["result"]):
            answer = (answer if update["append"] else "") + text_of({"artifactUpdate": update})
        assert answer == "a b c"


async def test_a_replay_of_a_waiting_task_ends_at_its_open_question_and_not_at_answered_ones(site: Site) -> None:
    task = (await site.result("approve", "SendMessage", message("x")))["task"]
    headers = {"Babelgate-From": "0"}
    events = events_of(await site.rpc("approve", "SubscribeToTask", {"id": task["id"]}, headers=headers))
    assert events[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    for text in ("yes", "no"):
        await site.rpc("approve", "SendMessage", message(text, taskId=task["id"]))
    events = events_of(await site.rpc("approve", "SubscribeToTask", {"id": task["id"]}, headers=headers))
    states = [
        event["result"]["statusUpdate"]["status"]["state"] for event in events if "statusUpdate" in event["result"]
    ]
    assert states.count("TASK_STATE_INPUT_REQUIRED") == 2
    assert states[-1] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("start", ["-1", "x", "1.5", "", "9" * 30])
async def test_a_start_that_is_no_number_is_invalid(site: Site, start: str) -> None:
    task = (await site.result("echo", "SendMessage", message("x")))["task"]
    error = await site.error("echo", "SubscribeToTask", {"id": task["id"]}, headers={"Babelgate-From": start})
    assert error["code"] == -32602


# Getting and listing


async def test_a_task_is_got_with_as_much_history_as_asked_for(site: Site) -> None:
    task = (await site.result("echo", "SendMessage", message("x")))["task"]
    assert "history" not in await site.result("echo", "GetTask", {"id": task["id"], "historyLength": 0})
    assert len((await site.result("echo", "GetTask", {"id": task["id"], "historyLength": 1}))["history"]) == 1
    assert len((await site.result("echo", "GetTask", {"id": task["id"]}))["history"]) == 2
    assert len((await site.result("echo", "tasks/get", {"id": task["id"], "historyLength": 0}))["history"]) == 2
    assert (await site.error("echo", "GetTask", {"id": task["id"], "historyLength": -1}))["code"] == -32602


async def test_a_send_honours_the_history_length_of_its_configuration(site: Site) -> None:
    params = {**message("x"), "configuration": {"historyLength": 0}}
    assert "history" not in (await site.result("echo", "SendMessage", params))["task"]


async def test_artifacts_are_kept_in_a_task_that_is_got_later(site: Site) -> None:
    task = (await site.result("rich", "SendMessage", message("x")))["task"]
    assert (await site.result("rich", "GetTask", {"id": task["id"]})) == task


async def listed(site: Site, **params: Any) -> Any:
    return check("page", "1.0", await site.result("echo", "ListTasks", params))


async def test_tasks_are_listed_newest_first_in_pages_without_artifacts(site: Site) -> None:
    made = [(await site.result("echo", "SendMessage", message(str(n), contextId="c")))["task"]["id"] for n in range(5)]
    seen: list[str] = []
    token = ""
    for size in (2, 2, 1):
        page = await listed(site, pageSize=2, **({"pageToken": token} if token else {}))
        assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (size, 2, 5)
        assert all("artifacts" not in task for task in page["tasks"])
        seen += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
    assert token == ""
    assert seen == made[::-1]
    page = await listed(site, includeArtifacts=True, historyLength=0)
    assert all(answer_of(task) and "history" not in task for task in page["tasks"])


async def test_tasks_are_listed_by_context_state_and_time(site: Site) -> None:
    first = (await site.result("echo", "SendMessage", message("1", contextId="one")))["task"]
    second = (await site.result("echo", "SendMessage", message("2")))["task"]
    await site.result("ask", "SendMessage", message("x"))
    assert [task["id"] for task in (await listed(site, contextId="one"))["tasks"]] == [first["id"]]
    assert [task["id"] for task in (await listed(site, contextId=second["contextId"]))["tasks"]] == [second["id"]]
    assert (await listed(site, contextId="nobody"))["tasks"] == []
    assert (await listed(site, status="TASK_STATE_COMPLETED"))["totalSize"] == 2
    assert (await listed(site, status="TASK_STATE_WORKING"))["totalSize"] == 0
    assert (await listed(site, statusTimestampAfter="2999-01-01T00:00:00Z"))["totalSize"] == 0
    after = second["status"]["timestamp"]
    assert second["id"] in [task["id"] for task in (await listed(site, statusTimestampAfter=after))["tasks"]]


@pytest.mark.parametrize(
    "wrong",
    [{"pageSize": 0}, {"pageSize": 101}, {"pageToken": "bogus"}, {"status": "bogus"}, {"historyLength": -1}],
)
async def test_a_list_refuses_a_bad_page_size_token_or_status(site: Site, wrong: Any) -> None:
    assert (await site.error("echo", "ListTasks", wrong))["code"] == -32602


async def test_there_is_no_list_in_json_rpc_of_0_3(site: Site) -> None:
    assert (await site.error("echo", "tasks/list", {}))["code"] == -32601


# Cancelling


@pytest.mark.parametrize(("method", "state"), [("CancelTask", "TASK_STATE_CANCELED"), ("tasks/cancel", "canceled")])
async def test_a_working_task_is_cancelled_and_every_stream_of_it_hears_so(site: Site, method: str, state: str) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as events:
        task_id = (await anext(events))["task"]["id"]
        await until(site, task_id, "part_added")
        async with site.stream("gated", "SubscribeToTask", {"id": task_id}) as again:
            await anext(again)
            task = await site.result("gated", method, {"id": task_id})
            assert task["status"]["state"] == state
            for stream in (again, events):
                last = [event async for event in stream][-1]
                assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert answer_of(task) == "first"


async def test_a_waiting_task_is_cancelled(site: Site) -> None:
    task = (await site.result("ask", "SendMessage", message("x")))["task"]
    assert (await site.result("ask", "CancelTask", {"id": task["id"]}))["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_second_cancel_and_one_of_an_unknown_task_are_errors(site: Site) -> None:
    task = (await site.result("ask", "SendMessage", message("x")))["task"]
    await site.result("ask", "tasks/cancel", {"id": task["id"]})
    for method in ("CancelTask", "tasks/cancel"):
        assert (await site.error("ask", method, {"id": task["id"]}))["code"] == -32002
        assert (await site.error("ask", method, {"id": "unknown"}))["code"] == -32001
