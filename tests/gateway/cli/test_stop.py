"""Tests of SIGTERM during runs: which runs end by themselves, which are cut off, and how long the stop may take."""

import asyncio
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from babelgate.gateway.cli.stop import ShutdownController
from tests.gateway.command import BOUND, Served, served
from tests.gateway.hubs import eventually
from tests.gateway.storage.wire import Wire
from tests.postgres import empty, url_of

FOREVER = "600"
"""Grace period that no test waits for, in seconds."""
AGENTS = """
import asyncio, pathlib, time

async def patient(text: str) -> str:
    while not pathlib.Path(text).exists():
        await asyncio.sleep(0.01)
    return "done"

async def deaf(text: str) -> str:
    pathlib.Path(text).touch()
    time.sleep(3600)
    return "never"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "waiting.py").write_text(AGENTS)
    return tmp_path


@contextmanager
def serve(folder: Path, agent: str = "patient", *arguments: str, grace: str = FOREVER) -> Generator[Served]:
    with served(folder, f"waiting:{agent}", *arguments, BABELGATE_SHUTDOWN__GRACE=grace) as running:
        yield running


def call(url: str, agent: str, text: str) -> str:
    """Return the answer of an agent, by chat completions."""
    body = {"model": agent, "messages": [{"role": "user", "content": text}], "store": True}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=BOUND).json()
    return answer["choices"][0]["message"]["content"]


async def begin(running: Served, agent: str, text: str) -> "asyncio.Future[str]":
    """Call an agent, and return when its run has begun."""
    called = asyncio.ensure_future(asyncio.to_thread(call, running.url, agent, text))
    tasks = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"status": "TASK_STATE_WORKING"}}
    async with asyncio.timeout(BOUND), httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
        while not called.done():
            listed = await http.post(f"/a2a/{agent}", json=tasks, headers={"A2A-Version": "1.0"})
            if listed.json()["result"]["totalSize"]:
                break
    return called


async def closed(running: Served) -> None:
    """Wait until the gateway accepts no connections."""
    host, port = running.url.removeprefix("http://").split(":")
    async with asyncio.timeout(BOUND):
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=BOUND).close()
            except ConnectionError:
                return
            await asyncio.sleep(0)


async def test_a_run_that_ends_within_the_grace_is_answered(folder: Path) -> None:
    with serve(folder) as running:
        answer = await begin(running, "patient", str(folder / "go"))
        running.process.send_signal(signal.SIGTERM)
        await closed(running)
        (folder / "go").touch()
        assert await answer == "done"
        assert "Traceback" not in await asyncio.to_thread(running.end)
        assert running.process.returncode == 0


async def test_the_connection_is_cut_after_the_grace_period(folder: Path) -> None:
    with serve(folder, grace="1") as running:
        answer = await begin(running, "patient", str(folder / "never"))
        running.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
            await answer
        log = await asyncio.to_thread(running.end)
        assert "1 runs did not end within shutdown.grace" in log
        assert "Traceback" not in log
        assert running.process.returncode == 0


async def test_a_second_signal_ends_the_gateway_at_once(folder: Path) -> None:
    with serve(folder) as running:
        answer = await begin(running, "patient", str(folder / "never"))
        running.process.send_signal(signal.SIGTERM)
        await closed(running)
        running.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            await answer
        await asyncio.to_thread(running.end)
        assert running.process.returncode == 0


@pytest.mark.parametrize("signals", [1, 2])
async def test_an_agent_that_blocks_the_loop_cannot_prevent_the_stop(folder: Path, signals: int) -> None:
    with serve(folder, "deaf", grace="1" if signals == 1 else FOREVER) as running:
        answer = asyncio.ensure_future(asyncio.to_thread(call, running.url, "deaf", str(folder / "blocked")))
        async with asyncio.timeout(BOUND):
            await eventually((folder / "blocked").exists)
        running.process.send_signal(signal.SIGTERM)
        if signals == 2:
            running.process.send_signal(signal.SIGINT)
        with pytest.raises(httpx.HTTPError):
            await answer
        assert "did not stop in time" in await asyncio.to_thread(running.end)
        assert running.process.returncode == 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_hanging_database_cannot_prevent_the_stop(folder: Path, postgres_tables: str, workers: str) -> None:
    empty(postgres_tables)
    with (
        Wire(url_of(postgres_tables)).running() as wire,
        serve(folder, "patient", "--database", wire.url, "--workers", workers, grace="4") as running,
    ):
        answer = await begin(running, "patient", str(folder / "go"))
        wire.freeze()
        (folder / "go").touch()
        running.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.HTTPError):
            await answer
        await asyncio.to_thread(running.end)
        assert running.process.returncode == 0


def test_a_hangup_does_not_end_the_gateway(folder: Path) -> None:
    (folder / "go").touch()
    with serve(folder) as running:
        running.process.send_signal(signal.SIGHUP)
        assert call(running.url, "patient", str(folder / "go")) == "done"


async def test_work_is_cancelled_after_its_timeout() -> None:
    stop = ShutdownController(60)
    ended: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    assert not await stop.complete(wait(), 0.01)
    assert ended == [True]


async def test_a_second_request_hurries_the_end() -> None:
    stop = ShutdownController(60)
    stop.request()
    assert stop.is_requested and stop.until_runs_stop() > 1
    waiting = asyncio.ensure_future(stop.complete(asyncio.Event().wait(), 600))
    await asyncio.sleep(0)
    stop.request()
    stop.notify()
    async with asyncio.timeout(BOUND):
        assert not await waiting
    assert stop.remaining() <= 1 and stop.until_runs_stop() <= 0.5
