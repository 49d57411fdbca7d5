"""The gateway in front of a LangGraph server: the official client sees no differences except those in a table."""

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


ANSWER = ai(
    "one two",
    response_metadata={"model_name": "m", "finish_reason": "stop", **unknown("response")},
    usage_metadata=USAGE,
    additional_kwargs={"k": 1},
    invalid_tool_calls=[],
    name="n",
    example=False,
    **unknown("message"),
)
INTERRUPT = {
    "id": "1" * 32,
    "value": {"words": "May I?"},
    "response_schema": {"type": "boolean"},
    "when": "during",
    "resumable": True,
    "ns": ["model:t1"],
    **unknown("interrupt"),
}
STATE: dict[str, Any] = {
    "messages": [human("Hello"), ANSWER],
    "ui": [{"type": "ui", "id": "u", "name": "n", "props": {}}],
    "x": 1,
}
METADATA: dict[str, Any] = {
    "langgraph_node": "model",
    "langgraph_triggers": ["branch:to:model"],
    "langgraph_path": ["__pregel_pull", "model"],
    "langgraph_checkpoint_ns": "model:t1",
    "tags": ["a"],
    "ls_provider": "p",
    "ls_model_name": "m",
    "x-api-key": "secret",
}
MESSAGES: list[tuple[str, Any]] = [
    ("custom", {"progress": 1, "deep": {"a": [1]}}),
    ("custom", "words"),
    ("messages", [chunk("one ", additional_kwargs={"k": 1}, **unknown("chunk"))[1][0], METADATA]),
    ("messages", [chunk("two", chunk_position="last", usage_metadata=USAGE)[1][0], METADATA]),
    ("updates", {"model": {"messages": [ANSWER]}}),
]
INPUT = {"messages": [human("Hello")]}
FIRST = "1f1e5f99-cac5-6e13-bffe-fd44593b193b"
ANSWERED: list[tuple[str, Any]] = [
    metadata(),
    checkpoint(INPUT, FIRST, step=0),
    ("values", INPUT),
    task(),
    *MESSAGES,
    task_result(),
    checkpoint(STATE, parent=FIRST, **unknown("metadata")),
    ("values", STATE),
]
INTERRUPTED: list[tuple[str, Any]] = [
    metadata(),
    checkpoint(INPUT, FIRST, step=0),
    ("values", INPUT),
    task(),
    task_result(interrupts=[INTERRUPT]),
    ("updates", {"__interrupt__": [INTERRUPT]}),
    ("values", {**INPUT, "__interrupt__": [INTERRUPT]}),
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
    "thread_id": "id of the gateway, which is the same in all protocols",
    "run_id": "id of the gateway, which is the same in all protocols",
    "graph_id": "name of the agent in the gateway",
    "run_attempt": "counted by the gateway",
    "x-api-key": "headers that the gateway sends are not repeated",
    "langgraph_step": "sent with every message",
    "parents": "sent with every checkpoint",
    "tags": "sent with every message",
    "x-metadata": "metadata of a checkpoint about the server's deployment is not repeated",
    "checkpoint_ns": "sent with every checkpoint",
}
"""Reason of each expected difference, by the name of the member."""
WHOLE = {"x-chunk", "additional_kwargs", "response_metadata", "chunk_position", "usage_metadata"}
"""Members that a chunk lacks, because they are only in the last chunk or in the whole message."""
EMPTY = {"name", "tool_calls", "invalid_tool_calls", "tool_call_chunks"}
"""Members that langchain-core writes in each chunk, and the scripted server does not."""


def unexplained(expected: Any, actual: Any) -> list[str]:
    return [each for each in differences(expected, actual) if each.rpartition(".")[2] not in DIFFERENCES]


@pytest.mark.parametrize("stream", [ANSWERED, INTERRUPTED])
@pytest.mark.parametrize("mode", ["values", "updates", "custom", "tasks", "checkpoints"])
async def test_a_stream_equals_that_of_its_server(tmp_path: Path, mode: str, stream: Any) -> None:
    async with through(tmp_path, stream) as caller:
        expected = [data for event, data in stream if event == mode]
        actual = [data for event, data in await streamed(caller, mode) if event == mode]
        assert expected or stream is INTERRUPTED
        assert unexplained(expected, actual) == []


async def test_a_question_is_the_same_in_wait_state_and_thread(tmp_path: Path) -> None:
    async with through(tmp_path, INTERRUPTED) as caller:
        ids = (await caller.post("/threads", json={})).json()
        thread = f"/threads/{ids['thread_id']}"
        body = {"assistant_id": "far", "input": {"messages": [{"role": "user", "content": "Hello"}]}}
        waited = (await caller.post(f"{thread}/runs/wait", json=body)).json()
        state = (await caller.get(f"{thread}/state")).json()
        thread_ = (await caller.get(thread)).json()
        interrupts = [waited["__interrupt__"], state["interrupts"], *thread_["interrupts"].values()]
        assert interrupts == [[INTERRUPT]] * 3


async def test_chunks_keep_the_metadata_of_the_model(tmp_path: Path) -> None:
    async with through(tmp_path, ANSWERED) as caller:
        expected = [data for event, data in ANSWERED if event == "messages"]
        *actual, last = [data for event, data in await streamed(caller, "messages-tuple") if event == "messages"]
        # The end of a message and its usage are sent in a separate chunk.
        assert (last[0]["content"], last[0]["chunk_position"], last[0]["usage_metadata"]) == ("", "last", USAGE)
        assert [piece["content"] for piece, _ in actual] == ["one ", "two"]
        members = [each.split(".")[1] for each in unexplained(expected, actual)]
        assert set(members) == WHOLE | EMPTY
        assert actual[0][1]["tags"] == ["a"] and actual[0][1]["ls_model_name"] == "m"
        assert "x-api-key" not in actual[0][1]  # it was in a header
