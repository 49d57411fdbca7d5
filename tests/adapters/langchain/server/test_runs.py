"""Runs over HTTP: how they are made, listed, cancelled and deleted, in both layouts of both dialects."""

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
from tests.adapters.langchain.site import ALONE, NOBODY, SHARED, Site, new_id, opened, said
from tests.gateway.hubs import within

pytestmark = SHARED

PROTOCOL = "/agent-protocol"


async def begun(site: Site, thread_id: str, **fields: Any) -> str:
    """A run of the scripted agent that is at work."""
    run_id = await site.run(thread_id, **fields)
    await site.agent.called()
    return run_id


# Which dialect


async def test_an_assistant_id_makes_a_run_of_the_platform_and_an_agent_id_or_none_one_of_the_protocol(
    site: Site,
) -> None:
    thread_id = await site.thread()
    platform = await site.ok(f"/threads/{thread_id}/runs/wait", {"assistant_id": "echo", "input": said("hi")})
    assert [message["type"] for message in platform["messages"]] == ["human", "ai"]
    for named in ({"agent_id": "echo"}, {}):
        protocol = await site.ok("/runs/wait", {**named, "input": {"n": 1}, "messages": said("hi")["messages"]})
        assert (protocol["run"]["status"], protocol["status"]) == ("success", "success")
        assert protocol["values"] == {"n": 1}
        assert [message["role"] for message in protocol["messages"]] == ["user", "assistant"]


async def test_below_its_prefix_the_agent_protocol_is_spoken_always(site: Site) -> None:
    result = await site.ok(f"{PROTOCOL}/runs/wait", {"assistant_id": "stream", "input": said("a b")})
    assert (result["run"]["agent_id"], result["status"]) == ("stream", "success")


async def test_an_assistant_is_named_by_its_graph_or_by_the_uuid_that_follows_from_it(site: Site) -> None:
    uuid = (await site.ok("/assistants/search", {"graph_id": "echo"}))[0]["assistant_id"]
    thread_id = await site.thread()
    for name in ("echo", uuid):
        run_id = await site.run(thread_id, name)
        assert (await site.look(f"/threads/{thread_id}/runs/{run_id}"))["assistant_id"] == uuid
        await site.ends(thread_id, run_id)


async def test_an_unknown_graph_is_unprocessable_and_an_unknown_uuid_not_found(site: Site, thread_id: str) -> None:
    nope = await site.create(thread_id, "nope")
    assert nope.status_code == 422
    words = "Invalid assistant: 'nope'. Must be either:\n- A valid assistant UUID, or\n- One of the registered graphs: "
    assert nope.json()["detail"].startswith(words)
    assert "echo" in nope.json()["detail"]
    unknown = await site.create(thread_id, NOBODY)
    assert (unknown.status_code, unknown.json()) == (404, {"detail": "Thread or assistant not found."})


async def test_a_run_that_names_no_agent_is_the_default_agents_or_that_of_the_path(site: Site) -> None:
    assert (await site.ok("/runs/wait", {"input": "x"}))["run"]["agent_id"] == "echo"
    assert (await site.ok("/agent/stream/runs/wait", {"input": "x"}))["run"]["agent_id"] == "stream"


# Creating


async def test_a_new_run_is_pending_however_fast_the_agent_is(site: Site, thread_id: str) -> None:
    for _ in range(10):
        run = (await site.create(thread_id, "echo", metadata={"a": 1})).json()
        assert run["status"] == "pending"
        assert run["metadata"]["a"] == 1
        assert run["metadata"]["babelgate"]["run_id"] == run["run_id"]
        times, asked = {"created_at", "updated_at"}, {"metadata", "kwargs", "multitask_strategy"}
        assert set(run) >= {"run_id", "thread_id", "assistant_id", "status", *times, *asked}
        assert await site.ends(thread_id, run["run_id"]) == "success"


