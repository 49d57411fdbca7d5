"""A gateway for a team, whole: two identity providers, three owners, rules, metrics, traces, and reloads under load.

The receivers are real: NanoIDP and oidc-provider issue the tokens, oteltap gets the spans, and the metrics are scraped.
"""

import asyncio
import json
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.gateway.command import BOUND, Served, served
from tests.gateway.hubs import within
from tests.gateway.load import Load, run_body
from tests.gateway.telemetry.scrape import Metered, Scrape
from tests.interop.driver import ClientError, start_client, start_server
from tests.interop.tap import SPAN, Tap, tapped
from tests.interop.test_issuers import AUDIENCE, client_token, issuers, user_token

Headers = Mapping[str, str]

DEMO: Final = "babelgate.gateway.demo"
RULES: Final[list[dict[str, Any]]] = [
    {"who": "*", "allow": ["discover", "read", "write"]},
    {"who": "group:dev", "agents": ["planner"], "allow": ["run"]},
    {"who": "scope:agents:run", "agents": ["planner"], "allow": ["run"]},
    {"who": "group:ops", "allow": ["*"]},
    {"who": "group:dev", "agents": ["payroll"], "deny": ["*"]},
]
MESSAGE: Final = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
BOB_MAY_NOT: Final = {"who": "user:nano:bob", "agents": ["planner"], "deny": ["run"]}


def write(folder: Path, urls: tuple[str, str], rules: list[dict[str, Any]], **settings: Any) -> None:
    configuration = {
        "issuers": issuers(*urls),
        "access": rules,
        "agents": {"planner": {"python": f"{DEMO}:stream"}, "payroll": {"python": f"{DEMO}:echo"}},
        "telemetry": {"traces": "otlp", "metrics": {"listen": "127.0.0.1:0"}},
        **settings,
    }
    new = folder / "new.yaml"
    new.write_text(json.dumps(configuration))  # JSON is YAML
    new.replace(folder / "babelgate.yaml")


async def request(gateway: Served, method: str, path: str, headers: Headers, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=BOUND, trust_env=False) as http:
        return await http.request(method, path, **options)


async def check_rules(gateway: Served, alice: Headers, bob: Headers, robot: Headers) -> None:
    """Check what each caller sees and may do, and that three owners share nothing."""
    visible = {
        name: [each["name"] for each in (await request(gateway, "GET", "/acp/agents", who)).json()["agents"]]
        for name, who in {"alice": alice, "bob": bob, "robot": robot}.items()
    }
    assert visible == {"alice": ["planner"], "bob": ["planner", "payroll"], "robot": ["planner", "payroll"]}
    run = await request(gateway, "POST", "/acp/runs", alice, json=run_body("planner"))
    path = f"/acp/runs/{run.json()['run_id']}"
    assert [(await request(gateway, "GET", path, who)).status_code for who in (alice, bob, robot)] == [200, 404, 404]
    hidden, refused = [
        await request(gateway, "POST", "/acp/runs", who, json=run_body("payroll")) for who in (alice, robot)
    ]
    assert (hidden.status_code, hidden.json()["message"]) == (404, "Agent payroll not found")
    assert refused.status_code == 403
    assert refused.json()["message"] == "oidc:client may not run payroll: no rule of access allows it."
    assert (await request(gateway, "GET", "/admin/config", alice)).status_code == 403
    assert (await request(gateway, "GET", "/admin/config", bob)).status_code == 200


async def check_trace(gateway: Served, tap: Tap, robot: Headers) -> None:
    """Check that an A2A call is one trace, below the span of its caller."""
    trace = secrets.token_hex(16)
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": MESSAGE}}
    headers = {**robot, "A2A-Version": "1.0", "traceparent": f"00-{trace}-{SPAN}-01"}
    response = await request(gateway, "POST", "/a2a/planner", headers, json=body)
    assert response.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", response.text
    found = await asyncio.to_thread(tap.wait, trace, lambda spans: len(spans.spans) == 3)
    assert found.draw() == [
        "POST /a2a/{agent} (server)",
        "  SendMessage (server)",
        "    invoke_agent planner (internal)",
    ]


async def reload(gateway: Served) -> None:
    gateway.process.send_signal(signal.SIGHUP)
    assert "configuration reloaded" in await asyncio.to_thread(gateway.logged, "configuration")


async def test_a_team_is_served_by_rules_and_reloads(tmp_path: Path) -> None:
    with tapped() as tap:
        async with (
            start_server("nanoidp", audience=AUDIENCE) as nano,
            start_server("oidc-provider", audience=AUDIENCE) as oidc,
        ):
            tokens = [
                await user_token(nano, "alice"),
                await user_token(nano, "bob"),
                await client_token(oidc, scope="agents:run"),
            ]
            alice, bob, robot = [{"Authorization": f"Bearer {token}"} for token in tokens]
            urls = nano.url, oidc.url
            write(tmp_path, urls, RULES)
            with served(tmp_path, **tap.variables) as gateway:
                metered = Metered(gateway)
                await check_rules(gateway, alice, bob, robot)
                await check_trace(gateway, tap, robot)
                async with start_client("acp", base_url=f"{gateway.url}/acp", headers=alice) as client:
                    with pytest.raises(ClientError, match="Agent payroll not found"):
                        await client.call("run_sync", agent="payroll", input="hi")

                load = Load(gateway.url, "planner", [alice, alice, robot, robot])
                calling = asyncio.ensure_future(load.run())
                try:
                    for number in range(5):
                        await load.more(20)
                        rules = [*RULES, BOB_MAY_NOT] if number % 2 == 0 else RULES
                        write(tmp_path, urls, rules, limits={"run": 60 + number})
                        await reload(gateway)
                        response = await request(gateway, "POST", "/acp/runs", bob, json=run_body("planner"))
                        assert response.status_code == (403 if number % 2 == 0 else 200)
                    await load.more(20)
                finally:
                    load.end()
                    await within(calling)

                check_metrics(metered.scrape(), load.calls)
                metered.close()


def check_metrics(scrape: Scrape, calls: int) -> None:
    """Check the counters of a gateway that has served `calls` of the load without a failure."""
    assert calls >= 120
    # One run before the load over ACP, and two of bob's between reloads; the other one is that of the trace.
    assert scrape.value("runs_total", agent="planner", protocol="acp", outcome="success") == calls + 3
    assert scrape.value("runs_total", agent="planner", protocol="a2a", outcome="success") == 1
    assert scrape.value("runs_total", agent="payroll") == 0
    assert scrape.value("auth_total", method="token", result="refused") == 0
    assert scrape.value("auth_total", method="token", result="accepted") >= calls
    assert scrape.value("config_reload_ok") == 1
