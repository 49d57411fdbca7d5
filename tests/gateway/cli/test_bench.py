"""Tests of `babelgate bench` with real processes, real servers and the built-in suites."""

import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from babelgate.conformance.bench.result import result_schema
from babelgate.gateway.cli import main
from babelgate.gateway.settings.model import DEMO
from tests.gateway.command import BOUND, PROGRAM, ROOT, bound_socket, served
from tests.gateway.forking import forked_embedded_gateways

pytestmark = pytest.mark.timeout(180)

PUBLISHED = ROOT / "conformance" / "bench" / "result.schema.json"
PASSED = {
    "echo": {"says-it-back", "keeps-every-character", "ends-in-time"},
    "stream": {"says-it-back", "keeps-every-character", "ends-in-time"},
    "ask": {"asks-for-a-name", "ends-in-time"},
    "approve": {"takes-approvals", "ends-in-time"},
    "files": {"returns-files"},
    "steps": {"works-in-steps", "ends-in-time"},
    "json": {"counts-in-json", "ends-in-time"},
    "tools": {"counts-with-a-tool", "ends-in-time"},
    "slow": {"comes-back-after-silence"},
    "fail": {"says-why-it-fails"},
}
"""Tasks of `smoke` that each demo agent passes."""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def bench(folder: Path, *arguments: str) -> Done:
    """Run `babelgate bench` in this process, and return its exit code and output. Its gateways are separate
    processes."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        forked_embedded_gateways(),
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        main(["bench", *arguments])
    return Done(int(ended.value.code or 0), out.getvalue(), errors.getvalue())


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def passed(report: dict[str, Any], agent: str) -> set[str]:
    return {each["task"] for each in report["attempts"] if each["agent"] == agent and each["outcome"] == "passed"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the result of `smoke` for all demo agents."""
    folder = tmp_path_factory.mktemp("smoke")
    # `slow` waits five seconds in most of its tasks, so run them concurrently.
    done = bench(folder, "smoke", *DEMO, "--concurrency", "12", "--out", "out")
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout, encoding="utf-8")
    return folder


def test_the_demo_agents_get_the_expected_scores(smoke: Path) -> None:
    report = result(smoke / "out")
    assert {agent: passed(report, agent) for agent in DEMO} == PASSED
    outcomes = {(each["agent"], each["task"]): each["outcome"] for each in report["attempts"]}
    assert outcomes["slow", "ends-in-time"] == "timeout"
    assert {outcome for (agent, _), outcome in outcomes.items() if agent == "fail"} == {"error", "passed"}
    assert "broken" not in outcomes.values()
    assert report["complete"]
    assert {each["agent"]: round(each["score"], 3) for each in report["agents"]} == {
        agent: round(len(tasks) / 11, 3) for agent, tasks in PASSED.items()
    }


def test_a_result_matches_its_schema_and_describes_its_setup(smoke: Path) -> None:
    report = result(smoke / "out")
    jsonschema.validate(report, json.loads(PUBLISHED.read_text(encoding="utf-8")))
    header = report["header"]
    assert header["suite"] == "smoke" and re.fullmatch(r"[0-9a-f]{16}", header["suite_hash"])
    assert {each["name"]: each["fronted"] for each in header["agents"]} == dict.fromkeys(DEMO, True)
    assert all(header["machine"][key] for key in ("system", "cpus", "python", "babelgate", "isolation"))


def test_the_published_schema_is_current(accept: bool, tmp_path: Path) -> None:
    text = json.dumps(result_schema(), indent=2) + "\n"
    if accept:
        PUBLISHED.write_text(text, encoding="utf-8")
    assert PUBLISHED.read_text(encoding="utf-8") == text, "run pytest --accept"
    assert bench(tmp_path, "--schema", "result").stdout == text


def test_every_format_of_the_report_has_the_same_scores(smoke: Path) -> None:
    rows = list(csv.DictReader((smoke / "out" / "result.csv").read_text(encoding="utf-8").splitlines()))
    assert {(row["agent"], row["task"]) for row in rows if row["passed"] == "1"} == {
        (agent, task) for agent, tasks in PASSED.items() for task in tasks
    }
    markdown = (smoke / "out" / "report.md").read_text(encoding="utf-8")
    stdout = (smoke / "stdout").read_text(encoding="utf-8")
    for agent, tasks in PASSED.items():
        assert f"| {agent} | {len(tasks)}/11 |" in markdown
        assert re.search(rf"^{agent} +{len(tasks)}/11 ", stdout, re.MULTILINE)


def test_the_demo_agent_for_files_passes_the_suite_of_files(tmp_path: Path) -> None:
    done = bench(tmp_path, "files", "files", "echo", "--out", "out", "--repeat", "2")
    assert done.returncode == 0, done.stderr
    report = result(tmp_path / "out")
    assert len(passed(report, "files")) == 7
    assert {each["outcome"] for each in report["attempts"] if each["agent"] == "files"} == {"passed"}
    skipped = {each["task"] for each in report["attempts"] if each["outcome"] == "skipped"}
    assert skipped == {"empty", "unicode-names", "several", "large", "program"}
    (compared,) = report["comparisons"]
    assert (compared["first"], compared["better"], compared["tasks"]) == ("files", 7, 7)
    assert compared["sentence"].startswith("files is better than echo on 7 of 7 tasks, not explained by chance")


