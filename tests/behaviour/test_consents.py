"""Authorizations by users: the question in every protocol, the page after the login, and what may go wrong.

The server of the agent is another gateway, which accepts only tokens of its issuer. The provider is scripted.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from babelgate.canonical import Scope
from babelgate.canonical.event import InterruptRaised, TaskChanged
from babelgate.canonical.state import TERMINAL
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.storage.audit import AuditFilter, read_records
from babelgate.gateway.storage.spend import list_spend
from tests.adapters.mcp.site import Modern, calling, enter, say
from tests.behaviour.test_agent_tokens import KEY, KINDS, WAITING, World, answer_of, ask, read_files, world
from tests.gateway.agents.tokens.provider import Form
from tests.gateway.reports import Recorder
from tests.postgres import empty, url_of
from tests.running import Running, running

__all__ = ["world"]

SECRETS_KEY: Final = "a key for tests, which is long enough"
PUBLIC_URL: Final = "https://agents.example.com"
CONSENT: Final = {"authorize_url": "https://login.example.com/auth?prompt=consent", "scope": "openid agents:run"}


def refusing(world: World, error: str = "consent_required") -> Callable[[Form], tuple[int, Any]]:
    """Return the answers of a provider that exchanges nothing before the user has agreed."""

    def answer(form: Form) -> tuple[int, Any]:
        match form["grant_type"]:
            case "authorization_code":
                token = world.issuing.token(sub="alice", jti="granted")
                identity = world.issuing.token(sub=form["code"], aud="babelgate")
                return 200, {
                    "access_token": token,
                    "expires_in": 300,
                    "refresh_token": "refresh-1",
                    "id_token": identity,
                }
            case "client_credentials":
                return world.issue(form)
            case _:
                return 400, {"error": error}

    return answer


@asynccontextmanager
async def front(
    folder: Path,
    world: World,
    kinds: Mapping[str, str] = {"planner": "acp"},
    budgets: Mapping[str, Any] = {},
    *,
    idempotent: bool = False,
    observer: GatewayObserver = NO_OBSERVER,
    cluster: Mapping[str, Any] = {},
    **consent: Any,
) -> AsyncGenerator[Running]:
    """Serve the gateway in front of agents. `kinds` maps their names to their kinds. `idempotent` is their setting.
    `cluster` has the settings of one node."""
    settings: dict[str, Any] = {
        "issuers": {"corp": world.issuing.inline()},
        "keys": {"ci": KEY},
        "secrets_key": SECRETS_KEY,
        "budgets": dict(budgets),
        "observer": observer,
        **cluster,
    }
    exchange = {"resource": "https://planner", "consent": {**CONSENT, **consent}}
    agents = {name: {**world.agent(kind, exchange=exchange), "idempotent": idempotent} for name, kind in kinds.items()}
    async with running(folder, configured=agents, public_url=PUBLIC_URL, hosts=["*"], **settings) as gateway:
        yield gateway


async def question_of(gateway: Running, response: httpx.Response) -> Any:
    """Return the question of a run that waits for its user."""
    assert response.json()["status"] == "awaiting", response.text
    run = await gateway.hub.reads.run("corp:alice", response.headers["babelgate-run"])
    records = await gateway.hub.reads.records("corp:alice", Scope(run.thread_id))
    [*_, question] = [each.event for each in records if isinstance(each.event, InterruptRaised)]
    return question


def query_of(question: Any) -> dict[str, str]:
    url: str = question.value["url"]
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


async def come_back(gateway: Running, question: Any, **query: str) -> httpx.Response:
    """Open the page to which the provider sends the browser."""
    params = {"state": query_of(question)["state"], **query}
    return await gateway.http.get("/oauth/callback", params=params)


async def wait_for_end(gateway: Running, task_id: str) -> None:
    task = await gateway.hub.reads.task("corp:alice", task_id)
    async with asyncio.timeout(30):
        async for records in gateway.hub.reads.follow("corp:alice", Scope.task(task), 0):
            if any(isinstance(each.event, TaskChanged) and each.event.state in TERMINAL for each in records):
                return


async def end_of(gateway: Running, response: httpx.Response, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the run when it has ended."""
    await wait_for_end(gateway, response.json()["run_id"])
    return (await gateway.http.get(f"/acp/runs/{response.json()['run_id']}", headers=headers)).json()


