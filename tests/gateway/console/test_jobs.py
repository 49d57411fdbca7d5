"""Jobs of the console: checks, comparisons of protocols and benchmarks as child processes."""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio

from babelgate.gateway.console.job_command import JobEndpoint, command_of
from babelgate.gateway.console.job_order import BenchChoices, CheckChoices, JobOrder
from babelgate.gateway.console.job_record import JobRecord
from babelgate.gateway.console.job_runner import JobRunner
from babelgate.gateway.console.job_store import MAX_JOBS, JobStore
from babelgate.gateway.console.jobs import has_jobs, jobs_folder
from babelgate.gateway.settings.model import Settings
from tests.gateway.admin.administering import ALICE, OPS, administered
from tests.gateway.admin.test_audit_log import flush_refusals, records
from tests.gateway.console.reading import API
from tests.gateway.console.test_changes import Hints, following
from tests.gateway.hubs import PRINCIPAL, eventually, within
from tests.running import Running, running

JOBS: Final = f"{API}/jobs"
ANY_JOB: Final = "01a2272a-8aaa-778c-9cff-8cae4e5166ad"
SMALL: Final[Mapping[str, Any]] = {
    "kind": "check",
    "agents": ["echo"],
    "protocol": "aief",
    "options": {"only": ["aief-v1/step.execute"]},
}
"""Body of the request that starts the job with the least work: a check of one requirement."""
LONG: Final[Mapping[str, Any]] = {
    "kind": "check",
    "agents": ["silent"],
    "at": "server",
    "protocol": "aief",
    "options": {"timeout": 300},
}
"""Body of the request that starts a check of a server that never answers."""
SECONDS: Final = 120.0
"""Timeout of a wait for a process of a job, in seconds. It is long because its priority is low."""
RECORD: Final = JobRecord(
    job=ANY_JOB, kind="check", agents=("a",), at="server", protocol="a2a", created_at=0, created_by="key:ops"
)
JSON: Final = {"Content-Type": "application/json"}


async def start(gateway: Running, body: Mapping[str, Any], headers: Mapping[str, str] = OPS) -> str:
    response = await gateway.http.post(JOBS, json=body, headers=headers)
    assert response.status_code == 202, response.text
    return response.json()["job"]


async def read(gateway: Running, job_id: str) -> dict[str, Any]:
    response = await gateway.http.get(f"{JOBS}/{job_id}", headers=OPS)
    assert response.status_code == 200, response.text
    return response.json()


async def remove(gateway: Running, job_id: str) -> str:
    response = await gateway.http.request("DELETE", f"{JOBS}/{job_id}", headers={**OPS, **JSON})
    assert response.status_code == 200, response.text
    return response.json()["status"]


@asynccontextmanager
async def watching(gateway: Running) -> AsyncGenerator[Hints]:
    async with following(gateway, OPS, all=1) as hints:
        yield hints


async def ended(hints: Hints, job_id: str, status: str) -> None:
    """Wait until a job has ended with this status."""
    while (hint := await hints.until("job", job_id, seconds=SECONDS))["status"] in ("waiting", "running"):
        pass
    assert hint["status"] == status


class SilentServer:
    """Server that never answers. A job that calls it runs until it is stopped, and its end closes its connections."""

    def __init__(self) -> None:
        self.url = ""
        self.connected = asyncio.Event()
        self.disconnected = asyncio.Event()
        self._connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        self.disconnected.clear()
        self.connected.set()
        with suppress(ConnectionError):
            while await reader.read(1024):
                pass
        self._connections -= 1
        if self._connections == 0:
            self.disconnected.set()
        writer.close()


