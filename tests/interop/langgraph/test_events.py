"""Tests of `client.threads.stream` of langgraph-sdk over Server-Sent Events and WebSockets.

They cover runs, tokens, tools, questions, and a reader whose connection is cut.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar

import pytest
from langgraph_sdk import get_client, get_sync_client

from tests.gateway.hubs import within
from tests.interop.langgraph.talk import user
from tests.interop.proxy import CUT, cutting
from tests.running import Running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("over", ["sse", "websocket"])]

Over = Literal["sse", "websocket"]
T = TypeVar("T")

BOUND: Final = 30.0
"""Timeout for events, in seconds."""
POLL: Final = 0.01
"""Interval of polling the blocking client, in seconds."""


def soon(awaited: Awaitable[T]) -> Awaitable[T]:
    return within(awaited, "the client")


@asynccontextmanager
async def open_thread(gateway: Running, agent: str, over: Over) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the client, and its new thread with an agent."""
    async with (
        get_client(url=gateway.url) as client,
        client.threads.stream(assistant_id=agent, transport=over) as thread,
    ):
        yield client, thread


async def wait(gateway: Running, thread_id: str, agent: str, text: str) -> None:
    body = {"assistant_id": agent, "input": user(text)}
    assert (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=body)).status_code == 200


async def test_the_tokens_of_an_answer_arrive_as_one_message(gateway: Running, over: Over) -> None:
    async with open_thread(gateway, "stream", over) as (client, thread):
        started = await soon(thread.run.start(input=user("one two three"), metadata={"a": 1}))
        (message,) = await soon(_all(thread.messages))
        assert await soon(_all(message.text)) == ["one", " two", " three"]
        output = await soon(asyncio.ensure_future(_awaited(thread.output)))
        assert [each["content"] for each in output["messages"]] == ["one two three", "one two three"]
        run: Any = await client.runs.get(thread.thread_id, started["run_id"])
        assert (run["status"], run["metadata"]["a"]) == ("success", 1)


async def test_tokens_arrive_before_the_agent_has_ended(gateway: Running, gate: asyncio.Event, over: Over) -> None:
    async with open_thread(gateway, "gated", over) as (_, thread):
        await soon(thread.run.start(input=user("hi")))
        tokens: list[str] = []
        async with asyncio.timeout(BOUND):
            async for event in thread.subscribe(["messages"]):
                data: Any = event["params"]["data"]
                if "delta" in data:
                    tokens.append(data["delta"]["text"])
                    gate.set()
        assert tokens == ["first", " second"]


async def test_tool_calls_arrive_with_their_results(gateway: Running, over: Over) -> None:
    async with open_thread(gateway, "tools", over) as (_, thread):
        await soon(thread.run.start(input=user("one two")))
        (call,) = await soon(_all(thread.tool_calls))
        assert (call.name, call.input, await soon(call.output)) == ("word_count", {"text": "one two"}, 2)


async def test_a_question_is_answered(gateway: Running, over: Over) -> None:
    async with open_thread(gateway, "ask", over) as (_, thread):
        await soon(thread.run.start(input=user("hi")))
        values = await soon(_all(thread.values))
        assert [each["content"] for each in values[-1]["messages"]] == ["hi"]
        (question,) = thread.interrupts
        assert question["value"] == "What is your name?"
        # A projection that starts now may miss its event, because the client keeps reading while it answers.
        await soon(thread.run.respond("Ann"))
        output = await soon(asyncio.ensure_future(_awaited(thread.output)))
        assert output["messages"][-1]["content"] == "Hello, Ann."


async def test_a_failure_is_raised(gateway: Running, over: Over) -> None:
    async with open_thread(gateway, "fail", over) as (_, thread):
        await soon(thread.run.start(input=user("boom")))
        with pytest.raises(RuntimeError, match="boom"):
            await soon(asyncio.ensure_future(_awaited(thread.output)))


