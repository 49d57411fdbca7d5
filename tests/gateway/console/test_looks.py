"""Tests of the looks: each is an HTTP request that shows the run if it is sent unchanged, in whichever protocol the run
was started."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters import ADAPTERS
from babelgate.canonical import Ask, RunFilter
from babelgate.gateway import demo
from tests.pairs.caller import Caller
from tests.pairs.house import CALLERS
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
OWNER: Final = "default"
BOUND: Final = 20
"""Seconds in which a stream must end."""


async def held(text: str) -> AsyncGenerator[str]:
    """Wait in the middle of the answer until the run is cancelled."""
    yield "begun"
    await asyncio.Event().wait()


async def asks_twice(text: str) -> AsyncGenerator[Ask | str, Any]:
    first = yield Ask("First question?")
    second = yield Ask("Second question?")
    yield f"{first} and {second}"


AGENTS: Final = {
    **{name: getattr(demo, name) for name in demo.__all__},
    "held": held,
    "asks_twice": asks_twice,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("looks"), AGENTS) as gateway:
        yield gateway


async def looks_of(gateway: Running, run_id: str, base: str = "") -> list[dict[str, Any]]:
    response = await gateway.http.get(f"{base}/console/api/v1/runs/{run_id}/looks")
    assert response.status_code == 200, response.text
    return response.json()["items"]


async def newest_run(gateway: Running, task_id: str) -> str:
    task = await gateway.hub.reads.task(OWNER, task_id)
    runs = await gateway.hub.reads.runs(OWNER, RunFilter(thread_id=task.thread_id), limit=1)
    return (await runs.all())[0].run_id


async def start(gateway: Running, agent: str, text: str = "hello there", **body: Any) -> str:
    """Start a run over the minimal runtime and return its id."""
    response = await gateway.http.post("/v1/runs", json={"assistant_id": agent, "input": text, **body})
    assert response.is_success, response.text
    return response.headers["babelgate-run"]


async def send(gateway: Running, look: dict[str, Any], base: str = "") -> httpx.Response:
    """Send the request of a look as it is, and read the response to its end."""
    request = look["request"]
    body = {} if request["body"] is None else {"json": request["body"]}
    async with asyncio.timeout(BOUND):
        response = await gateway.http.request(
            request["method"], base + request["path"], headers=request["headers"], **body
        )
    assert response.status_code == 200, (look["title"], response.text)
    is_stream = response.headers["content-type"].startswith("text/event-stream")
    assert is_stream == (look["form"] == "stream"), look["title"]
    return response


def versions(looks: Sequence[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(look["protocol"], look["version"]) for look in looks}


ALL: Final = {(adapter.name, version) for adapter in ADAPTERS if adapter.name != "toy" for version in adapter.versions}


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
async def test_each_look_shows_a_run_of_any_protocol(gateway: Running, caller: type[Caller]) -> None:
    view = await caller(gateway.http, "stream").run_to_end("hello there")
    looks = await looks_of(gateway, await newest_run(gateway, view.task_id))
    assert versions(looks) >= ALL
    for look in looks:
        if "why_not" in look:
            assert "request" not in look and len(look["why_not"]) > 30
        else:
            response = await send(gateway, look)
            words = [word for word in ("hello", "there") if word not in response.text]
            assert not words, (look["title"], response.text)
    assert not [look["title"] for look in looks if "why_not" in look and caller.speaks == look["protocol"] == "a2a"]


@pytest.mark.parametrize("agent", ["echo", "steps", "tools", "json", "files", "approve", "fail"])
async def test_losses_of_looks_include_those_of_responses(gateway: Running, agent: str) -> None:
    run_id = await start(gateway, agent)
    for look in await looks_of(gateway, run_id):
        if "why_not" in look:
            assert agent == "fail" and look["version"] in ("chat-completions", "2023-06-01")
            continue
        reported = re.findall(r'([a-z0-9-]+)="', (await send(gateway, look)).headers.get("babelgate-loss", ""))
        assert set(reported) <= {loss["feature"] for loss in look["losses"]}, look["title"]
        assert all(loss["how"] for loss in look["losses"]), look["title"]


async def test_runtime_and_plain_text_lose_nothing(gateway: Running) -> None:
    losses = {look["title"]: look["losses"] for look in await looks_of(gateway, await start(gateway, "stream"))}
    assert set(map(str, losses.values())) == {"[]"}
    steps = {look["title"]: look["losses"] for look in await looks_of(gateway, await start(gateway, "steps"))}
    assert [title for title, lost in steps.items() if not lost] == [
        *("ACP events", "A2A 0.3 tasks/resubscribe", "A2A 1.0 SubscribeToTask", "Runtime run", "Runtime stream"),
        *("Anthropic message", "Anthropic message stream", "MCP tasks/get", "UI messages", "UI message stream"),
        "AG-UI events",
        "Agent Client Protocol session",
    ]
    assert steps["LangGraph join"][0]["feature"] == "step"


async def test_looks_at_a_running_run_show_its_beginning(gateway: Running) -> None:
    run_id = await start(gateway, "held", background=True)
    try:
        looks = {look["title"]: look for look in await looks_of(gateway, run_id)}
        assert "has ended" in looks["OpenAI chat completion"]["why_not"]
        for title in ("ACP run", "A2A 1.0 GetTask", "LangGraph run", "Agent Protocol run", "Runtime run"):
            await send(gateway, looks[title])
        stream = looks["Runtime stream"]["request"]
        async with (
            asyncio.timeout(BOUND),
            gateway.http.stream("GET", stream["path"], headers=stream["headers"]) as response,
        ):
            async for line in response.aiter_lines():
                if "begun" in line:
                    break
    finally:
        await gateway.http.post(f"/v1/runs/{run_id}/cancel")


async def test_looks_follow_a_run_until_it_has_ended(gateway: Running) -> None:
    run_id = await start(gateway, "asks_twice")
    titles = [look["title"] for look in await looks_of(gateway, run_id)]
    assert "LangGraph join" in titles
    for look in await looks_of(gateway, run_id):
        assert "First question?" in (await send(gateway, look)).text, look["title"]


async def test_a_stateless_run_is_not_stored_for_openai(gateway: Running) -> None:
    body = {"assistant_id": "stream", "input": {"messages": [{"role": "user", "content": "hello there"}]}}
    response = await gateway.http.post("/runs/wait", json=body)
    looks = await looks_of(gateway, response.headers["babelgate-run"])
    assert {look["protocol"] for look in looks if "why_not" in look} == {"openai"}
    assert {look["why_not"] for look in looks if "why_not" in look} == {
        "The run is on a stateless thread, and OpenAI's API finds only what was stored."
    }
    stored: dict[str, Any] = {"model": "stream", "input": "hello there", "store": False, "metadata": {}}
    response = await gateway.http.post("/v1/responses", json=stored)
    looks = await looks_of(gateway, response.headers["babelgate-run"])
    assert {look["protocol"] for look in looks if "why_not" in look} == {"openai"}


async def test_paths_are_relative_to_the_agent_that_was_addressed(gateway: Running) -> None:
    run_id, base = await start(gateway, "stream"), "/agent/stream"
    for look in await looks_of(gateway, run_id, base):
        assert "hello" in (await send(gateway, look, base)).text, look["title"]


async def test_a_run_that_does_not_exist_has_no_looks(gateway: Running) -> None:
    response = await gateway.http.get("/console/api/v1/runs/01a22394-b5a7-7719-bfc9-f62c5229a78f/looks")
    assert response.status_code == 404


async def test_looks_of_another_owner_are_not_found(tmp_path: Path) -> None:
    keys = {"alice": "key-of-alice", "bob": "key-of-bob"}
    async with running(tmp_path, {"echo": demo.echo}, keys=keys) as gateway:
        gateway.http.headers["X-Api-Key"] = "key-of-alice"
        run_id = await start(gateway, "echo")
        path = f"/console/api/v1/runs/{run_id}/looks"
        assert (await gateway.http.get(path)).status_code == 200
        gateway.http.headers["X-Api-Key"] = "key-of-bob"
        assert (await gateway.http.get(path)).status_code == 404