async def test_paths_in_headers_are_plain_and_name_the_thread_also_of_stateless_runs(site: Site) -> None:
    thread_id = await site.thread()
    body = {"assistant_id": "echo", "input": "x"}
    for prefix in ("", PROTOCOL, "/agent/echo"):
        for thread in (f"/threads/{thread_id}", ""):
            made = await site.post(f"{prefix}{thread}/runs", body)
            run = f"/threads/{made.headers['babelgate-thread']}/runs/{made.headers['babelgate-run']}"
            assert made.headers["content-location"] == run
            await site.get(f"{run}/join")
            for below in ("wait", "stream"):
                made = await site.post(f"{prefix}{thread}/runs/{below}", body)
                run = f"/threads/{made.headers['babelgate-thread']}/runs/{made.headers['babelgate-run']}"
                assert made.headers["content-location"] == run
                again = "wait" if prefix == PROTOCOL else "join"
                assert made.headers["location"] == f"{run}/{again if below == 'wait' else below}"
                assert (await site.get(made.headers["location"])).status_code == 200


async def test_what_was_asked_is_kept_word_for_word(site: Site, thread_id: str) -> None:
    asked = {
        "input": {"messages": [{"role": "user", "content": "hi"}], "n": 1},
        "config": {"tags": ["t"], "recursion_limit": 5, "configurable": {"x": 1}},
        "stream_mode": ["values", "updates"],
        "interrupt_before": ["x"],
        "durability": "sync",
        "langsmith_tracer": {"project_name": "p"},
    }
    run = (await site.create(thread_id, "echo", **asked)).json()
    kwargs = run["kwargs"]
    assert {name: kwargs[name] for name in asked} == asked
    assert kwargs["temporary"] is False
    assert (await site.look(f"/threads/{thread_id}/runs/{run['run_id']}"))["kwargs"] == kwargs


async def test_the_agent_gets_the_config_and_the_context(site: Site, thread_id: str) -> None:
    await site.run(thread_id, config={"configurable": {"x": 1}, "tags": ["t"]})
    going = await site.agent.called()
    assert going.call.config == {"configurable": {"x": 1}, "tags": ["t"]}
    going.end()
    await site.run(thread_id, context={"user": "u"})
    going = await site.agent.called()
    assert going.call.config == {"context": {"user": "u"}}
    going.end()


async def test_configurable_and_context_together_are_a_bad_request(site: Site, thread_id: str) -> None:
    answer = await site.create(thread_id, "echo", config={"configurable": {"a": 1}}, context={"b": 1})
    assert answer.status_code == 400


async def test_bytes_of_files_are_not_kept_twice(site: Site, thread_id: str) -> None:
    block = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}
    input = {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, block]}]}
    run_id = await site.run(thread_id, "echo", input)
    await site.ends(thread_id, run_id)
    hub = site.gateway.hub
    records = await hub.reads.records("default", Scope(thread_id))
    created = next(record.event for record in records if isinstance(record.event, RunCreated))
    assert b"aGVsbG8" not in encode_event(created)
    shown = await site.look(f"/threads/{thread_id}/runs/{run_id}")
    assert shown["kwargs"]["input"]["messages"][0]["content"][0]["text"] == "look"
    assert "aGVsbG8" in json.dumps((await site.look(f"/threads/{thread_id}"))["values"])


async def test_an_unknown_thread_is_not_found_unless_the_run_may_create_it(site: Site) -> None:
    thread_id = new_id()
    missing = await site.create(thread_id, "echo")
    assert (missing.status_code, missing.json()) == (404, {"detail": f"Thread with ID {thread_id} not found"})
    assert (await site.create(thread_id, "echo", if_not_exists="create")).status_code == 200
    assert (await site.look(f"/threads/{thread_id}"))["thread_id"] == thread_id
    protocol = await site.post("/runs", {"thread_id": new_id(), "input": "x"})
    assert protocol.status_code == 404
    assert (await site.post("/runs", {"thread_id": new_id(), "if_not_exists": "create"})).status_code == 200


