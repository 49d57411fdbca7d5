"""Transport of the client without processes: the WebSocket of another gateway, as `babelgate acp` uses it."""

import tempfile
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from babelgate.adapters.agent_client.client import Client
from babelgate.adapters.kit.program import ProgramRules
from babelgate.gateway.agents.processes.workspace import Folder


class SocketProgram:
    """WebSocket that implements `Program`: each message is a line."""

    def __init__(self, connection: ClientConnection) -> None:
        self.workspace = Folder("socket", tempfile.gettempdir(), {}, None)
        self._connection = connection

    async def receive(self) -> bytes:
        try:
            message = await self._connection.recv()
        except ConnectionClosed:
            return b""
        return message.encode() if isinstance(message, str) else message

    async def send(self, line: bytes) -> None:
        try:
            await self._connection.send(line.decode())
        except ConnectionClosed:
            raise BrokenPipeError from None

    async def find_end(self) -> str:
        return "closed its output"

    async def stop(self) -> None:
        with suppress(ConnectionClosed):
            await self._connection.close()


class SocketHost:
    """Starter of connections to an agent of the gateway at a URL."""

    def __init__(self, url: str, agent: str) -> None:
        self._address = f"{url.replace('http', 'ws', 1)}/agent-client/{agent}"

    async def start(self, owner: str, thread_id: str) -> SocketProgram:
        return SocketProgram(await connect(self._address, proxy=None, max_size=None))


def socket_client(url: str, agent: str) -> Client:
    """Return the client for an agent of the gateway at a URL. Each thread has a connection."""
    return Client(agent, SocketHost(url, agent), ProgramRules(max_processes=1000))
