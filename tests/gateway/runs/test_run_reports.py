"""Reports about runs: each run of a gateway is reported once, with its agent, protocol and outcome."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.canonical.event import RunEnded
from babelgate.gateway.runs.run_reports import count_tokens
from tests.bridge import client
from tests.gateway.reports import Recorder
from tests.opened import opened

RUNS = ("run_started", "first_event", "run_ended", "tokens")


async def failing(_: str) -> str:
    raise RuntimeError("broken")


async def words(text: str) -> AsyncGenerator[str]:
    for word in text.split():
        yield word


async def counted(text: str) -> AsyncGenerator[Any]:
    yield text
    yield RunEnded(usage={"input_tokens": 3, "output_tokens": 5})


async def run(http: httpx.AsyncClient, agent: str, **more: Any) -> dict[str, Any]:
    body = {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": "Hello you"}]}], **more}
    return (await http.post("/acp/runs", json=body)).json()


async def test_runs_are_reported_with_agent_protocol_and_outcome(tmp_path: Path):
    observer = Recorder()
    agents = {"words": words, "failing": failing, "counted": counted}
    async with opened(tmp_path, agents, observer=observer) as gateway, client(gateway.app) as http:
        for agent in agents:
            await run(http, agent)
    assert observer.of(*RUNS) == [
        ("run_started", "words"),
        ("first_event", "words", "acp"),
        ("run_ended", "words", "acp", "success"),
        ("run_started", "failing"),
        ("run_ended", "failing", "acp", "error"),
        ("run_started", "counted"),
        ("first_event", "counted", "acp"),
        ("run_ended", "counted", "acp", "success"),
        ("tokens", "counted", "input"),
        ("tokens", "counted", "output"),
    ]
    assert [report[-1] for report in observer.reports if report[0] == "tokens"] == [3.0, 5.0]
    times = [report[-1] for report in observer.reports if report[0] in RUNS[:3]]
    assert all(isinstance(seconds, float) and 0 <= seconds < 60 for seconds in times)


async def test_paused_run_and_its_answer_are_two_reported_runs(tmp_path: Path):
    observer = Recorder()
    async with opened(tmp_path, observer=observer) as gateway, client(gateway.app) as http:
        paused = await run(http, "ask")
        assert paused["status"] == "awaiting"
        answer = {
            "run_id": paused["run_id"],
            "mode": "sync",
            "await_resume": {"role": "user", "parts": [{"content": "1"}]},
        }
        await http.post(f"/acp/runs/{paused['run_id']}", json=answer)
    outcomes = observer.of("run_ended")
    assert outcomes == [("run_ended", "ask", "acp", "paused"), ("run_ended", "ask", "acp", "success")]


async def test_run_that_never_started_is_reported_as_cancelled(tmp_path: Path):
    observer = Recorder()
    async with opened(tmp_path, observer=observer) as gateway, client(gateway.app) as http:
        thread = (await http.post("/threads", json={})).json()["thread_id"]
        path = f"/threads/{thread}/runs"
        body: dict[str, Any] = {"assistant_id": "echo", "input": {"messages": []}, "after_seconds": 600}
        created = (await http.post(path, json=body)).json()
        await http.post(f"{path}/{created['run_id']}/cancel")
    assert observer.of(*RUNS) == [("run_ended", "echo", "langgraph", "cancelled", None)]


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 2}, {"input": 7, "output": 2}),
        ({"gpt": {"input_tokens": 1}, "o1": {"input_tokens": 2, "output_tokens": 4}}, {"input": 3, "output": 4}),
        ({"input_tokens": True, "output_tokens": -1}, {}),
        ({}, {}),
    ],
)
def test_tokens_are_counted_under_each_name(usage: dict[str, Any], tokens: dict[str, float]):
    assert count_tokens(usage) == tokens
