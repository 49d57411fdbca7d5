"""The configurations on docs/editors.md: each starts a command that the official SDK can call as the editor does."""

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway import demo
from tests.adapters.agent_client.editor import text_of
from tests.gateway.command import PROGRAM, ROOT
from tests.interop.driver import start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE: Final = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")
KEY: Final = "my-key"
_LUA_PAIR: Final = re.compile(r'(\w+) = "([^"]*)"')


@dataclass(frozen=True)
class Launch:
    """Program that an editor starts for an agent."""

    command: Sequence[str]
    env: Mapping[str, str]


def block(heading: str, language: str) -> str:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return found


def read_json(text: str) -> Launch:
    """Read `agent_servers`, as Zed and JetBrains do."""
    servers: Any = json.loads(text)["agent_servers"]
    (server,) = servers.values()
    assert server.keys() <= {"type", "command", "args", "env"}
    return Launch([server["command"], *server["args"]], server["env"])


def _lua_list(text: str, name: str) -> list[str]:
    (members,) = re.findall(rf"\b{name} = \{{ (.*?) \}}", text)
    return re.findall(r'"([^"]*)"', members)


def _lua_env(text: str) -> dict[str, str]:
    (members,) = re.findall(r"\benv = \{ (.*?) \}", text)
    return dict(_LUA_PAIR.findall(members))


def read_avante(text: str) -> Launch:
    (provider,) = re.findall(r'provider = "(\w+)"', text)
    assert f'["{provider}"] = {{' in text
    (command,) = re.findall(r'command = "([^"]*)"', text)
    return Launch([command, *_lua_list(text, "args")], _lua_env(text))


def read_code_companion(text: str) -> Launch:
    (adapter,) = re.findall(r'adapter = "(\w+)"', text)
    assert f"{adapter} = function()" in text
    return Launch(_lua_list(text, "default"), _lua_env(text))


EDITORS: Final[Mapping[str, tuple[str, Callable[[str], Launch]]]] = {
    "Zed": ("json", read_json),
    "JetBrains IDEs": ("json", read_json),
    "Neovim with avante.nvim": ("lua", read_avante),
    "Neovim with CodeCompanion": ("lua", read_code_companion),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("editors"), {"echo": demo.echo}, keys={"ada": KEY}) as found:
        yield found


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the program `babelgate`, as an installation has it."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "babelgate"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {" ".join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("editor", EDITORS)
async def test_configuration_of_an_editor_starts_the_agent(
    editor: str, gateway: Running, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    language, read = EDITORS[editor]
    launch = read(block(editor, language))
    assert launch.env == {"BABELGATE_URL": "http://127.0.0.1:8000", "BABELGATE_KEY": KEY}
    for name in [each for each in os.environ if each.startswith("BABELGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    variables = {**launch.env, "BABELGATE_URL": gateway.url}
    command = ["env", *(f"{name}={value}" for name, value in variables.items()), *launch.command]
    async with start_client("agent-client", program="agent_client_client.py") as client:
        found = await client.call("converse", texts=["Hello, editor"], command=command)
    assert [each["stopReason"] for each in found["results"]] == ["end_turn"]
    assert text_of(found["updates"]) == "Hello, editor"
    assert found["sessions"] == 1


async def test_headings_of_the_page_name_the_editors() -> None:
    assert [heading for heading in re.findall(r"^## (.*)$", PAGE, re.MULTILINE) if heading in EDITORS] == [*EDITORS]
