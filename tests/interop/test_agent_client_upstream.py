"""A coding agent of the Agent Client Protocol's SDK for Python behind the gateway, called over other protocols."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.adapters.agent_client.editor import editing
from tests.gateway.talk import within
from tests.interop.peers import peer_python
from tests.pairs.a2a import JsonRpc10
from tests.pairs.agent_client import AgentClient
from tests.pairs.caller import Caller, Data
from tests.pairs.langgraph import LangGraph
from tests.pairs.openai import Chat
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROGRAM: Final = Path(__file__).parent / "programs" / "agent_client_agent.py"
CALLERS: Final = (JsonRpc10, LangGraph, Chat, AgentClient)


def settings_of(folder: Path) -> dict[str, Any]:
    command = [str(peer_python("agent-client")), "-I", str(PROGRAM)]
    return {
        "coder": {
            "protocol": "agent-client",
            "command": command,
            "cwd": str(folder / "threads" / "{thread}"),
            "coding": {"files": "write"},
        }
    }


async def marked(threads: Path) -> None:
    """Wait until the agent has marked a folder of a thread, because its turn was cancelled."""
    while not await asyncio.to_thread(lambda: [*threads.glob("*/cancelled")]):
        pass


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder = tmp_path_factory.mktemp("coding")
    async with running(folder, configured=settings_of(folder)) as found:
        yield found


@pytest.fixture(params=CALLERS, ids=lambda each: each.name)
def caller(request: pytest.FixtureRequest, gateway: Running) -> Caller:
    return request.param(gateway.http, "coder")


async def test_a_turn_arrives_in_each_protocol(caller: Caller) -> None:
    view = await caller.send("echo hello")
    assert (view.state, view.text) == ("completed", "echo hello")


async def test_a_permission_is_answered_in_each_protocol(gateway: Running, caller: Caller) -> None:
    paused = await caller.send("write it")
    (question,) = paused.questions
    assert paused.state == "input_required"
    assert "Write a.py" in question.text
    answered = await caller.answer(paused, Data("allow") if isinstance(caller, LangGraph) else "allow")
    # A2A shows the change of the file as an artifact.
    assert answered.state == "completed" and answered.text.endswith("chosen allow")
    if isinstance(caller, JsonRpc10):
        assert answered.text.startswith("--- a.py\n+++ a.py\n")


async def test_a_cancel_reaches_the_agent(gateway: Running) -> None:
    caller = JsonRpc10(gateway.http, "coder")
    async with caller.stream("slow") as feed:
        while not any(b"working" in frame for frame in feed.frames):
            await feed.next()
        cancelled = await caller.cancel(feed.ids.task)
    assert cancelled.state == "cancelled"
    await within(marked(Path(gateway.settings.agents["coder"].cwd or "").parent))


async def test_a_crash_fails_its_run_and_the_next_continues(gateway: Running) -> None:
    caller = LangGraph(gateway.http, "coder")
    failed = await caller.send("crash")
    assert failed.state == "failed" and "ended with status 7 during the run" in failed.fault
    again = await caller.send("prompts")
    assert json.loads(again.text) == ["crash", "prompts"]


async def test_a_session_continues_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    agents = settings_of(tmp_path)
    async with running(tmp_path, configured=agents) as gateway:
        caller = LangGraph(gateway.http, "coder")
        await caller.send("echo one")
    async with running(tmp_path, configured=agents) as gateway:
        caller.http = gateway.http
        assert json.loads((await caller.send("prompts")).text) == ["echo one", "prompts"]


async def test_an_editor_sees_the_options_of_the_agent(gateway: Running) -> None:
    def allow_always(method: str, params: Any) -> Any:
        return {"outcome": {"outcome": "selected", "optionId": "always"}}

    async with editing(gateway.url, "coder", allow_always) as editor:
        await editor.initialize()
        result = await editor.prompt(await editor.new_session(), "write it")
        (request,) = editor.asked
    assert result["stopReason"] == "end_turn" and editor.text.endswith("chosen always")
    options = [(each["optionId"], each["kind"]) for each in request["params"]["options"]]
    assert options == [("allow", "allow_once"), ("always", "allow_always"), ("reject", "reject_once")]
    (diff,) = request["params"]["toolCall"]["content"]
    assert (request["params"]["toolCall"]["title"], diff["type"], diff["newText"]) == ("Write a.py", "diff", "two\n")
