"""Control of the gateways of `victim`: start and kill them, steer their agents, and read the database afterwards."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from sqlalchemy import Connection

from babelgate.canonical.event import Record
from babelgate.gateway.storage.database import open_database
from babelgate.gateway.storage.log_pages import read_page
from tests import loopback
from tests.gateway.command import ROOT
from tests.gateway.hubs import within
from tests.gateway.invariant import check_database
from tests.gateway.victim import CONTROL, READY

T = TypeVar("T")
_BOUND: Final = 30.0
_STARTING: Final = 120.0
"""Timeout of a start, in seconds. Several processes may import everything at the same time on a busy machine."""


class Puppet:
    """One activation of an agent, which the test controls."""

    def __init__(self, hello: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        self.text: str = hello["text"]
        self.attempt: int = hello["attempt"]
        self.task_id: str = hello["task_id"]
        self.words: list[str] = []
        self._writer = writer

    @property
    def content(self) -> str:
        return "".join(self.words)

    def say(self, count: int = 1) -> None:
        """Send `count` more words, each with its number."""
        for _ in range(count):
            self.words.append(f"{self.text}/{len(self.words)} ")
            self._order(self.words[-1])

    def end(self) -> None:
        self._order(None)

    def _order(self, word: str | None) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(word).encode() + b"\n")


class Puppets:
    """All activations of agents, in the order in which they connected."""

    def __init__(self) -> None:
        self.order: list[Puppet] = []
        self.ending = False
        """True if new activations send a few words and end."""
        self._news = asyncio.Condition()
        self._known: set[asyncio.StreamWriter] = set()

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._known.add(writer)
        line = await reader.readline()
        if not line:  # killed before it could send its first line
            writer.close()
            return
        puppet = Puppet(json.loads(line), writer)
        self.order.append(puppet)
        if self.ending:
            puppet.say(3)
            puppet.end()
        async with self._news:
            self._news.notify_all()

    async def called(self, text: str, attempt: int = 1) -> Puppet:
        """Wait until an agent is called for this attempt of the run with that input text. Return the puppet of the
        call."""

        def found() -> list[Puppet]:
            return [puppet for puppet in self.order if puppet.text == text and puppet.attempt == attempt]

        async with self._news:
            await within(self._news.wait_for(found), f"attempt {attempt} of {text}", _BOUND)
        return found()[0]

    def end_all(self) -> None:
        """End all activations, and those that are still to come."""
        self.ending = True
        for puppet in self.order:
            puppet.end()

    def hang_up(self) -> None:
        for writer in self._known:
            writer.close()


@asynccontextmanager
async def puppets() -> AsyncGenerator[Puppets]:
    """Listen for the agents of this process and of the processes that it starts."""
    group = Puppets()
    server = await asyncio.start_server(group.welcome, "127.0.0.1", 0)
    before = os.environ.get(CONTROL)
    os.environ[CONTROL] = str(server.sockets[0].getsockname()[1])
    try:
        yield group
    finally:
        if before is None:
            del os.environ[CONTROL]
        server.close()
        group.hang_up()


class Moment:
    """Trigger that kills the gateway when all readers together have received that many frames."""

    def __init__(self, frames: int, stage: "Stage") -> None:
        self.frames = frames
        self.count = 0
        self.armed = False
        """True if frames are counted."""
        self._stage = stage
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def tick(self) -> None:
        self.count += self.armed
        if self.count == self.frames:
            self._stage.kill()
        for count, event in self._waiting:
            if self.count >= count:
                event.set()

    async def reached(self, count: int) -> None:
        event = asyncio.Event()
        self._waiting.append((count, event))
        if self.count >= count:
            event.set()
        await within(event.wait(), f"frame {count}", _BOUND)


class Nursery:
    """Process that forks the gateways. One gateway runs at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_ready = False

    async def _order(self, folder: Path) -> None:
        """Request a gateway on this folder, once the process has imported everything."""
        assert self._process.stdin is not None
        if not self._is_ready:
            assert (await self._line(_STARTING)).strip() == READY
            self._is_ready = True
        self._process.stdin.write(f"{folder}\n".encode())

    async def _line(self, seconds: float = _BOUND) -> str:
        assert self._process.stdout is not None
        line = await within(self._process.stdout.readline(), "a line of the gateway", seconds)
        assert line, "the process that starts the gateways has ended"
        return line.decode()

    async def start(self, folder: Path) -> tuple[int, str]:
        """Start a gateway, wait until it listens, and return its pid and its URL."""
        await self._order(folder)
        pid, url, ready = 0, "", False
        while not (pid and ready):
            line = await self._line(_STARTING)
            if line.startswith("{"):
                report = json.loads(line)
                assert "pid" in report, (folder / "stderr.txt").read_text()
                pid = report["pid"]
            elif (serves := re.search(r"serves (http\S+)", line)) is not None:
                url = serves[1]
            ready = ready or "Ctrl-C" in line
        return pid, url

    async def begin(self, folder: Path) -> int:
        """Start a gateway, and return its pid. It may not listen yet."""
        await self._order(folder)
        while not (line := await self._line()).startswith('{"pid"'):
            pass
        return json.loads(line)["pid"]

    async def ended(self) -> int | None:
        """Wait for the end of the gateway, and return the signal that ended it, if any."""
        while not (line := await self._line()).startswith('{"signal"'):
            pass
        return json.loads(line)["signal"]


