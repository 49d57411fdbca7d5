"""What a client costs that opens a stream, a replay, a list or a WebSocket, and does not read it."""

import asyncio
import base64
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
import pytest_asyncio

from tests.limits.deaf import TOKENS, WORD
from tests.limits.strain import SLOW, Strained, python_agents, strained

pytestmark = [*SLOW, pytest.mark.timeout(1500), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

SETTINGS: Final[dict[str, Any]] = {"agents": python_agents("ended", "open_ended", module="deaf")}
READERS: Final = int(os.environ.get("DEAF", "60"))
MOST: Final = 256 * 1024
"""Bytes that one reader may hold."""
_SEGMENT: Final = 1460
"""Bytes, as on Ethernet. Over loopback the kernel takes 2.6 MB for each connection, which hides what the gateway holds."""
_RECEIVE: Final = 4096
_BOUND: Final = 60.0
_QUIET: Final = 25
"""Answers to others after which the gateway is at rest, if it has computed next to nothing but these."""


@dataclass(frozen=True)
class Runs:
    """Two runs: one has ended, the other has said as much and is still open."""

    ended: Mapping[str, str]
    open: Mapping[str, str]

    def fill(self, text: str) -> str:
        return text.format(
            **self.ended,
            **{f"open_{name}": value for name, value in self.open.items()},
        )


@dataclass(frozen=True)
class Kind:
    """One kind of stream or answer, as a request."""

    name: str
    path: str
    body: str | None = None
    headers: str = ""
    read: int = 0
    """Bytes that the reader takes at first."""
    then: tuple[str, ...] = ()
    """Messages over the WebSocket."""


def _get(name: str, path: str, headers: str = "", read: int = 0) -> Kind:
    return Kind(name, path, headers=headers, read=read)


def _follow(name: str, path: str, headers: str = "") -> Kind:
    return _get(name, path, headers, HALF)


def _rpc(name: str, method: str, task: str, headers: str = "") -> Kind:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "@"}})
    return Kind(name, "/a2a/open_ended", body.replace("@", task), headers)


HALF = 300_000
SSE = "Accept: text/event-stream\r\n"
V1 = "A2A-Version: 1.0\r\n"
FIRST = "Last-Event-ID: -1\r\n"
_SUBSCRIBE = json.dumps({"id": 1, "method": "subscription.subscribe", "params": {"channels": ["messages", "values"]}})
KINDS: Final = [
    _follow("ACP events, stream", "/acp/runs/<task>/events", SSE),
    _follow("ACP events, open", "/acp/runs/<open_task>/events", SSE),
    _get("ACP events, list", "/acp/runs/<task>/events"),
    _follow("ACP events, extension", "/acp/runs/<task>/events", SSE + "<extension>"),
    _get("ACP run", "/acp/runs/<task>"),
    _get("ACP session", "/acp/session/<thread>"),
    _rpc("A2A 0.3 resubscribe", "tasks/resubscribe", "<open_task>"),
    _rpc("A2A 1.0 subscribe", "SubscribeToTask", "<open_task>", V1),
    _rpc("A2A 1.0 replay, open", "SubscribeToTask", "<open_task>", V1 + "Babelgate-Replay-From: 1\r\n"),
    _get("A2A 1.0 REST task", "/a2a/ended/tasks/<task>", V1),
    _follow("LangGraph run", "/threads/<thread>/runs/<run>/stream?stream_mode=messages-tuple", FIRST),
    _follow("LangGraph run, messages", "/threads/<thread>/runs/<run>/stream?stream_mode=messages", FIRST),
    _get("LangGraph run, values", "/threads/<thread>/runs/<run>/stream?stream_mode=values", FIRST),
    _get("LangGraph thread", "/threads/<thread>/stream?stream_modes=run_modes", FIRST),
    _get("LangGraph join", "/threads/<thread>/runs/<run>/join"),
    _get("LangGraph state", "/threads/<thread>/state"),
    _get("LangGraph history", "/threads/<thread>/history"),
    Kind("LangGraph events", "/threads/<thread>/stream", '{"channels": ["messages", "values"]}'),
    Kind("LangGraph events, WebSocket", "/threads/<thread>/stream", then=(_SUBSCRIBE,)),
    _get("AIEF task", "/agent/ended/ap/v1/agent/tasks/<thread>"),
    _get("AIEF steps", "/agent/ended/ap/v1/agent/tasks/<thread>/steps"),
    _get("AIEF step, extension", "/agent/ended/ap/v1/agent/tasks/<thread>/steps/<run>", "<extension>"),
    _follow("OpenAI response, stream", "/v1/responses/<response>?stream=true"),
    _get("OpenAI response", "/v1/responses/<response>"),
    _get("OpenAI items", "/v1/conversations/<conversation>/items"),
    _follow("runtime run, stream", "/v1/runs/<run>/stream"),
    _get("runtime run", "/v1/runs/<run>"),
]


