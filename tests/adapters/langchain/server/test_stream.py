"""Streams of runs and threads over HTTP, and how they are resumed."""

import json
from typing import Any

import pytest

from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.langchain.server import stream
from tests.adapters.langchain.log import EVERYTHING
from tests.adapters.langchain.site import NOBODY, SHARED, Site, events, user_input
from tests.adapters.langchain.watching import perform
from tests.gateway.hubs import within

pytestmark = SHARED


def split_frames(content: bytes) -> list[bytes]:
    """Return the frames as bytes, each with its end, without heartbeats."""
    blocks = [frame + b"\n\n" for frame in content.split(b"\n\n") if frame]
    return [frame for frame in blocks if not frame.startswith(b":")]


def id_of(frame: bytes) -> str:
    (decoded,) = Frames().feed(frame)
    return decoded.id


async def run_with_stream(site: Site, modes: Any) -> tuple[str, bytes]:
    """Run the scripted agent, and return the path and the content of the stream."""
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": user_input("hi"), "stream_mode": modes}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/stream", body) as open_:
        perform(await site.agent.called())
        await open_.rest()
        return open_.response.headers["location"], open_.content


async def test_a_stream_starts_with_metadata_and_has_no_end_event(site: Site, thread_id: str) -> None:
    body = {"assistant_id": "stream", "input": user_input("a b")}
    answer = await site.post(f"/threads/{thread_id}/runs/stream", body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    frames = events(answer.content)
    run_id = answer.headers["babelgate-run"]
    assert frames[0] == ("metadata", {"run_id": run_id, "attempt": 1})
    assert {event for event, _ in frames[1:]} == {"values"}
    assert [message["content"] for message in frames[-1][1]["messages"]] == ["a b", "a b"]
    assert await site.status(thread_id, run_id) == "success"


async def test_a_question_is_in_a_stream_of_updates_only(site: Site, thread_id: str) -> None:
    body = {"assistant_id": "ask", "input": "hi", "stream_mode": ["updates"]}
    frames = events((await site.post(f"/threads/{thread_id}/runs/stream", body)).content)
    assert frames[-1][0] == "updates"
    assert frames[-1][1]["__interrupt__"][0]["value"] == "What is your name?"


# Resuming


@pytest.mark.parametrize("modes", ["messages", "messages-tuple", list(EVERYTHING)], ids=str)
async def test_resuming_after_any_frame_gives_the_same_bytes(site: Site, modes: Any) -> None:
    path, live = await run_with_stream(site, modes)
    frames = split_frames(live)
    assert b"".join(frames) == live
    assert len(frames) > 10
    assert (await site.get(path, Last_Event_ID="-1")).content == live
    for at, frame in enumerate(frames, start=1):
        rest = await site.get(path, Last_Event_ID=id_of(frame))
        assert rest.content == b"".join(frames[at:])


async def test_joining_without_a_valid_id_gives_only_new_frames(site: Site, thread_id: str) -> None:
    run_id = await site.run(thread_id, stream_mode="messages-tuple")
    activation = (await site.agent.called()).open("one")
    path = f"/threads/{thread_id}/runs/{run_id}/stream"
    async with site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as whole:
        await whole.until("messages")
        async with (
            site.streaming("GET", path) as late,
            site.streaming("GET", path, headers={"Last-Event-ID": "garbage"}) as invalid,
        ):
            activation.more(" two").end()
            for each in (late, invalid):
                rest = await each.rest()
                assert json.loads(rest[0].data)[0]["content"] == " two"
        await whole.rest()
    for headers in ({}, {"Last_Event_ID": "garbage"}, {"Last_Event_ID": "9999-0"}):
        ended = await site.get(path, **headers)
        assert (ended.status_code, ended.content) == (200, b"")


async def test_joining_uses_the_modes_of_run_or_query(site: Site) -> None:
    path, live = await run_with_stream(site, ["updates", "custom"])
    assert {event for event, _ in events(live)} == {"metadata", "updates", "custom"}
    for query in ("stream_mode=custom", "stream_mode=custom&stream_mode=tasks", "stream_mode=custom,tasks"):
        joined = events((await site.get(f"{path}?{query}", Last_Event_ID="-1")).content)
        expected = {"metadata", "custom", "tasks"} if "tasks" in query else {"metadata", "custom"}
        assert {event for event, _ in joined} == expected
    assert (await site.get(f"{path}?stream_mode=lifecycle")).status_code == 422


async def test_an_unknown_run_is_an_error_event_or_404(site: Site) -> None:
    thread_id = await site.thread()
    answer = await site.get(f"/threads/{thread_id}/runs/{NOBODY}/stream")
    assert answer.status_code == 200
    assert events(answer.content) == [("error", {"error": "HTTPException", "message": "404: Run not found"})]
    assert (await site.get(f"/agent-protocol/threads/{thread_id}/runs/{NOBODY}/stream")).status_code == 404
    assert (await site.get(f"/runs/{NOBODY}/stream")).status_code == 404
    assert (await site.get(f"/threads/{thread_id}/runs/x/stream")).status_code == 422


async def test_both_layouts_stream_the_same_bytes(site: Site) -> None:
    body = {"agent_id": "stream", "input": "a b", "stream_mode": "updates"}
    streamed = await site.post("/agent-protocol/runs/stream", body)
    run_id = streamed.headers["babelgate-run"]
    for path in (f"/runs/{run_id}/stream", streamed.headers["location"]):
        for prefix in ("", "/agent-protocol"):
            assert (await site.get(f"{prefix}{path}", Last_Event_ID="-1")).content == streamed.content


async def test_two_readers_of_a_run_get_the_same_bytes(site: Site, thread_id: str) -> None:
    run_id = await site.run(thread_id, stream_mode=list(EVERYTHING))
    activation = await site.agent.called()
    path = f"/threads/{thread_id}/runs/{run_id}/stream"
    async with (
        site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as one,
        site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as two,
    ):
        await one.next()
        await two.next()
        perform(activation)
        await one.rest()
        await two.rest()
        assert one.content == two.content


async def test_a_silent_stream_sends_heartbeats_that_are_not_events(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.05)
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": "hi"}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/stream", body) as open_:
        activation = await site.agent.called()
        chunks = open_.response.aiter_bytes()
        content = b""
        while content.count(b": heartbeat\n\n") < 3:
            content += await within(anext(chunks), "a heartbeat")
        activation.end()
        async for chunk in chunks:
            content += chunk
    assert {event for event, _ in events(content)} == {"metadata", "values"}


