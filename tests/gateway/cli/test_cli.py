"""Tests of `babelgate` as users start it: real processes, free ports and separate folders."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from babelgate.adapters import ADAPTERS, UPSTREAMS
from babelgate.gateway.cli import babelgate as program
from babelgate.gateway.cli import line, main
from babelgate.gateway.cli.conversation import ConversationError
from babelgate.gateway.cli.errors import CliError
from babelgate.gateway.cli.run import prompt_for
from babelgate.gateway.cli.target import read_targets
from tests import loopback
from tests.empty import make_database
from tests.gateway.command import BOUND, PROGRAM, ROOT, Served, babelgate, bound_socket, served
from tests.skip import missing

PROTOCOLS = ("acp", "a2a", "langgraph", "aief", "openai")
AGENT = """
async def greet(text: str):
    yield "Good day, "
    yield text
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("demo")) as running:
        yield running


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


class Here:
    """Runner of the command in this process, which needs no start. For commands that end by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Done:
        with self._monkeypatch.context() as patch:
            patch.setattr("sys.stdin", StringIO(stdin))
            for name in variables:
                patch.setenv(name, variables[name])
            with pytest.raises(SystemExit) as ended:
                main(arguments)
        code = ended.value.code
        output = self._capsys.readouterr()
        return Done(code if isinstance(code, int) else 0, output.out, output.err)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BABELGATE_") or name == "PORT":
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    return Here(monkeypatch, capsys)


def create(agent: str, text: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": text}]}], **more}


def text_of(run: dict[str, Any]) -> str:
    return "".join(part["content"] or "" for message in run["output"] for part in message["parts"])


def refused(done: "Done | subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """Assert that the command ended with this code and wrote one line with these words to stderr."""
    lines = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("babelgate: ")
    assert all(word in lines[0] for word in words), lines[0]


# serve


def test_the_demo_agents_are_served_without_a_configuration(demo: Served) -> None:
    answer = httpx.post(f"{demo.url}/acp/runs", json=create("echo"), timeout=BOUND).json()
    assert text_of(answer) == "Hello"
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    response = httpx.post(f"{demo.url}/a2a/echo", json=call, headers={"A2A-Version": "1.0"}, timeout=BOUND)
    assert response.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_the_table_lists_agents_database_and_urls(demo: Served) -> None:
    for agent in ("echo (default)", "stream", "ask", "approve", "files", "steps", "json", "tools", "slow", "fail"):
        assert agent in demo.table
    assert "sqlite:///babelgate.db" in demo.table
    for label, url in (
        ("ACP", "/acp"),
        ("A2A 1.0", "/a2a/echo"),
        ("A2A 0.3", "/a2a/echo"),
        ("AIEF", "/ap/v1"),
        ("OpenAI", "/v1"),
        ("LangGraph", ""),
        ("Agent Protocol", "/agent-protocol"),
    ):
        assert re.search(rf"^  {re.escape(label)}\s+{re.escape(demo.url + url)}$", demo.table, re.MULTILINE)


def test_the_table_shows_how_to_call_and_serve_agents(demo: Served) -> None:
    assert f'  call      babelgate run echo "Hello" --url {demo.url}\n' in demo.table
    assert "  next      serve your own agent: babelgate serve name=" in demo.table


def test_every_call_of_the_table_works_in_a_shell(demo: Served) -> None:
    calls = [line.strip() for line in demo.lines if line.strip().startswith("curl ")]
    examples = [each.curl for adapter in ADAPTERS for each in adapter.examples("", "echo")]
    assert len(calls) == sum(each.startswith("curl ") for each in examples)
    for call in calls:
        words = shlex.split(call)
        done = subprocess.run(["curl", "-sS", *words[1:]], capture_output=True, text=True, timeout=BOUND, check=True)
        assert "Hello" in done.stdout
        if done.stdout.startswith(("data: ", "id: ")):  # some protocols only stream
            assert '"type":"finish"' in done.stdout or '"type":"RUN_FINISHED"' in done.stdout
            continue
        answer = json.loads(done.stdout)
        assert "error" not in answer or answer["error"] is None


def test_targets_of_the_command_line_replace_the_demo_agents(tmp_path: Path) -> None:
    (tmp_path / "manners.py").write_text(AGENT)
    with served(tmp_path, "manners:greet", "polite=manners:greet") as running:
        agents = httpx.get(f"{running.url}/acp/agents").json()["agents"]
        assert [agent["name"] for agent in agents] == ["greet", "polite"]
        answer = httpx.post(f"{running.url}/acp/runs", json=create("greet", "Ada"), timeout=BOUND).json()
        assert text_of(answer) == "Good day, Ada"


def test_all_agents_of_another_server_keep_their_names(demo: Served, tmp_path: Path) -> None:
    other = f"{demo.url}/acp"
    with served(tmp_path, f"mirror={other}#echo", other) as running:
        agents = httpx.get(f"{running.url}/acp/agents").json()["agents"]
        names = [agent["name"] for agent in agents]
        assert names[0] == "mirror"
        assert {"echo", "ask", "slow"} <= set(names)
        answer = httpx.post(f"{running.url}/acp/runs", json=create("mirror"), timeout=BOUND).json()
        assert text_of(answer) == "Hello"


def test_broken_agents_are_listed_and_the_others_serve(tmp_path: Path) -> None:
    (tmp_path / "manners.py").write_text(AGENT)
    (tmp_path / "rude.py").write_text("raise RuntimeError('no\\nmanners')\n")
    with bound_socket() as closed:
        closed_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        targets = ("manners:greet", "lost=not_there:agent", "rude:agent", "manners:nothing", f"far={closed_url}")
        with served(tmp_path, *targets) as running:
            broken = [line for line in running.lines if re.match(r"\s+broken\s", line)]
            assert len(broken) == 4
            for name, reason in (
                ("lost", "not_there"),
                ("agent", "no manners"),
                ("nothing", "manners"),
                ("far", closed_url),
            ):
                assert any(f"{name}: " in line and reason in line for line in broken), broken
            answer = httpx.post(f"{running.url}/acp/runs", json=create("greet", "Ada"), timeout=BOUND)
            assert text_of(answer.json()) == "Good day, Ada"
            answer = httpx.post(f"{running.url}/acp/runs", json=create("far"), timeout=BOUND)
            assert answer.status_code == 502
            assert "Traceback" not in running.stop()


def test_serve_fails_if_no_agent_of_the_command_line_works(tmp_path: Path) -> None:
    with bound_socket() as closed:
        closed_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        done = babelgate(tmp_path, "serve", "--port", "0", f"far={closed_url}", "not_there:agent")
        refused(done, 1, "no agent works: far: ", closed_url, "; agent: cannot import not_there")
        assert not (tmp_path / "babelgate.db").exists()
        (tmp_path / "babelgate.yaml").write_text(f"agents: {{far: {{url: '{closed_url}'}}}}")
        with served(tmp_path) as running:
            assert httpx.get(f"{running.url}/readyz").json()["agents"]["far"].startswith("broken: ")


def test_the_file_in_the_working_directory_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "manners.py").write_text(AGENT)
    file = {"database": "sqlite:///kept.db", "agents": {"host": {"python": "manners:greet"}}}
    (tmp_path / "babelgate.yaml").write_text(json.dumps(file))
    with served(tmp_path) as running:
        assert "host (default)" in running.table
    assert (tmp_path / "kept.db").exists()
    with served(tmp_path, "manners:greet") as running:
        assert "greet (default)" in running.table
        assert "host" not in running.table


def test_a_flag_overrides_a_variable_and_a_variable_the_file(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("database: sqlite:///file.db\ndefault_agent: ask\n")
    with served(tmp_path, "--config", "other.yaml", BABELGATE_DATABASE="sqlite:///variable.db") as running:
        assert "sqlite:///variable.db" in running.table
        assert "ask (default)" in running.table
    flags = ("--database", "sqlite:///flag.db")
    with served(tmp_path, *flags, BABELGATE_CONFIG="other.yaml", BABELGATE_DATABASE="sqlite:///variable.db") as running:
        assert "sqlite:///flag.db" in running.table


def test_a_second_gateway_on_the_same_database_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        refused(babelgate(tmp_path, "serve", "--port", "0"), 1, "babelgate.db", "another gateway", "--database")
        assert httpx.get(f"{running.url}/readyz").status_code == 200


def test_a_port_in_use_is_refused_before_opening_the_database(here: Here, tmp_path: Path) -> None:
    with bound_socket() as listener:
        listener.listen()
        port = listener.getsockname()[1]
        for done in (here("serve", "--port", str(port)), here("serve", PORT=str(port))):
            refused(done, 1, f"port {port} of 127.0.0.1 is in use", "--port")
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_a_newer_release_is_refused_unchanged(tmp_path: Path) -> None:
    make_database(tmp_path / "newer.db")
    with closing(sqlite3.connect(tmp_path / "newer.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    done = babelgate(tmp_path, "serve", "--port", "0", "--database", "sqlite:///newer.db")
    refused(done, 1, "newer.db", "newer release", "9999", "Install", "--database")
    with closing(sqlite3.connect(tmp_path / "newer.db")) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)


def test_an_unusable_database_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    refused(babelgate(tmp_path, "serve", "--port", "0", "--database", "sqlite:///folder.db"), 1, "folder.db")
    (tmp_path / "text.db").write_text("this is no database, and never was one\n" * 100)
    refused(babelgate(tmp_path, "serve", "--port", "0", "--database", "sqlite:///text.db"), 1, "text.db")
    with bound_socket() as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}/gate"
        database = f"postgresql://jane:s%40cret@{place}?sslpassword=s%40cret"
        done = babelgate(tmp_path, "serve", "--port", "0", "--database", database)
        refused(done, 1, f"{place}?sslpassword=*** cannot be opened", "refused")
    assert "cret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--config", "none.yaml"), ("none.yaml", "no such file")),
        (("--port", "70000"), ("70000",)),
        (("--prot", "80"), ("--prot",)),
        (("--log-level", "loud"), ("loud",)),
        (("--database", "mysql://somewhere/else"), ("--database",)),
        (("--host", "no.such.host.invalid"), ("--host", "no.such.host.invalid")),
        (("--host", "192.0.2.1", "--allow-anonymous"), ("--host", "192.0.2.1")),
        (("what is this",), ("what is this", "neither a URL nor module:name")),
        (("ftp://example.com/agent",), ("ftp://example.com/agent",)),
        (("Big Name=mod:agent",), ("Big Name",)),
        (("http://user:secret@127.0.0.1:1#a",), ("user",)),
    ],
)
def test_wrong_usage_of_serve_is_reported_in_one_line(
    here: Here, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = here("serve", *(arguments if "--port" in arguments else ("--port", "0", *arguments)))
    refused(done, 1 if "192.0.2.1" in arguments else 2, *words)
    assert "secret" not in done.stderr


def test_a_python_file_as_target_suggests_module_and_name(here: Here, tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(AGENT)
    refused(here("serve", "--port", "0", "greeter.py"), 2, "neither a URL nor module:name", "write greeter:NAME")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_public_address_is_refused_without_keys(here: Here, host: str) -> None:
    if host == "::" and not socket.has_ipv6:
        missing("IPv6")
    refused(here("serve", "--port", "0", "--host", host), 2, host, "keys", "--allow-anonymous")


def test_a_public_address_needs_keys_or_allow_anonymous(here: Here, tmp_path: Path) -> None:
    with served(tmp_path, "--host", "0.0.0.0", "--allow-anonymous") as running:
        assert httpx.get(f"{running.url}/acp/agents").status_code == 200
    with served(tmp_path, "--host", "0.0.0.0", BABELGATE_KEYS='{"alice": "wonderland"}') as running:
        assert httpx.get(f"{running.url}/acp/agents").status_code == 401
        assert 'curl -H "Authorization: Bearer $BABELGATE_KEY" ' in running.table
        assert "wonderland" not in running.table
        url = ("--url", running.url)
        assert here("run", "echo", "Hello", *url, "--key", "wonderland").stdout == "Hello\n"
        assert here("run", "echo", "Hello", *url, BABELGATE_KEY="wonderland").stdout == "Hello\n"
        for protocol in PROTOCOLS:
            refused(here("run", "echo", "Hello", *url, "--as", protocol), 1, "API key")


def test_a_gateway_does_not_front_itself(tmp_path: Path) -> None:
    with bound_socket() as free:
        port = free.getsockname()[1]
    own_target = f"self=http://127.0.0.1:{port}/acp"
    with served(tmp_path, "--port", str(port), own_target, "babelgate.gateway.demo:echo") as running:
        (broken,) = [line for line in running.lines if re.match(r"\s+broken\s", line)]
        assert "self: " in broken


def test_a_request_is_one_line_in_the_log(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        answer = httpx.post(f"{running.url}/acp/runs?secret=1", json=create("echo"), timeout=BOUND)
        log = running.stop()
    lines = [line for line in log.splitlines() if "POST /acp/runs" in line]
    assert len(lines) == 1
    assert answer.headers["babelgate-task"] in lines[0]
    assert "secret" not in log
    with served(tmp_path, "--log-level", "warning") as running:
        httpx.post(f"{running.url}/acp/runs", json=create("echo"), timeout=BOUND)
        assert running.stop() == ""


# Stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_stops_at_once(tmp_path: Path, number: int) -> None:
    with served(tmp_path) as running, httpx.Client(base_url=running.url) as client:
        client.get("/readyz")
        began = time.monotonic()
        assert "Traceback" not in running.stop(number)
        assert time.monotonic() - began < 3
        assert running.process.returncode == 0


async def test_responses_of_unfinished_runs_are_cut_at_a_stop(tmp_path: Path) -> None:
    """Stop while the agent is silent for a minute. A response with a proper end would look complete to its client."""
    with served(tmp_path) as running:
        async with loopback.client(base_url=running.url, timeout=BOUND) as http:
            message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "60"}]}
            call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            headers = {"A2A-Version": "1.0"}
            async with (
                http.stream("POST", "/acp/runs", json=create("slow", "60", mode="stream")) as acp,
                http.stream(
                    "POST", "/a2a/slow", json={**call, "method": "SendStreamingMessage"}, headers=headers
                ) as a2a,
            ):
                streams = [acp.aiter_lines(), a2a.aiter_lines()]
                for lines in streams:
                    async for line in lines:
                        if "Waiting." in line:
                            break
                waits = [
                    asyncio.ensure_future(http.post("/a2a/slow", json=call, headers=headers)),
                    asyncio.ensure_future(http.post("/acp/runs", json=create("slow", "60"))),
                ]
                async with asyncio.timeout(BOUND):
                    while await _tasks(http) < 4:
                        pass  # the gateway has not received the waits yet
                running.process.send_signal(signal.SIGTERM)
                for lines in streams:
                    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
                        async for _ in lines:
                            pass
                for each in await asyncio.gather(*waits, return_exceptions=True):
                    assert isinstance(each, httpx.RemoteProtocolError), each
        log = await asyncio.to_thread(running.end)
    assert running.process.returncode == 0
    assert "Traceback" not in log


async def _tasks(http: httpx.AsyncClient) -> int:
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    answer = await http.post("/a2a/slow", json=call, headers={"A2A-Version": "1.0"})
    return answer.json()["result"]["totalSize"]


STUBBORN = """
import asyncio, threading

