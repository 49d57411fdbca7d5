"""Sending: send and stream, contexts and tasks, questions and answers, files."""

import asyncio
from base64 import b64encode
from typing import Any
from uuid import uuid4

import pytest

from babelgate.canonical import TaskState
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import BOUND, MALLORY, OWNER, Site, answer_of, events_of, message, message_0_3, until
from tests.adapters.a2a.site import URL as GATEWAY

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def sent(site: Site, agent: str, params: Any, **more: Any) -> Any:
    return (await site.result(agent, "SendMessage", params, **more))["task"]


def state(task: Any) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


async def test_send_in_1_0_returns_the_finished_task(site: Site) -> None:
    task = check("task", "1.0", await sent(site, "echo", message("Hello")))
    assert (state(task), answer_of(task)) == ("completed", "Hello")
    assert [message["parts"][0]["text"] for message in task["history"]] == ["Hello", "Hello"]
    assert task["history"][0]["messageId"] == "m"


async def test_send_in_0_3_returns_a_bare_task(site: Site) -> None:
    task = check("task", "0.3", await site.result("echo", "message/send", message_0_3("Hello")))
    assert (task["kind"], task["status"]["state"], answer_of(task)) == ("task", "completed", "Hello")


async def test_task_rejected_by_its_agent_has_the_rejected_state(site: Site) -> None:
    task = check("task", "1.0", await sent(site, "reject", message("Not this.")))
    assert (state(task), task["status"]["message"]["parts"][0]["text"]) == ("rejected", "Not this.")
    fetched = await site.result("reject", "tasks/get", {"id": task["id"]})
    assert fetched["status"]["state"] == "rejected"
    assert (await site.hub.reads.task(OWNER, task["id"])).state is TaskState.REJECTED


async def test_responses_have_the_ids_for_other_protocols(site: Site) -> None:
    response = await site.rpc("echo", "SendMessage", message("Hello"))
    task = response.json()["result"]["task"]
    ids = {
        "threadId": response.headers["Babelgate-Thread"],
        "taskId": response.headers["Babelgate-Task"],
        "runId": response.headers["Babelgate-Run"],
    }
    assert task["metadata"]["babelgate"] == ids
    assert task["id"] == ids["taskId"]
    fetched = await site.rpc("echo", "GetTask", {"id": task["id"]})
    assert fetched.headers["Babelgate-Run"] == ids["runId"]


async def test_integers_stay_integers(site: Site) -> None:
    params = message()
    params["message"]["parts"] = [{"data": {"n": 42, "f": 1.5, "big": 2**60}}]
    response = await site.rpc("files", "SendMessage", params)
    assert '"n":42,' in response.text
    assert '"f":1.5,' in response.text
    assert str(2**60) in response.text


async def test_request_metadata_is_on_the_task(site: Site) -> None:
    task = await sent(site, "echo", {**message("x"), "metadata": {"tenant": "acme", "babelgate": "mine"}})
    assert task["metadata"]["tenant"] == "acme"
    assert task["metadata"]["babelgate"]["taskId"] == task["id"]


