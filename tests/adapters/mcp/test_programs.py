"""Tools of MCP servers that the gateway starts as programs: scripted servers of both eras, called over A2A."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.adapters.mcp.client import process_connection
from babelgate.gateway.agents.processes import programs
from tests.gateway.talk import within
from tests.pairs.a2a import JsonRpc10
from tests.pairs.caller import TaskView
from tests.pairs.mcp import Mcp
from tests.pairs.openai import Chat
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER: Final = Path(__file__).with_name("scripted_server.py")
ERAS: Final = ("2025-11-25", "2026-07-28")
TOOLS: Final = ("echo", "ask", "hang", "deaf", "leave", "chatter", "garbage", "flood", "together", "betray", "long")
SECRET: Final = "s3cret-of-the-service"


def settings_of(folder: Path, era: str, *tools: str, **more: Any) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", str(SERVER), era]
    common = {"command": command, "cwd": str(folder), "env": {"SERVICE_KEY": SECRET}, **more}
    return {tool: {"tool": tool, **common} for tool in tools}


@dataclass(frozen=True)
class Site:
    front: Running
    folder: Path
    era: str

    def caller(self, tool: str) -> JsonRpc10:
        return JsonRpc10(self.front.http, tool)

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ERAS)
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    folder = tmp_path_factory.mktemp("mcp")
    agents = settings_of(folder, request.param, *TOOLS)
    agents["flood"]["timeout"] = {"total": 2}
    async with running(folder, configured=agents) as front:
        yield Site(front, folder, request.param)


async def file_in(folder: Path, name: str) -> None:
    """Wait until the server has written a file."""
    while not await asyncio.to_thread((folder / name).exists):
        pass


async def test_a_tool_is_an_agent_in_each_protocol(site: Site) -> None:
    view = TaskView("completed", text="hello")
    assert await site.caller("echo").send("hello") == view
    assert (await Chat(site.front.http, "echo").send("hello")).text == "hello"
    assert (await Mcp(site.front.http, "echo").send("hello")).text == "hello"


async def test_sampling_is_not_offered(site: Site) -> None:
    await site.caller("echo").send("hello")
    capabilities = json.loads((site.folder / "capabilities").read_text())
    assert capabilities.pop("elicitation") == {"form": {}, "url": {}}
    assert capabilities.keys() <= {"extensions"}


async def test_calls_of_several_tools_share_a_process(site: Site) -> None:
    await site.caller("echo").send("hello")
    pid = site.pid
    await site.caller("chatter").send("hello")
    assert site.pid == pid


async def test_simultaneous_calls_receive_separate_results(site: Site) -> None:
    async with asyncio.TaskGroup() as group:
        sent = [group.create_task(site.caller("together").send(text)) for text in ("one", "two")]
    assert [each.result().text for each in sent] == ["one", "two"]


async def test_lines_that_are_no_messages_are_ignored(site: Site) -> None:
    assert (await site.caller("chatter").send("hello")).text == "done"


FAULTS: Final = {
    "leave": "The agent's process ended with status 7 during the run.",
    "garbage": "The agent's process writes lines to stdout that are no messages of MCP.",
    "flood": "",
    "betray": "The key is ***",
}


@pytest.mark.parametrize("tool", FAULTS)
async def test_a_misbehaving_tool_fails_its_run_alone(site: Site, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_connection, "_PONG", 0.5)
    failed = await site.caller(tool).send("go")
    assert failed.state == "failed"
    assert failed.fault.startswith(FAULTS[tool]) and SECRET not in failed.fault
    assert (await site.caller("echo").send("hello")).text == "hello"


async def test_a_cancel_reaches_the_tool(site: Site) -> None:
    (site.folder / "cancelled").unlink(missing_ok=True)
    caller = site.caller("hang")
    async with caller.stream("go") as feed:
        await feed.until(lambda view: bool(view.asides))
        await caller.cancel(feed.ids.task)
        assert (await feed.end()).state == "cancelled"
    await within(file_in(site.folder, "cancelled"))


async def test_a_process_that_ignores_a_cancel_is_replaced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_connection, "_PONG", 0.5)
    caller = site.caller("deaf")
    async with caller.stream("go") as feed:
        await feed.until(lambda view: bool(view.asides))
        await caller.cancel(feed.ids.task)
    pid = site.pid
    assert (await site.caller("echo").send("hello")).text == "hello"
    assert site.pid != pid


async def test_a_kill_in_the_middle_of_a_run_fails_it(site: Site) -> None:
    async with site.caller("hang").stream("go") as feed:
        await feed.until(lambda view: bool(view.asides))
        os.kill(site.pid, signal.SIGKILL)
        view = await feed.end()
    assert (view.state, view.fault) == ("failed", "The agent's process was killed by SIGKILL during the run.")
    assert (await site.caller("echo").send("hello")).text == "hello"


async def test_a_line_that_is_too_long_fails_the_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    os.kill(site.pid, signal.SIGKILL)  # the next process has the smaller limit
    monkeypatch.setattr(programs, "LINE_LIMIT", 2**20)
    view = await site.caller("long").send("go")
    while "was killed" in view.fault:
        view = await site.caller("long").send("go")
    assert (view.state, view.fault) == ("failed", f"The agent sent a message of more than {2**20} bytes")


async def test_a_task_is_polled(tmp_path: Path) -> None:
    async with running(tmp_path, configured=settings_of(tmp_path, "2026-07-28", "job")) as front:
        assert await JsonRpc10(front.http, "job").send("go") == TaskView("completed", text="done")


async def test_an_elicitation_is_a_question_in_each_protocol(site: Site) -> None:
    for kind in (JsonRpc10, Mcp):
        caller = kind(site.front.http, "ask")
        paused = await caller.send("hello")
        assert paused.state == "input_required", paused
        done = await caller.answer(paused, "Ada")
        assert (done.state, done.text) == ("completed", "Hello, Ada.")


async def test_several_open_questions_receive_separate_answers(site: Site) -> None:
    first, second = site.caller("ask"), site.caller("ask")
    paused = [await first.send("one"), await second.send("two")]
    answered = [await second.answer(paused[1], "Bob"), await first.answer(paused[0], "Ada")]
    assert [each.text for each in answered] == ["Hello, Bob.", "Hello, Ada."]


@pytest.mark.parametrize("era", ERAS)
async def test_a_restart_of_the_gateway_with_an_open_question(tmp_path: Path, era: str) -> None:
    agents = settings_of(tmp_path, era, "ask")
    async with running(tmp_path, configured=agents) as front:
        caller = JsonRpc10(front.http, "ask")
        paused = await caller.send("hello")
        pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    async with running(tmp_path, configured=agents) as front:
        caller.http = front.http
        done = await caller.answer(paused, "Ada")
    if era == "2026-07-28":
        assert (done.state, done.text) == ("completed", "Hello, Ada.")
    else:
        words = "The call that asked this question waits no longer for its answer"
        assert (done.state, done.fault) == ("failed", words)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; sys.exit(3)", "The agent's process ended with status 3 before it was usable."),
        ("import sys; sys.stdin.read()", "The agent's process has not answered"),
    ],
    ids=["ends", "silent"],
)
async def test_a_process_that_does_not_start_fails_the_run(tmp_path: Path, program: str, words: str) -> None:
    command = [sys.executable, "-I", "-S", "-c", program]
    agents = {"tool": {"tool": "t", "command": command, "start_timeout": 3}, **settings_of(tmp_path, ERAS[1], "echo")}
    async with running(tmp_path, configured=agents) as front:
        assert (await JsonRpc10(front.http, "echo").send("hello")).text == "hello"
        view = await JsonRpc10(front.http, "tool").send("hello")
    assert view.state == "failed"
    assert view.fault.startswith((words, "The process of agent tool has ended early"))


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_ignores_the_first_request_is_usable(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_connection, "_PROBE", 0.1)
    agents = settings_of(tmp_path, era, "echo")
    agents["echo"]["command"].append("1")
    async with running(tmp_path, configured=agents) as front:
        assert (await JsonRpc10(front.http, "echo").send("hello")).text == "hello"


async def test_an_unknown_tool_fails_the_run(tmp_path: Path) -> None:
    agents = settings_of(tmp_path, ERAS[1], "missing")
    async with running(tmp_path, configured=agents) as front:
        view = await JsonRpc10(front.http, "missing").send("hello")
    assert (view.state, view.fault) == ("failed", "The agent's server has no tool missing")
