"""Tests of graphs behind the gateway, with a LangGraph client: conversations, questions, states and their history."""

import asyncio
import json
import operator
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import httpx
import pytest

from babelgate.adapters.langchain.server.create_run import open_questions
from babelgate.canonical import AgentInfo, Answers, FaultCode, FaultError, Invocation, Principal, TaskState
from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.gateway.graphs import GRAPHS, State, asks, builder, chat
from tests.gateway.hubs import Echo, guarded, within
from tests.gateway.platform import Caller, Thread, begin, graphs_running
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

INPUT = {"messages": [{"role": "user", "content": "Hi"}]}


def spoken(values: Any) -> list[str]:
    return [message["content"] for message in values["messages"]]


# Conversations


async def test_a_conversation_continues_over_runs_and_a_restart(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "chat") as caller:
        thread_id = await caller.thread()
        assert spoken(await caller.wait(thread_id, "chat", INPUT)) == ["Hi", "Hello big world"]
    async with graphs_running(tmp_path, "chat") as caller:
        values = await caller.wait(thread_id, "chat", INPUT)
        assert spoken(values) == ["Hi", "Hello big world"] * 2
        assert values["count"] == 2
        assert (await caller.state(thread_id))["values"] == values
        assert (await caller.get(f"/threads/{thread_id}"))["status"] == "idle"


async def test_each_thread_of_each_owner_has_a_separate_state(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "chat", keys={"alice": "a-key", "bob": "b-key"}) as caller:
        http, thread_id = caller.gateway.http, "6b2c0d3e-8c7f-4a55-9d57-0a3f6f6f4e11"
        for key, runs in (("a-key", 3), ("b-key", 1)):
            http.headers["x-api-key"] = key
            await caller.thread(thread_id=thread_id)
            for count in range(1, runs + 1):
                assert (await caller.wait(thread_id, "chat", INPUT))["count"] == count
        assert (await caller.wait(await caller.thread(), "chat", INPUT))["count"] == 1


async def test_the_first_run_of_a_graph_receives_the_threads_messages(tmp_path: Path) -> None:
    agents = {"chat": wrap_graph(chat(), "chat")[1], "echo": Echo()}
    async with running(tmp_path, agents) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        await caller.wait(thread_id, "echo", {"messages": [{"role": "user", "content": "Before"}]})
        assert spoken(await caller.wait(thread_id, "chat", INPUT)) == ["Before", "Before", "Hi", "Hello big world"]
        values = await caller.wait(thread_id, "chat", INPUT)
        assert spoken(values) == ["Before", "Before", "Hi", "Hello big world", "Hi", "Hello big world"]


async def test_the_usage_of_a_model_is_reported_for_the_run(graphs: Caller) -> None:
    thread = await begin(graphs, "chat")
    await thread.wait(INPUT)
    (run,) = await graphs.get(f"/threads/{thread.thread_id}/runs")
    used = {"input_tokens": 3, "output_tokens": 3, "total_tokens": 6}
    assert run["metadata"]["babelgate"]["usage"] == used


# Questions


async def test_a_question_stays_open_over_a_restart(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "ask") as caller:
        thread_id = await caller.thread()
        (question,) = (await caller.wait(thread_id, "ask", INPUT))["__interrupt__"]
        assert question["value"] == {"question": "What is your name?"}
        assert question["response_schema"] == {"type": "string", "minLength": 1}
        state = await caller.state(thread_id)
        assert state["next"] == ["ask"]
        assert [task["interrupts"][0]["id"] for task in state["tasks"]] == [question["id"]]
    async with graphs_running(tmp_path, "ask") as caller:
        assert (await caller.get(f"/threads/{thread_id}"))["status"] == "interrupted"
        values = await caller.resume(thread_id, "ask", "Ann")
        assert spoken(values) == ["Hi", "You said 'Ann'."]
        state = await caller.state(thread_id)
        assert (state["next"], state["tasks"], state["values"]["count"]) == ([], [], 1)


