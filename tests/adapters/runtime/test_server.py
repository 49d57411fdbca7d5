"""The minimal runtime over a whole gateway: threads, runs, event streams, questions and errors."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.kit.client.sse import Frames
from babelgate.canonical import Ask, DataPart, Invocation, Message, TextPart
from babelgate.gateway import demo
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 60
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

GATE: Final = asyncio.Event()
STARTED: Final = asyncio.Event()
STOPPED: Final = asyncio.Event()


async def gated(text: str) -> AsyncGenerator[str]:
    yield "first"
    await GATE.wait()
    yield " last"


async def endless(text: str) -> AsyncGenerator[str]:
    """Stream one piece, then wait until it is cancelled."""
    STARTED.set()
    try:
        yield "first"
        await asyncio.Event().wait()
    finally:
        STOPPED.set()


async def report(call: Invocation) -> str:
    """Answer with the invocation as JSON."""
    messages = [[each.role, each.name, [part.kind for part in each.parts], each.text] for each in call.messages]
    return json.dumps({"messages": messages, "data": call.data, "config": call.config, "before": len(call.history)})


async def repeat(call: Invocation) -> str:
    return call.text


async def both(text: str) -> AsyncGenerator[Any, Any]:
    name, age = yield [Ask("Name?"), Ask("Age?", schema={"type": "integer"})]
    yield f"{name} is {age}"


async def files(call: Invocation) -> AsyncGenerator[Any]:
    for message in call.messages:
        yield Message(parts=(*message.parts, DataPart(data={"a": 1}), TextPart(text=call.text)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    demos = {name: getattr(demo, name) for name in ("echo", "stream", "ask")}
    functions = (gated, endless, report, repeat, both, files)
    folder = tmp_path_factory.mktemp("runtime")
    async with running(folder, demos | {each.__name__: each for each in functions}, default_agent="echo") as gateway:
        yield gateway


async def post(gateway: Running, path: str, status: int = 200, **body: Any) -> Any:
    answer = await gateway.http.post(f"/v1{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def get(gateway: Running, path: str, status: int = 200) -> Any:
    answer = await gateway.http.get(f"/v1{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def text_of(run: Any) -> str:
    parts = [part for message in run["output"]["messages"] for part in message["parts"] if part["kind"] == "text"]
    return "".join(part["text"] for part in parts)


def events_of(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    frames = Frames().all([answer.content])
    events = [json.loads(frame.data) for frame in frames]
    assert [(frame.event, frame.id) for frame in frames] == [(e["event_type"], str(e["event_id"])) for e in events]
    return events


def kinds(events: list[Any]) -> list[str]:
    return [event["event_type"] for event in events]


# Threads


async def test_a_thread_is_created_with_metadata_and_read_again(gateway: Running) -> None:
    thread = await post(gateway, "/threads", metadata={"a": 1})
    assert thread == await get(gateway, f"/threads/{thread['thread_id']}")
    assert (thread["status"], thread["metadata"]) == ("idle", {"a": 1})
    assert (thread["state_snapshot"], thread["last_run_id"]) == (None, None)


async def test_a_caller_may_choose_a_thread_id_that_is_free(gateway: Running) -> None:
    thread_id = str(uuid4())
    assert (await post(gateway, "/threads", thread_id=thread_id))["thread_id"] == thread_id
    refused = await post(gateway, "/threads", 409, thread_id=thread_id)
    assert refused["error"]["code"] == "conflict"
    assert (await post(gateway, "/threads", thread_id=thread_id, if_exists="return"))["thread_id"] == thread_id


async def test_a_thread_shows_its_state_and_its_last_run(gateway: Running) -> None:
    thread_id = (await post(gateway, "/threads"))["thread_id"]
    run = await post(gateway, f"/threads/{thread_id}/runs", assistant_id="echo", input={"messages": ["x"][:0], "a": 1})
    run = await post(gateway, f"/threads/{thread_id}/runs", assistant_id="echo", input="Hello")
    thread = await get(gateway, f"/threads/{thread_id}")
    assert thread["last_run_id"] == run["run_id"]
    values = thread["state_snapshot"]["values"]
    assert values["a"] == 1
    assert [message["parts"][0]["text"] for message in values["messages"]][-2:] == ["Hello", "Hello"]


async def test_metadata_and_values_of_a_thread_are_changed(gateway: Running) -> None:
    thread_id = (await post(gateway, "/threads", metadata={"a": 1, "b": 1}))["thread_id"]
    change = {"metadata": {"a": 2}, "values": {"note": [1]}}
    answer = await gateway.http.patch(f"/v1/threads/{thread_id}", json=change)
    thread = answer.json()
    assert thread["metadata"] == {"a": 2, "b": 1}
    assert thread["state_snapshot"]["values"] == {"note": [1]}


# Runs


async def test_a_run_without_a_thread_creates_one_and_is_readable(gateway: Running) -> None:
    run = await post(gateway, "/runs", assistant_id="echo", input="Hello", metadata={"a": 1})
    assert (run["status"], text_of(run), run["metadata"]) == ("success", "Hello", {"a": 1})
    assert run == await get(gateway, f"/runs/{run['run_id']}")
    assert (await get(gateway, f"/threads/{run['thread_id']}"))["last_run_id"] == run["run_id"]
    assert run["event_log_reference"] == f"{gateway.url}/v1/runs/{run['run_id']}/stream"


async def test_without_an_assistant_the_default_agent_runs(gateway: Running) -> None:
    assert (await post(gateway, "/runs", input="Hello"))["assistant_id"] == "echo"


async def test_an_unknown_checkpoint_or_agent_is_not_found(gateway: Running) -> None:
    first = await post(gateway, "/runs", assistant_id="report", input="one")
    thread = f"/threads/{first['thread_id']}"
    checkpoint_id = (await get(gateway, thread))["state_snapshot"]["checkpoint_id"]
    await post(gateway, f"{thread}/runs", 404, assistant_id="report", input="x", checkpoint_id=str(uuid4()))
    await post(gateway, "/runs", 404, assistant_id="report", input="x", checkpoint_id=checkpoint_id)
    assert (await post(gateway, "/runs", 404, assistant_id="nobody", input="x"))["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("value", "messages", "data"),
    [
        ("Hi", [["user", None, ["text"], "Hi"]], None),
        ([{"content": "Hi"}], [["user", None, ["text"], "Hi"]], None),
        (
            {
                "messages": [{"role": "assistant", "content": "a"}, {"role": "user", "name": "n", "content": "b"}],
                "x": 1,
            },
            [["agent", None, ["text"], "a"], ["user", "n", ["text"], "b"]],
            {"x": 1},
        ),
        ({"x": [1]}, [], {"x": [1]}),
        (7, [], 7),
        (None, [], None),
    ],
)
async def test_an_input_is_messages_and_data(gateway: Running, value: Any, messages: Any, data: Any) -> None:
    received = json.loads(text_of(await post(gateway, "/runs", assistant_id="report", input=value)))
    assert (received["messages"], received["data"]) == (messages, data)


async def test_parts_of_every_kind_reach_the_agent_and_the_caller(gateway: Running) -> None:
    parts = [
        {"kind": "text", "text": "a"},
        {"kind": "data", "data": {"x": [1, None]}},
        {"kind": "file", "name": "a.bin", "media_type": "a/b", "inline": b64encode(b"\x00\xff").decode()},
    ]
    run = await post(gateway, "/runs", assistant_id="files", input=[{"parts": parts}])
    output = run["output"]["messages"][0]["parts"]
    assert [part["kind"] for part in output] == ["text", "data", "file", "data", "text"]
    file = output[2]
    assert (file["inline"], file["size"], file["name"]) == (b64encode(b"\x00\xff").decode(), 2, "a.bin")
    again = await post(
        gateway, "/runs", assistant_id="files", input=[{"parts": [{"kind": "file", "blob": file["blob"]}]}]
    )
    assert again["output"]["messages"][0]["parts"][0]["inline"] == file["inline"]
    refused = await post(
        gateway, "/runs", 422, assistant_id="files", input=[{"parts": [{"kind": "file", "blob": "0" * 64}]}]
    )
    assert refused["error"]["errors"][0]["field"] == "input"


async def test_configuration_and_tools_reach_the_agent(gateway: Running) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    run = await post(gateway, "/runs", assistant_id="report", input="", config={"a": 1}, tools=tools, output_schema={})
    config = json.loads(text_of(run))["config"]
    assert (config["a"], config["tools"]) == (1, tools)
    assert config["response_format"]["json_schema"]["schema"] == {}


async def test_a_background_run_is_answered_immediately_and_streamed_later(gateway: Running) -> None:
    GATE.clear()
    run = await post(gateway, "/runs", 202, assistant_id="gated", input="go", background=True)
    assert run["status"] in ("pending", "running")
    async with asyncio.timeout(BOUND), gateway.http.stream("GET", f"/v1/runs/{run['run_id']}/stream") as stream:
        frames, events = Frames(), list[Any]()
        async for chunk in stream.aiter_bytes():
            events += [json.loads(frame.data) for frame in frames.feed(chunk)]
            if any(event["payload"].get("part", {}).get("text") == "first" for event in events):
                GATE.set()
    assert kinds(events)[-1] == "run_ended"
    assert text_of(await get(gateway, f"/runs/{run['run_id']}")) == "first last"


async def test_a_waiting_request_is_disconnected_when_the_gateway_stops(tmp_path: Path) -> None:
    STARTED.clear()
    async with running(tmp_path, {"endless": endless}) as gateway, asyncio.timeout(BOUND):
        body = {"assistant_id": "endless", "input": "go"}
        request = asyncio.ensure_future(gateway.http.post("/v1/runs", json=body))
        await STARTED.wait()
        gateway.hub.close_readers()
        with pytest.raises(httpx.RemoteProtocolError):
            await request


async def test_a_busy_thread_rejects_or_interrupts(gateway: Running) -> None:
    GATE.clear()
    first = await post(gateway, "/runs", 202, assistant_id="gated", input="go", background=True)
    runs = f"/threads/{first['thread_id']}/runs"
    refused = await post(gateway, runs, 409, assistant_id="echo", input="x", multitask_strategy="reject")
    assert refused["error"]["code"] == "conflict"
    after = await post(gateway, runs, assistant_id="echo", input="x", multitask_strategy="interrupt")
    assert (after["status"], text_of(after)) == ("success", "x")
    assert (await get(gateway, f"/runs/{first['run_id']}"))["status"] == "cancelled"


async def test_a_run_is_cancelled_once(gateway: Running) -> None:
    STARTED.clear()
    run = await post(gateway, "/runs", 202, assistant_id="endless", input="go", background=True)
    async with asyncio.timeout(BOUND):
        await STARTED.wait()
        assert (await post(gateway, f"/runs/{run['run_id']}/cancel", 202))["status"] == "cancelling"
        await gateway.http.get(f"/v1/runs/{run['run_id']}/stream")
    assert (await post(gateway, f"/runs/{run['run_id']}/cancel", 409))["error"]["code"] == "task_ended"


async def test_a_run_of_a_temporary_thread_ends_with_its_caller(gateway: Running) -> None:
    STARTED.clear()
    STOPPED.clear()
    body = {"assistant_id": "endless", "input": "go", "on_completion": "delete"}
    async with asyncio.timeout(BOUND):
        async with gateway.http.stream("POST", "/v1/runs/stream", json=body):
            await STARTED.wait()
        await STOPPED.wait()


async def test_output_must_match_the_requested_schema(gateway: Running) -> None:
    fits = await post(gateway, "/runs", assistant_id="repeat", input='{"a": 1}', output_schema=SCHEMA)
    assert (fits["status"], fits["output"]["data"]) == ("success", {"a": 1})
    for text in ('{"a": "x"}', "no JSON"):
        run = await post(gateway, "/runs", assistant_id="repeat", input=text, output_schema=SCHEMA)
        assert (run["status"], run["error"]["code"]) == ("error", "agent_invalid")
        assert await get(gateway, f"/runs/{run['run_id']}") == run
    refused = await post(gateway, "/runs", 422, assistant_id="repeat", input="x", output_schema={"type": 7})
    assert refused["error"]["errors"][0]["field"] == "output_schema"


async def test_an_invalid_schema_in_response_format_is_not_checked(gateway: Running) -> None:
    config = {"response_format": {"json_schema": {"schema": {"type": 7}}}}
    run = await post(gateway, "/runs", assistant_id="repeat", input="{}", config=config)
    assert (run["status"], text_of(run)) == ("success", "{}")


# Events


async def test_a_stream_has_the_events_of_the_run_in_order(gateway: Running) -> None:
    live = await gateway.http.post("/v1/runs/stream", json={"assistant_id": "stream", "input": "one two"})
    events = kinds(events_of(live))
    assert (events[:2], events[-1]) == (["run_created", "run_started"], "run_ended")
    url = f"/v1/runs/{live.headers['babelgate-run']}/stream"
    assert (await gateway.http.get(url, headers={"Last-Event-ID": "x"})).status_code == 422


# Questions


async def test_a_paused_run_has_a_question_that_can_be_answered(gateway: Running) -> None:
    run = await post(gateway, "/runs", assistant_id="ask", input="go")
    assert run["status"] == "input_required"
    (question,) = run["interrupt_state"]
    assert (question["run_id"], question["task_id"]) == (run["run_id"], run["task_id"])
    assert question["message"]["parts"][0]["text"] == "What is your name?"
    thread = f"/threads/{run['thread_id']}"
    assert (await get(gateway, thread))["status"] == "interrupted"
    done = await post(gateway, f"{thread}/resume", input="Ada")
    assert (done["status"], text_of(done), done["task_id"]) == ("success", "Hello, Ada.", run["task_id"])
    assert (await get(gateway, f"/runs/{run['run_id']}"))["interrupt_state"] is None
    assert (await post(gateway, f"{thread}/resume", 409, input="Ada"))["error"]["code"] == "not_awaiting"


async def test_one_of_several_questions_is_answered_by_its_pointer(gateway: Running) -> None:
    run = await post(gateway, "/runs", assistant_id="both", input="go")
    name, age = (question["resume_state_pointer"] for question in run["interrupt_state"])
    resume = f"/threads/{run['thread_id']}/resume"
    first = await post(gateway, resume, run_id=run["run_id"], answers={age: 36})
    assert [question["resume_state_pointer"] for question in first["interrupt_state"]] == [name]
    assert text_of(await post(gateway, resume, task_id=run["task_id"], input="Ada")) == "Ada is 36"


async def test_the_rest_after_an_answer_streams_or_runs_in_background(gateway: Running) -> None:
    paused = await post(gateway, "/runs", assistant_id="ask", input="go")
    answer = await gateway.http.post(f"/v1/threads/{paused['thread_id']}/resume", json={"input": "Ada", "stream": True})
    assert kinds(events_of(answer))[:2] == ["run_created", "interrupt_answered"]
    paused = await post(gateway, "/runs", assistant_id="ask", input="go")
    run = await post(gateway, f"/threads/{paused['thread_id']}/resume", 202, input="Ada", background=True)
    assert run["task_id"] == paused["task_id"]


async def test_a_question_may_be_declined(gateway: Running) -> None:
    run = await post(gateway, "/runs", assistant_id="ask", input="go")
    done = await post(gateway, f"/threads/{run['thread_id']}/resume", decline=True)
    assert done["status"] != "input_required"


async def test_an_answer_names_its_task_if_several_tasks_wait(gateway: Running) -> None:
    first = await post(gateway, "/runs", assistant_id="ask", input="go")
    thread = f"/threads/{first['thread_id']}"
    second = await post(gateway, f"{thread}/runs", assistant_id="ask", input="go")
    refused = await post(gateway, f"{thread}/resume", 422, input="Ada")
    assert refused["error"]["errors"][0]["field"] == "task_id"
    for run in (first, second):
        assert text_of(await post(gateway, f"{thread}/resume", task_id=run["task_id"], input="Ada")) == "Hello, Ada."
    other = await post(gateway, "/threads")
    await post(gateway, f"/threads/{other['thread_id']}/resume", 404, task_id=first["task_id"], input="Ada")


# Errors


async def test_an_unknown_member_is_named_in_the_error(gateway: Running) -> None:
    refused = await post(gateway, "/runs", 422, input="x", stream_mode="values")
    assert refused["error"]["errors"] == [{"field": "stream_mode", "description": "There is no such member"}]


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "file"},
        {"kind": "file", "inline": "aGk=", "url": "http://x"},
        {"kind": "file", "inline": "?"},
        {"kind": "nope"},
        {"kind": "text", "text": "a", "extra": {"a2a": {}}},
    ],
)
async def test_an_invalid_part_is_rejected(gateway: Running, part: Any) -> None:
    refused = await post(gateway, "/runs", 422, input=[{"parts": [part]}])
    assert refused["error"]["code"] == "invalid"


async def test_requests_for_openai_assistants_get_an_explanation(gateway: Running) -> None:
    answer = await gateway.http.post("/v1/threads", json={}, headers={"OpenAI-Beta": "assistants=v2"})
    assert answer.status_code == 404
    assert "Assistants API" in answer.json()["error"]["message"]
