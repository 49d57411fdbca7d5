"""Streams over HTTP: what comes, what comes again, and that it is the same."""

import json
from typing import Any

import pytest

from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.langchain.server import stream
from tests.adapters.langchain.log import EVERYTHING
from tests.adapters.langchain.site import NOBODY, SHARED, Site, events, said
from tests.adapters.langchain.watching import perform
from tests.gateway.hubs import within

pytestmark = SHARED


def cut(content: bytes) -> list[bytes]:
    """The frames as bytes, each with its end; heartbeats are no frames."""
    found = [frame + b"\n\n" for frame in content.split(b"\n\n") if frame]
    return [frame for frame in found if not frame.startswith(b":")]


def id_of(frame: bytes) -> str:
    (found,) = Frames().feed(frame)
    return found.id


async def performed(site: Site, modes: Any) -> tuple[str, bytes]:
    """(Path of the stream, what its first reader read.)"""
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": said("hi"), "stream_mode": modes}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/stream", body) as open_:
        perform(await site.agent.called())
        await open_.rest()
        return open_.response.headers["location"], open_.taken


async def test_a_stream_begins_with_the_runs_id_and_has_no_end_event(site: Site, thread_id: str) -> None:
    body = {"assistant_id": "stream", "input": said("a b")}
    answer = await site.post(f"/threads/{thread_id}/runs/stream", body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    told = events(answer.content)
    run_id = answer.headers["babelgate-run"]
    assert told[0] == ("metadata", {"run_id": run_id, "attempt": 1})
    assert {event for event, _ in told[1:]} == {"values"}
    assert [message["content"] for message in told[-1][1]["messages"]] == ["a b", "a b"]
    assert await site.status(thread_id, run_id) == "success"


async def test_a_question_arrives_also_where_only_updates_were_asked_for(site: Site, thread_id: str) -> None:
    body = {"assistant_id": "ask", "input": "hi", "stream_mode": ["updates"]}
    told = events((await site.post(f"/threads/{thread_id}/runs/stream", body)).content)
    assert told[-1][0] == "updates"
    assert told[-1][1]["__interrupt__"][0]["value"] == "What is your name?"


# Coming back


@pytest.mark.parametrize("modes", ["messages", "messages-tuple", list(EVERYTHING)], ids=str)
async def test_a_reader_that_was_cut_off_anywhere_gets_byte_for_byte_the_rest(site: Site, modes: Any) -> None:
    path, live = await performed(site, modes)
    frames = cut(live)
    assert b"".join(frames) == live
    assert len(frames) > 10
    assert (await site.get(path, Last_Event_ID="-1")).content == live
    for at, frame in enumerate(frames, start=1):
        rest = await site.get(path, Last_Event_ID=id_of(frame))
        assert rest.content == b"".join(frames[at:])


async def test_whoever_joins_without_an_id_sees_only_what_is_still_to_come(site: Site, thread_id: str) -> None:
    run_id = await site.run(thread_id, stream_mode="messages-tuple")
    going = (await site.agent.called()).open("one")
    path = f"/threads/{thread_id}/runs/{run_id}/stream"
    async with site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as whole:
        await whole.until("messages")
        async with (
            site.streaming("GET", path) as late,
            site.streaming("GET", path, headers={"Last-Event-ID": "garbage"}) as lost,
        ):
            going.more(" two").end()
            for each in (late, lost):
                told = await each.rest()
                assert json.loads(told[0].data)[0]["content"] == " two"
        await whole.rest()
    for headers in ({}, {"Last_Event_ID": "garbage"}, {"Last_Event_ID": "9999-0"}):
        over = await site.get(path, **headers)
        assert (over.status_code, over.content) == (200, b"")


async def test_a_stream_is_joined_in_the_modes_of_the_run_or_in_those_that_the_reader_names(site: Site) -> None:
    path, live = await performed(site, ["updates", "custom"])
    assert {event for event, _ in events(live)} == {"metadata", "updates", "custom"}
    for query in ("stream_mode=custom", "stream_mode=custom&stream_mode=tasks", "stream_mode=custom,tasks"):
        joined = events((await site.get(f"{path}?{query}", Last_Event_ID="-1")).content)
        expected = {"metadata", "custom", "tasks"} if "tasks" in query else {"metadata", "custom"}
        assert {event for event, _ in joined} == expected
    assert (await site.get(f"{path}?stream_mode=lifecycle")).status_code == 422


async def test_an_unknown_run_is_one_error_event_for_the_platform_and_not_found_for_the_protocol(site: Site) -> None:
    thread_id = await site.thread()
    answer = await site.get(f"/threads/{thread_id}/runs/{NOBODY}/stream")
    assert answer.status_code == 200
    assert events(answer.content) == [("error", {"error": "HTTPException", "message": "404: Run not found"})]
    assert (await site.get(f"/agent-protocol/threads/{thread_id}/runs/{NOBODY}/stream")).status_code == 404
    assert (await site.get(f"/runs/{NOBODY}/stream")).status_code == 404
    assert (await site.get(f"/threads/{thread_id}/runs/x/stream")).status_code == 422


async def test_the_two_layouts_stream_the_same(site: Site) -> None:
    body = {"agent_id": "stream", "input": "a b", "stream_mode": "updates"}
    made = await site.post("/agent-protocol/runs/stream", body)
    run_id = made.headers["babelgate-run"]
    for path in (f"/runs/{run_id}/stream", made.headers["location"]):
        for prefix in ("", "/agent-protocol"):
            assert (await site.get(f"{prefix}{path}", Last_Event_ID="-1")).content == made.content


async def test_two_readers_of_one_view_read_the_same_bytes(site: Site, thread_id: str) -> None:
    run_id = await site.run(thread_id, stream_mode=list(EVERYTHING))
    going = await site.agent.called()
    path = f"/threads/{thread_id}/runs/{run_id}/stream"
    async with (
        site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as one,
        site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as two,
    ):
        await one.next()
        await two.next()
        perform(going)
        await one.rest()
        await two.rest()
        assert one.taken == two.taken


async def test_silence_is_filled_with_heartbeats_that_are_no_events(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.05)
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": "hi"}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/stream", body) as open_:
        going = await site.agent.called()
        chunks = open_.response.aiter_bytes()
        taken = b""
        while taken.count(b": heartbeat\n\n") < 3:
            taken += await within(anext(chunks), "a heartbeat")
        going.end()
        async for chunk in chunks:
            taken += chunk
    assert {event for event, _ in events(taken)} == {"metadata", "values"}


