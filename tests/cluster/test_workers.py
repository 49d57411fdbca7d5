"""Several workers behind one port: processes of one gateway on one database."""

import asyncio
import os
import select
import signal
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.test_processes import Caller, message, output_text
from tests.gateway.command import BOUND, Served, babelgate, served
from tests.gateway.hubs import within
from tests.gateway.stage import Puppets, puppets
from tests.postgres import empty, url_of

pytestmark = pytest.mark.slow

SETTINGS = """
workers: 2
database: {database}
keys: {{alice: a-key}}
agents:
  echo: {{python: babelgate.gateway.demo:echo}}
  ask: {{python: babelgate.gateway.demo:ask}}
  paced: {{python: tests.gateway.victim:paced, idempotent: true}}
"""


@pytest.fixture
async def strings() -> AsyncGenerator[Puppets]:
    async with puppets() as controls:
        yield controls
        controls.end_all()


@pytest.fixture
def gateway(postgres_tables: str, tmp_path: Path, strings: Puppets) -> Generator[Served]:
    empty(postgres_tables)
    (tmp_path / "babelgate.yaml").write_text(SETTINGS.format(database=url_of(postgres_tables)))
    with served(tmp_path, BABELGATE_SHUTDOWN__GRACE="60") as running:
        yield running


class Port:
    """Connections to one port, each of which stays with the worker that accepted it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._all: list[httpx.AsyncClient] = []

    async def connect(self) -> tuple[int, httpx.AsyncClient]:
        """Open a connection, and return it with the id of the worker's process."""
        http = httpx.AsyncClient(base_url=self._url, headers={"X-Api-Key": "a-key"}, timeout=30, trust_env=False)
        self._all.append(http)
        ready = (await http.get("/readyz")).raise_for_status().json()
        return int(ready["node"].rpartition(":")[2]), http

    async def workers(self, count: int = 2, *, but: int = 0) -> dict[int, httpx.AsyncClient]:
        """Return one connection to each of `count` processes, without the process `but`."""
        found: dict[int, httpx.AsyncClient] = {}

        async def look() -> None:
            while len(found) < count:
                pid, http = await self.connect()
                if pid != but:
                    found.setdefault(pid, http)

        await within(look(), f"{count} workers")
        return found

    async def close(self) -> None:
        for http in self._all:
            await http.aclose()


@pytest.fixture
async def port(gateway: Served) -> AsyncGenerator[Port]:
    connections = Port(gateway.url)
    yield connections
    await connections.close()


async def test_connections_are_spread_over_the_workers(gateway: Served, port: Port) -> None:
    counts: dict[int, int] = {}
    for _ in range(200):
        pid, http = await port.connect()
        counts[pid] = counts.get(pid, 0) + 1
        await http.aclose()
    assert len(counts) == 2 and min(counts.values()) >= 60, counts  # randomly less only once in a hundred million times
    assert gateway.process.pid not in counts
    assert "2 processes" in gateway.table
    log = gateway.stop()
    assert gateway.process.returncode == 0, log
    assert gateway.table.count("serves http") == 1 and "Traceback" not in log


async def test_a_run_is_streamed_and_answered_through_another_worker(port: Port, strings: Puppets) -> None:
    (_, one), (_, other) = (await port.workers()).items()
    run, paused = Caller("paced"), Caller("ask")
    await run.begin(one, "going")
    puppet = await strings.called("going")
    path, accepts = f"/acp/runs/{run.run_id}/events", {"Accept": "text/event-stream"}
    async with other.stream("GET", path, headers=accepts) as stream:
        lines = stream.aiter_lines()

        async def heard(words: str) -> None:
            while words not in await anext(lines):
                pass

        for _ in range(3):
            puppet.say()
            await within(heard(puppet.words[-1].strip()), "a word of the other worker's run")
        puppet.end()
        await within(heard("run.completed"), "its end")
    await paused.begin(one, "hello")
    await paused.reaches(other, "awaiting")
    answer = {"run_id": paused.run_id, "mode": "sync", "await_resume": {"message": message("Ada")}}
    answered = (await other.post(f"/acp/runs/{paused.run_id}", json=answer)).raise_for_status().json()
    assert output_text(answered).endswith("Hello, Ada.")


