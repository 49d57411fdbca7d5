"""Tools of the unmodified official MCP SDKs behind the gateway, over HTTP and stdio, in both eras of the protocol."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from tests.gateway.command import ROOT
from tests.gateway.talk import within
from tests.interop.driver import PROGRAMS, OfficialServer, start_server
from tests.interop.peers import peer_python
from tests.pairs.a2a import JsonRpc10
from tests.pairs.caller import Data, TaskView
from tests.pairs.mcp import Mcp
from tests.pairs.openai import Chat
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
COMMON: Final = ("echo", "fail", "steps", "slow", "form", "count", "picture")
TOOLS: Final = {"mcp": (*COMMON, "ask"), "mcp-typescript": COMMON}
COMMANDS: Final = {"mcp": ("mcp_stdio_server.py",), "mcp-typescript": ("mcp_typescript_server.py", "stdio")}
SITES: Final = [
    ("mcp", "http", "2025-11-25"),
    ("mcp", "http", "2026-07-28"),
    ("mcp", "stdio", "2025-11-25"),
    ("mcp", "stdio", "2026-07-28"),
    ("mcp-typescript", "http", "2025-11-25"),
    ("mcp-typescript", "stdio", "2025-11-25"),
]
"""SDK, transport and version."""


@dataclass(frozen=True)
class Site:
    front: Running
    server: OfficialServer | None
    """Server behind a URL; None for one that the gateway starts."""
    folder: Path
    sdk: str
    version: str

    def caller(self, tool: str) -> JsonRpc10:
        return JsonRpc10(self.front.http, tool)


async def note_of(folder: Path, event: str) -> None:
    """Wait until a tool has noted an event in its folder."""
    while not await asyncio.to_thread((folder / event).exists):
        pass


def command_of(sdk: str) -> list[str]:
    program, *arguments = COMMANDS[sdk]
    return [str(peer_python(sdk)), str(PROGRAMS / program), *arguments]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SITES, ids=["-".join(each) for each in SITES])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    sdk, transport, version = request.param
    folder = tmp_path_factory.mktemp("mcp")
    options = {"options": {"version": version}}
    async with AsyncExitStack() as stack:
        server = None
        if transport == "stdio":
            place: dict[str, Any] = {"command": command_of(sdk), "cwd": str(folder)}
        else:
            server = await stack.enter_async_context(start_server(sdk))
            place = {"url": f"{server.url}/mcp"}
        tools = TOOLS[sdk] if server is not None else (*TOOLS[sdk], "crash")
        agents = {name: {"tool": name, **place, **options} for name in tools}
        front = await stack.enter_async_context(running(folder, configured=agents))
        assert [each.broken for each in front.hub.registry.all()] == [None] * len(agents)
        yield Site(front, server, folder, sdk, version)


async def test_a_tool_is_an_agent(site: Site) -> None:
    assert await site.caller("echo").send("hello") == TaskView("completed", text="hello")


async def test_structured_content_is_the_output(site: Site) -> None:
    view = await site.caller("count").send("two words")
    assert (view.text, view.data) == ("", ({"words": 2},))


async def test_the_error_of_a_tool_is_the_fault(site: Site) -> None:
    view = await site.caller("fail").send("on purpose")
    assert view.state == "failed"
    assert view.fault.startswith("Error executing tool fail")


async def test_images_and_resources_become_files(site: Site) -> None:
    view = await Mcp(site.front.http, "picture").send("Look.")
    assert view.text == "Look."
    assert sorted(view.files.values()) == [b"Noted.", b"\x89PNG"]


async def test_progress_arrives_before_the_answer(site: Site) -> None:
    view = await site.caller("steps").run_to_end("done")
    assert (view.text, view.asides) == ("done", ("1/3", "2/3", "3/3"))


async def test_an_elicitation_is_a_question(site: Site) -> None:
    tool = "form" if site.version == "2025-11-25" else "ask"
    caller = site.caller(tool)
    paused = await caller.send("Hello")
    assert paused.state == "input_required"
    assert "What is your name?" in (paused.questions[0].text if paused.questions else paused.text)
    done = await caller.answer(paused, "Ada")
    assert (done.state, done.text) == ("completed", "Hello Ada" if tool == "form" else "Hello")


async def test_a_cancel_reaches_the_tool(site: Site) -> None:
    caller = site.caller("slow")
    async with caller.stream("go") as feed:
        await feed.until(lambda view: view.state == "working")
        if site.server is None:
            await within(note_of(site.folder, "started"))
        await caller.cancel(feed.ids.task)
        assert (await feed.end()).state == "cancelled"
    if site.server is None:
        await within(note_of(site.folder, "cancelled"))
    else:
        site.server.release()
    async with asyncio.timeout(BOUND):
        assert await site.caller("echo").send("still here") == TaskView("completed", text="still here")


@pytest.mark.parametrize("sdk", COMMANDS)
async def test_a_process_that_ends_fails_its_run_alone(tmp_path: Path, sdk: str) -> None:
    agents = {name: {"tool": name, "command": command_of(sdk), "cwd": str(tmp_path)} for name in ("crash", "echo")}
    async with running(tmp_path, configured=agents) as front:
        failed = await JsonRpc10(front.http, "crash").send("go")
        assert (failed.state, failed.fault) == ("failed", "The agent's process ended with status 7 during the run.")
        assert (await JsonRpc10(front.http, "echo").send("hello")).text == "hello"


async def test_the_documented_server_is_called_over_a2a_and_openai_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npx = tmp_path / "npx"  # the installed package instead of a download
    program = PROGRAMS / "mcp_typescript_server.py"
    npx.write_text(f"#!/bin/sh\nexec {peer_python('mcp-typescript')} {program} everything\n")
    npx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    agents: dict[str, Any] = yaml.safe_load(yaml_below("protocols/mcp.md", "### Servers over stdio"))["agents"]
    for name, tool in {"long": "trigger-long-running-operation", "image": "get-tiny-image"}.items():
        agents[name] = {**agents["echo"], "tool": tool}
    async with running(tmp_path, configured=agents) as front:
        assert (await JsonRpc10(front.http, "echo").send("hello")).text == "Echo: hello"
        assert (await Chat(front.http, "echo").send("hello")).text == "Echo: hello"
        assert "12" in (await JsonRpc10(front.http, "sum").send(Data({"a": 5, "b": 7}))).text
        view = await JsonRpc10(front.http, "long").run_to_end(Data({"duration": 0.2, "steps": 2}))
        assert view.state == "completed" and len(view.asides) == 2
        (image,) = (await Mcp(front.http, "image").send("go")).files.values()
        assert image.startswith(b"\x89PNG")


def yaml_below(page: str, heading: str) -> str:
    """Return the first YAML block below a heading of the documentation."""
    text = (ROOT / "docs" / page).read_text()
    return text.split(f"{heading}\n")[1].split("```yaml\n")[1].split("```")[0]