# Waiting


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("SendMessage", {**message("x"), "configuration": {"returnImmediately": True}}),
        ("message/send", {**message_0_3("x"), "configuration": {"blocking": False}}),
    ],
)
async def test_nonblocking_send_returns_the_open_task_at_once(site: Site, method: str, params: Any) -> None:
    result = await site.result("gated", method, params)
    task = result.get("task", result)
    assert task["status"]["state"] in ("submitted", "working", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")


async def test_blocking_send_returns_the_working_task_at_shutdown(fresh: Site) -> None:
    async with fresh.stream("gated", "SendStreamingMessage", message("x")) as events:
        task_id = (await anext(events))["task"]["id"]
        follow = asyncio.ensure_future(sent(fresh, "gated", message("more", taskId=task_id)))
        await until(fresh, task_id, "run_created", 2)
        fresh.hub.close_readers()
        task = await asyncio.wait_for(follow, BOUND)
    assert (task["id"], state(task)) == (task_id, "working")


# Contexts


async def test_context_id_other_than_a_uuid_is_an_alias(site: Site) -> None:
    names = ["my context", "ünïcode/with/slash", str(uuid4()).upper(), "x" * 256]
    for name in names:
        first = await sent(site, "echo", message("1", contextId=name))
        second = await sent(site, "echo", message("2", contextId=name))
        assert first["contextId"] == second["contextId"] == name
        assert first["metadata"]["babelgate"]["threadId"] == second["metadata"]["babelgate"]["threadId"]
        assert first["id"] != second["id"]
        assert (await site.result("echo", "GetTask", {"id": first["id"]}))["contextId"] == name


async def test_context_id_that_is_a_uuid_is_the_thread_id(site: Site) -> None:
    name = str(uuid4())
    for text in ("1", "2"):
        task = await sent(site, "echo", message(text, contextId=name))
        assert (task["contextId"], task["metadata"]["babelgate"]["threadId"]) == (name, name)


async def test_missing_context_id_is_generated(site: Site) -> None:
    task = await sent(site, "echo", message("1"))
    again = await sent(site, "echo", message("2", contextId=task["contextId"]))
    assert again["contextId"] == task["contextId"] == task["metadata"]["babelgate"]["threadId"]


async def test_missing_context_id_is_inferred_from_the_task(site: Site) -> None:
    # Official servers generate a random context id, and fail the task at the next such message.
    task = await sent(site, "ask", message("x", contextId="mine"))
    done = await sent(site, "ask", message("Ada", taskId=task["id"]))
    assert (done["id"], done["contextId"], state(done)) == (task["id"], "mine", "completed")


async def test_task_id_with_another_context_id_is_rejected(site: Site) -> None:
    task = await sent(site, "ask", message("x", contextId="mine"))
    wrong = message("Ada", taskId=task["id"], contextId="other")
    assert (await site.error("ask", "SendMessage", wrong))["code"] == -32602
    # The rejected message is not in the log.
    assert len((await site.result("ask", "GetTask", {"id": task["id"]}))["history"]) == 1


async def test_message_without_task_id_starts_a_new_task(site: Site) -> None:
    first = await sent(site, "ask", message("x", contextId="mine"))
    second = await sent(site, "ask", message("y", contextId="mine"))
    assert first["id"] != second["id"]
    assert state(await site.result("ask", "GetTask", {"id": first["id"]})) == "input_required"


async def test_unknown_task_id_is_not_found(site: Site) -> None:
    for task_id in (str(uuid4()), "made-up"):
        assert (await site.error("echo", "SendMessage", message("x", taskId=task_id)))["code"] == -32001
        assert (await site.error("echo", "message/send", message_0_3("x", taskId=task_id)))["code"] == -32001


async def test_a_task_of_another_agent_is_not_found(site: Site) -> None:
    task = await sent(site, "ask", message("x"))
    assert (await site.error("echo", "GetTask", {"id": task["id"]}))["code"] == -32001
    assert (await site.error("echo", "SendMessage", message("y", taskId=task["id"])))["code"] == -32001


async def test_message_to_a_terminal_task_is_rejected(site: Site) -> None:
    task = await sent(site, "echo", message("x"))
    assert (await site.error("echo", "SendMessage", message("y", taskId=task["id"])))["code"] == -32004
    assert (await site.error("echo", "message/send", message_0_3("y", taskId=task["id"])))["code"] == -32602
    refined = await sent(site, "echo", message("y", contextId=task["contextId"], referenceTaskIds=[task["id"]]))
    assert refined["id"] != task["id"]
    assert refined["history"][0]["referenceTaskIds"] == [task["id"]]


async def test_a_message_to_a_working_task_is_its_next_run(site: Site) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as events:
        task_id = (await anext(events))["task"]["id"]
        later = {**message("y", taskId=task_id), "configuration": {"returnImmediately": True}}
        task = await sent(site, "gated", later)
        assert (task["id"], len(task["history"])) == (task_id, 2)
        site.gates.gate.set()
        rest = [event async for event in events]
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [
        artifact["artifactId"] for artifact in (await site.result("gated", "GetTask", {"id": task_id}))["artifacts"]
    ] == [
        "answer-1",
        "answer-2",
    ]


# Questions


def resume(task: Any, *values: Any) -> list[Any]:
    questions = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    answers = [{"id": each["id"], "value": value} for each, value in zip(questions, values, strict=False)]
    return [{"data": {"resume": answers}}]


async def test_questions_are_answered_one_by_one_oldest_first(site: Site) -> None:
    waiting = await site.result("approve", "message/send", message_0_3("x"))
    yes = [{"kind": "data", "data": {"approved": True}}]
    still_waiting = await site.result("approve", "message/send", message_0_3(taskId=waiting["id"], parts=yes))
    assert still_waiting["status"]["state"] == "input-required"
    assert [part["text"] for part in still_waiting["status"]["message"]["parts"] if "text" in part] == [
        "May I send the message?"
    ]
    no = '{"approved": false}'
    done = await site.result("approve", "message/send", message_0_3(no, taskId=waiting["id"]))
    assert answer_of(done) == "write: approved\nsend: not approved\n"


async def test_answer_to_a_closed_question_is_invalid(site: Site) -> None:
    waiting = await sent(site, "approve", message("x"))
    unknown = [{"data": {"resume": [{"id": "nope", "value": 1}]}}]
    assert (await site.error("approve", "SendMessage", message(taskId=waiting["id"], parts=unknown)))["code"] == -32602
    first = resume(waiting, {"approved": True})
    await sent(site, "approve", message(taskId=waiting["id"], parts=first))
    again = message(taskId=waiting["id"], parts=first)
    assert (await site.error("approve", "SendMessage", again))["code"] == -32602


async def test_answers_to_a_task_that_does_not_wait_are_invalid(site: Site) -> None:
    async with site.stream("gated", "SendStreamingMessage", message("x")) as events:
        task_id = (await anext(events))["task"]["id"]
        parts = [{"data": {"resume": [{"id": "q", "value": 1}]}}]
        assert (await site.error("gated", "SendMessage", message(taskId=task_id, parts=parts)))["code"] == -32602


async def test_data_that_only_looks_like_answers_is_the_answer_itself(site: Site) -> None:
    waiting = await sent(site, "ask", message("x"))
    done = await sent(site, "ask", message(taskId=waiting["id"], parts=[{"data": {"resume": "my CV"}}]))
    assert "my CV" in answer_of(done)


async def test_stream_of_an_answer_starts_with_the_working_task(site: Site) -> None:
    waiting = await sent(site, "ask", message("x"))
    events = events_of(await site.rpc("ask", "SendStreamingMessage", message("Ada", taskId=waiting["id"])))
    first = events[0]["result"]["task"]
    assert (first["id"], state(first)) == (waiting["id"], "working")
    assert events[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


# Files


async def test_file_url_is_passed_on_without_fetching_it(site: Site) -> None:
    task = await sent(site, "files", message(parts=[{"url": "https://example.com/f.pdf", "filename": "f.pdf"}]))
    assert task["artifacts"][0]["parts"] == [{"url": "https://example.com/f.pdf", "filename": "f.pdf"}]


async def test_large_file_is_a_url_only_for_its_owner(owned: Site) -> None:
    big = bytes(5000)
    part = {"raw": b64encode(big).decode(), "filename": 'b"ig\n.bin', "mediaType": "text/html"}
    task = await sent(owned, "files", message(parts=[part]))
    url: str = task["artifacts"][0]["parts"][0]["url"]
    assert url.startswith(f"{GATEWAY}/a2a/files/files/")
    response = await owned.client.get(url)
    assert response.content == big
    assert response.headers["Content-Disposition"] == "attachment; filename*=UTF-8''b%22ig%0A.bin"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    owned.client.headers.update(MALLORY)
    assert (await owned.client.get(url)).status_code == 404
    assert (await owned.client.get("/a2a/files/files/nope")).status_code == 404


async def test_file_of_an_unaccepted_type_is_a_content_type_error(site: Site) -> None:
    params = message(parts=[{"text": "x"}, {"raw": "YQ==", "mediaType": "image/png"}])
    assert (await site.error("echo", "SendMessage", params))["code"] == -32005


@pytest.mark.parametrize(
    "content", [{"text": "x"}, {"data": {"a": 1}}, {"raw": "YQ=="}, {"url": "https://example.com/x"}]
)
async def test_part_of_an_undeclared_type_is_a_content_type_error(site: Site, content: dict[str, Any]) -> None:
    params = message(parts=[{"text": "x"}, {**content, "mediaType": "application/x-unknown"}])
    for method in ("SendMessage", "SendStreamingMessage"):
        error = await site.error("echo", method, params)
        assert (error["code"], error["data"][0]["reason"]) == (-32005, "CONTENT_TYPE_NOT_SUPPORTED")
    rest = await site.client.post("/a2a/echo/message:send", json=params, headers={"A2A-Version": "1.0"})
    assert (rest.status_code, rest.json()["error"]["details"][0]["reason"]) == (400, "CONTENT_TYPE_NOT_SUPPORTED")
    assert state(await sent(site, "files", params)) == "completed"  # its card names */*


@pytest.mark.parametrize(
    "part",
    [
        {"text": "x", "mediaType": "text/markdown"},
        {"text": "{}", "mediaType": "application/json"},
        {"data": {"text": "x"}, "mediaType": "application/ld+json"},
        {"raw": "YQ==", "mediaType": "Text/Plain; charset=utf-8"},
    ],
)
async def test_universal_and_declared_types_are_accepted(site: Site, part: dict[str, Any]) -> None:
    assert state(await sent(site, "echo", message(parts=[part]))) == "completed"


async def test_data_parts_reach_a_text_agent(site: Site) -> None:
    task = await sent(site, "echo", message(parts=[{"data": {"prompt": "from data"}}, {"data": {"more": 1}}]))
    assert answer_of(task) == "from data"


async def test_data_other_than_objects_is_wrapped_only_in_0_3(site: Site) -> None:
    assert (await sent(site, "number", message("x")))["artifacts"][0]["parts"] == [{"data": [1, 2, 3]}]
    old = await site.result("number", "message/send", message_0_3("x"))
    part = {"kind": "data", "data": {"value": [1, 2, 3]}, "metadata": {"data_part_compat": True}}
    assert old["artifacts"][0]["parts"] == [part]


async def test_accepted_output_modes_reach_the_agent(site: Site) -> None:
    params = {**message("x"), "configuration": {"acceptedOutputModes": ["text/plain", "image/png"]}}
    assert answer_of(await sent(site, "modes", params)) == "text/plain, image/png"
    assert answer_of(await sent(site, "modes", message("x"))) == ""


async def test_losses_of_a_unary_response_are_in_a_header(site: Site) -> None:
    response = await site.rpc("rich", "SendMessage", message("x"))
    assert 'custom="in the metadata of an otherwise empty status' in response.headers["Babelgate-Loss"]
    assert "Babelgate-Loss" not in (await site.rpc("echo", "SendMessage", message("x"))).headers
