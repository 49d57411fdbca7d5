"""Endpoints of ACP on a whole gateway, and the details that official clients rely on."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from babelgate.adapters.kit.client.sse import Frames
from babelgate.canonical import Message, RunInput, Scope, Submission
from babelgate.canonical.event import TaskCreated
from tests.adapters.acp.site import BOUND, UNKNOWN_ID, Site, message, opened, texts

pytestmark = pytest.mark.asyncio(loop_scope="module")


def kinds(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


def events_of(answer: httpx.Response) -> list[Any]:
    return [json.loads(found.data) for found in Frames().all([answer.content])]


def fault(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"code", "message", "data"}
    assert body["message"]
    return answer.status_code, body["code"]


# Agents


async def test_ping_answers_an_empty_object(site: Site) -> None:
    answer = await site.get("/ping")
    assert (answer.status_code, answer.json()) == (200, {})


async def test_agents_are_paged_only_on_request(site: Site) -> None:
    agents = (await site.get("/agents")).json()["agents"]
    assert len(agents) == len(site.hub.agents()) > 10
    assert (await site.get("/agents?limit=3")).json()["agents"] == agents[:3]
    assert (await site.get("/agents?limit=3&offset=2")).json()["agents"] == agents[2:5]
    assert (await site.get("/agents?offset=10")).json()["agents"] == agents[10:]


async def test_agents_are_advertised_as_labels_and_found_by_any_name(site: Site) -> None:
    names = [agent["name"] for agent in (await site.get("/agents")).json()["agents"]]
    assert {"slow-echo", "a.b", "a-b"} <= set(names)
    assert "slow_echo" not in names
    for name in ("slow_echo", "slow-echo"):  # responses repeat the caller's spelling
        assert (await site.get(f"/agents/{name}")).json()["name"] == name
        run = await site.run(name)
        for each in (run, (await site.get(f"/runs/{run['run_id']}")).json()):
            assert (each["agent_name"], each["output"][0]["role"]) == (name, f"agent/{name}")
        events = await site.events(run["run_id"])
        assert {event["run"]["agent_name"] for event in events if "run" in event} == {name}
        assert (await site.run(name, mode="async"))["agent_name"] == name
    assert re.fullmatch(r"user|agent(/[a-zA-Z0-9_\-]+)?", (await site.run("a.b"))["output"][0]["role"])


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "offset=-1", "offset=x", "limit="])
async def test_limit_and_offset_out_of_range_are_refused(site: Site, query: str) -> None:
    assert fault(await site.get(f"/agents?{query}")) == (422, "invalid_input")


async def test_a_manifest_has_all_required_fields(site: Site) -> None:
    manifest = (await site.get("/agents/echo")).json()
    assert manifest["name"] == "echo"
    assert isinstance(manifest["description"], str)
    assert manifest["input_content_types"]
    assert manifest["output_content_types"]
    assert manifest["metadata"]["recommended_models"] is None
    assert "status" not in manifest


async def test_the_path_of_one_agent_lists_only_that_agent(site: Site) -> None:
    agents = (await site.http.get("/agent/echo/acp/agents")).json()["agents"]
    assert [agent["name"] for agent in agents] == ["echo"]


# Runs: the three modes


@pytest.mark.parametrize("mode", [{}, {"mode": "sync"}], ids=str)
async def test_sync_is_the_default_and_returns_the_completed_run(site: Site, mode: dict[str, str]) -> None:
    answer = await site.create("echo", **mode)
    run = answer.json()
    assert answer.status_code == 200
    assert (run["status"], texts(run["output"]), run["error"]) == ("completed", ["Hello"], None)
    assert run["output"][0]["role"] == "agent/echo"
    assert run["finished_at"] >= run["created_at"]


async def test_async_returns_202_and_created_for_a_fast_agent(site: Site) -> None:
    for _ in range(20):
        answer = await site.create("echo", mode="async")
        assert (answer.status_code, answer.json()["status"], answer.json()["output"]) == (202, "created", [])
        run_id = answer.json()["run_id"]
        assert (await site.until(run_id, "completed"))["run_id"] == run_id


async def test_a_stream_closes_at_the_terminal_event(site: Site) -> None:
    answer = await site.create("stream", "one two", mode="stream")
    assert answer.status_code == 200
    assert kinds(events_of(answer)) == [
        "run.created",
        "run.in-progress",
        "message.created",
        "message.part",
        "message.part",
        "message.completed",
        "run.completed",
    ]


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
async def test_every_create_response_has_a_run_id_header(site: Site, mode: str) -> None:
    answer = await site.create("echo", mode=mode)
    run_id = answer.headers["run-id"]
    assert str(UUID(run_id)) == run_id
    assert (await site.get(f"/runs/{run_id}")).json()["run_id"] == run_id


async def test_a_frame_contains_only_a_line_of_json_data(site: Site) -> None:
    """Check that no frame has a line with id or event, a comment or [DONE]. The Python client fails on ids and
    pings."""
    answer = await site.create("stream", "one two", mode="stream")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = answer.text.split("\n\n")
    assert frames.pop() == ""
    for frame in frames:
        assert frame.startswith("data: {")
        assert "\n" not in frame
        json.loads(frame.removeprefix("data: "))


async def test_the_list_of_events_equals_the_stream(site: Site) -> None:
    for agent in ("stream", "steps", "tools", "json", "files", "fail"):
        answer = await site.create(agent, "one two", mode="stream")
        assert await site.events(answer.headers["run-id"]) == events_of(answer)


async def test_a_replayed_stream_has_the_same_bytes(site: Site) -> None:
    live = await site.create("stream", "one two", mode="stream")
    path = f"/runs/{live.headers['run-id']}/events"
    again = await site.get(path, Accept="text/event-stream")
    assert again.content == live.content
    rest = await site.get(f"{path}?after=3", Accept="text/event-stream")
    assert rest.content == b"".join(frame + b"\n\n" for frame in live.content.split(b"\n\n")[3:-1])


async def test_after_skips_that_many_events(site: Site) -> None:
    run_id = (await site.create("stream", "one two", mode="stream")).headers["run-id"]
    path = f"/runs/{run_id}/events"
    assert (await site.get(f"{path}?after=5")).json()["events"] == (await site.events(run_id))[5:]
    assert (await site.get(f"{path}?after=99")).json()["events"] == []
    assert fault(await site.get(f"{path}?after=x")) == (422, "invalid_input")


async def test_times_end_in_z_and_unset_names_are_null(site: Site) -> None:
    """Check what the TypeScript client needs: it rejects `+00:00`, and reads "" as the name of an artifact."""
    answer = await site.create("steps", "x", mode="stream")
    times = re.findall(r'"(?:created_at|completed_at|finished_at)":"([^"]*)"', answer.text)
    assert times
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", time) for time in times)
    assert set(re.findall(r'"(?:part|parts)":\[?\{"name":([^,]*)', answer.text)) == {"null"}


async def test_a_failed_run_is_a_successful_response(site: Site) -> None:
    answer = await site.create("fail", "Boom")
    run = answer.json()
    assert (answer.status_code, run["status"]) == (200, "failed")
    assert run["error"] == {"code": "server_error", "message": "RuntimeError: Boom", "data": None}
    assert texts(run["output"]) == ["Failing."]
    assert kinds(await site.events(run["run_id"]))[-1] == "run.failed"


async def test_a_complete_message_is_sent_as_parts_once(site: Site) -> None:
    events = events_of(await site.create("whole", mode="stream"))
    assert "".join(e["part"]["content"] for e in events if e["type"] == "message.part") == "ab"
    assert [e["message"]["parts"] for e in events if e["type"] == "message.created"] == [[]]


async def test_empty_input_and_empty_parts_are_accepted(site: Site) -> None:
    inputs: list[Any] = [[], [{"role": "user", "parts": []}]]
    for messages in inputs:
        answer = await site.post("/runs", {"agent_name": "echo", "input": messages})
        assert answer.json()["status"] == "completed"


async def test_an_empty_text_is_returned_empty(site: Site) -> None:
    assert texts((await site.run("echo", ""))["output"]) == [""]


async def test_responses_about_a_run_name_it_for_other_protocols(site: Site) -> None:
    answer = await site.create("echo")
    run = answer.json()
    for about in (answer, await site.get(f"/runs/{run['run_id']}"), await site.get(f"/runs/{run['run_id']}/events")):
        assert about.headers["babelgate-task"] == run["run_id"]
        assert about.headers["babelgate-thread"] == run["session_id"]
    assert (await site.get(f"/runs/{run['run_id']}")).headers["babelgate-run"] == answer.headers["babelgate-run"]


async def test_unary_responses_report_losses_in_a_header(site: Site) -> None:
    answer = await site.create("steps")
    assert answer.headers["babelgate-loss"].startswith('step="')
    assert "babelgate-loss" not in (await site.create("echo")).headers


async def test_events_only_in_streams_are_a_loss_of_runs(site: Site) -> None:
    answer = await site.create("moody")
    lost = 'custom="a generic event in streams and in the list of events; not part of the run"'
    run_id = answer.json()["run_id"]
    assert answer.headers["babelgate-loss"] == lost
    assert (await site.get(f"/runs/{run_id}")).headers["babelgate-loss"] == lost
    listed = await site.get(f"/runs/{run_id}/events")
    assert "babelgate-loss" not in listed.headers
    generic = [event["generic"] for event in listed.json()["events"] if event["type"] == "generic"]
    assert generic == [{"name": "mood", "value": "good"}]


async def test_metadata_of_another_protocol_is_in_the_babelgate_member(site: Site) -> None:
    messages = (Message.of("Hello", "user"),)
    receipt = await site.hub.submit(
        "default", Submission(agent="echo", input=RunInput(messages=messages, metadata={"customer": 7}))
    )
    await site.until(receipt.task_id, "completed")
    answer = await site.get(f"/runs/{receipt.task_id}")
    assert answer.json()["babelgate"] == {"metadata": {"customer": 7}}
    assert "babelgate-loss" not in answer.headers, "the metadata has arrived"


# Files


async def test_a_large_file_is_sent_as_a_safe_download_url(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"inline": 10}) as site:
        run = await site.run("files", "A text of more than ten bytes")
        [part] = run["output"][0]["parts"]
        assert (part["name"], part["content"]) == ("report.txt", None)
        assert part["content_url"].startswith("http://127.0.0.1:8000/acp/resources/")
        answer = await site.http.get(part["content_url"])
    assert answer.content == b"A text of more than ten bytes"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_url_in_the_input_is_forwarded_and_not_fetched(site: Site) -> None:
    parts = [{"content_type": "image/png", "content_url": "http://127.0.0.1:1/x.png"}]
    answer = await site.post("/runs", {"agent_name": "urls", "input": [{"role": "user", "parts": parts}]})
    assert texts(answer.json()["output"]) == ["http://127.0.0.1:1/x.png"]


# Await and resume


async def test_a_stream_closes_at_a_question(site: Site) -> None:
    assert kinds(events_of(await site.create("ask", mode="stream"))) == [
        "run.created",
        "run.in-progress",
        "run.awaiting",
    ]


async def test_async_resume_returns_202_and_in_progress_for_fast_agents(site: Site) -> None:
    for _ in range(20):
        run = await site.run("ask")
        answer = await site.resume(run["run_id"], "Ada", "async")
        assert (answer.status_code, answer.json()["status"]) == (202, "in-progress")
        assert (await site.until(run["run_id"], "completed"))["status"] == "completed"


async def test_a_resumed_stream_contains_only_new_events(site: Site) -> None:
    run = await site.run("ask")
    answer = await site.resume(run["run_id"], "Ada", "stream")
    events = events_of(answer)
    assert kinds(events) == [
        "run.in-progress",
        "message.created",
        "message.part",
        "message.completed",
        "run.completed",
    ]
    assert (await site.events(run["run_id"]))[-5:] == events


async def test_concurrent_questions_await_one_at_a_time(site: Site) -> None:
    run = await site.run("approve")
    assert texts([run["await_request"]["message"]])[0].startswith("May I write the file?")
    yes = {"role": "user", "parts": [{"content_type": "application/json", "content": '{"approved": true}'}]}
    no = {"role": "user", "parts": [{"content_type": "application/json", "content": '{"approved": false}'}]}
    events = events_of(await site.resume(run["run_id"], yes, "stream"))
    assert kinds(events) == ["run.in-progress", "run.awaiting"]
    assert texts([events[-1]["run"]["await_request"]["message"]])[0].startswith("May I send the message?")
    done = (await site.resume(run["run_id"], no)).json()
    assert texts(done["output"]) == ["write: approved\nsend: not approved\n"]


async def test_a_question_has_its_data_and_schema_as_parts(site: Site) -> None:
    run = await site.run("approve")
    _, value, schema = run["await_request"]["message"]["parts"]
    assert (value["content_type"], json.loads(value["content"])) == ("application/json", {"action": "write"})
    assert schema["content_type"] == "application/schema+json"
    assert json.loads(schema["content"])["required"] == ["approved"]


async def test_a_run_can_await_twice(site: Site) -> None:
    run = await site.run("twice")
    second = (await site.resume(run["run_id"], "Ada")).json()
    assert (second["status"], texts([second["await_request"]["message"]])) == ("awaiting", ["Last name?"])
    assert texts((await site.resume(run["run_id"], "Lovelace")).json()["output"]) == ["Ada Lovelace"]


async def test_an_open_message_ends_before_an_await(site: Site) -> None:
    run = await site.run("asks")
    resumed = await site.resume(run["run_id"], "Yes")
    assert "run-id" not in resumed.headers
    events = kinds(await site.events(run["run_id"]))
    assert events[2:6] == ["message.created", "message.part", "message.completed", "run.awaiting"]
    assert events[7:10] == ["message.created", "message.part", "message.completed"]
    assert texts(resumed.json()["output"]) == ["Before.", "After."]


async def test_a_login_is_awaited_as_a_text_question(site: Site) -> None:
    run = await site.run("login")
    assert (run["status"], run["finished_at"], run["await_request"]["type"]) == ("awaiting", None, "message")
    assert texts([run["await_request"]["message"]]) == ["Log in at https://login.example.com"]


async def test_resuming_a_run_without_a_question_is_403(site: Site) -> None:
    run = await site.run("stream")
    answer = await site.resume(run["run_id"], "Hello?")
    assert fault(answer) == (403, "server_error")
    assert answer.json()["message"] == f"Run {run['run_id']} has no await request"
    working = await site.run("gated", mode="async")
    assert fault(await site.resume(working["run_id"], "Hello?")) == (403, "server_error")


async def test_a_completed_run_cannot_be_resumed(site: Site) -> None:
    run = await site.run("ask")
    await site.resume(run["run_id"], "Ada")
    assert fault(await site.resume(run["run_id"], "Again")) == (403, "server_error")
    assert (await site.get(f"/runs/{run['run_id']}")).json()["status"] == "completed"


async def test_a_resume_without_a_mode_is_422(site: Site) -> None:
    run = await site.run("ask")
    body = {"await_resume": {"type": "message", "message": message("Ada")}}
    assert fault(await site.post(f"/runs/{run['run_id']}", body)) == (422, "invalid_input")


async def test_a_resume_with_another_run_id_is_422(site: Site) -> None:
    run = await site.run("ask")
    body = {"await_resume": {"type": "message", "message": message("Ada")}, "mode": "sync", "run_id": UNKNOWN_ID}
    assert fault(await site.post(f"/runs/{run['run_id']}", body)) == (422, "invalid_input")
    body["run_id"] = run["run_id"]
    assert (await site.post(f"/runs/{run['run_id']}", body)).json()["status"] == "completed"


async def test_an_answer_without_a_message_is_used_as_data(site: Site) -> None:
    run = await site.run("approve")
    for expected in ("awaiting", "completed"):
        answer = await site.post(f"/runs/{run['run_id']}", {"await_resume": {"approved": True}, "mode": "sync"})
        assert answer.json()["status"] == expected
    assert texts(answer.json()["output"]) == ["write: approved\nsend: approved\n"]


# Continuable agents


async def test_a_continuable_agents_run_continues_under_its_id(site: Site) -> None:
    run = await site.run("echo", "One")
    events = events_of(await site.resume(run["run_id"], "Two", "stream"))
    assert kinds(events)[0] == "run.in-progress"
    assert (events[0]["run"]["run_id"], events[0]["run"]["finished_at"]) == (run["run_id"], None)
    assert kinds(events)[-1] == "run.completed"
    answer = await site.resume(run["run_id"], "Three", "async")
    assert (answer.status_code, answer.json()["status"]) == (202, "in-progress")
    await site.until(run["run_id"], "completed", times=3)
    done = (await site.resume(run["run_id"], "Four")).json()
    assert (done["status"], done["session_id"]) == ("completed", run["session_id"])
    assert texts(done["output"]) == ["One", "Two", "Three", "Four"]
    assert kinds(await site.events(run["run_id"])).count("run.created") == 1


async def test_a_continued_run_is_a_new_task_in_other_protocols(site: Site) -> None:
    run = await site.run("echo", "One")
    answer = await site.resume(run["run_id"], "Two")
    assert answer.headers["babelgate-task"] != run["run_id"]
    records = await site.hub.reads.records("default", Scope(run["session_id"]))
    tasks = [record.event for record in records if isinstance(record.event, TaskCreated)]
    assert [task.continues for task in tasks] == [None, run["run_id"]]


# Cancel


async def test_cancel_without_a_body_returns_202_and_cancelling(site: Site) -> None:
    run = await site.run("gated", mode="async")
    answer = await site.http.post(f"/acp/runs/{run['run_id']}/cancel")
    assert (answer.status_code, answer.json()["status"], answer.json()["finished_at"]) == (202, "cancelling", None)
    done = await site.until(run["run_id"], "cancelled")
    assert (done["status"], done["error"]) == ("cancelled", None)
    assert done["finished_at"] is not None
    events = kinds(await site.events(run["run_id"]))
    assert "run.cancelling" not in events
    assert events[-1] == "run.cancelled"


async def test_a_run_can_be_cancelled_right_after_its_creation(site: Site) -> None:
    for _ in range(10):
        run = await site.run("gated", mode="async")
        assert (await site.http.post(f"/acp/runs/{run['run_id']}/cancel")).status_code == 202
        await site.until(run["run_id"], "cancelled")


async def test_a_cancelled_awaiting_run_cannot_be_resumed(site: Site) -> None:
    run = await site.run("ask")
    answer = await site.http.post(f"/acp/runs/{run['run_id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelling")
    done = (await site.get(f"/runs/{run['run_id']}")).json()
    assert (done["status"], done["await_request"]) == ("cancelled", None)
    assert fault(await site.resume(run["run_id"], "Ada")) == (403, "server_error")


async def test_cancelling_a_terminal_run_is_403(site: Site) -> None:
    run = await site.run("stream")
    assert fault(await site.http.post(f"/acp/runs/{run['run_id']}/cancel")) == (403, "server_error")


async def test_shutdown_returns_the_unfinished_run_to_a_sync_caller(tmp_path: Path) -> None:
    working = asyncio.Event()

    async def held(text: str) -> AsyncGenerator[str]:
        yield "first"
        working.set()
        await asyncio.Event().wait()

    async with opened(tmp_path, {"held": held}) as site:
        waiting = asyncio.ensure_future(site.create("held"))
        async with asyncio.timeout(BOUND):
            await working.wait()
            site.hub.close_readers()
            answer = await waiting
    assert (answer.status_code, answer.json()["status"]) == (200, "in-progress")


# Faults


async def test_messages_of_404_are_those_of_the_sdk(site: Site) -> None:
    assert (await site.create("nope")).json() == {
        "code": "not_found",
        "message": "Agent nope not found",
        "data": None,
    }
    assert (await site.get(f"/runs/{UNKNOWN_ID}")).json()["message"] == f"Run {UNKNOWN_ID} not found"
    assert (await site.get(f"/sessions/{UNKNOWN_ID}")).json()["message"] == f"Session {UNKNOWN_ID} not found"


async def test_a_missing_resource_is_404(site: Site) -> None:
    run = await site.run("echo")
    for name in (
        "x",
        f"{UNKNOWN_ID}.0",
        f"{run['run_id']}.99",
        f"{run['run_id']}.x",
        "0" * 64,
        "..%2F..%2Fetc%2Fpasswd",
    ):
        assert fault(await site.get(f"/resources/{name}")) == (404, "not_found"), name


GOOD = {"agent_name": "echo", "input": [message("Hello")]}


def of_part(**part: str) -> dict[str, Any]:
    return {"agent_name": "echo", "input": [{"role": "user", "parts": [part]}]}


BAD: dict[str, Any] = {
    "no agent": {"input": []},
    "no input": {"agent_name": "echo"},
    "input is no list": {"agent_name": "echo", "input": "Hello"},
    "a bad role": {"agent_name": "echo", "input": [{"role": "system", "parts": []}]},
    "a bad mode": {**GOOD, "mode": "later"},
    "a bad uuid": {**GOOD, "session_id": "mine"},
    "a bad session": {**GOOD, "session": {"id": "mine", "history": []}},
    "no parts": {"agent_name": "echo", "input": [{"role": "user"}]},
    "content and content_url": of_part(content="x", content_url="http://x"),
    "not base64": of_part(content="!", content_encoding="base64"),
    "a bad encoding": of_part(content="x", content_encoding="hex"),
    "a list": [],
    "a number": 1,
    **{str(raw[:9]): raw for raw in (b"", b"{", b"\xff", b"[" * 100_000, b'{"a": NaN}', b"null")},
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_an_invalid_body_is_422(site: Site, body: Any) -> None:
    run = await site.run("ask")
    raw = body if isinstance(body, bytes) else json.dumps(body)
    for path in ("/acp/runs", f"/acp/runs/{run['run_id']}") if isinstance(body, bytes) else ("/acp/runs",):
        assert fault(await site.http.post(path, content=raw)) == (422, "invalid_input")


async def test_an_id_that_is_not_a_uuid_is_422(site: Site) -> None:
    for path in ("/runs/mine", "/runs/mine/events", "/sessions/mine", "/session/mine"):
        assert fault(await site.get(path)) == (422, "invalid_input")
    assert fault(await site.http.post("/acp/runs/mine/cancel")) == (422, "invalid_input")


async def test_a_body_without_a_content_type_is_read(site: Site) -> None:
    """Accept a body without a Content-Type, because the official Python client sends none."""
    request = site.http.build_request("POST", "/acp/runs", content=json.dumps(GOOD))
    assert "content-type" not in request.headers
    assert (await site.http.send(request)).json()["status"] == "completed"


async def test_parts_without_content_or_with_unknown_metadata_are_accepted(site: Site) -> None:
    parts = [
        {"metadata": {"kind": "trajectory", "message": "Hm."}},
        {"metadata": {"kind": "citation", "url": "https://example.com"}},
        {"metadata": {"kind": "mood", "value": "good"}},
        {"content": "Hello", "color": "blue"},
        {},
    ]
    answer = await site.post("/runs", {"agent_name": "echo", "input": [{"role": "user", "parts": parts}]})
    assert (answer.json()["status"], texts(answer.json()["output"])) == ("completed", ["Hello"])


async def test_ids_of_runs_and_sessions_are_uuids(site: Site) -> None:
    run = await site.run("echo")
    assert UUID(run["run_id"])
    assert UUID(run["session_id"])
    chosen = str(uuid4())
    assert (await site.run("echo", session_id=chosen.upper()))["session_id"] == chosen
