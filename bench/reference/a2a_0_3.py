"""Server with the official A2A 0.3 SDK: `/echo/` repeats its input, `/stream/` repeats it word by word."""

from a2a import types as t
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.utils import new_task
from pieces import pieces
from starlette.applications import Starlette
from starlette.routing import Mount


class Agent(AgentExecutor):
    def __init__(self, *, streams: bool) -> None:
        self._streams = streams

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message
        task = new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        for text, is_first, is_last in pieces(context.get_user_input(), streams=self._streams):
            part = t.Part(root=t.TextPart(text=text))
            await updater.add_artifact([part], "answer", append=not is_first, last_chunk=is_last)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def mount(name: str, *, streams: bool) -> Mount:
    card = t.AgentCard(
        name=name,
        description=name,
        version="1",
        url=f"http://127.0.0.1/{name}/",
        capabilities=t.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[t.AgentSkill(id=name, name=name, description=name, tags=["demo"])],
    )
    handler = DefaultRequestHandler(Agent(streams=streams), InMemoryTaskStore())
    return Mount(f"/{name}", app=A2AStarletteApplication(card, handler).build())


app = Starlette(routes=[mount("echo", streams=False), mount("stream", streams=True)])
