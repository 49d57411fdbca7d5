"""Tests of the middleware: authentication, origins, base URLs, response headers, and the log."""

import hashlib
import logging
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from litestar import Request, Response

from babelgate.adapters.kit.server.caller import Caller
from babelgate.canonical import Fault, Principal
from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.http.front import Front
from babelgate.gateway.http.middleware import GatewayMiddleware
from babelgate.gateway.http.verifier import Verifier
from babelgate.gateway.settings.model import Settings
from tests.gateway.hubs import registered
from tests.gateway.log_capture import capture_log

INSTANCE = "5d0b2c6a-8f0e-4f7e-9c39-0d3f3a1f7a10"
SERVER = "http://192.0.2.7:8000"
"""Address of the gateway's socket, which can differ from the Host header of a request."""
LOOPBACK_PAGE, STRANGE_PAGE = "http://localhost:3000", "https://evil.example"
KEY = "alice-0123456789"
KEYS = {"alice": KEY}
PROXIES: dict[str, Any] = {"trusted_proxies": ["10.0.0.0/8"]}
HTTPS = {"X-Forwarded-Proto": "https"}


@dataclass
class Behind:
    """Application instead of the protocols: stores the scopes of requests, and sends the response that a test sets."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    scopes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    @property
    def caller(self) -> Caller:
        return self.scopes[-1]["state"]["caller"]


def refusal(fault: Fault, request: Request[Any, Any, Any]) -> Response[Any]:
    status = {"not_found": 404, "unauthenticated": 401, "forbidden": 403}[fault.code]
    return Response({"said": fault.message, "path": request.scope["path"]}, status_code=status)


@dataclass(frozen=True)
class Call:
    behind: Behind
    http: httpx.AsyncClient


@contextmanager
def calling(behind: Behind | None = None, *, client: str = "198.51.100.9", **settings: Any) -> Generator[Call]:
    behind = behind or Behind()
    loaded, registry = Settings.model_validate(settings), Registry([registered("echo", None), registered("ask", None)])
    front = Front.of(loaded, registry, Verifier(loaded))
    middleware = GatewayMiddleware(
        behind,
        lambda: front,
        can_discover=lambda _principal, name, _path: name in {"echo", "ask"},
        encode=refusal,
        version="1.2.3",
        instance=lambda: INSTANCE,
        has_context=loaded.log_format == "json",
    )
    transport = httpx.ASGITransport(middleware, client=(client, 40000))
    yield Call(behind, httpx.AsyncClient(transport=transport, base_url=SERVER))


# Base URL


@pytest.mark.parametrize(
    ("settings", "client", "headers", "base_url"),
    [
        ({}, "127.0.0.1", {"Host": "127.0.0.1:8000"}, "http://127.0.0.1:8000"),
        ({}, "127.0.0.1", {"Host": "localhost:8000"}, "http://localhost:8000"),
        ({}, "127.0.0.1", {"Host": "LOCALHOST"}, "http://LOCALHOST"),
        ({}, "127.0.0.1", {"Host": "[::1]:8000"}, "http://[::1]:8000"),
        ({}, "10.0.0.9", {"Host": "agents.example.com"}, SERVER),
        ({}, "10.0.0.9", {"Host": "localhost.evil.example"}, SERVER),
        ({}, "10.0.0.9", {"Host": "evil.example#127.0.0.1"}, SERVER),
        ({}, "10.0.0.9", {"Host": "evil.example@localhost"}, SERVER),
        ({}, "10.0.0.9", {"Host": "localhost:80@evil"}, SERVER),
        ({}, "10.0.0.9", {"Host": ""}, SERVER),
        ({}, "10.0.0.9", {"X-Forwarded-Host": "evil.example"}, SERVER),
        ({}, "127.0.0.1", {"Host": "localhost", "X-Forwarded-Host": "evil.example"}, "http://localhost"),
        ({}, "127.0.0.1", {"Host": "localhost", **HTTPS}, "http://localhost"),
        ({"public_url": "https://a.example/b/"}, "10.0.0.9", {"Host": "localhost"}, "https://a.example/b"),
        ({"public_url": "https://a.example", **PROXIES}, "10.0.0.9", {"X-Forwarded-Host": "b.c"}, "https://a.example"),
        (PROXIES, "10.0.0.9", {"X-Forwarded-Host": "a.example", **HTTPS}, "https://a.example"),
        (PROXIES, "::ffff:10.0.0.9", {"X-Forwarded-Host": "a.example:8443", **HTTPS}, "https://a.example:8443"),
        (PROXIES, "10.0.0.9", {"Host": "a.example", "X-Forwarded-Prefix": "/gate/"}, "http://a.example/gate"),
        (PROXIES, "10.0.0.9", {"Host": "a.example", "X-Forwarded-Prefix": "//b.c/<script>"}, "http://a.example"),
        (PROXIES, "10.0.0.9", {"X-Forwarded-Host": "a.example"}, "http://a.example"),
        (PROXIES, "10.0.0.9", {"Host": "a.example"}, "http://a.example"),
        (PROXIES, "10.0.0.9", {"X-Forwarded-Host": "a.example/b?c"}, SERVER),
        (PROXIES, "10.0.0.9", {"X-Forwarded-Host": "a b"}, SERVER),
        (PROXIES, "10.0.0.9", {"X-Forwarded-Proto": "javascript"}, SERVER),
        (PROXIES, "192.0.2.1", {"X-Forwarded-Host": "evil.example", **HTTPS}, SERVER),
        (PROXIES, "::1", {"X-Forwarded-Host": "evil.example", **HTTPS}, SERVER),
        (PROXIES, "testclient", {"X-Forwarded-Host": "evil.example"}, SERVER),
    ],
)
async def test_the_base_url_is_never_an_untrusted_host(
    settings: Mapping[str, Any], client: str, headers: Mapping[str, str], base_url: str
) -> None:
    with calling(client=client, hosts=["*"], **settings) as call:
        await call.http.get("/acp/agents", headers=headers)
        assert call.behind.caller.base_url == base_url


# A single agent


@pytest.mark.parametrize(
    ("path", "inner"), [("/agent/ask/acp/runs", "/acp/runs"), ("/agent/ask/", "/"), ("/agent/ask", "/")]
)
async def test_all_paths_exist_below_an_agents_prefix(path: str, inner: str) -> None:
    with calling() as call:
        assert (await call.http.get(path, headers={"Host": "localhost"})).status_code == 200
        assert call.behind.scopes[-1]["path"] == inner
        assert call.behind.caller.agent == "ask"
        assert call.behind.caller.base_url == "http://localhost/agent/ask"
        await call.http.get("/acp/runs", headers={"Host": "localhost"})
        assert call.behind.caller.agent == "echo"


@pytest.mark.parametrize(
    "path", ["/agent/ask/agent/echo/acp/ping", "/agent/ask/agent/ask/", "/agent/nobody/acp/ping", "/agent/Ask/acp/ping"]
)
async def test_nested_prefixes_and_unknown_agents_are_not_found(path: str) -> None:
    with calling() as call:
        assert (await call.http.get(path)).status_code == 404
        assert call.behind.scopes == []


async def test_an_error_below_an_agent_has_the_inner_paths_format() -> None:
    with calling(keys=KEYS) as call:
        refused = await call.http.get("/agent/ask/acp/runs")
        assert (refused.status_code, refused.json()["path"]) == (401, "/acp/runs")


# API keys


async def test_a_key_selects_its_owner_or_the_default_owner() -> None:
    keys = {"alice": KEY, "bob": "bob-0123456789"}
    with calling(keys=keys) as call:
        for owner, key in keys.items():
            await call.http.get("/acp/agents", headers={"Authorization": f"Bearer {key}"})
            assert (call.behind.caller.owner, call.behind.caller.authentication.is_required) == (owner, True)
    with calling() as call:
        await call.http.get("/acp/agents", headers={"Authorization": "Bearer whatever"})
        assert (call.behind.caller.owner, call.behind.caller.authentication.is_required) == ("default", False)


async def test_a_wrong_key_does_not_reach_the_app() -> None:
    with calling(keys=KEYS) as call:
        for headers in ({}, {"Authorization": "Bearer bob-0123456789"}, {"X-Api-Key": "alice"}):
            assert (await call.http.post("/acp/runs", headers=headers)).status_code == 401
        assert call.behind.scopes == []


async def test_a_key_on_a_public_path_selects_its_owner() -> None:
    with calling(keys=KEYS) as call:
        await call.http.get("/readyz")
        assert call.behind.caller.principal == Principal(subject="anonymous", owner="")
        await call.http.get("/readyz", headers={"X-Api-Key": KEY})
        assert call.behind.caller.owner == "alice"


async def test_a_key_identifies_its_principal() -> None:
    with calling(keys=KEYS) as call:
        await call.http.get("/acp/agents", headers={"X-Api-Key": KEY})
        key_id = hashlib.sha256(KEY.encode()).hexdigest()[:8]
        assert call.behind.caller.principal == Principal(subject="key:alice", owner="alice", credential_id=key_id)


async def test_a_gateway_without_keys_has_one_anonymous_principal() -> None:
    with calling() as call:
        await call.http.get("/acp/agents")
        assert call.behind.caller.principal == Principal(subject="anonymous", owner="default")


# Pages in browsers


PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "a2a-version, authorization"}


@pytest.mark.parametrize(
    ("cors", "public_url", "origin", "granted"),
    [
        ([], None, LOOPBACK_PAGE, True),
        ([], None, "http://127.0.0.1:5173", True),
        ([], None, "http://127.0.0.1", True),
        ([], None, "http://[::1]", True),
        ([], None, "https://localhost:8443", True),
        ([], None, STRANGE_PAGE, False),
        ([], None, "null", False),
        ([], None, "http://localhost.evil.example", False),
        ([], None, "http://localhost:3000.evil.example", False),
        ([], "https://a.example/gate", "https://a.example", True),
        ([], "https://a.example/gate", "https://a.example.evil.example", False),
        (["https://app.example"], None, "https://app.example", True),
        (["https://app.example"], "https://a.example/x", "https://a.example", True),
        (["https://app.example"], None, "http://app.example", False),
        (["https://app.example"], None, "https://app.example:8443", False),
        (["https://app.example"], None, LOOPBACK_PAGE, False),
        (["*"], None, STRANGE_PAGE, True),
    ],
)
async def test_pages_of_allowed_origins_may_call(
    cors: list[str], public_url: str | None, origin: str, granted: bool
) -> None:
    with calling(cors=cors, public_url=public_url) as call:
        preflight = await call.http.options("/acp/runs", headers={"Origin": origin, **PREFLIGHT})
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert call.behind.scopes == [], "the middleware answers preflights itself"
        response = await call.http.post("/acp/runs", headers={"Origin": origin})
        for answer in (preflight, response):
            assert answer.headers.get("access-control-allow-origin") == (origin if granted else None)
            assert "Origin" in answer.headers["vary"]
        assert "access-control-allow-credentials" not in response.headers


async def test_a_preflight_needs_no_key_and_grants_requested_headers() -> None:
    with calling(keys=KEYS) as call:
        preflight = await call.http.options("/a2a/echo", headers={"Origin": LOOPBACK_PAGE, **PREFLIGHT})
        assert preflight.headers["access-control-allow-origin"] == LOOPBACK_PAGE
        assert preflight.headers["access-control-allow-headers"] == "a2a-version, authorization"
        assert {"GET", "POST", "PUT", "PATCH", "DELETE"} <= set(
            preflight.headers["access-control-allow-methods"].split(", ")
        )
        assert int(preflight.headers["access-control-max-age"]) > 0


@pytest.mark.parametrize(("origin", "granted"), [(LOOPBACK_PAGE, "true"), ("https://evil.example", None)])
async def test_an_allowed_page_may_reach_a_private_network(origin: str, granted: str | None) -> None:
    with calling(keys=KEYS) as call:
        headers = {"Origin": origin, **PREFLIGHT, "Access-Control-Request-Private-Network": "true"}
        preflight = await call.http.options("/a2a/echo", headers=headers)
        assert preflight.headers.get("access-control-allow-private-network") == granted
        preflight = await call.http.options("/a2a/echo", headers={"Origin": origin, **PREFLIGHT})
        assert "access-control-allow-private-network" not in preflight.headers


async def test_pages_may_read_the_headers_that_clients_need() -> None:
    with calling() as call:
        response = await call.http.get("/acp/agents", headers={"Origin": LOOPBACK_PAGE})
        exposed = {name.lower() for name in response.headers["access-control-expose-headers"].split(", ")}
        required = {
            "babelgate",
            "babelgate-thread",
            "babelgate-task",
            "babelgate-run",
            "babelgate-loss",
            "x-request-id",
        }
        assert required | {"run-id", "location", "content-location", "etag", "x-workflow-run-id"} <= exposed
        assert {"www-authenticate", "retry-after", "ratelimit", "ratelimit-policy"} <= exposed


async def test_every_answer_varies_by_origin() -> None:
    """Send `Vary` with all responses: otherwise a cache could serve a permitted page one without the CORS headers."""
    with calling() as call:
        assert "Origin" in (await call.http.get("/acp/agents")).headers["vary"]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_without_keys_a_foreign_page_changes_nothing(method: str) -> None:
    """Reject requests of foreign pages if there are no API keys.

    A page can send a POST of plain text to any address without a preflight, and the gateway reads bodies of any type.
    Without keys, only the origin distinguishes a page from its user.
    """
    with calling() as call:
        refused = await call.http.request(method, "/acp/runs", headers={"Origin": STRANGE_PAGE}, content=b"{}")
        assert refused.status_code == 401
        assert call.behind.scopes == []
    with calling(keys=KEYS) as call:
        headers = {"Origin": STRANGE_PAGE, "X-Api-Key": KEY}
        permitted = await call.http.request(method, "/acp/runs", headers=headers)
        assert permitted.status_code == 200
        assert "access-control-allow-origin" not in permitted.headers


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/mcp", {"Origin": STRANGE_PAGE}, 401),
        ("/agent/echo/mcp", {"Origin": STRANGE_PAGE}, 401),
        ("/mcp", {"Origin": "null", "Host": ""}, 401),
        ("/mcp", {"Origin": "https://app.example.com"}, 200),
        ("/mcp", {"Origin": "https://Agents.example.com", "Host": "agents.example.com"}, 200),
        ("/mcp", {"Origin": "https://agents.example.com:8443", "Host": "agents.example.com"}, 401),
        ("/mcp", {"Origin": "https://a.example", "X-Forwarded-Host": "a.example"}, 200),
        ("/mcp", {}, 200),
        ("/mcpx", {"Origin": STRANGE_PAGE}, 200),
    ],
)
async def test_with_keys_the_origin_is_checked_where_protocols_require_it(
    path: str, headers: dict[str, str], status: int
) -> None:
    settings: Any = {"cors": ["https://app.example.com"], "trusted_proxies": ["10.0.0.0/8"]}
    with calling(client="10.0.0.9", keys=KEYS, **settings) as call:
        headers = {"X-Api-Key": KEY, **headers}
        assert (await call.http.post(path, headers=headers)).status_code == status
        assert len(call.behind.scopes) == (status == 200)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_without_keys_unknown_hosts_get_no_data(method: str) -> None:
    """Reject foreign host names: after DNS rebinding, a page has the gateway's origin, so it sends no Origin header."""
    with calling(public_url="https://agents.example.com") as call:
        for path in ("/", "/healthz", "/acp/agents", "/agent/echo/acp/runs"):
            refused = await call.http.request(method, path, headers={"Host": "evil.example:8000"})
            assert refused.status_code == 403
            if method not in ("HEAD", "OPTIONS"):
                assert "hosts" in refused.json()["said"]
        assert call.behind.scopes == []
        for host in ("agents.example.com", "localhost:8000", "192.0.2.7:8000"):
            assert (await call.http.request(method, "/acp/agents", headers={"Host": host})).status_code == 200


