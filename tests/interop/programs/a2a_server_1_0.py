"""Agents served by the official A2A 1.0 SDK at `/<agent>`: JSON-RPC and REST, in 1.0 and in its 0.3 compatibility.

With the option `grpc`, they are served over gRPC, too. Their cards prefer it, and the tenant is the agent's name.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from inspect import isasyncgenfunction
from typing import Any

import httpx
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from a2a_agents import AGENTS
from google.protobuf.json_format import ParseDict
from lines import options
from serving import Gate, listen, serve, url
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

WAITING = (pb.TaskState.TASK_STATE_INPUT_REQUIRED, pb.TaskState.TASK_STATE_AUTH_REQUIRED)


class SdkTurn:
    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        assert context.message
        self._queue = queue
        self._message = context.message
        self._task = context.current_task
        self._updater: TaskUpdater | None = None
        self.text = context.get_user_input()
        self.files = [part for part in context.message.parts if part.WhichOneof("content") in ("raw", "url")]
        self.is_answer = self._task is not None and self._task.status.state in WAITING

    async def _open(self) -> TaskUpdater:
        """Return the updater of the task. Create the task, which is the first event, when an action first needs it."""
        if self._updater is None:
            if self._task is None:
                self._task = new_task_from_user_message(self._message)
                await self._queue.enqueue_event(self._task)
            self._updater = TaskUpdater(self._queue, self._task.id, self._task.context_id)
            await self._updater.start_work()
        return self._updater

    async def _agent_message(self, text: str) -> pb.Message:
        return (await self._open()).new_agent_message([pb.Part(text=text)])

    async def reply(self, text: str) -> None:
        await self._queue.enqueue_event(new_text_message(text, context_id=self._message.context_id))

    async def chunk(self, text: str, *, first: bool, last: bool) -> None:
        updater = await self._open()
        await updater.add_artifact([pb.Part(text=text)], "answer", append=not first, last_chunk=last)

    async def give_file(self, part: pb.Part) -> None:
        await (await self._open()).add_artifact([part], name=part.filename)

    async def make_file(self, name: str, content: bytes) -> None:
        part = pb.Part(raw=content, filename=name, media_type="text/plain")
        await (await self._open()).add_artifact([part], name=name)

    async def make_data(self, value: Any) -> None:
        await (await self._open()).add_artifact([ParseDict({"data": value}, pb.Part())])

    async def progress(self, text: str) -> None:
        await (await self._open()).start_work(await self._agent_message(text))

    async def ask(self, question: str) -> None:
        await (await self._open()).requires_input(await self._agent_message(question))

    async def ask_auth(self, question: str) -> None:
        await (await self._open()).requires_auth(await self._agent_message(question))

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


def card(name: str, base: str, rpc: str) -> pb.AgentCard:
    # The SDK of 1.0 also answers 0.3 if its card says so.
    interfaces = [
        pb.AgentInterface(url=f"{base}/{name}", protocol_binding=binding, protocol_version=version)
        for version in options().get("versions", ["1.0", "0.3"])
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    if rpc:
        interfaces.insert(0, pb.AgentInterface(url=rpc, protocol_binding="GRPC", protocol_version="1.0", tenant=name))
    return pb.AgentCard(
        name=name,
        description=f"The agent {name}.",
        version="1",
        supported_interfaces=interfaces,
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=["*/*" if name == "files" else "text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id=name, name=name, description=f"Shows {name}.", tags=["demo"])],
    )


def agent_handler(name: str, base: str, rpc: str, gate: Gate, http: httpx.AsyncClient) -> DefaultRequestHandler:
    public = card(name, base, rpc)
    extended = pb.AgentCard()
    extended.CopyFrom(public)
    extended.description = f"The agent {name}, to those who may know more."
    configs = InMemoryPushNotificationConfigStore()
    return DefaultRequestHandler(
        Executor(name, gate),
        InMemoryTaskStore(),
        public,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(http, configs),
        extended_agent_card=extended,
    )


def agent_routes(name: str, public: pb.AgentCard, handler: DefaultRequestHandler) -> list[BaseRoute]:
    return [
        *create_agent_card_routes(public, card_url=f"/{name}{AGENT_CARD_WELL_KNOWN_PATH}"),
        *create_jsonrpc_routes(handler, f"/{name}", enable_v0_3_compat=True),
        # Mounted separately: the SDK's REST routes read the first segment of an unknown path as a tenant.
        Mount(f"/{name}", routes=create_rest_routes(handler, enable_v0_3_compat=True)),
    ]


def listen_for_rpc() -> socket.socket:
    """Reserve a port for gRPC, which opens its own sockets."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return listener


async def serve_rpc(address: str, handlers: dict[str, DefaultRequestHandler]) -> Any:
    """Serve the agents over gRPC. The handler of the SDK has one agent, so the tenant of a request selects it."""
    import grpc.aio  # only in one of the two environments of this program
    from a2a.server.request_handlers.grpc_handler import GrpcHandler
    from a2a.types import a2a_pb2_grpc

    by_tenant = {name: GrpcHandler(handler) for name, handler in handlers.items()}

    class ByTenant:
        def __getattr__(self, method: str) -> Any:
            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                async for event in getattr(by_tenant[request.tenant], method)(request, context):
                    yield event

            async def unary(request: Any, context: Any) -> Any:
                return await getattr(by_tenant[request.tenant], method)(request, context)

            return stream if isasyncgenfunction(getattr(GrpcHandler, method)) else unary

    server = grpc.aio.server()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(ByTenant(), server)
    server.add_insecure_port(address)
    await server.start()
    return server


async def main() -> None:
    listener, gate = listen(), Gate()
    rpc_listener = listen_for_rpc()
    rpc = f"127.0.0.1:{rpc_listener.getsockname()[1]}" if options().get("grpc") else ""
    async with httpx.AsyncClient(trust_env=False) as http:
        base = url(listener)
        handlers = {name: agent_handler(name, base, rpc, gate, http) for name in AGENTS}
        routes = [route for name in AGENTS for route in agent_routes(name, card(name, base, rpc), handlers[name])]
        rpc_server = await serve_rpc(rpc, handlers) if rpc else None
        await serve(Starlette(routes=routes), listener, gate)
        if rpc_server is not None:
            await rpc_server.stop(1)


if __name__ == "__main__":
    asyncio.run(main())
