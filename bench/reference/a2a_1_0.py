"""Server with the official A2A 1.0 SDK: `/echo` repeats its input, `/stream` repeats it word by word. `/think` sends
one word and then stays silent."""

import asyncio

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from pieces import pieces
from starlette.applications import Starlette
from starlette.routing import BaseRoute


class Agent(AgentExecutor):
    def __init__(self, *, streams: bool, thinks: bool) -> None:
        self._streams = streams
        self._thinks = thinks

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if self._thinks:
            await updater.add_artifact([pb.Part(text="Well…")], "answer")
            await asyncio.Event().wait()
        for text, is_first, is_last in pieces(context.get_user_input(), streams=self._streams):
            await updater.add_artifact([pb.Part(text=text)], "answer", append=not is_first, last_chunk=is_last)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def agent_routes(name: str, *, streams: bool = False, thinks: bool = False) -> list[BaseRoute]:
    card = pb.AgentCard(
        name=name,
        description=name,
        version="1",
        supported_interfaces=[
            pb.AgentInterface(url=f"http://127.0.0.1/{name}", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=pb.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id=name, name=name, description=name, tags=["demo"])],
    )
    handler = DefaultRequestHandler(Agent(streams=streams, thinks=thinks), InMemoryTaskStore(), card)
    return list(create_jsonrpc_routes(handler, f"/{name}"))


app = Starlette(
    routes=[*agent_routes("echo"), *agent_routes("stream", streams=True), *agent_routes("think", thinks=True)]
)
