"""A gateway with runs of two owners, and what its console shows of them."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.gateway.admin.administering import ALICE, OPS, administered
from tests.running import Running

API: Final = "/console/api/v1"
BOB: Final = {"X-Api-Key": "key-of-bob"}
KEYS: Final[Mapping[str, Any]] = {
    "ops": {"key": "key-of-ops", "groups": ["ops"]},
    "alice": "key-of-alice",
    "bob": "key-of-bob",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A gateway and the ids of its runs by name."""

    gateway: Running
    runs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """JSON of each run as the minimal runtime returned it, by the name that a test gave to the run."""

    async def get(self, path: str, headers: Mapping[str, str] = ALICE, /, **query: Any) -> Any:
        """Return the JSON of a successful read."""
        response = await self.answer(path, headers, **query)
        assert response.status_code == 200, response.text
        return response.json()

    async def answer(self, path: str, headers: Mapping[str, str] = ALICE, /, **query: Any) -> httpx.Response:
        return await self.gateway.http.get(f"{API}/{path}", headers=headers, params=query)

    async def refuse(self, status: int, path: str, headers: Mapping[str, str] = ALICE, /, **query: Any) -> str:
        """Return the message of a refused read."""
        response = await self.answer(path, headers, **query)
        assert response.status_code == status, response.text
        return response.json()["error"]["message"]

    async def run(
        self, name: str, agent: str, text: Any, headers: Mapping[str, str] = ALICE, thread_id: str | None = None
    ) -> dict[str, Any]:
        """Run an agent until it has stopped, store the run under `name`, and return it."""
        path = "/v1/runs" if thread_id is None else f"/v1/threads/{thread_id}/runs"
        body = {"assistant_id": agent, "input": text}
        response = await self.gateway.http.post(path, json=body, headers=headers)
        assert response.status_code == 200, response.text
        self.runs[name] = response.json()
        return self.runs[name]

    def name_of(self, run_id: str) -> str:
        return next(name for name, run in self.runs.items() if run["run_id"] == run_id)


@asynccontextmanager
async def shown(folder: Path, agents: Mapping[str, Any] | None = None, **settings: Any) -> AsyncGenerator[Shown]:
    """Serve a gateway with an operator and two other owners."""
    async with administered(folder, agents, keys=KEYS, **settings) as gateway:
        yield Shown(gateway)


__all__ = ("ALICE", "API", "BOB", "OPS", "Shown", "shown")
