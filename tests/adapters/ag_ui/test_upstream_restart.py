"""Restart of the gateway during a run on an AG-UI server. No server can repeat its stream, so the run fails, or starts
again if the agent is `idempotent`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.hubs import within
from tests.pairs.ag_ui import events_of
from tests.running import Running, running

BODY = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "go"}]}


class Held:
    """Agent that sends half of its answer, and then waits. From its second run on it sends the whole answer."""

    def __init__(self) -> None:
        self.runs = 0
        self.left = asyncio.Event()

    async def __call__(self, text: str) -> AsyncGenerator[str]:
        self.runs += 1
        yield "half"
        try:
            if self.runs == 1:
                await asyncio.Event().wait()
        finally:
            self.left.set()
        yield " whole"


@asynccontextmanager
async def gateway(folder: Path, upstream: Running, **settings: Any) -> AsyncGenerator[Running]:
    held = {"url": f"{upstream.url}/ag-ui/held", "protocol": "ag-ui", **settings}
    async with running(folder, configured={"held": held}) as started:
        yield started


@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_restart_ends_a_run_clearly_or_repeats_it(tmp_path: Path, is_idempotent: bool) -> None:
    agent = Held()
    for name in ("upstream", "front"):
        (tmp_path / name).mkdir()
    async with running(tmp_path / "upstream", {"held": agent}) as upstream:
        async with (
            gateway(tmp_path / "front", upstream, idempotent=is_idempotent) as front,
            front.http.stream("POST", "/ag-ui/held", json=BODY) as response,
        ):
            async for line in response.aiter_lines():
                if "half" in line:
                    break
        await within(agent.left.wait())  # closing the connection cancels the run there
        async with gateway(tmp_path / "front", upstream, idempotent=is_idempotent) as front:
            response = await front.http.post("/ag-ui/held/connect", json={"threadId": "t", "runId": "r"})
            events = events_of(response)
    assert agent.runs == 1 + is_idempotent
    if is_idempotent:
        assert events[-1]["type"] == "RUN_FINISHED"
        assert "".join(each.get("delta", "") for each in events).endswith("half whole")
    else:
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "gateway_restarted")
        assert "idempotent" in events[-1]["message"]
