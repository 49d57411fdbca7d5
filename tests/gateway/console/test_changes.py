"""The stream of changes: hints about one's own runs, threads and agents, and about those of all owners."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.admin.administering import ACCESS, ALICE, OPS, two_nodes
from tests.gateway.console.reading import API, BOB, KEYS, shown
from tests.gateway.hubs import BOUND, within
from tests.postgres import empty, url_of
from tests.running import Running

Hint = dict[str, Any]


class Hints:
    """Hints of an open stream."""

    def __init__(self, lines: AsyncGenerator[str]) -> None:
        self._lines = lines
        self._read: list[Hint] = []

    async def next(self, seconds: float = BOUND) -> Hint:
        async def read() -> Hint:
            async for line in self._lines:
                if line.startswith("data: "):
                    self._read.append(json.loads(line.removeprefix("data: ")))
                    return self._read[-1]
            raise EOFError

        return await within(read(), "a hint", seconds)

    async def until(self, kind: str, thing: str | None, status: str | None = None, *, seconds: float = BOUND) -> Hint:
        """Return the first hint about a thing with this status. Hints about several things come in any order. `seconds`
        bounds the wait for each hint."""

        def is_wanted(hint: Hint) -> bool:
            return (hint["kind"], hint["id"]) == (kind, thing) and (status is None or hint["status"] == status)

        while (found := next(filter(is_wanted, self._read), None)) is None:
            await self.next(seconds)
        return found


@asynccontextmanager
async def following(gateway: Running, headers: Mapping[str, str] = ALICE, **query: Any) -> AsyncGenerator[Hints]:
    async with gateway.http.stream("GET", f"{API}/changes", headers=headers, params=query) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        assert await within(anext(lines), "the first line") == ": following"
        yield Hints(lines)  # type: ignore[arg-type]


async def test_a_run_is_hinted_to_its_owner_and_operators(tmp_path: Path) -> None:
    async with shown(tmp_path) as console:
        gateway = console.gateway
        async with (
            following(gateway) as alices,
            following(gateway, OPS, all=1) as all_owners,
            following(gateway, BOB) as bobs,
        ):
            run = await console.run("echo", "echo", "Hi")
            for hints in (alices, all_owners):
                hint = await hints.until("run", run["run_id"], "success")
                assert (hint["agent"], len(hint["at"])) == ("echo", 27)
            thread = await alices.until("thread", run["thread_id"])
            assert set(thread) == {"kind", "id", "status", "agent", "at"}
            of_bob = await console.run("of bob", "echo", "Hi", BOB)
            assert (await bobs.next())["id"] in (of_bob["run_id"], of_bob["thread_id"])
            deleted = await gateway.http.delete(f"/threads/{run['thread_id']}", headers=ALICE)
            assert deleted.status_code < 300, deleted.text
            await alices.until("thread", run["thread_id"], "erased")
            disabled = await gateway.http.post("/admin/agents/echo/disable", json={"reason": "x"}, headers=OPS)
            assert disabled.status_code == 200
            for hints in (alices, bobs):
                assert (await hints.until("agent", None))["kind"] == "agent"
        await console.refuse(403, "changes", all=1)
        await console.refuse(400, "changes", color="red")


async def test_rules_by_agent_apply_to_hints(tmp_path: Path) -> None:
    access = (*ACCESS[1:], {"who": "*", "agents": ["echo", "stream"], "allow": "*"})
    rules = [{**rule} for rule in access]
    async with shown(tmp_path, access=rules) as console:
        hub = console.gateway.hub
        async with following(console.gateway) as hints:
            hub.changes.note_agent("fail")
            hub.changes.note_agent("echo")
            assert (await hints.next())["id"] == "echo"


async def test_a_stream_ends_with_its_key_and_the_gateway(tmp_path: Path) -> None:
    async with shown(tmp_path) as console:
        gateway = console.gateway
        key = (await gateway.http.post("/admin/keys", json={"owner": "alice"}, headers=OPS)).json()
        async with following(gateway, {"X-Api-Key": key["key"]}) as hints:
            assert (await gateway.http.delete(f"/admin/keys/{key['id']}", headers=OPS)).status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                await hints.next()
        async with following(gateway) as hints:
            assert gateway.hub.changes.has_streams
            gateway.hub.close_readers()
            with pytest.raises(EOFError):
                await hints.next()
        assert not gateway.hub.changes.has_streams


async def test_a_run_of_another_node_is_hinted(tmp_path: Path, postgres_tables: str) -> None:
    empty(postgres_tables)
    async with two_nodes(tmp_path, url_of(postgres_tables), keys=KEYS) as (a, b), following(b) as hints:
        body = {"assistant_id": "echo", "input": "Hi"}
        run = (await a.http.post("/v1/runs", json=body, headers=ALICE)).json()
        hint = await hints.until("run", run["run_id"], "success")
        assert hint["agent"] == "echo"
        await b.http.get(f"{API}/runs/{run['run_id']}", headers=ALICE)
