"""Access rules at every route: callers without a rule are refused, and hidden agents look as if they did not exist."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.mcp.server.authorization import METADATA_PATHS
from babelgate.canonical.value import JsonObject
from babelgate.gateway.http.front import JWKS_PATH
from babelgate.gateway.http.openapi import described_protocols
from tests import loopback
from tests.gateway.http.issuing import Issuing
from tests.gateway.owning import OwnerIds, acp_run, look, make, message, unknown
from tests.gateway.position import POSITIONS, Position
from tests.gateway.route import PAGE_PATHS, ROUTES, Route
from tests.gateway.shape import check_error
from tests.gateway.siege import ask, headers_for
from tests.gateway.valid import MCP, UPLOAD, V1, VALID, rpc
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

ISSUER: Final = Issuing()
OWNER: Final = "acme"
RULES: Final = [
    {"who": "user:corp:alice", "allow": "*"},
    # Data of the same owner, but none of the agents that Alice used.
    {"who": "user:corp:mole", "agents": ["tools"], "allow": "*"},
    {"who": "user:corp:viewer", "allow": ["discover", "read"]},
    {"who": "user:corp:finder", "allow": ["discover"]},
    {"who": ["scope:run", "scope:all"], "allow": "run"},
    {"who": "scope:all", "allow": "*"},
]
EVENTS: Final = ("", "/events")
DOCUMENTS: Final = ("/docs", "/openapi.json", *(f"/openapi/{name}.json" for name in described_protocols()))
OPEN: Final = {
    "/healthz",
    "/readyz",
    "/oauth/callback",
    "/ok",
    "/acp/ping",
    "/",
    JWKS_PATH,
    *METADATA_PATHS,
    *PAGE_PATHS,
    *DOCUMENTS,
}
"""Paths that need no right."""
QUERIES: Final[Mapping[str, str]] = dict.fromkeys(
    ("/store/items", "/agent-protocol/store/items"), "?key=k&namespace=a"
) | {"/grants": "?thread_id=x&grantee=owner:x"}
_STREAMS: Final = [f"{path}/threads/{{thread_id}}/stream{end}" for path in ("", "/agent-protocol") for end in EVENTS]
WITHOUT_REFUSAL: Final[Mapping[str, str]] = {
    **{f"{method} /mcp": '{"jsonrpc":"2.0","id":null,"error":' for method in ("GET", "DELETE")},
    **{f"GET /.well-known/{name}.json": '{"error":{"code":400' for name in ("agent", "agent-card")},
    **{f"POST {path}": "" for path in _STREAMS},
    **{f"POST {path}/agents/search": "[]" for path in ("", "/agent-protocol")},
    **{f"POST {path}/threads/{{thread_id}}/commands": '{"type":"error"' for path in ("", "/agent-protocol")},
    "POST /mcp": "event: message",
    "GET /acp/agents": '{"agents":[]}',
    "GET /ap/versions": '{"versions":',
    "GET /console/api/v1/health": '{"agents":[],"queues":[]}',
    "GET /console/api/v1/me": '{"owner":"acme"',
    "GET /console/api/v1/protocols": '[{"name":',
    "GET /info": '{"version":',
    "GET /v1/models": '{"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null}',
    "GET /anthropic/v1/models": '{"data":[],"has_more":false,"first_id":null,"last_id":null}',
    "GET /threads/{thread_id}/runs/{run_id}/join": '{"__error__":{"error":"HTTPException","message":"404: Run',
    "GET /threads/{thread_id}/runs/{run_id}/stream": "event: error",
    "POST /runs/search": '{"detail":"Invalid assistant: ',
    "POST /threads/{thread_id}/runs/crons": '{"detail":"',
}
"""Beginning of the response of routes that are not refused with a status, because they show no data, have a status of
their own, or answer before the caller's rights are known."""


