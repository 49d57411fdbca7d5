"""opencode, a coding agent, behind the gateway. Its model is an agent of another gateway, by the protocol of OpenAI."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Invocation, UseTool
from tests.interop.peers import CACHE, peer_python
from tests.pairs.a2a import JsonRpc10
from tests.running import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

PATIENCE: Final = 120.0
"""Timeout of one call, in seconds. opencode needs seven seconds to start on an idle machine."""


async def model(call: Invocation) -> AsyncGenerator[Any, Any]:
    """Write a file if the prompt asks for one, and otherwise repeat the prompt."""
    if "write" in call.text and call.tools:
        result = yield UseTool("write", {"filePath": "hello.txt", "content": "Hello"})
        yield f"Tool: {result}"
    else:
        earlier = [message.text for message in call.history if message.role == "user"]
        yield f"You said: {call.text}, after: {', '.join(earlier)}"


def settings_of(folder: Path, model_url: str) -> dict[str, Any]:
    peer_python("opencode")
    config = {
        "model": "gateway/model",
        "small_model": "gateway/model",
        "permission": {"edit": "ask", "bash": "ask"},
        "provider": {
            "gateway": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Babelgate",
                "options": {"baseURL": f"{model_url}/v1", "apiKey": "none"},
                "models": {"model": {"name": "Model"}},
            }
        },
    }
    program = CACHE / "opencode" / "node_modules" / "opencode-linux-x64" / "bin" / "opencode"
    return {
        "coder": {
            "protocol": "agent-client",
            "command": [str(program), "acp"],
            "cwd": str(folder / "threads" / "{thread}"),
            "env": {
                "HOME": str(folder / "home"),
                "OPENCODE_CONFIG_CONTENT": json.dumps(config),
                "OPENCODE_DISABLE_AUTOUPDATE": "true",
                "OPENCODE_DISABLE_MODELS_FETCH": "true",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "true",
            },
        }
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def models(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("models"), {"model": model}) as found:
        yield found


@asynccontextmanager
async def coding(folder: Path, models: Running) -> AsyncGenerator[JsonRpc10]:
    """Open a gateway in front of opencode, and return a caller."""
    async with running(folder, configured=settings_of(folder, models.url)) as gateway:
        gateway.http.timeout = PATIENCE
        yield JsonRpc10(gateway.http, "coder")


async def test_opencode_asks_before_it_writes_and_remembers_the_conversation(tmp_path: Path, models: Running) -> None:
    (tmp_path / "home").mkdir()
    async with coding(tmp_path, models) as caller:
        paused = await caller.send("write it")
        (question,) = paused.questions
        answered = await caller.answer(paused, "once")
    assert question.text == "Allow edit? hello.txt" and question.schema == {"enum": ["once", "always", "reject"]}
    assert answered.state == "completed" and answered.text.endswith("Wrote file successfully.")
    assert [each.read_text() for each in tmp_path.glob("threads/*/hello.txt")] == ["Hello"]
    async with coding(tmp_path, models) as again:
        again.context_id = caller.context_id
        view = await again.send("echo this")
    assert view.text == "You said: echo this, after: write it"