async def test_a_run_named_by_no_path_may_name_its_thread_in_the_body(site: Site, thread_id: str) -> None:
    result = await site.ok("/runs/wait", {"thread_id": thread_id, "messages": said("hi")["messages"]})
    assert result["run"]["thread_id"] == thread_id
    assert len((await site.look(f"/threads/{thread_id}"))["values"]["messages"]) == 2
    delete = {"thread_id": thread_id, "input": "x", "on_completion": "delete"}
    assert (await site.post("/runs", delete)).status_code == 422


@pytest.mark.parametrize("value", ["continue", "complete", 7])
async def test_on_completion_of_a_run_on_a_thread_is_passed_over(site: Site, thread_id: str, value: Any) -> None:
    """@langchain/langgraph-sdk 1.15 sends `continue`; langgraph-api 0.16.7 reads it of runs without a thread alone."""
    body = {"assistant_id": "echo", "input": "x", "on_completion": value}
    for path in ("runs/wait", "runs/stream", "runs"):
        assert (await site.post(f"/threads/{thread_id}/{path}", body)).status_code == 200
    assert (await site.post("/runs/wait", body)).status_code == 422
    assert (await site.post("/runs/wait", {**body, "on_completion": None})).status_code == 200


async def test_a_stateless_run_is_reached_by_its_thread_and_alone(site: Site) -> None:
    made = (await site.post("/runs", {"assistant_id": "echo", "input": "x"})).json()
    run = f"/threads/{made['thread_id']}/runs/{made['run_id']}"
    assert (await site.look(f"{run}/join"))["messages"][-1]["content"] == "x"
    assert (await site.look(run))["status"] == "success"
    assert (await site.look(f"/runs/{made['run_id']}"))["agent_id"] == "echo"


async def test_after_seconds_a_run_begins_and_until_then_it_is_pending_and_can_be_cancelled(site: Site) -> None:
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
async def test_a_batch_starts_all_or_none(site: Site) -> None:
    run = {"assistant_id": "echo", "input": "x", "on_completion": "keep"}
    made = await site.ok("/runs/batch", [run, {**run, "assistant_id": "stream"}])
    assert [each["status"] for each in made] == ["pending", "pending"]
    assert len({each["thread_id"] for each in made}) == 2
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
async def test_a_malformed_run_is_unprocessable_and_starts_nothing(site: Site, thread_id: str, fields: Any) -> None:
    for path in (f"/threads/{thread_id}/runs", f"/threads/{thread_id}/runs/wait", "/runs/stream"):
        answer = await site.post(path, {"assistant_id": "echo", "input": "x", **fields})
        assert answer.status_code == 422, answer.text
        assert isinstance(answer.json()["detail"], str)
    assert await site.look(f"/threads/{thread_id}/runs") == []


async def test_what_cannot_be_carried_is_said(site: Site, thread_id: str) -> None:
    body = {"assistant_id": "echo", "input": "x", "interrupt_before": "*", "stream_subgraphs": True}
    answer = await site.post(f"/threads/{thread_id}/runs/wait", {**body, "feedback_keys": ["k"]})
    loss = answer.headers["babelgate-loss"]
    assert all(name in loss for name in ("question=", "stream=", "metadata="))
    assert "babelgate-loss" not in (await site.create(thread_id, "echo")).headers