async def test_a_preflight_with_an_unknown_host_grants_nothing() -> None:
    with calling() as call:
        headers = {"Host": "evil.example", "Origin": LOOPBACK_PAGE, **PREFLIGHT}
        preflight = await call.http.options("/acp/runs", headers=headers)
        assert preflight.status_code == 403
        assert "access-control-allow-methods" not in preflight.headers


async def test_with_keys_every_host_needs_a_key() -> None:
    with calling(keys=KEYS) as call:
        headers = {"Host": "evil.example"}
        assert (await call.http.get("/acp/agents", headers=headers)).status_code == 401
        headers["X-Api-Key"] = KEY
        assert (await call.http.get("/acp/agents", headers=headers)).status_code == 200


async def test_the_host_reported_by_a_trusted_proxy_is_checked() -> None:
    proxied: dict[str, Any] = {"client": "10.0.0.9", "trusted_proxies": ["10.0.0.9"], "hosts": ["a.example"]}
    with calling(**proxied) as call:
        for headers, status in (
            ({"Host": "localhost", "X-Forwarded-Host": "a.example"}, 200),
            ({"Host": "a.example"}, 200),
            ({"Host": "localhost", "X-Forwarded-Host": "evil.example, a.example"}, 403),
            ({"Host": "evil.example", "X-Forwarded-Host": "a.example"}, 403),
        ):
            assert (await call.http.get("/acp/agents", headers=headers)).status_code == status, headers
    with calling(hosts=["a.example"]) as call:
        headers = {"Host": "a.example", "X-Forwarded-Host": "evil.example"}
        assert (await call.http.get("/acp/agents", headers=headers)).status_code == 200, (
            "an untrusted header must be ignored"
        )


