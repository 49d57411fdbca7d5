"""Runs over HTTP in both layouts of both dialects: how they are created, listed, cancelled and deleted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.adapters.langchain.server import wait
from babelgate.canonical import Event, FilePart, Scope, TextPart
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunCreated,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    encode_event,
)
from tests.adapters.langchain.site import ALONE, NOBODY, SHARED, Site, new_id, opened, user_input
from tests.gateway.hubs import within

pytestmark = SHARED

PROTOCOL = "/agent-protocol"


async def begin(site: Site, thread_id: str, **fields: Any) -> str:
    """Start a run of the scripted agent, and wait until it is active."""
    run_id = await site.run(thread_id, **fields)
    await site.agent.called()
    return run_id


# Dialects


async def test_an_assistant_id_selects_the_platform_dialect(
    site: Site,
) -> None:
    thread_id = await site.thread()
    platform = await site.ok(f"/threads/{thread_id}/runs/wait", {"assistant_id": "echo", "input": user_input("hi")})
    assert [message["type"] for message in platform["messages"]] == ["human", "ai"]
    for fields in ({"agent_id": "echo"}, {}):
        protocol = await site.ok("/runs/wait", {**fields, "input": {"n": 1}, "messages": user_input("hi")["messages"]})
        assert (protocol["run"]["status"], protocol["status"]) == ("success", "success")
        assert protocol["values"] == {"n": 1}
        assert [message["role"] for message in protocol["messages"]] == ["user", "assistant"]


async def test_below_its_prefix_only_the_agent_protocol_is_used(site: Site) -> None:
    result = await site.ok(f"{PROTOCOL}/runs/wait", {"assistant_id": "stream", "input": user_input("a b")})
    assert (result["run"]["agent_id"], result["status"]) == ("stream", "success")


async def test_an_assistant_is_named_by_graph_or_uuid(site: Site) -> None:
    uuid = (await site.ok("/assistants/search", {"graph_id": "echo"}))[0]["assistant_id"]
    thread_id = await site.thread()
    for name in ("echo", uuid):
        run_id = await site.run(thread_id, name)
        assert (await site.look(f"/threads/{thread_id}/runs/{run_id}"))["assistant_id"] == uuid
        await site.ends(thread_id, run_id)


async def test_an_unknown_graph_is_422_and_an_unknown_uuid_404(site: Site, thread_id: str) -> None:
    unknown_graph = await site.create(thread_id, "nope")
    assert unknown_graph.status_code == 422
    message = (
        "Invalid assistant: 'nope'. Must be either:\n- A valid assistant UUID, or\n- One of the registered graphs: "
    )
    assert unknown_graph.json()["detail"].startswith(message)
    assert "echo" in unknown_graph.json()["detail"]
    unknown_uuid = await site.create(thread_id, NOBODY)
    assert (unknown_uuid.status_code, unknown_uuid.json()) == (404, {"detail": "Thread or assistant not found."})


async def test_a_run_without_agent_uses_default_or_path(site: Site) -> None:
    assert (await site.ok("/runs/wait", {"input": "x"}))["run"]["agent_id"] == "echo"
    assert (await site.ok("/agent/stream/runs/wait", {"input": "x"}))["run"]["agent_id"] == "stream"


# Creating


async def test_a_new_run_is_always_pending(site: Site, thread_id: str) -> None:
    for _ in range(10):
        run = (await site.create(thread_id, "echo", metadata={"a": 1})).json()
        assert run["status"] == "pending"
        assert run["metadata"]["a"] == 1
        assert run["metadata"]["babelgate"]["run_id"] == run["run_id"]
        times, request = {"created_at", "updated_at"}, {"metadata", "kwargs", "multitask_strategy"}
        assert set(run) >= {"run_id", "thread_id", "assistant_id", "status", *times, *request}
        assert await site.ends(thread_id, run["run_id"]) == "success"


async def test_location_headers_name_thread_and_run_without_prefix(site: Site) -> None:
    thread_id = await site.thread()
    body = {"assistant_id": "echo", "input": "x"}
    for prefix in ("", PROTOCOL, "/agent/echo"):
        for thread in (f"/threads/{thread_id}", ""):
            answer = await site.post(f"{prefix}{thread}/runs", body)
            run = f"/threads/{answer.headers['babelgate-thread']}/runs/{answer.headers['babelgate-run']}"
            assert answer.headers["content-location"] == run
            await site.get(f"{run}/join")
            for below in ("wait", "stream"):
                answer = await site.post(f"{prefix}{thread}/runs/{below}", body)
                run = f"/threads/{answer.headers['babelgate-thread']}/runs/{answer.headers['babelgate-run']}"
                assert answer.headers["content-location"] == run
                result = "wait" if prefix == PROTOCOL else "join"
                assert answer.headers["location"] == f"{run}/{result if below == 'wait' else below}"
                assert (await site.get(answer.headers["location"])).status_code == 200


async def test_the_request_is_stored_unchanged(site: Site, thread_id: str) -> None:
    request = {
        "input": {"messages": [{"role": "user", "content": "hi"}], "n": 1},
        "config": {"tags": ["t"], "recursion_limit": 5, "configurable": {"x": 1}},
        "stream_mode": ["values", "updates"],
        "interrupt_before": ["x"],
        "durability": "sync",
        "langsmith_tracer": {"project_name": "p"},
    }
    run = (await site.create(thread_id, "echo", **request)).json()
    kwargs = run["kwargs"]
    assert {name: kwargs[name] for name in request} == request
    assert kwargs["temporary"] is False
    assert (await site.look(f"/threads/{thread_id}/runs/{run['run_id']}"))["kwargs"] == kwargs


async def test_the_agent_receives_config_and_context(site: Site, thread_id: str) -> None:
    await site.run(thread_id, config={"configurable": {"x": 1}, "tags": ["t"]})
    activation = await site.agent.called()
    assert activation.call.config == {"configurable": {"x": 1}, "tags": ["t"]}
    activation.end()
    await site.run(thread_id, context={"user": "u"})
    activation = await site.agent.called()
    assert activation.call.config == {"context": {"user": "u"}}
    activation.end()


async def test_configurable_and_context_together_are_a_bad_request(site: Site, thread_id: str) -> None:
    answer = await site.create(thread_id, "echo", config={"configurable": {"a": 1}}, context={"b": 1})
    assert answer.status_code == 400


async def test_bytes_of_files_are_not_stored_twice(site: Site, thread_id: str) -> None:
    block = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}
    input = {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, block]}]}
    run_id = await site.run(thread_id, "echo", input)
    await site.ends(thread_id, run_id)
    hub = site.gateway.hub
    records = await hub.reads.records("default", Scope(thread_id))
    created = next(record.event for record in records if isinstance(record.event, RunCreated))
    assert b"aGVsbG8" not in encode_event(created)
    run = await site.look(f"/threads/{thread_id}/runs/{run_id}")
    assert run["kwargs"]["input"]["messages"][0]["content"][0]["text"] == "look"
    assert "aGVsbG8" in json.dumps((await site.look(f"/threads/{thread_id}"))["values"])


async def test_an_unknown_thread_is_404_unless_the_run_creates_it(site: Site) -> None:
    thread_id = new_id()
    missing = await site.create(thread_id, "echo")
    assert (missing.status_code, missing.json()) == (404, {"detail": f"Thread with ID {thread_id} not found"})
    assert (await site.create(thread_id, "echo", if_not_exists="create")).status_code == 200
    assert (await site.look(f"/threads/{thread_id}"))["thread_id"] == thread_id
    protocol = await site.post("/runs", {"thread_id": new_id(), "input": "x"})
    assert protocol.status_code == 404
    assert (await site.post("/runs", {"thread_id": new_id(), "if_not_exists": "create"})).status_code == 200


async def test_a_run_may_name_its_thread_in_the_body(site: Site, thread_id: str) -> None:
    result = await site.ok("/runs/wait", {"thread_id": thread_id, "messages": user_input("hi")["messages"]})
    assert result["run"]["thread_id"] == thread_id
    assert len((await site.look(f"/threads/{thread_id}"))["values"]["messages"]) == 2
    delete = {"thread_id": thread_id, "input": "x", "on_completion": "delete"}
    assert (await site.post("/runs", delete)).status_code == 422


@pytest.mark.parametrize("value", ["continue", "complete", 7])
async def test_on_completion_of_a_run_on_a_thread_is_ignored(site: Site, thread_id: str, value: Any) -> None:
    """Ignore `continue` of @langchain/langgraph-sdk 1.15, as langgraph-api 0.16.7 does on threads."""
    body = {"assistant_id": "echo", "input": "x", "on_completion": value}
    for path in ("runs/wait", "runs/stream", "runs"):
        assert (await site.post(f"/threads/{thread_id}/{path}", body)).status_code == 200
    assert (await site.post("/runs/wait", body)).status_code == 422
    assert (await site.post("/runs/wait", {**body, "on_completion": None})).status_code == 200


async def test_a_stateless_run_is_found_with_and_without_thread(site: Site) -> None:
    created = (await site.post("/runs", {"assistant_id": "echo", "input": "x"})).json()
    run = f"/threads/{created['thread_id']}/runs/{created['run_id']}"
    assert (await site.look(f"{run}/join"))["messages"][-1]["content"] == "x"
    assert (await site.look(run))["status"] == "success"
    assert (await site.look(f"/runs/{created['run_id']}"))["agent_id"] == "echo"


async def test_a_delayed_run_is_pending_and_can_be_cancelled(site: Site) -> None:
    thread_id = await site.thread()
    run = (await site.create(thread_id, "echo", after_seconds=3600)).json()
    assert await site.status(thread_id, run["run_id"]) == "pending"
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "busy"
    assert run["created_at"] > (await site.look(f"/threads/{thread_id}"))["updated_at"]
    cancelled = await site.post(f"/threads/{thread_id}/runs/{run['run_id']}/cancel")
    assert cancelled.status_code == 202
    assert await site.status(thread_id, run["run_id"]) == "interrupted"
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "idle"
    soon = await site.run(thread_id, "echo", after_seconds=0.05)
    assert await site.ends(thread_id, soon) == "success"


@ALONE
async def test_a_batch_starts_all_runs_or_none(site: Site) -> None:
    run = {"assistant_id": "echo", "input": "x", "on_completion": "keep"}
    runs = await site.ok("/runs/batch", [run, {**run, "assistant_id": "stream"}])
    assert [each["status"] for each in runs] == ["pending", "pending"]
    assert len({each["thread_id"] for each in runs}) == 2
    for bad in ([], [run, {"input": "x"}], [run, {**run, "assistant_id": "nope"}], [run, 7], run):
        assert (await site.post("/runs/batch", bad)).status_code == 422
    assert await site.ok("/threads/count", {}) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"multitask_strategy": "perhaps"},
        {"stream_mode": "lifecycle"},
        {"stream_mode": ["values", "tools"]},
        {"stream_mode": 7},
        {"config": []},
        {"metadata": "x"},
        {"after_seconds": -1},
        {"if_not_exists": "x"},
        {"on_disconnect": "x"},
        {"command": "x"},
        {"command": {"goto": "x"}},
        {"command": {"update": {"a": 1}}},
        {"webhook": ""},
        {"webhook": "/relative"},
        {"webhook": "http://10.0.0.1/hook"},
        {"checkpoint": "x"},
        {"input": {"messages": [{"content": "x"}]}},
        {"assistant_id": 7},
    ],
    ids=str,
)
async def test_a_malformed_run_is_rejected_and_starts_nothing(site: Site, thread_id: str, fields: Any) -> None:
    for path in (f"/threads/{thread_id}/runs", f"/threads/{thread_id}/runs/wait", "/runs/stream"):
        answer = await site.post(path, {"assistant_id": "echo", "input": "x", **fields})
        assert answer.status_code == 422, answer.text
        assert isinstance(answer.json()["detail"], str)
    assert await site.look(f"/threads/{thread_id}/runs") == []


async def test_options_without_effect_are_reported_as_losses(site: Site, thread_id: str) -> None:
    body = {"assistant_id": "echo", "input": "x", "interrupt_before": "*", "stream_subgraphs": True}
    answer = await site.post(f"/threads/{thread_id}/runs/wait", {**body, "feedback_keys": ["k"]})
    loss = answer.headers["babelgate-loss"]
    assert all(name in loss for name in ("question=", "stream=", "metadata="))
    assert "babelgate-loss" not in (await site.create(thread_id, "echo")).headers


STREAM_ONLY: list[Event] = [
    StepStarted(step_id="s", name="plan"),
    StepEnded(step_id="s", name="plan"),
    ToolStarted(call_id="c", name="look"),
    ToolEnded(call_id="c", name="look", output=1),
    Custom(name="n", value=1),
    ArtifactAdded(name="a.txt", part=FilePart(name="a.txt", inline=b"hi", media_type="text/plain")),
    MessageStarted(phase="progress"),
    PartAdded(part=TextPart(text="On my way.")),
    MessageEnded(),
]
LOSSES = dict.fromkeys(("step", "tool-activity", "custom", "artifact", "progress"), "in streams only")


async def test_a_wait_reports_stream_only_events_as_losses(site: Site, thread_id: str) -> None:
    path = f"/agent-protocol/threads/{thread_id}/runs/wait"
    waiting = asyncio.ensure_future(site.ok(path, {"agent_id": "scripted", "input": "hi"}))
    (await site.agent.called()).say(*STREAM_ONLY).say("done").end()
    run: Any = (await waiting)["run"]
    assert run["metadata"]["babelgate"]["loss"] == LOSSES
    joined = await site.get(f"/threads/{thread_id}/runs/{run['run_id']}/join")
    assert set(joined.headers["babelgate-loss"].split(", ")) == {f'{name}="{how}"' for name, how in LOSSES.items()}
    looked_up = await site.get(f"/threads/{thread_id}/runs/{run['run_id']}")
    assert "babelgate-loss" not in looked_up.headers, "the run itself loses nothing"
    run = (await site.ok(path, {"agent_id": "echo", "input": "x"}))["run"]
    assert "loss" not in run["metadata"]["babelgate"]
    assert "babelgate-loss" not in (await site.get(f"/threads/{thread_id}/runs/{run['run_id']}/join")).headers


# Reading


async def test_runs_are_listed_newest_first_and_in_pages(site: Site, thread_id: str) -> None:
    ids: list[str] = []
    for _ in range(3):
        ids.append(await site.run(thread_id, "echo"))
        await site.ends(thread_id, ids[-1])
    path = f"/threads/{thread_id}/runs"
    assert [run["run_id"] for run in await site.look(path)] == ids[::-1]
    page = await site.get(f"{path}?limit=1&offset=1")
    assert [run["run_id"] for run in page.json()] == [ids[1]]
    assert page.headers["x-pagination-next"] == "2"
    assert await site.look(f"{path}?status=success&select=run_id") == [{"run_id": run_id} for run_id in ids[::-1]]
    assert await site.look(f"{path}?status=pending") == []
    for bad in ("limit=0", "limit=1001", "offset=-1", "status=dead", "select=secret"):
        assert (await site.get(f"{path}?{bad}")).status_code == 422
    assert (await site.get(f"/threads/{NOBODY}/runs")).status_code == 404


@ALONE
async def test_runs_of_all_threads_are_filtered(site: Site) -> None:
    first, second = await site.thread(), await site.thread()
    one = await site.run(first, "echo", metadata={"a": 1})
    two = await site.run(second, "stream", metadata={"a": 2})
    for thread_id, run_id in ((first, one), (second, two)):
        await site.ends(thread_id, run_id)

    async def search(**body: Any) -> set[str]:
        return {run["run_id"] for run in await site.ok(f"{PROTOCOL}/runs/search", body)}

    assert await search() == {one, two}
    assert await search(thread_id=first) == {one}
    assert await search(agent_id="stream") == {two}
    assert await search(metadata={"a": 1}) == {one}
    assert await search(status="success") == {one, two}
    assert await search(status="error") == set()
    for bad in ({"status": "dead"}, {"thread_id": "x"}, {"limit": 0}):
        assert (await site.post(f"{PROTOCOL}/runs/search", bad)).status_code == 422
    assert (await site.post(f"{PROTOCOL}/runs/search", {"agent_id": "nope"})).status_code == 404


async def test_a_run_is_not_found_on_another_thread(site: Site) -> None:
    thread_id, other = await site.thread(), await site.thread()
    run_id = await site.run(thread_id, "echo")
    for path in (f"/threads/{other}/runs/{run_id}", f"/threads/{thread_id}/runs/{NOBODY}", f"/runs/{NOBODY}"):
        answer = await site.get(path)
        assert (answer.status_code, answer.json()) == (404, {"detail": "Run not found"})
    assert (await site.get(f"/threads/{thread_id}/runs/x")).status_code == 422


# Waiting


async def test_a_failed_run_is_reported_in_the_body_of_wait(site: Site, thread_id: str) -> None:
    result = await site.wait(thread_id, "fail", "boom")
    assert set(result["__error__"]) == {"error", "message"}
    assert "boom" in result["__error__"]["message"]
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["error"]) == ("error", result["__error__"])
    protocol = await site.ok("/runs/wait", {"agent_id": "fail", "input": "boom"})
    assert (protocol["status"], protocol["run"]["status"]) == ("error", "error")


async def test_joining_an_unknown_run_answers_200_with_an_error(site: Site, thread_id: str) -> None:
    joined = await site.get(f"/threads/{thread_id}/runs/{NOBODY}/join")
    error = {"__error__": {"error": "HTTPException", "message": "404: Run not found"}}
    assert (joined.status_code, joined.json()) == (200, error)
    assert (await site.get(f"/threads/{thread_id}/runs/{NOBODY}/wait")).status_code == 404
    assert (await site.get(f"{PROTOCOL}/threads/{thread_id}/runs/{NOBODY}/join")).status_code == 404


async def test_a_join_shows_the_values_at_the_runs_end(site: Site, thread_id: str) -> None:
    first = await site.run(thread_id, "echo", user_input("one"))
    ended = await site.look(f"/threads/{thread_id}/runs/{first}/join")
    await site.wait(thread_id, input=user_input("two"))
    assert await site.look(f"/threads/{thread_id}/runs/{first}/join") == ended
    assert [message["content"] for message in ended["messages"]] == ["one", "one"]


async def test_a_wait_sends_line_feeds_to_keep_alive(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "KEEP_ALIVE", 0.01)
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": "hi"}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/wait", body) as waiting:
        activation = await site.agent.called()
        chunks = waiting.response.aiter_bytes()
        content = b""
        while len(content) < 3:
            content += await within(anext(chunks), "a line feed")
        assert content.strip() == b""
        activation.say("done").end()
        async for chunk in chunks:
            content += chunk
    assert content.startswith(b"\n\n\n")
    assert json.loads(content)["messages"][-1]["content"] == "done"


async def test_waiting_requests_are_disconnected_when_the_gateway_stops(tmp_path: Path) -> None:
    """Break the connection, so that langgraph-sdk requests the result again by `Location`."""
    answers: list[asyncio.Future[httpx.Response]] = []
    async with opened(tmp_path) as site:
        thread_id = await site.thread()
        for body in ({"assistant_id": "scripted"}, {"agent_id": "scripted", "multitask_strategy": "enqueue"}):
            path = f"/threads/{thread_id}/runs/wait"
            answers.append(asyncio.ensure_future(site.post(path, {"input": {"n": 1}, **body})))
            if len(answers) == 1:
                await site.agent.called()
        while len(await site.look(f"/threads/{thread_id}/runs")) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        site.gateway.hub.close_readers()
        for answer in answers:
            with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
                await within(answer, "the end of the wait")


# Cancelling


async def test_a_cancel_can_wait_for_the_end_of_the_run(site: Site, thread_id: str) -> None:
    run_id = await begin(site, thread_id)
    answer = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")
    assert (answer.status_code, answer.content) == (202, b"")
    assert await site.ends(thread_id, run_id) == "interrupted"
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["error"]["error"]) == ("idle", "UserInterrupt")
    thread_id = await site.thread()
    run_id = await begin(site, thread_id, input=user_input("hi"))
    answer = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?wait=1")
    assert answer.status_code == 200
    assert answer.headers["location"] == f"/threads/{thread_id}/runs/{run_id}/join"
    assert answer.json()["messages"][0]["content"] == "hi"
    assert await site.status(thread_id, run_id) == "interrupted"


async def test_a_rollback_removes_the_run_and_its_effects(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, input=user_input("before"))
    before = await site.look(f"/threads/{thread_id}/state")
    run_id = await begin(site, thread_id, input={"n": 1})
    answer = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?wait=true&action=rollback")
    assert (answer.status_code, answer.json()) == (200, {})
    assert await site.status(thread_id, run_id) == 404
    assert run_id not in [run["run_id"] for run in await site.look(f"/threads/{thread_id}/runs")]
    assert await site.look(f"/threads/{thread_id}/state") == before
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["error"]["error"]) == ("idle", "UserRollback")


async def test_the_rollback_of_a_pending_run_leaves_the_thread_idle(site: Site, thread_id: str) -> None:
    run_id = await site.run(thread_id, after_seconds=3600)
    await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action=rollback")
    assert await site.status(thread_id, run_id) == 404
    assert (await site.look(f"/threads/{thread_id}"))["status"] == "idle"


async def test_cancelling_an_unknown_or_ended_run_is_404(site: Site, thread_id: str) -> None:
    unknown = await site.post(f"/threads/{thread_id}/runs/{NOBODY}/cancel")
    assert (unknown.status_code, unknown.json()) == (404, {"detail": "No runs found to cancel."})
    run_id = await site.run(thread_id, "echo")
    await site.ends(thread_id, run_id)
    ended = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")
    assert ended.status_code == 404
    assert ended.json()["detail"].startswith("No matching runs to cancel. Please verify the thread ID and run IDs")


async def test_only_the_agent_protocol_rejects_an_unknown_cancel_action(
    site: Site,
) -> None:
    thread_id = await site.thread()
    run_id = await begin(site, thread_id)
    protocol = await site.post(f"{PROTOCOL}/runs/{run_id}/cancel?action=explode")
    assert protocol.status_code == 422
    platform = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action=explode")
    assert platform.status_code == 202
    assert await site.ends(thread_id, run_id) == "interrupted"


async def test_the_protocols_cancel_has_no_body_in_both_layouts(site: Site, thread_id: str) -> None:
    for path in ("/runs/{r}/cancel", f"{PROTOCOL}/runs/{{r}}/cancel", f"{PROTOCOL}/threads/{{t}}/runs/{{r}}/cancel"):
        run_id = await begin(site, thread_id)
        answer = await site.post(path.format(r=run_id, t=thread_id) + "?wait=true")
        assert (answer.status_code, answer.content) == (204, b"")
        assert await site.status(thread_id, run_id) == "interrupted"


@ALONE
async def test_several_runs_are_cancelled_by_one_request(site: Site) -> None:
    thread_id, other = await site.thread(), await site.thread()
    running = await begin(site, thread_id)
    pending = await site.run(thread_id)
    elsewhere = await begin(site, other)
    assert (await site.post("/runs/cancel", {"status": "pending"})).status_code == 204
    assert await site.status(thread_id, pending) == "interrupted"
    assert await site.status(thread_id, running) == "running"
    selection = {"thread_id": thread_id, "run_ids": [running, NOBODY, elsewhere]}
    assert (await site.post("/runs/cancel", selection)).status_code == 204
    assert await site.ends(thread_id, running) == "interrupted"
    ended = await site.post("/runs/cancel", selection)
    assert ended.status_code == 404
    assert ended.json()["detail"].startswith("No matching runs to cancel."), "the run exists, but has ended"
    assert await site.status(other, elsewhere) == "running"
    assert (await site.post("/runs/cancel?action=rollback", {"status": "all"})).status_code == 204
    await site.get(f"/threads/{other}/runs/{elsewhere}/join")
    assert await site.look(f"/threads/{other}/runs") == []
    again = await site.post("/runs/cancel", {"status": "all"})
    assert (again.status_code, again.json()) == (404, {"detail": "No runs found to cancel."})
    for bad in ({}, {"thread_id": thread_id}, {"run_ids": [running]}, {"status": "all", "thread_id": thread_id}):
        assert (await site.post("/runs/cancel", bad)).status_code == 422


# Deleting


async def test_an_ended_run_can_be_deleted_once(site: Site, thread_id: str) -> None:
    for path in ("/threads/{t}/runs/{r}", "/runs/{r}", f"{PROTOCOL}/runs/{{r}}"):
        run_id = await site.run(thread_id, "echo")
        await site.ends(thread_id, run_id)
        url = path.format(t=thread_id, r=run_id)
        answer = await site.http.delete(url)
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await site.http.delete(url)).status_code == 404
    assert (await site.look(f"/threads/{thread_id}"))["values"] == {}


async def test_only_the_platform_deletes_an_active_run(site: Site) -> None:
    thread_id = await site.thread()
    run_id = await begin(site, thread_id)
    refused = await site.http.delete(f"{PROTOCOL}/threads/{thread_id}/runs/{run_id}")
    assert refused.status_code == 409
    assert await site.status(thread_id, run_id) == "running"
    assert (await site.http.delete(f"/threads/{thread_id}/runs/{run_id}")).status_code == 204
    assert await site.status(thread_id, run_id) == 404
    assert site.agent.calls[0].cancelled.is_set()


async def test_a_run_that_is_being_cancelled_can_be_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"cancel_grace": 1}) as site:
        site.agent.stubborn = True
        thread_id = await site.thread()
        run_id = await begin(site, thread_id)
        assert (await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")).status_code == 202
        assert (await site.http.delete(f"/threads/{thread_id}/runs/{run_id}")).status_code == 204
        assert await site.status(thread_id, run_id) == 404
        site.agent.calls[0].stubborn = False
        site.agent.calls[0].end()


async def test_a_paused_run_is_deleted_with_its_question(site: Site, thread_id: str) -> None:
    result = await site.wait(thread_id, "ask")
    assert result["__interrupt__"]
    run_id = (await site.look(f"/threads/{thread_id}/runs"))[0]["run_id"]
    assert (await site.http.delete(f"/threads/{thread_id}/runs/{run_id}")).status_code == 204
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["interrupts"]) == ("idle", {})


# Disconnecting


@pytest.mark.parametrize("below", ["stream", "wait"])
@pytest.mark.parametrize(
    ("body", "ends_as"),
    [
        ({"assistant_id": "scripted", "on_disconnect": "cancel"}, "interrupted"),
        ({"assistant_id": "scripted"}, "success"),
        ({"agent_id": "scripted"}, "interrupted"),
        ({"agent_id": "scripted", "on_disconnect": "continue"}, "success"),
    ],
    ids=["platform cancel", "platform", "protocol", "protocol continue"],
)
async def test_on_disconnect_decides_if_a_run_continues(
    site: Site, below: str, body: dict[str, Any], ends_as: str
) -> None:
    thread_id = await site.thread()
    async with site.streaming("POST", f"/threads/{thread_id}/runs/{below}", {"input": "hi", **body}) as open_:
        activation = await site.agent.called()
        run_id = open_.response.headers["babelgate-run"]
    if ends_as == "interrupted":
        await within(activation.cancelled.wait(), "the cancel")
    else:
        activation.say("still here").end()
    assert await site.ends(thread_id, run_id) == ends_as


async def test_a_joined_reader_can_cancel_on_disconnect(site: Site, thread_id: str) -> None:
    run_id = await begin(site, thread_id)
    path = f"/threads/{thread_id}/runs/{run_id}/stream"
    async with site.streaming("GET", path):
        pass
    assert await site.status(thread_id, run_id) == "running"
    async with site.streaming("GET", f"{path}?cancel_on_disconnect=true"):
        pass
    assert await site.ends(thread_id, run_id) == "interrupted"
    assert (await site.get(f"{path}?cancel_on_disconnect=perhaps")).status_code == 422