async def test_an_approval_of_another_protocol_reaches_the_graph(tmp_path: Path) -> None:
    """Answer a question of the middleware of langchain 1.5, which accepts only decisions, with a plain text."""
    wipe = {"name": "wipe", "args": {"disk": "sda"}, "description": "May I wipe?"}
    gate = builder(State, {"gate": asks({"action_requests": [wipe], "review_configs": []})})
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    body: Any = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with running(tmp_path, registered={"gate": RegisteredAgent(*wrap_graph(gate, "gate"))}) as gateway:
        for answer, decision in (("yes", {"type": "approve"}), ("Later", {"type": "reject", "message": "Later"})):
            body["params"]["message"] = message
            for text in ("Hi", answer):
                message_of_turn = {**body["params"]["message"], "messageId": text, "parts": [{"text": text}]}
                body["params"]["message"] = message_of_turn
                sent = await gateway.http.post("/a2a/gate", json=body, headers={"A2A-Version": "1.0"})
                task = sent.json()["result"]["task"]
                body["params"]["message"] = {**message, "taskId": task["id"]}
            assert task["artifacts"][-1]["parts"][0]["text"] == f"You said { ({'decisions': [decision]})!r}."
            [question] = [each for each in task["history"] if each["parts"][0].get("text") == "May I wipe?"]
            assert question["parts"][1]["data"]["value"] == {"action_requests": [wipe], "review_configs": []}


@pytest.mark.parametrize("answer", ["Ann", 7, True, 0, False, "", {}, {"a": 1}, [1, None], None])
async def test_an_answer_of_any_type_reaches_the_node_unchanged(answer: Any, graphs: Caller) -> None:
    thread = await begin(graphs, "twice")  # its questions have no schema
    await thread.wait(INPUT)
    await thread.resume(answer)
    values = await thread.resume("yes")
    assert spoken(values)[-1] == f"{answer} and yes"


async def test_parallel_questions_are_answered_by_id_in_any_order(graphs: Caller) -> None:
    thread = await begin(graphs, "several")
    questions = (await thread.wait(INPUT))["__interrupt__"]
    ids = {("L" if each["value"] == "Left?" else "R"): each["id"] for each in questions}
    assert set(ids) == {"L", "R"}
    await thread.resume({ids["R"]: "r"})
    (left,) = (await thread.state())["interrupts"]
    assert left["id"] == ids["L"]
    values = await thread.resume({ids["L"]: "l"})
    assert sorted(set(spoken(values))) == ["Hi", "You said 'l'.", "You said 'r'."]
    assert values["count"] == 7


async def test_parallel_questions_are_listed_in_the_order_of_the_graph(graphs: Caller) -> None:
    questions = (await graphs.wait(await graphs.thread(), "turns", INPUT))["__interrupt__"]
    assert [each["value"] for each in questions] == ["First?", "Second?"]


async def test_a_node_that_asks_twice_is_answered_twice(graphs: Caller) -> None:
    thread = await begin(graphs, "twice")
    (first,) = (await thread.wait(INPUT))["__interrupt__"]
    (second,) = (await thread.resume("one"))["__interrupt__"]
    assert (first["value"], second["value"]) == ("First?", "Second?")
    assert first["id"] != second["id"]
    assert spoken(await thread.resume("two")) == ["Hi", "one and two"]


async def test_a_new_input_closes_the_open_question_of_the_thread(graphs: Caller) -> None:
    thread = await begin(graphs, "ask")
    (first,) = (await thread.wait(INPUT))["__interrupt__"]
    (second,) = (await thread.wait(INPUT))["__interrupt__"]
    assert first["id"] != second["id"]
    values = await thread.resume("Ann")
    assert spoken(values) == ["Hi", "Hi", "You said 'Ann'."]


async def listed_questions(thread: Thread) -> tuple[Any, Any]:
    """Return the questions of a thread, as the thread and its state list them."""
    state = await thread.state()
    listed = (await thread.caller.get(f"/threads/{thread.thread_id}"))["interrupts"]
    return list(listed.values()), [*state["interrupts"], *(each for at in state["tasks"] for each in at["interrupts"])]


async def test_a_state_update_closes_the_question(graphs: Caller) -> None:
    """Check the behavior of langgraph-api 0.16.7."""
    thread = await begin(graphs, "ask")
    (question,) = (await thread.wait(INPUT))["__interrupt__"]
    await thread.update({"count": 5}, as_node="before")
    assert await listed_questions(thread) == ([], [])
    assert (await thread.state())["next"] == ["ask"]
    late = {"assistant_id": "ask", "command": {"resume": {question["id"]: "Ann"}}}
    answer = await graphs.gateway.http.post(f"/threads/{thread.thread_id}/runs/wait", json=late)
    assert answer.status_code == 409
    values = await thread.resume("Ann")
    assert spoken(values)[-1] == "You said 'Ann'."
    assert values["count"] == 5