async def _runs(gateway: Strained) -> dict[str, str]:
    found: dict[str, str] = {}
    for agent, prefix in (("ended", ""), ("open_ended", "open_")):
        made = await gateway.http.post("/acp/runs", json={"agent_name": agent, "mode": "async", "input": [{"role": "user", "parts": [{"content": "hi"}]}]})
        task = made.json()["run_id"]
        last = f"{WORD}{TOKENS - 1} "
        path = f"/acp/runs/{task}"
        async with asyncio.timeout(_BOUND):
            while last not in (await gateway.http.get(path)).text:
                pass
            while agent == "ended" and (await gateway.http.get(path)).json()["status"] != "completed":
                pass
        shown = await gateway.http.get(path)
        run, thread = shown.headers["babelgate-run"], shown.headers["babelgate-thread"]
        found |= {f"{prefix}task": task, f"{prefix}run": run, f"{prefix}thread": thread, f"{prefix}response": f"resp_{UUID(run).hex}", f"{prefix}conversation": f"conv_{UUID(thread).hex}"}
    from babelgate.adapters._extension import HEADER, URI
    found["extension"] = f"{HEADER}: {URI}\r\n"
    return found


def _fill(text: str, runs: Mapping[str, str]) -> str:
    for name, value in runs.items():
        text = text.replace(f"<{name}>", value)
    return text


def _request(kind: Kind, runs: Mapping[str, str]) -> bytes:
    path, headers = _fill(kind.path, runs), "Host: localhost\r\n" + ("" if kind.then else "Connection: close\r\n") + _fill(kind.headers, runs)
    if kind.then:
        key = base64.b64encode(os.urandom(16)).decode()
        headers += f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        return f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode() + b"".join(_masked(each) for each in kind.then)
    if kind.body is None:
        return f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode()
    body = _fill(kind.body, runs).encode()
    headers += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"POST {path} HTTP/1.1\r\n{headers}\r\n".encode() + body


def _masked(text: str) -> bytes:
    """A text message of a client (RFC 6455, section 5.2), of up to 64 KiB."""
    data = text.encode()
    return b"\x81" + bytes([0x80 | 126]) + len(data).to_bytes(2, "big") + bytes(4) + data


async def _open(gateway: Strained, request: bytes, read: int) -> socket.socket:
    """A reader that takes `read` bytes, and then nothing."""
    loop = asyncio.get_running_loop()
    reader = socket.socket()
    reader.setblocking(False)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE)
    reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT)
    await loop.sock_connect(reader, ("127.0.0.1", gateway.port))
    await loop.sock_sendall(reader, request)
    left, head = read, b""
    while left > 0:
        some = await loop.sock_recv(reader, min(left, 65536))
        if not some:
            break
        head = head or some[:300]
        left -= len(some)
    return reader


def _cpu(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


async def _rest(gateway: Strained) -> None:
    async with asyncio.timeout(_BOUND):
        before = -100
        while True:
            for _ in range(_QUIET):
                await gateway.http.get("/ok")
            now = _cpu(gateway.pid)
            if now - before <= 3:
                return
            before = now


async def measure(gateway: Strained, kind: Kind, runs: Mapping[str, str]) -> tuple[float, float, float]:
    """KiB that each reader takes at the most, that it holds in the end, and that are left when it has gone."""
    request = _request(kind, runs)
    warm = [await _open(gateway, request, kind.read or 1) for _ in range(3)]
    await _rest(gateway)
    for each in warm:
        each.close()
    await _rest(gateway)
    before = gateway._begin()
    readers = await asyncio.gather(*(_open(gateway, request, kind.read) for _ in range(READERS)))
    await _rest(gateway)
    now, peak = gateway.memory()
    for each in readers:
        each.close()
    await _rest(gateway)
    left = gateway.memory()[0]
    return tuple((size - before) / READERS / 1024 for size in (peak, now, left))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
async def test_a_reader_that_takes_nothing_holds_little(tmp_path: Path, kind: Kind) -> None:
    async with strained(tmp_path, **SETTINGS) as gateway:
        runs = await _runs(gateway)
        async with asyncio.timeout(100):
            peak, now, left = await measure(gateway, kind, runs)
    print(f"{kind.name:32} {kind.read:9} peak {peak:7.0f} now {now:6.0f} left {left:6.0f} KiB", flush=True)
    if not os.environ.get("PRINT"):
        assert peak * 1024 <= MOST