def test_an_aief_server_is_called_directly_and_others_are_fronted(tmp_path: Path) -> None:
    with served(tmp_path) as gateway:
        targets = (f"plain={gateway.url}/agent/echo", f"a2a={gateway.url}/a2a/echo", f"acp={gateway.url}/acp#echo")
        done = bench(tmp_path, "smoke", *targets, "--category", "text", "--out", "out")
        assert done.returncode == 0, done.stderr
    report = result(tmp_path / "out")
    about = {each["name"]: each for each in report["header"]["agents"]}
    assert {name: each["fronted"] for name, each in about.items()} == {"plain": False, "a2a": True, "acp": True}
    assert about["plain"]["url"] == targets[0].removeprefix("plain=")
    for name in about:
        assert passed(report, name) == {"says-it-back", "keeps-every-character"}, name


def test_a_python_agent_is_benched_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "manners.py").write_text("async def greet(text):\n    return f'Hello, {text}.'\n")
    (tmp_path / "tasks.yaml").write_text("tasks: [{name: greets, input: Ada, checks: [{equals: 'Hello, Ada.'}]}]")
    done = bench(tmp_path, "tasks.yaml", "manners:greet", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert passed(result(tmp_path / "out"), "greet") == {"greets"}


# Stop and resume

GATE = """
import asyncio
from pathlib import Path

async def gate(text: str) -> str:
    if text == "wait" and not Path("open").exists():
        await asyncio.Event().wait()
    return "done"
"""
TASKS = """
tasks:
  - {name: quick-1, input: go, checks: [{equals: done}]}
  - {name: quick-2, input: go, checks: [{equals: done}]}
  - {name: stuck, input: wait, depends_on: [quick-1, quick-2], timeout: 4000, checks: [{equals: done}]}
"""


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    """Folder with an agent that ends one of its three tasks only if there is a file `open`."""
    (tmp_path / "gates.py").write_text(GATE)
    (tmp_path / "tasks.yaml").write_text(TASKS)
    return tmp_path


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()]


def stopped(folder: Path, number: int) -> "tuple[int, str]":
    """Send a signal to a bench during the third of three attempts. Return its exit code and its later stderr."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BABELGATE_")}
    with subprocess.Popen(
        [*PROGRAM, "bench", "tasks.yaml", "gates:gate", "--out", "out"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background ignores SIGINT, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("2/3"):
                break
        process.send_signal(number)
        try:
            _, errors = process.communicate(timeout=BOUND * 3)
        finally:
            process.kill()
        return process.returncode, errors


@pytest.mark.slow
def test_resume_after_ctrl_c_runs_the_remaining_attempts(gated: Path) -> None:
    code, errors = stopped(gated, signal.SIGINT)
    assert (code, "Traceback" in errors) == (130, False), errors
    assert "continue with: babelgate bench --resume out" in errors
    report = result(gated / "out")
    assert (report["complete"], report["stopped"], len(report["attempts"])) == (
        False,
        "it was interrupted",
        2,
    )
    before = journal(gated / "out")
    (gated / "tasks.yaml").write_text(TASKS.replace("input: wait", "input: now"))
    refused = bench(gated, "--resume", "out")
    assert refused.returncode == 2
    assert "the task stuck is not what it was" in refused.stderr
    (gated / "tasks.yaml").write_text(TASKS)
    (gated / "open").touch()
    done = bench(gated, "--resume", "out")
    assert done.returncode == 0, done.stderr
    assert journal(gated / "out")[:3] == before
    assert passed(result(gated / "out"), "gate") == {"quick-1", "quick-2", "stuck"}


@pytest.mark.slow
def test_a_kill_keeps_finished_attempts_and_ends_the_gateway(gated: Path) -> None:
    code, _ = stopped(gated, signal.SIGKILL)
    assert code == -signal.SIGKILL
    before = journal(gated / "out")
    assert [line.get("outcome") for line in before] == [None, "passed", "passed"]
    assert is_gone(before[0]["agents"][0]["url"])
    with (gated / "out" / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind": "attempt", "agent": "ga')  # as after a kill in the middle of a line
    (gated / "open").touch()
    assert bench(gated, "--resume", "out").returncode == 0
    after = journal(gated / "out")
    assert (after[:3], [line["task"] for line in after[3:]]) == (before, ["stuck"])
    assert result(gated / "out")["complete"]


def is_gone(url: str) -> bool:
    """Return True if the server at this URL refuses connections, or closes this one before the timeout."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=BOUND) as connection:
            return connection.recv(1) == b""
    except (ConnectionRefusedError, ConnectionResetError):
        return True


# Budgets, bounds and baselines


