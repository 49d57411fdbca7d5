"""The test's side of `victim`: starts and kills gateways on one folder, pulls the strings of their agents, and looks
into the database that a killed gateway left."""

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
"""Seconds: several processes that import everything at the same time, on a machine with other work."""


class Puppet:
    """One activation of an agent."""

    def __init__(self, hello: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        self.text: str = hello["text"]
        self.attempt: int = hello["attempt"]
        self.task_id: str = hello["task_id"]
        self.words: list[str] = []
        self._writer = writer

    @property
    def said(self) -> str:
        return "".join(self.words)

    def say(self, count: int = 1) -> None:
        """That many words more, each with its number."""
        for _ in range(count):
            self.words.append(f"{self.text}/{len(self.words)} ")
            self._order(self.words[-1])

    def end(self) -> None:
        self._order(None)

    def _order(self, word: str | None) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(word).encode() + b"\n")


class Puppets:
    """All activations, by the text that their runs were created with."""

    def __init__(self) -> None:
        self.order: list[Puppet] = []
        self.ending = False
        """New ones are told to say a few words and to end."""
        self._news = asyncio.Condition()
        self._known: set[asyncio.StreamWriter] = set()

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._known.add(writer)
        line = await reader.readline()
        if not line:  # killed before it could say who it is
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
        """The activation of that text."""

        def found() -> list[Puppet]:
            return [puppet for puppet in self.order if puppet.text == text and puppet.attempt == attempt]

        async with self._news:
            await within(self._news.wait_for(found), f"attempt {attempt} of {text}", _BOUND)
        return found()[0]

    def end_all(self) -> None:
        """From now on nobody waits for the test."""
        self.ending = True
        for puppet in self.order:
            puppet.end()

    def hang_up(self) -> None:
        for writer in self._known:
            writer.close()


@asynccontextmanager
async def puppets() -> AsyncGenerator[Puppets]:
    """Listens for agents in this process and in those that it starts."""
    made = Puppets()
    server = await asyncio.start_server(made.welcome, "127.0.0.1", 0)
    before = os.environ.get(CONTROL)
    os.environ[CONTROL] = str(server.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        if before is None:
            del os.environ[CONTROL]
        server.close()
        made.hang_up()


class Moment:
    """Kills the gateway when that many frames were received by all readers together."""

    def __init__(self, frames: int, stage: "Stage") -> None:
        self.frames = frames
        self.count = 0
        self.armed = False
        """Before that, frames do not count."""
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
    """The process whose forks are the gateways; one lives at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._is_ready = False

    async def _order(self, folder: Path) -> None:
        """One to start, when there is something to fork."""
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
        """A gateway that listens: its process and its URL."""
        await self._order(folder)
        pid, url, ready = 0, "", False
        while not (pid and ready):
            line = await self._line(_STARTING)
            if line.startswith("{"):
                told = json.loads(line)
                assert "pid" in told, (folder / "stderr.txt").read_text()
                pid = told["pid"]
            elif (serves := re.search(r"serves (http\S+)", line)) is not None:
                url = serves[1]
            ready = ready or "Ctrl-C" in line
        return pid, url

    async def begin(self, folder: Path) -> int:
        """A gateway that may not listen yet: its process."""
        await self._order(folder)
        while not (line := await self._line()).startswith('{"pid"'):
            pass
        return json.loads(line)["pid"]

    async def ended(self) -> int | None:
        """By which signal."""
        while not (line := await self._line()).startswith('{"signal"'):
            pass
        return json.loads(line)["signal"]


@asynccontextmanager
async def nursery() -> AsyncGenerator[Nursery]:
    """To be left when its gateways are dead."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_") and name != "PORT"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.gateway.victim",
        cwd=ROOT,
        env={**kept, "COLUMNS": "100"},
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
            # With a gateway that was not known to have started: it has the pipe that is waited for to be closed.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


class Stage:
    """One folder, with one gateway at a time on it."""

    def __init__(self, folder: Path, nursery: Nursery, settings: Mapping[str, Any], port: int | None = None) -> None:
        """`port` = the one that all of its gateways listen on; without it each takes a free one."""
        self.folder = folder
        self._port = port
        if port is not None:
            (folder / "port").write_text(str(port))
        self.http = loopback.client()
        """Of the gateway that was started last."""
        self._nursery = nursery
        self._pid: int | None = None
        self._url: str = settings.get("database") or f"sqlite:///{folder / 'gateway.db'}"
        self._blobs = Path(settings.get("blobs") or folder / "gateway.blobs")
        given = {"database": self._url, "network": {"allow": ["127.0.0.0/8"]}, **settings}
        (folder / "babelgate.yaml").write_text(json.dumps(given))

    @property
    def pid(self) -> int | None:
        return self._pid

    async def ended(self) -> None:
        """Until it has ended by itself."""
        self._pid = None
        assert await self._nursery.ended() is None

    @property
    def dead(self) -> bool:
        return self._pid is None

    async def start(self) -> httpx.AsyncClient:
        await self.http.aclose()
        self._pid, url = await self._nursery.start(self.folder)
        if self._port is not None:  # what it says may be the URL of whatever stands before it
            url = f"http://127.0.0.1:{self._port}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.http = loopback.client(base_url=url, timeout=httpx.Timeout(_BOUND), limits=limits)
        return self.http

    def kill(self) -> None:
        """At once: SIGKILL."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = None

    def signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            os.kill(self._pid, number)

    async def kill_while_it_starts(self, seconds: float) -> None:
        """So long after it began."""
        self._pid = await self._nursery.begin(self.folder)
        await asyncio.sleep(seconds)
        await self.killed()

    async def killed(self) -> None:
        """Until it is dead. What it left is a database of which every invariant holds."""
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
        """Of the threads whose keys the statement gives, all of them."""

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
        """What went to stderr of all gateways so far."""
        return (self.folder / "stderr.txt").read_text()

    async def close(self) -> None:
        if self._pid is not None:
            await self.killed()
        await self.http.aclose()