SAYS: list[Event] = [
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
STREAMED = dict.fromkeys(("step", "tool-activity", "custom", "artifact", "progress"), "in streams only")


async def test_an_answer_that_is_waited_for_names_what_only_streams_can_say(site: Site, thread_id: str) -> None:
    path = f"/agent-protocol/threads/{thread_id}/runs/wait"
    waiting = asyncio.ensure_future(site.ok(path, {"agent_id": "scripted", "input": "hi"}))
    (await site.agent.called()).say(*SAYS).say("done").end()
    run: Any = (await waiting)["run"]
    assert run["metadata"]["babelgate"]["loss"] == STREAMED
    joined = await site.get(f"/threads/{thread_id}/runs/{run['run_id']}/join")
    assert set(joined.headers["babelgate-loss"].split(", ")) == {f'{name}="{how}"' for name, how in STREAMED.items()}
    shown = await site.get(f"/threads/{thread_id}/runs/{run['run_id']}")
    assert "babelgate-loss" not in shown.headers, "of the run itself nothing is lost"
    run = (await site.ok(path, {"agent_id": "echo", "input": "x"}))["run"]
    assert "loss" not in run["metadata"]["babelgate"]
    assert "babelgate-loss" not in (await site.get(f"/threads/{thread_id}/runs/{run['run_id']}/join")).headers


# Looking


async def test_runs_are_listed_newest_first_and_in_pages(site: Site, thread_id: str) -> None:
    made: list[str] = []
    for _ in range(3):
        made.append(await site.run(thread_id, "echo"))
        await site.ends(thread_id, made[-1])
    path = f"/threads/{thread_id}/runs"
    assert [run["run_id"] for run in await site.look(path)] == made[::-1]
    page = await site.get(f"{path}?limit=1&offset=1")
    assert [run["run_id"] for run in page.json()] == [made[1]]
    assert page.headers["x-pagination-next"] == "2"
    assert await site.look(f"{path}?status=success&select=run_id") == [{"run_id": run_id} for run_id in made[::-1]]
    assert await site.look(f"{path}?status=pending") == []
    for bad in ("limit=0", "limit=1001", "offset=-1", "status=dead", "select=secret"):
        assert (await site.get(f"{path}?{bad}")).status_code == 422
    assert (await site.get(f"/threads/{NOBODY}/runs")).status_code == 404


@ALONE
async def test_runs_of_all_threads_are_found_by_what_they_are(site: Site) -> None:
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


async def test_a_failed_run_is_told_in_the_body_of_a_wait(site: Site, thread_id: str) -> None:
    result = await site.wait(thread_id, "fail", "boom")
    assert set(result["__error__"]) == {"error", "message"}
    assert "boom" in result["__error__"]["message"]
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["error"]) == ("error", result["__error__"])
    protocol = await site.ok("/runs/wait", {"agent_id": "fail", "input": "boom"})
    assert (protocol["status"], protocol["run"]["status"]) == ("error", "error")


async def test_a_join_of_an_unknown_run_is_told_in_the_body_and_a_wait_is_not_found(site: Site, thread_id: str) -> None:
    joined = await site.get(f"/threads/{thread_id}/runs/{NOBODY}/join")
    error = {"__error__": {"error": "HTTPException", "message": "404: Run not found"}}
    assert (joined.status_code, joined.json()) == (200, error)
    assert (await site.get(f"/threads/{thread_id}/runs/{NOBODY}/wait")).status_code == 404
    assert (await site.get(f"{PROTOCOL}/threads/{thread_id}/runs/{NOBODY}/join")).status_code == 404


async def test_a_join_shows_the_values_of_the_runs_end_whatever_came_later(site: Site, thread_id: str) -> None:
    first = await site.run(thread_id, "echo", said("one"))
    ended = await site.look(f"/threads/{thread_id}/runs/{first}/join")
    await site.wait(thread_id, input=said("two"))
    assert await site.look(f"/threads/{thread_id}/runs/{first}/join") == ended
    assert [message["content"] for message in ended["messages"]] == ["one", "one"]


async def test_a_wait_keeps_the_connection_alive_with_line_feeds(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "KEEP_ALIVE", 0.01)
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": "hi"}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/wait", body) as waiting:
        going = await site.agent.called()
        chunks = waiting.response.aiter_bytes()
        taken = b""
        while len(taken) < 3:
            taken += await within(anext(chunks), "a line feed")
        assert taken.strip() == b""
        going.say("done").end()
        async for chunk in chunks:
            taken += chunk
    assert taken.startswith(b"\n\n\n")
    assert json.loads(taken)["messages"][-1]["content"] == "done"


