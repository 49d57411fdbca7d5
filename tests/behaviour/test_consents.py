"""Authorizations by users: the question in every protocol, the page after the login, and what may go wrong.

The server of the agent is another gateway, which accepts only tokens of its issuer. The provider is scripted.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from babelgate.canonical import Principal, Scope
from babelgate.canonical.event import InterruptRaised
from tests.behaviour.test_agent_tokens import KEY, World, answer_of, ask, read_files, world
from tests.gateway.agents.tokens.provider import Form
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
                return 200, {"access_token": token, "expires_in": 300, "refresh_token": "refresh-1", "id_token": identity}
            case "client_credentials":
                return world.issue(form)
            case _:
                return 400, {"error": error}

    return answer


@asynccontextmanager
async def front(folder: Path, world: World, **consent: Any) -> AsyncGenerator[Running]:
    settings = {"issuers": {"corp": world.issuing.inline()}, "keys": {"ci": KEY}, "secrets_key": SECRETS_KEY}
    agent = world.agent("acp", exchange={"resource": "https://planner", "consent": {**CONSENT, **consent}})
    async with running(folder, configured={"planner": agent}, public_url=PUBLIC_URL, hosts=["*"], **settings) as gateway:
        yield gateway


async def question_of(gateway: Running, response: httpx.Response) -> InterruptRaised:
    """Return the question of a run that waits for its user."""
    assert response.json()["status"] == "awaiting", response.text
    run = await gateway.hub.reads.run("corp:alice", response.headers["babelgate-run"])
    records = await gateway.hub.reads.records("corp:alice", Scope(run.thread_id))
    [*_, question] = [each.event for each in records if isinstance(each.event, InterruptRaised)]
    return question


def query_of(question: InterruptRaised) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(question.value["url"]).query).items()}


async def come_back(gateway: Running, question: InterruptRaised, **query: str) -> httpx.Response:
    """Open the page to which the provider sends the browser."""
    params = {"state": query_of(question)["state"], **query}
    return await gateway.http.get("/oauth/callback", params=params)


async def end_of(gateway: Running, response: httpx.Response, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the run when it has ended."""
    async with gateway.http.stream("GET", f"/acp/runs/{response.json()['run_id']}/events", headers=headers):
        pass
    async with asyncio.timeout(30):
        while True:
            run = (await gateway.http.get(f"/acp/runs/{response.json()['run_id']}", headers=headers)).json()
            if run["status"] not in ("awaiting", "in-progress", "created"):
                return run
            await gateway.hub.engine.idle()
            await asyncio.sleep(0.01)


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