# Threads


async def test_a_threads_stream_goes_on_from_run_to_run(site: Site, thread_id: str) -> None:
    async with site.streaming("GET", f"/threads/{thread_id}/stream?stream_mode=lifecycle") as open_:
        last = ""
        for _ in range(2):
            run_id = await site.run(thread_id, "echo")
            begun = await open_.until("metadata")
            assert json.loads(begun.data) == {"run_id": run_id, "attempt": 1}
            done = await open_.until("metadata")
            assert json.loads(done.data) == {"status": "run_done", "run_id": run_id}
            last = done.id
    path = f"/threads/{thread_id}/stream"
    async with site.streaming("GET", path, headers={"Last-Event-ID": last}) as open_:
        run_id = await site.run(thread_id, "echo")
        assert json.loads((await open_.next()).data)["run_id"] == run_id


async def test_a_threads_stream_shows_each_run_in_its_own_modes(site: Site, thread_id: str) -> None:
    async with site.streaming("GET", f"/threads/{thread_id}/stream") as open_:
        for mode in ("updates", "messages-tuple"):
            run_id = await site.run(thread_id, "echo", stream_mode=mode)
            told: list[str] = []
            while True:
                found = await open_.next()
                if json.loads(found.data) == {"status": "run_done", "run_id": run_id}:
                    break
                told.append(found.event)
            assert set(told) == {"metadata", "messages" if mode == "messages-tuple" else mode}


async def test_a_threads_stream_refuses_modes_and_ids_that_are_none(site: Site, thread_id: str) -> None:
    assert (await site.get(f"/threads/{thread_id}/stream?stream_modes=values")).status_code == 422
    assert (await site.get(f"/threads/{thread_id}/stream", Last_Event_ID="garbage")).status_code == 422
