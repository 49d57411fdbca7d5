"""opencode, a coding agent, behind the gateway. Its model is an agent of another gateway, by the protocol of OpenAI."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from babelgate.canonical import Invocation, UseTool
from tests.gateway.command import ROOT
from tests.interop.peers import CACHE, peer_python
from tests.pairs.a2a import JsonRpc10
from tests.running import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

PATIENCE: Final = 120.0
"""Timeout of one call, in seconds. opencode needs seven seconds to start on an idle machine."""

OFFLINE: Final = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD")
"""Variables that keep opencode from the network."""


async def model(call: Invocation) -> AsyncGenerator[Any, Any]:
    """Write a file if the prompt asks for one, and otherwise repeat the prompt."""
    if "write" in call.text and call.tools:
        result = yield UseTool("write", {"filePath": "hello.txt", "content": "Hello"})
        yield f"Tool: {result}"
    else:
        earlier = [message.text for message in call.history if message.role == "user"]
        yield f"You said: {call.text}, after: {', '.join(earlier)}"


def settings_of(folder: Path, model_url: str) -> dict[str, Any]:
    """Return the agents in the configuration of docs/coding-agents.md, and write its `opencode.json`. The program, the
    folders and the address of the model are those of the test."""
    peer_python("opencode")
    page = (ROOT / "docs" / "coding-agents.md").read_text(encoding="utf-8")
    configuration, model_config = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("yaml", "json"))
    (folder / "opencode.json").write_text(model_config.replace("http://127.0.0.1:8333", model_url), encoding="utf-8")
    agents = yaml.safe_load(configuration.replace("${PWD}", str(folder)).replace("${MODEL_KEY}", "none"))["agents"]
    program = CACHE / "opencode" / "node_modules" / "opencode-linux-x64" / "bin" / "opencode"
    agents["coder"]["command"][0] = str(program)
    agents["coder"]["cwd"] = str(folder / agents["coder"]["cwd"])
    agents["coder"]["env"] |= {"HOME": str(folder), **dict.fromkeys(OFFLINE, "true")}
    return agents


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def models(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("models"), {"coder": model}) as found:
        yield found


@asynccontextmanager
async def coding(folder: Path, models: Running) -> AsyncGenerator[JsonRpc10]:
    """Open a gateway in front of opencode, and return a caller."""
    async with running(folder, configured=settings_of(folder, models.url)) as gateway:
        gateway.http.timeout = PATIENCE
        yield JsonRpc10(gateway.http, "coder")


def written(folder: Path) -> list[str]:
    """Return what opencode has written in the folders of all threads."""
    return [each.read_text() for each in folder.glob("threads/*/hello.txt")]


async def test_opencode_asks_before_it_writes_and_remembers_the_conversation(tmp_path: Path, models: Running) -> None:
    async with coding(tmp_path, models) as caller:
        paused = await caller.send("write it")
        (question,) = paused.questions
        answered = await caller.answer(paused, "once")
    assert question.text == "Allow edit? hello.txt" and question.schema == {"enum": ["once", "always", "reject"]}
    assert answered.state == "completed" and answered.text.endswith("Wrote file successfully.")
    assert written(tmp_path) == ["Hello"]
    async with coding(tmp_path, models) as again:
        again.context_id = caller.context_id
        view = await again.send("echo this")
    assert view.text == "You said: echo this, after: write it"