def block(text: str) -> str:
    threading.Event().wait()
    return "never"

async def shrug(text: str):
    yield "Waiting."
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""


def test_agents_that_ignore_cancellation_do_not_delay_the_stop(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    with served(tmp_path, "stubborn:block", "stubborn:shrug", BABELGATE_LIMITS__CANCEL_GRACE="0.5") as running:
        for agent in ("block", "shrug"):
            answer = httpx.post(f"{running.url}/acp/runs", json=create(agent, mode="async"), timeout=BOUND).json()
            with httpx.stream(
                "GET", f"{running.url}/acp/runs/{answer['run_id']}/events", headers={"Accept": "text/event-stream"}
            ) as events:
                assert any("run.in-progress" in line for line in events.iter_lines())
        assert "Traceback" not in running.stop()
        assert running.process.returncode == 0


# run


@pytest.mark.parametrize(
    "protocol", [each.protocol for each in UPSTREAMS if "extension" in each.options and each.own_path is not None]
)
def test_the_extension_shows_fields_that_a_protocol_lacks(here: Here, demo: Served, protocol: str) -> None:
    plain = here("run", "tools", "two words", "--as", protocol, "--url", demo.url)
    whole = here("run", "tools", "two words", "--as", protocol, "--whole", "--url", demo.url)
    assert plain.stdout == whole.stdout
    assert '"kind":"tool_ended"' in whole.stderr
    assert '"kind":"tool_ended"' not in plain.stderr


def test_a_protocol_without_the_extension_names_those_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "UPSTREAMS", [replace(each, options={}) for each in UPSTREAMS if each.protocol == "acp"])
    with pytest.raises(ConversationError, match="does not have the Babelgate extension"):
        line.ClientConversation("acp", "http://127.0.0.1:1", "echo", None, whole=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_agent_is_called_and_its_answer_goes_to_stdout(here: Here, demo: Served, protocol: str) -> None:
    done = here("run", "stream", "one two three", "--as", protocol, "--url", demo.url)
    assert (done.stdout, done.stderr, done.returncode) == ("one two three\n", "", 0)


def _interruptible() -> None:
    """Restore the default handler of SIGINT, which a shell ignores for background processes and their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_tokens_are_printed_as_they_arrive(demo: Served, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "run", "slow", "60", "--as", "a2a", "--url", demo.url],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        preexec_fn=_interruptible,
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.read(8) == b"Waiting.", "long before the agent is done"
            process.send_signal(signal.SIGINT)
            assert process.wait(BOUND) == 130
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("agent", "typed", "answer"),
    [
        ("ask", "Ada\n", "Hello, Ada.\n"),
        ("approve", "y\nno\n", "write: approved\nsend: not approved\n"),
        ("approve", 'maybe\nn\n{"approved": true}\n', "write: not approved\nsend: approved\n"),
    ],
)
def test_questions_are_printed_on_the_terminal(
    here: Here, demo: Served, protocol: str, agent: str, typed: str, answer: str
) -> None:
    done = here("run", agent, "Hi", "--as", protocol, "--url", demo.url, stdin=typed)
    assert (done.stdout, done.returncode) == (answer, 0), done.stderr
    assert ("What is your name?" if agent == "ask" else "May I write the file?") in done.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_unanswered_question_fails_the_command(here: Here, demo: Served, protocol: str) -> None:
    done = here("run", "ask", "Hi", "--as", protocol, "--url", demo.url)
    assert done.returncode == 1
    assert "stdin has no answer" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_reason_of_a_failure_goes_to_stderr(here: Here, demo: Served, protocol: str) -> None:
    done = here("run", "fail", "out of luck", "--as", protocol, "--url", demo.url)
    assert done.stdout == "Failing.\n"
    refused(done, 1, "out of luck")
    refused(here("run", "nobody", "Hi", "--as", protocol, "--url", demo.url), 1, "nobody")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_missing_gateway_is_reported_in_one_line(here: Here, protocol: str) -> None:
    with bound_socket() as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        refused(here("run", "echo", "Hi", "--as", protocol, "--url", url), 1, "babelgate serve", f"answers at {url}: ")
    refused(here("run", "echo", "Hi", "--as", protocol, "--url", "localhost:8000"), 2, "--url")


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        (None, "12", "12"),
        ({"type": "string"}, "12", "12"),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "integer"}, "12", 12),
        ({"type": "object", "properties": {"name": {"type": "string"}}}, "Ada", {"name": "Ada"}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, "3", {"n": 3}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": 4}', {"n": 4}),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, '{"a": 1, "b": 2}', {"a": 1, "b": 2}),
    ],
)
def test_a_typed_line_is_converted_to_the_questions_type(schema: Any, typed: str, value: object) -> None:
    assert prompt_for(schema)[1](typed) == value


# validate


def test_a_good_file_is_valid(here: Here, tmp_path: Path) -> None:
    (tmp_path / "babelgate.yaml").write_text("agents: {echo: {python: 'babelgate.gateway.demo:echo'}}\n")
    done = here("validate")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "babelgate.yaml: valid; agents: echo\n"


def test_a_doubtful_value_is_only_a_warning(here: Here, tmp_path: Path) -> None:
    (tmp_path / "babelgate.yaml").write_text("keys: {alice: s3cret}\nretention: {threads: 30}\n")
    done = here("validate")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 3)
    assert all(line.startswith("babelgate: warning: babelgate.yaml: ") for line in done.stderr.splitlines())
    assert "s3cret" not in done.stderr


def test_every_mistake_in_a_file_is_reported_in_one_line(here: Here, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        "prot: 80\nport: many\nlimits: {body: huge}\nkeys: {alice: hunter2hunter2, bob: hunter2hunter2}\n"
        "agents: {Echo: {python: 'a:b'}, both: {python: 'a:b', url: 'http://c'}}\n"
    )
    done = here("validate", "bad.yaml")
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert done.stdout == ""
    assert all(line.startswith("babelgate: bad.yaml: ") for line in lines), lines
    for key in ("prot", "port", "limits.body", "keys", "agents.Echo", "agents.both"):
        assert sum(line.startswith(f"babelgate: bad.yaml: {key}: ") for line in lines) == 1, (key, lines)
    assert "hunter2" not in done.stderr
    served_too = here("serve", "--config", "bad.yaml")
    assert served_too.stderr == done.stderr
    assert served_too.returncode == 2


def test_a_missing_or_invalid_file_is_reported_in_one_line(here: Here, tmp_path: Path) -> None:
    refused(here("validate"), 2, "babelgate.yaml", "no such file")
    (tmp_path / "broken.yaml").write_text("agents: {echo: [\n")
    refused(here("validate", "broken.yaml"), 2, "broken.yaml")


def test_a_variable_that_is_not_set_is_named(here: Here, tmp_path: Path) -> None:
    (tmp_path / "babelgate.yaml").write_text('keys: {alice: "${ALICE_KEY}"}\n')
    refused(here("validate"), 2, "keys.alice", "ALICE_KEY")
    assert here("validate", ALICE_KEY="wonderland").returncode == 0


def test_validate_finds_its_file_as_serve_does(here: Here, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("agents: {echo: {python: 'babelgate.gateway.demo:echo'}}\n")
    output = "other.yaml: valid; agents: echo\n"
    assert here("validate", "--config", "other.yaml").stdout == output
    assert here("validate", BABELGATE_CONFIG="other.yaml").stdout == output
    refused(here("validate", BABELGATE_CONFIG="missing.yaml"), 2, "missing.yaml", "no such file")
    assert here("validate", "other.yaml", BABELGATE_CONFIG="missing.yaml").stdout == output
    assert "give FILE or --config" in here("validate", "other.yaml", "--config", "other.yaml").stderr


def test_the_schema_is_printed(here: Here) -> None:
    done = here("validate", "--schema")
    assert json.loads(done.stdout)["title"] == "babelgate.yaml"


# Help and targets


def test_help_lists_every_command_with_examples(here: Here) -> None:
    done = here("--help")
    assert done.returncode == 0
    assert "babelgate serve weather=http://127.0.0.1:8333" in done.stdout
    commands = re.findall(r"^│ ([a-z][a-z-]*) ", done.stdout, re.MULTILINE)
    expected = "acp add bench check console export import keys record replay run serve support-bundle validate webhooks"
    assert " ".join(sorted(commands)) == expected
    for command in commands:
        assert "Examples:" in here(command, "--help").stdout
    assert re.fullmatch(r"babelgate \d+\.\d+\.\d+\n", here("--version").stdout)


@pytest.mark.parametrize(
    ("text", "agents", "servers"),
    [
        ("http://127.0.0.1:9000/", {}, ("http://127.0.0.1:9000",)),
        ("http://h/a?b=c", {}, ("http://h/a?b=c",)),
        ("w=http://127.0.0.1:9000", {"w": {"url": "http://127.0.0.1:9000"}}, ()),
        ("w=http://h#Agent_1", {"w": {"url": "http://h", "agent": "Agent_1"}}, ()),
        ("http://h#Planner", {"planner": {"url": "http://h", "agent": "Planner"}}, ()),
        ("mod.sub:agent", {"agent": {"python": "mod.sub:agent"}}, ()),
        ("mod:Made.run", {"run": {"python": "mod:Made.run"}}, ()),
        ("mod:_Private", {"private": {"python": "mod:_Private"}}, ()),
        ("my-agent=mod:agent", {"my-agent": {"python": "mod:agent"}}, ()),
    ],
)
def test_a_target_is_a_url_or_module_and_name(text: str, agents: Any, servers: tuple[str, ...]) -> None:
    read = read_targets([text])
    assert (read.agents, read.servers) == (agents, servers)


@pytest.mark.parametrize("texts", [("a:x", "b:x"), ("=a:x",), ("A=a:x",), ("x",), ("",), ("a:",), ("http://h#Ä",)])
def test_targets_that_cannot_be_served_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(CliError):
        read_targets(texts)


def test_every_option_and_its_variable_are_in_the_documentation() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    section = page.partition("## The command line\n")[2].partition("\n## ")[0]
    for name, command in program.commands.items():
        assert f"| `{name}" in section
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert any(f"`{option}" in section for option in parameter.opts), (name, parameter.opts)
            if isinstance(parameter.envvar, str):
                assert f"`{parameter.envvar}`" in section
    for option in ("--help", "--version"):
        assert f"`{option}`" in section


def test_the_documentation_of_options_has_the_words_of_the_help() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    section = _plain(page.partition("## The command line\n")[2].partition("\n## ")[0])
    for name, command in program.commands.items():
        assert _plain(command.get_short_help_str(200)).rstrip(".") in section, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                text = _plain(re.sub(r" *\[default: .*\]", "", parameter.help or ""))
                assert all(words in section for words in re.split(r"[.;:(),] ?", text)), (name, parameter.opts)


def _plain(text: str) -> str:
    """Return a text without the marks of Markdown and without quotes."""
    return re.sub(r"[`']", "", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text))