async def test_the_connection_of_a_wait_is_cut_when_the_gateway_stops(tmp_path: Path) -> None:
    """langgraph-sdk then asks for the result again, by `Location`."""
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


async def test_a_cancel_answers_at_once_or_when_the_run_has_ended(site: Site, thread_id: str) -> None:
    run_id = await begun(site, thread_id)
    answer = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")
    assert (answer.status_code, answer.content) == (202, b"")
    assert await site.ends(thread_id, run_id) == "interrupted"
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["error"]["error"]) == ("idle", "UserInterrupt")
    thread_id = await site.thread()
    run_id = await begun(site, thread_id, input=said("hi"))
    answer = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?wait=1")
    assert answer.status_code == 200
    assert answer.headers["location"] == f"/threads/{thread_id}/runs/{run_id}/join"
    assert answer.json()["messages"][0]["content"] == "hi"
    assert await site.status(thread_id, run_id) == "interrupted"


async def test_a_rollback_removes_the_run_and_what_it_did(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, input=said("before"))
    before = await site.look(f"/threads/{thread_id}/state")
    run_id = await begun(site, thread_id, input={"n": 1})
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


async def test_what_is_not_there_and_what_has_ended_is_not_found_by_a_cancel(site: Site, thread_id: str) -> None:
    unknown = await site.post(f"/threads/{thread_id}/runs/{NOBODY}/cancel")
    assert (unknown.status_code, unknown.json()) == (404, {"detail": "No runs found to cancel."})
    run_id = await site.run(thread_id, "echo")
    await site.ends(thread_id, run_id)
    over = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")
    assert over.status_code == 404
    assert over.json()["detail"].startswith("No matching runs to cancel. Please verify the thread ID and run IDs")


async def test_an_unknown_action_is_an_interrupt_for_the_platform_and_unprocessable_for_the_protocol(
    site: Site,
) -> None:
    thread_id = await site.thread()
    run_id = await begun(site, thread_id)
    strict = await site.post(f"{PROTOCOL}/runs/{run_id}/cancel?action=explode")
    assert strict.status_code == 422
    lax = await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action=explode")
    assert lax.status_code == 202
    assert await site.ends(thread_id, run_id) == "interrupted"


async def test_the_protocols_cancel_answers_without_a_body_in_both_layouts(site: Site, thread_id: str) -> None:
    for path in ("/runs/{r}/cancel", f"{PROTOCOL}/runs/{{r}}/cancel", f"{PROTOCOL}/threads/{{t}}/runs/{{r}}/cancel"):
        run_id = await begun(site, thread_id)
        answer = await site.post(path.format(r=run_id, t=thread_id) + "?wait=true")
        assert (answer.status_code, answer.content) == (204, b"")
        assert await site.status(thread_id, run_id) == "interrupted"


@ALONE
async def test_many_runs_are_cancelled_at_once(site: Site) -> None:
    thread_id, other = await site.thread(), await site.thread()
    running = await begun(site, thread_id)
    pending = await site.run(thread_id)
    elsewhere = await begun(site, other)
    assert (await site.post("/runs/cancel", {"status": "pending"})).status_code == 204
    assert await site.status(thread_id, pending) == "interrupted"
    assert await site.status(thread_id, running) == "running"
    named = {"thread_id": thread_id, "run_ids": [running, NOBODY, elsewhere]}
    assert (await site.post("/runs/cancel", named)).status_code == 204
    assert await site.ends(thread_id, running) == "interrupted"
    ended = await site.post("/runs/cancel", named)
    assert ended.status_code == 404
    assert ended.json()["detail"].startswith("No matching runs to cancel."), "it is there, and has ended"
    assert await site.status(other, elsewhere) == "running"
    assert (await site.post("/runs/cancel?action=rollback", {"status": "all"})).status_code == 204
    await site.get(f"/threads/{other}/runs/{elsewhere}/join")
    assert await site.look(f"/threads/{other}/runs") == []
    again = await site.post("/runs/cancel", {"status": "all"})
    assert (again.status_code, again.json()) == (404, {"detail": "No runs found to cancel."})
    for bad in ({}, {"thread_id": thread_id}, {"run_ids": [running]}, {"status": "all", "thread_id": thread_id}):
        assert (await site.post("/runs/cancel", bad)).status_code == 422


