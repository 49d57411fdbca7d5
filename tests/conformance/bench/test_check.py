"""Checks of sample outputs. Foreign code and patterns run in a separate process."""

import json
import os
import select
import socket
import sys
import textwrap
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from babelgate.conformance.bench.check import CheckVerdict, Evidence, judge, title_of
from babelgate.conformance.bench.sandbox import Matcher, SandboxTimeout, run_program, safe_path
from babelgate.conformance.bench.task import Check

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matcher() -> AsyncGenerator[Matcher]:
    async with Matcher(seconds=2) as matcher:
        yield matcher


def evidence(*outputs: str, error: str | None = None, **artifacts: bytes) -> Evidence:
    files = {name.replace("__", "/").replace("_", "."): data for name, data in artifacts.items()}
    return Evidence(
        task="t",
        input="in",
        outputs=outputs,
        steps=[{"output": each} for each in outputs],
        error=error,
        artifacts=files,
        seed=7,
    )


async def judged(
    matcher: Matcher, check: Mapping[str, Any], found: Evidence, resources: Mapping[str, bytes] | None = None
) -> CheckVerdict:
    return await judge(Check.model_validate(check), found, resources or {}, matcher)


@pytest.mark.parametrize(
    ("check", "outputs"),
    [
        ({"contains": "Ada"}, ["Hello, Ada."]),
        ({"contains": ["ada", "HELLO"], "ignore_case": True}, ["Hello, Ada."]),
        ({"excludes": ["Bob"]}, ["Hello, Ada."]),
        ({"equals": "42"}, [" 42\n"]),
        ({"regex": r"^\d+$"}, ["the answer\n42"]),
        ({"output": "all", "contains": ["one", "two"]}, ["one", "two"]),
        ({"output": 1, "equals": "one"}, ["one", "two"]),
        ({"json_equals": {"a": [1, None]}}, ['{"a": [1.0, null]}']),
        ({"json_equals": None}, ["null"]),
        ({"json_schema": {"type": "array", "items": {"type": "integer"}}}, ["[1, 2]"]),
        ({"steps": {"at_least": 2, "at_most": 2}}, ["one", "two"]),
    ],
)
async def test_met_check_passes(matcher: Matcher, check: dict[str, Any], outputs: list[str]) -> None:
    found = await judged(matcher, check, evidence(*outputs))
    assert (found.passed, found.why) == (True, "")


@pytest.mark.parametrize(
    ("check", "outputs", "why"),
    [
        ({"contains": ["Ada", "Bob"]}, ["Hello, Ada."], "“Bob” is not in “Hello, Ada.”"),
        ({"contains": "ada"}, ["Hello, Ada."], "“ada” is not in “Hello, Ada.”"),
        ({"excludes": "Ada"}, ["Hello, Ada."], "“Ada” is in “Hello, Ada.”"),
        ({"equals": "42"}, ["43"], "it is “43”"),
        ({"equals": "42"}, [""], "it is empty"),
        ({"regex": r"^\d+$"}, ["42 or so"], "it is “42 or so”"),
        ({"output": 3, "equals": "x"}, ["x"], "there was no step 3"),
        ({"equals": "x"}, [], "there was no step"),
        ({"json_equals": True}, ["1"], "it is “1”"),
        ({"json_schema": {"required": ["a"]}}, ['{"b": 1}'], "$: 'a' is a required property"),
        ({"json_schema": {}}, ["none"], "it is no JSON: “none”"),
        ({"steps": {"at_least": 2}}, ["one"], "it took 1"),
    ],
)
async def test_failed_check_reports_the_reason(
    matcher: Matcher, check: dict[str, Any], outputs: list[str], why: str
) -> None:
    found = await judged(matcher, check, evidence(*outputs))
    assert (found.passed, found.why) == (False, why)


async def test_error_check_compares_the_message(matcher: Matcher) -> None:
    check = {"error": True, "contains": "paper"}
    assert (await judged(matcher, check, evidence("x", error="Out of paper"))).passed
    assert not (await judged(matcher, check, evidence("x", error="Out of ink"))).passed
    assert (await judged(matcher, check, evidence("x"))).why == "the agent did not fail"
    assert (await judged(matcher, {"error": True}, evidence("x", error="any"))).passed


