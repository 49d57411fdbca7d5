"""Answers to questions over HTTP, by `command.resume`."""

from typing import Any

import pytest

from tests.adapters.langchain.site import NOBODY, SHARED, Site, user_input
from tests.gateway.hubs import within

pytestmark = SHARED


async def thread_with_question(site: Site, *ids: str, thread_id: str | None = None) -> str:
    """Return a thread on which the scripted agent has asked questions."""
    thread_id = thread_id or await site.thread()
    run_id = await site.run(thread_id)
    (await site.agent.called()).ask(*ids).end()
    await site.ends(thread_id, run_id)
    return thread_id


async def resume(site: Site, thread_id: str, value: Any, **fields: Any) -> Any:
    body = {"assistant_id": "scripted", "command": {"resume": value}, **fields}
    return await site.post(f"/threads/{thread_id}/runs", body)


async def test_a_question_is_in_result_state_and_thread(site: Site) -> None:
    thread_id = await site.thread()
    result = await site.wait(thread_id, "ask")
    (question,) = result["__interrupt__"]
    assert question["value"] == "What is your name?"
    state = await site.look(f"/threads/{thread_id}/state")
    assert state["next"] == ["ask"]
    assert [each["id"] for each in state["interrupts"]] == [question["id"]]
    (task,) = state["tasks"]
    assert [each["id"] for each in task["interrupts"]] == [question["id"]]
    thread = await site.look(f"/threads/{thread_id}")
    assert thread["status"] == "interrupted"
    assert [each["id"] for (each,) in thread["interrupts"].values()] == [question["id"]]
    run = (await site.look(f"/threads/{thread_id}/runs"))[0]
    assert run["status"] == "success"
    protocol = await site.look(f"/agent-protocol/runs/{run['run_id']}")
    assert protocol["status"] == "interrupted"
    joined = await site.look(f"/threads/{thread_id}/runs/{run['run_id']}/join")
    assert joined["__interrupt__"] == result["__interrupt__"]


async def test_an_answer_starts_a_run_that_continues(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, "ask", user_input("hi"))
    result = await site.ok(
        f"/threads/{thread_id}/runs/wait", {"assistant_id": "ask", "command": {"resume": "Bob"}, "input": {}}
    )
    assert [message["content"] for message in result["messages"]] == ["hi", "Hello, Bob."]
    assert "__interrupt__" not in result
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["interrupts"]) == ("idle", {})
    runs = await site.look(f"/threads/{thread_id}/runs")
    assert [run["status"] for run in runs] == ["success", "success"]
    assert runs[0]["kwargs"]["command"] == {"resume": "Bob"}


async def test_an_object_answers_by_the_ids_of_the_questions(site: Site) -> None:
    thread_id = await thread_with_question(site, "a", "b")
    assert (await resume(site, thread_id, {"a": 1, "b": [2]})).status_code == 200
    activation = await site.agent.called()
    assert [(answer.interrupt_id, answer.value) for answer in activation.call.answers] == [("a", 1), ("b", [2])]
    activation.end()


async def test_an_answer_to_one_question_leaves_the_others_open(site: Site) -> None:
    thread_id = await thread_with_question(site, "a", "b")
    first = (await resume(site, thread_id, {"a": 1})).json()
    assert await site.ends(thread_id, first["run_id"]) == "success"
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], len(thread["interrupts"])) == ("interrupted", 1)
    assert (await resume(site, thread_id, "the other")).status_code == 200
    activation = await site.agent.called()
    assert [answer.value for answer in activation.call.answers] == [1, "the other"]
    activation.end()


async def test_a_bare_value_for_several_questions_is_rejected(site: Site) -> None:
    thread_id = await thread_with_question(site, "a", "b")
    refused = await resume(site, thread_id, "yes")
    assert refused.status_code == 422
    assert "a" in refused.json()["detail"] and "b" in refused.json()["detail"]
    for unknown in ({"a": 1, "c": 2}, {}, {"c": 1}):
        assert (await resume(site, thread_id, unknown)).status_code == 422
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "interrupted"


@pytest.mark.parametrize("value", [{"approved": True}, {}, [], None, False, 0, "", "text", ["a"]], ids=str)
async def test_any_value_answers_the_only_question(site: Site, value: Any) -> None:
    thread_id = await thread_with_question(site, "a")
    assert (await resume(site, thread_id, value)).status_code == 200
    activation = await site.agent.called()
    assert [answer.value for answer in activation.call.answers] == [value]
    activation.end()


async def test_resuming_without_an_open_question_is_rejected(site: Site, thread_id: str) -> None:
    assert (await resume(site, thread_id, "x")).status_code == 409
    assert (await resume(site, NOBODY, "x")).status_code == 404
    stateless = await site.post("/runs/wait", {"assistant_id": "echo", "command": {"resume": "x"}})
    assert stateless.status_code == 400
    assert stateless.json() == {"detail": "You must provide a thread_id when resuming."}


@pytest.mark.parametrize(
    "fields",
    [{"command": {"resume": 1, "goto": "x"}}, {"command": {"resume": 1, "update": {"a": 1}}}, {"after_seconds": 1}],
)
async def test_an_invalid_answer_leaves_the_question_open(site: Site, fields: Any) -> None:
    thread_id = await thread_with_question(site, "a")
    assert (await resume(site, thread_id, 1, **fields)).status_code == 422
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "interrupted"


async def test_a_new_input_replaces_the_question(site: Site) -> None:
    thread_id = await thread_with_question(site, "a")
    paused = (await site.look(f"/threads/{thread_id}/runs"))[0]["run_id"]
    run_id = await site.run(thread_id, input=user_input("never mind"))
    activation = await site.agent.called()
    assert activation.call.cause == "input"
    assert (await site.look(f"/threads/{thread_id}"))["interrupts"] == {}
    activation.end()
    assert await site.ends(thread_id, run_id) == "success"
    assert (await resume(site, thread_id, "too late")).status_code == 409
    assert await site.status(thread_id, paused) == "interrupted"


async def test_a_run_without_input_does_not_answer(site: Site) -> None:
    thread_id = await thread_with_question(site, "a")
    for fields in ({}, {"input": None}):
        body = {"assistant_id": "scripted", **fields}
        refused = await site.post(f"/threads/{thread_id}/runs", body)
        assert refused.status_code == 422
        assert "a" in refused.json()["detail"]
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "interrupted"


async def test_an_input_with_an_answer_is_a_loss(site: Site) -> None:
    thread_id = await thread_with_question(site, "a")
    answer = await resume(site, thread_id, 1, input=user_input("and this"))
    assert answer.status_code == 200
    assert "state=" in answer.headers["babelgate-loss"]
    (await site.agent.called()).end()


async def test_a_second_answer_to_a_question_is_a_conflict(site: Site) -> None:
    thread_id = await thread_with_question(site, "a")
    first = await resume(site, thread_id, 1)
    second = await resume(site, thread_id, 2)
    assert (first.status_code, second.status_code) == (200, 409)
    activation = await site.agent.called()
    assert [answer.value for answer in activation.call.answers] == [1]
    activation.end()


async def test_an_answer_has_its_metadata_and_config(site: Site) -> None:
    thread_id = await thread_with_question(site, "a")
    run = (await resume(site, thread_id, 1, metadata={"m": 1}, config={"tags": ["t"]})).json()
    assert run["metadata"]["m"] == 1
    activation = await site.agent.called()
    assert activation.call.config == {"tags": ["t"]}
    activation.end()
    await within(activation.closed.wait(), "the end")
