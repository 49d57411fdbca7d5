"""File names that an agent's server invents: a caller that saves files under the reported names stays in its own
folder.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.canonical import Artifact, FilePart, Invocation, Message
from tests.faults.stage import WIRES
from tests.running import Running, running

NAMES: Final = {
    "../../evil.txt": ("evil.txt", None),
    "/etc/cron.d/evil.txt": ("evil.txt", "etc/cron.d/"),
    "..\\..\\windows\\evil.txt": ("evil.txt", "windows/"),
    "a/../../b/./evil.txt": ("evil.txt", "a/b/"),
    "C:/evil.txt": ("evil.txt", None),
    "/" * 20_000 + "evil.txt": ("evil.txt", None),
    "../" * 20_000: ("artifact", None),
    "a/" * 100_000 + "evil.txt": ("evil.txt", "a/" * 512),
}
"""File names of the server, each with the name and the folder under which an AIEF client saves the file."""
SERVERS: Final = ("a2a-1.0", "a2a-0.3", "acp")


class Names:
    """An agent that returns a file under the name that the test has set."""

    name = ""

    async def message(self, call: Invocation) -> AsyncGenerator[Message]:
        yield Message(role="agent", parts=(self._file(),))

    async def artifact(self, call: Invocation) -> AsyncGenerator[Artifact]:
        yield Artifact(artifact_id="a", name=self.name, parts=(self._file(),))

    def _file(self) -> FilePart:
        return FilePart(name=self.name, media_type="text/plain", inline=b"hi", size=2)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
async def gateway(tmp_path: Path, names: Names) -> AsyncGenerator[Running]:
    """A gateway in front of another one."""
    (tmp_path / "far").mkdir()
    (tmp_path / "near").mkdir()
    async with running(tmp_path / "far", {"message": names.message, "artifact": names.artifact}) as far:
        agents: dict[str, Any] = {
            f"{server}-{way}": {
                "url": far.url + WIRES[server].path.format(agent=way),
                "protocol": WIRES[server].protocol,
                "agent": way,
            }
            for server in SERVERS
            for way in ("message", "artifact")
        }
        async with running(tmp_path / "near", configured=agents) as near:
            yield near


@pytest.mark.parametrize("way", ["message", "artifact"])
@pytest.mark.parametrize("server", SERVERS)
async def test_a_file_from_a_server_stays_in_the_callers_folder(
    gateway: Running, names: Names, server: str, way: str
) -> None:
    tasks = f"/agent/{server}-{way}/ap/v1/agent/tasks"
    for names.name, (file_name, folder) in NAMES.items():
        task_id = (await gateway.http.post(tasks, json={"input": "hi"})).json()["task_id"]
        step = (await gateway.http.post(f"{tasks}/{task_id}/steps", json={})).json()
        assert step["status"] == "completed", step
        (artifact,) = (await gateway.http.get(f"{tasks}/{task_id}/artifacts")).json()["artifacts"]
        assert (artifact["file_name"], artifact["relative_path"]) == (file_name, folder)
        download = await gateway.http.get(f"{tasks}/{task_id}/artifacts/{artifact['artifact_id']}")
        assert download.content == b"hi"
        assert f'filename="{file_name}"' in download.headers["content-disposition"]
