"""Exchanges with the server of an agent: recorded as they pass, without secrets, for callers who may read the run."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from babelgate.adapters.kit.client.exchanges import BODY_LIMIT
from babelgate.conformance.report import __file__ as report_file
from babelgate.gateway import demo
from babelgate.gateway.console.addresses import AddressFilter
from babelgate.gateway.console.exchanges import split_events
from tests.gateway.hubs import eventually, within
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRET: Final = "secret-of-the-operator-1234567890"
API: Final = "/console/api/v1"


async def held(text: str) -> AsyncGenerator[str]:
    yield "begun"
    await asyncio.Event().wait()


async def long(text: str) -> AsyncGenerator[str]:
    for _ in range(8):
        yield "x" * 100_000


AGENTS: Final = {
    **{name: getattr(demo, name) for name in ("echo", "stream", "fail", "ask")},
    "held": held,
    "long": long,
}


@dataclass(frozen=True)
class Wired:
    """A gateway in front of another one, which is the server of its agents."""

    front: Running
    back: Running

    async def start(self, agent: str, text: str = "hello there", **body: Any) -> str:
        response = await self.front.http.post("/v1/runs", json={"assistant_id": agent, "input": text, **body})
        assert response.is_success, response.text
        return response.headers["babelgate-run"]

    async def get(self, path: str, status: int = 200) -> Any:
        response = await self.front.http.get(f"{API}/runs/{path}")
        assert response.status_code == status, response.text
        return response.json()

    async def all(self, run_id: str) -> list[Any]:
        listed = await self.get(f"{run_id}/exchanges")
        return [await self.get(f"{run_id}/exchanges/{item['number']}") for item in listed["items"]]


@asynccontextmanager
async def wired(folder: Path, wire: str, protocol: str = "a2a", **settings: Any) -> AsyncGenerator[Wired]:
    async with running(Path(mkdtemp(dir=folder)), AGENTS) as back:
        paths = {"a2a": "/a2a/{}", "acp": "/acp", "langgraph": ""}
        agents: dict[str, Any] = {
            name: {
                "url": back.url + paths[protocol].format(name),
                "protocol": protocol,
                "agent": name,
                "headers": {"X-Tenant-Key": SECRET, "Authorization": f"Bearer {SECRET}"},
            }
            for name in AGENTS
        }
        agents["here"] = {"python": "babelgate.gateway.demo:echo"}
        settings = {"console": {"wire": wire}, **settings}
        async with running(folder, configured=agents, **settings) as front:
            yield Wired(front, back)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everything(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Wired]:
    async with wired(tmp_path_factory.mktemp("all"), "all") as gateways:
        yield gateways


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def failures(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Wired]:
    async with wired(tmp_path_factory.mktemp("failures"), "failures") as gateways:
        yield gateways


def schema() -> Any:
    document = json.loads((Path(report_file).parent / "report.schema.json").read_text(encoding="utf-8"))
    return Draft202012Validator({**document["$defs"]["exchange"], "$defs": document["$defs"]})


async def test_a_run_shows_its_exchanges_in_the_form_of_reports(everything: Wired) -> None:
    run_id = await everything.start("stream")
    listed = await everything.get(f"{run_id}/exchanges")
    assert listed["mode"] == "all" and "why_empty" not in listed
    *_, item = listed["items"]
    assert item["method"] == "POST" and item["status"] == 200 and item["streamed"] and not item["failed"]
    assert item["request_bytes"] > 0 and item["response_bytes"] > 0 and 0 < item["seconds"] < 60
    *_, exchange = await everything.all(run_id)
    schema().validate(exchange)
    assert json.loads(exchange["request"]["body"])["method"] == "SendStreamingMessage"
    events = exchange["response"]["events"]
    assert len(events) > 5 and "hello" in json.dumps(events) and exchange["response"]["body"] == ""
    assert [event["seconds"] for event in events] == sorted(event["seconds"] for event in events)
    assert len("\n\n".join(event["text"] for event in events)) + 2 == item["response_bytes"]


@pytest.mark.parametrize("protocol", ["acp", "langgraph"])
async def test_other_protocols_are_recorded_alike(tmp_path: Path, protocol: str) -> None:
    async with wired(tmp_path, "all", protocol) as gateways:
        run_id = await gateways.start("echo")
        exchanges = await gateways.all(run_id)
        assert exchanges
        for exchange in exchanges:
            schema().validate(exchange)
        assert "hello there" in json.dumps(exchanges)
        assert SECRET not in json.dumps(exchanges)


async def test_secrets_are_not_stored(everything: Wired) -> None:
    run_id = await everything.start("echo", f"repeat {SECRET}")
    text = json.dumps([await everything.get(f"{run_id}/exchanges"), await everything.all(run_id)])
    assert SECRET not in text
    *_, exchange = await everything.all(run_id)
    headers = {name.lower(): value for name, value in exchange["request"]["headers"]}
    assert headers["x-tenant-key"] == headers["authorization"] == "***"
    assert headers["content-type"] == "application/json"
    assert "repeat ***" in exchange["request"]["body"]
    recorder = everything.front.hub.engine.exchanges.find_any(run_id)
    assert recorder is not None
    stored = b"".join(piece for each in recorder.exchanges for pieces in each.bodies() for _, piece in pieces)
    assert SECRET.encode() not in stored


async def test_only_failed_runs_keep_their_exchanges(failures: Wired) -> None:
    failed, succeeded = await failures.start("fail"), await failures.start("echo")
    assert {item["status"] for item in (await failures.get(f"{failed}/exchanges"))["items"]} == {200}
    listed = await failures.get(f"{succeeded}/exchanges")
    assert listed["items"] == [] and listed["mode"] == "failures" and "Only runs that fail" in listed["why_empty"]
    assert failures.front.hub.engine.exchanges.find_any(succeeded) is None
    await failures.get(f"{failed}/exchanges/99", 404)


async def test_active_run_shows_exchanges_so_far(failures: Wired) -> None:
    run_id = await failures.start("held", background=True)
    stream = failures.front.http.stream("GET", f"/v1/runs/{run_id}/stream")
    async with asyncio.timeout(20), stream as response:
        await anext(line async for line in response.aiter_lines() if "begun" in line)
    assert "begun" in json.dumps(await failures.all(run_id))
    *_, item = (await failures.get(f"{run_id}/exchanges"))["items"]
    assert not item["ended"]
    await failures.front.http.post(f"/v1/runs/{run_id}/cancel")
    exchanges = failures.front.hub.engine.exchanges
    await within(eventually(lambda: exchanges.find_any(run_id) is None), "the end of the run")


async def test_an_agent_in_this_process_has_no_exchanges(failures: Wired) -> None:
    run_id = await failures.start("here")
    assert "in this process" in (await failures.get(f"{run_id}/exchanges"))["why_empty"]


async def test_an_unreachable_server_is_an_exchange_with_an_error(tmp_path: Path) -> None:
    async with wired(tmp_path, "failures") as gateways:
        pass
    agent = {"url": f"{gateways.back.url}/a2a/echo", "protocol": "a2a", "agent": "echo"}
    async with running(tmp_path, configured={"echo": agent}, console={"wire": "failures"}) as front:
        alone = Wired(front, gateways.back)
        run_id = await alone.start("echo")
        exchanges = await alone.all(run_id)
        assert exchanges and all("Connect" in each["error"] and "response" not in each for each in exchanges)
        for exchange in exchanges:
            schema().validate(exchange)


async def test_without_recording_nothing_is_stored(tmp_path: Path) -> None:
    async with wired(tmp_path, "off") as gateways:
        run_id = await gateways.start("fail")
        listed = await gateways.get(f"{run_id}/exchanges")
        assert listed["items"] == [] and listed["mode"] == "off" and "console.wire" in listed["why_empty"]
        assert gateways.front.hub.engine.exchanges.size == 0


async def test_a_long_body_is_cut(everything: Wired) -> None:
    run_id = await everything.start("long")
    *_, item = (await everything.get(f"{run_id}/exchanges"))["items"]
    assert item["response_bytes"] > 800_000
    recorder = everything.front.hub.engine.exchanges.find_any(run_id)
    assert recorder is not None and BODY_LIMIT < recorder.size < 2 * BODY_LIMIT
    *_, exchange = await everything.all(run_id)
    assert sum(len(event["text"]) for event in exchange["response"]["events"]) <= BODY_LIMIT


async def test_the_oldest_runs_make_room_for_new_ones(everything: Wired) -> None:
    exchanges = everything.front.hub.engine.exchanges
    first = await everything.start("echo")
    exchanges._max_size = exchanges.size + 3000  # pyright: ignore[reportPrivateUsage]
    last = ""
    while exchanges.find_any(first) is not None:
        last = await everything.start("echo")
    assert exchanges.find_any(last) is not None
    assert exchanges.size <= exchanges._max_size  # pyright: ignore[reportPrivateUsage]
    assert "not in the memory" in (await everything.get(f"{first}/exchanges"))["why_empty"]


async def test_an_erased_thread_loses_its_exchanges(everything: Wired) -> None:
    run_id = await everything.start("echo")
    exchanges = everything.front.hub.engine.exchanges
    run = await everything.front.hub.reads.run("default", run_id)
    assert exchanges.find_any(run_id) is not None
    await everything.front.hub.delete_thread("default", run.thread_id)
    assert exchanges.find_any(run_id) is None
    await everything.get(f"{run_id}/exchanges", 404)


KEYS: Final[Mapping[str, Any]] = {
    "ops": {"key": "key-of-ops", "groups": ["ops"]},
    "alice": "key-of-alice",
    "bob": "key-of-bob",
}
ACCESS: Final = (
    {"who": "*", "allow": ["discover", "read", "run", "write"]},
    {"who": "group:ops", "allow": ["admin"]},
)


async def test_only_readers_see_bodies_and_only_operators_see_hosts(tmp_path: Path) -> None:
    async with wired(tmp_path, "all", keys=KEYS, access=ACCESS) as gateways:
        http, host = gateways.front.http, gateways.back.url.removeprefix("http://")
        http.headers["X-Api-Key"] = "key-of-alice"
        run_id = await gateways.start("echo")
        *_, exchange = await gateways.all(run_id)
        assert "hello there" in json.dumps(exchange)
        assert exchange["request"]["url"] == "http://***/a2a/echo"
        assert host not in json.dumps(exchange)
        http.headers["X-Api-Key"] = "key-of-bob"
        await gateways.get(f"{run_id}/exchanges", 404)
        await gateways.get(f"{run_id}/exchanges/1", 404)
        http.headers["X-Api-Key"] = "key-of-alice"
        thread_id = (await gateways.get(run_id))["thread_id"]
        grant = {"thread_id": thread_id, "grantee": "owner:bob", "level": "read"}
        assert (await http.post("/grants", json=grant)).is_success
        http.headers["X-Api-Key"] = "key-of-bob"
        assert (await gateways.all(run_id))[-1] == exchange
        http.headers["X-Api-Key"] = "key-of-ops"
        listed = await gateways.get(f"{run_id}/exchanges")
        assert listed["items"][-1]["url"] == f"http://{host}/a2a/echo"
        assert "hello" not in json.dumps(listed)
        assert "may read" in (await gateways.get(f"{run_id}/exchanges/1", 403))["error"]["message"]
        run_of_ops = await gateways.start("echo")
        assert host in json.dumps(await gateways.all(run_of_ops))


async def test_events_are_split_with_the_time_of_their_end() -> None:
    pieces = [(0.1, b"data: one\r"), (0.2, b"\n\r\ndata: "), (0.3, b"two\n\ndata: three"), (0.4, b"")]
    assert list(split_events([each for each in pieces if each[1]])) == [
        (0.2, "data: one"),
        (0.3, "data: two"),
        (0.3, "data: three"),
    ]


async def test_errors_name_hosts_to_operators_only(tmp_path: Path) -> None:
    async with wired(tmp_path, "failures") as gateways:
        pass
    host = gateways.back.url.removeprefix("http://")
    agent = {"url": f"{gateways.back.url}/a2a/echo", "protocol": "a2a", "agent": "echo"}
    async with running(tmp_path, configured={"echo": agent}, keys=KEYS, access=ACCESS) as front:
        alone = Wired(front, gateways.back)
        for key, sees_hosts in (("key-of-alice", False), ("key-of-ops", True)):
            front.http.headers["X-Api-Key"] = key
            *_, exchange = await alone.all(await alone.start("echo"))
            assert exchange["error"].startswith("ConnectError")
            text = json.dumps(exchange)
            assert (host in text) is ("127.0.0.1" in exchange["error"]) is sees_hosts
            assert sees_hosts or "127.0.0.1" not in text


ADDRESSES: Final = AddressFilter(
    [
        "http://planner.corp.example:8080/a2a",
        "http://agent:9000/",
        "https://tools/",
        "http://[fd00::1]:7000/x",
        "http://[x",
    ]
)


@pytest.mark.parametrize(
    ("text", "public_text"),
    [
        ("http://planner.corp.example:8080/a2a", "http://***/a2a"),
        ("http://user@PLANNER.corp.example/a?b=1", "http://***/a?b=1"),
        ('{"url":"https://other.internal/a2a","name":"agent"}', '{"url":"https://***/a2a","name":"agent"}'),
        ("wss:\\/\\/other.internal:1\\/a", "wss:\\/\\/***\\/a"),
        ("http:\\u002f\\u002fother\\u002fa", "http:\\u002f\\u002f***\\u002fa"),
        ("next=http%3A%2F%2Fother%3A90%2Fa%3Fb", "next=http%3A%2F%2F***%2Fa%3Fb"),
        ("http://[fd00::1]:7000/x", "http://***/x"),
        ("cannot reach Planner.corp.example.", "cannot reach ***."),
        ("planner.corp.example:8080 is down", "*** is down"),
        ("the agent uses tools", "the agent uses tools"),
        ("agent:9000 and tools:443", "*** and ***"),
        ("agent:90001", "agent:90001"),
        ("fd00::1 and [fd00::1]:7000", "*** and ***"),
        ("connect ECONNREFUSED 10.0.0.5:8000", "connect ECONNREFUSED ***"),
        ("127.0.0.1, 8.8.8.8 and 1.2.3.999", "***, 8.8.8.8 and 1.2.3.999"),
        ("version 1.10.0.0.5", "version 1.10.0.0.5"),
        ("https://a, (http://b) <http://c>", "https://***, (http://***) <http://***>"),
        ("a // comment", "a // comment"),
    ],
)
async def test_addresses_are_hidden_in_every_form(text: str, public_text: str) -> None:
    assert ADDRESSES.hide(text) == public_text


async def test_host_header_is_hidden_even_without_agents() -> None:
    headers = [("Host", "agent"), ("Location", "http://x/y"), ("Content-Type", "text/plain")]
    assert AddressFilter([]).hide_headers(headers) == [
        ("Host", "***"),
        ("Location", "http://***/y"),
        ("Content-Type", "text/plain"),
    ]