async def test_a_state_update_cancels_the_asking_task(graphs: Caller) -> None:
    thread = await begin(graphs, "ask")
    await thread.wait(INPUT)
    hub = graphs.gateway.hub
    (question,) = await open_questions(guarded(hub), Principal.of_owner("default"), thread.thread_id)
    await thread.update({"count": 5}, as_node="before")
    assert (await hub.reads.task("default", question.task_id)).state is TaskState.CANCELLED
    with pytest.raises(FaultError) as raised:
        await hub.answer("default", Answers(task_id=question.task_id, values={question.interrupt_id: "Ann"}))
    assert raised.value.fault.code in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED)


async def test_a_run_without_input_asks_an_open_question_again(graphs: Caller) -> None:
    """Run from the newest state, from a checkpoint, and after a change of the state, as on langgraph-api 0.16.7."""
    thread = await begin(graphs, "ask")
    await thread.wait(INPUT)
    early = next(state for state in await thread.history() if state["next"] == ["before"])
    for more in ({}, {"checkpoint_id": early["checkpoint"]["checkpoint_id"]}, {}):
        (question,) = (await thread.wait(None, **more))["__interrupt__"]
        assert await listed_questions(thread) == ([[question]], [question, question])
        await thread.update({"count": 5}, as_node="before")
    (question,) = (await thread.wait(None))["__interrupt__"]
    assert spoken(await thread.resume("Ann"))[-1] == "You said 'Ann'."


@pytest.mark.parametrize("where", ["newest", "earlier"])
async def test_an_answer_may_name_the_checkpoint_that_asks(graphs: Caller, where: str) -> None:
    """Send a checkpoint with an answer, as `useStream` does: it sends the newest one each time."""
    thread = await begin(graphs, "ask")
    await thread.wait(INPUT)
    asks = (await thread.history())[0]["checkpoint"]
    if where == "earlier":
        await thread.wait(INPUT)
    values = await thread.resume("Ann", checkpoint=asks)
    assert spoken(values) == ["Hi", "You said 'Ann'."]
    assert await thread.status() == "idle"


async def test_a_breakpoint_does_not_keep_a_run_from_its_checkpoint(graphs: Caller) -> None:
    thread = await begin(graphs, "steps")
    await thread.wait({"items": []}, interrupt_before=["two"])
    early = next(state for state in await thread.history() if state["next"] == ["one"])
    values = await thread.wait(None, checkpoint_id=early["checkpoint"]["checkpoint_id"])
    assert values["items"] == ["one", "two", "three"]


# Breakpoints


async def test_any_answer_continues_a_graph_at_a_breakpoint(graphs: Caller) -> None:
    thread = await begin(graphs, "steps")
    config = {"config": {"interrupt_before": ["two"]}}
    stopped = await thread.wait({"items": []}, **config)
    assert stopped == {"items": ["one"]}
    assert await thread.status() == "interrupted"
    config = {"config": {"interrupt_after": "*"}}
    assert (await thread.resume("go", **config))["items"] == ["one", "two"]
    assert (await thread.resume(None))["items"] == ["one", "two", "three"]


STOPPED: dict[str, list[Any]] = {
    "values": [{"items": []}, {"items": ["one"]}],
    "updates": [{"one": {"items": ["one"]}}, {"__interrupt__": []}],
    "messages": [],
    "custom": [],
}


@pytest.mark.parametrize("mode", STOPPED)
async def test_a_breakpoint_appears_only_in_updates_and_in_the_state(graphs: Caller, mode: str) -> None:
    """Check the behavior of LangGraph's own server."""
    thread = await begin(graphs, "steps")
    frames = await thread.stream({"items": []}, mode, interrupt_before=["two"])
    assert [data for name, _, data in frames if name != "metadata"] == STOPPED[mode]
    state = await thread.state()
    assert (state["next"], state["interrupts"], state["tasks"][0]["interrupts"]) == (["two"], [], [])
    thread_body = await graphs.get(f"/threads/{thread.thread_id}")
    assert (thread_body["status"], thread_body["interrupts"]) == ("interrupted", {})


