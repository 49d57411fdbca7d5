"""Load on a served gateway: ACP calls and streams of several clients, until a test ends them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from tests.gateway.command import BOUND
from tests.gateway.hubs import within


def run_body(agent: str, text: str = "hi", mode: str = "sync") -> dict[str, Any]:
    message = {"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}
    return {"agent_name": agent, "mode": mode, "input": [message]}


class Load:
    """Calls and streams of several clients until the test ends them. Any failure is raised at the end."""

    def __init__(self, url: str, agent: str, clients: Sequence[Mapping[str, str]]) -> None:
        """Create the load. `clients` are the headers of each client; every other one streams."""
        self._url = url
        self._agent = agent
        self._clients = clients
        self._is_over = asyncio.Event()
        self._calls: asyncio.Queue[None] = asyncio.Queue()
        self.calls = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as clients:
            for number, headers in enumerate(self._clients):
                clients.create_task(self._call(headers, stream=number % 2 == 0))

    def end(self) -> None:
        self._is_over.set()

    async def _call(self, headers: Mapping[str, str], *, stream: bool) -> None:
        body = run_body(self._agent, "one two three", "stream" if stream else "sync")
        async with httpx.AsyncClient(base_url=self._url, headers=headers, timeout=BOUND, trust_env=False) as http:
            while not self._is_over.is_set():
                response = await http.post("/acp/runs", json=body)
                assert response.status_code == 200, response.text
                assert "run.completed" in response.text if stream else response.json()["status"] == "completed"
                self.calls += 1
                self._calls.put_nowait(None)

    async def more(self, calls: int) -> None:
        """Wait until the load has completed as many further calls as `calls` says."""
        for _ in range(calls):
            await within(self._calls.get(), "a call")