def test_an_exhausted_budget_ends_the_bench(tmp_path: Path) -> None:
    done = bench(tmp_path, "smoke", "echo", "--max-time", "0.0001", "--out", "out")
    assert done.returncode == 3, done.stderr
    report = result(tmp_path / "out")
    assert "Not complete: the budget" in done.stdout
    assert bench(tmp_path, "--resume", "out").returncode == 0
    whole = result(tmp_path / "out")
    assert passed(whole, "echo") == PASSED["echo"]
    # The number of attempts before the first check of the budget depends on the machine.
    left = len(whole["attempts"]) - len(report["attempts"])
    assert left > 0
    assert report["stopped"] == f"the budget of 0.0001 seconds is used up: {left} attempts were not made"


def test_a_regression_against_the_baseline_fails(tmp_path: Path) -> None:
    tasks = "tasks: [{name: one, input: a, checks: [{equals: a}]}, {name: two, input: b, checks: [{equals: b}]}]"
    (tmp_path / "tasks.yaml").write_text(tasks)
    assert bench(tmp_path, "tasks.yaml", "agent=echo", "--out", "before").returncode == 0
    same = bench(tmp_path, "tasks.yaml", "agent=stream", "--out", "same", "--baseline", "before")
    assert (same.returncode, "Nothing has changed on 2 tasks." in same.stdout) == (0, True), same.stderr
    worse = bench(tmp_path, "tasks.yaml", "agent=json", "--out", "worse", "--baseline", "before/result.json")
    assert worse.returncode == 1
    assert "agent, one: 0 % and 100 % before: it is worse" in worse.stdout
    rows = {row["task"]: row["verdict"] for row in result(tmp_path / "worse")["baseline"]["rows"]}
    assert rows == {None: "lower", "one": "regressed", "two": "regressed"}


def test_a_score_below_the_bound_fails(tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text("tasks: [{name: one, input: a, checks: [{equals: b}]}]")
    assert bench(tmp_path, "tasks.yaml", "echo", "--out", "a", "--fail-under", "0.5").returncode == 1
    assert bench(tmp_path, "tasks.yaml", "echo", "--out", "b", "--fail-under", "0").returncode == 0


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a suite, such as smoke"),
        (["smoke"], "give an agent"),
        (["nope", "echo"], "there is no such file or folder, and no such suite; there are files, smoke"),
        (["smoke", "nope"], "nope: expected a URL, module:name or a configured agent; the agents are echo"),
        (["smoke", "echo", "echo"], "echo: there is another agent echo"),
        (["smoke", "gone:agent"], "gone:agent: cannot import gone"),
        (["smoke", "echo", "--task", "nope"], "--task nope: the suite has none of that name"),
        (["smoke", "echo", "--price", "x"], "x: a price is AGENT=INPUT/OUTPUT"),
        (["smoke", "echo", "--header", "x"], "--header: give NAME: VALUE"),
        (["smoke", "echo", "--baseline", "nope.json"], "nope.json: it cannot be read"),
        (["--resume", "nope"], "it cannot be read: No such file"),
        (["--resume", "nope", "smoke"], "--resume takes the suite and the agents from its folder"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = bench(tmp_path, *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr
    assert not list(tmp_path.glob("*/journal.jsonl"))


def test_a_missing_agent_is_reported_before_any_attempt(tmp_path: Path) -> None:
    with bound_socket() as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        done = bench(tmp_path, "smoke", f"far={url}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"babelgate: far={url}: ")


def test_a_bench_does_not_overwrite_another(smoke: Path) -> None:
    done = bench(smoke, "smoke", "echo", "--out", "out")
    assert done.returncode == 2
    assert "out contains a bench already: continue it with --resume out" in done.stderr


def test_the_tasks_are_listed_with_their_checks(tmp_path: Path) -> None:
    done = bench(tmp_path, "smoke", "--list", "--task", "takes-approvals")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "  takes-approvals  dialogue, approval, interface",
        "                     output contains “write: approved”, “send: not approved”",
        "                     steps at least 3",
    ]


# The page


def test_the_html_report_is_also_written_to_a_chosen_file(tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text("tasks: [{name: one, input: a, checks: [{equals: a}]}]")
    done = bench(tmp_path, "tasks.yaml", "echo", "--out", "out", "--html", "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "echo: 1/1 (21–100 %)" in page
    refused = bench(tmp_path, "tasks.yaml", "echo", "--out", "other", "--html", "nowhere/page.html")
    assert (refused.returncode, "nowhere/page.html: there is no such folder" in refused.stderr) == (2, True)
    assert not (tmp_path / "other").exists()


def test_a_key_repeated_by_an_agent_is_not_written(tmp_path: Path) -> None:
    task = "{name: one, description: Says it, input: it is k3y-of-mine, checks: [{equals: b}]}"
    (tmp_path / "tasks.yaml").write_text(f"tasks: [{task}]")
    with served(tmp_path) as gateway:
        url = f"{gateway.url}/agent/echo"
        done = bench(tmp_path, "tasks.yaml", f"plain={url}", "--header", "X-Key: Token k3y-of-mine", "--out", "out")
    assert done.returncode == 0, done.stderr
    (attempt,) = result(tmp_path / "out")["attempts"]
    assert attempt["outputs"] == ["it is [redacted]"]
    for file in (tmp_path / "out").iterdir():
        assert "k3y-of-mine" not in file.read_text(encoding="utf-8"), file
