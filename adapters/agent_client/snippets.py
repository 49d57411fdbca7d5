"""Programs that call an agent as an editor does."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.agent_client.carries import VERSION
from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import program

_SHELL: Final = """\
# npm install -g acpx
acpx --agent "babelgate acp <AGENT> --url <URL>" exec "Hello"
"""
_PYTHON: Final = """\
# pip install agent-client-protocol
import asyncio
import os

from acp import Client, spawn_agent_process
from acp.schema import TextContentBlock


class Printer(Client):
    async def session_update(self, session_id, update, **kwargs):
        print(update.model_dump_json(exclude_none=True))


async def main():
    command = ("babelgate", "acp", "<AGENT>", "--url", "<URL>")  # reads the key from <KEY>
    async with spawn_agent_process(Printer(), *command, env=os.environ) as (agent, _):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd="/", mcp_servers=[])
        hello = TextContentBlock(type="text", text="Hello")
        await agent.prompt(session_id=session.session_id, prompt=[hello])


asyncio.run(main())
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return a shell command for the client acpx and a Python program with the protocol's SDK, which both call an
    agent."""
    return (
        program("acpx", "shell", _SHELL, version=VERSION, url=base_url, agent=agent),
        program("agent-client-protocol", "python", _PYTHON, version=VERSION, url=base_url, agent=agent),
    )
