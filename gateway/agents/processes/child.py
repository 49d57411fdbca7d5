"""Process of one agent in Python or one graph: `python -m babelgate.gateway.agents.processes.child CONTROL LISTENER`.

The gateway starts the process. The arguments are the file descriptors of the control connection and of the listening
socket for runs. The process ends when the gateway closes the control connection. Only the agent writes to stdout.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, NoReturn, cast

from babelgate.canonical.agent import Agent, Introspectable, Invocation, Stateful
from babelgate.canonical.event import Event
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.agents.call_data import Graphlike
from babelgate.gateway.agents.importing import TargetError, import_agent
from babelgate.gateway.agents.processes.frames import (
    TO_PROCESS,
    Ask,
    CallData,
    DataReply,
    DataRequest,
    DescribeGraph,
    EventFrame,
    FirstFrame,
    Forget,
    FromProcess,
    GraphDescribed,
    Ping,
    Pong,
    ProcessReady,
    ProcessUnusable,
    RunFinished,
    Setup,
    StartRun,
    UpdateState,
    encode_frame,
    read_frame,
)
from babelgate.gateway.agents.processes.gateway_data import GatewayData
from babelgate.gateway.agents.processes.launcher import end_with_parent

log = logging.getLogger("babelgate.agent")

_BUFFER: Final = 2**20
"""Limit of the read buffer of a connection to the gateway, in bytes. Chosen."""
_END: Final = 2.0
"""Seconds that the agent has to close its runs after the control connection has ended. Chosen."""


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the agent until the gateway closes the control connection. Then end the process, even if a thread of the
    agent blocks. `arguments` are two file descriptors."""
    control, listener = (socket.socket(fileno=int(each)) for each in arguments)
    end_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateway, which then closes the connection
    with suppress(ConnectionError):
        asyncio.run(_serve(control, listener))
    os._exit(0)


async def _serve(control: socket.socket, listener: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=control, limit=_BUFFER)
    setup = await read_frame(reader, TO_PROCESS)
    if not isinstance(setup, Setup):
        return
    _set_up_logging(setup.log_level)
    sys.path[:] = setup.path
    try:
        info, agent = await import_agent(setup.target, setup.name, is_graph=setup.is_graph, replay=setup.replay)
    except TargetError as error:
        await _send(writer, ProcessUnusable(str(error)))
        return
    runs = _Runs(agent)
    server = await asyncio.start_unix_server(runs.handle, sock=listener, limit=_BUFFER)
    async with server:
        await _send(writer, ProcessReady(info, isinstance(agent, Graphlike)))
        while (frame := await read_frame(reader, TO_PROCESS)) is not None:
            if isinstance(frame, Ping):
                await _send(writer, Pong())
            elif isinstance(frame, Forget) and (forget := getattr(agent, "forget", None)) is not None:
                forget(frame.owner, frame.task_id)
        _end_later()
        server.close()
        await runs.aclose()


def _end_later() -> None:
    """End the process 2 seconds later, even if the agent blocks its event loop."""
    timer = threading.Timer(_END, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _set_up_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("babelgate").setLevel(level.upper())


async def _send(writer: asyncio.StreamWriter, frame: FromProcess) -> None:
    writer.write(encode_frame(frame))
    await writer.drain()


class _Runs:
    """Active runs of the agent, one for each connection. A state update and a description of a graph count as runs
    here."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._active: set[asyncio.Task[Any]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Execute the run that a connection requests. The run is cancelled when the gateway closes the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._active.add(task)
        try:
            frame = await read_frame(reader, TO_PROCESS)
            if isinstance(frame, StartRun | UpdateState | DescribeGraph):
                await _Run(self._agent, reader, writer).execute(frame)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the gateway has closed the connection: the run is cancelled
        finally:
            self._active.discard(task)
            writer.close()

    async def aclose(self) -> None:
        """Cancel all runs, and close the paused generators."""
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)
        if (aclose := getattr(self._agent, "aclose", None)) is not None:
            await aclose()


class _Run:
    """One run, state update or description that the gateway has requested, and its connection to the gateway."""

    def __init__(self, agent: Agent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._data = GatewayData(self._ask)
        self._agent = agent.with_data(self._data) if isinstance(agent, Graphlike) else agent
        self._reader = reader
        self._writer = writer
        self._replies: dict[int, asyncio.Future[DataReply]] = {}
        """Replies that the agent waits for, by the number of the request."""
        self._asked = 0
        """Number of requests that were sent to the gateway in this run."""

    async def execute(self, first: FirstFrame) -> None:
        """Execute the request that a connection begins with. Send the answers to the gateway, and then `RunFinished`.
        Stop if the gateway closes the connection."""
        running = asyncio.ensure_future(self._send_answers(first))
        reading = asyncio.ensure_future(self._read_replies())
        try:
            await asyncio.wait((running, reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (running, reading):
                task.cancel()
            await asyncio.gather(running, reading, return_exceptions=True)

    async def _send_answers(self, first: FirstFrame) -> None:
        fault = None
        try:
            if isinstance(first, StartRun):
                await self._send_events(self._invocation(first.call))
            else:
                await _send(self._writer, await self._answer(first))
        except FaultError as error:
            fault = error.fault
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.warning("agent failed", exc_info=error)
            text = f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()
            fault = FaultError(FaultCode.AGENT_FAILED, text).fault
        await _send(self._writer, RunFinished(fault))

    async def _send_events(self, call: Invocation) -> None:
        events = cast("AsyncGenerator[Event]", self._agent.run(call))
        async with aclosing(events):
            async for event in events:
                self._writer.write(encode_frame(EventFrame(event)))
                await self._writer.drain()

    async def _answer(self, request: UpdateState | DescribeGraph) -> EventFrame | GraphDescribed:
        """Return the answer of a graph to a request. Raises the fault of the graph."""
        agent = self._agent
        if isinstance(request, UpdateState):
            assert isinstance(agent, Stateful)
            call, removed_ids = self._invocation(request.call), request.removed_ids
            return EventFrame(await agent.update_state(call, removed_ids=removed_ids, as_node=request.as_node))
        assert isinstance(agent, Introspectable)
        if request.depth is not None:
            return GraphDescribed(await agent.draw(request.depth))
        return GraphDescribed(await agent.subgraphs(request.namespace, request.recurse))

    def _invocation(self, call: CallData) -> Invocation:
        data = self._data
        return call.invocation(past=data.past, with_files=data.with_files, states=data.states)

    async def _read_replies(self) -> None:
        while (frame := await read_frame(self._reader, TO_PROCESS)) is not None:
            if isinstance(frame, DataReply) and (reply := self._replies.pop(frame.number, None)) is not None:
                reply.set_result(frame)

    async def _ask(self, ask: Ask) -> DataReply:
        """Send a request for data to the gateway, and return the reply. Raises the fault that the reply holds."""
        self._asked += 1
        request = DataRequest(self._asked, ask)
        future = self._replies[request.number] = asyncio.get_running_loop().create_future()
        await _send(self._writer, request)
        reply = await future
        if reply.fault is not None:
            raise FaultError.of(reply.fault)
        return reply


if __name__ == "__main__":
    main(sys.argv[1:])
