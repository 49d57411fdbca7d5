"""Graphs in the gateway's process, read with `client.threads.stream`: subgraphs, tool calls and updates."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph_sdk import get_client

from tests.gateway.hubs import within
from tests.gateway.platform import graphs_running
from tests.interop.langgraph.talk import user


@asynccontextmanager
async def open_thread(folder: Path, graph: str) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield a caller of the gateway, and the client's new thread with a graph."""
    async with (
        graphs_running(folder, graph) as caller,
        get_client(url=caller.gateway.url) as client,
        client.threads.stream(assistant_id=graph) as thread,
    ):
        yield caller, thread


async def test_subgraphs_are_found(tmp_path: Path) -> None:
    async with open_thread(tmp_path, "within") as (caller, thread):
        await thread.run.start(input={"items": []})
        (inner,) = await within(_all(thread.subgraphs), "the subgraphs")
        (middle,) = await within(_all(inner.subgraphs), "the subgraph's own")
        assert [(each.graph_name, each.status) for each in (inner, middle)] == [
            ("inner", "completed"),
            ("middle", "completed"),
        ]
        assert middle.path[:1] == inner.path
        tree: Any = await caller.gateway.http.post(
            f"/threads/{thread.thread_id}/commands", json={"id": 1, "method": "agent.getTree"}
        )
        (child,) = tree.json()["result"]["tree"]["children"]
        assert (tuple(child["namespace"]), child["status"]) == (inner.path, "completed")
        assert [tuple(each["namespace"]) for each in child["children"]] == [middle.path]


async def test_tool_calls_arrive_with_their_tool_messages(tmp_path: Path) -> None:
    async with open_thread(tmp_path, "tools") as (_, thread):
        await thread.run.start(input=user("Rome?"))
        (call,) = await within(_all(thread.tool_calls), "the calls")
        assert (call.name, call.input) == ("weather", {"city": "Rome"})
        came: Any = await call.output
        assert (came["type"], came["content"], came["status"]) == ("tool", "sunny", "success")
        assert came["tool_call_id"] == call.tool_call_id
        output: Any = await within(_awaited(thread.output), "the end")
        assert [message["type"] for message in output["messages"]] == ["human", "ai", "tool", "ai"]
        assert came in output["messages"]


async def test_named_custom_output_is_found_by_its_name(tmp_path: Path) -> None:
    async with report_thread(tmp_path) as thread:
        named = await within(_all(thread.extensions["progress"]), "the custom events")
        assert named == [{"name": "progress", "step": "tell"}, {"name": "progress", "step": "look"}]
    async with report_thread(tmp_path) as thread:
        events = await within(_all(thread.subscribe(["custom"])), "the custom events")
        assert [event["params"]["data"] for event in events] == [*named, "not named"]


async def test_a_message_with_only_tool_calls_has_no_tokens(tmp_path: Path) -> None:
    async with report_thread(tmp_path) as thread:
        messages = await within(_all(thread.messages), "the messages")
        texts = [await within(_all(message.text), "its words") for message in messages]
        assert texts == [["Hello", " big", " world"], ["Bye."]]
    async with report_thread(tmp_path) as thread:
        (call,) = await within(_all(thread.tool_calls), "the calls")
        assert (call.name, call.input, (await call.output)["content"]) == ("search", {"q": "v3"}, "found")


async def test_updates_are_those_of_the_stream_mode(tmp_path: Path) -> None:
    async with report_thread(tmp_path) as thread:
        events = await within(_all(thread.subscribe(["updates"])), "the updates")
        assert [list(event["params"]["data"]) for event in events] == [["tell"], ["look"], ["close"]]
        assert events[-1]["params"]["data"]["close"]["messages"][0]["content"] == "Bye."


async def test_an_agent_called_by_a_tool_ends_with_its_task(tmp_path: Path) -> None:
    async with open_thread(tmp_path, "hire") as (_, thread):
        await thread.run.start(input=user("Hire."))
        events = await within(_all(thread.subscribe(["lifecycle", "updates", "values"])), "the events")
    lifecycle = [event for event in events if event["method"] == "lifecycle" and event["params"]["namespace"]]
    started, ended = (event["params"]["data"] for event in lifecycle)
    assert (started["event"], started["graph_name"]) == ("started", "researcher")
    assert started["cause"] == {"type": "toolCall", "tool_call_id": "call_1"}
    assert (ended["event"], ended["graph_name"]) == ("completed", "researcher")
    after = [event for event in events if event["method"] == "updates" and "after" in event["params"]["data"]]
    assert events.index(lifecycle[1]) < events.index(after[0]), "the agent ended after the task that called it"


async def test_a_question_shows_the_state_and_resume_adds_no_checkpoint(tmp_path: Path) -> None:
    async with graphs_running(tmp_path, "ask") as caller, get_client(url=caller.gateway.url) as client:
        thread_id = (await client.threads.create())["thread_id"]
        await caller.wait(thread_id, "ask", user("Hi"))
        await caller.resume(thread_id, "ask", "Ann")
        # Without the client's subscription: it ends at the first pause that the client's other stream reports, so its
        # events depend on timing (langgraph-sdk 0.4.14).
        body = {"channels": ["values", "checkpoints", "input", "lifecycle"]}
        events: list[Any] = []
        async with caller.gateway.http.stream("POST", f"/threads/{thread_id}/stream/events", json=body) as answer:
            lines = answer.aiter_lines()
            while not (
                events and events[-1]["method"] == "lifecycle" and events[-1]["params"]["data"]["event"] == "completed"
            ):
                line = await within(anext(lines), "an event")
                if line.startswith("data: "):
                    events.append(json.loads(line[6:]))
    question = next(n for n, event in enumerate(events) if event["method"] == "input.requested")
    before = [event["params"]["data"] for event in events[:question] if event["method"] == "values"]
    assert [message["content"] for message in before[-1]["messages"]] == ["Hi"]
    assert before[-1]["count"] == 1
    checkpoints = [event["params"]["data"] for event in events if event["method"] == "checkpoints"]
    assert {frozenset(each) - {"parent_id"} for each in checkpoints} == {frozenset({"id", "step", "source"})}
    assert [each["step"] for each in checkpoints] == [-1, 0, 1, 1, 2], "the resume repeats one checkpoint"


@asynccontextmanager
async def report_thread(folder: Path) -> AsyncGenerator[Any]:
    """Yield a thread in which the graph `report` has run."""
    async with graphs_running(folder, "report") as caller, get_client(url=caller.gateway.url) as client:
        thread_id = (await client.threads.create())["thread_id"]
        await caller.wait(thread_id, "report", user("Hi"))
        async with client.threads.stream(thread_id, assistant_id="report") as thread:
            yield thread


async def _all(source: Any) -> list[Any]:
    return [each async for each in source]


async def _awaited(output: Any) -> Any:
    return await output
