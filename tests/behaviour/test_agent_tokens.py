"""Tokens for agents' servers, through the whole gateway: which one each kind of agent gets, and where none may appear.

The server of the agents is another gateway, which accepts only tokens of its issuer and answers with their owner.
"""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from babelgate.canonical import FaultError, Invocation, Scope
from babelgate.canonical.hub import ThreadFilter
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from tests.gateway.agents.tokens.provider import Form, ScriptedProvider, scripted_provider
from tests.gateway.http.issuing import Issuing
from tests.gateway.reports import Recorder
from tests.running import Running, running

KEY: Final = "key-of-ci-0123456789"
KINDS: Final[Mapping[str, dict[str, Any]]] = {
    "a2a": {"protocol": "a2a", "at": "/a2a/who"},
    "acp": {"protocol": "acp", "at": "/acp"},
    "aief": {"protocol": "aief", "at": "/agent/who"},
    "langgraph": {"protocol": "langgraph", "at": ""},
    "chat": {"protocol": "openai", "at": "/v1", "options": {"api": "chat"}},
    "responses": {"protocol": "openai", "at": "/v1"},
}


@dataclass
class World:
    """A provider, an agent's server, and what a caller needs."""

    provider: ScriptedProvider
    upstream: Running
    issuing: Issuing = field(default_factory=Issuing)
    """Issuer of the tokens of callers and of agents."""

    def issue(self, form: Form) -> tuple[int, Any]:
        """Return the provider's response to the request `form`: status 200, and an access token for the agent. Its
        subject is that of the token to exchange or, without one, the gateway (`babelgate`)."""
        subject = "babelgate"
        if "subject_token" in form:
            subject = claims_of(form["subject_token"])["sub"]
        token = self.issuing.token(sub=subject, jti=f"issued-{len(self.provider.forms)}")
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 300}

    def agent(self, kind: str, **auth: Any) -> dict[str, Any]:
        """Return the settings of an agent of the kind. `auth` has exactly one member: the way to get a token, with
        further members of that setting."""
        settings = {"url": self.upstream.url + KINDS[kind]["at"], "protocol": KINDS[kind]["protocol"], "agent": "who"}
        request = {"token_url": self.provider.url, "client_id": "babelgate", "client_secret": "hush-hush-hush"}
        [(name, members)] = auth.items()
        return {**settings, "options": KINDS[kind].get("options", {}), "auth": {name: {**request, **members}}}

    @asynccontextmanager
    async def front(
        self, folder: Path, observer: GatewayObserver = NO_OBSERVER, /, **agents: Any
    ) -> AsyncGenerator[Running]:
        """Serve the gateway in front of the agents, with its data in an existing folder."""
        settings: dict[str, Any] = {
            "issuers": {"corp": self.issuing.inline()},
            "keys": {"ci": KEY},
            "console": {"wire": "all"},
            "observer": observer,
        }
        async with running(folder, configured=agents, **settings) as gateway:
            yield gateway

    def caller(self, subject: str, **claims: Any) -> dict[str, str]:
        """Return the headers of a caller."""
        return {"Authorization": f"Bearer {self.issuing.token(sub=subject, **claims)}"}


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@dataclass
class Waiting:
    """State of the agent between its start and its answer."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


WAITING: Final = Waiting()


async def who(call: Invocation) -> str:
    """Answer with the owner. The text `Wait` delays the answer until a test releases it."""
    if call.text == "Wait":
        WAITING.begun.set()
        await WAITING.released.wait()
    return f"You are {call.owner}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    issuing, home = Issuing(), tmp_path / "upstream"
    home.mkdir()
    WAITING.begun, WAITING.released = asyncio.Event(), asyncio.Event()
    async with (
        scripted_provider() as provider,
        running(home, {"who": who}, issuers={"corp": issuing.inline()}) as upstream,
    ):
        whole = World(provider, upstream, issuing)
        provider.answer = whole.issue
        yield whole


async def ask(gateway: Running, agent: str, headers: Mapping[str, str]) -> httpx.Response:
    body = {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": "Who am I?"}]}], "mode": "sync"}
    return await gateway.http.post("/acp/runs", json=body, headers=headers)


def answer_of(response: httpx.Response) -> str:
    run = response.json()
    assert run["status"] == "completed", run
    return "".join(part["content"] for message in run["output"] for part in message["parts"])


def read_files(folder: Path) -> bytes:
    """Return the content of all files below a folder."""
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


CREDENTIALS: Final = {"scope": "agents:run", "audience": "planner"}


async def test_each_kind_of_agent_gets_tokens_of_the_gateway(tmp_path: Path, world: World) -> None:
    agents = {kind: world.agent(kind, client_credentials=CREDENTIALS) for kind in KINDS}
    async with world.front(tmp_path, NO_OBSERVER, **agents) as gateway:
        for kind in KINDS:
            for _ in range(2):
                assert answer_of(await ask(gateway, kind, world.caller("alice"))) == "You are corp:babelgate", kind
    assert world.provider.forms == [{"grant_type": "client_credentials", **CREDENTIALS}] * len(KINDS)


async def test_each_kind_of_agent_gets_tokens_of_the_caller(tmp_path: Path, world: World) -> None:
    agents = {kind: world.agent(kind, exchange={"resource": "https://planner"}) for kind in KINDS}
    async with world.front(tmp_path, NO_OBSERVER, **agents) as gateway:
        world.provider.forms.clear()
        alice, bob = world.caller("alice"), world.caller("bob")
        for kind in KINDS:
            for headers, owner in ((alice, "corp:alice"), (bob, "corp:bob"), (alice, "corp:alice")):
                assert answer_of(await ask(gateway, kind, headers)) == f"You are {owner}", kind
    assert len(world.provider.forms) == 2 * len(KINDS)
    first = world.provider.forms[0]
    assert first.pop("subject_token") == alice["Authorization"].removeprefix("Bearer ")
    assert first == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "resource": "https://planner",
    }


async def test_an_exchange_names_the_gateway_as_actor_if_set(tmp_path: Path, world: World) -> None:
    agent = world.agent("acp", exchange={"actor": True, "requested_token_type": "urn:example:jwt"})
    async with world.front(tmp_path, planner=agent) as gateway:
        assert answer_of(await ask(gateway, "planner", world.caller("alice"))) == "You are corp:alice"
    *_, exchange = world.provider.forms
    assert claims_of(exchange["actor_token"])["sub"] == "babelgate"
    assert exchange["actor_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert exchange["requested_token_type"] == "urn:example:jwt"


async def test_a_token_that_the_server_refuses_is_replaced_once(tmp_path: Path, world: World) -> None:
    tokens = ["expired", "accepted"]

    def issue(form: Form) -> tuple[int, Any]:
        claims: dict[str, Any] = {"exp": 1} if tokens.pop(0) == "expired" else {}
        return 200, {"access_token": world.issuing.token(sub="babelgate", **claims), "expires_in": 300}

    world.provider.answer, observer = issue, Recorder()
    async with world.front(tmp_path, observer, planner=world.agent("a2a", client_credentials={})) as gateway:
        assert answer_of(await ask(gateway, "planner", world.caller("alice"))) == "You are corp:babelgate"
    assert tokens == []
    # The first token was fetched to detect the protocol, before there was an observer.
    assert observer.of("token_fetched") == [("token_fetched", "planner", "client", "issued")] * 2


REFUSED: Final = "The identity provider issues no token for agent planner: invalid_target"
DOWN: Final = "The token for agent planner cannot be fetched now: its identity provider cannot be used"


@pytest.mark.parametrize(("answer", "message"), [((400, {"error": "invalid_target"}), REFUSED), ((503, b"down"), DOWN)])
async def test_without_a_token_nothing_is_sent(
    tmp_path: Path, world: World, answer: tuple[int, Any], message: str
) -> None:
    world.provider.answer = lambda form: answer if "subject_token" in form else world.issue(form)
    observer, outcome = Recorder(), "refused" if answer[0] == 400 else "unavailable"
    async with world.front(tmp_path, observer, planner=world.agent("acp", exchange={})) as gateway:
        run = (await ask(gateway, "planner", world.caller("alice"))).json()
        assert (run["status"], run["error"]["message"]) == ("failed", message)
        assert observer.of("token_fetched")[-1] == ("token_fetched", "planner", "exchange", outcome)
        with pytest.raises(FaultError):
            await world.upstream.hub.reads.run("corp:babelgate", run["run_id"])
    threads = await world.upstream.hub.reads.count_threads("corp:babelgate", ThreadFilter())
    assert threads == 0


async def test_a_run_without_the_callers_token_fails_or_falls_back(tmp_path: Path, world: World) -> None:
    agents = {
        "strict": world.agent("acp", exchange={}),
        "lenient": world.agent("acp", exchange={"fallback": "client"}),
    }
    async with world.front(tmp_path, NO_OBSERVER, **agents) as gateway:
        key = {"X-Api-Key": KEY}
        run = (await ask(gateway, "strict", key)).json()
        assert run["error"]["message"].startswith("Agent strict acts for its caller, and this run has no token of one.")
        assert answer_of(await ask(gateway, "lenient", key)) == "You are corp:babelgate"
        assert answer_of(await ask(gateway, "lenient", world.caller("alice"))) == "You are corp:alice"


async def test_a_token_is_in_memory_only_and_with_its_run(
    tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = world.caller("alice")
    async with world.front(tmp_path, planner=world.agent("langgraph", exchange={})) as gateway:
        response = await ask(gateway, "planner", headers)
        assert answer_of(response) == "You are corp:alice"
        run_id = response.headers["babelgate-run"]
        run = await gateway.hub.reads.run("corp:alice", run_id)
        assert run.subject == "user:corp:alice", "the name of the caller is stored"
        wire = await gateway.http.get(f"/console/api/v1/runs/{run_id}/exchanges", headers=headers)
        assert "runs/stream" in wire.text
        log = await gateway.hub.reads.records("corp:alice", Scope(thread_id=run.thread_id))
        visible = wire.text + repr(log) + response.text + str(response.headers)
        await gateway.hub.engine.idle()
        assert len(gateway.hub.engine.callers) == 0
        issued = json.dumps(world.provider.forms)
    sent = headers["Authorization"].removeprefix("Bearer ")
    assert sent in issued
    stored = read_files(tmp_path)
    for secret in (sent, sent.rpartition(".")[2], "hush-hush-hush", '"jti": "issued'):
        assert secret not in visible
        assert secret not in caplog.text
        assert secret.encode() not in stored
