"""A model behind the whole gateway: the log holds all that an answer needs, also after a restart."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters.openai.client import Client
from babelgate.canonical import (
    AgentInfo,
    Answers,
    FilePart,
    Message,
    Receipt,
    Record,
    RunInput,
    Scope,
    Submission,
    TaskState,
)
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.openai.model import BOUND, Answer, Call, Server, serve
from tests.running import Running, running

OWNER = "default"
LOOK = Call("weather", '{"city": "Paris"}', "call_1")


@pytest.fixture
async def far() -> AsyncGenerator[Server]:
    async with serve() as server:
        yield server


@asynccontextmanager
async def gateway(folder: Path, far: Server) -> AsyncGenerator[Running]:
    """Run a gateway. A second gateway on the same folder is a restart."""
    agent = Client(far.url, "one")
    try:
        async with running(
            folder, {}, registered={"model": RegisteredAgent(AgentInfo(name="model"), agent)}
        ) as running_gateway:
            yield running_gateway
    finally:
        await agent.aclose()


async def records_of(here: Running, receipt: Receipt) -> Sequence[Record]:
    """Wait until a run ends, and return its records."""
    records: list[Record] = []
    async with asyncio.timeout(BOUND):
        scope = Scope(receipt.thread_id, "run", receipt.run_id)
        async for batch in here.hub.reads.follow(OWNER, scope, receipt.seq):
            records += batch
    return records


async def say(here: Running, text: str, *parts: FilePart, thread_id: str | None = None) -> Receipt:
    message = Message.of(text, "user")
    message = message.replace(parts=(*message.parts, *parts))
    receipt = await here.hub.submit(
        OWNER, Submission(agent="model", thread_id=thread_id, input=RunInput(messages=(message,)))
    )
    await records_of(here, receipt)
    return receipt


async def state(here: Running, receipt: Receipt) -> TaskState:
    return (await here.hub.reads.task(OWNER, receipt.task_id)).state


def looks(messages: Sequence[dict[str, Any]]) -> Answer:
    """Call the weather tool if the input asks for the weather, answer with the tool's result, and reply `Well` to
    anything else."""
    last = messages[-1]
    if last.get("role") == "tool" or last.get("type") == "function_call_output":
        return Answer(text="It is sunny")
    return Answer(text="I look", calls=(LOOK,)) if "Weather" in str(last["content"]) else Answer(text="Well")


@pytest.mark.parametrize("keeps", ["chat", "responses", "responses of a server that restarted too"])
async def test_call_is_answered_after_a_restart(far: Server, tmp_path: Path, keeps: str) -> None:
    far.model, far.has_responses = looks, keeps != "chat"
    async with gateway(tmp_path, far) as here:
        picture = FilePart(name="a.png", media_type="image/png", inline=b"\x00")
        receipt_of_question = await say(here, "Weather here?", picture)
        assert await state(here, receipt_of_question) is TaskState.INPUT_REQUIRED
    if keeps.endswith("too"):
        far.stored.clear()
    async with gateway(tmp_path, far) as here:
        receipt = await here.hub.answer(OWNER, Answers(task_id=receipt_of_question.task_id, bare={"degrees": 20}))
        await records_of(here, receipt)
        assert await state(here, receipt_of_question) is TaskState.COMPLETED
        run = await here.hub.reads.run(OWNER, receipt.run_id)
        assert run.usage["total_tokens"] == 12
    body = far.body()
    if keeps == "responses":
        output = {"type": "function_call_output", "call_id": "call_1", "output": '{"degrees": 20}'}
        assert (body["previous_response_id"], body["input"]) == ("resp_1", [output])
        return
    messages = body["messages"] if keeps == "chat" else body["input"]
    kinds = [each.get("role") or each["type"] for each in messages]
    if keeps == "chat":
        assert kinds == ["user", "assistant", "tool"]
    else:
        assert kinds == ["user", "assistant", "function_call", "function_call_output"]
    assert "data:image/png;base64,AA==" in str(messages[0]["content"][1]), "the file is told again, from the store"


async def test_thread_continues_after_a_restart_despite_an_unanswered_call(far: Server, tmp_path: Path) -> None:
    far.model = looks
    async with gateway(tmp_path, far) as here:
        first = await say(here, "Hi")
        await say(here, "Weather?", thread_id=first.thread_id)
    async with gateway(tmp_path, far) as here:
        await say(here, "And you?", thread_id=first.thread_id)
    assert far.body()["previous_response_id"] == "resp_1", "the second response waits for a result"
    assert [each["content"] for each in far.body()["input"]] == ["And you?"]


async def test_chat_continues_after_a_restart_with_its_history(far: Server, tmp_path: Path) -> None:
    far.has_responses = False
    async with gateway(tmp_path, far) as here:
        first = await say(here, "one")
    async with gateway(tmp_path, far) as here:
        await say(here, "two", thread_id=first.thread_id)
    assert [each["content"] for each in far.body()["messages"]] == ["one", "one", "two"]


async def test_rate_limited_task_fails_with_retry_after(far: Server, tmp_path: Path) -> None:
    far.refusals["/v1/responses"] = (429, {"error": {"message": "slow down"}}, {"retry-after": "7"})
    async with gateway(tmp_path, far) as here:
        receipt = await say(here, "Hi")
        task = await here.hub.reads.task(OWNER, receipt.task_id)
    assert task.state is TaskState.FAILED
    assert task.fault is not None
    assert (task.fault.message, task.fault.details["retry_after"]) == ("The agent's server answered 429: slow down", 7)
