"""Official SDKs driven from tests: each runs as a program in its own environment and speaks JSON lines.

`programs/lines.py` is the other end of the pipe. Example:

async with start_server("acp") as server, start_client("acp", base_url=server.url) as client:
    run = await client.call("run_sync", agent="echo", input="hello")
    async with client.stream("run_stream", agent="stream", input="one two") as events:
        first = await anext(events)
        server.release()
        rest = [event async for event in events]
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

from tests.interop.peers import peer_python

PROGRAMS: Final = Path(__file__).parent / "programs"
CLIENTS: Final = {
    "adk": "adk_client.py",
    "agent-framework": "agent_framework_client.py",
    "acp": "acp_client.py",
    "a2a-1.0": "a2a_client_1_0.py",
    "a2a-0.3": "a2a_client_0_3.py",
    "a2a-grpc": "a2a_client_1_0.py",
    "a2a-signing": "a2a_signing_client.py",
    "agent-client": "agent_client_client.py",
    "ag-ui": "ag_ui_client.py",
    "aief": "aief_client.py",
    "anthropic": "anthropic_client.py",
    "langgraph-sdk": "langgraph_client.py",
    "mcp": "mcp_client.py",
    "open-responses": "open_responses_client.py",
    "openai": "openai_client.py",
    "strands": "strands_client.py",
    "vercel-ai": "vercel_ai_client.py",
}
SERVERS: Final = {
    "adk": "adk_server.py",
    "agent-framework": "agent_framework_server.py",
    "agentstack": "agentstack_server.py",
    "agno": "agno_server.py",
    "acp": "acp_server.py",
    "a2a-1.0": "a2a_server_1_0.py",
    "a2a-0.3": "a2a_server_0_3.py",
    "a2a-grpc": "a2a_server_1_0.py",
    "a2a-signing": "a2a_signing_server.py",
    "ag-ui-adk": "ag_ui_adk_server.py",
    "ag-ui-agno": "ag_ui_agno_server.py",
    "ag-ui-langgraph": "ag_ui_langgraph_server.py",
    "ag-ui-pydantic": "ag_ui_pydantic_server.py",
    "ag-ui-strands": "ag_ui_strands_server.py",
    "aief": "aief_server.py",
    "fasta2a": "fasta2a_server.py",
    "graphserve": "graphserve_server.py",
    "kagenti": "agentstack_server.py",
    "mcp": "mcp_server.py",
    "mcp-typescript": "mcp_typescript_server.py",
    "mcp-everything": "mcp_everything_server.py",
    "nanoidp": "nanoidp_server.py",
    "oidc-provider": "oidc_provider_server.py",
    "strands": "strands_server.py",
    "ui-copilotkit": "copilotkit_server.py",
}

BOUND: Final = 30.0
"""Timeout for the next line of a program, in seconds."""


class ProgramEnded(Exception):
    """A program ended while a test was still waiting for it. The message is the end of its stderr."""


class ClientError(Exception):
    """Exception of the official client: name of its class, message, and further data as JSON."""

    def __init__(self, type: str, message: str, data: Any) -> None:
        super().__init__(f"{type}: {message}")
        self.type, self.message, self.data = type, message, data


Line = dict[str, Any]


class Program(asyncio.SubprocessProtocol):
    """One running program. An asyncio protocol instead of streams, because its callbacks need no reading task."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.SubprocessTransport
        self._unfinished = b""
        self._stderr: deque[str] = deque(maxlen=40)
        self._waiting: dict[int, asyncio.Queue[Line | None]] = {}
        self._calls = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr.extend(data.decode(errors="replace").splitlines())
            return
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._received(json.loads(line))

    def _received(self, line: Line) -> None:
        if "ready" in line:
            self.ready.set_result(line["ready"])
        elif queue := self._waiting.get(line["id"]):
            queue.put_nowait(line)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(ProgramEnded(self.stderr))
        for queue in self._waiting.values():
            queue.put_nowait(None)
        self.ended.set_result(None)

    @property
    def stderr(self) -> str:
        return "\n".join(self._stderr)

    def send(self, line: Line | str) -> None:
        text = line if isinstance(line, str) else json.dumps(line)
        stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        stdin.write(text.encode() + b"\n")

    async def ask(self, call: str, args: Line) -> AsyncGenerator[Line]:
        """Yield each line that answers the call. Closing early makes the program disconnect from its server."""
        self._calls += 1
        number = self._calls
        queue = self._waiting[number] = asyncio.Queue()
        self.send({"id": number, "call": call, "args": args})
        try:
            while True:
                async with asyncio.timeout(BOUND):
                    line = await queue.get()
                if line is None:
                    raise ProgramEnded(self.stderr)
                yield line
                if "event" not in line:
                    return
        finally:
            del self._waiting[number]
            if not self.ended.done():
                self.send({"abort": number})

    async def stop(self) -> None:
        if stdin := self._transport.get_pipe_transport(0):
            stdin.close()
        try:
            async with asyncio.timeout(5):
                await asyncio.shield(self.ended)
        except TimeoutError:
            self._transport.kill()
            await self.ended
        finally:
            self._transport.close()


class OfficialClient:
    """An official client. Its calls are the methods of the program's `Calls`, with JSON arguments."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def call(self, name: str, /, **args: Any) -> Any:
        """Return the result of a call, or the list of its events if it streams."""
        events: list[Any] = []
        async with aclosing(self._lines(name, args)) as lines:
            async for line in lines:
                if "event" not in line:
                    return line.get("result", events)
                events.append(line["event"])
        raise ProgramEnded(self._program.stderr)

    @asynccontextmanager
    async def stream(self, name: str, /, **args: Any) -> AsyncGenerator[AsyncIterator[Any]]:
        """Yield the events of a call as the client receives them. Leaving the block early disconnects the client."""

        async def events() -> AsyncIterator[Any]:
            async for line in lines:
                if "event" in line:
                    yield line["event"]

        async with aclosing(self._lines(name, args)) as lines:
            yield events()

    async def _lines(self, name: str, args: Line) -> AsyncGenerator[Line]:
        async with aclosing(self._program.ask(name, args)) as lines:
            async for line in lines:
                if "error" in line:
                    raise ClientError(**line["error"])
                yield line


class OfficialServer:
    """A server built with an official SDK, which serves the agents of its program."""

    def __init__(self, program: Program, url: str) -> None:
        self._program = program
        self.url = url

    def release(self) -> None:
        """Let one agent pass the gate in the middle of its answer, now or when it reaches the gate."""
        self._program.send("release")

    def reset(self) -> None:
        """Withdraw the releases that no agent has used."""
        self._program.send("reset")


@asynccontextmanager
async def _started(peer: str, program: str, options: Line) -> AsyncGenerator[Program]:
    arguments = [str(peer_python(peer)), str(PROGRAMS / program), json.dumps(options)]
    _, running = await asyncio.get_running_loop().subprocess_exec(Program, *arguments)
    try:
        async with asyncio.timeout(BOUND):
            await running.ready
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def start_client(peer: str, *, program: str | None = None, **options: Any) -> AsyncGenerator[OfficialClient]:
    """Start the peer's official client. Options: base_url, headers, and those of its program."""
    async with _started(peer, program or CLIENTS[peer], options) as started:
        yield OfficialClient(started)


@asynccontextmanager
async def start_server(peer: str, **options: Any) -> AsyncGenerator[OfficialServer]:
    """Start the peer's official server. Options: port (default: a free one), gated=False for agents that never wait."""
    async with _started(peer, SERVERS[peer], options) as program:
        yield OfficialServer(program, await program.ready)