@pytest.mark.parametrize(
    ("method", "headers", "reads_only"),
    [
        ("GET", {}, False),
        ("GET", {"Sec-Fetch-Site": "same-origin"}, False),
        ("GET", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, True),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, True),
        ("GET", {"Sec-Fetch-Site": "same-site", "Origin": LOOPBACK_PAGE}, False),
        ("POST", {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:3000"}, False),
        ("HEAD", {}, True),
        ("HEAD", {"Sec-Fetch-Site": "same-origin"}, True),
    ],
)
async def test_requests_that_any_page_can_send_are_read_only(
    method: str, headers: Mapping[str, str], reads_only: bool
) -> None:
    with calling() as call:
        assert (await call.http.request(method, "/acp/agents", headers=headers)).status_code == 200
        assert call.behind.caller.reads_only is reads_only
    with calling(keys=KEYS) as call:
        await call.http.request(method, "/acp/agents", headers={**headers, "X-Api-Key": KEY})
        assert call.behind.caller.reads_only is (method == "HEAD")


# Responses


async def test_every_answer_names_the_instance() -> None:
    with calling(keys=KEYS) as call:
        for path in ("/healthz", "/acp/agents", "/agent/nobody/"):
            response = await call.http.get(path)
            assert response.headers["babelgate"] == f"1.2.3; instance={INSTANCE}"
        preflight = await call.http.options("/acp/runs", headers={"Origin": LOOPBACK_PAGE, **PREFLIGHT})
        assert preflight.headers["babelgate"] == f"1.2.3; instance={INSTANCE}"


async def test_head_is_answered_like_get_without_the_body() -> None:
    with calling(Behind(headers={"Content-Length": "5", "ETag": '"x"'})) as call:
        response = await call.http.head("/healthz")
        assert call.behind.scopes[-1]["method"] == "GET"
        assert (response.status_code, response.content, response.headers["etag"]) == (200, b"", '"x"')


async def test_options_is_answered_with_the_methods_of_the_path() -> None:
    with calling(Behind(status=405, headers={"Allow": "POST, GET", "Content-Type": "application/json"})) as call:
        response = await call.http.options("/a2a/echo")
        assert (response.status_code, response.content) == (204, b"")
        assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"
        assert "content-type" not in response.headers
    with calling(Behind(status=404)) as call:
        assert (await call.http.options("/nope")).status_code == 404


async def test_scopes_other_than_http_pass_through() -> None:
    """Pass the lifespan of the application through."""
    types: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        types.append(scope["type"])

    with calling() as call:
        transport = call.http._transport  # pyright: ignore[reportPrivateUsage] - httpx has no other way to its app
        assert isinstance(transport, httpx.ASGITransport)
        middleware: Any = transport.app
        middleware.app = app
        await middleware({"type": "lifespan"}, None, None)
    assert types == ["lifespan"]


# The log


IDS = {"Babelgate-Thread": "t-1", "Babelgate-Task": "t-2", "Babelgate-Run": "r-3"}
LINE = re.compile(r"[0-9a-f]{16} (?P<what>\S+ \S+ \d+) \d+\.\dms owner=(?P<rest>.*)")


def parsed(line: str) -> tuple[str, str]:
    match = LINE.fullmatch(line)
    assert match, line
    return match["what"], match["rest"]


async def test_a_request_is_logged_with_owner_and_run_ids() -> None:
    with capture_log() as logs, calling(Behind(headers=IDS), keys=KEYS) as call:
        response = await call.http.post("/acp/runs", headers={"X-Api-Key": KEY})
        await call.http.get("/acp/runs/x")
    first, second = logs.of("babelgate.request")
    assert parsed(first) == ("POST /acp/runs 200", "alice thread=t-1 task=t-2 run=r-3")
    assert parsed(second) == ("GET /acp/runs/x 401", "-")
    assert response.headers["x-request-id"] == first[:16]


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/acp/agents?key=s3cret", {}, b""),
        ("/acp/agents", {"Authorization": "Bearer s3cret"}, b""),
        ("/acp/agents", {"X-Api-Key": "s3cret", "Cookie": "s3cret", "User-Agent": "s3cret", "Host": "s3cret"}, b""),
        ("/acp/runs", {}, b"s3cret"),
    ],
    ids=["query", "bearer", "other headers", "body"],
)
async def test_no_query_header_or_body_is_logged(path: str, headers: Mapping[str, str], body: bytes) -> None:
    for keys in ({}, KEYS):
        with capture_log() as logs, calling(Behind(headers=IDS), keys=keys, hosts=["s3cret"]) as call:
            await call.http.post(path, headers=headers, content=body)
        assert len(logs.of("babelgate.request")) == 1
        assert "s3cret" not in "".join(logs.of("babelgate.request"))


