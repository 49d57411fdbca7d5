"""A page of another site that knows the ids of a run: what it may have a browser get does not end the run."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.gateway.hubs import within
from tests.running import Running, running

FOREIGN: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "an image": ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}),
    "a window": ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}),
    "a port of this machine": ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
    "a HEAD": ("HEAD", {}),
}
OWN: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "the SDK": ("GET", {}),
    "a page of this machine": ("GET", {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}),
}
PATHS: Final = ("join", "wait", "stream")


class Agent:
    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, text: str) -> str:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return f"{text} to the end"


async def left(gateway: Running, method: str, path: str, headers: Mapping[str, str]) -> None:
    """Ask for the run, and leave as soon as the answer begins."""
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, verify=False) as http:
        params = {"cancel_on_disconnect": "1"}
        async with http.stream(method, path, headers=dict(headers), params=params, timeout=30) as response:
            assert response.status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("method", "headers"), FOREIGN.values(), ids=list(FOREIGN))
async def test_a_run_goes_on_when_a_page_that_asked_for_it_leaves(
    tmp_path: Path, path: str, method: str, headers: Mapping[str, str]
) -> None:
    agent = Agent()
    async with running(tmp_path, {"slow": agent.__call__}) as gateway:
        at = await started(gateway)
        await left(gateway, method, f"{at}/{path}", headers)
        for _ in range(30):  # time in which the cancel would have come
            await gateway.http.get("/healthz")
        assert not agent.cancelled.is_set()
        agent.go.set()
        state = (await within(gateway.http.get(f"{at}/join"), "the end")).json()
        assert state["messages"][-1]["content"] == "hello to the end"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("method", "headers"), OWN.values(), ids=list(OWN))
async def test_a_caller_who_may_call_may_have_the_run_end_with_the_request(
    tmp_path: Path, path: str, method: str, headers: Mapping[str, str]
) -> None:
    agent = Agent()
    async with running(tmp_path, {"slow": agent.__call__}) as gateway:
        await left(gateway, method, f"{await started(gateway)}/{path}", headers)
        await within(agent.cancelled.wait(), "the cancel")


async def started(gateway: Running) -> str:
    """The path of a run that is at work."""
    thread = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    body = {"assistant_id": "slow", "input": "hello"}
    run = (await gateway.http.post(f"/threads/{thread}/runs", json=body)).json()["run_id"]
    return f"/threads/{thread}/runs/{run}"