@pytest.mark.parametrize("modes", [["events"], ["events", "values"]])
async def test_the_mode_events_streams_langchains_events(graphs: Caller, modes: list[str]) -> None:
    """Check the mode as on langgraph-api 0.16.7: the graph's own stream is only in the other modes."""
    thread = await begin(graphs, "steps")
    frames = await thread.stream({"items": []}, *modes)
    events = [data for mode, _, data in frames if mode == "events"]
    assert [(each["event"], each["name"]) for each in events] == [
        ("on_chain_start", "steps"),
        *((f"on_chain_{kind}", node) for node in ("one", "two", "three") for kind in ("start", "stream", "end")),
        ("on_chain_end", "steps"),
    ]
    assert events[-1]["data"]["output"] == {"items": ["one", "two", "three"]}
    values = [data for mode, _, data in frames if mode == "values"]
    assert values[-1:] == ([events[-1]["data"]["output"]] if "values" in modes else [])
    assert (await thread.state())["values"] == events[-1]["data"]["output"]


async def test_other_protocols_receive_a_breakpoint_as_a_question(graphs: Caller) -> None:
    thread = await begin(graphs, "steps")
    await thread.wait({"items": []}, interrupt_before=["two"])
    (question,) = await open_questions(guarded(graphs.gateway.hub), Principal.of_owner("default"), thread.thread_id)
    assert question.value == {"next": ["two"]}
    assert "Any answer" in question.message.text


@pytest.mark.parametrize("body", [{"input": None}, {}], ids=["input: null", "no input"])
async def test_a_run_without_input_continues_a_graph_at_a_breakpoint(graphs: Caller, body: Any) -> None:
    """Continue the graph in the ways that LangGraph's clients use."""
    thread = await begin(graphs, "steps")
    await thread.wait({"items": []}, interrupt_before=["two"])
    values = await graphs.post(f"/threads/{thread.thread_id}/runs/wait", {"assistant_id": "steps", **body})
    assert values["items"] == ["one", "two", "three"]
    assert await thread.status() == "idle"


# States and their history


async def test_the_history_lists_every_checkpoint_and_each_is_readable(graphs: Caller) -> None:
    thread = await begin(graphs, "steps")
    await thread.wait({"items": ["zero"]})
    history = await thread.history()
    assert [(state["next"], state["metadata"]["step"]) for state in history] == [
        ([], 3),
        (["three"], 2),
        (["two"], 1),
        (["one"], 0),
        (["__start__"], -1),
    ]
    assert [state["values"].get("items") for state in history][:2] == [
        ["zero", "one", "two", "three"],
        ["zero", "one", "two"],
    ]
    for younger, older in pairwise(history):
        assert younger["parent_checkpoint"]["checkpoint_id"] == older["checkpoint"]["checkpoint_id"]
    state = await thread.state(history[2]["checkpoint"]["checkpoint_id"])
    assert state["values"] == {"items": ["zero", "one"]}
    assert state["tasks"][0]["name"] == "two"


async def test_a_run_from_an_earlier_checkpoint_is_a_branch(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "steps") as caller:
        thread_id = await caller.thread()
        await caller.wait(thread_id, "steps", {"items": ["zero"]})
        early = (await caller.history(thread_id))[2]["checkpoint"]["checkpoint_id"]
        again = await caller.wait(thread_id, "steps", None, checkpoint_id=early)
        assert again["items"] == ["zero", "one", "two", "three"]
        other = await caller.wait(thread_id, "steps", {"items": ["new"]}, checkpoint={"checkpoint_id": early})
        assert other["items"] == ["zero", "one", "new", "one", "two", "three"]
        assert (await caller.state(thread_id))["values"] == other
        assert len(await caller.history(thread_id)) > 10
        # The graph continues from there, also after a restart.
    async with graphs_running(tmp_path, "steps") as caller:
        values = await caller.wait(thread_id, "steps", {"items": ["more"]})
        assert values["items"] == [*other["items"], "more", "one", "two", "three"]


