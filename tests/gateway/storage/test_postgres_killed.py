"""Tests of a PostgreSQL server that is killed while a gateway uses it, and started again."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical.event import ThreadChanged
from babelgate.canonical.fault import FaultError
from babelgate.gateway import demo
from babelgate.gateway.hub import Parts
from babelgate.gateway.runs import webhooks
from babelgate.gateway.storage import unavailable
from babelgate.gateway.storage.journal import Journal
from tests.gateway.hubs import eventually, within
from tests.gateway.runs.test_webhooks import Receiver
from tests.postgres_server import PostgresServer, postgres_server
from tests.running import Running, running

pytestmark = pytest.mark.slow

_THREADS = 8


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with postgres_server() as started:
        yield started


class Writer:
    """Writer that appends to one thread until it is stopped."""

    def __init__(self, journal: Journal, thread_id: str) -> None:
        self.acknowledged: list[int] = []
        self.pk = 0
        self.refused = 0
        self._journal, self._thread_id = journal, thread_id

    async def create(self) -> None:
        created = self._journal.write(lambda tx: tx.create_thread("o", self._thread_id, ThreadChanged()).pk)
        self.pk = await within(created)
        self.acknowledged.append(1)

    async def write(self, until: asyncio.Event) -> None:
        while not until.is_set():
            written = self._journal.write(
                lambda tx: tx.append(tx.need_thread("o", self._thread_id), ThreadChanged()).seq
            )
            try:
                self.acknowledged.append(await within(written))
            except FaultError:
                self.refused += 1


async def test_acknowledged_changes_survive_a_killed_server(server: PostgresServer) -> None:
    journal, stop = Journal(server.url), asyncio.Event()
    await journal.open()
    writers = [Writer(journal, f"t{number}") for number in range(_THREADS)]
    await asyncio.gather(*(writer.create() for writer in writers))
    writing = [asyncio.ensure_future(writer.write(stop)) for writer in writers]
    for _ in range(2):
        before = sum(len(writer.acknowledged) for writer in writers)
        more = before + 50

        await within(eventually(lambda wanted=more: sum(len(w.acknowledged) for w in writers) > wanted), "commits")
        await asyncio.to_thread(server.kill)
        await within(eventually(lambda: journal.failure is not None), "the loss")
        await asyncio.to_thread(server.start)
        await within(eventually(lambda: journal.failure is None), "the connection")
    stop.set()
    await within(asyncio.gather(*writing))
    for writer in writers:
        seqs = [record.seq for record in await within(journal.page(writer.pk, 0, 100_000))]
        assert seqs == list(range(1, len(seqs) + 1))
        # A caller may repeat a refused command, so a refused record that was stored would be there twice.
        assert writer.acknowledged == seqs and writer.refused
    await within(journal.close())


async def test_a_gateway_recovers_with_its_server(server: PostgresServer, tmp_path: Path) -> None:
    async with running(tmp_path, {"echo": demo.echo}, database=server.add_schema("gateway")) as gateway:

        async def say(text: str) -> int:
            body = {"input": [{"role": "user", "parts": [{"content": text}]}], "agent_name": "echo", "mode": "sync"}
            return (await gateway.http.post("/acp/runs", json=body)).status_code

        assert await within(say("one")) == 200
        await asyncio.to_thread(server.kill)
        assert await within(say("two")) >= 500
        assert (await within(gateway.http.get("/readyz"))).status_code == 503
        assert (await within(gateway.http.get("/healthz"))).status_code == 200
        await asyncio.to_thread(server.start)
        await within(eventually(lambda: gateway.hub.journal.failure is None), "the connection")
        assert await within(say("three")) == 200
        assert (await within(gateway.http.get("/readyz"))).status_code == 200


class Talk:
    """Agent that emits a text, another one when `more` is set, and ends when `end` is set."""

    def __init__(self) -> None:
        self.more, self.end = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> AsyncGenerator[str]:
        yield "one"
        await self.more.wait()
        yield "two"
        await self.end.wait()


async def test_output_during_an_outage_is_stored_afterwards(server: PostgresServer, tmp_path: Path) -> None:
    talk = Talk()
    async with running(tmp_path, {"talk": talk}, database=server.add_schema("patient")) as gateway:
        run_id = await _start(gateway)
        await asyncio.to_thread(server.kill)
        talk.more.set()
        await within(eventually(lambda: gateway.hub.journal.failure is not None), "the loss")
        await asyncio.to_thread(server.start)
        talk.end.set()
        run = await _end(gateway, run_id)
        assert run["status"] == "completed", run
        assert [part["content"] for message in run["output"] for part in message["parts"]] == ["one", "two"]


@pytest.mark.parametrize("cluster", [False, True])
async def test_a_run_survives_a_read_only_server(server: PostgresServer, tmp_path: Path, cluster: bool) -> None:
    """Make the server read-only, like a demoted primary: its sessions stay open, and refuse writes (25006)."""
    talk, database = Talk(), server.add_schema(f"read_only_{cluster}".lower())
    shared: dict[str, Any] = {"cluster": True, "blobs": str(tmp_path / "blobs")} if cluster else {}
    async with running(tmp_path, {"talk": talk}, database=database, **shared) as gateway:
        run_id = await _start(gateway)
        try:
            await asyncio.to_thread(server.take_writes, on=False)
            # The session of the writer may take one more write before it reloads its settings.
            await within(_refusal(gateway), "the refusal")
            talk.more.set()
            assert await within(_refusal(gateway)) == 503
        finally:
            await asyncio.to_thread(server.take_writes, on=True)
        talk.end.set()
        run = await _end(gateway, run_id)
        assert run["status"] == "completed", run
        assert [part["content"] for message in run["output"] for part in message["parts"]] == ["one", "two"]


async def test_a_run_with_refused_output_ends_after_the_outage(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail also the read of the log that precedes the end of the run, because the server is still away."""
    monkeypatch.setattr(unavailable, "PATIENCE_OF_RUNS", 0.0)
    talk = Talk()
    async with running(tmp_path, {"talk": talk}, database=server.add_schema("refused")) as gateway:
        run_id = await _start(gateway)
        await asyncio.to_thread(server.kill)
        talk.more.set()
        await within(eventually(lambda: not gateway.hub.engine.active), "the refusal")
        await asyncio.to_thread(server.start)
        await within(eventually(lambda: gateway.hub.journal.failure is None), "the connection")
        await within(gateway.hub.engine.idle(), "the end")
        assert (await within(gateway.http.get(f"/acp/runs/{run_id}"))).json()["status"] == "failed"


