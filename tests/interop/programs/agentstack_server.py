"""Agents of AgentStack, or of its successor Kagenti, behind the SDK's own server.

One has a thought, a tool and an answer with a citation, one asks with a form, and one asks for an approval.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

from a2a.types import Message
from pydantic import BaseModel
from serving import Gate, listen, serve, url
from starlette.applications import Starlette
from starlette.routing import Mount

SDK = "agentstack_sdk" if find_spec("agentstack_sdk") else "kagenti_adk"
a2a = import_module(f"{SDK}.a2a.extensions")
common = import_module(f"{SDK}.a2a.extensions.common.form")
RunContext = import_module(f"{SDK}.server.context").RunContext

Outputs = AsyncGenerator[Any, Any]


class Name(BaseModel):
    name: str


async def demo(
    message: Message,
    trajectory: Annotated[a2a.TrajectoryExtensionServer, a2a.TrajectoryExtensionSpec()],
    citation: Annotated[a2a.CitationExtensionServer, a2a.CitationExtensionSpec()],
) -> Outputs:
    """Report each step in the form that the SDK's documentation shows."""
    yield trajectory.trajectory_metadata(title="thought", content="I should look.")
    yield trajectory.trajectory_metadata(title="weather (request)", content='{"city": "Rome"}')
    yield trajectory.trajectory_metadata(title="weather (response)", content="21 degrees, sunny")
    yield "It gave "
    yield "21 degrees"
    cited = a2a.Citation(url="https://example.com/a", title="A", start_index=8, end_index=18)
    yield citation.citation_metadata(citations=[cited])


async def form(
    message: Message, asking: Annotated[a2a.FormRequestExtensionServer, a2a.FormRequestExtensionSpec()]
) -> Outputs:
    """Ask for a name with a form."""
    fields = [common.TextField(id="name", label="Name", required=True)]
    question = common.FormRender(title="Who are you?", description="For the ticket.", fields=fields)
    answer = await asking.request_form(form=question, model=Name)
    yield f"Hello, {answer.name}." if answer else "Hello, nobody."


async def approve(
    message: Message,
    context: RunContext,
    asking: Annotated[a2a.ApprovalExtensionServer, a2a.ApprovalExtensionSpec(a2a.ApprovalExtensionParams())],
) -> Outputs:
    """Ask for approval to wipe a disk."""
    request = a2a.ToolCallApprovalRequest(name="wipe", title="Wipe sda?", input={"disk": "sda"}, description=None)
    answer = await asking.request_approval(request, context=context)
    yield f"wipe: {answer.approved}"


def app(agent: Callable[..., Outputs], at: str) -> Any:
    create_app, server = import_module(f"{SDK}.server.app").create_app, import_module(f"{SDK}.server").Server()
    server.agent(name=agent.__name__)(agent)
    if SDK == "kagenti_adk":
        return create_app(server._agent, at)
    instance = server._agent_factory(lambda _: None)
    instance.card.url = at
    return create_app(instance)


async def main() -> None:
    listener = listen()
    mounts = [
        Mount(f"/{agent.__name__}", app(agent, f"{url(listener)}/{agent.__name__}")) for agent in (demo, form, approve)
    ]
    await serve(Starlette(routes=mounts), listener, Gate())


asyncio.run(main())
