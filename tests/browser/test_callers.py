"""Who may see what in the console: keys, owners, proxies and pages of other origins."""

import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.browser.chromium import Tab, expect
from tests.browser.conftest import NewTab, served_agents
from tests.gateway.command import Served

KEYS = {"alice": "alice-secret", "bob": "bob-secret"}
SEND = """async (url) => {
    const outcomes = [];
    for (const init of [
        { method: "GET" },
        { method: "POST", headers: { "content-type": "text/plain" }, body: "{}", mode: "no-cors" },
        { method: "POST", headers: { "content-type": "application/json" }, body: "{}" },
    ]) {
        outcomes.push(await fetch(url, init).then(({ status, type }) => `${type} ${status}`, () => "refused"));
    }
    return outcomes;
}"""
"""Script of a foreign page that calls the API of the console."""
EMBED = """url => new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.onload = () => resolve(frame.contentDocument === null);
    frame.src = url;
    document.body.append(frame);
})"""
"""Script of a foreign page that embeds the console. It returns true if the browser shows an error in its place."""
REFUSED = "status of 401"
NOT_FOUND = "status of 404"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """Gateway whose callers need keys."""
    with served_agents(tmp_path_factory.mktemp("keyed"), keys=KEYS) as started:
        yield started


def log_in(tab: Tab, key: str) -> None:
    form = tab.page.get_by_role("form", name="API key")
    form.get_by_label("API key or token").fill(key)
    form.get_by_role("button").click()


def test_wrong_key_is_refused_and_a_right_one_returns(new_tab: NewTab, keyed: Served) -> None:
    tab = new_tab(keyed.url)
    tab.expect_problem(REFUSED)
    tab.page.goto(f"{keyed.url}/console/#/agents/echo")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("This gateway needs an API key")
    log_in(tab, "wrong")
    expect(tab.page.get_by_role("alert")).to_contain_text("Not accepted")
    log_in(tab, KEYS["alice"])
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("echo")
    tab.see(re.compile("alice"))
    assert "alice-secret" not in tab.page.content()
    assert not any("alice-secret" in each for each in tab.requests)
    assert tab.page.evaluate("() => document.cookie") == ""
    tab.open("key")
    tab.button("Forget the key of this tab").click()
    tab.page.goto(f"{keyed.url}/console/#/threads")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("This gateway needs an API key")


def test_another_owner_sees_neither_run_nor_thread(new_tab: NewTab, keyed: Served) -> None:
    headers = {"Authorization": f"Bearer {KEYS['alice']}"}
    body = {"assistant_id": "echo", "input": "Alice's words"}
    run = httpx.post(f"{keyed.url}/v1/runs", json=body, headers=headers).json()
    tab = new_tab(keyed.url)
    tab.expect_problem(REFUSED)
    tab.expect_problem(NOT_FOUND)
    tab.page.goto(f"{keyed.url}/console/#/threads")
    log_in(tab, KEYS["bob"])
    expect(tab.page.locator("main[data-status=empty]")).to_be_visible()
    for route in (f"runs/{run['run_id']}", f"threads/{run['thread_id']}", f"agents/echo/try?thread={run['thread_id']}"):
        tab.page.goto(f"{keyed.url}/console/#/{route}")
        expect(tab.page.locator("main[data-status=error]")).to_be_visible()
        tab.see(re.compile("not found, or not yours|belongs to another", re.IGNORECASE))
    assert "Alice's words" not in tab.page.content()


class Prefix(BaseHTTPRequestHandler):
    """Reverse proxy that serves the gateway below `/team`, and streams its responses."""

    gateway: httpx.Client
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        path = self.path.removeprefix("/team") or "/"
        if path == self.path:
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        with self.gateway.stream(self.command, path, content=body, headers=headers) as response:
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                if name not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for chunk in response.iter_raw():
                self.wfile.write(chunk)
                self.wfile.flush()

    do_GET = do_POST = do_DELETE = forward

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: stderr belongs to the tests."""


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that closes a stream."""


@contextmanager
def proxied(gateway: str) -> Generator[str]:
    """Serve the gateway below a prefix, and yield the URL with it."""
    with httpx.Client(base_url=gateway, timeout=60) as client:
        server = QuietServer(("127.0.0.1", 0), type("OfGateway", (Prefix,), {"gateway": client}))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/team"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def test_console_works_below_the_prefix_of_a_proxy(new_tab: NewTab, gateway: Served) -> None:
    with proxied(gateway.url) as url:
        tab = new_tab(url)
        tab.open("agents/question/try")
        tab.message.fill("text")
        tab.button("Send").click()
        tab.page.locator("[data-answered=no]").get_by_label("Answer").last.fill("Ada")
        tab.button("Answer").click()
        tab.see('Answer: "Ada"')
        tab.page.get_by_role("link", name="Run page").first.click()
        tab.page.get_by_role("tab", name="As seen by").click()
        expect(tab.page.locator("[data-look]").first).to_be_visible()
        tab.check()
        tab.page.close()


def test_console_of_one_agent_is_below_its_path(new_tab: NewTab, gateway: Served) -> None:
    tab = new_tab(f"{gateway.url}/agent/echo")
    tab.open("agents")
    expect(tab.page.locator("tbody tr")).to_have_count(1)
    tab.open("agents/echo/try")
    tab.message.fill("Hello")
    tab.button("Send").click()
    expect(tab.page.locator("[data-run-status=success]")).to_be_visible()


def test_page_of_another_origin_cannot_use_the_console(new_tab: NewTab, gateway: Served, tmp_path: Path) -> None:
    """A page on another port of this machine may call the protocols without a key, but not the console."""
    tab = new_tab()
    tab.expect_problem("CORS|ERR_FAILED|Failed to load|403|ERR_BLOCKED")
    with proxied(gateway.url) as url:
        # A static file of the proxy is a page of another origin.
        other = tab.page.context.new_page()
        other.goto(url.replace("/team", "/team/healthz"))
        outcomes = other.evaluate(SEND, f"{gateway.url}/console/api/v1/agents")
        assert outcomes[0] == "refused" and outcomes[2] == "refused", outcomes
        assert other.evaluate(EMBED, f"{gateway.url}/console/")
        other.close()
    headers = {"Origin": "http://127.0.0.1:3000", "Content-Type": "application/json"}
    for method in ("GET", "POST"):
        response = httpx.request(method, f"{gateway.url}/console/api/v1/me", headers=headers)
        assert response.status_code in (403, 405), response.text
    tab.open("agents")
