"""Pass-through from AIEF to AIEF: additional output and unspecified members of steps are forwarded unchanged."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.adapters.aief.client import Client
from babelgate.canonical import AgentInfo
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.aief.far import Far, step
from tests.difference import differences
from tests.running import Running, running

THINKS: dict[str, Any] = {
    "thoughts": {"text": "I should look.", "speak": "Wait"},
    "use_tool": {"name": "look", "arguments": {"at": "x"}},
    "task_cumulative_cost": 0.12,
}
DONE: dict[str, Any] = {"last_action": {"name": "look", "args": {}, "result": [1, None]}, "task_total_cost": 0.34}
GATEWAY_PATHS = {
    "task_id",
    "step_id",
    "input",
    "additional_input",
    "artifacts",
    "created_at",
    "additional_output.babelgate",
}
"""Paths of the members that the gateway sets."""


@pytest.fixture
async def gateway(far: Far, http: httpx.AsyncClient, tmp_path: Path) -> AsyncGenerator[Running]:
    registered = RegisteredAgent(AgentInfo(name="far"), Client(far.url, http=http))
    async with running(tmp_path, registered={"far": registered}) as gateway:
        yield gateway


async def stepped(gateway: Running) -> list[httpx.Response]:
    """Execute all steps of a task, and return the responses."""
    base = "/agent/far/ap/v1/agent/tasks"
    task = (await gateway.http.post(base, json={"input": "Go"})).json()
    answers: list[httpx.Response] = []
    while not answers or not answers[-1].json()["is_last"]:
        answers.append(await gateway.http.post(f"{base}/{task['task_id']}/steps", json={}))
    return answers


@pytest.mark.parametrize("name", ["plan", None])
async def test_a_step_equals_that_of_the_upstream(far: Far, gateway: Running, name: str | None) -> None:
    far.steps = [
        step("Looking", last=False, name=name or "step 1", additional_output=THINKS),
        step("Found", name=name or "step 2", additional_output=DONE),
    ]
    for expected, answer in zip(far.steps, await stepped(gateway), strict=True):
        assert [each for each in differences(expected, answer.json()) if each[1:] not in GATEWAY_PATHS] == []


async def test_a_single_step_equals_that_of_the_upstream(far: Far, gateway: Running) -> None:
    far.steps = [step("Found", additional_output=DONE)]
    [answer] = await stepped(gateway)
    output = answer.json()["additional_output"]
    assert output == {**DONE, "babelgate": output["babelgate"]}


UNKNOWN: dict[str, Any] = {"x_step": {"k": [1, "ü", None]}, "x_null": None}


@pytest.mark.parametrize("names", [("plan", "act"), (None, None)])
async def test_unspecified_members_of_a_step_are_forwarded(
    far: Far, gateway: Running, names: tuple[str | None, str | None]
) -> None:
    first, second = names
    far.steps = [{**step("Looking", last=False, name=first), **UNKNOWN}, {**step("Found", name=second), "x_step": 2}]
    for expected, answer in zip((UNKNOWN, {"x_step": 2}), await stepped(gateway), strict=True):
        assert {name: value for name, value in answer.json().items() if name.startswith("x_")} == expected


async def test_too_large_members_of_a_step_are_a_loss(far: Far, gateway: Running) -> None:
    far.steps = [{**step("Found"), "x_step": "x" * 70_000}]
    [answer] = await stepped(gateway)
    assert "x_step" not in answer.json()
    assert "too large" in answer.headers["Babelgate-Loss"]
