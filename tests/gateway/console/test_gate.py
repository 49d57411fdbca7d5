"""Access to the console's API: only its own page calls it, and the policy says who is an operator."""

import re
from collections.abc import AsyncGenerator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from litestar import Request

from babelgate.canonical import FaultError
from babelgate.gateway.console.gate import ConsoleGate
from babelgate.gateway.console.pages import static_files
from babelgate.gateway.http.generations import policy_of_settings
from babelgate.gateway.http.verifier import ANONYMOUS
from babelgate.gateway.settings.console import ConsoleSettings
from babelgate.gateway.settings.model import Settings
from tests.gateway.admin.administering import ALICE, OPS, administered
from tests.running import Running, running

ME = "/console/api/v1/me"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def named_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    """Gateway without keys that has a host name and a public URL."""
    folder = tmp_path_factory.mktemp("named")
    async with running(folder, hosts=["gateway.test"], public_url="https://public.test") as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://gateway.test:8000", "Host": "gateway.test:8000"}, 200),
        ({"Origin": "http://GATEWAY.test", "Host": "gateway.TEST"}, 200),
        ({"Origin": "https://public.test"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-origin"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://evil.example"}, 401),
        ({"Origin": "null"}, 401),
        ({"Origin": "http://evil.example", "Host": "evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_only_the_page_of_the_gateway_may_call(
    named_gateway: Running, headers: Mapping[str, str], status: int
) -> None:
    for prefix in ("", "/agent/echo"):
        response = await named_gateway.http.get(prefix + ME, headers=headers)
        assert response.status_code == status, response.text
        assert "access-control-allow-origin" not in response.headers
        if status >= 400:
            assert set(response.json()["error"]) == {"code", "message"}


@pytest.mark.parametrize(
    ("origin", "status"), [("https://example.com", 200), ("https://evil.example", 403), ("http://localhost:3000", 403)]
)
async def test_console_behind_a_proxy_has_the_forwarded_origin(tmp_path: Path, origin: str, status: int) -> None:
    """Accept only the origin that browsers see in front of the proxy, and not the name by which the proxy calls the
    gateway. A valid key makes no other origin acceptable."""
    async with administered(tmp_path, trusted_proxies=["127.0.0.1"], cors=["http://localhost:3000"]) as gateway:
        headers = {"Origin": origin, "X-Forwarded-Host": "example.com", "X-Forwarded-Prefix": "/gate", **OPS}
        response = await gateway.http.get(ME, headers=headers)
        assert response.status_code == status, response.text


@pytest.mark.asyncio(loop_scope="module")
async def test_preflight_of_another_origin_grants_nothing(named_gateway: Running) -> None:
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    response = await named_gateway.http.request("OPTIONS", ME, headers=headers)
    assert "access-control-allow-origin" not in response.headers


async def test_matching_origin_is_refused_if_any_host_is_allowed(tmp_path: Path) -> None:
    """Refuse a page that rebinds its name, although it has the same host and origin."""
    async with running(tmp_path, hosts=["*"]) as gateway:
        headers = {"Origin": "http://evil.example", "Host": "evil.example"}
        assert (await gateway.http.get(ME, headers=headers)).status_code == 401


@pytest.mark.asyncio(loop_scope="module")
async def test_console_may_call_protocols_under_a_configured_name(named_gateway: Running) -> None:
    run = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "hi"}]}]}
    for origin, status in (("http://gateway.test", 200), ("http://other.test", 401)):
        headers = {"Host": "gateway.test", "Origin": origin}
        assert (await named_gateway.http.post("/acp/runs", json=run, headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("method", "content_type", "is_refused"),
    [
        ("POST", "application/json", False),
        ("DELETE", "Application/JSON; charset=utf-8", False),
        ("GET", None, False),
        ("POST", "text/plain", True),
        ("POST", "application/x-www-form-urlencoded", True),
        ("POST", "multipart/form-data; boundary=application/json", True),
        ("PUT", "application/jsonp", True),
        ("DELETE", None, True),
    ],
)
def test_writes_need_json(method: str, content_type: str | None, is_refused: bool) -> None:
    """Refuse what a form of another page can send, also where a browser sends no Origin."""
    settings = Settings()
    gate = ConsoleGate(lambda: settings, policy_of_settings(settings), lambda scope, headers: True)
    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    scope: Any = {"type": "http", "method": method, "path": ME, "headers": headers}
    if is_refused:
        with pytest.raises(FaultError, match="expected application/json"):
            gate.check_request(Request(scope))
    else:
        gate.check_request(Request(scope))


OFF: Final = [
    *product(("GET", "HEAD", "OPTIONS", "POST"), ("/docs", "/docs/", "/docs//", "/agent/echo//docs")),
    *product(("GET", "OPTIONS", "POST"), ("/console", "/console/", "/console//", "/console/0123456789abcdef/main.js")),
    *product(("GET", "OPTIONS", "DELETE"), (ME, f"/agent/echo{ME}", "/console/api/v1/jobs", "/console/api/v1/other")),
    *product(("GET", "OPTIONS"), ("/console/other", "/agent/echo/console", "/agent/nobody/console/")),
]
"""Method and path of requests that are answered with 404 if `console: false` is set."""


async def test_console_that_is_off_has_no_paths(tmp_path: Path) -> None:
    static_files.cache_clear()
    async with administered(tmp_path, console=False) as gateway:
        for (method, path), headers in product(OFF, ({}, OPS)):
            response = await gateway.http.request(method, path, headers=headers)
            assert response.status_code == 404, (method, path, headers)
            assert "allow" not in response.headers
            assert method == "HEAD" or "console: true" in response.text
        for path in ("/", "/openapi.json", "/openapi/gateway.json"):
            response = await gateway.http.get(path, headers=OPS)
            assert response.status_code == 200
            assert not re.search('"/(console|docs)', response.text), path
    assert static_files.cache_info().currsize == 0


async def test_reload_switches_the_console(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        for console, status in ((ConsoleSettings(enabled=False), 404), (ConsoleSettings(jobs=False), 200)):
            await gateway.generations.apply(gateway.settings.model_copy(update={"console": console}))
            assert (await gateway.http.get("/console/")).status_code == status
            assert ("/console" in (await gateway.http.get("/openapi.json")).text) is console.enabled
        assert (await gateway.http.get(ME)).json()["can"]["jobs"] is False


@pytest.mark.parametrize(
    ("settings", "operates"),
    [
        ({}, True),
        ({"host": "::1", "public_url": "http://localhost:9000"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "gateway.lan"}, False),
        ({"admin": {"listen": "127.0.0.1:9001"}}, True),
        ({"admin": {"listen": "[::1]:9001"}}, True),
        ({"admin": {"listen": "0.0.0.0:9001"}}, False),
        ({"public_url": "https://agents.example.com"}, False),
        ({"trusted_proxies": ["127.0.0.1"]}, False),
        ({"keys": {"alice": "alice-0123456789"}}, False),
    ],
)
def test_operator_without_credentials_is_on_this_machine(settings: Mapping[str, Any], operates: bool) -> None:
    loaded = Settings.model_validate(settings)
    gate = ConsoleGate(lambda: loaded, policy_of_settings(loaded), lambda scope, headers: True)
    assert gate.is_operator({}, ANONYMOUS) is operates


async def test_policy_decides_who_is_an_operator(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        for headers, operates in ((OPS, True), (ALICE, False)):
            me = (await gateway.http.get(ME, headers=headers)).json()
            assert me["operator"] is me["can"]["settings"] is me["can"]["jobs"] is operates
        assert (await gateway.http.get(ME)).status_code == 401
