"""Metrics and logs of real gateways: exact counts over several protocols, servers that fail, webhooks and workers."""

import json
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.command import babelgate, bound_socket, served
from tests.gateway.telemetry.scrape import Metered
from tests.postgres import empty, url_of

METRICS = 'telemetry: {metrics: {listen: "127.0.0.1:0"}}\nnetwork: {allow: ["127.0.0.0/8"]}\n'
RUNS = ("runs_total", "upstream_failures_total", "failovers_total")
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@contextmanager
def metered(folder: Path, settings: str, **variables: str) -> Generator[Metered]:
    """Serve a gateway with metrics."""
    (folder / "babelgate.yaml").write_text(METRICS + settings, encoding="utf-8")
    with served(folder, **variables) as gateway:
        found = Metered(gateway)
        try:
            yield found
        finally:
            found.close()


def acp(http: httpx.Client, agent: str, mode: str = "sync", **headers: str) -> httpx.Response:
    body = {"agent_name": agent, "mode": mode, "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
    return http.post("/acp/runs", json=body, headers=headers)


def a2a(http: httpx.Client, method: str = "SendMessage") -> httpx.Response:
    params = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return http.post("/a2a/echo", json=body, headers={"A2A-Version": "1.0"})


def test_calls_of_several_protocols_are_counted_exactly(tmp_path: Path):
    with metered(tmp_path, "") as gateway:
        http = gateway.http
        for _ in range(3):
            acp(http, "echo")
        acp(http, "echo", "stream")
        acp(http, "fail")
        a2a(http)
        a2a(http, "SendStreamingMessage")
        http.post("/v1/chat/completions", json={"model": "echo", "messages": [{"role": "user", "content": "Hello"}]})
        http.post(
            "/runs/wait", json={"assistant_id": "ask", "input": {"messages": [{"role": "user", "content": "Hi"}]}}
        )
        http.get("/nothing")
        found = gateway.await_scrape(lambda scrape: scrape.value("questions_open") or True)
    assert found.counters("runs_total") == {
        "runs_total{agent=echo,outcome=success,protocol=acp}": 4,
        "runs_total{agent=fail,outcome=error,protocol=acp}": 1,
        "runs_total{agent=echo,outcome=success,protocol=a2a}": 2,
        "runs_total{agent=echo,outcome=success,protocol=openai}": 1,
        "runs_total{agent=ask,outcome=paused,protocol=langgraph}": 1,
    }
    assert found.counters("requests_total") == {
        "requests_total{operation=create_run,protocol=acp,status=200}": 5,
        "requests_total{operation=SendMessage,protocol=a2a,status=200}": 1,
        "requests_total{operation=SendStreamingMessage,protocol=a2a,status=200}": 1,
        "requests_total{operation=chat_completions.create,protocol=openai,status=200}": 1,
        "requests_total{operation=run.create_wait,protocol=langchain,status=200}": 1,
        "requests_total{operation=other,protocol=gateway,status=404}": 1,
    }
    assert found.value("request_seconds_count", protocol="acp") == 4
    assert found.value("request_seconds_count", protocol="a2a") == 1
    assert found.value("run_seconds_count", agent="echo") == 7
    assert found.value("run_wait_seconds_count", agent="echo") == 7
    assert found.value("first_event_seconds_count", agent="echo") == 7
    assert found.value("first_event_seconds_count", agent="fail", protocol="acp") == 1
    assert found.counters("streams_open") == {"streams_open{protocol=acp}": 0, "streams_open{protocol=a2a}": 0}
    assert found.value("runs_open") == 0
    assert found.value("agent_up", agent="echo") == 1
    assert found.value("database_up") == 1
    assert found.value("disk_free_bytes", folder="database") > 0
    assert found.value("journal_writes_total") >= 9
    assert found.value("commit_seconds_count") >= 9
    assert found.value("build_info") == 1


def test_failed_servers_are_counted(tmp_path: Path):
    behind, before = tmp_path / "behind", tmp_path / "before"
    behind.mkdir()
    before.mkdir()
    with served(behind) as upstream, bound_socket() as dead:
        dead_url = f"http://127.0.0.1:{dead.getsockname()[1]}"
        settings = (
            "agents:\n"
            f"  both: {{urls: ['{dead_url}/acp', '{upstream.url}/acp'], protocol: acp, agent: echo}}\n"
            f"  failing: {{url: '{upstream.url}/acp', protocol: acp, agent: fail}}\n"
        )
        with metered(before, settings) as gateway:
            assert acp(gateway.http, "both").json()["status"] == "completed"
            assert acp(gateway.http, "failing").json()["status"] == "failed"
            found = gateway.scrape()
    assert found.counters(*RUNS) == {
        "runs_total{agent=both,outcome=success,protocol=acp}": 1,
        "runs_total{agent=failing,outcome=error,protocol=acp}": 1,
        "upstream_failures_total{agent=both,fault=agent_unreachable}": 1,
        "upstream_failures_total{agent=failing,fault=agent_failed}": 1,
        "failovers_total{agent=both}": 1,
    }
    assert found.counters("upstream_breaker") == {
        "upstream_breaker{agent=both,server=1}": 0,
        "upstream_breaker{agent=both,server=2}": 0,
        "upstream_breaker{agent=failing,server=1}": 0,
    }


class Receiver(HTTPServer):
    """Receiver of webhooks that refuses the first post."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Webhook)
        self.statuses = [503, 200]
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Webhook(BaseHTTPRequestHandler):
    server: Receiver  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.statuses.pop(0))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def test_posts_to_webhooks_are_counted_by_outcome(tmp_path: Path):
    receiver = Receiver()
    try:
        with metered(tmp_path, "webhooks: {retries: [0.1]}\n") as gateway:
            url = f"http://127.0.0.1:{receiver.server_address[1]}/"
            body: dict[str, Any] = {"assistant_id": "echo", "input": {"messages": []}, "webhook": url}
            gateway.http.post("/runs/wait", json=body).raise_for_status()
            found = gateway.await_scrape(lambda scrape: scrape.value("webhook_posts_total", outcome="delivered"))
            gateway.await_scrape(lambda scrape: not scrape.value("webhooks_pending"))
    finally:
        receiver.shutdown()
        receiver.server_close()
    assert found.counters("webhook_posts_total") == {
        "webhook_posts_total{outcome=delivered}": 1,
        "webhook_posts_total{outcome=failed}": 1,
        "webhook_posts_total{outcome=gone}": 0,
    }


def test_streams_and_connections_are_counted_while_open(tmp_path: Path):
    with metered(tmp_path, "") as gateway:
        body = {"agent_name": "slow", "mode": "stream", "input": [{"role": "user", "parts": [{"content": "600"}]}]}
        with gateway.http.stream("POST", "/acp/runs", json=body) as response:
            chunks = response.iter_raw()  # httpx closes the connection with the iterator
            next(chunks)
            found = gateway.scrape()
        assert found.value("streams_open", protocol="acp") == 1
        assert found.value("connections", state="active") == 1
        assert found.value("runs_open", agent="slow", state="running") == 1
        assert found.value("requests_total") == 0
        found = gateway.await_scrape(lambda scrape: scrape.value("requests_total"))
        assert found.value("streams_open") == 0
        assert found.value("request_seconds_count") == 0


def test_metrics_have_one_page(tmp_path: Path):
    with metered(tmp_path, "") as gateway:
        page = httpx.get(gateway.url, trust_env=False)
        assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert page.headers["server"] == "babelgate"
        assert httpx.head(gateway.url, trust_env=False).status_code == 200
        other = httpx.get(gateway.url.removesuffix("/metrics"), trust_env=False)
        assert (other.status_code, other.text) == (404, "The metrics are at /metrics.\n")
        assert gateway.http.get("/metrics").status_code == 404  # not on the port of callers


def test_variable_of_another_gateway_is_not_used(tmp_path: Path):
    with metered(tmp_path, "", PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "shared")) as gateway:
        acp(gateway.http, "echo")
        assert gateway.scrape().value("runs_total") == 1
    assert not (tmp_path / "shared").exists()


def test_port_in_use_names_the_setting(tmp_path: Path):
    with bound_socket() as occupied:
        occupied.listen()
        port = occupied.getsockname()[1]
        ended = babelgate(tmp_path, "serve", "--port", "0", BABELGATE_TELEMETRY__METRICS__LISTEN=f"127.0.0.1:{port}")
    assert ended.returncode == 1
    assert f"telemetry.metrics.listen: cannot listen on 127.0.0.1:{port}: Address already in use" in ended.stderr


def test_json_log_holds_the_ids_of_request_and_run(tmp_path: Path):
    with metered(tmp_path, "log_format: json\n") as gateway:
        response = acp(gateway.http, "fail", traceparent=f"00-{TRACE}-{SPAN}-01")
        log = gateway.gateway.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    (request,) = (line for line in lines if line["logger"] == "babelgate.request")
    (failure,) = (line for line in lines if line["logger"] == "babelgate.agent")
    ids = {"thread": response.headers["babelgate-thread"], "task": response.headers["babelgate-task"]}
    shared = {
        **ids,
        "run": response.headers["babelgate-run"],
        "request_id": response.headers["x-request-id"],
        "trace_id": TRACE,
        "span_id": SPAN,
        "owner": "default",
        "protocol": "acp",
    }
    assert {name: request.get(name) for name in shared} == shared
    assert {name: failure.get(name) for name in shared} == shared
    assert (request["operation"], request["status"]) == ("create_run", 200)
    assert request["duration_ms"] > 0
    assert failure["agent"] == "fail"
    assert "RuntimeError: Hello" in failure["exception"]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


@pytest.mark.slow
def test_counters_of_workers_do_not_jump_between_scrapes(postgres_tables: str, tmp_path: Path):
    empty(postgres_tables)
    database = url_of(postgres_tables)
    with metered(tmp_path, f"workers: 2\ndatabase: {database}\n") as gateway:
        pids = set[int]()
        runs = 0
        while len(pids) < 2 or runs < 20:  # each connection reaches one of the workers
            with httpx.Client(base_url=gateway.gateway.url, timeout=30, trust_env=False) as http:
                acp(http, "echo").raise_for_status()
                runs += 1
                pids.add(int(http.get("/readyz").json()["node"].rpartition(":")[2]))
        scrapes = [gateway.scrape() for _ in range(10)]
        assert {each.value("runs_total") for each in scrapes} == {runs}
        assert {each.value("requests_total", operation="create_run") for each in scrapes} == {runs}
        assert {each.value("agent_up", agent="echo") for each in scrapes} == {1}
        assert {each.value("build_info") for each in scrapes} == {1}
        victim = pids.pop()
        os.kill(victim, signal.SIGKILL)
        gateway.gateway.logged("is ready")  # the worker that is started instead
        assert gateway.await_scrape(lambda each: each.value("agent_up", agent="echo") == 1).value("runs_total") == runs
