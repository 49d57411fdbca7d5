"""Agents served by the official A2A 0.3 SDK: JSON-RPC at `/<agent>`, REST below `/<agent>/rest`."""

import asyncio
import base64
from typing import Any

import httpx
from a2a import types as t
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.utils import new_agent_text_message, new_task
from a2a_agents import AGENTS
from serving import Gate, listen, serve, url
from starlette.applications import Starlette
from starlette.routing import Mount

WAITING = (t.TaskState.input_required, t.TaskState.auth_required)


class SdkTurn:
    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        assert context.message
        self._queue = queue
        self._message = context.message
        self._task = context.current_task
        self._updater: TaskUpdater | None = None
        self.text = context.get_user_input()
        self.files = [part for part in context.message.parts if isinstance(part.root, t.FilePart)]
        self.is_answer = self._task is not None and self._task.status.state in WAITING

    async def _open(self) -> TaskUpdater:
        """Return the updater of the task. Create the task, which is the first event, when an action first needs it."""
        if self._updater is None:
            if self._task is None:
                self._task = new_task(self._message)
                await self._queue.enqueue_event(self._task)
            self._updater = TaskUpdater(self._queue, self._task.id, self._task.context_id)
            await self._updater.start_work()
        return self._updater

    async def _agent_message(self, text: str) -> t.Message:
        return (await self._open()).new_agent_message([t.Part(root=t.TextPart(text=text))])

    async def reply(self, text: str) -> None:
        await self._queue.enqueue_event(new_agent_text_message(text, context_id=self._message.context_id))

    async def chunk(self, text: str, *, first: bool, last: bool) -> None:
        part = t.Part(root=t.TextPart(text=text))
        await (await self._open()).add_artifact([part], "answer", append=not first, last_chunk=last)

    async def give_file(self, part: t.Part) -> None:
        await (await self._open()).add_artifact([part], name=part.root.file.name)

    async def make_file(self, name: str, content: bytes) -> None:
        file = t.FileWithBytes(bytes=base64.b64encode(content).decode(), name=name, mime_type="text/plain")
        await (await self._open()).add_artifact([t.Part(root=t.FilePart(file=file))], name=name)

    async def make_data(self, value: Any) -> None:
        await (await self._open()).add_artifact([t.Part(root=t.DataPart(data=value))])

    async def progress(self, text: str) -> None:
        await (await self._open()).start_work(await self._agent_message(text))

    async def ask(self, question: str) -> None:
        await (await self._open()).requires_input(await self._agent_message(question), final=True)

    async def ask_auth(self, question: str) -> None:
        await (await self._open()).requires_auth(await self._agent_message(question), final=True)

    async def complete(self) -> None:
        await (await self._open()).complete()

    async def fail(self, text: str) -> None:
        await (await self._open()).failed(await self._agent_message(text))

    async def reject(self, text: str) -> None:
        await (await self._open()).reject(await self._agent_message(text))


class Executor(AgentExecutor):
    def __init__(self, name: str, gate: Gate) -> None:
        self._agent = AGENTS[name]
        self._gate = gate

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self._agent(SdkTurn(context, event_queue), self._gate)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id and context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(name: str, base: str) -> t.AgentCard:
    return t.AgentCard(
        name=name,
        description=f"The agent {name}.",
        version="1",
        url=f"{base}/{name}/",
        preferred_transport="JSONRPC",
        additional_interfaces=[
            t.AgentInterface(transport="JSONRPC", url=f"{base}/{name}/"),
            t.AgentInterface(transport="HTTP+JSON", url=f"{base}/{name}/rest"),
        ],
        capabilities=t.AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["*/*" if name == "files" else "text/plain"],
        default_output_modes=["text/plain"],
        skills=[t.AgentSkill(id=name, name=name, description=f"Shows {name}.", tags=["demo"])],
        supports_authenticated_extended_card=True,
    )


def agent_routes(name: str, base: str, gate: Gate, http: httpx.AsyncClient) -> list[Mount]:
    public = card(name, base)
    extended = public.model_copy(update={"description": f"The agent {name}, to those who may know more."})
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        Executor(name, gate),
        InMemoryTaskStore(),
        push_config_store=configs,
        push_sender=BasePushNotificationSender(http, configs),
    )
    rest = A2ARESTFastAPIApplication(public, handler, extended_agent_card=extended).build()
    jsonrpc = A2AStarletteApplication(public, handler, extended_agent_card=extended).build()
    return [Mount(f"/{name}/rest", app=rest), Mount(f"/{name}", app=jsonrpc)]


async def main() -> None:
    listener, gate = listen(), Gate()
    async with httpx.AsyncClient(trust_env=False) as http:
        mounts = [mount for name in AGENTS for mount in agent_routes(name, url(listener), gate, http)]
        await serve(Starlette(routes=mounts), listener, gate)


if __name__ == "__main__":
    asyncio.run(main())
