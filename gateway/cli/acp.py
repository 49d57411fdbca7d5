"""`babelgate acp`: a pipe between an editor, which speaks the Agent Client Protocol over stdio, and the WebSocket of a
running gateway.

The gateway implements the protocol; the pipe passes its messages on. If the connection breaks, the pipe opens another
one and attaches to the active turns, so that the editor receives the rest of them.
"""

import asyncio
import json
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit
from uuid import uuid4

import aiohttp

from babelgate.adapters.kit.client.tls import default_context
from babelgate.gateway.cli.errors import USAGE, CliError

_PATIENCE: Final = 60.0
"""Seconds during which the pipe tries to replace a broken connection. Chosen: longer than a restart of a gateway."""
_FIRST_PAUSE: Final = 0.1
"""Seconds between the first and the second attempt to reconnect. Each further pause is twice as long, up to
`_LONGEST_PAUSE`."""
_LONGEST_PAUSE: Final = 5.0
_TIMEOUT: Final = 10.0
"""Maximum duration of one attempt to connect or to initialize a connection, in seconds. Chosen."""
_HEARTBEAT: Final = 30.0
"""Seconds between pings, which detect a broken connection. Chosen."""

_AUTH_REQUIRED: Final = -32000
_NOT_FOUND: Final = -32002
_INTERNAL: Final = -32603
_POLICY: Final = 1008
"""WebSocket close code by which the gateway reports that it has no agent of this name."""
_ATTACH: Final = "_babelgate/attach"
_OWN: Final = "babelgate"

Wire = dict[str, Any]
Id = int | str


def run_pipe(agent: str, url: str, key: str | None, on_disconnect: str) -> None:
    """Connect stdin and stdout to an agent of the gateway at `url`, until stdin ends. Raises CliError for an invalid
    URL or key.

    `key` is the API key, if the gateway needs one. `on_disconnect` is `continue` or `cancel`, and says what the gateway
    does with active runs when the editor disconnects.
    """
    if not url.startswith(("http://", "https://")):
        raise CliError(f"--url {url}: a URL begins with http:// or https://", code=USAGE)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise CliError("--key: a key is printable ASCII", code=USAGE)
    # Standard output belongs to the protocol, so output of libraries goes to standard error.
    output = os.dup(1)
    os.dup2(2, 1)
    address = f"{url.rstrip('/')}/agent-client/{quote(agent, safe='')}?on_disconnect={on_disconnect}"
    with asyncio.Runner() as runner:
        runner.run(EditorPipe(address, key, output).run())


@dataclass(slots=True)
class _Prompt:
    """Request `session/prompt` of the editor that the gateway has not answered."""

    message: Wire
    session_id: str
    key: str
    updates: int = 0
    """Number of `session/update` notifications that the editor has received for this prompt. The gateway skips as many
    when the pipe attaches to the turn again."""


