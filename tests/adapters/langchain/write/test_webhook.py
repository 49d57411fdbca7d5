"""Webhooks: what is posted when a run ends."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, post

from tests.adapters.langchain.site import SHARED, Site, said
from tests.gateway.hubs import within
from tests.serving import serving

pytestmark = SHARED


class Receiver:
    def __init__(self) -> None:
        self.got: asyncio.Queue[Any] = asyncio.Queue()

    async def next(self) -> Any:
        return await within(self.got.get(), "a webhook")


@asynccontextmanager
async def receiving() -> AsyncGenerator[tuple[str, Receiver]]:
    receiver = Receiver()

    @post("/hook")
    async def hook(request: Request[Any, Any, Any]) -> dict[str, bool]:
        receiver.got.put_nowait(json.loads(await request.body()))
        return {"ok": True}

    async with serving(Litestar([hook], openapi_config=None)) as url:
        yield f"{url}/hook", receiver


async def test_the_end_of_a_run_is_told_with_the_threads_values(site: Site, thread_id: str) -> None:
    async with receiving() as (url, receiver):
        for words in ("one", "two"):
            run_id = await site.run(thread_id, "echo", said(words), webhook=url)
            told = await receiver.next()
            assert (told["run_id"], told["thread_id"], told["status"]) == (run_id, thread_id, "success")
            assert told["values"]["messages"][-1]["content"] == words
            assert told["run_started_at"] <= told["run_ended_at"] <= told["webhook_sent_at"]
            assert "error" not in told
            assert told["kwargs"]["webhook"] == url
        assert receiver.got.empty()


async def test_large_values_are_told_whole(site: Site) -> None:
    thread_id, words = await site.thread(), "é" * 2**20
    async with receiving() as (url, receiver):
        await site.run(thread_id, "echo", said(words), webhook=url)
        told = await receiver.next()
    assert [message["content"] for message in told["values"]["messages"]] == [words, words]


async def test_a_failure_is_told_with_its_error(site: Site) -> None:
    async with receiving() as (url, receiver):
        await site.post("/runs", {"assistant_id": "fail", "input": "boom", "webhook": url})
        told = await receiver.next()
        assert told["status"] == "error"
        assert "boom" in told["error"]


async def test_a_run_that_never_began_is_told_of_when_it_is_cancelled(site: Site, thread_id: str) -> None:
    async with receiving() as (url, receiver):
        run_id = await site.run(thread_id, "echo", webhook=url, after_seconds=3600)
        await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")
        told = await receiver.next()
        assert (told["run_id"], told["status"], told["run_started_at"]) == (run_id, "interrupted", None)


async def test_a_question_ends_a_run_and_the_answer_is_another_with_a_webhook_of_its_own(site: Site) -> None:
    thread_id = await site.thread()
    async with receiving() as (url, receiver):
        first = await site.run(thread_id, "ask", webhook=url)
        told = await receiver.next()
        assert (told["run_id"], told["status"]) == (first, "success")
        answer = await site.post(
            f"/threads/{thread_id}/runs", {"assistant_id": "ask", "command": {"resume": "Bob"}, "webhook": url}
        )
        told = await receiver.next()
        assert told["run_id"] == answer.json()["run_id"] != first
        assert told["values"]["messages"][-1]["content"] == "Hello, Bob."
        assert receiver.got.empty()


async def test_a_webhook_to_where_it_must_not_go_is_refused_and_starts_nothing(site: Site, thread_id: str) -> None:
    for url in ("/relative", "http://10.0.0.1/", "ftp://127.0.0.1/", "http://"):
        assert (await site.create(thread_id, "echo", webhook=url)).status_code == 422
    assert await site.look(f"/threads/{thread_id}/runs") == []
