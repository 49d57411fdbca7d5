"""Traces of real gateways, as a receiver of OTLP gets them: two gateways in a row, a killed gateway, and webhooks."""

import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, Final, cast

import httpx
import pytest

from tests.gateway.command import Served, bound_socket, served
from tests.interop.peers import peer_python
from tests.interop.tap import BOUND, ENDPOINT, SPAN, Tap, Trace, tapped
from tests.postgres import empty, url_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "observability.md"
KEY: Final = "alice-key-1234567890"
SETTINGS: Final = f"""telemetry: {{traces: otlp}}
keys: {{alice: {KEY}}}
network: {{allow: ["127.0.0.0/8"]}}
"""
UPSTREAMS: Final = {
    "a2a": "/a2a/echo",
    "acp": "/acp",
    "aief": "/agent/echo",
    "langgraph": "",
    "openai": "/v1",
}
"""Paths of the second gateway, by the protocol in which the first one calls it."""

INPUT: Final[Any] = [{"role": "user", "parts": [{"content": "Hello"}]}]
MESSAGE: Final[Any] = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


FRONTS: Final[Mapping[str, tuple[str, Callable[[str], dict[str, Any]]]]] = {
    "a2a": ("/a2a/{agent}", lambda agent: rpc("SendMessage", {"message": MESSAGE})),
    "acp": ("/acp/runs", lambda agent: {"agent_name": agent, "input": INPUT}),
    "langchain": (
        "/runs/wait",
        lambda agent: {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": "Hello"}]}},
    ),
    "mcp": ("/mcp", lambda agent: rpc("tools/call", {"name": agent, "arguments": {"message": "Hello"}})),
    "openai": (
        "/v1/chat/completions",
        lambda agent: {"model": agent, "messages": [{"role": "user", "content": "Hello"}]},
    ),
}
"""Paths of the first gateway, and the body of a call to an agent."""


@pytest.fixture(scope="module")
def tap() -> Generator[Tap]:
    with tapped() as tap:
        yield tap


@pytest.fixture(scope="module")
def first(tap: Tap, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A gateway whose agents are those of another one, once in each protocol."""
    near, far = tmp_path_factory.mktemp("near"), tmp_path_factory.mktemp("far")
    (far / "babelgate.yaml").write_text(SETTINGS, encoding="utf-8")
    with served(far, **tap.variables) as second:
        agents = {
            protocol: {
                "url": f"{second.url}{path}",
                "protocol": protocol,
                "headers": {"x-api-key": KEY},
                **({} if protocol in ("a2a", "aief") else {"agent": "echo"}),
            }
            for protocol, path in UPSTREAMS.items()
        }
        (near / "babelgate.yaml").write_text(f"{SETTINGS}agents: {json.dumps(agents)}\n", encoding="utf-8")
        with served(near, **tap.variables) as gateway:
            yield gateway


def post(gateway: Served, path: str, body: Any, trace: str) -> httpx.Response:
    headers = {
        "x-api-key": KEY,
        "traceparent": f"00-{trace}-{SPAN}-01",
        "Accept": "application/json, text/event-stream",
        "A2A-Version": "1.0",
    }
    response = httpx.post(f"{gateway.url}{path}", json=body, headers=headers, timeout=BOUND)
    response.raise_for_status()
    return response


def is_whole(trace: Trace) -> bool:
    """Return True if the spans of both gateways have arrived."""
    return SPAN in {each["parentSpanId"] for each in trace.spans} and len(trace.named("invoke_agent echo")) == 1


CELLS: Final = [
    *(("acp", upstream) for upstream in UPSTREAMS),
    *((front, "a2a") for front in FRONTS if front != "acp"),
]
"""Pairs of the protocol in front and the kind of agent: each kind of agent behind ACP, and an A2A agent behind each
other protocol."""


@pytest.mark.parametrize(("front", "upstream"), CELLS, ids=str)
def test_two_gateways_in_a_row_make_one_trace(tap: Tap, first: Served, front: str, upstream: str):
    trace = secrets.token_hex(16)
    path, body = FRONTS[front]
    post(first, path.replace("{agent}", upstream), body(upstream), trace)
    found = tap.wait(trace, lambda trace: is_whole(trace) and len(trace.roots) == 1)
    route = f"POST {path}"
    assert found.roots == [route]
    (far,) = found.named("invoke_agent echo")
    names = found.path(far)
    operations = {"a2a": ["SendMessage"], "mcp": [f"tools/call {upstream}"]}
    top = [route, *operations.get(front, []), f"invoke_agent {upstream}", f"invoke_agent {upstream}"]
    assert names[: len(top)] == top
    rest = names[len(top) :]
    if upstream == "a2a":
        assert rest[:-1] == ["SendStreamingMessage", "POST", "POST /a2a/{agent}", "SendStreamingMessage"]
    else:
        assert rest[0] == "POST" and rest[1].startswith("POST /")
    assert rest[-1] == "invoke_agent echo"


def test_the_page_shows_what_the_gateways_send(tap: Tap, first: Served):
    path, body = FRONTS["a2a"]
    trace = secrets.token_hex(16)
    for each in (secrets.token_hex(16), trace):  # the first call may read the card
        post(first, path.replace("{agent}", "a2a"), body("a2a"), each)
    found = tap.wait(trace, lambda trace: is_whole(trace) and len(trace.roots) == 1)
    lines = "\n".join(found.draw()).replace("invoke_agent a2a", "invoke_agent planner")
    assert f"```text\n{lines}\n```" in PAGE.read_text(encoding="utf-8"), lines


def test_each_worker_sends_its_spans(tap: Tap, postgres_tables: str, tmp_path: Path):
    empty(postgres_tables)
    settings = f"{SETTINGS}workers: 2\ndatabase: {url_of(postgres_tables)}\n"
    (tmp_path / "babelgate.yaml").write_text(settings, encoding="utf-8")
    path, body = FRONTS["acp"]
    traces, nodes = list[str](), set[str]()
    with served(tmp_path, **tap.variables) as gateway:
        while len(nodes) < 2:  # each connection reaches one of the workers
            with httpx.Client(base_url=gateway.url, headers={"x-api-key": KEY}, trust_env=False) as http:
                trace = secrets.token_hex(16)
                http.post(path, json=body("echo"), headers={"traceparent": f"00-{trace}-{SPAN}-01"}).raise_for_status()
                nodes.add(http.get("/readyz").json()["node"])
                traces.append(trace)
        for trace in traces:
            tap.wait(trace, lambda trace: trace.roots == ["POST /acp/runs"] and len(trace.spans) == 2)


class Receiver(HTTPServer):
    """Receiver of webhooks that keeps the headers of all posts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Webhook)
        self.posts: Queue[Mapping[str, str]] = Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Webhook(BaseHTTPRequestHandler):
    server: Receiver  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.put({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def await_port(port: int) -> None:
    """Wait until a program listens on a port."""
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
    raise AssertionError(f"nothing listens on port {port}")


def test_a_collector_accepts_the_last_spans_of_a_gateway(tmp_path: Path):
    with bound_socket() as http, bound_socket() as grpc:
        ports = [each.getsockname()[1] for each in (http, grpc)]
    program = next((peer_python("oteltap").parents[1] / "lib").glob("python*/site-packages/rotel/rotel-agent"))
    command = [str(program), "start", "--otlp-http-endpoint", f"127.0.0.1:{ports[0]}", "--exporter", "blackhole"]
    command += ["--otlp-grpc-endpoint", f"127.0.0.1:{ports[1]}", "--debug-log", "traces"]
    command += ["--debug-log-verbosity", "detailed"]
    (tmp_path / "babelgate.yaml").write_text(SETTINGS, encoding="utf-8")
    variables = {ENDPOINT: f"http://127.0.0.1:{ports[0]}", "OTEL_BSP_SCHEDULE_DELAY": "60000"}
    trace = secrets.token_hex(16)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        await_port(ports[0])
        with served(tmp_path, **variables) as gateway:
            path, body = FRONTS["acp"]
            post(gateway, path, body("echo"), trace)
            log = gateway.stop()
    finally:
        process.terminate()
        received, _ = process.communicate(timeout=BOUND)
    assert "not sent" not in log
    assert any("POST /acp/runs 200" in line and line.endswith(f" trace={trace}") for line in log.splitlines()), log
    assert trace in received
    assert "POST /acp/runs" in received
    assert "invoke_agent echo" in received


AGENT: Final = """
import asyncio
import os
from collections.abc import AsyncGenerator


async def hold(text: str) -> AsyncGenerator[str]:
    if "GO" not in os.environ:
        await asyncio.Event().wait()
    yield text
"""


def test_a_killed_run_and_its_webhook_stay_in_the_trace(tap: Tap, tmp_path: Path):
    (tmp_path / "held.py").write_text(AGENT, encoding="utf-8")
    agents = {"hold": {"python": "held:hold", "idempotent": True}}
    (tmp_path / "babelgate.yaml").write_text(f"{SETTINGS}agents: {json.dumps(agents)}\n", encoding="utf-8")
    trace, receiver = secrets.token_hex(16), Receiver()
    url = f"http://127.0.0.1:{receiver.server_address[1]}/hook?token=secret"
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
    try:
        with served(tmp_path, **tap.variables) as gateway:
            post(gateway, "/a2a/hold", rpc("SendMessage", {"message": MESSAGE, "configuration": configuration}), trace)
            tap.wait(trace, lambda trace: "SendMessage" in trace.names())
            gateway.process.kill()
        with served(tmp_path, GO="1", **tap.variables):
            found = tap.wait(trace, lambda trace: {"invoke_agent hold", "POST"} <= set(trace.names()))
            webhooks: list[dict[str, Any]] = []
            while not webhooks:  # the span of a delivery before the kill may be lost
                sent = receiver.posts.get(timeout=BOUND)["traceparent"]
                webhooks = [each for each in found.named("POST") if sent == f"00-{trace}-{each['spanId']}-01"]
    finally:
        receiver.shutdown()
        receiver.server_close()
    (operation,), (run,), (webhook,) = found.named("SendMessage"), found.named("invoke_agent hold"), webhooks
    assert run["parentSpanId"] == operation["spanId"]
    assert attributes(run)["babelgate.run.attempt"] == "2"
    assert webhook["parentSpanId"] == operation["spanId"]
    assert attributes(webhook)["url.full"] == url.partition("?")[0]


HASTY: Final = (
    sys.executable,
    "-c",
    "from babelgate.gateway.cli import main\n"
    "from babelgate.gateway.storage import nodes\n"
    "nodes.BEAT, nodes._OBSERVATION_TIME, nodes.DEAD_AFTER = 0.1, 0.5, 2.0\n"
    "main()",
)
"""Program of a node that takes over the runs of a killed one after two seconds."""


@pytest.mark.slow
def test_a_run_of_a_killed_node_stays_in_the_trace(tap: Tap, postgres_tables: str, tmp_path: Path):
    empty(postgres_tables)
    (tmp_path / "held.py").write_text(AGENT, encoding="utf-8")
    agents = {"hold": {"python": "held:hold", "idempotent": True}}
    settings = {
        "cluster": True,
        "database": url_of(postgres_tables),
        "blobs": str(tmp_path / "files"),
        "agents": agents,
    }
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items()]
    (tmp_path / "babelgate.yaml").write_text(SETTINGS + "".join(lines), encoding="utf-8")
    trace, body = secrets.token_hex(16), {"message": MESSAGE, "configuration": {"returnImmediately": True}}
    with (
        served(tmp_path, program=HASTY, **tap.variables) as first,
        served(tmp_path, program=HASTY, GO="1", **tap.variables),
    ):
        post(first, "/a2a/hold", rpc("SendMessage", body), trace)
        tap.wait(trace, lambda trace: "SendMessage" in trace.names())
        first.process.kill()
        spans = tap.wait(trace, lambda trace: "invoke_agent hold" in trace.names())
    (operation,), (run,) = spans.named("SendMessage"), spans.named("invoke_agent hold")
    assert run["parentSpanId"] == operation["spanId"]
    assert attributes(run)["babelgate.run.attempt"] == "2"


def attributes(span: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: cast("str", next(iter(each["value"].values()))) for each in span["attributes"]}
