"""Answering questions: `command.resume` over HTTP."""

from typing import Any

import pytest

from tests.adapters.langchain.site import NOBODY, SHARED, Site, said
from tests.gateway.hubs import within

pytestmark = SHARED


async def asked(site: Site, *ids: str, thread_id: str | None = None) -> str:
    """A thread where the scripted agent asks."""
    thread_id = thread_id or await site.thread()
    run_id = await site.run(thread_id)
    (await site.agent.called()).ask(*ids).end()
    await site.ends(thread_id, run_id)
    return thread_id


async def resume(site: Site, thread_id: str, value: Any, **fields: Any) -> Any:
    body = {"assistant_id": "scripted", "command": {"resume": value}, **fields}
    return await site.post(f"/threads/{thread_id}/runs", body)


async def test_a_question_shows_in_the_result_the_state_and_the_thread_and_the_run_is_a_success(site: Site) -> None:
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


async def test_an_answer_is_a_new_run_that_goes_on(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, "ask", said("hi"))
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


async def test_a_map_answers_by_the_ids_of_the_questions(site: Site) -> None:
    thread_id = await asked(site, "a", "b")
    assert (await resume(site, thread_id, {"a": 1, "b": [2]})).status_code == 200
    going = await site.agent.called()
    assert [(answer.interrupt_id, answer.value) for answer in going.call.answers] == [("a", 1), ("b", [2])]
    going.end()


async def test_an_answer_to_some_leaves_the_others_open(site: Site) -> None:
    thread_id = await asked(site, "a", "b")
    first = (await resume(site, thread_id, {"a": 1})).json()
    assert await site.ends(thread_id, first["run_id"]) == "success"
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], len(thread["interrupts"])) == ("interrupted", 1)
    assert (await resume(site, thread_id, "the other")).status_code == 200
    going = await site.agent.called()
    assert [answer.value for answer in going.call.answers] == [1, "the other"]
    going.end()


async def test_a_bare_value_answers_exactly_one_question(site: Site) -> None:
    thread_id = await asked(site, "a", "b")
    refused = await resume(site, thread_id, "yes")
    assert refused.status_code == 422
    assert "a" in refused.json()["detail"] and "b" in refused.json()["detail"]
    for unknown in ({"a": 1, "c": 2}, {}, {"c": 1}):
        assert (await resume(site, thread_id, unknown)).status_code == 422
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "interrupted"


@pytest.mark.parametrize("value", [{"approved": True}, {}, [], None, False, 0, "", "text", ["a"]], ids=str)
async def test_any_value_answers_the_only_question(site: Site, value: Any) -> None:
    thread_id = await asked(site, "a")
    assert (await resume(site, thread_id, value)).status_code == 200
    going = await site.agent.called()
    assert [answer.value for answer in going.call.answers] == [value]
    going.end()


async def test_where_nothing_is_asked_there_is_nothing_to_resume(site: Site, thread_id: str) -> None:
    assert (await resume(site, thread_id, "x")).status_code == 409
    assert (await resume(site, NOBODY, "x")).status_code == 404
    stateless = await site.post("/runs/wait", {"assistant_id": "echo", "command": {"resume": "x"}})
    assert stateless.status_code == 400
    assert stateless.json() == {"detail": "You must provide a thread_id when resuming."}


@pytest.mark.parametrize(
    "fields",
    [{"command": {"resume": 1, "goto": "x"}}, {"command": {"resume": 1, "update": {"a": 1}}}, {"after_seconds": 1}],
)
async def test_what_an_answer_cannot_do_is_refused_and_leaves_the_question_open(site: Site, fields: Any) -> None:
    thread_id = await asked(site, "a")
    assert (await resume(site, thread_id, 1, **fields)).status_code == 422
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "interrupted"


async def test_a_new_input_takes_the_place_of_the_question(site: Site) -> None:
    thread_id = await asked(site, "a")
    paused = (await site.look(f"/threads/{thread_id}/runs"))[0]["run_id"]
    run_id = await site.run(thread_id, input=said("never mind"))
    going = await site.agent.called()
    assert going.call.cause == "input"
    assert (await site.look(f"/threads/{thread_id}"))["interrupts"] == {}
    going.end()
    assert await site.ends(thread_id, run_id) == "success"
    assert (await resume(site, thread_id, "too late")).status_code == 409
    assert await site.status(thread_id, paused) == "interrupted"


async def test_no_input_is_no_answer(site: Site) -> None:
    thread_id = await asked(site, "a")
    for fields in ({}, {"input": None}):
        body = {"assistant_id": "scripted", **fields}
        refused = await site.post(f"/threads/{thread_id}/runs", body)
        assert refused.status_code == 422
        assert "a" in refused.json()["detail"]
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "interrupted"


async def test_an_input_beside_an_answer_is_said_to_be_lost(site: Site) -> None:
    thread_id = await asked(site, "a")
    answer = await resume(site, thread_id, 1, input=said("and this"))
    assert answer.status_code == 200
    assert "state=" in answer.headers["babelgate-loss"]
    (await site.agent.called()).end()


async def test_a_question_that_is_answered_twice_is_answered_once(site: Site) -> None:
    thread_id = await asked(site, "a")
    first = await resume(site, thread_id, 1)
    second = await resume(site, thread_id, 2)
    assert (first.status_code, second.status_code) == (200, 409)
    going = await site.agent.called()
    assert [answer.value for answer in going.call.answers] == [1]
    going.end()


async def test_an_answer_carries_its_metadata_and_config(site: Site) -> None:
    thread_id = await asked(site, "a")
    run = (await resume(site, thread_id, 1, metadata={"m": 1}, config={"tags": ["t"]})).json()
    assert run["metadata"]["m"] == 1
    going = await site.agent.called()
    assert going.call.config == {"tags": ["t"]}
    going.end()
    await within(going.closed.wait(), "the end")
