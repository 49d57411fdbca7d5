"""A protocol of another package (`tests/toy`) is known everywhere as soon as the package is there, and nothing else is
changed for it: each process here has the folder on its path, and that is all."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.gateway.command import ROOT, Served, babelgate, served

TOY: Final = str(ROOT / "tests" / "toy")
PATH: Final = f"{ROOT}{os.pathsep}{TOY}"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("toy"), PYTHONPATH=PATH) as running:
        yield running


def call(url: str, path: str, body: Any = None) -> httpx.Response:
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        return http.get(path) if body is None else http.post(path, json=body)


def test_it_is_served_and_its_errors_are_in_its_own_words(gateway: Served) -> None:
    made = call(gateway.url, "/toy/echo", {"text": "hello"})
    assert (made.status_code, made.json()["state"], made.json()["text"]) == (200, "completed", "hello")
    assert call(gateway.url, f"/toy/runs/{made.json()['id']}").json() == made.json()
    assert call(gateway.url, f"/acp/runs/{made.json()['id']}").json()["status"] == "completed"
    for path in ("/toy/nobody", "/toy/no/such/path"):
        assert call(gateway.url, path, {"text": "hello"}).json()["oops"]["code"] == "not_found"


def test_it_stands_in_the_table_of_urls(gateway: Served) -> None:
    assert "Toy" in gateway.table
    assert f"{gateway.url}/toy" in gateway.table
    protocols = call(gateway.url, "/").json()["protocols"]
    assert [each["url"] for each in protocols if each["protocol"] == "Toy"] == [f"{gateway.url}/toy"]


def test_a_server_that_speaks_it_is_recognised_and_its_agent_is_called_from_acp(
    gateway: Served, tmp_path: Path
) -> None:
    added = babelgate(tmp_path, "add", f"far={gateway.url}/toy#echo", PYTHONPATH=PATH)
    assert added.returncode == 0, added.stderr
    assert added.stderr.startswith(f"Toy at {gateway.url}/toy: ")
    assert "protocol: toy" in (tmp_path / "babelgate.yaml").read_text()
    said = {"agent_name": "far", "input": [{"role": "user", "parts": [{"content": "hello"}]}]}
    with served(tmp_path, PYTHONPATH=PATH) as near:
        run = call(near.url, "/acp/runs", said).json()
    assert (run["status"], run["output"][0]["parts"][0]["content"]) == ("completed", "hello")


def test_the_command_line_has_its_name(gateway: Served, tmp_path: Path) -> None:
    told = babelgate(tmp_path, "run", "echo", "hello", "--as", "toy", "--url", gateway.url, PYTHONPATH=PATH)
    assert (told.returncode, told.stdout.strip()) == (0, "hello"), told.stderr
    chosen = ("add", f"far={gateway.url}/toy#echo", "--protocol", "toy")
    assert babelgate(tmp_path, *chosen, PYTHONPATH=PATH).returncode == 0
    unknown = babelgate(tmp_path, *chosen)
    assert unknown.returncode == 2, "without the package it is no protocol"
    assert "'toy' is not one of" in unknown.stderr


def test_the_schema_of_the_settings_has_its_name(tmp_path: Path) -> None:
    for path, known in ((PATH, True), (str(ROOT), False)):
        told = babelgate(tmp_path, "validate", "--schema", PYTHONPATH=path)
        assert ('"toy"' in json.dumps(json.loads(told.stdout))) is known


@pytest.mark.slow
def test_the_generated_matrices_have_a_column_for_it(tmp_path: Path) -> None:
    program = "import json; from docs.generate import pages; print(json.dumps({p.name: t for p, t in pages().items()}))"
    environment = {**os.environ, "PYTHONPATH": PATH}
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    pages = json.loads(made.stdout)
    for page in ("fidelity.md", "pairs.md"):
        assert any(line.startswith("| |") and "| Toy |" in line for line in pages[page].splitlines()), page


def run_tests(*arguments: str) -> str:
    """What pytest says of each test, where the package is there."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": PATH}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert told.returncode == 0, told.stdout[-5000:]
    return told.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_tests_of_all_routes_and_owners_take_its_routes_in() -> None:
    told = run_tests(
        *("tests/behaviour/test_routes.py", "tests/behaviour/test_owners.py"),
        *("-k", "toy or every_route_with_a_body or every_position_of_an_id"),
    )
    for test in (
        "test_a_bad_body_is_refused_or_ignored[POST /toy/{agent}]",
        "test_wrong_types_in_every_field_are_refused[POST /toy/{agent}]",
        "test_an_unknown_id_is_404_and_not_some_other_error[GET /toy/runs/{run_id}]",
        "test_the_ids_of_another_owner_are_ids_of_nothing[GET /toy/runs/{run_id}]",
        "test_without_a_key_every_path_is_401_in_its_protocol_s_words[/toy/runs/{run_id}]",
        "test_every_route_with_a_body_is_in_the_table_of_valid_bodies",
        "test_every_position_of_an_id_in_the_routes_is_compared",
    ):
        assert f"{test} PASSED" in told, test


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_pair_suite_takes_in_its_callers_and_its_servers() -> None:
    told = run_tests("tests/pairs/test_pairs.py", "tests/pairs/test_matrix.py", "-k", "toy or every_protocol_has")
    for test in (
        "test_an_answer_arrives[toy-a2a-1.0]",
        "test_an_answer_arrives[acp-toy]",
        "test_an_answer_arrives[toy-toy]",
        "test_a_failure_brings_the_agents_own_words[langgraph-toy]",
        "test_what_a_protocol_cannot_show_is_named_as_lost_and_nothing_else_is[toy-graph]",
        "test_every_protocol_has_a_caller_and_every_kind_of_agent_a_house_with_all_that_it_can_show",
    ):
        assert f"{test} PASSED" in told, test
