"""Agent in Python, or graph, that runs in a separate process (`process: true`).

If it blocks its event loop or crashes, only its own runs fail. The process is then started again.
"""

import asyncio
import logging
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from babelgate.canonical.agent import AgentInfo, Invocation
from babelgate.canonical.event import Event
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.agents.call_data import GraphData
from babelgate.gateway.agents.processes.call_replies import CallReplies
from babelgate.gateway.agents.processes.frames import (
    FROM_PROCESS,
    CallData,
    DataRequest,
    EventFrame,
    FirstFrame,
    Forget,
    GraphDescribed,
    Ping,
    Pong,
    ProcessReady,
    ProcessUnusable,
    RunFinished,
    Setup,
    StartRun,
    ToProcess,
    encode_frame,
    read_frame,
)
from babelgate.gateway.agents.processes.process import Child, Supervisor, Unstartable

log = logging.getLogger("babelgate.process")

_CHILD: Final = "babelgate.gateway.agents.processes.child"
_BUFFER: Final = 2**20
"""Limit of the read buffer of a connection to the process, in bytes. Chosen."""
_PONG: Final = 10.0
"""Seconds within which a process must answer a `Ping` after one of its runs was cancelled. Otherwise it is killed.
Chosen."""
_EXIT: Final = 2.0
"""Seconds to wait for the exit of a process. If the process has closed a connection, the gateway waits to report how it
ended. If the gateway has closed the control connection, it sends SIGTERM after this time. Chosen."""
_BACKLOG: Final = 1000
"""Maximum number of connections that wait until the process accepts them. Each run has one. Chosen."""


