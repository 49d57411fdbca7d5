"""Undocumented behavior on which clients of LangGraph's servers rely."""

from typing import Any

import pytest

from tests.adapters.langchain.site import SHARED, Site, events, user_input

pytestmark = SHARED


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
async def test_a_cancelled_run_has_ended_when_its_stream_closes(site: Site, action: str) -> None:
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": "hi"}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/stream", body) as stream:
        await site.agent.called()
        run_id = stream.response.headers["babelgate-run"]
        await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action={action}")
        await stream.rest()
        assert await site.status(thread_id, run_id) == ("interrupted" if action == "interrupt" else 404)


async def test_a_question_of_a_stateless_run_can_be_answered(site: Site) -> None:
    paused = await site.post("/runs/wait", {"assistant_id": "ask", "input": user_input("hi")})
    assert paused.json()["__interrupt__"][0]["value"] == "What is your name?"
    thread_id = paused.headers["babelgate-thread"]
    values = await site.wait(thread_id, "ask", None, command={"resume": "Ann"})
    assert values["messages"][-1]["content"] == "Hello, Ann."
    listed: Any = await site.ok("/threads/search", {})
    assert thread_id not in {thread["thread_id"] for thread in listed}


async def test_a_threads_stream_can_be_replayed_from_its_start(site: Site, thread_id: str) -> None:
    """Replay by the documented names of the modes; every frame has an id, and the ids increase."""
    for text in ("one", "two"):
        await site.wait(thread_id, "echo", user_input(text))
    path = f"/threads/{thread_id}/stream?stream_modes=run_modes,lifecycle"
    async with site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as stream:
        frames = [await stream.until("metadata") for _ in range(4)]
        ids = [
            tuple(map(int, line[4:].split(b"-"))) for line in stream.content.splitlines() if line.startswith(b"id: ")
        ]
        all_frames = events(stream.content)
    assert len(ids) == len(all_frames)
    assert ids == sorted(set(ids))
    assert b"run_done" in frames[-1].data
