"""A gateway that governs what agents cost and whom they act for, whole: limits, identity towards agents, cards and TLS.

The parts are real: oidc-provider issues the tokens, the official A2A SDKs verify the card, and the gateway is a process
that serves TLS.
"""

import json
import re
import signal
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.authority import Authority, Pair
from tests.gateway.card_keys import make_pair
from tests.gateway.command import BOUND, bound_socket, served_in_loop
from tests.gateway.http.test_tls import AGENTS, serial_of, swap, texts
from tests.gateway.load import run_body
from tests.interop.driver import OfficialServer, start_client, start_server
from tests.interop.test_agent_tokens import AUDIENCE, CALLBACK, REDIRECT, RESOURCE, log_in, token_of, who
from tests.interop.test_signed_cards import CARD, SDKS, V1
from tests.running import Running, running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

OPS: Final = {"X-Api-Key": "ops-0123456789abcdef"}
LOOP: Final = {"X-Api-Key": "loop-0123456789abcdef"}
CIRCLE: Final = f"""
import ssl
import httpx
from babelgate.canonical import Invocation

async def circle(call: Invocation):
    async with httpx.AsyncClient(verify=ssl.create_default_context(cafile="ca.pem")) as http:
        body = {{"model": "circle", "input": call.text}}
        answer = await http.post(call.text, json=body, headers={{**{LOOP!r}, **call.input.trace}})
    return answer.text
"""
"""Source of an agent that calls itself at the URL in the message, and passes the context of its trace on."""
RULES: Final[list[dict[str, Any]]] = [
    {"who": "key:ops", "allow": ["*"]},
    {"who": "*", "allow": ["discover", "run", "answer", "read", "write"]},
]


def settings_of(oidc: OfficialServer, upstream: Running, signing_key: Path, tls: Pair) -> dict[str, Any]:
    client = {"token_url": f"{oidc.url}/token", "client_id": "client", "client_secret": "secret", "scope": "agents:run"}
    consent = {"authorize_url": f"{oidc.url}/auth?prompt=consent", "scope": "openid offline_access agents:run"}
    planner = {
        "url": f"{upstream.url}/a2a/who",
        "protocol": "a2a",
        "auth": {"exchange": {**client, "resource": RESOURCE, "consent": consent}},
    }
    return {
        "public_url": AUDIENCE,
        "hosts": ["*"],
        "tls": texts(tls),
        "signing": {"keys": [str(signing_key)]},
        "secrets_key": "a key for tests, which is long enough",
        "issuers": {"oidc": {"issuer": oidc.url, "audience": [AUDIENCE]}},
        "keys": {"ops": OPS["X-Api-Key"], "loop": LOOP["X-Api-Key"]},
        "access": RULES,
        "limits": {"rate": [{"per": "key", "agent": "quick", "runs": 2, "every": "1h"}], "chain": {"depth": 3}},
        "budgets": {"talk": {"per": "thread", "agent": "echo", "runs": 1, "on_limit": "pause"}},
        "agents": {
            "echo": {"python": "babelgate.gateway.demo:echo"},
            "quick": {"python": "babelgate.gateway.demo:echo"},
            "patient": {"python": "waiting:patient"},
            "circle": {"python": "waiting:circle"},
            "planner": planner,
        },
    }


@asynccontextmanager
async def far_agent(folder: Path, oidc: OfficialServer) -> AsyncGenerator[Running]:
    """Serve the agent `who`, which accepts only tokens of the provider for its resource."""
    issuers = {"oidc": {"issuer": oidc.url, "audience": [RESOURCE]}}
    async with running(folder, {"who": who}, issuers=issuers) as gateway:
        yield gateway


