"""From AIEF to AIEF: what another server tells beside its steps is told on as it came."""

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
OURS = {"task_id", "step_id", "input", "additional_input", "artifacts", "created_at", "additional_output.babelgate"}
"""Paths of what is the gateway's."""


@pytest.fixture
async def gateway(far: Far, http: httpx.AsyncClient, tmp_path: Path) -> AsyncGenerator[Running]:
    registered = RegisteredAgent(AgentInfo(name="far"), Client(far.url, http=http))
    async with running(tmp_path, registered={"far": registered}) as made:
        yield made


async def stepped(gateway: Running) -> list[httpx.Response]:
    """The answers to a task's steps, up to the last."""
    base = "/agent/far/ap/v1/agent/tasks"
    task = (await gateway.http.post(base, json={"input": "Go"})).json()
    answers: list[httpx.Response] = []
    while not answers or not answers[-1].json()["is_last"]:
        answers.append(await gateway.http.post(f"{base}/{task['task_id']}/steps", json={}))
    return answers


@pytest.mark.parametrize("name", ["plan", None])
async def test_a_step_is_shown_as_its_server_shows_it(far: Far, gateway: Running, name: str | None) -> None:
    far.steps = [
        step("Looking", last=False, name=name or "step 1", additional_output=THINKS),
        step("Found", name=name or "step 2", additional_output=DONE),
    ]
    for theirs, answer in zip(far.steps, await stepped(gateway), strict=True):
        assert [each for each in differences(theirs, answer.json()) if each[1:] not in OURS] == []


async def test_the_only_step_is_shown_as_its_server_shows_it(far: Far, gateway: Running) -> None:
    far.steps = [step("Found", additional_output=DONE)]
    [answer] = await stepped(gateway)
    shown = answer.json()
    assert shown["additional_output"] == {**DONE, "babelgate": shown["additional_output"]["babelgate"]}


UNKNOWN: dict[str, Any] = {"x_step": {"k": [1, "ü", None]}, "x_null": None}


@pytest.mark.parametrize("names", [("plan", "act"), (None, None)])
async def test_members_of_a_step_that_the_document_does_not_have_are_shown(
    far: Far, gateway: Running, names: tuple[str | None, str | None]
) -> None:
    first, second = names
    far.steps = [{**step("Looking", last=False, name=first), **UNKNOWN}, {**step("Found", name=second), "x_step": 2}]
    for theirs, answer in zip((UNKNOWN, {"x_step": 2}), await stepped(gateway), strict=True):
        assert {name: value for name, value in answer.json().items() if name.startswith("x_")} == theirs


async def test_members_that_are_too_large_are_left_out_and_named_as_lost(far: Far, gateway: Running) -> None:
    far.steps = [{**step("Found"), "x_step": "x" * 70_000}]
    [answer] = await stepped(gateway)
    assert "x_step" not in answer.json()
    assert "too large" in answer.headers["Babelgate-Loss"]