@pytest.mark.parametrize(("status", "posts"), [(200, 1), (500, 2)])
async def test_a_delivery_attempt_during_an_outage_is_counted(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, posts: int
) -> None:
    """Keep the server away for longer than the patience. A delivery that the receiver accepted is not repeated."""
    for module, name in (
        (unavailable, "PATIENCE"),
        (unavailable, "PATIENCE_OF_RUNS"),
        (webhooks, "_DATABASE_RETRY_DELAY"),
    ):
        monkeypatch.setattr(module, name, 0.05)
    receiver = Receiver()
    await receiver.start()
    receiver.hold, receiver.statuses = asyncio.Event(), [status]
    async with running(
        tmp_path,
        {"echo": demo.echo},
        database=server.add_schema(f"webhook_{status}"),
        network={"allow": ["127.0.0.0/8"]},
        webhooks={"retries": [0.01]},
    ) as gateway:
        body = {"assistant_id": "echo", "input": {"message": "Hi"}, "webhook": receiver.url}
        assert (await within(gateway.http.post("/runs/wait", json=body))).status_code == 200
        await receiver.receives(1)
        await asyncio.to_thread(server.kill)
        receiver.hold.set()  # the outcome of the delivery cannot be stored
        await within(eventually(lambda: gateway.hub.journal.failure is not None), "the loss")
        await asyncio.to_thread(server.start)
        parts: Parts = vars(gateway.hub)["_parts"]
        deliveries = vars(parts.deliverer)["_deliveries"]
        await within(eventually(lambda: not deliveries), "the end of the delivery")
        assert receiver.got == [receiver.got[0]] * posts
        left = await gateway.hub.journal.query(
            lambda connection: connection.exec_driver_sql("SELECT count(*) FROM webhook").scalar_one()
        )
        assert left == 0
    await receiver.stop()


def _call(mode: str) -> Any:
    return {"input": [{"role": "user", "parts": [{"content": "Hi"}]}], "agent_name": "talk", "mode": mode}


async def _refusal(gateway: Running) -> int:
    """Return the status of the first call that is not answered with a success."""
    while (response := await gateway.http.post("/acp/runs", json=_call("async"))).is_success:
        pass
    return response.status_code


async def _end(gateway: Running, run_id: str) -> Any:
    run = (await within(gateway.http.get(f"/acp/runs/{run_id}"))).json()
    while run.get("status") in (None, "in-progress"):
        run = (await within(gateway.http.get(f"/acp/runs/{run_id}"))).json()
    return run


async def _start(gateway: Running) -> str:
    """Start a run, and return its id once its first text is stored, so that no commit is in progress."""
    run_id = (await within(gateway.http.post("/acp/runs", json=_call("async")))).json()["run_id"]
    async with gateway.http.stream(
        "GET", f"/acp/runs/{run_id}/events", headers={"Accept": "text/event-stream"}
    ) as response:
        async for line in response.aiter_lines():
            if '"one"' in line:
                break
    return run_id