# Deleting


async def test_a_run_that_has_ended_is_deleted_and_a_second_time_it_is_not_there(site: Site, thread_id: str) -> None:
    for path in ("/threads/{t}/runs/{r}", "/runs/{r}", f"{PROTOCOL}/runs/{{r}}"):
        run_id = await site.run(thread_id, "echo")
        await site.ends(thread_id, run_id)
        where = path.format(t=thread_id, r=run_id)
        answer = await site.http.delete(where)
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await site.http.delete(where)).status_code == 404
    assert (await site.look(f"/threads/{thread_id}"))["values"] == {}


async def test_the_platform_deletes_a_run_at_work_and_the_protocol_wants_it_cancelled_first(site: Site) -> None:
    thread_id = await site.thread()
    run_id = await begun(site, thread_id)
    refused = await site.http.delete(f"{PROTOCOL}/threads/{thread_id}/runs/{run_id}")
    assert refused.status_code == 409
    assert await site.status(thread_id, run_id) == "running"
    assert (await site.http.delete(f"/threads/{thread_id}/runs/{run_id}")).status_code == 204
    assert await site.status(thread_id, run_id) == 404
    assert site.agent.calls[0].cancelled.is_set()


async def test_a_run_that_is_being_cancelled_already_can_be_deleted_all_the_same(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"cancel_grace": 1}) as site:
        site.agent.stubborn = True
        thread_id = await site.thread()
        run_id = await begun(site, thread_id)
        assert (await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")).status_code == 202
        assert (await site.http.delete(f"/threads/{thread_id}/runs/{run_id}")).status_code == 204
        assert await site.status(thread_id, run_id) == 404
        site.agent.calls[0].stubborn = False
        site.agent.calls[0].end()


async def test_a_run_that_waits_for_an_answer_is_deleted_with_its_question(site: Site, thread_id: str) -> None:
    result = await site.wait(thread_id, "ask")
    assert result["__interrupt__"]
    run_id = (await site.look(f"/threads/{thread_id}/runs"))[0]["run_id"]
    assert (await site.http.delete(f"/threads/{thread_id}/runs/{run_id}")).status_code == 204
    thread = await site.look(f"/threads/{thread_id}")
    assert (thread["status"], thread["interrupts"]) == ("idle", {})


# Leaving


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
async def test_a_run_outlives_its_caller_or_not_as_was_asked(
    site: Site, below: str, body: dict[str, Any], ends_as: str
) -> None:
    thread_id = await site.thread()
    async with site.streaming("POST", f"/threads/{thread_id}/runs/{below}", {"input": "hi", **body}) as open_:
        going = await site.agent.called()
        run_id = open_.response.headers["babelgate-run"]
    if ends_as == "interrupted":
        await within(going.cancelled.wait(), "the cancel")
    else:
        going.say("still here").end()
    assert await site.ends(thread_id, run_id) == ends_as


async def test_a_reader_that_joined_may_ask_for_the_same(site: Site, thread_id: str) -> None:
    run_id = await begun(site, thread_id)
    path = f"/threads/{thread_id}/runs/{run_id}/stream"
    async with site.streaming("GET", path):
        pass
    assert await site.status(thread_id, run_id) == "running"
    async with site.streaming("GET", f"{path}?cancel_on_disconnect=true"):
        pass
    assert await site.ends(thread_id, run_id) == "interrupted"
    assert (await site.get(f"{path}?cancel_on_disconnect=perhaps")).status_code == 422