async def test_a_run_continues_after_its_user_has_agreed(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        alice = world.caller("alice")
        response = await ask(gateway, "planner", alice)
        question = await question_of(gateway, response)
        query = query_of(question)
        assert question.value["url"].startswith("https://login.example.com/auth?prompt=consent&response_type=code&")
        assert (query["redirect_uri"], query["scope"]) == (f"{PUBLIC_URL}/oauth/callback", "openid agents:run")
        assert (query["code_challenge_method"], query["resource"]) == ("S256", "https://planner")
        assert (question.ask, question.value["scopes"]) == ("auth", ["openid", "agents:run"])
        assert question.value["url"] in question.message.text
        page = await come_back(gateway, question, code="alice")
        assert (page.status_code, "the agent continues" in page.text) == (200, True)
        run = await end_of(gateway, response, alice)
        assert "You are corp:alice" in json.dumps(run["output"])
        redeemed = next(form for form in world.provider.forms if form["grant_type"] == "authorization_code")
        assert redeemed["redirect_uri"] == f"{PUBLIC_URL}/oauth/callback"
        world.provider.forms.clear()
        assert answer_of(await ask(gateway, "planner", alice)) == "You are corp:alice"
        assert world.provider.forms == [], "the stored token is used, also by later runs"
        assert (await ask(gateway, "planner", world.caller("bob"))).json()["status"] == "awaiting"
    assert b"refresh-1" not in read_files(tmp_path)


async def test_each_kind_of_agent_can_need_an_agreement(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world, "invalid_grant")
    async with front(tmp_path, world, {kind: kind for kind in KINDS}) as gateway:
        alice = world.caller("alice")
        for kind in KINDS:
            response = await ask(gateway, kind, alice)
            page = await come_back(gateway, await question_of(gateway, response), code="alice")
            assert page.status_code == 200, kind
            run = await end_of(gateway, response, alice)
            assert "You are corp:alice" in json.dumps(run["output"]), (kind, run)


async def test_a_restart_keeps_the_question(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world)
    alice = world.caller("alice")
    async with front(tmp_path, world) as gateway:
        response = await ask(gateway, "planner", alice)
        question = await question_of(gateway, response)
    async with front(tmp_path, world) as gateway:
        assert (await come_back(gateway, question, code="alice")).status_code == 200
        assert "You are corp:alice" in json.dumps((await end_of(gateway, response, alice))["output"])


@asynccontextmanager
async def two_fronts(folder: Path, url: str, world: World, **consent: Any) -> AsyncGenerator[tuple[Running, Running]]:
    """Serve two nodes of one gateway on PostgreSQL."""
    shared = {"database": url, "cluster": True, "blobs": folder / "blobs"}
    nodes = [front(folder, world, cluster={**shared, "node": name}, **consent) for name in ("a", "b")]
    async with nodes[0] as first, nodes[1] as second:
        yield first, second


async def test_the_callback_reaches_another_node(tmp_path: Path, world: World, postgres_tables: str) -> None:
    empty(postgres_tables)
    world.provider.answer = refusing(world)
    alice = world.caller("alice")
    async with two_fronts(tmp_path, url_of(postgres_tables), world) as (first, second):
        response = await ask(first, "planner", alice)
        question = await question_of(first, response)
        pages = await asyncio.gather(*(come_back(node, question, code="alice") for node in (first, second, second)))
        assert sorted(page.status_code for page in pages) == [200, 404, 404], "a link works once, on all nodes"
        for node in (first, second):
            assert "You are corp:alice" in json.dumps((await end_of(node, response, alice))["output"])
        world.provider.forms.clear()
        for node in (first, second):
            assert answer_of(await ask(node, "planner", alice)) == "You are corp:alice"
        assert world.provider.forms == [], "both nodes use the stored token"


async def test_a_declined_question_ends_on_another_node(tmp_path: Path, world: World, postgres_tables: str) -> None:
    empty(postgres_tables)
    world.provider.answer = refusing(world)
    alice = world.caller("alice")
    async with two_fronts(tmp_path, url_of(postgres_tables), world) as (first, second):
        response = await ask(first, "planner", alice)
        page = await come_back(second, await question_of(first, response), error="access_denied")
        assert page.status_code == 403
        run = await end_of(first, response, alice)
        assert run["error"]["message"] == "The authorization for agent planner was declined."


@pytest.mark.parametrize("on_limit", ["pause", "refuse"])
async def test_a_budget_counts_a_run_with_an_authorization_once(tmp_path: Path, world: World, on_limit: str) -> None:
    world.provider.answer = refusing(world)
    budget = {"per": "owner", "runs": 1, "on_limit": on_limit}
    few = {"few": {**budget, "raised_by": "owner"} if on_limit == "pause" else budget}
    async with front(tmp_path, world, {"first": "acp", "planner": "acp"}, few) as gateway:
        alice = world.caller("alice")
        response = await ask(gateway, "first", alice)
        await come_back(gateway, await question_of(gateway, response), code="alice")
        assert "You are corp:alice" in json.dumps((await end_of(gateway, response, alice))["output"])
        response = await ask(gateway, "planner", alice)
        if on_limit == "refuse":
            assert "The budget few of corp:alice is used up (1 of 1 runs)" in response.text
        else:
            assert (await question_of(gateway, response)).value["used"] == "1"
            resume = {"await_resume": {"message": {"role": "user", "parts": [{"content": "yes"}]}}, "mode": "sync"}
            path = f"/acp/runs/{response.json()['run_id']}"
            response = await gateway.http.post(path, json=resume, headers=alice)
            question = await question_of(gateway, response)
            assert question.ask == "auth"
            await come_back(gateway, question, code="alice")
            assert "You are corp:alice" in json.dumps((await end_of(gateway, response, alice))["output"])
        (row,) = await gateway.hub.journal.query(list_spend, [("few|", "")], 10)
        assert (row.used.runs, row.used.unknown) == (1 if on_limit == "refuse" else 2, 0)


@pytest.mark.parametrize(
    ("query", "status", "text", "error"),
    [
        ({"error": "access_denied"}, 403, "You have not agreed", "The authorization for agent planner was declined."),
        ({"code": "mallory"}, 403, "You have logged in as another user", None),
        ({}, 400, "The identity provider has sent no code.", None),
        ({"code": "x" * 5000}, 400, "The identity provider has sent no code.", None),
        ({"code": "alice", "state": "<script>"}, 404, "This link is not valid, or was used before.", None),
        ({"code": "alice", "state": "A" * 43}, 404, "This link is not valid, or was used before.", None),
    ],
)
async def test_a_return_without_an_agreement_gives_no_token(
    tmp_path: Path, world: World, query: dict[str, str], status: int, text: str, error: str | None
) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        alice = world.caller("alice")
        response = await ask(gateway, "planner", alice)
        page = await come_back(gateway, await question_of(gateway, response), **query)
        assert (page.status_code, text in page.text) == (status, True), page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "script" not in page.text and "mallory" not in page.text
        if error is not None:
            assert (await end_of(gateway, response, alice))["error"]["message"] == error
        store = gateway.hub.consents.store
        purpose = gateway.settings.agents["planner"].auth.exchange.purpose  # type: ignore[union-attr]
        assert await store.read("user:corp:alice", "planner", purpose) is None


async def test_a_link_works_once_and_for_its_user_only(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        alice, bob = world.caller("alice"), world.caller("bob")
        question = await question_of(gateway, await ask(gateway, "planner", alice))
        params = {"state": query_of(question)["state"], "code": "alice"}
        other = await gateway.http.get("/oauth/callback", params=params, headers=bob)
        assert (other.status_code, "belongs to another user" in other.text) == (403, True)
        pages = [await gateway.http.get("/oauth/callback", params=params) for _ in range(2)]
        assert [page.status_code for page in pages] == [200, 404]
        assert len([form for form in world.provider.forms if form.get("code")]) == 1


async def test_a_link_works_again_after_the_provider_was_down(tmp_path: Path, world: World) -> None:
    async with front(tmp_path, world) as gateway:
        world.provider.answer = refusing(world)
        response = await ask(gateway, "planner", world.caller("alice"))
        question = await question_of(gateway, response)
        world.provider.answer = lambda _: (503, b"down")
        assert (await come_back(gateway, question, code="alice")).status_code == 503
        world.provider.answer = refusing(world)
        assert (await come_back(gateway, question, code="alice")).status_code == 200


async def test_a_question_without_an_answer_expires(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world, ttl=0.2) as gateway:
        alice = world.caller("alice")
        response = await ask(gateway, "planner", alice)
        question = await question_of(gateway, response)
        run = await end_of(gateway, response, alice)
        assert run["error"]["message"] == "The authorization for agent planner was not given in time."
        assert (await come_back(gateway, question, code="alice")).status_code in (404, 410)


async def test_an_expired_token_is_refreshed_and_rotated(tmp_path: Path, world: World) -> None:
    refreshes: list[str] = []

    def answer(form: Form) -> tuple[int, Any]:
        if form["grant_type"] == "refresh_token":
            refreshes.append(form["refresh_token"])
            number = len(refreshes) + 1
            token = world.issuing.token(sub="alice", jti=f"refreshed-{number}")
            return 200, {"access_token": token, "expires_in": 10, "refresh_token": f"refresh-{number}"}
        status, body = refusing(world)(form)
        return status, {**body, "expires_in": 10} if form["grant_type"] == "authorization_code" else body

    world.provider.answer, observer = answer, Recorder()
    async with front(tmp_path, world, observer=observer) as gateway:
        alice = world.caller("alice")
        response = await ask(gateway, "planner", alice)
        await come_back(gateway, await question_of(gateway, response), code="alice")
        await end_of(gateway, response, alice)
        assert answer_of(await ask(gateway, "planner", alice)) == "You are corp:alice"
        assert refreshes[:2] == ["refresh-1", "refresh-2"]
        world.provider.answer = lambda form: (400, {"error": "invalid_grant"})
        assert (await ask(gateway, "planner", alice)).json()["status"] == "awaiting", "the refresh token was revoked"
        fetches = observer.of("token_fetched")
    kinds = (("exchange", "refused"), ("consent", "issued"), ("refresh", "issued"), ("refresh", "refused"))
    assert {("token_fetched", "planner", *kind) for kind in kinds} <= {*fetches}


async def test_the_audit_log_names_exchanges_and_agreements(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        response = await ask(gateway, "planner", world.caller("alice"))
        await come_back(gateway, await question_of(gateway, response), code="alice")
        await end_of(gateway, response, world.caller("alice"))
        records = await gateway.hub.journal.query(read_records, AuditFilter(), 20)
    acts = {(act["action"], act["subject"], act["outcome"], act["reason"]) for act in records}
    assert ("token.exchange", "user:corp:alice", "error", "consent_required") in acts
    assert ("consent.grant", "user:corp:alice", "allow", "") in acts


# The question in each protocol

MESSAGE: Final = {"role": "user", "content": "Who am I?"}
A2A: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Who am I?"}]}},
}
OLD: Final = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "Who am I?"}]}
OLD_A2A: Final = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": OLD}}
TASKS: Final = "/agent/planner/ap/v1/agent/tasks"
V1: Final = {"A2A-Version": "1.0"}
REQUESTS: Final[Mapping[str, tuple[str, Any, Mapping[str, str], Mapping[str, Any]]]] = {
    # Path, body, headers, and members of the response, by their paths.
    "a2a": (
        "/a2a/planner",
        A2A,
        V1,
        {
            "result.task.status.state": "TASK_STATE_AUTH_REQUIRED",
            "result.task.status.message.parts.1.data.value.scopes": ["openid", "agents:run"],
        },
    ),
    "a2a-0.3": (
        "/a2a/planner",
        OLD_A2A,
        {},
        {
            "result.status.state": "auth-required",
            "result.status.message.parts.1.data.value.scopes": ["openid", "agents:run"],
        },
    ),
    "aief": (
        f"{TASKS}/{{task}}/steps",
        {"input": "Who am I?"},
        {},
        {"is_last": False, "additional_output.status": "auth-required", "additional_output.questions.0.kind": "auth"},
    ),
    "langgraph": (
        "/runs/wait",
        {"assistant_id": "planner", "input": {"messages": [MESSAGE]}},
        {},
        {"__interrupt__.0.kind": "auth", "__interrupt__.0.value.resource": "https://planner"},
    ),
    "chat": ("/v1/chat/completions", {"model": "planner", "messages": [MESSAGE]}, {}, {}),
    "responses": ("/v1/responses", {"model": "planner", "input": "Who am I?"}, {}, {"status": "completed"}),
    "runtime": ("/v1/runs", {"assistant_id": "planner", "input": "Who am I?"}, {}, {}),
}
PAGE: Final = re.compile(r"https://login\.example\.com/auth\?prompt=consent&response_type=code[^\s\"\\]+")


