"""Browser requests from a page of another site that knows the ids of a run: they do not end the run."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final

import httpx
import pytest
import pytest_asyncio

from tests.gateway.hubs import within
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOREIGN: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "an image": ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}),
    "a window": ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}),
    "a port of this machine": ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
    "a HEAD": ("HEAD", {}),
}
REQUESTS_OF_CALLER: Final[Mapping[str, Mapping[str, str]]] = {
    "the SDK": {},
    "a page of this machine": {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
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


@dataclass(frozen=True)
class Site:
    gateway: Running
    agent: Agent

    async def leave(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        """Start a run, disconnect from the request as soon as its response begins, and return the run's path."""
        self.agent.go.clear()
        self.agent.cancelled.clear()
        http = self.gateway.http
        thread = (await http.post("/threads", json={})).json()["thread_id"]
        body = {"assistant_id": "slow", "input": "hello"}
        run = (await http.post(f"/threads/{thread}/runs", json=body)).json()["run_id"]
        at = f"/threads/{thread}/runs/{run}"
        async with httpx.AsyncClient(base_url=self.gateway.url, trust_env=False, verify=False) as page:
            params = {"cancel_on_disconnect": "1"}
            async with page.stream(method, f"{at}/{path}", headers=headers, params=params, timeout=30) as response:
                assert response.status_code == 200
        return at


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    agent = Agent()
    async with running(tmp_path_factory.mktemp("pages"), {"slow": agent.__call__}) as gateway:
        yield Site(gateway, agent)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("method", "headers"), FOREIGN.values(), ids=list(FOREIGN))
async def test_a_run_continues_when_a_foreign_page_disconnects(
    site: Site, path: str, method: str, headers: Mapping[str, str]
) -> None:
    at = await site.leave(method, path, headers)
    for _ in range(30):  # enough time for a cancel to arrive
        await site.gateway.http.get("/healthz")
    assert not site.agent.cancelled.is_set()
    site.agent.go.set()
    state = (await within(site.gateway.http.get(f"{at}/join"), "the end")).json()
    assert state["messages"][-1]["content"] == "hello to the end"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", REQUESTS_OF_CALLER.values(), ids=list(REQUESTS_OF_CALLER))
async def test_a_run_ends_when_only_its_caller_disconnects(site: Site, path: str, headers: Mapping[str, str]) -> None:
    await site.leave("GET", path, headers)
    await within(site.agent.cancelled.wait(), "the cancel")