@pytest.mark.parametrize(
    "path", ["/a%0Ab", "/a%0D%0A2026-01-01 INFO babelgate.request forged", "/%1B[2J", "/é%E2%80%AE"]
)
async def test_a_path_cannot_forge_a_line(path: str) -> None:
    with capture_log() as logs, calling() as call:
        await call.http.get(path)
    (line,) = logs.of("babelgate.request")
    assert line.isascii()
    assert line.isprintable()
    parsed(line)


@pytest.mark.parametrize(("length", "logged"), [(512, "/" + 511 * "a"), (513, "/" + 508 * "a" + "...")])
@pytest.mark.parametrize("status", [200, 404])
async def test_a_long_path_is_cut_in_the_log(length: int, logged: str, status: int) -> None:
    with capture_log() as logs, calling(Behind(status=status)) as call:
        await call.http.get("/" + (length - 1) * "a")
        await call.http.get("/" + 10_000 * "é")
    first, second = logs.of("babelgate.request")
    assert f" GET {logged} {status} " in first
    assert len(second) < 700


async def test_a_request_that_is_not_logged_has_no_number() -> None:
    with capture_log(logging.WARNING) as logs, calling() as call:
        response = await call.http.get("/acp/agents")
    assert logs.of("babelgate.request") == []
    assert "x-request-id" not in response.headers