async def test_one_matching_artifact_suffices_unless_every_is_set(matcher: Matcher) -> None:
    found = evidence("", a_csv=b"1", data__b_csv=b"2")
    assert (await judged(matcher, {"artifact": "*.csv", "equals": "2"}, found)).passed
    every = await judged(matcher, {"artifact": "*.csv", "equals": "2", "every": True}, found)
    assert (every.passed, every.why) == (False, "a.csv: it is “1”")
    assert (await judged(matcher, {"artifact": "data/*.csv", "equals": "2"}, found)).passed
    missing = await judged(matcher, {"artifact": "c.csv", "equals": "2"}, found)
    assert missing.why == "there is no such file; there are a.csv, data/b.csv"
    same = {"artifact": "a.csv", "equals_file": "want"}
    assert (await judged(matcher, same, found, {"want": b"1"})).passed
    assert "1 bytes" in (await judged(matcher, same, found, {"want": b"1\n"})).why


async def test_endless_pattern_is_stopped_and_the_next_one_runs(matcher: Matcher) -> None:
    slow = await judged(matcher, {"regex": r"^(a+)+$"}, evidence("a" * 60 + "b"))
    assert (slow.passed, slow.why) == (False, "it took more than 2 seconds")
    assert (await judged(matcher, {"regex": "^a"}, evidence("ab"))).passed
    schema = {"json_schema": {"pattern": r"^(a+)+$"}}
    assert "more than 2 seconds" in (await judged(matcher, schema, evidence(json.dumps("a" * 60 + "b")))).why


async def test_check_with_a_remote_schema_is_broken(matcher: Matcher) -> None:
    found = await judged(matcher, {"json_schema": {"$ref": "http://127.0.0.1:1/x.json"}}, evidence("1"))
    assert (found.passed, found.broken) == (False, True)


# Python


async def python(matcher: Matcher, body: str, found: Evidence | None = None, **more: Any) -> CheckVerdict:
    code = "def check(run):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return await judged(matcher, {"code": code, **more}, found or evidence("one", "two", report_txt=b"All is well."))


async def test_python_check_receives_the_whole_run(matcher: Matcher) -> None:
    found = await python(
        matcher,
        """
        assert (run.task, run.input, run.output, run.outputs, run.error) == ("t", "in", "two", ["one", "two"], None)
        assert len(run.steps) == 2 and run.seed == 7
        assert run.artifacts["report.txt"].read_text() == "All is well."
        """,
    )
    assert found.passed, found.why


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("assert run.output == 'x', 'it should be x'", "AssertionError: it should be x (line 2)"),
        ("return 'not good enough'", "not good enough"),
        ("return False", "check(run) returned False"),
        ("return run.artifacts['gone.txt']", "KeyError: 'gone.txt' (line 2)"),
        ("print('{\"passed\": true}'); return 'no'", "no"),
        ("import os; os._exit(0)", "it ended without a verdict"),
        ("raise SystemExit(0)", "SystemExit: 0 (line 2)"),
    ],
)
async def test_failed_python_check_reports_its_message(matcher: Matcher, body: str, why: str) -> None:
    found = await python(matcher, body)
    assert (found.passed, found.why, found.broken) == (False, why, False)


async def test_python_check_that_cannot_run_is_broken(matcher: Matcher) -> None:
    found = await judged(matcher, {"code": "import nothing_of_that_name"}, evidence("x"))
    assert found.broken and "nothing_of_that_name" in found.why
    assert (await judged(matcher, {"code": "x = 1"}, evidence("x"))).why == "it defines no function check(run)"


async def test_python_check_has_limits(matcher: Matcher) -> None:
    slow = await python(matcher, "import time; time.sleep(600)", timeout=1)
    assert slow.why == "it did not end within 1 seconds"
    busy = await python(matcher, "while True: pass", timeout=1)
    assert busy.why == "it did not end within 1 seconds"
    large = await python(matcher, "x = bytearray(10 ** 9)", memory=256)
    assert large.why == "it took more memory than it may"