async def check_rate(http: httpx.AsyncClient, alice: Mapping[str, str]) -> None:
    body = {"model": "quick", "input": "hi"}
    answers = [await http.post("/v1/responses", json=body, headers=alice) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "may start 2 runs of quick an hour; the next in " in answers[2].json()["error"]["message"]
    assert 0 < int(answers[2].headers["retry-after"]) <= 1800


async def check_budget(http: httpx.AsyncClient, alice: Mapping[str, str]) -> None:
    """Use up the budget of a thread, and raise it as an operator: the paused run continues without an answer."""
    thread = (await http.post("/threads", json={}, headers=alice)).json()["thread_id"]

    async def say(text: str) -> Any:
        body = {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": text}]}}
        return (await http.post(f"/threads/{thread}/runs/wait", json=body, headers=alice)).json()

    assert "__interrupt__" not in await say("Rome")
    paused = (await say("Oslo"))["__interrupt__"][0]
    assert "The budget talk of this thread is used up (1 of 1 runs)" in paused["message"]
    async with http.stream("GET", f"/threads/{thread}/stream", headers=alice) as response:
        [budget] = (await http.get("/admin/budgets", headers=OPS)).json()["budgets"]
        [scope] = [each["scope"] for each in budget["scopes"]]
        raised = await http.post("/admin/budgets/talk/raise", json={"scope": scope, "runs": 1}, headers=OPS)
        assert raised.status_code == 200, raised.text
        async for line in response.aiter_lines():
            if line.startswith("data:") and "Oslo" in line and '"ai"' in line:
                return
    raise AssertionError("the paused run did not continue")


async def check_chain(http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/v1/responses", json={"model": "circle", "input": str(http.base_url.join("/v1/responses"))}, headers=LOOP
    )
    assert "This call is 4 deep, limits.chain.depth allows 3" in answer.text


async def ask_planner(http: httpx.AsyncClient, headers: Mapping[str, str]) -> Any:
    return (await http.post("/acp/runs", json=run_body("planner", "Who am I?", "sync"), headers=headers)).json()


async def check_consent(http: httpx.AsyncClient, oidc: OfficialServer) -> None:
    """Ask as a user who has not agreed yet: the run waits, and continues when the provider sends the user back."""
    carol = await token_of(oidc, "carol")
    run = await ask_planner(http, carol)
    assert run["status"] == "awaiting", run
    found = re.search(re.escape(oidc.url) + r"/auth[^\s\"\\<>)]*", json.dumps(run))
    assert found is not None, run
    landed = await log_in(found[0], "carol")
    assert landed.startswith(CALLBACK)
    assert (await http.get(f"/oauth/callback?{urlsplit(landed).query}")).status_code == 200
    assert "You are oidc:carol" in json.dumps(await ask_planner(http, carol))


async def check_card(http: httpx.AsyncClient) -> None:
    keys = (await http.get("/.well-known/jwks.json")).json()["keys"]
    card = (await http.get(CARD.format(agent="echo"), headers=V1)).json()
    for program in SDKS.values():
        async with start_client("a2a-signing", program=program) as sdk:
            await sdk.call("verify", card=card, keys=keys)


async def test_agents_cost_no_more_than_allowed_and_act_for_callers(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(AGENTS + CIRCLE)
    (tmp_path / "far").mkdir()
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "127.0.0.1"), make_pair(tmp_path).file
    before = certificate.serial
    trust = ssl.create_default_context(cafile=authority.path)
    async with (
        start_server("oidc-provider", audience=AUDIENCE, redirects=[REDIRECT, CALLBACK]) as oidc,
        far_agent(tmp_path / "far", oidc) as upstream,
    ):
        settings = settings_of(oidc, upstream, key, certificate)
        write(tmp_path, settings)
        with bound_socket() as free:  # the gateway reports its public URL alone
            port = free.getsockname()[1]
        url = f"https://127.0.0.1:{port}"
        async with (
            served_in_loop(tmp_path, "--port", str(port)) as gateway,
            httpx.AsyncClient(base_url=url, verify=trust, timeout=BOUND, trust_env=False) as http,
        ):
            alice = await token_of(oidc, "alice")
            waiting = run_body("patient", str(tmp_path / "go"), "stream")
            async with http.stream("POST", "/acp/runs", json=waiting, headers=alice) as response:
                lines = response.aiter_lines()
                await until(lines, "begun")
                renewed = swap(tmp_path, authority, "server")
                write(tmp_path, settings)
                gateway.process.send_signal(signal.SIGHUP)
                assert "tls.cert: applied" in gateway.logged("tls.cert")
                assert serial_of(url) == renewed.serial != before
                await check_chain(http)
                (tmp_path / "go").touch()
                await until(lines, "run.completed")
            await check_rate(http, alice)
            await check_budget(http, alice)
            assert "You are oidc:alice" in json.dumps(await ask_planner(http, alice))
            await check_consent(http, oidc)
            await check_card(http)


def write(folder: Path, settings: Mapping[str, Any]) -> None:
    (folder / "babelgate.yaml").write_text(json.dumps(settings))  # JSON is YAML


async def until(lines: Any, word: str) -> None:
    async for line in lines:
        if word in line:
            return
    raise AssertionError(f"the stream ended before {word}")
