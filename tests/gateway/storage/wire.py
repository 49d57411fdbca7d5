"""A proxy between a gateway and PostgreSQL that a test can cut.

It runs in a separate thread, because a gateway that stops waits for its threads and blocks the loop of the test.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Literal

from sqlalchemy.engine import make_url

Commit = Literal["stored", "lost before", "lost after", "late"]
"""Fate of a commit. It passes, it does not reach the server, its answer does not come back, or it reaches the server
long after the gateway has lost the connection (`Wire.deliver`)."""
Way = Literal["asked", "answered"]
"""Direction: from the gateway to the server, or back."""
_WRITES: Final = b"counted; COMMIT"
"""End of a transaction that writes. A reader, or the settlement of a lost commit, ends with a plain COMMIT."""
BOUND: Final = 30.0
"""Timeout for actions of the proxy itself, in seconds."""


class Wire:
    """Proxy to the server. Its methods may be called from any thread except the proxy's."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self._server = (parsed.host or "127.0.0.1", parsed.port or 5432)
        self._url = parsed.set(host="127.0.0.1")
        self.url = ""
        """URL of the database through the proxy."""
        self.cut_before = b""
        """Bytes of a request that does not reach the server: the proxy cuts all connections before it, permanently."""
        self.cut_after = b""
        """Bytes of a request whose answer does not come back: the proxy cuts all connections after it."""
        self.freeze_after = b""
        """Bytes of a request that reaches the server. After it, this one connection drops all data in both directions,
        as for a frozen gateway, or behind a router that has lost its state."""
        self.frozen = threading.Event()
        """Set once a connection was frozen by `freeze_after`."""
        self.commits = deque[Commit]()
        """Fates of the next commits. All later ones pass."""
        self._whole = True
        self._answered = False
        self._frozen: frozenset[Way] = frozenset()
        self._late: Callable[[], None] | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()

    def cut(self) -> None:
        """Abort all connections, and refuse new ones."""
        self._call(self._cut)

    def mend(self) -> None:
        """Let connections through again."""
        self._whole = True

    def freeze(self, *ways: Way) -> None:
        """Drop all data in these directions, by default both, without closing connections.

        Neither end notices, as with a network that drops packets.
        """
        self._frozen = frozenset[Way](ways or ("asked", "answered"))

    def thaw(self) -> None:
        """Stop dropping data, and abort all open connections, because some of their data is lost."""
        self._frozen = frozenset[Way]()
        self._call(self._abort)

    @property
    def is_holding(self) -> bool:
        """True while a commit is held back until `deliver`."""
        return self._late is not None

    def deliver(self) -> None:
        """Send the commit that was held back, and close its connection."""
        late, self._late = self._late, None
        assert late is not None
        self._call(late)

    @contextmanager
    def running(self) -> Generator["Wire"]:
        thread = threading.Thread(target=self._loop.run_forever, name="wire")
        thread.start()
        listening: Future[asyncio.Server] = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._join, "127.0.0.1", 0), self._loop
        )
        try:
            port = listening.result(BOUND).sockets[0].getsockname()[1]
            self.url = self._url.set(port=port).render_as_string(hide_password=False)
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(listening.result(BOUND)), self._loop).result(BOUND)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(BOUND)
            self._loop.close()

    def _call(self, what: Callable[[], None]) -> None:
        done = Future[None]()

        def call() -> None:
            what()
            done.set_result(None)

        self._loop.call_soon_threadsafe(call)
        done.result(BOUND)

    def _cut(self) -> None:
        self._whole = False
        self._abort()

    def _abort(self) -> None:
        for each in self._open:
            each.transport.abort()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        self._cut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _join(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        if not self._whole:
            near.transport.abort()
            return
        ends = {near}
        self._open.add(near)
        try:
            with suppress(OSError, asyncio.CancelledError):  # also if the server does not listen
                far_reader, far = await asyncio.open_connection(*self._server)
                ends.add(far)
                self._open.add(far)
                lost, dead = asyncio.Event(), asyncio.Event()
                await asyncio.gather(
                    self._ask(near_reader, near, far, lost, dead), self._answer(far_reader, near, lost, dead)
                )
        finally:
            self._open -= ends
            for each in ends:
                each.transport.abort()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        near: asyncio.StreamWriter,
        far: asyncio.StreamWriter,
        lost: asyncio.Event,
        dead: asyncio.Event,
    ) -> None:
        while data := await reader.read(2**16):
            if "asked" in self._frozen or dead.is_set():
                continue
            if self.freeze_after and self.freeze_after in data:
                self.freeze_after = b""
                dead.set()
                self.frozen.set()
            if b"COMMIT" in data and self.commits and (self.commits[0] != "late" or _WRITES in data):
                match self.commits.popleft():
                    case "lost before":
                        break
                    case "lost after":
                        lost.set()
                    case "late":
                        near.transport.abort()
                        self._late = partial(_pass_on_and_end, far, data)
                        return
                    case "stored":
                        pass
            if self.cut_before and self.cut_before in data:
                self.cut_before = b""
                self._cut()
                return
            if self.cut_after and self.cut_after in data:
                self.cut_after = b""
                self._answered = True
            far.write(data)
            await far.drain()
        if not dead.is_set():  # the server must not notice the end of a frozen connection, so that its session stays
            far.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, near: asyncio.StreamWriter, lost: asyncio.Event, dead: asyncio.Event
    ) -> None:
        while data := await reader.read(2**16):
            if lost.is_set():
                break
            if "answered" in self._frozen or dead.is_set():
                continue
            if self._answered:
                self._answered = False
                self._cut()
                return
            near.write(data)
            await near.drain()
        near.transport.abort()


def _pass_on_and_end(far: asyncio.StreamWriter, data: bytes) -> None:
    far.write(data)
    far.write_eof()
