"""Programs that call an agent over AIEF's Agent Protocol."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.aief.carries import VERSION
from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import program

_SHELL: Final = """\
# Create a task, then execute its first step. jq reads the id of the task.
url=<URL>/agent/<AGENT>/ap/v1/agent/tasks
auth="Authorization: Bearer $<KEY>"
task=$(curl -s $url -H "$auth" -H 'Content-Type: application/json' -d '{"input": "Hello"}' | jq -r .task_id)
curl -s $url/$task/steps -H "$auth" -H 'Content-Type: application/json' -d '{}'
"""
_PYTHON: Final = """\
# pip install agent-protocol-client
import asyncio
import os

from agent_protocol_client import AgentApi, ApiClient, Configuration, StepRequestBody, TaskRequestBody


async def main() -> None:
    async with ApiClient(Configuration(host="<URL>/agent/<AGENT>")) as client:
        client.set_default_header("Authorization", f"Bearer {os.environ['<KEY>']}")
        api = AgentApi(client)
        task = await api.create_agent_task(task_request_body=TaskRequestBody(input="Hello"))
        step = await api.execute_agent_task_step(task.task_id, step_request_body=StepRequestBody())
        print(step.output)


asyncio.run(main())
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return example programs that call the agent: curl commands, and a program with the Python client."""
    return (
        program("curl", "shell", _SHELL, version=VERSION, url=base_url, agent=agent),
        program("agent-protocol-client", "python", _PYTHON, version=VERSION, url=base_url, agent=agent),
    )