async def test_a_state_update_uses_the_graphs_reducers(graphs: Caller) -> None:
    thread = await begin(graphs, "steps")
    await thread.wait({"items": ["zero"]})
    checkpoint_id = await thread.update({"items": ["by hand"]}, as_node="one")
    state = await thread.state()
    assert state["values"]["items"] == ["zero", "one", "two", "three", "by hand"]
    assert state["next"] == ["two"]
    assert (state["metadata"]["source"], state["metadata"]["step"]) == ("update", 4)
    assert state["checkpoint"]["checkpoint_id"] == checkpoint_id
    values = await thread.wait(None)
    assert values["items"] == ["zero", "one", "two", "three", "by hand", "two", "three"]


async def test_an_update_of_an_earlier_state_begins_a_branch(graphs: Caller) -> None:
    thread = await begin(graphs, "steps")
    await thread.wait({"items": []})
    early = (await thread.history())[3]["checkpoint"]["checkpoint_id"]
    checkpoint = await thread.update({"items": ["else"]}, as_node="two", checkpoint_id=early)
    state = await thread.state(checkpoint)
    assert (state["values"]["items"], state["next"]) == (["else"], ["three"])
    assert state["parent_checkpoint"]["checkpoint_id"] == early
    assert (await thread.wait(None))["items"] == ["else", "three"]


async def test_messages_of_the_state_are_changed_by_id(graphs: Caller) -> None:
    thread = await begin(graphs, "chat")
    values = await thread.wait(INPUT)
    first, second = (message["id"] for message in values["messages"])
    changed = {"messages": [{"role": "user", "content": "Ho", "id": first}, {"type": "remove", "id": second}]}
    await thread.update(changed, as_node="answer")
    assert spoken((await thread.state())["values"]) == ["Ho"]
    assert spoken(await thread.wait(INPUT)) == ["Ho", "Hi", "Hello big world"]


async def test_a_new_thread_of_a_graph_has_a_state(graphs: Caller) -> None:
    thread = await begin(graphs, "steps", metadata={"graph_id": "steps"})
    await thread.update({"items": ["given"]}, as_node="one")
    assert (await thread.state())["next"] == ["two"]
    assert (await thread.wait(None))["items"] == ["given", "two", "three"]


async def test_a_rejected_state_update_reports_the_graphs_error(graphs: Caller) -> None:
    thread = await begin(graphs, "steps")
    await thread.wait({"items": []})
    body = {"values": {"items": ["x"]}, "as_node": "nowhere"}
    answer = await graphs.gateway.http.post(f"/threads/{thread.thread_id}/state", json=body)
    assert answer.status_code == 422
    assert "nowhere" in answer.json()["detail"]
    assert len(await thread.history()) == 5


async def test_a_copy_of_a_thread_continues_independently(graphs: Caller) -> None:
    thread = await begin(graphs, "chat")
    values = await thread.wait(INPUT)
    copy = replace(thread, thread_id=(await graphs.post(f"/threads/{thread.thread_id}/copy"))["thread_id"])
    assert (await copy.state())["values"] == values
    assert (await copy.wait(INPUT))["count"] == 2
    assert (await thread.state())["values"] == values
    early = (await copy.history())[-2]["checkpoint"]["checkpoint_id"]
    assert spoken(await copy.wait(None, checkpoint_id=early)) == ["Hi", "Hello big world"]


@pytest.mark.parametrize(
    "body", [{"config": {"durability": "exit"}}, {"durability": "exit"}, {"checkpoint_during": False}]
)
async def test_durability_exit_stores_only_the_last_state(graphs: Caller, body: Any) -> None:
    thread = await begin(graphs, "steps")
    frames = await thread.stream({"items": []}, "values", **body)
    streamed = [data["items"] for mode, _, data in frames if mode == "values"]
    assert streamed == [[], ["one"], ["one", "two"], ["one", "two", "three"]]
    (state,) = await thread.history()
    assert state["values"]["items"] == ["one", "two", "three"]
    assert (await thread.wait({"items": ["+"]}))["items"][:4] == ["one", "two", "three", "+"]


async def test_a_graph_starts_from_a_revision_of_another_agent(tmp_path: Path) -> None:
    agents = {"chat": wrap_graph(chat(), "chat")[1], "echo": Echo()}
    async with running(tmp_path, agents) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        for words in ("One", "Two"):
            await caller.wait(thread_id, "echo", {"messages": [{"role": "user", "content": words}]})
        after_one = (await caller.history(thread_id))[2]["checkpoint"]["checkpoint_id"]
        values = await caller.wait(thread_id, "chat", INPUT, checkpoint_id=after_one)
        assert spoken(values) == ["One", "One", "Hi", "Hello big world"]