async def test_cancelling_a_run_ends_its_readers(gateway: Running, over: Over) -> None:
    async with open_thread(gateway, "slow", over) as (client, thread):
        run_id = (await soon(thread.run.start(input=user("600"))))["run_id"]
        values = asyncio.ensure_future(_all(thread.values))
        output = asyncio.ensure_future(_awaited(thread.output))
        await soon(client.runs.cancel(thread.thread_id, run_id, wait=True))
        await soon(values)
        with pytest.raises(RuntimeError, match="The run was cancelled"):
            await soon(output)
        assert (await client.threads.get(thread.thread_id))["status"] == "idle"


async def test_an_invalid_command_raises_an_error_with_its_code(gateway: Running, over: Over) -> None:
    async with open_thread(gateway, "missing", over) as (_, thread):
        with pytest.raises(RuntimeError, match="invalid_argument"):
            await soon(thread.run.start(input=user("hi")))


async def test_a_thread_with_earlier_runs_is_read_and_continued(gateway: Running, over: Over) -> None:
    async with get_client(url=gateway.url) as client:
        thread_id = (await client.threads.create())["thread_id"]
        await wait(gateway, thread_id, "echo", "one")
        async with client.threads.stream(thread_id, assistant_id="echo", transport=over) as thread:
            output = await soon(asyncio.ensure_future(_awaited(thread.output)))
            assert [each["content"] for each in output["messages"]] == ["one", "one"]
        async with client.threads.stream(thread_id, assistant_id="echo", transport=over) as thread:
            await soon(thread.run.start(input=user("two")))
            (message,) = await soon(_all(thread.messages))
            assert await soon(_all(message.text)) == ["two"], "an earlier answer was repeated"


async def test_a_reader_cut_off_repeatedly_receives_each_event_once(gateway: Running, over: Over) -> None:
    words = " ".join(str(n) for n in range(60))
    cuts = [*range(700, 6000, 900)]
    async with cutting(gateway.url, {"events": cuts}) as proxy, get_client(url=proxy.url) as client:
        thread_id = (await client.threads.create())["thread_id"]
        await wait(gateway, thread_id, "stream", words)
        stream = client.threads.stream(thread_id, assistant_id="stream", transport=over, headers={CUT: "events"})
        async with stream as thread:
            received = ""
            async with asyncio.timeout(30):
                async for event in thread.subscribe(["messages"]):
                    data: Any = event["params"]["data"]
                    received += data.get("delta", {}).get("text", "")
                    if data["event"] == "message-finish":
                        break
    assert received == words
    assert len(proxy.cuts["events"]) < len(cuts), "no connection was cut"


async def test_the_blocking_client_streams_and_answers(gateway: Running, over: Over) -> None:
    def use_client() -> tuple[list[str], Any]:
        with get_sync_client(url=gateway.url) as client:
            with client.threads.stream(assistant_id="stream", transport=over) as thread:
                thread.run.start(input=user("one two"))
                texts = ["".join(message.text) for message in thread.messages]
            with client.threads.stream(assistant_id="ask", transport=over) as thread:
                thread.run.start(input=user("hi"))
                _wait_for_question(thread)
                thread.run.respond("Ann")
                return texts, thread.output

    texts, output = await soon(asyncio.to_thread(use_client))
    assert texts == ["one two"]
    assert [each["content"] for each in output["messages"]] == ["hi", "Hello, Ann."]


def _wait_for_question(thread: Any) -> None:
    """Wait until the client has received the question. Poll the attribute, because there is nothing else to wait for.

    `for _ in thread.values` would end there too, but may block without a limit. langgraph-sdk 0.4.14 wakes iterators
    once, in the thread that receives the question (`_sync/stream.py`, `_values_iter` and `_apply_lifecycle_event`).
    An iterator that registers its subscription later is never woken.
    """
    never, deadline = threading.Event(), time.monotonic() + BOUND
    while not thread.interrupted:
        assert time.monotonic() < deadline, "the client did not receive the question"
        never.wait(POLL)


async def _all(source: Any) -> list[Any]:
    return [each async for each in source]


async def _awaited(output: Any) -> Any:
    return await output