@asynccontextmanager
async def nursery() -> AsyncGenerator[Nursery]:
    """Start the process that forks gateways. All gateways must have ended at the end of the block."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_") and name != "PORT"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.gateway.victim",
        cwd=ROOT,
        env={**env, "COLUMNS": "100"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()
        await within(process.wait(), "the end of the process that starts gateways")
    finally:
        if process.returncode is None:
            # Kill also a gateway whose start was not reported: it holds the pipe open that `wait` waits for.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


class Stage:
    """Folder, and control over the gateway that runs on it. At most one gateway at a time runs on the folder."""

    def __init__(self, folder: Path, nursery: Nursery, settings: Mapping[str, Any], port: int | None = None) -> None:
        """Write the settings. Each gateway listens on `port`, or on a free port if it is None."""
        self.folder = folder
        self._port = port
        if port is not None:
            (folder / "port").write_text(str(port))
        self.http = loopback.client()
        """Client of the last gateway that was started."""
        self._nursery = nursery
        self._pid: int | None = None
        self._url: str = settings.get("database") or f"sqlite:///{folder / 'gateway.db'}"
        self._blobs = Path(settings.get("blobs") or folder / "gateway.blobs")
        content = {"database": self._url, "network": {"allow": ["127.0.0.0/8"]}, **settings}
        (folder / "babelgate.yaml").write_text(json.dumps(content))

    @property
    def pid(self) -> int | None:
        return self._pid

    async def ended(self) -> None:
        """Wait until the gateway has ended without a signal."""
        self._pid = None
        assert await self._nursery.ended() is None

    @property
    def dead(self) -> bool:
        return self._pid is None

    async def start(self) -> httpx.AsyncClient:
        await self.http.aclose()
        self._pid, url = await self._nursery.start(self.folder)
        if self._port is not None:  # the gateway may print the URL of a proxy
            url = f"http://127.0.0.1:{self._port}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.http = loopback.client(base_url=url, timeout=httpx.Timeout(_BOUND), limits=limits)
        return self.http

    def kill(self) -> None:
        """Send SIGKILL to the gateway, if it runs."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = None

    def signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            os.kill(self._pid, number)

    async def kill_while_it_starts(self, seconds: float) -> None:
        """Start a gateway, and kill it after so many seconds."""
        self._pid = await self._nursery.begin(self.folder)
        await asyncio.sleep(seconds)
        await self.killed()

    async def killed(self) -> None:
        """Kill the gateway, wait for its end, and check the invariants of its database."""
        self.kill()
        assert await self._nursery.ended() == signal.SIGKILL
        self.check()

    async def restart(self) -> httpx.AsyncClient:
        await self.killed()
        return await self.start()

    def check(self) -> None:
        self.query(partial(check_database, blobs=self._blobs))

    def query(self, read: Callable[[Connection], T]) -> T:
        engine = open_database(self._url).open_readers(1)
        try:
            with engine.connect() as connection, connection.begin():
                return read(connection)
        finally:
            engine.dispose()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.query(lambda connection: [tuple(row) for row in connection.exec_driver_sql(statement)])

    def records(self, statement: str) -> list[Record]:
        """Return all records of the threads whose keys the statement returns."""

        def read(connection: Connection) -> list[Record]:
            found: list[Record] = []
            for (pk,) in connection.exec_driver_sql(statement).all():
                after = 0
                while page := read_page(connection, pk, after, 512):
                    found += page
                    after = page[-1].seq
            return found

        return self.query(read)

    def complaints(self) -> str:
        """Return all that the gateways have written to stderr so far."""
        return (self.folder / "stderr.txt").read_text()

    async def close(self) -> None:
        if self._pid is not None:
            await self.killed()
        await self.http.aclose()
