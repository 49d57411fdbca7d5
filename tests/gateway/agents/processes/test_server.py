"""Tests of agents' servers that the gateway starts with a command."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway.agents.processes.server import ManagedServer, ManagedServers
from babelgate.gateway.settings.model import AgentSettings
from tests import loopback
from tests.gateway.agents.processes.test_agent import gone
from tests.gateway.command import served_in_loop
from tests.gateway.talk import within
from tests.running import Running, running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def chat(*words: str, **settings: Any) -> dict[str, Any]:
    """Return the settings of an agent whose server the gateway starts."""
    port = free_port()
    return {
        "command": [sys.executable, "-m", "tests.gateway.agents.processes.chat_server", str(port), *words],
        "env": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MODEL_KEY": "k-1"},
        "url": f"http://127.0.0.1:{port}/v1",
        "protocol": "openai",
        "agent": "chat",
        "options": {"api": "chat"},
        **settings,
    }


async def ask(gateway: Running) -> str:
    """Return the answer of the agent, or the text of the error."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "?"}]}
    response = await gateway.http.post("/v1/chat/completions", json=body)
    return response.json()["choices"][0]["message"]["content"] if response.status_code == 200 else response.text


@asynccontextmanager
async def supervised(agents: dict[str, AgentSettings]) -> AsyncGenerator[ManagedServer]:
    """Run the server of the agent `chat`, as one gateway does."""
    servers = ManagedServers()
    await servers.update(agents)
    server = servers.get("chat")
    assert server is not None
    try:
        yield server
    finally:
        await servers.aclose()


async def test_a_server_is_started_and_ends_with_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BABELGATE_TEST_SECRET", "hidden")
    caplog.set_level(logging.INFO, "babelgate.process")
    async with running(tmp_path, configured={"chat": chat()}) as gateway:
        pid = int(await ask(gateway))
    await within(gone(pid))
    output = next(line for line in caplog.messages if "environment" in line)
    assert "MODEL_KEY" in output
    assert "BABELGATE_TEST_SECRET" not in output, "variables of the gateway are not passed on"


async def test_a_server_that_ends_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, configured={"chat": chat()}) as gateway:
        pid = int(await ask(gateway))
        os.kill(pid, signal.SIGKILL)
        server = gateway.hub.registry.processes.get("chat")
        assert server is not None
        await within(gone(pid))
        await within(server.until_replaced(pid))
        assert int(await ask(gateway)) != pid
    assert "server of agent=chat not running reason=was killed by SIGKILL retry_in=0.5s" in caplog.messages


async def test_a_command_that_fails_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, configured={"chat": chat("fail")}) as gateway:
        answer = await ask(gateway)
        assert "agent_unreachable" in answer
    assert any("ended with status 4 before it answered" in line for line in caplog.messages)


async def test_processes_end_with_a_killed_gateway(tmp_path: Path) -> None:
    who = {"python": "tests.gateway.agents.processes.agents:process_id", "process": True}
    (tmp_path / "babelgate.yaml").write_text(json.dumps({"agents": {"chat": chat(), "who": who}}))
    async with served_in_loop(tmp_path) as gateway:
        body = {"messages": [{"role": "user", "content": "?"}]}
        async with loopback.client(base_url=gateway.url, timeout=30) as http:
            pids = [
                int(
                    (await http.post("/v1/chat/completions", json={"model": name, **body})).json()["choices"][0][
                        "message"
                    ]["content"]
                )
                for name in ("chat", "who")
            ]
        gateway.process.kill()
        for pid in pids:
            await within(gone(pid))


async def test_a_program_on_the_port_of_a_command_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = chat()
    port = int(settings["command"][3])
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    async with listener, supervised({"chat": AgentSettings.model_validate(settings)}) as server:
        await within(server.until_usable())
        assert server.pid is None
    assert f"another program answers at {settings['url']}: end it, or give the agent another port" in caplog.text


async def test_the_children_of_a_command_end_with_it(tmp_path: Path) -> None:
    async with running(tmp_path, configured={"chat": chat("spawn")}) as gateway:
        child = int(await ask(gateway))
    await within(gone(child))


async def test_one_of_two_gateways_starts_the_server() -> None:
    agents = {"chat": AgentSettings.model_validate(chat())}
    async with supervised(agents) as first, supervised(agents) as second:
        await within(first.until_replaced(None))
        await within(second.until_usable())
        assert first.pid is not None
        assert second.pid is None
        await first.aclose()
        await within(second.until_replaced(None))


async def test_a_foreign_lock_folder_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"babelgate-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with supervised({"chat": AgentSettings.model_validate(chat())}) as server:
        await within(server.until_replaced(None))
    assert "not shared with other gateways" in caplog.text
    assert not [*(tmp_path / "elsewhere").iterdir()]


async def test_a_removed_agent_ends_its_server() -> None:
    agents = {"chat": AgentSettings.model_validate(chat())}
    servers = ManagedServers()
    await servers.update(agents)
    server = servers.get("chat")
    assert server is not None
    await within(server.until_replaced(None))
    pid = server.pid
    assert pid is not None
    await servers.update(agents)
    assert servers.get("chat") is server, "an unchanged command continues"
    await servers.retain({})
    await within(gone(pid))
    assert servers.get("chat") is None