def member(value: Any, path: str) -> Any:
    """Return the member of a JSON value at a path such as `result.parts.0.text`."""
    for step in path.split("."):
        value = value[int(step) if isinstance(value, list) else step]
    return value


async def send(gateway: Running, protocol: str) -> httpx.Response:
    """Send the request of a protocol that starts a run. In AIEF, create a task first."""
    path, body, headers, _ = REQUESTS[protocol]
    if "{task}" in path:
        created = await gateway.http.post(TASKS, json={"input": "Who am I?"})
        path = path.replace("{task}", created.json()["task_id"])
    return await gateway.http.post(path, json=body, headers=headers)


@pytest.mark.parametrize("protocol", REQUESTS)
async def test_each_protocol_shows_the_page(tmp_path: Path, world: World, protocol: str) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        gateway.http.headers.update(world.caller("alice"))
        answer = (await send(gateway, protocol)).json()
        assert PAGE.search(json.dumps(answer))
        for path, value in REQUESTS[protocol][-1].items():
            assert member(answer, path) == value, path


@pytest.mark.parametrize("protocol", ["a2a", "a2a-0.3", "aief"])
async def test_the_caller_reads_the_answer_after_the_agreement(tmp_path: Path, world: World, protocol: str) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        gateway.http.headers.update(world.caller("alice"))
        response = await send(gateway, protocol)
        page = PAGE.search(response.text)
        assert page is not None and (await open_page(gateway, page[0])).status_code == 200
        done = await read_answer(gateway, protocol, response.json())
        assert "You are corp:alice" in done.text
        if protocol == "aief":
            steps = (await gateway.http.get(f"{TASKS}/{response.json()['task_id']}/steps")).json()["steps"]
            assert [step["is_last"] for step in steps] == [False, True], "the agent has run once"


