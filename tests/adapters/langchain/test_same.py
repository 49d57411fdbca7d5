"""From LangGraph to LangGraph: the official client cannot tell the gateway from the server but by what
the table here names."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from babelgate.adapters.langchain.client import Client
from babelgate.canonical import AgentInfo
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.langchain.far import Far, Frames, ai, checkpoint, chunk, human, metadata, task, task_result
from tests.adapters.langchain.site import events
from tests.bridge import client as bridge
from tests.difference import differences
from tests.opened import opened

USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}


def unknown(level: str) -> dict[str, Any]:
    return {f"x-{level}": {"k": [1, "ü", None]}}


SAID = ai(
    "one two",
    response_metadata={"model_name": "m", "finish_reason": "stop", **unknown("response")},
    usage_metadata=USAGE,
    additional_kwargs={"k": 1},
    invalid_tool_calls=[],
    name="n",
    example=False,
    **unknown("message"),
)
ASKED = {
    "id": "1" * 32,
    "value": {"words": "May I?"},
    "response_schema": {"type": "boolean"},
    "when": "during",
    "resumable": True,
    "ns": ["model:t1"],
    **unknown("interrupt"),
}
STATE: dict[str, Any] = {
    "messages": [human("Hello"), SAID],
    "ui": [{"type": "ui", "id": "u", "name": "n", "props": {}}],
    "x": 1,
}
ABOUT: dict[str, Any] = {
    "langgraph_node": "model",
    "langgraph_triggers": ["branch:to:model"],
    "langgraph_path": ["__pregel_pull", "model"],
    "langgraph_checkpoint_ns": "model:t1",
    "tags": ["a"],
    "ls_provider": "p",
    "ls_model_name": "m",
    "x-api-key": "secret",
}
SPOKEN: list[tuple[str, Any]] = [
    ("custom", {"progress": 1, "deep": {"a": [1]}}),
    ("custom", "words"),
    ("messages", [chunk("one ", additional_kwargs={"k": 1}, **unknown("chunk"))[1][0], ABOUT]),
    ("messages", [chunk("two", chunk_position="last", usage_metadata=USAGE)[1][0], ABOUT]),
    ("updates", {"model": {"messages": [SAID]}}),
]
BEGUN = {"messages": [human("Hello")]}
FIRST = "1f1e5f99-cac5-6e13-bffe-fd44593b193b"
DONE: list[tuple[str, Any]] = [
    metadata(),
    checkpoint(BEGUN, FIRST, step=0),
    ("values", BEGUN),
    task(),
    *SPOKEN,
    task_result(),
    checkpoint(STATE, parent=FIRST, **unknown("metadata")),
    ("values", STATE),
]
ASKS: list[tuple[str, Any]] = [
    metadata(),
    checkpoint(BEGUN, FIRST, step=0),
    ("values", BEGUN),
    task(),
    task_result(interrupts=[ASKED]),
    ("updates", {"__interrupt__": [ASKED]}),
    ("values", {**BEGUN, "__interrupt__": [ASKED]}),
]


@asynccontextmanager
async def through(folder: Path, stream: Sequence[tuple[str, Any]]) -> AsyncGenerator[Any]:
    far = Far()
    far.set("POST /assistants/search", [])
    far.set("POST /threads/T/runs/stream", Frames(stream))
    far.set("GET /threads/T/runs/R", {"run_id": "r", "thread_id": "t", "status": "success", "metadata": {}})
    async with bridge(cast("Any", far)) as http:
        agent = Client("http://far", "graph", http=http, dialect="langgraph")
        info = AgentInfo(name="far", stateful=True)
        async with (
            opened(folder, registered={"far": RegisteredAgent(info, agent)}) as gateway,
            bridge(gateway.app) as caller,
        ):
            yield caller


async def streamed(caller: Any, mode: str) -> list[Any]:
    thread = (await caller.post("/threads", json={})).json()
    body = {"assistant_id": "far", "input": {"messages": [{"role": "user", "content": "Hello"}]}, "stream_mode": mode}
    answer = await caller.post(f"/threads/{thread['thread_id']}/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    return events(answer.content)


DIFFERENCES = {
    "thread_id": "the gateway's: the same in all protocols",
    "run_id": "the gateway's: the same in all protocols",
    "graph_id": "what the agent is called here",
    "run_attempt": "the gateway counts",
    "x-api-key": "what came in headers of the gateway's is not told on",
    "langgraph_step": "told of every message",
    "parents": "told of every checkpoint",
    "tags": "told of every message",
    "x-metadata": "of a checkpoint's metadata, what a server says of its own deployment is not told on",
    "checkpoint_ns": "told of every checkpoint",
}
"""By the name of what differs, why."""
WHOLE = {"x-chunk", "additional_kwargs", "response_metadata", "chunk_position", "usage_metadata"}
"""A piece of a message is text, or a piece of a block: the rest is in the last one, or in the message when it is
whole."""
EMPTY = {"name", "tool_calls", "invalid_tool_calls", "tool_call_chunks"}
"""Members that langchain-core writes of each piece, and this server did not."""


def unexplained(theirs: Any, ours: Any) -> list[str]:
    return [each for each in differences(theirs, ours) if each.rpartition(".")[2] not in DIFFERENCES]


@pytest.mark.parametrize("stream", [DONE, ASKS])
@pytest.mark.parametrize("mode", ["values", "updates", "custom", "tasks", "checkpoints"])
async def test_a_stream_is_shown_as_its_server_shows_it(tmp_path: Path, mode: str, stream: Any) -> None:
    async with through(tmp_path, stream) as caller:
        theirs = [data for event, data in stream if event == mode]
        ours = [data for event, data in await streamed(caller, mode) if event == mode]
        assert theirs or stream is ASKS
        assert unexplained(theirs, ours) == []


async def test_a_question_is_the_same_wherever_it_is_shown(tmp_path: Path) -> None:
    async with through(tmp_path, ASKS) as caller:
        ids = (await caller.post("/threads", json={})).json()
        thread = f"/threads/{ids['thread_id']}"
        body = {"assistant_id": "far", "input": {"messages": [{"role": "user", "content": "Hello"}]}}
        waited = (await caller.post(f"{thread}/runs/wait", json=body)).json()
        state = (await caller.get(f"{thread}/state")).json()
        kept = (await caller.get(thread)).json()
        shown = [waited["__interrupt__"], state["interrupts"], *kept["interrupts"].values()]
        assert shown == [[ASKED]] * 3


async def test_pieces_are_shown_with_what_is_said_of_the_model(tmp_path: Path) -> None:
    async with through(tmp_path, DONE) as caller:
        theirs = [data for event, data in DONE if event == "messages"]
        *ours, last = [data for event, data in await streamed(caller, "messages-tuple") if event == "messages"]
        # The end of a message, and what it has used, are told in a piece of its own.
        assert (last[0]["content"], last[0]["chunk_position"], last[0]["usage_metadata"]) == ("", "last", USAGE)
        assert [piece["content"] for piece, _ in ours] == ["one ", "two"]
        found = [each.split(".")[1] for each in unexplained(theirs, ours)]
        assert set(found) == WHOLE | EMPTY
        assert ours[0][1]["tags"] == ["a"] and ours[0][1]["ls_model_name"] == "m"
        assert "x-api-key" not in ours[0][1]  # what came in headers