@asynccontextmanager
async def calling_silent_server(folder: Path) -> AsyncGenerator[tuple[Running, SilentServer]]:
    """Serve a gateway with the agent of `LONG`."""
    silent = SilentServer()
    server = await asyncio.start_server(silent.serve, "127.0.0.1", 0, start_serving=False)
    agents = {"silent": {"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "protocol": "aief"}}
    agents["echo"] = {"python": "babelgate.gateway.demo:echo"}
    async with server, administered(folder, configured=agents) as gateway:
        await server.start_serving()  # only now, because a gateway that starts calls the servers of its agents
        yield gateway, silent


async def test_a_check_has_the_rights_of_its_caller(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway, watching(gateway) as hints:
        job_id = await start(gateway, SMALL)
        await ended(hints, job_id, "done")
        job = await read(gateway, job_id)
        assert (job["kind"], job["agents"], job["at"], job["created_by"]) == ("check", ["echo"], "gateway", "key:ops")
        assert job["progress"]["done"] == job["progress"]["total"] == 1
        assert (job["summary"]["passed"], job["summary"]["failed"], job["summary"]["total"]) == (1, 0, 1)
        assert job["result"]["sets"][0]["set"] == "aief-v1"
        assert job["created_at"] <= job["started_at"] <= job["ended_at"]
        runs = (await gateway.http.get(f"{API}/runs", headers=OPS)).json()["items"]
        assert {run["agent"] for run in runs} == {"echo"}
        agent = (await gateway.http.get(f"{API}/agents/echo", headers=OPS)).json()
        assert agent["checks"] == [{"job": job_id, "at": job["ended_at"], "passed": 1, "failed": 0, "total": 1}]
        assert not gateway.generations.temporary_keys._principals  # pyright: ignore[reportPrivateUsage]
        await check_files(gateway, job_id)
        assert await remove(gateway, job_id) == "removed"
        assert (await gateway.http.get(JOBS, headers=OPS)).json() == {"items": [], "next": None}
        assert not list((tmp_path / "gateway.jobs").iterdir())


async def check_files(gateway: Running, job_id: str) -> None:
    """Check that the files of a job are downloads that no browser runs."""
    for name, kind in (("report.html", "text/html; charset=utf-8"), ("junit.xml", "application/xml")):
        response = await gateway.http.get(f"{JOBS}/{job_id}/{name}", headers=OPS)
        headers = response.headers
        assert response.status_code == 200
        assert headers["content-disposition"].startswith("attachment; ")
        assert headers["content-security-policy"].startswith("sandbox; default-src 'none'")
        assert (headers["x-content-type-options"], headers["content-type"]) == ("nosniff", kind)
        assert "bg_" not in response.text
        assert (await gateway.http.get(f"{JOBS}/{job_id}/{name}", headers=ALICE)).status_code == 403


async def test_jobs_wait_for_each_other_and_can_be_cancelled(tmp_path: Path) -> None:
    async with calling_silent_server(tmp_path) as (gateway, silent):
        first = await start(gateway, LONG)
        await within(silent.connected.wait(), "a call of the job", SECONDS)
        waiting = [await start(gateway, SMALL) for _ in range(10)]
        response = await gateway.http.post(JOBS, json=SMALL, headers=OPS)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_full")
        assert await remove(gateway, waiting[9]) == "cancelled"
        assert (await read(gateway, waiting[9]))["started_at"] is None
        page = (await gateway.http.get(f"{JOBS}?limit=3", headers=OPS)).json()
        assert [item["job"] for item in page["items"]] == waiting[:-4:-1]
        page = (await gateway.http.get(f"{JOBS}?after={page['next']}&kind=check", headers=OPS)).json()
        assert [item["job"] for item in page["items"]] == [*waiting[6::-1], first]
        for job_id in waiting[:9]:
            await remove(gateway, job_id)
        assert await remove(gateway, first) == "cancelled"
        await within(silent.disconnected.wait(), "the end of the process")
        job = await read(gateway, first)
        assert (job["status"], job["error"], job["result"]) == ("cancelled", None, None)


async def test_a_job_ends_with_the_gateway(tmp_path: Path) -> None:
    async with calling_silent_server(tmp_path) as (gateway, silent):
        running_job, waiting_job = await start(gateway, LONG), await start(gateway, SMALL)
        await within(silent.connected.wait(), "a call of the job", SECONDS)
    await within(silent.disconnected.wait(), "the end of the process")
    folder = tmp_path / "gateway.jobs"
    assert folder.stat().st_mode & 0o777 == 0o700
    # A gateway that was killed leaves its jobs as they were.
    path = folder / waiting_job / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running", "error": None}))
    async with administered(tmp_path) as gateway:
        for job_id in (running_job, waiting_job):
            job = await read(gateway, job_id)
            assert (job["status"], job["error"]) == ("failed", "the gateway stopped")
        assert json.loads(path.read_text())["status"] == "failed"


def test_a_job_ends_when_the_gateway_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "babelgate.gateway.console.job_process", "check", "http://127.0.0.1:1"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd=tmp_path)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(SECONDS) == -9


async def test_a_job_has_a_limit_of_time(tmp_path: Path) -> None:
    async with calling_silent_server(tmp_path) as (gateway, _), watching(gateway) as hints:
        body = {**LONG, "options": {**LONG["options"], "max_seconds": 1}}
        job_id = await start(gateway, body)
        await ended(hints, job_id, "failed")
        job = await read(gateway, job_id)
        assert job["error"] == "not finished after 1 s, the limit options.max_seconds"
        assert job["options"]["max_seconds"] == 1


async def test_the_server_of_an_agent_gets_the_configured_headers(tmp_path: Path) -> None:
    (tmp_path / "behind").mkdir()
    (tmp_path / "front").mkdir()
    async with administered(tmp_path / "behind") as behind:
        url = f"{behind.url}/agent/echo"
        agents = {"far": {"url": url, "protocol": "aief", "headers": {"X-Api-Key": "key-of-alice"}}}
        agents["near"] = {"python": "babelgate.gateway.demo:echo"}
        async with administered(tmp_path / "front", configured=agents) as gateway, watching(gateway) as hints:
            check = await start(gateway, {**SMALL, "agents": ["far"], "at": "server", "protocol": None})
            await ended(hints, check, "done")
            assert (await read(gateway, check))["summary"]["passed"] == 1
            refused = await gateway.http.post(JOBS, json={**SMALL, "agents": ["near"], "at": "server"}, headers=OPS)
            assert refused.status_code == 400
            assert "near has no server of its own" in refused.json()["error"]["message"]
        runs = (await behind.http.get(f"{API}/runs", headers=ALICE)).json()["items"]
        assert runs
        assert "key-of-alice" not in (tmp_path / "front/gateway.jobs" / check / "report.html").read_text()


@pytest.mark.slow
async def test_agents_and_protocols_are_compared(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway, watching(gateway) as hints:
        options = {"task": ["says-it-back"]}
        bench = await start(gateway, {"kind": "bench", "agents": ["echo", "ask"], "options": options})
        await ended(hints, bench, "done")
        across = await start(gateway, {"kind": "across", "agents": ["echo"], "options": {"only": ["plain"]}})
        await ended(hints, across, "done")
        job = await read(gateway, bench)
        scores = {each["agent"]: each["score"] for each in job["summary"]["agents"]}
        assert (scores, job["progress"]["done"]) == ({"echo": 1.0, "ask": 0.0}, 2)
        assert set(job["files"]) == {"report.json", "report.html"}
        job = await read(gateway, across)
        assert job["summary"]["same"] is True
        assert job["summary"]["protocols"] == len(job["result"]["protocols"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "missing required field `kind`"),
        ({**SMALL, "kind": "serve"}, "Invalid enum value 'serve'"),
        ({**SMALL, "agents": ["echo", "ask"]}, "agents: expected exactly one for check, got 2"),
        ({**SMALL, "url": "http://192.0.2.1"}, "unknown field `url`"),
        ({**SMALL, "protocol": "--html=/etc/passwd"}, "protocol: expected a name"),
        ({**SMALL, "options": {"triggers": "../secret.yaml"}}, "options.triggers: expected a name"),
        ({**SMALL, "options": {"max_seconds": 1e9}}, "<= 7200"),
        ({"kind": "bench", "agents": ["echo"], "options": {"suite": "/etc"}}, "options.suite: expected a name"),
        ({"kind": "bench", "agents": ["echo", "echo"]}, "each name may occur once"),
        (
            {"kind": "bench", "agents": ["echo"], "protocol": "a2a"},
            "protocol: only allowed if kind is check, got kind bench",
        ),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_order_is_refused(shared: Running, body: Mapping[str, Any], words: str) -> None:
    response = await shared.http.post(JOBS, json=body, headers=OPS)
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]["message"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with administered(tmp_path_factory.mktemp("jobs")) as gateway:
        yield gateway


@pytest.mark.asyncio(loop_scope="module")
async def test_only_operators_use_jobs(shared: Running) -> None:
    requests = [("POST", JOBS), ("GET", JOBS)]
    requests += [(method, f"{JOBS}/{ANY_JOB}{end}") for method, end in (("GET", ""), ("DELETE", ""))]
    requests += [("GET", f"{JOBS}/{ANY_JOB}/{name}") for name in ("report.html", "junit.xml")]
    for method, path in requests:
        response = await shared.http.request(method, path, headers={**ALICE, **JSON}, content=json.dumps(SMALL))
        assert response.status_code == 403, (method, path)
    for path in (ANY_JOB, f"{ANY_JOB}/report.html", "../../../secret"):
        assert (await shared.http.get(f"{JOBS}/{path}", headers=OPS)).status_code == 404
    response = await shared.http.post(JOBS, json={**SMALL, "agents": ["unknown"]}, headers=OPS)
    assert response.status_code == 404


async def test_jobs_can_be_off(tmp_path: Path) -> None:
    async with running(tmp_path, console={"jobs": False}) as gateway:
        response = await gateway.http.post(JOBS, json=SMALL)
        assert response.status_code == 403
        assert "console.jobs: true" in response.json()["error"]["message"]
        assert not (tmp_path / "gateway.jobs").exists()


def test_workers_have_no_jobs() -> None:
    shared = Settings.model_validate({"workers": 2, "database": "postgresql://host/name"})
    assert not has_jobs(shared)
    assert jobs_folder(shared) is None
    assert has_jobs(Settings())


class FullStore(JobStore):
    """Store on a disk that is full for one kind of operation."""

    full_for: str | None = None

    def _refuse(self, operation: str) -> None:
        if operation == self.full_for:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def save(self, record: JobRecord) -> None:
        if record.status != "waiting":
            self._refuse("save")
        super().save(record)

    def measure(self, job_id: str) -> None:
        self._refuse("measure")
        super().measure(job_id)

    def prune(self) -> None:
        self._refuse("prune")
        super().prune()


async def test_acts_and_denials_are_in_the_audit_log(tmp_path: Path) -> None:
    async with calling_silent_server(tmp_path) as (gateway, _):
        job_id = await start(gateway, LONG)
        assert await remove(gateway, job_id) == "cancelled"
        assert await remove(gateway, job_id) == "removed"
        for path in ("jobs", "settings", "runs?all=1", "changes?all=1"):
            assert (await gateway.http.get(f"{API}/{path}", headers=ALICE)).status_code == 403, path
        await flush_refusals(gateway)
        *acts, denial = (await records(gateway))[::-1]
        assert [each["action"] for each in acts] == ["job.create", "job.cancel", "job.delete"]
        for act in acts:
            assert (act["actor"]["subject"], act["outcome"], act["protocol"]) == ("key:ops", "allow", "gateway")
            assert act["target"] == {"kind": "job", "id": job_id, "agent": "silent"}
            assert act["reason"] == "check of silent at the server"
        assert (denial["action"], denial["outcome"], denial["count"]) == ("call.admin", "deny", 4)
        assert denial["actor"]["subject"] == "key:alice"


async def test_a_full_disk_stops_no_later_job(tmp_path: Path) -> None:
    """Show that a job is not stored. These jobs need no process, because their agent has no server."""
    async with administered(tmp_path) as gateway:
        store = FullStore(lambda: tmp_path / "jobs")
        runner = JobRunner(gateway.hub, gateway.generations.admin_port(), store)
        order = msgspec.convert({**SMALL, "at": "server"}, JobOrder)
        reason = "at: the agent echo has no server of its own; use at: gateway"
        unstored = "this job is not stored, and is lost when the gateway stops: No space left on device"
        for operation, error in (("save", f"{reason}; {unstored}"), ("measure", reason), ("prune", reason)):
            store.full_for = operation
            jobs = [await runner.submit(order, order.read_choices(), PRINCIPAL, gateway.url) for _ in range(2)]
            await within(eventually(lambda store=store: all(each.has_ended for each in store.all())), "all ends")
            assert [(each.status, each.error) for each in map(store.find, (each.job for each in jobs)) if each] == [
                ("failed", error),
                ("failed", error),
            ]
        store.full_for = None
        last = await runner.submit(order, order.read_choices(), PRINCIPAL, gateway.url)
        shutil.rmtree(tmp_path / "jobs")
        await within(eventually(lambda: all(each.has_ended for each in store.all())), "the end")
        job = store.find(last.job)
        assert job is not None
        assert job.error is not None
        assert job.error.endswith("No such file or directory")


async def test_damaged_results_are_left_out(tmp_path: Path) -> None:
    """Answer valid JSON for a report that was cut off, and for a job whose files were removed meanwhile."""
    folder = tmp_path / "gateway.jobs" / ANY_JOB
    folder.mkdir(parents=True)
    record = msgspec.structs.replace(RECORD, status="done", summary={})
    (folder / "job.json").write_bytes(msgspec.json.encode(record))
    for report in (b'{"sets": [', b"", b'{"sets": []}\n'):
        (folder / "report.json").write_bytes(report)
        async with administered(tmp_path) as gateway:
            job = await read(gateway, ANY_JOB)
            assert job["result"] == ({"sets": []} if report.endswith(b"\n") else None)
            (folder / "report.json").rename(folder / "moved")
            assert (await read(gateway, ANY_JOB))["result"] is None
    (folder / "report.html").touch()
    async with administered(tmp_path) as gateway:
        (folder / "report.html").unlink()
        assert (await gateway.http.get(f"{JOBS}/{ANY_JOB}/report.html", headers=OPS)).status_code == 404


async def test_a_large_report_is_streamed(tmp_path: Path) -> None:
    folder = tmp_path / "gateway.jobs" / ANY_JOB
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(RECORD, status="done")))
    size = 32 * 2**20
    (folder / "report.json").write_bytes(b'"%b"' % (b"x" * size))
    async with administered(tmp_path) as gateway:
        tracemalloc.start()
        try:
            async with gateway.http.stream("GET", f"{JOBS}/{ANY_JOB}", headers=OPS) as response:
                length = sum([len(chunk) async for chunk in response.aiter_raw()])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert length == int(response.headers["content-length"])
        assert size < length < size + 1000
        assert peak < size / 2


# Command lines


def test_secrets_are_in_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_KEYS", "a secret of the gateway")
    endpoint = JobEndpoint("a", {"url": "http://h/${x}"}, {"Authorization": "Bearer s3cret"})
    command = command_of(RECORD, CheckChoices(trigger={"long": "--x"}), [endpoint], tmp_path)
    assert command.arguments[-2:] == ["--", "http://h/${x}"]
    assert {"--protocol=a2a", "--trigger=long=--x", "--junit=junit.xml"} < set(command.arguments)
    assert command.environment["BABELGATE_HEADERS"] == "Authorization: Bearer s3cret"
    assert "BABELGATE_KEYS" not in command.environment
    bench = command_of(RECORD, BenchChoices(repeat=3, task=("x", "y")), [endpoint, endpoint], tmp_path)
    assert {"--repeat=3", "--task=x", "--task=y"} < set(bench.arguments)
    assert bench.config is not None
    assert json.loads(bench.config) == {
        "agents": {"a": {"url": "http://h/$${x}", "headers": {"Authorization": "${JOB_HEADER_2}"}}}
    }
    assert bench.environment["JOB_HEADER_2"] == "Bearer s3cret"
    for each in (command, bench):
        assert "s3cret" not in f"{each!r} {each.arguments} {each.config}"


@pytest.mark.parametrize(("at", "has_proxies"), [("server", True), ("gateway", False)])
@pytest.mark.parametrize("choices", [CheckChoices(), BenchChoices()])
def test_jobs_at_the_server_use_the_proxies_of_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Any, choices: Any, *, has_proxies: bool
) -> None:
    certificates = {"SSL_CERT_FILE": "/certs.pem", "SSL_CERT_DIR": "/certs"}
    proxies = {"HTTPS_PROXY": "http://p:1", "http_proxy": "http://p:2", "ALL_PROXY": "http://p:3", "NO_PROXY": "a,b"}
    for name, value in {**certificates, **proxies, "NO_PROXY_SECRET": "x"}.items():
        monkeypatch.setenv(name, value)
    record = msgspec.structs.replace(RECORD, at=at)
    environment = command_of(record, choices, [JobEndpoint("a", {"url": "http://h/"})], tmp_path).environment
    assert certificates.items() <= environment.items()
    assert {name: environment[name] for name in proxies if name in environment} == (proxies if has_proxies else {})
    assert "NO_PROXY_SECRET" not in environment


# Files


def test_the_oldest_jobs_are_removed(tmp_path: Path) -> None:
    store = JobStore(lambda: tmp_path, max_bytes=1000)
    ended = msgspec.structs.replace(RECORD, status="done")
    for number in range(MAX_JOBS + 2):
        store.add(msgspec.structs.replace(ended, job=f"{number:03}"))
    store.prune()
    assert [record.job for record in store.all()][:: MAX_JOBS - 1] == ["101", "002"]
    for job_id in ("102", "103"):
        store.add(msgspec.structs.replace(ended, job=job_id))
        store.path(job_id, "report.json").write_bytes(b"x" * 600)
    store.prune()
    assert [record.job for record in store.all()] == ["103"]
    assert [path.name for path in tmp_path.iterdir()] == ["103"]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/job.json").write_text("{")
    assert [record.job for record in JobStore(lambda: tmp_path).all()] == ["103"]


def test_jobs_without_a_database_file_are_temporary() -> None:
    store = JobStore(lambda: None)
    store.add(RECORD)
    folder = store.path(RECORD.job)
    assert folder.is_dir()
    store.close()
    assert not folder.exists()
