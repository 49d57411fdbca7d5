"""An editor that speaks the Agent Client Protocol over a WebSocket, message by message."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

BOUND: Final = 30.0
"""Timeout for the next message, in seconds."""
OWN: Final = "babelgate"

Wire = dict[str, Any]
Answerer = Callable[[str, Wire], Wire | None]
"""Function that answers a request of the agent: (method, params) → result. If it returns None, the editor answers with
an error."""


class RpcError(Exception):
    """Error of a response."""

    def __init__(self, error: Wire) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data: Wire = error.get("data", {})


def choose(option_id: str | None) -> Answerer:
    """Return an answerer that selects the option `option_id` in every permission request, or cancels the request if
    this is None."""

    def answer(method: str, params: Wire) -> Wire | None:
        if option_id is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option_id}}

    return answer


class Editor:
    """One connection of an editor."""

    def __init__(self, connection: ClientConnection, answerer: Answerer | None = None) -> None:
        self.connection = connection
        self.answerer = answerer or choose(None)
        self.messages: list[Wire] = []
        """Messages of the agent, in order."""
        self.transcript: bytearray | None = None
        """Buffer to which the editor appends all received messages; None for no recording."""
        self.asked: list[Wire] = []
        """Requests of the agent to the editor, in order."""
        self._number = -1

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps({"jsonrpc": "2.0", **message}))

    async def start(self, method: str, **params: Any) -> int:
        """Send a request, and return its id."""
        self._number += 1
        await self.send(id=self._number, method=method, params=params)
        return self._number

    async def peek(self) -> Wire:
        """Return the next message. Requests of the agent are not answered."""
        async with asyncio.timeout(BOUND):
            raw = await self.connection.recv()
        if self.transcript is not None:
            self.transcript += raw.encode() if isinstance(raw, str) else raw
        message: Wire = json.loads(raw)
        self.messages.append(message)
        return message

    async def receive(self) -> Wire:
        """Return the next message. Requests of the agent are answered."""
        message = await self.peek()
        if "method" in message and "id" in message:
            self.asked.append(message)
            result = self.answerer(message["method"], message["params"])
            error = {"code": -32601, "message": f'"Method not found": {message["method"]}'}
            await self.send(id=message["id"], **({"error": error} if result is None else {"result": result}))
        return message

    async def wait_silently(self, request_id: int) -> Wire:
        """Return the result of a request, without answering requests of the agent meanwhile. Raises RpcError."""
        return await self.wait(request_id, self.peek)

    async def wait(self, request_id: int, receive: Callable[[], Awaitable[Wire]] | None = None) -> Wire:
        """Return the result of a request. Raises RpcError."""
        while True:
            message = await (receive or self.receive)()
            if message.get("id") == request_id and "method" not in message:
                if "error" in message:
                    raise RpcError(message["error"])
                return message["result"]

    async def call(self, method: str, **params: Any) -> Wire:
        return await self.wait(await self.start(method, **params))

    async def initialize(self, **capabilities: Any) -> Wire:
        return await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def new_session(self, cwd: str = "/work") -> str:
        return (await self.call("session/new", cwd=cwd, mcpServers=[]))["sessionId"]

    async def prompt(self, session_id: str, *content: str | Wire, **meta: Any) -> Wire:
        """Return the result of a prompt."""
        return await self.call("session/prompt", **prompt_params(session_id, content, meta))

    async def start_prompt(self, session_id: str, *content: str | Wire, **meta: Any) -> int:
        return await self.start("session/prompt", **prompt_params(session_id, content, meta))

    @property
    def updates(self) -> list[Wire]:
        """Updates that the client has received."""
        return [each["params"]["update"] for each in self.messages if each.get("method") == "session/update"]

    def take_updates(self) -> list[Wire]:
        """Return the updates received so far, and remove all received messages."""
        updates = self.updates
        self.messages.clear()
        return updates

    @property
    def text(self) -> str:
        return text_of(self.updates)


def prompt_params(session_id: str, content: Sequence[str | Wire], meta: Mapping[str, Any]) -> Wire:
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    params: Wire = {"sessionId": session_id, "prompt": blocks}
    return {**params, "_meta": dict(meta)} if meta else params


def own(update: Wire) -> Wire:
    """Return the gateway's own members of an update (`_meta.babelgate`)."""
    return update.get("_meta", {}).get(OWN, {})


def text_of(updates: Sequence[Wire], kind: str = "agent_message_chunk") -> str:
    """Return the text of all chunks of one kind in these updates."""
    return "".join(
        each["content"]["text"]
        for each in updates
        if each["sessionUpdate"] == kind and each["content"]["type"] == "text"
    )


@asynccontextmanager
async def editing(
    url: str, agent: str, answerer: Answerer | None = None, *, query: str = "", **options: Any
) -> AsyncGenerator[Editor]:
    """Open a connection to an agent of the gateway at a URL."""
    address = f"{url.replace('http', 'ws', 1)}/agent-client/{agent}{query}"
    async with connect(address, proxy=None, max_size=None, **options) as connection:
        yield Editor(connection, answerer)
