"""`babelgate bench` as people run it: real processes, real servers, the shipped suites."""

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
"""The tasks of `smoke` that each demo agent passes."""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def bench(folder: Path, *arguments: str) -> Done:
    """The command, in this process: its gateways are processes of their own."""
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


def passed(told: dict[str, Any], agent: str) -> set[str]:
    return {each["task"] for each in told["attempts"] if each["agent"] == agent and each["outcome"] == "passed"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all demo agents."""
    folder = tmp_path_factory.mktemp("smoke")
    # `slow` waits five seconds at most of its tasks: those wait together.
    done = bench(folder, "smoke", *DEMO, "--concurrency", "12", "--out", "out")
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout, encoding="utf-8")
    return folder


def test_the_demo_agents_get_their_known_scores(smoke: Path) -> None:
    told = result(smoke / "out")
    assert {agent: passed(told, agent) for agent in DEMO} == PASSED
    outcomes = {(each["agent"], each["task"]): each["outcome"] for each in told["attempts"]}
    assert outcomes["slow", "ends-in-time"] == "timeout"
    assert {outcome for (agent, _), outcome in outcomes.items() if agent == "fail"} == {"error", "passed"}
    assert "broken" not in outcomes.values()
    assert told["complete"]
    assert {each["agent"]: round(each["score"], 3) for each in told["agents"]} == {
        agent: round(len(tasks) / 11, 3) for agent, tasks in PASSED.items()
    }


def test_a_result_is_valid_by_its_published_schema_and_says_with_what_it_was_made(smoke: Path) -> None:
    told = result(smoke / "out")
    jsonschema.validate(told, json.loads(PUBLISHED.read_text(encoding="utf-8")))
    header = told["header"]
    assert header["suite"] == "smoke" and re.fullmatch(r"[0-9a-f]{16}", header["suite_hash"])
    assert {each["name"]: each["fronted"] for each in header["agents"]} == dict.fromkeys(DEMO, True)
    assert all(header["machine"][key] for key in ("system", "cpus", "python", "babelgate", "isolation"))


def test_the_published_schema_is_the_one_of_the_code(accept: bool, tmp_path: Path) -> None:
    text = json.dumps(result_schema(), indent=2) + "\n"
    if accept:
        PUBLISHED.write_text(text, encoding="utf-8")
    assert PUBLISHED.read_text(encoding="utf-8") == text, "run pytest --accept"
    assert bench(tmp_path, "--schema", "result").stdout == text


def test_every_form_of_the_report_says_the_same(smoke: Path) -> None:
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
    told = result(tmp_path / "out")
    assert len(passed(told, "files")) == 7
    assert {each["outcome"] for each in told["attempts"] if each["agent"] == "files"} == {"passed"}
    skipped = {each["task"] for each in told["attempts"] if each["outcome"] == "skipped"}
    assert skipped == {"empty", "unicode-names", "several", "large", "program"}
    (compared,) = told["comparisons"]
    assert (compared["first"], compared["better"], compared["tasks"]) == ("files", 7, 7)
    assert compared["sentence"].startswith("files is better than echo on 7 of 7 tasks, not explained by chance")


def test_a_server_of_the_protocol_is_called_as_it_is_and_any_other_is_fronted(tmp_path: Path) -> None:
    with served(tmp_path) as gateway:
        targets = (f"plain={gateway.url}/agent/echo", f"a2a={gateway.url}/a2a/echo", f"acp={gateway.url}/acp#echo")
        done = bench(tmp_path, "smoke", *targets, "--category", "text", "--out", "out")
        assert done.returncode == 0, done.stderr
    told = result(tmp_path / "out")
    about = {each["name"]: each for each in told["header"]["agents"]}
    assert {name: each["fronted"] for name, each in about.items()} == {"plain": False, "a2a": True, "acp": True}
    assert about["plain"]["url"] == targets[0].removeprefix("plain=")
    for name in about:
        assert passed(told, name) == {"says-it-back", "keeps-every-character"}, name


def test_a_python_agent_is_benched_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "manners.py").write_text("async def greet(text):\n    return f'Hello, {text}.'\n")
    (tmp_path / "tasks.yaml").write_text("tasks: [{name: greets, input: Ada, checks: [{equals: 'Hello, Ada.'}]}]")
    done = bench(tmp_path, "tasks.yaml", "manners:greet", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert passed(result(tmp_path / "out"), "greet") == {"greets"}


# Stopping and going on

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
    """A folder with an agent that never ends one of its three tasks, unless there is a file `open`."""
    (tmp_path / "gates.py").write_text(GATE)
    (tmp_path / "tasks.yaml").write_text(TASKS)
    return tmp_path


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()]


def stopped(folder: Path, number: int) -> "tuple[int, str]":
    """Of a bench that gets a signal when two of its attempts are over and the third is under way: its exit code, and
    what it wrote to stderr since."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BABELGATE_")}
    with subprocess.Popen(
        [*PROGRAM, "bench", "tasks.yaml", "gates:gate", "--out", "out"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # Whoever starts the tests in the background may have had SIGINT ignored, and that is inherited.
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
def test_ctrl_c_keeps_what_was_done_and_resume_goes_on_with_the_rest(gated: Path) -> None:
    code, errors = stopped(gated, signal.SIGINT)
    assert (code, "Traceback" in errors) == (130, False), errors
    assert "go on with: babelgate bench --resume out" in errors
    told = result(gated / "out")
    assert (told["complete"], told["stopped"], len(told["attempts"])) == (False, "it was interrupted", 2)
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
def test_a_kill_loses_nothing_that_was_done_and_leaves_no_gateway_behind(gated: Path) -> None:
    code, _ = stopped(gated, signal.SIGKILL)
    assert code == -signal.SIGKILL
    before = journal(gated / "out")
    assert [line.get("outcome") for line in before] == [None, "passed", "passed"]
    assert is_gone(before[0]["agents"][0]["url"])
    with (gated / "out" / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind": "attempt", "agent": "ga')  # as a kill in the middle of a line leaves it
    (gated / "open").touch()
    assert bench(gated, "--resume", "out").returncode == 0
    after = journal(gated / "out")
    assert (after[:3], [line["task"] for line in after[3:]]) == (before, ["stuck"])
    assert result(gated / "out")["complete"]


def is_gone(url: str) -> bool:
    """Whether nobody answers there, or whoever does ends within the bound."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=BOUND) as connection:
            return connection.recv(1) == b""
    except (ConnectionRefusedError, ConnectionResetError):
        return True


# Budgets, bounds and baselines


def test_a_budget_that_is_used_up_ends_it_and_says_so(tmp_path: Path) -> None:
    done = bench(tmp_path, "smoke", "echo", "--max-time", "0.0001", "--out", "out")
    assert done.returncode == 3, done.stderr
    told = result(tmp_path / "out")
    assert "Not complete: the budget" in done.stdout
    assert bench(tmp_path, "--resume", "out").returncode == 0
    whole = result(tmp_path / "out")
    assert passed(whole, "echo") == PASSED["echo"]
    # How many attempts had begun when the budget was looked at first is the machine's affair.
    left = len(whole["attempts"]) - len(told["attempts"])
    assert left > 0
    assert told["stopped"] == f"the budget of 0.0001 seconds is used up: {left} attempts were not made"


def test_what_has_become_worse_than_the_baseline_fails(tmp_path: Path) -> None:
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
def test_what_cannot_be_benched_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = bench(tmp_path, *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr
    assert not list(tmp_path.glob("*/journal.jsonl"))


def test_an_agent_that_is_not_there_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    with bound_socket() as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        done = bench(tmp_path, "smoke", f"far={url}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"babelgate: far={url}: ")


def test_a_bench_is_not_written_over_another(smoke: Path) -> None:
    done = bench(smoke, "smoke", "echo", "--out", "out")
    assert done.returncode == 2
    assert "out contains a bench already: continue it with --resume out" in done.stderr


def test_the_tasks_are_listed_with_what_is_checked(tmp_path: Path) -> None:
    done = bench(tmp_path, "smoke", "--list", "--task", "takes-approvals")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "  takes-approvals  dialogue, approval, interface",
        "                     output contains “write: approved”, “send: not approved”",
        "                     steps at least 3",
    ]


# The page


def test_the_report_is_a_page_in_the_folder_and_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text("tasks: [{name: one, input: a, checks: [{equals: a}]}]")
    done = bench(tmp_path, "tasks.yaml", "echo", "--out", "out", "--html", "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "echo: 1/1 (21–100 %)" in page
    refused = bench(tmp_path, "tasks.yaml", "echo", "--out", "other", "--html", "nowhere/page.html")
    assert (refused.returncode, "nowhere/page.html: there is no such folder" in refused.stderr) == (2, True)
    assert not (tmp_path / "other").exists()


def test_a_key_that_an_agent_says_again_is_written_nowhere(tmp_path: Path) -> None:
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