async def test_a_killed_worker_is_restarted_and_loses_nothing(gateway: Served, port: Port, strings: Puppets) -> None:
    (first, one), (second, other) = (await port.workers()).items()
    run, earlier = Caller("paced"), Caller("echo")
    await earlier.begin(one, "kept")
    await earlier.reaches(one, "completed")
    await run.begin(one, "going")
    puppet = await strings.called("going")
    puppet.say(2)
    os.kill(first, signal.SIGKILL)
    await asyncio.to_thread(gateway.logged, f"(process {first}) was killed by SIGKILL: it is started again")
    again = await within(strings.called("going", 2), "the second attempt")
    again.say(4)
    again.end()
    assert output_text(await run.reaches(other, "completed")) == again.content
    assert output_text(await earlier.reaches(other, "completed")) == "kept"
    back = set(await port.workers(but=first))
    assert second in back and first not in back and len(back) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_workers_after_their_responses(
    gateway: Served, port: Port, strings: Puppets, number: int
) -> None:
    workers = await port.workers()
    waiting = [
        asyncio.ensure_future(
            http.post("/acp/runs", json={"agent_name": "paced", "mode": "stream", "input": [message(str(pid))]})
        )
        for pid, http in workers.items()
    ]
    puppets = [await strings.called(str(pid)) for pid in workers]
    for puppet in puppets:
        puppet.say(2)
    gateway.process.send_signal(number)
    for puppet in puppets:
        puppet.end()
    for answer in await asyncio.gather(*waiting):
        assert answer.status_code == 200
        assert "run.completed" in answer.text
    log = await asyncio.to_thread(gateway.end)
    assert gateway.process.returncode == 0, log
    assert "Traceback" not in log
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_workers_end_with_the_process_that_started_them(gateway: Served, port: Port) -> None:
    ends = [os.pidfd_open(pid) for pid in await port.workers()]
    gateway.process.kill()
    for end in ends:
        ready, _, _ = await asyncio.to_thread(select.select, [end], [], [], BOUND)
        os.close(end)
        assert ready, "a worker goes on"


async def test_any_worker_serves_an_mcp_client_with_elicitation(port: Port) -> None:
    capabilities: dict[str, dict[str, Any]] = {"elicitation": {}, "sampling": {}}
    params: dict[str, Any] = {
        "protocolVersion": "2025-06-18",
        "capabilities": capabilities,
        "clientInfo": {"name": "test", "version": "1"},
    }
    accepts = {"Accept": "application/json, text/event-stream"}
    (_, one), (_, other) = (await port.workers()).items()
    opened = await one.post(
        "/mcp", headers=accepts, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    )
    headers = {**accepts, "Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
    call = {"name": "echo", "arguments": {"message": "Hello"}}
    for http in (one, other):
        answer = await http.post(
            "/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        )
        assert answer.status_code == 200 and "Hello" in answer.text


def test_a_worker_that_keeps_failing_ends_the_gateway(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    source = "import os, pathlib\nif pathlib.Path('broken').exists(): os._exit(7)\ndef agent(text): return text\n"
    (tmp_path / "fragile.py").write_text(source)
    with served(tmp_path, "--workers", "2", "--database", url_of(postgres_tables), "fragile:agent") as gateway:
        (tmp_path / "broken").touch()
        with httpx.Client(base_url=gateway.url, trust_env=False) as http:
            assert http.get("/healthz").status_code == 200
        line = gateway.logged("worker 1 (process")
        os.kill(int(line.split("(process ")[1].split(")")[0]), signal.SIGKILL)
        log = gateway.end()
    assert gateway.process.returncode == 1
    assert "ended with status 7, and has ended 5 times in a row within 10 seconds of its start" in log
    assert "Traceback" not in log


def test_workers_need_postgresql(tmp_path: Path) -> None:
    done = babelgate(tmp_path, "serve", "--workers", "2", "--port", "0")
    assert done.returncode == 2
    assert "several workers need PostgreSQL" in done.stderr and "postgresql://" in done.stderr


def test_a_startup_error_is_reported_once(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    done = babelgate(
        tmp_path, "serve", "--workers", "2", "--port", "0", "--database", url_of(postgres_tables), "missing:agent"
    )
    assert done.returncode == 1
    assert done.stderr.count("no agent works") == 1 and "could not be started" in done.stderr


def test_a_port_of_workers_is_not_shared_with_another_gateway(
    gateway: Served, postgres_tables: str, tmp_path: Path
) -> None:
    port = gateway.url.rpartition(":")[2]
    for workers in "12":
        done = babelgate(
            tmp_path,
            "serve",
            "--workers",
            workers,
            "--port",
            port,
            "--database",
            url_of(postgres_tables),
            "x=babelgate.gateway.demo:echo",
        )
        assert done.returncode == 1 and f"port {port} of 127.0.0.1 is in use" in done.stderr