# Threads


async def test_a_threads_stream_continues_over_several_runs(site: Site, thread_id: str) -> None:
    async with site.streaming("GET", f"/threads/{thread_id}/stream?stream_mode=lifecycle") as open_:
        last = ""
        for _ in range(2):
            run_id = await site.run(thread_id, "echo")
            started = await open_.until("metadata")
            assert json.loads(started.data) == {"run_id": run_id, "attempt": 1}
            done = await open_.until("metadata")
            assert json.loads(done.data) == {"status": "run_done", "run_id": run_id}
            last = done.id
    path = f"/threads/{thread_id}/stream"
    async with site.streaming("GET", path, headers={"Last-Event-ID": last}) as open_:
        run_id = await site.run(thread_id, "echo")
        assert json.loads((await open_.next()).data)["run_id"] == run_id


async def test_a_threads_stream_uses_the_modes_of_each_run(site: Site, thread_id: str) -> None:
    async with site.streaming("GET", f"/threads/{thread_id}/stream") as open_:
        for mode in ("updates", "messages-tuple"):
            run_id = await site.run(thread_id, "echo", stream_mode=mode)
            names: list[str] = []
            while True:
                frame = await open_.next()
                if json.loads(frame.data) == {"status": "run_done", "run_id": run_id}:
                    break
                names.append(frame.event)
            assert set(names) == {"metadata", "messages" if mode == "messages-tuple" else mode}


async def test_a_threads_stream_rejects_invalid_modes_and_ids(site: Site, thread_id: str) -> None:
    assert (await site.get(f"/threads/{thread_id}/stream?stream_modes=values")).status_code == 422
    assert (await site.get(f"/threads/{thread_id}/stream", Last_Event_ID="garbage")).status_code == 422