async def test_deleting_a_run_deletes_its_checkpoints(graphs: Caller) -> None:
    thread = await begin(graphs, "chat")
    before = await thread.wait(INPUT)
    await thread.wait(INPUT)
    newest = (await graphs.get(f"/threads/{thread.thread_id}/runs"))[0]["run_id"]
    answer = await graphs.gateway.http.delete(f"/threads/{thread.thread_id}/runs/{newest}")
    assert answer.status_code < 300
    assert (await thread.state())["values"] == before
    assert (await thread.wait(INPUT))["count"] == 2


# Failures


async def test_a_failure_names_its_exception_and_keeps_the_last_state(graphs: Caller) -> None:
    thread = await begin(graphs, "fail")
    body = await thread.wait({"items": ["a"]})
    assert body["__error__"]["error"] == "ValueError"
    assert body["__error__"]["message"].startswith("no ? more")
    state = await thread.state()
    assert (state["values"]["items"], state["next"]) == (["a", "b"], ["node"])
    assert state["tasks"][0]["error"].startswith("ValueError")
    assert await thread.status() == "error"


async def test_a_graph_without_an_end_stops_at_its_recursion_limit(graphs: Caller) -> None:
    body = await graphs.wait(await graphs.thread(), "endless", {"items": []}, config={"recursion_limit": 3})
    assert body["__error__"]["error"] == "GraphRecursionError"
    assert "limit of 3" in body["__error__"]["message"]


async def test_a_run_without_input_on_a_new_thread_fails(graphs: Caller) -> None:
    body = await graphs.wait(await graphs.thread(), "steps", None)
    assert body["__error__"]["error"] == "EmptyInputError"


async def test_a_graph_needs_a_hub(tmp_path: Path) -> None:
    agent = wrap_graph(chat(), "chat")[1]
    with pytest.raises(FaultError) as raised:
        async for _ in agent.run(Invocation(agent="chat", thread_id="t", task_id="t", run_id="r")):
            pass
    assert raised.value.fault.code is FaultCode.INTERNAL


# Interrupted runs


class Items(TypedDict):
    items: Annotated[list[str], operator.add]


