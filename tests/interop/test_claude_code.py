"""Claude Code, unmodified and without a network, whose requests go to agents of the gateway by ANTHROPIC_BASE_URL."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Ask, Invocation, ToolCall, UseTool
from tests.interop.driver import BOUND
from tests.interop.peers import peer_python
from tests.running import Running, running
from tests.skip import missing

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

_PACKAGES: Final = "node_modules/@anthropic-ai"


def last_text(call: Invocation) -> str:
    """Return the last line of the user, without the reminders that Claude Code adds before it."""
    users = [message for message in call.messages if message.role == "user"]
    return users[-1].text.strip().splitlines()[-1]


async def repeat(call: Invocation) -> str:
    return f"heard: {last_text(call)}"


async def read(call: Invocation) -> AsyncGenerator[UseTool | ToolCall | str, Any]:
    """Use a tool of the agent itself, and then one of Claude Code, which executes it."""
    yield ToolCall("look_up", {"name": "note"}, output="note.txt")
    content = yield UseTool("Read", {"file_path": last_text(call)})
    yield f"read: {content}"


async def ask(call: Invocation) -> AsyncGenerator[Ask | str, Any]:
    name = yield Ask("What is your name?")
    yield f"Hello, {name.strip().splitlines()[-1]}."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"repeat": repeat, "read": read, "ask": ask}
    async with running(tmp_path_factory.mktemp("claude-code"), agents) as gateway:
        yield gateway


async def claude(gateway: Running, agent: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run Claude Code in a folder, which is also its home, and return its result."""
    home = peer_python("claude-code").parents[1]
    programs = sorted((home / _PACKAGES).glob("claude-code-*/claude"))
    if not programs:
        missing("npm has no program of Claude Code for this platform")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ANTHROPIC_BASE_URL": f"{gateway.url}/agent/{agent}",
        "ANTHROPIC_AUTH_TOKEN": "key",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    process = await asyncio.create_subprocess_exec(
        *(str(programs[0]), "--model", "any", "--output-format", "json", *arguments),
        env=env,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(4 * BOUND):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, (output, errors)
    return json.loads(output)


async def test_claude_code_shows_the_answer_of_an_agent(gateway: Running, tmp_path: Path) -> None:
    result = await claude(gateway, "repeat", tmp_path, "-p", "good morning")
    assert (result["result"], result["num_turns"]) == ("heard: good morning", 1)


async def test_claude_code_executes_the_tool_that_an_agent_calls(gateway: Running, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("the secret word is marble")
    result = await claude(gateway, "read", tmp_path, "-p", str(note))
    assert "read: " in result["result"] and "marble" in result["result"]


async def test_claude_code_answers_a_question_in_the_next_prompt(gateway: Running, tmp_path: Path) -> None:
    first = await claude(gateway, "ask", tmp_path, "-p", "go")
    assert first["result"] == "What is your name?"
    answered = await claude(gateway, "ask", tmp_path, "--resume", first["session_id"], "-p", "Ada")
    assert answered["result"] == "Hello, Ada."
