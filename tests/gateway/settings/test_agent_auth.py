"""`auth` of an agent: the accepted forms, the errors for others, and hidden secrets."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from babelgate.gateway.settings.redaction import redact
from tests.gateway.settings.problems import problems, written

TOKEN: Final = {"token_url": "https://login.example.com/token", "client_id": "babelgate", "client_secret": "hush-hush"}
ISSUERS: Final = {"corp": {"issuer": "https://login.example.com", "audience": ["https://agents.example.com"]}}


def text(auth: object, issuers: object = ISSUERS, **agent: Any) -> str:
    settings = {"issuers": issuers, "agents": {"planner": {"url": "http://planner", "auth": auth, **agent}}}
    return yaml.safe_dump(settings)


FORMS: Final[list[tuple[Any, dict[str, Any], dict[str, str], list[str]]]] = [
    ({"headers": {"X-Team": "blue"}}, {}, {"X-Team": "blue"}, []),
    ({"forward": ["X-Tenant"]}, {"headers": {"X-Team": "blue"}}, {"X-Team": "blue"}, ["x-tenant"]),
    ({"client_credentials": TOKEN}, {"forward": ["X-Tenant"]}, {}, ["x-tenant"]),
    ({"exchange": {**TOKEN, "audience": "planner", "fallback": "client"}}, {}, {}, []),
]


@pytest.mark.parametrize(("auth", "agent", "headers", "forwarded"), FORMS)
def test_each_form_of_auth_is_accepted(
    tmp_path: Path, auth: Any, agent: dict[str, Any], headers: dict[str, str], forwarded: list[str]
) -> None:
    settings = written(tmp_path / "babelgate.yaml", text(auth, **agent)).agents["planner"]
    assert settings.sent_headers == headers
    assert sorted(settings.forwarded_names) == forwarded


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (text({}), "agents.planner.auth: one of headers, forward, client_credentials, exchange"),
        (
            text({"headers": {"X-A": "b"}, "exchange": TOKEN}),
            "agents.planner.auth: one of headers, forward, client_credentials, exchange",
        ),
        (
            text({"exchange": TOKEN}, issuers={}),
            "agents.planner.auth: exchange needs issuers, whose tokens it exchanges",
        ),
        (
            text({"forward": ["Authorization"]}),
            "agents.planner.auth.forward: authorization is reserved: the gateway does not forward callers' keys, hosts "
            "and lengths",
        ),
        (
            text({"client_credentials": TOKEN}, headers={"authorization": "Bearer x"}),
            "agents.planner: headers must not have Authorization, which auth sets",
        ),
        (
            text({"headers": {"X-A": "b"}}, headers={"X-B": "c"}),
            "agents.planner: set either headers or auth.headers, not both",
        ),
        (
            text({"client_credentials": {**TOKEN, "audience": "a", "resource": "https://b"}}),
            "agents.planner.auth.client_credentials: set either audience or resource: providers know one of them",
        ),
        (
            text({"client_credentials": {**TOKEN, "token_url": "http://login.example.com/token"}}),
            "agents.planner.auth.client_credentials.token_url: an https:// URL, or an http:// URL of this machine",
        ),
        (
            text({"exchange": {**TOKEN, "scope": "a  b"}}),
            "agents.planner.auth.exchange.scope: scopes with one space between them, such as agents:run agents:read",
        ),
    ],
)
def test_a_wrong_auth_is_named_with_its_place(tmp_path: Path, settings: str, expected: str) -> None:
    assert problems(tmp_path / "babelgate.yaml", settings) == [expected]


def test_auth_needs_an_agent_with_a_url(tmp_path: Path) -> None:
    agent: dict[str, Any] = {"python": "babelgate.gateway.demo:echo", "auth": {"headers": {}}}
    [problem] = problems(tmp_path / "babelgate.yaml", yaml.safe_dump({"agents": {"planner": agent}}))
    assert problem == "agents.planner: auth is for agents with a url, and this one has python"


def test_the_secret_of_a_provider_is_redacted(tmp_path: Path) -> None:
    settings = written(tmp_path / "babelgate.yaml", text({"client_credentials": TOKEN}))
    section = redact(settings)["agents"]["planner"]["auth"]["client_credentials"]
    assert (section["client_id"], section["client_secret"]) == ("babelgate", "***")
    assert "hush-hush" not in json.dumps(redact(settings))
