"""Runs that crash the gateway: how often they are started again, and what happens to other runs."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.command import BOUND, Served, served

AGENTS = """
import asyncio, os, pathlib, signal

def note(name):
    with open(name, "a") as file:
        file.write("x")

async def deadly(text: str) -> str:
    note("deadly")
    os.kill(os.getpid(), signal.SIGKILL)

async def good(text: str) -> str:
    note("good")
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return "done"
"""
SETTINGS = """
agents:
  good: {python: "mixed:good", idempotent: true}
  deadly: {python: "mixed:deadly", idempotent: true}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mixed.py").write_text(AGENTS)
    (tmp_path / "babelgate.yaml").write_text(SETTINGS)
    return tmp_path


def create(running: Served, agent: str) -> str:
    body = {"agent_name": agent, "mode": "async", "input": [{"role": "user", "parts": [{"content": "x"}]}]}
    try:
        return httpx.post(f"{running.url}/acp/runs", json=body, timeout=BOUND).json()["run_id"]
    except httpx.RemoteProtocolError:  # the run was faster than its answer
        return ""


def runs(running: Served, agent: str) -> list[dict[str, Any]]:
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    answer = httpx.post(f"{running.url}/a2a/{agent}", json=call, headers={"A2A-Version": "1.0"}, timeout=BOUND)
    return answer.json()["result"]["tasks"]


def state(running: Served, agent: str) -> str:
    return runs(running, agent)[0]["status"]["state"]


def wait_for(running: Served, agent: str, wanted: str) -> None:
    for _ in range(10_000):  # each poll is a call
        if state(running, agent) == wanted:
            return
    raise AssertionError(f"{agent} did not become {wanted}")


def test_a_run_that_crashes_the_gateway_is_started_three_times(folder: Path) -> None:
    with served(folder) as first:
        create(first, "good")
        create(first, "deadly")
        first.end()
    _die(folder)
    (folder / "go").touch()
    _die(folder)
    with served(folder) as last:
        wait_for(last, "good", "TASK_STATE_COMPLETED")
        failed = runs(last, "deadly")[0]["status"]
    assert failed["state"] == "TASK_STATE_FAILED"
    assert "ended 3 times while it ran this" in str(failed)
    assert (folder / "deadly").read_text() == "xxx"


def _die(folder: Path) -> None:
    """Start a gateway, which is killed by a run that it recovers."""
    with suppress(AssertionError), served(folder) as running:  # it may not be ready before it is dead
        running.process.wait(BOUND)


def test_a_stop_does_not_count_as_a_crash(folder: Path) -> None:
    with served(folder) as running:
        create(running, "good")
        wait_for(running, "good", "TASK_STATE_WORKING")
        running.stop()
    for _ in range(4):
        with served(folder) as running:
            wait_for(running, "good", "TASK_STATE_WORKING")
            running.stop()
    (folder / "go").touch()
    with served(folder) as running:
        wait_for(running, "good", "TASK_STATE_COMPLETED")