class GatewayLost(Exception):
    """Failure to reach the gateway, or a refusal of its key or agent. `code` is the JSON-RPC error code for the
    editor."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class EditorPipe:
    """Pipe between one editor and the gateway. It stores the editor's unanswered requests, to continue them on a new
    connection."""

    def __init__(self, address: str, key: str | None, output: int) -> None:
        """Create the pipe. `address` is the URL of the agent's WebSocket, and `output` the file descriptor that the
        editor reads."""
        self._address = address
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._output = output
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._number = 0
        """Number of connections opened so far, which is also the number of the newest one."""
        self._connecting = asyncio.Lock()
        self._initialize: Wire | None = None
        """Params of the editor's `initialize` request, which the pipe repeats on each new connection. None before that
        request."""
        self._requests: dict[Id, Wire] = {}
        """Unanswered requests of the editor except prompts, by request id."""
        self._prompts: dict[Id, _Prompt] = {}
        self._sent: dict[Id, int] = {}
        """Number of the connection on which each request of the editor was last sent, by request id."""
        self._attached: dict[str, Id] = {}
        """Id of the prompt that each of the pipe's own attach requests continues, by the id of the attach request."""
        self._asked: set[Id] = set()
        """Ids of the gateway's requests that the editor has not answered."""
        self._ready: tuple[str, asyncio.Future[None]] | None = None
        """Id of the pipe's own `initialize` request on the newest connection, and a future that ends with its
        response."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Pass messages on until the editor closes stdin."""
        threading.Thread(target=self._read_stdin, args=(asyncio.get_running_loop(),), daemon=True).start()
        async with aiohttp.ClientSession() as self._http:
            try:
                while (line := await self._lines.get()) is not None:
                    if line.strip():
                        await self._from_editor(line)
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                if self._socket is not None:
                    await self._socket.close()

    def _read_stdin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the lines of stdin in a thread, and put them into the queue. The streams of asyncio limit the length of
        a line, and do not read files."""
        with suppress(RuntimeError):  # the loop is closed
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    # Editor

    async def _from_editor(self, line: bytes) -> None:
        """Handle one line of the editor: send its message to the gateway, or answer it with an error."""
        try:
            value: object = json.loads(line)
        except ValueError:
            self._fail(None, -32700, "The line is not JSON.")
            return
        if not isinstance(value, dict):
            self._fail(None, -32600, "The line is not a JSON-RPC message.")
            return
        message = cast("Wire", value)
        request_id: Any = message.get("id")
        method: object = message.get("method")
        if isinstance(method, str) and isinstance(request_id, int | str):
            message = self._register(method, request_id, message)
        elif method == "$/cancel_request":
            message = self._without_id(message)
        elif method is None:
            self._asked.discard(request_id)
        is_request = isinstance(method, str) and isinstance(request_id, int | str)
        try:
            await self._send(message, request_id if is_request else None)
            if method == "initialize":
                self._initialize = message.get("params") or {}
        except GatewayLost as lost:
            if isinstance(method, str) and is_request:
                self._refuse(request_id, method, lost)

    def _register(self, method: str, request_id: Id, message: Wire) -> Wire:
        """Store a request of the editor until its answer, and return it. A prompt is returned with a new key in
        `_meta`, by which the pipe can attach to its turn later."""
        params: Any = message.get("params")
        members = cast("Wire", params) if isinstance(params, dict) else {}
        session_id: object = members.get("sessionId")
        if method != "session/prompt" or not isinstance(session_id, str):
            self._requests[request_id] = message
            return message
        key = uuid4().hex
        meta: Any = members.get("_meta")
        meta = cast("Wire", meta) if isinstance(meta, dict) else {}
        marks: Any = meta.get(_OWN)
        marks = {**(cast("Wire", marks) if isinstance(marks, dict) else {}), "prompt": key}
        message = {**message, "params": {**members, "_meta": {**meta, _OWN: marks}}}
        self._prompts[request_id] = _Prompt(message, session_id, key)
        return message

    def _without_id(self, message: Wire) -> Wire:
        """Return the message to send for `$/cancel_request`. The cancel of a prompt becomes `session/cancel`, because
        on a new connection an attach request with another id continues the prompt."""
        params: Any = message.get("params")
        request_id: Any = cast("Wire", params).get("requestId") if isinstance(params, dict) else None
        prompt = self._prompts.get(request_id) if isinstance(request_id, int | str) else None
        if prompt is None:
            return message
        return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": prompt.session_id}}

    def _refuse(self, request_id: Id, method: str, lost: GatewayLost) -> None:
        """Answer a request of the editor with an error, because the gateway is not available. If the API key is
        refused, `initialize` succeeds nevertheless: editors restart an agent whose first answer is an error."""
        self._requests.pop(request_id, None)
        self._prompts.pop(request_id, None)
        if method == "initialize" and lost.code == _AUTH_REQUIRED:
            result: Wire = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}, "authMethods": []}
            self._write({"jsonrpc": "2.0", "id": request_id, "result": result})
        else:
            self._fail(request_id, lost.code, str(lost))

    def _fail(self, request_id: Id | None, code: int, words: str) -> None:
        self._write({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": words}})

    def _write(self, message: Wire) -> None:
        self._write_line(json.dumps(message, separators=(",", ":")))

    def _write_line(self, text: str) -> None:
        raw = memoryview(f"{text}\n".encode())
        while raw:
            raw = raw[os.write(self._output, raw) :]

    # Gateway

    async def _send(self, message: Wire, request_id: Id | None = None) -> None:
        """Send a message to the gateway, on a new connection if none is open. `request_id` is the id if the message is
        a request of the editor, which is sent only once on each connection. Raises GatewayLost."""
        for _ in range(2):
            socket = await self._open()
            if request_id is not None:
                if self._sent.get(request_id) == self._number:
                    return
                self._sent[request_id] = self._number
            try:
                await socket.send_str(json.dumps(message, separators=(",", ":")))
                return
            except ConnectionError:  # a request is sent again with the next connection, and a notification now
                if request_id is not None:
                    return

    async def _open(self) -> aiohttp.ClientWebSocketResponse:
        """Return the open connection, or open one and repeat the editor's `initialize` request on it. Raises
        GatewayLost."""
        async with self._connecting:
            if self._socket is None or self._socket.closed:
                socket = await self._connect()
                self._number += 1
                ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._ready = (f"{_OWN}-{uuid4().hex}", ready)
                self._start(self._listen(socket, ready))
                if self._initialize is not None:
                    await self._initialize_again(socket, self._ready[0], ready)
                self._socket = socket
            return self._socket

    async def _initialize_again(
        self, socket: aiohttp.ClientWebSocketResponse, request_id: str, ready: "asyncio.Future[None]"
    ) -> None:
        """Send the editor's `initialize` params on a new connection, and wait until `ready` shows the response. Raises
        GatewayLost if none arrives within 10 seconds."""
        request: Wire = {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": self._initialize}
        try:
            async with asyncio.timeout(_TIMEOUT):
                await socket.send_str(json.dumps(request))
                await ready
        except (TimeoutError, ConnectionError) as error:
            await socket.close()
            raise GatewayLost(_INTERNAL, f"The gateway at {self._base} does not answer.") from error

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to the gateway, and return it. Raises GatewayLost if the gateway does not answer or refuses
        the connection."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._http.ws_connect(
                    self._address, headers=self._headers, max_msg_size=0, heartbeat=_HEARTBEAT, ssl=default_context()
                )
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                words = "The gateway refuses the API key: set BABELGATE_KEY, or give --key."
                raise GatewayLost(_AUTH_REQUIRED, words) from error
            words = f"{self._base}: status {error.status}: the server is no gateway, or has no agent of this name."
            raise GatewayLost(_INTERNAL, words) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            words = f"No gateway answers at {self._base}: start one with babelgate serve, or name its URL with --url."
            raise GatewayLost(_INTERNAL, words) from error

    @property
    def _base(self) -> str:
        """URL of the gateway without a user and password."""
        parts = urlsplit(self._address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def _start(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse, ready: "asyncio.Future[None]") -> None:
        """Pass on the messages of a connection until it ends. Then cancel the gateway's open requests in the editor,
        and reconnect, or give up if the gateway has no agent of this name."""
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                await self._from_gateway(cast("str", message.data))
        if not ready.done():
            ready.set_exception(ConnectionResetError())
            ready.exception()  # retrieved, because no task may await it
        for request_id in self._asked:
            self._write({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": request_id}})
        self._asked.clear()
        if socket.close_code == _POLICY:
            self._give_up(GatewayLost(_INTERNAL, f"{self._base}: the gateway has no agent of this name."))
        elif socket is self._socket:
            await self._reconnect()

    async def _from_gateway(self, text: str) -> None:
        """Handle one message of the gateway. Responses to the pipe's own requests are not passed on to the editor; all
        other messages are."""
        message: Wire = json.loads(text)
        request_id: Any = message.get("id")
        method = message.get("method")
        if method is None and self._ready is not None and request_id == self._ready[0]:
            if not self._ready[1].done():
                self._ready[1].set_result(None)
        elif method is None and request_id in self._attached:
            await self._attach_answered(self._attached.pop(request_id), message)
        else:
            if method is None:
                self._requests.pop(request_id, None)
                self._prompts.pop(request_id, None)
                self._sent.pop(request_id, None)
            elif request_id is not None:
                self._asked.add(request_id)
            elif method == "session/update":
                self._count(message["params"]["sessionId"])
            self._write_line(text)

    def _count(self, session_id: str) -> None:
        for prompt in self._prompts.values():
            if prompt.session_id == session_id:
                prompt.updates += 1

    async def _attach_answered(self, request_id: Id, message: Wire) -> None:
        """Pass on the response to an attach request as the response to the prompt `request_id`. If the gateway does not
        know the prompt, because it never received it, the prompt is sent again."""
        prompt = self._prompts.get(request_id)
        if prompt is None:
            return
        if message.get("error", {}).get("code") == _NOT_FOUND and prompt.updates == 0:
            self._sent.pop(request_id, None)
            with suppress(GatewayLost):
                await self._send(prompt.message, request_id)
            return
        del self._prompts[request_id]
        self._sent.pop(request_id, None)
        self._write({**message, "id": request_id})

    # Reconnect

    async def _reconnect(self) -> None:
        """Open another connection, and continue the editor's unanswered requests on it. If there are none, do nothing:
        the next message of the editor opens a connection."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        pause = _FIRST_PAUSE
        while self._prompts or self._requests:
            try:
                await self._open()
                await self._resume()
                return
            except GatewayLost as lost:
                if lost.code == _AUTH_REQUIRED or asyncio.get_running_loop().time() > deadline:
                    self._give_up(lost)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _give_up(self, lost: GatewayLost) -> None:
        """Answer all unanswered requests and prompts of the editor with an error."""
        waiting = {**self._requests, **{name: prompt.message for name, prompt in self._prompts.items()}}
        for request_id, message in waiting.items():
            self._refuse(request_id, message["method"], lost)

    async def _resume(self) -> None:
        """Attach to the turns of unanswered prompts, and send the other unanswered requests again, on the newest
        connection. Raises GatewayLost."""
        for request_id, prompt in list(self._prompts.items()):
            if self._sent.get(request_id) == self._number:
                continue
            self._sent[request_id] = self._number
            attach_id = f"{_OWN}-{uuid4().hex}"
            self._attached[attach_id] = request_id
            params: Wire = {"sessionId": prompt.session_id, "prompt": prompt.key, "skip": prompt.updates}
            await self._send({"jsonrpc": "2.0", "id": attach_id, "method": _ATTACH, "params": params})
        for request_id, message in list(self._requests.items()):
            if message["method"] == "session/load" and self._sent.get(request_id) != self._number:
                # The editor has a part of the conversation already.
                self._requests.pop(request_id, None)
                words = "The connection to the gateway broke while the session was loaded: load it again."
                self._fail(request_id, _INTERNAL, words)
            else:
                await self._send(message, request_id)
