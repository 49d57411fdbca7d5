"""What clients of LangGraph's servers rely on without a word in any document."""

from typing import Any

import pytest

from tests.adapters.langchain.site import SHARED, Site, events, said

pytestmark = SHARED


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
async def test_when_a_stream_of_a_cancelled_run_has_closed_its_run_is_over(site: Site, action: str) -> None:
    thread_id = await site.thread()
    body = {"assistant_id": "scripted", "input": "hi"}
    async with site.streaming("POST", f"/threads/{thread_id}/runs/stream", body) as stream:
        await site.agent.called()
        run_id = stream.response.headers["babelgate-run"]
        await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action={action}")
        await stream.rest()
        assert await site.status(thread_id, run_id) == ("interrupted" if action == "interrupt" else 404)


async def test_a_question_of_a_run_without_a_thread_can_be_answered(site: Site) -> None:
    asked = await site.post("/runs/wait", {"assistant_id": "ask", "input": said("hi")})
    assert asked.json()["__interrupt__"][0]["value"] == "What is your name?"
    thread_id = asked.headers["babelgate-thread"]
    told = await site.wait(thread_id, "ask", None, command={"resume": "Ann"})
    assert told["messages"][-1]["content"] == "Hello, Ann."
    listed: Any = await site.ok("/threads/search", {})
    assert thread_id not in {thread["thread_id"] for thread in listed}


async def test_a_threads_stream_is_told_again_from_before_everything(site: Site, thread_id: str) -> None:
    """In the modes by their documented name, every frame with an id, and the ids rising."""
    for text in ("one", "two"):
        await site.wait(thread_id, "echo", said(text))
    path = f"/threads/{thread_id}/stream?stream_modes=run_modes,lifecycle"
    async with site.streaming("GET", path, headers={"Last-Event-ID": "-1"}) as stream:
        frames = [await stream.until("metadata") for _ in range(4)]
        ids = [tuple(map(int, line[4:].split(b"-"))) for line in stream.taken.splitlines() if line.startswith(b"id: ")]
        told = events(stream.taken)
    assert len(ids) == len(told)
    assert ids == sorted(set(ids))
    assert b"run_done" in frames[-1].data
