"""Agents in process behind the real hub: what survives a restart, and what an agent cannot break."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical import (
    Answers,
    Artifact,
    Ask,
    Declined,
    FaultCode,
    FilePart,
    Fold,
    Invocation,
    Message,
    Receipt,
    Record,
    RunInput,
    RunStatus,
    Scope,
    Step,
    Submission,
    TaskState,
    TextPart,
    ToolCall,
)
from babelgate.canonical.event import InterruptRaised, RunEnded
from babelgate.gateway.hub import GatewayHub
from tests.gateway.talk import within
from tests.nested import nested
from tests.running import running


async def submit(hub: GatewayHub, agent: str, *parts: Any) -> Receipt:
    message = Message(
        role="user", parts=tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    )
    return await hub.submit("o", Submission(agent=agent, input=RunInput(messages=(message,))))


async def follow(hub: GatewayHub, receipt: Receipt) -> list[Record]:
    """Return the records of a run once it has ended."""

    async def read() -> list[Record]:
        records: list[Record] = []
        async for batch in hub.reads.follow("o", Scope(receipt.thread_id, "run", receipt.run_id)):
            records += batch
        return records

    return await within(read())


async def answer(hub: GatewayHub, receipt: Receipt, *values: Any, action: Any = "answer") -> list[Record]:
    """Answer all open questions, and return the records of the resumed run."""
    questions = await hub.reads.open_interrupts("o", receipt.task_id)
    answers = {question.interrupt_id: value for question, value in zip(questions, values, strict=True)}
    return await follow(hub, await hub.answer("o", Answers(task_id=receipt.task_id, values=answers, action=action)))


def text(records: list[Record]) -> str:
    return "".join(message.text for message in Fold("t", "o", records).messages() if message.role == "agent")


def ending(records: list[Record]) -> RunEnded:
    (ended,) = (record.event for record in records if isinstance(record.event, RunEnded))
    return ended


async def planner(call: Invocation) -> AsyncGenerator[Any, Any]:
    """Emit one value of each kind, with questions in between."""
    yield Step("read")
    yield f"{len(call.history)} before. "
    for file in call.files:
        yield Artifact(name=file.name, parts=(FilePart(name="copy", inline=(file.inline or b"") * 2),))
    yield ToolCall("count", {"text": call.text}, output=1)
    yield Artifact(name="two", parts=(TextPart(text="a"), TextPart(text="b")))
    name: object = yield Ask("Name?", value={"n": 1})
    yield {"name": name}
    yield Message.of("on the way", phase="progress")
    try:
        first, second = yield (Ask("First?"), Ask("Second?"))
    except Declined as declined:
        first, second = declined.answers
    yield f"{call.text}: {name} {first} {second}"


@pytest.mark.parametrize("answered", [(2,), (0, 2), (1, 1), (0, 1, 1)], ids=str)
async def test_an_agent_resumes_at_its_questions_after_a_restart(tmp_path: Path, answered: tuple[int, ...]):
    """Restart the gateway after each of these numbers of answered questions."""
    runs: list[list[Record]] = []
    receipt: Receipt | None = None
    answers: list[tuple[Any, ...]] = [("Ann",), ("1", {"two": 2})]
    for count in answered:
        async with running(tmp_path, {"planner": planner}) as gateway:
            if receipt is None:
                receipt = await submit(gateway.hub, "planner", "plan", FilePart(name="f", inline=b"bytes"))
                runs.append(await follow(gateway.hub, receipt))
            for _ in range(count):
                runs.append(await answer(gateway.hub, receipt, *answers.pop(0)))
            if not answers:
                await planned(gateway.hub, receipt)
    assert [ending(records).status for records in runs] == ["paused", "paused", "success"]
    assert [text(records) for records in runs] == ["0 before. ", "on the way", "plan: Ann 1 {'two': 2}"]


async def planned(hub: GatewayHub, receipt: Receipt) -> None:
    """Check that the agent `planner` completed its task, and that it emitted each artifact and question once."""
    task = await hub.reads.task("o", receipt.task_id)
    assert task.state is TaskState.COMPLETED
    records = await hub.reads.records("o", Scope.task(task))
    artifacts = list(Fold("t", "o", records).artifacts.values())
    assert [artifact.name for artifact in artifacts] == ["f", "two"]
    (copy,) = artifacts[0].parts
    assert isinstance(copy, FilePart) and copy.blob is not None
    assert (await hub.reads.file("o", copy.blob)).inline == b"bytesbytes"
    assert len([record for record in records if isinstance(record.event, InterruptRaised)]) == 3


async def test_a_declined_question_reaches_the_agent_after_a_restart(tmp_path: Path):
    agents = {"planner": planner}
    async with running(tmp_path, agents) as gateway:
        receipt = await submit(gateway.hub, "planner", "plan")
        await follow(gateway.hub, receipt)
        await answer(gateway.hub, receipt, "Ann")
    async with running(tmp_path, agents) as gateway:
        third = await answer(gateway.hub, receipt, None, None, action="decline")
        assert text(third) == "plan: Ann None None"


WRONG: dict[str, Any] = {
    "object": object(),
    "nan": float("nan"),
    "surrogate": "\ud800",
    "deep": nested(1000),
    "key": {1: 2},
    "bytes": b"x",
    "big data": {"big": "x" * 9_000_000},
    "big text": "x" * 9_000_000,
    "big number": 10**5000,
}


async def test_an_invalid_value_ends_only_the_run_of_its_agent(tmp_path: Path):
    begun, release = asyncio.Event(), asyncio.Event()

    def saying(value: object) -> dict[str, Any]:
        async def yields(text: str) -> AsyncGenerator[object]:
            yield "first"
            yield value

        async def returns(text: str) -> object:
            return value

        return {"yields": yields, "returns": returns}

    async def unharmed(text: str) -> AsyncGenerator[object]:
        begun.set()
        await release.wait()
        yield text

    wrong = {f"{name} {way}": agent for name, value in WRONG.items() for way, agent in saying(value).items()}
    agents = {f"wrong-{number}": agent for number, agent in enumerate(wrong.values())}
    async with running(tmp_path, {**agents, "beside": unharmed}) as gateway:
        other = await submit(gateway.hub, "beside", "unharmed")
        await within(begun.wait())
        for agent, what in zip(agents, wrong, strict=True):
            ended = ending(await follow(gateway.hub, await submit(gateway.hub, agent, "x")))
            assert ended.status is RunStatus.ERROR, what
            assert ended.fault is not None and ended.fault.code is FaultCode.AGENT_INVALID, what
        release.set()
        assert text(await follow(gateway.hub, other)) == "unharmed"
        assert await gateway.hub.ready() is None


async def test_a_cancel_reaches_the_agent_and_ends_the_task(tmp_path: Path):
    begun, cleaned = asyncio.Event(), asyncio.Event()

    async def waits(text: str) -> AsyncGenerator[object]:
        try:
            yield "a"
            begun.set()
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    async with running(tmp_path, {"waits": waits}) as gateway:
        receipt = await submit(gateway.hub, "waits", "x")
        await within(begun.wait())
        await gateway.hub.cancel("o", receipt.task_id)
        assert ending(await follow(gateway.hub, receipt)).status is RunStatus.CANCELLED
        await within(cleaned.wait())
