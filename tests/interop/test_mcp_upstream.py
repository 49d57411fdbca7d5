"""Tools of the unmodified official MCP SDK behind the gateway, in both eras of the protocol."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.interop.driver import OfficialServer, start_server
from tests.pairs.a2a import JsonRpc10
from tests.pairs.caller import TaskView
from tests.pairs.mcp import Mcp
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
TOOLS: Final = ("echo", "fail", "steps", "slow", "ask", "form", "count", "picture")


@dataclass(frozen=True)
class Site:
    front: Running
    server: OfficialServer
    version: str

    def caller(self, tool: str) -> JsonRpc10:
        return JsonRpc10(self.front.http, tool)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["2025-11-25", "2026-07-28"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    version: str = request.param
    async with start_server("mcp") as server:
        options = {"version": version}
        agents: dict[str, Any] = {
            name: {"url": f"{server.url}/mcp", "tool": name, "options": options} for name in TOOLS
        }
        registry = await connect(Settings.model_validate({"agents": agents}))
        assert [each.broken for each in registry.all()] == [None] * len(TOOLS)
        async with running(
            tmp_path_factory.mktemp("mcp"), registered={each.info.name: each for each in registry.all()}
        ) as front:
            yield Site(front, server, version)


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
        await caller.cancel(feed.ids.task)
        assert (await feed.end()).state == "cancelled"
    site.server.release()
    async with asyncio.timeout(BOUND):
        assert await site.caller("echo").send("still here") == TaskView("completed", text="still here")
