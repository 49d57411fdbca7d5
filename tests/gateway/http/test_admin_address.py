"""Separate address of the administration API: what each listener serves."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from babelgate.canonical import FaultError
from babelgate.gateway.http.admin_address import AdminAddress
from tests.gateway.admin.administering import ACCESS, ALICE, KEYS, OPS
from tests.gateway.command import BOUND, Served, babelgate, bound_socket, served
from tests.postgres import empty, url_of

SETTINGS = {"keys": KEYS, "access": ACCESS, "admin": {"listen": "127.0.0.1:0"}}


@contextmanager
def administered(folder: Path, **settings: object) -> Generator[tuple[Served, str]]:
    """Serve a gateway whose administration API has a separate address, and yield both."""
    (folder / "babelgate.yaml").write_text(json.dumps({**SETTINGS, **settings}), encoding="utf-8")
    with served(folder) as gateway:
        line = gateway.logged("administration API served")
        yield gateway, line.partition("url=")[2].strip().removesuffix("/admin")


def status(url: str, headers: dict[str, str]) -> int:
    with httpx.Client(headers=headers, trust_env=False) as http:  # a separate connection
        return http.get(url).status_code


def test_each_listener_serves_only_its_paths(tmp_path: Path) -> None:
    with administered(tmp_path) as (gateway, url):
        found = {
            path: (status(f"{gateway.url}{path}", OPS), status(f"{url}{path}", OPS))
            for path in (
                *("/admin/keys", "/agent/echo/admin/keys", "/admin", "/acp/agents", "/healthz", "/administer"),
                *("/console/", "/agent/echo/console/", "/consoles"),
            )
        }
        assert found == {
            "/admin/keys": (404, 200),
            "/agent/echo/admin/keys": (404, 200),
            "/admin": (404, 404),
            "/acp/agents": (200, 404),
            "/healthz": (200, 404),
            "/administer": (404, 404),
            "/console/": (200, 200),
            "/agent/echo/console/": (200, 200),
            "/consoles": (404, 404),
        }
        assert "admin.listen" in httpx.get(f"{gateway.url}/admin/keys", headers=OPS).text
        statuses = [status(f"{url}/admin/keys", headers) for headers in ({}, {"X-Api-Key": "wrong"}, ALICE)]
        assert statuses == [401, 401, 403], "credentials and rules apply on the separate address, too"
        assert status(f"{gateway.url}/admin/keys", {"X-Api-Key": "wrong"}) == 404, "no key can be tried on this port"


def test_operators_use_the_console_on_the_admin_address(tmp_path: Path) -> None:
    with administered(tmp_path) as (gateway, url):

        def ask(base: str, headers: dict[str, str], path: str) -> httpx.Response:
            return httpx.get(f"{base}/console/api/v1/{path}", headers=headers, trust_env=False)

        operates = {"settings": 200, "jobs": 200, "runs?all=1": 200, "changes?all=1&x": 400, "health": 200, "runs": 200}
        refused = {**operates, "settings": 403, "jobs": 403, "runs?all=1": 403}
        for base, headers, is_operator in (
            (gateway.url, OPS, False),
            (f"{gateway.url}/agent/echo", OPS, False),
            (gateway.url, ALICE, False),
            (url, ALICE, False),
            (url, OPS, True),
            (f"{url}/agent/echo", OPS, True),
        ):
            me = ask(base, headers, "me").json()
            assert me["operator"] is me["can"]["jobs"] is me["can"]["settings"] is is_operator
            found = {path: ask(base, headers, path).status_code for path in operates}
            assert found == (operates if is_operator else refused)
            assert ("database" in ask(base, headers, "health").json()) is is_operator
        assert "admin.listen" in ask(gateway.url, OPS, "settings").text


def test_jobs_of_the_admin_address_call_the_port_of_callers(tmp_path: Path) -> None:
    order = {
        "kind": "check",
        "agents": ["echo"],
        "protocol": "aief",
        "options": {"only": ["aief-v1/step.execute"]},
    }
    with (
        administered(tmp_path) as (_, url),
        httpx.Client(base_url=f"{url}/console/api/v1", headers=OPS, timeout=BOUND, trust_env=False) as http,
        http.stream("GET", "/changes") as changes,
    ):
        lines = changes.iter_lines()
        assert next(lines) == ": following"
        job = http.post("/jobs", json=order).json()["job"]
        assert any(f'"id":"{job}","status":"done"' in line for line in lines)
        summary = http.get(f"/jobs/{job}").json()["summary"]
        assert (summary["passed"], summary["total"]) == (1, 1)


def raw_status(url: str, path: str) -> int:
    """Return the status of a GET whose path is sent as it is."""
    host = httpx.URL(url)
    connection = HTTPConnection(host.host, host.port)
    try:
        connection.request("GET", path, headers=OPS)
        return connection.getresponse().status
    finally:
        connection.close()


def test_no_spelling_of_a_path_changes_its_listener(tmp_path: Path) -> None:
    served_here, unknown = (404, 200), (404, 404)
    expected = {
        "/admin/keys": served_here,
        "//admin/keys": served_here,
        "/admin//keys": served_here,
        "///admin///keys//": served_here,
        "/%61dmin/keys": served_here,
        "/%2Fadmin/keys": served_here,
        "/%2fadmin%2Fkeys": served_here,
        "/agent/echo//admin/keys": served_here,
        "//agent//echo/admin/keys": served_here,
        "/./admin/keys": unknown,
        "/admin/../admin/keys": unknown,
        "/acp/../admin/keys": unknown,
        "/acp/%2e%2e/admin/keys": unknown,
        "/%2561dmin/keys": unknown,
        "/Admin/keys": unknown,
        "/admin;/keys": unknown,
        "/\\admin/keys": unknown,
        "//acp//agents/": (200, 404),
    }
    with administered(tmp_path) as (gateway, url):
        found = {path: (raw_status(gateway.url, path), raw_status(url, path)) for path in expected}
    assert found == expected


def test_all_workers_serve_the_administration_api(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    with administered(tmp_path, workers=2, database=url_of(postgres_tables)) as (gateway, url):
        gateway.logged("administration API served")
        assert [status(f"{url}/admin/keys", OPS) for _ in range(8)] == [200] * 8
        assert status(f"{gateway.url}/admin/keys", OPS) == 404


def test_an_occupied_address_names_the_setting(tmp_path: Path) -> None:
    with bound_socket() as occupied:
        occupied.listen()
        listen = f"127.0.0.1:{occupied.getsockname()[1]}"
        ended = babelgate(tmp_path, "serve", "--port", "0", BABELGATE_ADMIN__LISTEN=listen)
    assert ended.returncode == 1
    assert f"admin.listen: cannot listen on {listen}: Address already in use" in ended.stderr


@pytest.mark.parametrize(
    ("bound", "called", "is_here"),
    [
        ("10.0.0.5", ("10.0.0.5", 9001), True),
        ("10.0.0.5", ("10.0.0.6", 9001), False),  # the port of callers on another address
        ("10.0.0.5", ("10.0.0.5", 8000), False),
        ("0.0.0.0", ("10.0.0.6", 9001), True),
        ("::", ("::ffff:10.0.0.6", 9001), True),
        ("::1", ("::1", 9001), True),
        ("10.0.0.5", None, False),
    ],
)
def test_the_called_address_selects_the_listener(bound: str, called: tuple[str, int] | None, is_here: bool) -> None:
    address = AdminAddress(bound, 9001)
    address.check({"server": called}, "/admin/keys" if is_here else "/acp/agents")
    with pytest.raises(FaultError, match=r"admin\.listen"):
        address.check({"server": called}, "/acp/agents" if is_here else "/admin/keys")
