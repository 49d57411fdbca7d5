"""Agreement of the dashboard and the alert rules with the metrics: every query is valid and uses metrics that exist."""

import json
import re
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import promql_parser
import pytest
import yaml

from tests.docs.test_observability import rows
from tests.gateway.command import bound_socket, served
from tests.gateway.telemetry.scrape import Metered, Scrape
from tests.skip import missing

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
RULES: Final = DEPLOY / "prometheus/rules.yaml"
RULE_TESTS: Final = Path(__file__).parent / "rules_test.yaml"
ALERTS: Final[list[Any]] = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD: Final[Any] = json.loads((DEPLOY / "grafana/babelgate.json").read_text(encoding="utf-8"))
PANELS: Final[list[Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGET: Final = frozenset({"job", "instance"})
"""Labels that Prometheus adds to each sample."""
EXPRESSIONS: Final = {
    **{rule["alert"]: rule["expr"] for rule in ALERTS},
    **{
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "5m")
        for panel in PANELS
        for target in panel["targets"]
    },
}

AGENTS: Final = """
from babelgate.canonical.event import RunEnded


async def count(text):
    yield text
    yield RunEnded(status="success", usage={"input_tokens": 3, "output_tokens": 5})
"""
SETTINGS: Final = """
telemetry: {{metrics: {{listen: "127.0.0.1:0"}}}}
keys: {{alice: alice-0123456789}}
issuers:
  corp: {{issuer: "{dead}", audience: "https://gateway.example", jwks: "{dead}/keys"}}
budgets: {{month: {{per: agent, runs: 100}}}}
agents:
  count: {{python: "agents_that_count:count", price: {{input: 3}}}}
  ask: {{python: "babelgate.gateway.demo:ask"}}
  both: {{urls: ["{dead}/acp", "{far}/acp"], protocol: acp, agent: echo}}
  tokened:
    url: "{far}/a2a/echo"
    auth: {{client_credentials: {{token_url: "{dead}/token", client_id: a, client_secret: b}}}}
  carded: {{url: "{far}/a2a/echo", card: {{verify: audit, keys: ["{dead}/keys"]}}}}
"""
TOKEN: Final = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ"


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    """Return the metrics of a gateway that has done a bit of everything."""
    far, folder = tmp_path_factory.mktemp("far"), tmp_path_factory.mktemp("gateway")
    with served(far) as upstream, bound_socket() as unused:
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (folder / "agents_that_count.py").write_text(AGENTS, encoding="utf-8")
        (folder / "babelgate.yaml").write_text(SETTINGS.format(dead=dead, far=upstream.url), encoding="utf-8")
        with served(folder) as gateway:  # open questions are counted at the next start, and every 15 seconds
            _run(gateway.url, "ask", "sync")
        with served(folder) as gateway:
            metered = Metered(gateway)
            for agent in ("count", "both"):
                for mode in ("sync", "stream"):
                    _run(gateway.url, agent, mode)
            token = f"{TOKEN}.{_claims(dead)}.c2ln"
            answer = httpx.get(
                f"{gateway.url}/acp/agents", headers={"Authorization": f"Bearer {token}"}, trust_env=False
            )
            assert answer.status_code == 503
            yield metered.await_scrape(lambda found: found.value("questions_open") and found.value("cost_total"))
            metered.close()


def _run(url: str, agent: str, mode: str) -> None:
    body = {"agent_name": agent, "mode": mode, "input": [{"role": "user", "parts": [{"content": "a"}]}]}
    headers = {"X-Api-Key": "alice-0123456789"}
    httpx.post(f"{url}/acp/runs", json=body, headers=headers, timeout=30, trust_env=False).raise_for_status()


def _claims(issuer: str) -> str:
    return urlsafe_b64encode(json.dumps({"iss": issuer}).encode()).decode().rstrip("=")


def selectors(expression: Any) -> Iterator[Any]:
    """Yield the selectors of an expression."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        inner = getattr(expression, name, None)
        if inner is not None:
            yield from selectors(inner)
    for argument in getattr(expression, "args", ()):
        yield from selectors(argument)


def grouping(expression: str) -> set[str]:
    """Return the labels by which an expression groups or joins."""
    lists = re.findall(r"\b(?:by|on) \(([\w, ]*)\)", expression)
    return {label for each in lists for label in each.split(", ") if label}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_query_uses_metrics_and_labels_that_exist(name: str, scrape: Scrape) -> None:
    text = EXPRESSIONS[name]
    found = [*selectors(promql_parser.parse(text))]
    assert found
    labels = set[str]()
    for selector in found:
        if selector.name == "up":
            labels |= TARGET
            continue
        assert selector.name in scrape.labels, f"{selector.name} is not in the scrape"
        metric_labels = scrape.labels[selector.name] | TARGET
        assert {matcher.name for matcher in selector.matchers.matchers} <= metric_labels
        labels |= metric_labels
    assert grouping(text) <= labels


def test_dashboard_shows_every_metric(scrape: Scrape) -> None:
    used = set(re.findall(r"babelgate_\w+", json.dumps(PANELS)))
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in scrape.labels}
    assert names == {re.sub(r"_bucket$", "", name) for name in used}


def test_panels_do_not_overlap_and_have_texts() -> None:
    assert DASHBOARD["schemaVersion"] == 36
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource", "agent", "node"]
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Requests", "Runs", "Agents", "Storage", "Process"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    cells = [cell for panel in DASHBOARD["panels"] for cell in _cells(panel["gridPos"])]
    assert len(cells) == len(set(cells))
    assert all(panel["title"] and panel["datasource"]["uid"] == "${datasource}" for panel in PANELS)


def _cells(position: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(position["x"], position["x"] + position["w"]):
        for y in range(position["y"], position["y"] + position["h"]):
            assert x < 24
            yield x, y


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_says_what_happens_and_what_to_do(rule: Any) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "action"}
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    aggregated = "sum by" in rule["expr"] or "max by" in rule["expr"]
    assert not aggregated or used <= grouping(rule["expr"]) | {"folder"}


def test_every_alert_has_a_test() -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    names = {each["alertname"] for test in tests for each in test["alert_rule_test"] if each.get("exp_alerts")}
    assert names == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize(
    "command",
    [
        ("check", "config", str(RULES.with_name("prometheus.yaml"))),
        ("check", "rules", str(RULES)),
        ("test", "rules", str(RULE_TESTS)),
    ],
)
def test_rules_pass_promtool(command: tuple[str, ...]) -> None:
    ended = promtool(*command)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_metrics_pass_promtool(scrape: Scrape) -> None:
    ended = promtool("check", "metrics", text=scrape.text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def promtool(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run promtool, which is part of Prometheus (Debian: `apt-get install prometheus`)."""
    program = shutil.which("promtool")
    if program is None:
        missing("promtool")
    return subprocess.run([program, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False)


def test_documented_labels_are_those_of_the_scrape(scrape: Scrape) -> None:
    for name, kind, labels, _ in rows("metric"):
        sample = name.strip("`") + ("_bucket" if kind == "histogram" else "")
        assert set(re.findall(r"`(\w+)`", labels)) == scrape.labels[sample] - {"le"}