async def test_child_processes_of_a_check_are_killed(matcher: Matcher) -> None:
    body = """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return str(child.pid)
        """
    pid = int((await python(matcher, body)).why)
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([watched], [], [], 20)[0], "the child process still runs"
    finally:
        os.close(watched)


NETWORK = """
    import socket, urllib.request
    for attempt in (lambda: socket.create_connection(("127.0.0.1", {port})),
                    lambda: urllib.request.urlopen("http://127.0.0.1:{port}/"),
                    lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)):
        try:
            attempt()
        except OSError as error:
            assert isinstance(getattr(error, "reason", error), PermissionError), repr(error)
        else:
            return "there is a network"
"""


async def test_python_check_and_its_children_have_no_network(matcher: Matcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        body = NETWORK.format(port=listener.getsockname()[1])
        found = await python(matcher, body)
        assert found.passed, found.why
        if matcher.isolation == "kernel":
            source = f"def try_it():\n{body}\nprint(try_it())"
            printed = await run_program(["x.py"], {"x.py": source.encode()}, seconds=20, memory=2**30)
            assert printed.stdout == "None\n", printed


async def test_kernel_isolates_checks_on_linux(matcher: Matcher) -> None:
    if sys.platform != "linux":
        pytest.skip("the kernel's filter is Linux's")
    assert matcher.isolation == "kernel"


async def test_check_does_not_inherit_environment_secrets(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    found = await python(matcher, "import os; assert 'OPENAI_API_KEY' not in os.environ; assert len(os.environ) < 10")
    assert found.passed, found.why


# Programs


async def test_program_of_the_agent_runs_with_files_of_the_check(matcher: Matcher) -> None:
    produced = evidence("", add_py=b"def add(a, b):\n    return a + b\n")
    test = b"from add import add\nimport sys\nprint(add(int(sys.argv[1]), 2))\n"
    check = {"program": ["test.py", "40"], "files": "hidden/test.py", "equals": "42"}
    assert (await judged(matcher, check, produced, {"hidden/test.py": test})).passed
    wrong = await judged(matcher, check, evidence("", add_py=b"add = None"), {"hidden/test.py": test})
    assert wrong.why == "it ended with exit code 1: TypeError: 'NoneType' object is not callable"
    missing = await judged(matcher, {"program": "main.py"}, produced)
    assert missing.why == "there is no file main.py"


async def test_program_can_be_a_module(matcher: Matcher) -> None:
    found = await judged(
        matcher, {"program": ["-m", "json.tool", "a.json"], "contains": "1"}, evidence("", a_json=b"[1]")
    )
    assert found.passed, found.why


async def test_program_has_limits() -> None:
    with pytest.raises(SandboxTimeout, match="within 1 seconds"):
        await run_program(["x.py"], {"x.py": b"while True: pass"}, seconds=1, memory=2**30)
    printed = await run_program(["x.py"], {"x.py": b"print('x' * 10**7)"}, seconds=20, memory=2**30)
    assert (printed.code, len(printed.stdout)) == (0, 2**20)


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("a/b.txt", "a/b.txt"),
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("a\\..\\b", "a/b"),
        ("C:/x", "x"),
        ("..", None),
        ("", None),
        ("a\0b/c", "c"),
    ],
)
async def test_safe_path_stays_in_its_folder(path: str, safe: str | None) -> None:
    assert safe_path(path) == safe


@pytest.mark.parametrize(
    ("check", "title"),
    [
        ({"contains": "a"}, "output contains “a”"),
        ({"output": "all", "equals": "a\nb"}, "output (all) equals “a b”"),
        ({"artifact": "*.txt", "every": True, "regex": "x"}, "every *.txt matches /x/"),
        ({"error": True}, "the agent fails"),
        ({"program": "a.py"}, "python a.py ends well"),
        ({"steps": {"at_least": 1, "at_most": 2}}, "steps at least 1 and at most 2"),
        ({"python": "judge.py", "name": "good"}, "good"),
    ],
)
async def test_title_of_a_check_names_its_subject(check: dict[str, Any], title: str) -> None:
    assert title_of(Check.model_validate(check)) == title