async def read_answer(gateway: Running, protocol: str, paused: Any) -> httpx.Response:
    """Return the response with the end of a run that has continued. `paused` is the response with its question."""
    if protocol == "aief":
        return await gateway.http.post(f"{TASKS}/{paused['task_id']}/steps", json={})
    is_old = protocol == "a2a-0.3"
    task_id = paused["result"]["id"] if is_old else paused["result"]["task"]["id"]
    method = "tasks/get" if is_old else "GetTask"
    await wait_for_end(gateway, task_id)
    body = {"jsonrpc": "2.0", "id": 2, "method": method, "params": {"id": task_id}}
    return await gateway.http.post("/a2a/planner", json=body, headers={} if is_old else V1)


async def test_mcp_opens_the_page_during_a_call(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        gateway.http.headers.update(world.caller("alice"))
        client, _ = await enter(gateway.http, elicitation={"form": {}, "url": {}})
        async with calling(client, "planner") as stream:
            request = await stream.next() or {}
            params = request["params"]
            assert (request["method"], params["mode"]) == ("elicitation/create", "url")
            assert params["elicitationId"].startswith("authorization-")
            await say(client, {"id": request["id"], "result": {"action": "accept"}})
            state = parse_qs(urlsplit(str(params["url"])).query)["state"][0]
            await gateway.http.get("/oauth/callback", params={"state": state, "code": "alice"})
            done = (await stream.next() or {})["result"]
        assert done["content"][0]["text"] == "You are corp:alice"


async def test_mcp_of_2026_repeats_the_call_after_the_page(tmp_path: Path, world: World) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        client = Modern(
            gateway.http, capabilities={"elicitation": {"form": {}, "url": {}}}, headers=world.caller("alice")
        )
        pending = await client.call("planner")
        [(name, request)] = pending["inputRequests"].items()
        assert (request["params"]["mode"], "elicitationId" in request["params"]) == ("url", False)
        repeat = {"inputResponses": {name: {"action": "accept"}}, "requestState": pending["requestState"]}
        assert (await client.call("planner", **repeat))["resultType"] == "input_required", "the user has not answered"
        state = parse_qs(urlsplit(str(request["params"]["url"])).query)["state"][0]
        await gateway.http.get("/oauth/callback", params={"state": state, "code": "alice"})
        assert (await client.call("planner", **repeat))["content"][0]["text"] == "You are corp:alice"


async def open_page(gateway: Running, url: str) -> httpx.Response:
    """Open a page, log in as alice and agree. Return the page after the login."""
    state = parse_qs(urlsplit(url).query)["state"][0]
    return await gateway.http.get("/oauth/callback", params={"state": state, "code": "alice"})


@pytest.mark.parametrize("arguments", [{"message": "go"}, {"message": "go", "thread_id": "trip"}], ids=["once", "trip"])
async def test_mcp_repeats_a_call_that_was_refused_for_pages(
    tmp_path: Path, world: World, arguments: dict[str, str]
) -> None:
    world.provider.answer = refusing(world)
    few = {"few": {"per": "owner", "runs": 1}}
    async with front(tmp_path, world, budgets=few) as gateway:
        gateway.http.headers.update(world.caller("alice"))
        client, _ = await enter(gateway.http, elicitation={"url": {}})
        error = (await client.ask("tools/call", {"name": "planner", "arguments": arguments}))["error"]
        [page] = error["data"]["elicitations"]
        assert (error["code"], page["mode"], page["message"]) == (-32042, "url", error["message"])
        assert page["elicitationId"].startswith("authorization-")
        after = await open_page(gateway, page["url"])
        assert (after.status_code, "call the agent again" in after.text) == (200, True)
        assert (await client.call("planner", arguments))["content"][0]["text"] == "You are corp:alice"
        if "thread_id" in arguments:
            threads = (await gateway.http.post("/threads/search", json={})).json()
            messages = threads[0]["values"]["messages"]
            assert [each["content"] for each in messages] == ["go", "You are corp:alice"]


@pytest.mark.parametrize(
    ("version", "capabilities"), [("2025-06-18", {"elicitation": {"url": {}}}), ("2025-11-25", {"roots": {}})]
)
async def test_mcp_clients_without_pages_get_text(
    tmp_path: Path, world: World, version: str, capabilities: dict[str, Any]
) -> None:
    world.provider.answer = refusing(world)
    async with front(tmp_path, world) as gateway:
        gateway.http.headers.update(world.caller("alice"))
        client, _ = await enter(gateway.http, **capabilities)
        client.headers = {**client.headers, "MCP-Protocol-Version": version}
        result = await client.call("planner")
        assert result["structuredContent"]["status"] == "input_required"
        assert "Open this page" in result["content"][0]["text"]


async def next_question(gateway: Running, response: httpx.Response) -> InterruptRaised:
    """Return the first question of a run, when it is raised."""
    task = await gateway.hub.reads.task("corp:alice", response.json()["run_id"])
    async with asyncio.timeout(30):
        async for records in gateway.hub.reads.follow("corp:alice", Scope.task(task), 0):
            if questions := [each.event for each in records if isinstance(each.event, InterruptRaised)]:
                return questions[0]
    raise AssertionError("the run has ended without a question")


async def test_an_interrupted_run_starts_again_with_its_input(tmp_path: Path, world: World) -> None:
    """Stop the gateway after the user has agreed, while an agent runs that may be started again."""
    world.provider.answer = refusing(world)
    alice = world.caller("alice")
    body = {"agent_name": "planner", "input": [{"role": "user", "parts": [{"content": "Wait"}]}], "mode": "async"}
    async with front(tmp_path, world, {"planner": "chat"}, idempotent=True) as gateway:
        response = await gateway.http.post("/acp/runs", json=body, headers=alice)
        assert (await come_back(gateway, await next_question(gateway, response), code="alice")).status_code == 200
        async with asyncio.timeout(30):
            await WAITING.begun.wait()
    WAITING.begun.clear()
    WAITING.released.set()
    async with front(tmp_path, world, {"planner": "chat"}, idempotent=True) as gateway:
        run = await end_of(gateway, response, alice)
        assert "You are corp:alice" in json.dumps(run["output"]), json.dumps(run)
        assert WAITING.begun.is_set(), "the agent gets the input of the caller"


async def test_a_run_is_reattached_after_restart_and_agreement(tmp_path: Path, world: World) -> None:
    alice = world.caller("alice")
    body = {"agent_name": "planner", "input": [{"role": "user", "parts": [{"content": "Wait"}]}], "mode": "async"}
    async with front(tmp_path, world, {"planner": "a2a"}) as gateway:
        response = await gateway.http.post("/acp/runs", json=body, headers=alice)
        async with asyncio.timeout(30):
            await WAITING.begun.wait()
    world.provider.answer = refusing(world)
    async with front(tmp_path, world, {"planner": "a2a"}) as gateway:
        question = await next_question(gateway, response)
        WAITING.released.set()
        assert (await come_back(gateway, question, code="alice")).status_code == 200
        run = await end_of(gateway, response, alice)
        assert run["status"] == "completed", json.dumps(run)
        assert "You are corp:alice" in json.dumps(run["output"])
