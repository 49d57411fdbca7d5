"""Endpoints of the protocol: a WebSocket for each connection of a client, and HTTP requests that read its sessions and
files."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from litestar import Response, Router, WebSocket, get, websocket
from litestar.types import ControllerRouterHandler

from babelgate.adapters.agent_client.errors import encode_fault
from babelgate.adapters.agent_client.server.connection import AgentConnection
from babelgate.adapters.agent_client.server.peer import ClientPeer
from babelgate.adapters.agent_client.server.sessions import Sessions
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.extended import answer_file
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.websocket import FAILED, POLICY, Disconnected, detect_disconnect, release
from babelgate.canonical import AgentInfo, Fault, FaultError, Hub

__all__ = ("PATH", "answer_fault", "routes")

log = logging.getLogger("babelgate.agent_client")

PATH: Final = "/agent-client"
_VERSION: Final = version("babelgate")


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    """Return the WebSocket and HTTP routes below `/agent-client`."""
    server = Server(hub)
    return [
        Router(
            PATH,
            route_handlers=[
                websocket(["/", "/{agent:str}"])(server.talk),
                get("/{agent:str}/sessions/{session_id:str}")(server.get_session),
                get("/{agent:str}/files/{blob:str}")(server.get_file),
            ],
        )
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the HTTP response that reports a fault as a JSON-RPC error."""
    status, body = encode_fault(fault)
    return json_response(body, fault_headers(fault), status=status)


class Server(Handlers):
    """Handlers of the WebSocket and the HTTP requests below `/agent-client`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def talk(self, socket: WebSocket[Any, Any, Any]) -> None:
        """Accept a WebSocket, and serve it until either side closes it. If the path names an unknown agent, close it at
        once with the reason."""
        with release(socket):
            await self._talk(socket)

    async def _talk(self, socket: WebSocket[Any, Any, Any]) -> None:
        try:
            info = self._agent(socket)
        except FaultError as error:
            with suppress(Disconnected), detect_disconnect():
                await socket.accept()
                await socket.close(POLICY, error.fault.message[:100])
            return
        await socket.accept()
        peer = ClientPeer(socket)
        cancels = socket.query_params.get("on_disconnect") == "cancel"
        connection = AgentConnection(self._hub, caller(socket), info, peer, _VERSION, cancels=cancels)
        try:
            await peer.serve(connection.answer, connection.note)
        except Exception:  # no caller of this function logs it
            log.exception("a WebSocket failed")
            await peer.close(FAILED, "The gateway failed.")

    def _agent(self, connection: WebSocket[Any, Any, Any] | AnyRequest) -> AgentInfo:
        """Return the agent that the path names, or the caller's default agent for a path without a name. Raises
        not_found."""
        who = caller(connection)
        return self._hub.agent(who.principal, connection.path_params.get("agent") or who.need_agent())

    async def get_session(self, request: AnyRequest) -> Response[Any]:
        """Return the id of a session and the updates with which `session/load` repeats it, as JSON. Raises
        not_found."""
        sessions = Sessions(self._hub, caller(request), self._agent(request))
        thread = await sessions.find(request.path_params["session_id"])
        return json_response({"sessionId": thread.thread_id, "updates": await sessions.updates(thread.thread_id)})

    async def get_file(self, request: AnyRequest) -> Response[Any]:
        """Return the bytes of a stored file, by the hash in the path. Raises not_found."""
        self._agent(request)
        return await answer_file(self._hub, request, request.path_params["blob"])
