"""Answers sent twice: an answer that names its question is refused the second time. The next question stays open."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.canonical import Ask, TaskState
from tests.running import Running, running

Talk = tuple[str, Callable[[], Awaitable[httpx.Response]]]
"""Id of a task that waits with its first question, and a function that sends the answer to that question."""


ASK = {"type": "function", "name": "ask_caller"}
CHAT_ASK = {"type": "function", "function": {"name": "ask_caller"}}


async def quiz() -> AsyncGenerator[Ask | str, str]:
    """Ask two questions, one after the other."""
    first = yield Ask("Approve the draft?")
    second = yield Ask("Approve the payment?")
    yield f"{first}, {second}"


async def langgraph(http: httpx.AsyncClient) -> Talk:
    thread_id = (await http.post("/threads", json={})).json()["thread_id"]
    url, body = f"/threads/{thread_id}/runs/wait", {"assistant_id": "quiz"}
    paused = await http.post(url, json={**body, "input": {"messages": [{"role": "user", "content": "go"}]}})
    (question,) = paused.json()["__interrupt__"]
    resume = {**body, "command": {"resume": {question["id"]: "yes"}}}
    return paused.headers["babelgate-task"], lambda: http.post(url, json=resume)


async def chat(http: httpx.AsyncClient) -> Talk:
    messages: list[Any] = [{"role": "user", "content": "go"}]
    paused = await http.post("/v1/chat/completions", json={"model": "quiz", "messages": messages, "tools": [CHAT_ASK]})
    message = paused.json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "yes"}
    body = {"model": "quiz", "messages": [*messages, message, result], "tools": [CHAT_ASK]}
    return paused.headers["babelgate-task"], lambda: http.post("/v1/chat/completions", json=body)


async def responses(http: httpx.AsyncClient) -> Talk:
    paused = await http.post("/v1/responses", json={"model": "quiz", "input": "go", "tools": [ASK]})
    call = next(item for item in paused.json()["output"] if item["type"] == "function_call")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "yes"}
    body = {"model": "quiz", "previous_response_id": paused.json()["id"], "input": [result], "tools": [ASK]}
    return paused.headers["babelgate-task"], lambda: http.post("/v1/responses", json=body)


CALLERS: Mapping[str, Callable[[httpx.AsyncClient], Awaitable[Talk]]] = {
    "langgraph": langgraph,
    "chat": chat,
    "responses": responses,
}


async def state(gateway: Running, task_id: str) -> TaskState:
    return (await gateway.hub.reads.task("default", task_id)).state


@pytest.mark.parametrize("caller", CALLERS)
async def test_an_answer_sent_twice_answers_one_question(tmp_path: Path, caller: str) -> None:
    async with running(tmp_path, {"quiz": quiz}) as gateway:
        task_id, answer = await CALLERS[caller](gateway.http)
        assert (await answer()).status_code == 200
        assert await state(gateway, task_id) is TaskState.INPUT_REQUIRED
        again = await answer()
        assert 400 <= again.status_code < 500, again.text
        (question,) = await gateway.hub.reads.open_interrupts("default", task_id)
        assert "payment" in question.message.text
