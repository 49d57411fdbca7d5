"""Agents that ask, and the answers of the official LangGraph client."""

import pytest

from tests.interop.driver import OfficialClient
from tests.interop.langgraph.talk import new_thread, refused, texts, user

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_question_interrupts_and_is_answered(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    target = {"thread_id": thread_id, "assistant_id": "ask"}
    values = await either.call("runs.wait", **target, input=user("x"))
    [question] = values["__interrupt__"]
    assert question["value"] == "What is your name?"
    thread = await either.call("threads.get", thread_id=thread_id)
    assert thread["status"] == "interrupted"
    [[in_thread]] = thread["interrupts"].values()
    assert (in_thread["id"], in_thread["value"]) == (question["id"], question["value"])
    state = await either.call("threads.get_state", thread_id=thread_id)
    assert state["next"] == ["ask"]
    assert [each["id"] for task in state["tasks"] for each in task["interrupts"]] == [question["id"]]
    [run] = await either.call("runs.list", thread_id=thread_id)
    assert run["status"] == "success"
    done = await either.call("runs.wait", **target, command={"resume": "Ada"})
    assert (texts(done)[-1], "__interrupt__" in done) == (("ai", "Hello, Ada."), False)
    after = await either.call("threads.get", thread_id=thread_id)
    assert (after["status"], after["interrupts"]) == ("idle", {})


async def test_streams_end_at_a_question_and_continue_after_its_answer(either: OfficialClient) -> None:
    for mode in ("values", "updates"):
        target = {"thread_id": await new_thread(either), "assistant_id": "ask", "stream_mode": mode}
        events = await either.call("runs.stream", **target, input=user("x"))
        [question] = [event["data"]["__interrupt__"] for event in events if "__interrupt__" in event["data"]]
        assert (events[-1]["event"], question[0]["value"]) == (mode, "What is your name?")
        again = await either.call("runs.stream", **target, command={"resume": "Ada"})
        assert again[0]["data"]["run_id"] != events[0]["data"]["run_id"]
        assert "Hello, Ada." in str(again[-1]["data"])


async def test_two_questions_at_once_are_answered_by_their_ids(either: OfficialClient) -> None:
    target = {"thread_id": await new_thread(either), "assistant_id": "approve"}
    values = await either.call("runs.wait", **target, input=user("x"))
    write, send = values["__interrupt__"]
    assert (write["value"], send["value"]) == ({"action": "write"}, {"action": "send"})
    bare = await refused(either, "runs.wait", **target, command={"resume": {"approved": True}})
    assert bare.data["status"] == 422
    answers = {send["id"]: {"approved": False}, write["id"]: {"approved": True}}
    done = await either.call("runs.wait", **target, command={"resume": answers})
    assert texts(done)[-1] == ("ai", "write: approved\nsend: not approved\n")


async def test_two_questions_may_be_answered_one_after_the_other(either: OfficialClient) -> None:
    target = {"thread_id": await new_thread(either), "assistant_id": "approve"}
    values = await either.call("runs.wait", **target, input=user("x"))
    first, second = (question["id"] for question in values["__interrupt__"])
    half = await either.call("runs.wait", **target, command={"resume": {first: {"approved": True}}})
    assert [question["id"] for question in half["__interrupt__"]] == [second]
    done = await either.call("runs.wait", **target, command={"resume": {"approved": True}})
    assert texts(done)[-1] == ("ai", "write: approved\nsend: approved\n")


async def test_a_new_input_replaces_a_question(either: OfficialClient) -> None:
    target = {"thread_id": await new_thread(either), "assistant_id": "ask"}
    first = await either.call("runs.wait", **target, input=user("x"))
    second = await either.call("runs.wait", **target, input=user("y"))
    assert second["__interrupt__"][0]["id"] != first["__interrupt__"][0]["id"]
    assert len(second["__interrupt__"]) == 1
    done = await either.call("runs.wait", **target, command={"resume": "Ada"})
    assert texts(done)[-1] == ("ai", "Hello, Ada.")


async def test_an_answer_without_a_question_or_a_thread_is_refused(either: OfficialClient) -> None:
    answer = {"assistant_id": "ask", "command": {"resume": "Ada"}}
    assert (await refused(either, "runs.create", thread_id=None, **answer)).data["status"] == 400
    thread_id = await new_thread(either)
    await either.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user("x"))
    assert (await refused(either, "runs.create", thread_id=thread_id, **answer)).data["status"] in (404, 409, 422)
