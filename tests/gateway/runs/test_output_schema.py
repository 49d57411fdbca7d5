"""Tests of the validation of structured output against its agent's schema."""

from pathlib import Path
from typing import Any, TypedDict, cast

import pytest

from babelgate.canonical import AgentInfo, FaultCode, TaskState
from babelgate.canonical.event import RunEnded
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs.output_schema import schema_error
from tests.gateway.hubs import HubFactory, Scripted, ends, submit
from tests.running import running

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("output", "words"),
    [({"n": 1}, None), (None, None), ({"n": "1"}, "at $.n: '1' is not of type 'integer'"), ({}, "'n' is a required")],
)
async def test_an_output_is_checked_against_its_schema(output: Any, words: str | None) -> None:
    fault = await schema_error(AgentInfo(name="a", schemas={"output": SCHEMA}), output)
    assert (fault is None) == (words is None)
    if fault is not None:
        assert fault.code is FaultCode.AGENT_INVALID
        assert words is not None and words in fault.message


async def test_output_without_a_usable_schema_is_not_checked() -> None:
    for info in (
        AgentInfo(name="a"),
        AgentInfo(name="a", schemas={"output": {"type": "no such type"}}),
        AgentInfo(name="a", schemas={"output": SCHEMA}, stateful=True),
    ):
        assert await schema_error(info, {"n": "1"}) is None


async def test_large_outputs_and_patterns_are_checked() -> None:
    words = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    info = AgentInfo(name="a", schemas={"output": {"properties": {"words": words, "id": {"pattern": "^[a-z]+$"}}}})
    assert await schema_error(info, {"words": [str(n) for n in range(10_000)], "id": "a"}) is None
    cases: list[tuple[Any, str]] = [
        ({"words": ["a", "b", "a"]}, "at $.words: ['a', 'b', 'a'] has non-unique elements"),
        ({"words": [*["a"] * 10_000, 1]}, "at $.words"),
        ({"id": "A"}, "at $.id: 'A' does not match '^[a-z]+$'"),
    ]
    for output, where in cases:
        fault = await schema_error(info, output)
        assert fault is not None
        assert where in fault.message


async def test_a_run_with_invalid_output_fails_with_the_reason(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(RegisteredAgent(info=AgentInfo(name="a", schemas={"output": SCHEMA}), agent=agent))
    receipt = await submit(hub, "a")
    (await agent.called()).end(RunEnded(output={"n": "1"}))
    task = await ends(hub, receipt)
    assert task.state is TaskState.FAILED
    assert task.fault is not None and "does not fit its own schema" in task.fault.message
    receipt = await submit(hub, "a")
    (await agent.called()).end(RunEnded(output={"n": 1}))
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED


class Count(TypedDict):
    words: int


async def miscount(text: str) -> Count:
    return cast("Count", {"words": "many" if text == "wrong" else len(text.split())})


async def test_a_caller_receives_the_error_of_invalid_output(tmp_path: Path) -> None:
    async with running(tmp_path, {"miscount": miscount}) as gateway:
        for text, outcome in (("wrong", "failed"), ("one two", "completed")):
            message = {"role": "user", "parts": [{"content": text}]}
            response = await gateway.http.post("/acp/runs", json={"agent_name": "miscount", "input": [message]})
            assert response.json()["status"] == outcome
            assert ("does not fit its own schema" in response.text) == (outcome == "failed")