class Gate:
    """Graph that produces one message, and then waits for the test."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.started = 0
        self.left = asyncio.Event()

    def graph(self) -> Any:
        def first(_: Items) -> Any:
            self.started += 1
            return {"items": ["first"]}

        async def wait(_: Items) -> Any:
            self.reached.set()
            try:
                await self.open.wait()
            finally:
                self.left.set()
            return {"items": ["through"]}

        return builder(Items, {"first": first, "wait": wait})

    async def begun(self, caller: Caller, thread_id: str, **body: Any) -> str:
        run = await caller.post(f"/threads/{thread_id}/runs", {"assistant_id": "gate", "input": {"items": []}, **body})
        await within(self.reached.wait(), "the second node")
        return run["run_id"]


async def test_a_rollback_restores_the_state_of_the_graph(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path, {"gate": wrap_graph(gate.graph(), "gate")[1]}) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        gate.open.set()
        before = await caller.wait(thread_id, "gate", {"items": ["zero"]})
        gate.open.clear()
        gate.reached.clear()
        run_id = await gate.begun(caller, thread_id)
        await caller.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action=rollback&wait=1")
        assert gate.left.is_set()
        assert (await caller.state(thread_id))["values"] == before
        gate.open.set()
        after = await caller.wait(thread_id, "gate", {"items": ["new"]})
        assert after["items"] == ["zero", "first", "through", "new", "first", "through"]


async def test_a_cancelled_run_stops_its_node_and_keeps_earlier_steps(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path, {"gate": wrap_graph(gate.graph(), "gate")[1]}) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        run_id = await gate.begun(caller, thread_id)
        await caller.post(f"/threads/{thread_id}/runs/{run_id}/cancel?wait=1")
        assert gate.left.is_set()
        state = await caller.state(thread_id)
        assert (state["values"]["items"], state["next"]) == (["first"], ["wait"])
        assert (await caller.get(f"/threads/{thread_id}"))["status"] == "interrupted"
        gate.open.set()
        assert (await caller.wait(thread_id, "gate", None))["items"] == ["first", "through"]
        assert (await caller.get(f"/threads/{thread_id}"))["status"] == "idle"


async def test_the_state_cannot_be_changed_while_a_run_is_active(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path, {"gate": wrap_graph(gate.graph(), "gate")[1]}) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        run_id = await gate.begun(caller, thread_id)
        body = {"values": {"items": ["x"]}, "as_node": "first"}
        answer = await gateway.http.post(f"/threads/{thread_id}/state", json=body)
        assert answer.status_code == 409
        gate.open.set()
        values = await caller.get(f"/threads/{thread_id}/runs/{run_id}/join")
        assert values["items"] == ["first", "through"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_an_idempotent_run_resumes_from_its_checkpoint_after_a_restart(idempotent: bool, tmp_path: Path) -> None:
    def registered(gate: Gate) -> dict[str, RegisteredAgent]:
        return {"gate": RegisteredAgent(*wrap_graph(gate.graph(), "gate"), idempotent=idempotent)}

    gate = Gate()
    async with running(tmp_path, registered=registered(gate)) as gateway:
        caller = Caller(gateway)
        thread_id = await caller.thread()
        run_id = await gate.begun(caller, thread_id)
        assert gate.started == 1
    later = Gate()
    later.open.set()
    async with running(tmp_path, registered=registered(later)) as gateway:
        body = await Caller(gateway).get(f"/threads/{thread_id}/runs/{run_id}/join")
        assert later.started == 0
        if idempotent:
            assert body["items"] == ["first", "through"]
        else:
            assert body["__error__"]["error"] == "GatewayRestartedError"
            assert (await Caller(gateway).wait(thread_id, "gate", None))["items"] == ["first", "through"]


# Callers of other protocols


async def acp(http: httpx.AsyncClient, agent: str, content: str) -> Any:
    body = {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": content}]}]}
    return (await http.post("/acp/runs", json=body)).json()


async def a2a(http: httpx.AsyncClient, agent: str, *parts: Any, **message: Any) -> Any:
    message_sent = {"kind": "message", "messageId": "m", "role": "user", "parts": list(parts), **message}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message_sent}}
    return (await http.post(f"/a2a/{agent}", json=body)).json()["result"]


def texts(task: Any) -> list[Any]:
    return [part.get("text", part.get("data")) for artifact in task["artifacts"] for part in artifact["parts"]]


async def test_a_question_over_acp_is_answered_over_langgraph(graphs: Caller) -> None:
    http = graphs.gateway.http
    run = await acp(http, "ask", "Hi")
    assert run["status"] == "awaiting"
    values = await graphs.resume(run["session_id"], "ask", "Ann")
    assert spoken(values)[-1] == "You said 'Ann'."
    assert (await http.get(f"/acp/runs/{run['run_id']}")).json()["status"] == "completed"


async def test_a_graphs_question_is_answered_over_a2a(graphs: Caller) -> None:
    http = graphs.gateway.http
    task = await a2a(http, "ask", {"kind": "text", "text": "Hi"})
    assert task["status"]["state"] == "input-required"
    assert task["status"]["message"]["parts"][0]["text"] == "What is your name?"
    task = await a2a(http, "ask", {"kind": "text", "text": "Ann"}, taskId=task["id"], messageId="n")
    assert task["status"]["state"] == "completed"
    assert texts(task)[-1] == "You said 'Ann'."


async def test_the_output_of_a_graph_without_messages_is_its_answer(graphs: Caller) -> None:
    http = graphs.gateway.http
    run = await acp(http, "joke", "cats")
    assert run["output"][0]["parts"][-1]["content"] == "Two cats walk into a bar."
    task = await a2a(http, "joke", {"kind": "data", "data": {"topic": "dogs"}})
    assert texts(task) == ["Two dogs walk into a bar."]
    task = await a2a(http, "structured", {"kind": "text", "text": "all"})
    (data,) = texts(task)
    assert data["topic"] == "all"
    assert data["values"] == {
        "colour": {"name": "red", "date": "2026-01-02"},
        "point": {"x": 1, "y": 0.5},
        "id": "00000000-0000-0000-0000-000000000007",
        "set": [1, 2, 3],
        "bytes": "AAE=",
        "nothing": None,
        "infinite": None,
        "when": "2026-01-02T00:00:00+00:00",
    }


async def test_an_entrypoint_function_works_like_a_graph(graphs: Caller) -> None:
    http, thread = graphs.gateway.http, await begin(graphs, "flow")
    (question,) = (await thread.wait("hi"))["__interrupt__"]
    assert question["value"] == "Sure?"
    assert await thread.resume("yes") == {"__root__": "HI, yes"}
    task = await a2a(http, "flow", {"kind": "text", "text": "hi"})
    assert task["status"]["state"] == "input-required"
    task = await a2a(http, "flow", {"kind": "text", "text": "yes"}, taskId=task["id"], messageId="n")
    assert texts(task) == ["HI, yes"]


async def test_a_graph_that_rejects_text_reports_what_it_accepts(graphs: Caller) -> None:
    run = await acp(graphs.gateway.http, "steps", "Hi")
    assert run["status"] == "failed"
    assert "items" in run["error"]["message"]


# Description and settings


async def test_a_graph_is_described_by_its_schemas() -> None:
    info, _ = wrap_graph(GRAPHS["joke"](), "joke", "Tells jokes.")
    assert info.description == "Tells jokes."
    assert (info.stateful, info.remembers, info.metadata) == (True, True, {"framework": "langgraph"})
    assert set(info.schemas["input"]["properties"]) == {"topic"}
    assert set(info.schemas["output"]["properties"]) == {"joke"}
    assert set(info.schemas["state"]["properties"]) == {"topic", "joke"}
    assert info.output_types == ("application/json",)
    talker, _ = wrap_graph(chat().compile(name="talker"), "chat")
    assert talker.description == "talker"
    assert talker.output_types == ("text/plain",)


async def test_an_object_that_cannot_be_compiled_is_rejected() -> None:
    with pytest.raises(TypeError, match="cannot be compiled"):
        wrap_graph(builder(State, {}), "empty")
    with pytest.raises(TypeError, match="not a graph"):
        wrap_graph(object(), "other")


async def test_a_graph_is_configured_like_any_other_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_graphs.py").write_text(
        '"""Counts steps.\n\nAnd more."""\n'
        "from tests.gateway.graphs import State, builder, steps\n"
        "graph = steps()\ncompiled = steps().compile()\nempty = builder(State, {})\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    names = ("graph", "compiled", "empty")
    settings = Settings.model_validate({"agents": {name: {"python": f"their_graphs:{name}"} for name in names}})
    registry = await connect(settings)
    async with running(tmp_path, registered={name: registry.get(name) for name in names}) as gateway:
        caller = Caller(gateway)
        for name in ("graph", "compiled"):
            assert (await caller.wait(await caller.thread(), name, {"items": []}))["items"] == ["one", "two", "three"]
        info: AgentInfo = gateway.hub.agent("graph")
        assert info.description == "Counts steps."
        ready = (await gateway.http.get("/readyz")).json()
        assert "cannot be compiled" in ready["agents"]["empty"]


async def test_a_bool_in_a_state_stays_a_bool(graphs: Caller) -> None:
    thread = await begin(graphs, "truth")
    frames = await thread.stream({"n": 0}, "values")
    history = (await graphs.gateway.http.get(f"/threads/{thread.thread_id}/history")).json()
    streamed = [json.dumps(data) for mode, _, data in frames if mode == "values"]
    assert streamed == ['{"n": 0}', '{"n": 1}', '{"n": true}', '{"n": 1.0}']
    assert [json.dumps(state["values"]) for state in history[:4]] == streamed[::-1]


@pytest.mark.parametrize("below", ["graph", "subgraphs"])
async def test_an_error_of_drawing_names_the_graph_that_failed(
    graphs: Caller, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise ValueError("no pencil")

    def fails_at_once(*_: object, **__: object) -> None:
        raise ValueError("no pencil")

    found = await graphs.post("/assistants/search", {"limit": 100})
    (assistant,) = [each for each in found if each["graph_id"] == "steps"]
    monkeypatch.setattr("langgraph.pregel.Pregel.aget_graph", fails)
    monkeypatch.setattr("langgraph.pregel.Pregel.aget_subgraphs", fails_at_once)
    answer = await graphs.gateway.http.get(f"/assistants/{assistant['assistant_id']}/{below}")
    assert answer.json() == {"detail": "ValueError: no pencil"}