@dataclass(frozen=True)
class Place:
    gateway: Running
    clients: Mapping[str, httpx.AsyncClient]
    """Clients of one owner, by the subject of their tokens."""
    things: OwnerIds
    """Resources that Alice made."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    folder = tmp_path_factory.mktemp("access")
    issuers = {"corp": {**ISSUER.inline(), "owner": "{org}"}}
    async with running(folder, issuers=issuers, access=RULES, limits={"inline": 16}) as gateway:

        def client(subject: str) -> httpx.AsyncClient:
            token = ISSUER.token(sub=subject, org=OWNER)
            return loopback.client(base_url=gateway.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)

        async with (
            client("alice") as alice,
            client("mole") as mole,
            client("viewer") as viewer,
            client("finder") as finder,
            client("nobody") as nobody,
        ):
            clients = {"alice": alice, "mole": mole, "viewer": viewer, "finder": finder, "nobody": nobody}
            yield Place(gateway, clients, await make(alice))


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.path not in OPEN and not route.path.startswith("/admin")], ids=str
)
async def test_a_caller_without_a_rule_is_refused_at_every_route(place: Place, route: Route) -> None:
    path = route.at(place.things.slots(route.protocol)) + QUERIES.get(route.path, "")
    request: dict[str, Any] = {"json": VALID[str(route)]} if str(route) in VALID else {}
    if str(route) == UPLOAD:
        request = {"files": {"file": ("a.txt", b"a")}}
    response = await ask(place.clients["nobody"], route.method, path, headers={**headers_for(route), **MCP}, **request)
    if (expected := WITHOUT_REFUSAL.get(str(route))) is not None:
        assert response.text.startswith(expected)
    else:
        assert response.status_code in (403, 404), response.text
        check_error(route.words, response)
    assert " of alice" not in response.text


def concerns_no_agent(position: Position) -> bool:
    """Return True if the id is that of a thing that no agent has worked on: a conversation without runs, an item."""
    return any(word in position.name for word in ("conversation", "store", "namespace", "an item", "/admin/"))


async def answer_to(client: httpx.AsyncClient, position: Position, things: OwnerIds, url: str) -> tuple[int, str]:
    method, path, kwargs = position.ask(things)
    body = json.dumps(kwargs.pop("json")) if "json" in kwargs else None
    if body is not None:
        body = body.replace("{url}", url).replace("{localhost}", url.replace("127.0.0.1", "localhost"))
    response = await ask(client, method, path, content=body, **kwargs)
    return response.status_code, things.hidden(response.text)


@pytest.mark.parametrize("position", [each for each in POSITIONS if not concerns_no_agent(each)], ids=str)
async def test_things_of_hidden_agents_count_as_unknown(place: Place, position: Position) -> None:
    mole, url, nothing = place.clients["mole"], place.gateway.url, unknown()
    before = await look(place.clients["alice"], place.things)
    assert await answer_to(mole, position, place.things, url) == await answer_to(mole, position, nothing, url)
    assert await look(place.clients["alice"], place.things) == before


RUNS: Final[list[Any]] = [
    ("POST /acp/runs", acp_run("echo", "hi"), 403),
    ("POST /a2a/echo/message:send", {"message": message()}, 403),
    ("POST /a2a/echo", rpc("SendMessage", {"message": message()}), 200),
    ("POST /ap/v1/agent/tasks", {"input": "hi"}, 403),
    ("POST /runs/wait", {"assistant_id": "echo", "input": {}}, 403),
    ("POST /agent-protocol/runs/wait", {"agent_id": "echo", "input": {}}, 403),
    ("POST /v1/responses", {"model": "echo", "input": "hi"}, 403),
    ("POST /v1/runs", {"assistant_id": "echo", "input": {"message": "hi"}}, 403),
    ("POST /mcp", rpc("tools/call", {"name": "echo", "arguments": {"message": "hi"}}), 403),
]


@pytest.mark.parametrize(("route", "body", "status"), RUNS, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_token_learns_which_scopes_the_call_needs(place: Place, route: str, body: Any, status: int) -> None:
    method, _, path = route.partition(" ")
    headers = MCP if path == "/mcp" else V1
    response = await place.clients["viewer"].request(method, path, json=body, headers=headers)
    assert response.status_code == status, response.text
    writes = path.startswith("/ap/")
    text = f"corp:viewer may not {'write data' if writes else 'run echo'}: no rule of access allows it."
    assert text in response.text
    challenge = f'Bearer error="insufficient_scope", scope="{"all" if writes else "run all"}"'
    if path == "/mcp":
        challenge += f', resource_metadata="{place.gateway.url}/.well-known/oauth-protected-resource/mcp"'
    assert response.headers["www-authenticate"] == challenge


SESSIONS: Final[Mapping[str, Any]] = {"alone": None, "stateless session": {}, "session of the SDK": {"elicitation": {}}}
"""Client capabilities in the request that opens a session, by the kind of the session. None means that no session is
opened."""
NEW: Final[tuple[str, Any]] = ("a new call", {"name": "echo", "arguments": {"message": "hi"}})
RESUMED: Final = "run_id of a call that goes on"
REFUSED_BY_MCP: Final[list[Any]] = [
    # name of a position or a call, members of its params, caller, refusal, scopes of the challenge
    *((NEW[0], NEW[1], who, "run echo", "run all") for who in ("finder", "viewer")),
    (RESUMED, {"action": "decline"}, "finder", "read ask", "all"),
    (RESUMED, {"action": "decline"}, "viewer", "answer ask", "all"),
    (RESUMED, {"action": "cancel"}, "viewer", "cancel ask", "all"),
    ("requestState of a call", {}, "finder", "read ask", "all"),
    ("requestState of a call", {"inputResponses": {}}, "viewer", "answer ask", "all"),
    ("taskId of tasks/get", {}, "finder", "read ask", "all"),
    ("taskId of tasks/update", {}, "finder", "read ask", "all"),
    ("taskId of tasks/update", {"inputResponses": {}}, "viewer", "answer ask", "all"),
    ("taskId of tasks/cancel", {}, "finder", "read ask", "all"),
    ("taskId of tasks/cancel", {}, "viewer", "cancel ask", "all"),
]


@pytest.mark.parametrize(("name", "members", "subject", "words", "scopes"), REFUSED_BY_MCP)
async def test_every_mcp_method_challenges_a_token_without_scopes(
    place: Place, name: str, members: dict[str, Any], subject: str, words: str, scopes: str
) -> None:
    caller, ids = place.clients[subject], place.things
    request = next((each.ask(ids)[2] for each in POSITIONS if each.name == name), {"json": rpc("tools/call", members)})
    body, headers = request["json"], {**MCP, **request.get("headers", {})}
    if name == RESUMED:
        body["params"]["arguments"] = {"run_id": ids.mcp_run, **members}
    elif "inputResponses" in members:
        body["params"]["inputResponses"] = await answers_of_mcp(place, ids.task_id if "taskId" in name else None)
    is_modern = "MCP-Protocol-Version" in headers
    for kind, capabilities in SESSIONS.items():
        if capabilities is not None and not is_modern:
            client = {"name": "test", "version": "1"}
            hello: JsonObject = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client}
            opened = await caller.post("/mcp", json=rpc("initialize", hello), headers=MCP)
            headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        both = MCP["Accept"]
        for accept in (both,) if kind == "session of the SDK" else (both, "application/json"):
            response = await caller.post("/mcp", json=body, headers={**headers, "Accept": accept})
            assert response.status_code == 403, (kind, accept, response.text)
            answer = response.json()
            assert answer["id"] == body["id"]
            assert f"corp:{subject} may not {words}: no rule of access allows it." in answer["error"]["message"]
            metadata = f'resource_metadata="{place.gateway.url}{METADATA_PATHS[1]}"'
            challenge = f'Bearer error="insufficient_scope", scope="{scopes}", {metadata}'
            assert response.headers["www-authenticate"] == challenge


async def answers_of_mcp(place: Place, task_id: str | None) -> Any:
    """Return an accepting answer to each question of a paused call in MCP, by the key of the question. The call is that
    of the task `task_id` or, for None, the one whose request state `place` knows."""
    name = "taskId of tasks/get" if task_id else "requestState of a call"
    request = next(each for each in POSITIONS if each.name == name).ask(place.things)[2]
    response = await place.clients["alice"].post("/mcp", **request)
    return {
        each: {"action": "accept", "content": {"answer": "Bob"}} for each in response.json()["result"]["inputRequests"]
    }


async def test_the_metadata_of_the_gateway_name_its_scopes(place: Place) -> None:
    metadata = (await place.gateway.http.get(METADATA_PATHS[0])).json()
    assert metadata["scopes_supported"] == ["run", "all"]


async def test_lists_of_agents_have_what_the_caller_can_discover(place: Place) -> None:
    names: dict[str, set[str]] = {}
    for subject, client in place.clients.items():
        by_path: dict[str, Callable[[Any], list[str]]] = {
            "/": lambda body: body["agents"],
            "/acp/agents": lambda body: [each["name"] for each in body["agents"]],
            "/v1/models": lambda body: [each["id"] for each in body["data"]],
            "/anthropic/v1/models": lambda body: [each["id"] for each in body["data"]],
            "/readyz": lambda body: list(body["agents"]),
        }
        lists = [set(read((await client.get(path)).json())) for path, read in by_path.items()]
        found = (await client.post("/assistants/search", json={"limit": 100})).json()
        assert all(each == lists[0] for each in lists)
        names[subject] = lists[0]
        if subject == "mole":
            assert {each["graph_id"] for each in found} == {"tools"}
    assert names["mole"] == {"tools"} and names["nobody"] == set() and "ask" in names["viewer"] == names["alice"]


@pytest.mark.parametrize("path", ["/agent/ask/acp/agents", "/agent/ask/a2a/ask", "/agent/ask/", "/agent/nobody/"])
async def test_a_hidden_agent_has_the_url_of_no_agent(place: Place, path: str) -> None:
    response = await place.clients["mole"].get(path)
    assert response.status_code == 404
    assert f"There is no agent '{path.split('/')[2]}' here." in response.text
    assert (await place.clients["alice"].get("/agent/ask/acp/agents")).status_code == 200
