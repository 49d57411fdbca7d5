"""Webhooks at the end of runs."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, post

from tests.adapters.langchain.site import SHARED, Site, user_input
from tests.gateway.hubs import within
from tests.serving import serving

pytestmark = SHARED


class Receiver:
    def __init__(self) -> None:
        self.payloads: asyncio.Queue[Any] = asyncio.Queue()

    async def next(self) -> Any:
        return await within(self.payloads.get(), "a webhook")


@asynccontextmanager
async def receiving() -> AsyncGenerator[tuple[str, Receiver]]:
    receiver = Receiver()

    @post("/hook")
    async def hook(request: Request[Any, Any, Any]) -> dict[str, bool]:
        receiver.payloads.put_nowait(json.loads(await request.body()))
        return {"ok": True}

    async with serving(Litestar([hook], openapi_config=None)) as url:
        yield f"{url}/hook", receiver


async def test_a_webhook_has_the_threads_values(site: Site, thread_id: str) -> None:
    async with receiving() as (url, receiver):
        for words in ("one", "two"):
            run_id = await site.run(thread_id, "echo", user_input(words), webhook=url)
            payload = await receiver.next()
            assert (payload["run_id"], payload["thread_id"], payload["status"]) == (run_id, thread_id, "success")
            assert payload["values"]["messages"][-1]["content"] == words
            assert payload["run_started_at"] <= payload["run_ended_at"] <= payload["webhook_sent_at"]
            assert "error" not in payload
            assert payload["kwargs"]["webhook"] == url
        assert receiver.payloads.empty()


async def test_a_webhook_has_large_values(site: Site) -> None:
    thread_id, words = await site.thread(), "é" * 2**20
    async with receiving() as (url, receiver):
        await site.run(thread_id, "echo", user_input(words), webhook=url)
        payload = await receiver.next()
    assert [message["content"] for message in payload["values"]["messages"]] == [words, words]


async def test_a_webhook_has_the_error_of_a_failed_run(site: Site) -> None:
    async with receiving() as (url, receiver):
        await site.post("/runs", {"assistant_id": "fail", "input": "boom", "webhook": url})
        payload = await receiver.next()
        assert payload["status"] == "error"
        assert "boom" in payload["error"]


async def test_cancelling_a_pending_run_sends_its_webhook(site: Site, thread_id: str) -> None:
    async with receiving() as (url, receiver):
        run_id = await site.run(thread_id, "echo", webhook=url, after_seconds=3600)
        await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel")
        payload = await receiver.next()
        assert (payload["run_id"], payload["status"], payload["run_started_at"]) == (run_id, "interrupted", None)


async def test_question_and_answer_each_send_a_webhook(site: Site) -> None:
    thread_id = await site.thread()
    async with receiving() as (url, receiver):
        first = await site.run(thread_id, "ask", webhook=url)
        payload = await receiver.next()
        assert (payload["run_id"], payload["status"]) == (first, "success")
        answer = await site.post(
            f"/threads/{thread_id}/runs", {"assistant_id": "ask", "command": {"resume": "Bob"}, "webhook": url}
        )
        payload = await receiver.next()
        assert payload["run_id"] == answer.json()["run_id"] != first
        assert payload["values"]["messages"][-1]["content"] == "Hello, Bob."
        assert receiver.payloads.empty()


async def test_an_invalid_webhook_url_is_rejected_and_starts_nothing(site: Site, thread_id: str) -> None:
    for url in ("/relative", "http://10.0.0.1/", "ftp://127.0.0.1/", "http://"):
        assert (await site.create(thread_id, "echo", webhook=url)).status_code == 422
    assert await site.look(f"/threads/{thread_id}/runs") == []