class AgentProcess:
    """Running process that has imported its agent, and accepts runs."""

    def __init__(
        self,
        child: Child,
        ready: ProcessReady,
        folder: Path,
        control: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Create the handle of a process that has sent `ProcessReady`. `folder` contains the socket at which the
        process accepts runs; `stop` removes it."""
        self.ready = ready
        self._child = child
        self._folder = folder
        self._reader, self._writer = control
        self._pongs: list[asyncio.Future[None]] = []
        self._reading = asyncio.ensure_future(self._read_pongs())

    @classmethod
    async def start(cls, setup: Setup, patience: float, memory: int | None) -> "AgentProcess":
        """Start a process, wait until it has imported the agent, and return its handle.

        Raises Unstartable if the agent cannot be imported. Raises OSError if the process cannot be started or ends
        before the import, and TimeoutError if that takes longer than `patience` seconds.
        """
        folder = Path(tempfile.mkdtemp(prefix="babelgate-"))
        gateway, process = socket.socketpair()
        listener = socket.socket(socket.AF_UNIX)
        child = control = None
        try:
            with process, listener:
                listener.bind(str(folder / "agent"))
                listener.listen(_BACKLOG)
                descriptors = (process.fileno(), listener.fileno())
                command = (sys.executable, "-m", _CHILD, *map(str, descriptors))
                child = await Child.spawn(setup.name, command, descriptors=descriptors, memory=memory)
            control = await asyncio.open_connection(sock=gateway, limit=_BUFFER)
            control[1].write(encode_frame(setup))
            async with asyncio.timeout(patience):
                frame = await read_frame(control[0], FROM_PROCESS)
            if isinstance(frame, ProcessReady):
                return cls(child, frame, folder, control)
            if isinstance(frame, ProcessUnusable):
                raise Unstartable(frame.reason)
            raise OSError(f"its process {await child.wait()} before the agent was imported")
        except BaseException as error:
            if control is not None:
                control[1].close()
            gateway.close()
            shutil.rmtree(folder, ignore_errors=True)
            if child is not None:
                await child.stop()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"its process has not imported the agent within {patience:g} s") from None
            raise

    async def wait(self) -> str:
        return await self._child.wait()

    async def stop(self) -> None:
        """Close the control connection, which ends the process, and terminate the process if it has not ended 2 seconds
        later."""
        self._reading.cancel()
        self._writer.close()
        await self._child.stop(_EXIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the connection of one run. Raises OSError if the process does not accept it."""
        return await asyncio.open_unix_connection(str(self._folder / "agent"), limit=_BUFFER)

    def send(self, frame: ToProcess) -> None:
        """Send a frame on the control connection. A process that has ended does not receive it."""
        with suppress(OSError):
            self._writer.write(encode_frame(frame))

    async def find_end(self) -> str | None:
        """Return how the process has ended, such as `was killed by SIGSEGV`. Return None if it still runs after 2
        seconds."""
        try:
            async with asyncio.timeout(_EXIT):
                return await self._child.wait()
        except TimeoutError:
            return None

    async def kill_blocked(self) -> bool:
        """Kill the process unless it answers a `Ping` within 10 seconds or ends. Return True if it was killed."""
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self.send(Ping())
        try:
            async with asyncio.timeout(_PONG):
                await pong
        except TimeoutError:
            if self._child.has_ended:
                return False
            self._child.kill()
            return True
        return False

    async def _read_pongs(self) -> None:
        with suppress(ConnectionError):
            while (frame := await read_frame(self._reader, FROM_PROCESS)) is not None:
                if isinstance(frame, Pong) and self._pongs:
                    pong = self._pongs.pop(0)
                    if not pong.done():
                        pong.set_result(None)
        for pong in self._pongs:  # the process has ended
            if not pong.done():
                pong.set_result(None)


class ProcessAgent:
    """Agent in a separate process, which is started again when it ends."""

    def __init__(
        self, target: str, name: str, *, replay: bool, patience: float, memory: int | None, is_graph: bool = False
    ) -> None:
        """Create the agent; `open` starts its process.

        `target` is its import path. `is_graph` is True if the target must be a graph. `replay` is the agent's setting:
        True if a lost paused generator may run again from its beginning. The process has `patience` seconds to import
        the agent. `memory` limits its address space in bytes; None is no limit.
        """
        self.name = name
        self._patience = patience
        level = logging.getLevelName(logging.getLogger("babelgate").getEffectiveLevel())
        setup = Setup(target, name, is_graph, replay, tuple(sys.path), level)
        self._supervisor = Supervisor(f"process of agent={name}", partial(AgentProcess.start, setup, patience, memory))
        self._checks: dict[int, asyncio.Task[None]] = {}
        """Running checks whether a process is blocked, by the `id()` of its `AgentProcess`."""
        self.is_graph = False
        """True if the agent is a graph, which stores its state in the gateway. Known after `open`."""
        self.data: GraphData | None = None
        """Access to the gateway's database for the calls of a graph."""

    async def open(self) -> AgentInfo:
        """Start the process, and return the description of the agent. Raises Unstartable with the reason."""
        self._supervisor.run()
        await self._supervisor.until_attempted()
        process = self._supervisor.current
        if not isinstance(process, AgentProcess):
            await self.aclose()
            raise Unstartable(self._supervisor.problem or "its process could not be started")
        self.is_graph = process.ready.is_graph
        return process.ready.info

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        """Yield the events of a run.

        Raises the fault of the agent, agent_failed if the process ends during the run, and agent_unreachable if it
        cannot be started in time.
        """
        async with aclosing(self.exchange(StartRun(CallData.of(call)), call)) as frames:
            async for frame in frames:
                if isinstance(frame, EventFrame):
                    yield frame.event

    async def exchange(
        self, first: FirstFrame, call: Invocation | None = None
    ) -> AsyncGenerator[EventFrame | GraphDescribed]:
        """Open a connection with the frame `first`, and yield the answers. Answer the requests of the process for data
        of `call`.

        Raises the fault of the agent, agent_failed if the process ends meanwhile, and agent_unreachable if it cannot be
        started in time.
        """
        process, reader, writer = await self._connect()
        replies = None if call is None else CallReplies(call, self.data)
        try:
            writer.write(encode_frame(first))
            while True:
                try:
                    frame = await read_frame(reader, FROM_PROCESS)
                except ConnectionError:
                    frame = None
                if isinstance(frame, EventFrame | GraphDescribed):
                    yield frame
                elif isinstance(frame, DataRequest) and replies is not None:
                    writer.write(encode_frame(await replies.answer(frame)))
                elif isinstance(frame, RunFinished):
                    if frame.fault is not None:
                        raise FaultError.of(frame.fault)
                    return
                else:
                    raise await self._describe_crash(process)
        except (GeneratorExit, asyncio.CancelledError):
            self._check_later(process)
            raise
        finally:
            writer.close()

    def forget(self, owner: str, task_id: str) -> None:
        """Close the paused generator of a task that ended while it was paused."""
        if isinstance(process := self._supervisor.current, AgentProcess):
            process.send(Forget(owner, task_id))

    async def aclose(self) -> None:
        """End the process, and cancel the checks whether it is blocked."""
        for task in self._checks.values():
            task.cancel()
        await self._supervisor.aclose()

    async def _process(self) -> AgentProcess:
        """Return the running process. A restart that is due within `patience` seconds is awaited. Raises
        agent_unreachable if the process does not run after that."""
        await self._supervisor.is_ready(self._patience)
        process = self._supervisor.current
        if isinstance(process, AgentProcess):
            return process
        log.warning("process of agent=%s not running reason=%s", self.name, self._supervisor.problem)
        raise FaultError(
            FaultCode.AGENT_UNREACHABLE,
            f"Agent {self.name} is not available: its process could not be started. The log of the gateway has the "
            "reason.",
        )

    async def _connect(self) -> tuple[AgentProcess, asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the running process and a new connection to it. A process that has just ended is replaced first, so
        that its end fails no run that has not begun. Raises agent_unreachable."""
        while True:
            process = await self._process()
            try:
                return process, *await process.connect()
            except OSError as error:
                if await process.find_end() is None:
                    words = f"The process of agent {self.name} cannot be reached ({type(error).__name__})."
                    raise FaultError(FaultCode.AGENT_UNREACHABLE, words) from None
                await self._supervisor.until_ended(process)

    async def _describe_crash(self, process: AgentProcess) -> FaultError:
        how = await process.find_end() or "closed the connection"
        return FaultError(FaultCode.AGENT_FAILED, f"The process of agent {self.name} {how} during the run.")

    def _check_later(self, process: AgentProcess) -> None:
        """Check in the background whether a process is blocked, after one of its runs was cancelled."""
        key = id(process)
        if key not in self._checks:
            self._checks[key] = asyncio.ensure_future(self._check(process))
            self._checks[key].add_done_callback(lambda _: self._checks.pop(key, None))

    async def _check(self, process: AgentProcess) -> None:
        if await process.kill_blocked():
            log.warning("process of agent=%s killed: it blocked its event loop after a run was cancelled", self.name)
