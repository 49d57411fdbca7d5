"""Programs that call an agent over ACP."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.acp.agents import label
from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program

_PYTHON: Final = """\
# pip install acp-sdk
import asyncio
import os

from acp_sdk.client import Client


async def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['<KEY>']}"}
    async with Client(base_url="<URL>/acp", headers=headers) as client:
        run = await client.run_sync("Hello", agent="<AGENT>")
        print("".join(str(message) for message in run.output))


asyncio.run(main())
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return two snippets that call an agent: a curl command, and a program with the Python SDK."""
    name = label(agent)
    body = {"agent_name": name, "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
    return (
        curl("curl", f"{base_url}/acp/runs", body, version=VERSION),
        program("acp-sdk", "python", _PYTHON, version=VERSION, url=base_url, agent=name),
    )
