"""Graphs in the gateway's own process, through `client.threads.stream`: subgraphs are found and followed, tools are
told of with what came of them."""

from pathlib import Path
from typing import Any

from langgraph_sdk import get_client

from tests.gateway.hubs import within
from tests.gateway.platform import graphs_running
from tests.interop.langgraph.talk import said


async def test_subgraphs_are_found(tmp_path: Path) -> None:
    async with (
        graphs_running(tmp_path, "within") as caller,
        get_client(url=caller.gateway.url) as client,
        client.threads.stream(assistant_id="within") as thread,
    ):
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
        (shown,) = tree.json()["result"]["tree"]["children"]
        assert (tuple(shown["namespace"]), shown["status"]) == (inner.path, "completed")
        assert [tuple(each["namespace"]) for each in shown["children"]] == [middle.path]


async def test_tools_are_told_of_with_what_came_of_them(tmp_path: Path) -> None:
    async with (
        graphs_running(tmp_path, "tools") as caller,
        get_client(url=caller.gateway.url) as client,
        client.threads.stream(assistant_id="tools") as thread,
    ):
        await thread.run.start(input=said("Rome?"))
        (call,) = await within(_all(thread.tool_calls), "the calls")
        assert (call.name, call.input, await call.output) == ("weather", {"city": "Rome"}, "sunny")
        output: Any = await within(_awaited(thread.output), "the end")
        assert [message["type"] for message in output["messages"]] == ["human", "ai", "tool", "ai"]


async def _all(source: Any) -> list[Any]:
    return [each async for each in source]


async def _awaited(output: Any) -> Any:
    return await output
