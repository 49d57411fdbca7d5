"""A protocol of another package (`tests/toy`): it works everywhere as soon as the package is installed, with no other
change.

Each process of these tests has the folder `tests/toy` on its import path.
"""

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


def test_the_protocol_is_served_with_its_error_format(gateway: Served) -> None:
    run = call(gateway.url, "/toy/echo", {"text": "hello"})
    assert (run.status_code, run.json()["state"], run.json()["text"]) == (200, "completed", "hello")
    assert call(gateway.url, f"/toy/runs/{run.json()['id']}").json() == run.json()
    assert call(gateway.url, f"/acp/runs/{run.json()['id']}").json()["status"] == "completed"
    for path in ("/toy/nobody", "/toy/no/such/path"):
        assert call(gateway.url, path, {"text": "hello"}).json()["oops"]["code"] == "not_found"


def test_the_table_of_urls_lists_the_protocol(gateway: Served) -> None:
    assert "Toy" in gateway.table
    assert f"{gateway.url}/toy" in gateway.table
    protocols = call(gateway.url, "/").json()["protocols"]
    assert [each["url"] for each in protocols if each["protocol"] == "Toy"] == [f"{gateway.url}/toy"]


def test_an_agent_of_a_detected_server_is_called_from_acp(gateway: Served, tmp_path: Path) -> None:
    added = babelgate(tmp_path, "add", f"far={gateway.url}/toy#echo", PYTHONPATH=PATH)
    assert added.returncode == 0, added.stderr
    assert added.stderr.startswith(f"Toy at {gateway.url}/toy: ")
    assert "protocol: toy" in (tmp_path / "babelgate.yaml").read_text()
    body = {"agent_name": "far", "input": [{"role": "user", "parts": [{"content": "hello"}]}]}
    with served(tmp_path, PYTHONPATH=PATH) as near:
        run = call(near.url, "/acp/runs", body).json()
    assert (run["status"], run["output"][0]["parts"][0]["content"]) == ("completed", "hello")


def test_the_command_line_accepts_the_protocol(gateway: Served, tmp_path: Path) -> None:
    run = babelgate(tmp_path, "run", "echo", "hello", "--as", "toy", "--url", gateway.url, PYTHONPATH=PATH)
    assert (run.returncode, run.stdout.strip()) == (0, "hello"), run.stderr
    chosen = ("add", f"far={gateway.url}/toy#echo", "--protocol", "toy")
    assert babelgate(tmp_path, *chosen, PYTHONPATH=PATH).returncode == 0
    unknown = babelgate(tmp_path, *chosen)
    assert unknown.returncode == 2, "without the package, the protocol must be unknown"
    assert "'toy' is not one of" in unknown.stderr


def test_the_settings_schema_has_the_protocol(tmp_path: Path) -> None:
    for path, expected in ((PATH, True), (str(ROOT), False)):
        validated = babelgate(tmp_path, "validate", "--schema", PYTHONPATH=path)
        assert ('"toy"' in json.dumps(json.loads(validated.stdout))) is expected


@pytest.mark.slow
def test_the_generated_matrices_have_a_column_for_the_protocol(tmp_path: Path) -> None:
    program = "import json; from docs.generate import pages; print(json.dumps({p.name: t for p, t in pages().items()}))"
    environment = {**os.environ, "PYTHONPATH": PATH}
    generated = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    pages = json.loads(generated.stdout)
    for page in ("fidelity.md", "pairs.md"):
        assert any(line.startswith("| |") and "| Toy |" in line for line in pages[page].splitlines()), page


def run_tests(*arguments: str) -> str:
    """Run the tests with the package installed, and return pytest's report of each test."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": PATH}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert run.returncode == 0, run.stdout[-5000:]
    return run.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_route_and_owner_tests_include_the_protocol() -> None:
    report = run_tests(
        *("tests/behaviour/test_routes.py", "tests/behaviour/test_owners.py"),
        *("-k", "toy or every_route_with_a_body or every_position_of_an_id"),
    )
    for test in (
        "test_a_bad_body_is_refused_or_ignored[POST /toy/{agent}]",
        "test_wrong_types_in_every_field_are_refused[POST /toy/{agent}]",
        "test_an_unknown_id_is_404_and_not_some_other_error[GET /toy/runs/{run_id}]",
        "test_the_ids_of_another_owner_count_as_unknown[GET /toy/runs/{run_id}]",
        "test_without_a_key_every_path_is_401[/toy/runs/{run_id}]",
        "test_every_route_with_a_body_has_a_valid_body",
        "test_every_position_of_an_id_in_the_routes_is_compared",
    ):
        assert f"{test} PASSED" in report, test


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_pair_suite_includes_the_protocol() -> None:
    report = run_tests("tests/pairs/test_pairs.py", "tests/pairs/test_matrix.py", "-k", "toy or every_protocol_has")
    for test in (
        "test_an_answer_arrives[toy-a2a-1.0]",
        "test_an_answer_arrives[acp-toy]",
        "test_an_answer_arrives[toy-toy]",
        "test_a_failure_has_the_agents_error_message[langgraph-toy]",
        "test_exactly_the_lost_features_are_reported[toy-graph]",
        "test_every_protocol_has_a_caller_and_a_house",
    ):
        assert f"{test} PASSED" in report, test
