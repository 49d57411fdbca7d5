"""Connections that carry messages in both directions: a WebSocket, and the standard streams of a process."""

import asyncio
import contextlib
import os
import shlex
from collections.abc import Mapping
from typing import Final, Protocol

import aiohttp

from babelgate.conformance.wire.tls import open_context

PROCESS: Final = "stdio:"
"""Prefix of an address that is a command: `stdio:my-agent --acp`."""
_LIMIT: Final = 32 * 2**20
"""Maximum size of one message in bytes. Chosen: agents send images in one message."""
_END: Final = 3.0
"""Seconds in which a process must end after its standard input is closed. After that it is killed. Chosen."""
_SHOWN: Final = 500
"""Maximum number of bytes of a process's error output that a report shows. Chosen."""


class LinkLost(Exception):
    """Error for a connection that cannot be opened, or has ended; the message is the reason."""

    def __init__(self, why: str, status: int | None = None) -> None:
        """Create the error. `status` is the HTTP status with which a server refused the connection; None if there was
        no such answer."""
        super().__init__(why)
        self.status = status


class Link(Protocol):
    async def send(self, text: str) -> None:
        """Send one message. Raises LinkLost."""
        ...

    async def receive(self) -> str | None:
        """Return the next message, or None at the end of the connection."""
        ...

    async def aclose(self) -> None: ...


async def open_link(address: str, headers: Mapping[str, str], bound: float) -> "SocketLink | ProcessLink":
    """Open the connection to a WebSocket URL, or start the command of a `stdio:` address. `headers` are those of the
    WebSocket's handshake, and `bound` is its maximum duration in seconds.

    Raises LinkLost if the server refuses the connection, or the command cannot be executed.
    """
    if address.startswith(PROCESS):
        return await ProcessLink.start(address.removeprefix(PROCESS))
    return await SocketLink.open(address, headers, bound)


class SocketLink:
    """WebSocket that carries one message in each text frame."""

    def __init__(self, http: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._http = http
        self._socket = socket

    @classmethod
    async def open(cls, url: str, headers: Mapping[str, str], bound: float) -> "SocketLink":
        """Open a WebSocket. Raises LinkLost if the server does not answer, or refuses it."""
        http = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(bound):
                socket = await http.ws_connect(url, headers=headers, max_msg_size=_LIMIT, ssl=open_context())
        except aiohttp.WSServerHandshakeError as error:
            await http.close()
            raise LinkLost(f"the server refuses a WebSocket with status {error.status}", error.status) from None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            await http.close()
            raise LinkLost(str(error) or type(error).__name__) from None
        return cls(http, socket)

    async def send(self, text: str) -> None:
        """Send one text frame. Raises LinkLost."""
        try:
            await self._socket.send_str(text)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise LinkLost(str(error) or type(error).__name__) from None

    async def receive(self) -> str | None:
        message = await self._socket.receive()
        return str(message.data) if message.type is aiohttp.WSMsgType.TEXT else None

    async def aclose(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END):
                await self._socket.close()
        await self._http.close()


class ProcessLink:
    """Process that reads one message in each line of its standard input, and writes one in each line of its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = asyncio.ensure_future(self._read_errors())
        self._shown = b""

    @classmethod
    async def start(cls, command: str) -> "ProcessLink":
        """Start a command. Raises LinkLost if it cannot be executed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LIMIT,
                env=dict(os.environ),
            )
        except (OSError, ValueError) as error:
            raise LinkLost(f"the command cannot be started: {error}") from None
        return cls(process)

    async def send(self, text: str) -> None:
        """Write one line. Raises LinkLost if the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{text}\n".encode())
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):
            raise LinkLost(await self.describe_end()) from None

    async def receive(self) -> str | None:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:  # a line above the limit
            return None
        return line.decode("utf-8", errors="replace").rstrip("\r\n") if line else None

    async def end_input(self, bound: float) -> None:
        """Close the standard input of the process. Raises TimeoutError unless the process ends within `bound`
        seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(bound):
            await self._process.wait()

    async def aclose(self) -> None:
        try:
            await self.end_input(_END)
        except TimeoutError:
            self._process.kill()
            assert self._process.stdout is not None
            # asyncio closes a pipe only when it is empty. A child of the process may hold the pipe open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END):
                    await self._process.stdout.read()
            await self._process.wait()
        self._errors.cancel()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(4096):
            self._shown = (self._shown + chunk)[-_SHOWN:]

    async def describe_end(self) -> str:
        """Return how the process has ended, with the end of its error output."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END):
                await self._process.wait()
        words = " ".join(self._shown.decode("utf-8", errors="replace").split())
        return f"the command ended with status {self._process.returncode}" + (f": {words}" if words else "")
