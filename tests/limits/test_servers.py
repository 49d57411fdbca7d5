"""Hostile responses of agents' servers: compressed bombs, endless responses, JSON with millions of values.

The run fails by the agent's fault, and other callers are not affected.
"""

import asyncio
import gzip
import sys
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.adapters.openai.model import serve
from tests.faults.proxy import Endless, Instead, Proxy, Trouble, proxied
from tests.faults.stage import WIRES, Players, words_of
from tests.gateway.command import babelgate
from tests.limits.strain import MB, SLOW, Strained, python_agents, strained
from tests.running import running

pytestmark = SLOW


def bomb(start: bytes, unit: bytes, end: bytes, most: int = 4 * 2**30) -> bytes:
    """Return a gzip file of a few megabytes, whose content repeats `unit` up to `most` bytes."""
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packing.compress(start) + packing.flush(zlib.Z_FULL_FLUSH)
    plain = unit * (MB // len(unit))
    packing = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packing.compress(plain) + packing.flush(zlib.Z_FULL_FLUSH)
    packing = zlib.compressobj(9, zlib.DEFLATED, -15)
    return head + block * (most // len(plain)) + packing.compress(end) + packing.flush()


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK", type: bytes = b"application/json") -> bytes:
    lines = (b"HTTP/1.1 " + status, b"Content-Type: " + type, b"Connection: close", *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


SELF: Final = str(uuid4()).encode()
"""Instance id that a scripted server sends in the header `Babelgate`, as a gateway does. It is not that of the gateway
under test."""
GZIP: Final = b"Content-Encoding: gzip"
SSE: Final = b"text/event-stream"
STREAM: Final = answer(b"", type=SSE)
CHUNKED: Final = answer(b"", b"Transfer-Encoding: chunked")


def wide() -> bytes:
    return b'{"a":[' + b"[]," * (20 * MB) + b"0]}"


BOMBS: Final[Mapping[str, Callable[[], Trouble]]] = {
    "an answer that unpacks to 4 GB": lambda: Instead(answer(bomb(b'{"a":"', b"a", b'"}'), GZIP)),
    "an event that unpacks to 4 GB": lambda: Instead(answer(bomb(b"data: ", b"a", b"\n\n"), GZIP, type=SSE)),
    "an error that unpacks to 4 GB": lambda: Instead(answer(bomb(b'{"a":"', b"a", b'"}'), GZIP, status=b"500 No")),
    "an answer of 20 million values": lambda: Instead(answer(wide())),
    "an answer of 20 million values, packed": lambda: Instead(answer(gzip.compress(wide(), 1), GZIP)),
    "an event of 20 million values": lambda: Instead(answer(b"data: " + wide() + b"\n\n", type=SSE)),
    "an answer of 200 MB": lambda: Endless(answer(b'{"a":"'), b"x", 200 * MB),
    "an event without end": lambda: Endless(STREAM + b"data: ", b"a"),
}
"""Responses for each protocol.

Functions, because every process that imports this module would otherwise hold 300 MB.
"""


@cache
def bomb_of(name: str) -> Trouble:
    return BOMBS[name]()


MOST: Final = 256 * MB
"""Number of bytes that an endless response sends at most."""

ENDLESS: Final[Mapping[str, Trouble]] = {
    "a status line": Endless(b"HTTP/1.1 200 ", b"a", MOST),
    "a header": Endless(b"HTTP/1.1 200 OK\r\nX: ", b"a", MOST),
    "the name of a header": Endless(b"HTTP/1.1 200 OK\r\nX", b"a", MOST),
    "headers": Endless(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n", MOST),
    "a chunk's length": Endless(CHUNKED, b"0", MOST),
    "a chunk's extension": Endless(CHUNKED + b"5;", b"a", MOST),
    "a trailer": Endless(CHUNKED + b"0\r\nX: ", b"a", MOST),
    "trailers": Endless(CHUNKED + b"0\r\n", b"X: a\r\n", MOST),
    "an event of lines": Endless(STREAM, b"data: a\n", MOST),
    "an answer": Endless(answer(b'{"a":"'), b"a", MOST),
    "an error": Endless(answer(b'{"a":"', status=b"500 No"), b"a", MOST),
}
"""Endless responses. All protocols read these in one place."""


@dataclass
class House:
    """A gateway whose agents are on servers that a test scripts."""

    gateway: Strained
    proxies: Mapping[str, Proxy]

    def proxy(self, wire: str) -> Proxy:
        return self.proxies["models" if WIRES[wire].models else "one"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder = tmp_path_factory.mktemp("servers")
    (folder / "far").mkdir()
    (folder / "near").mkdir()
    players = Players()
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(running(folder / "far", players.agents()))
        models = await stack.enter_async_context(serve(model=players.model))
        proxies = {
            "one": await stack.enter_async_context(proxied(far.url)),
            "models": await stack.enter_async_context(proxied(models.url)),
        }
        agents: dict[str, Any] = python_agents()
        for name, wire in WIRES.items():
            url = proxies["models" if wire.models else "one"].url + wire.path.format(agent="tell")
            agents[name] = {"url": url, "protocol": wire.protocol, "agent": "two" if wire.models else "tell"}
        near = await stack.enter_async_context(strained(folder / "near", agents=agents))
        yield House(near, proxies)


async def run(house: House, wire: str, text: str = "hello") -> dict[str, Any]:
    """Run the agent, and return the final state for LangGraph's clients, or the run's error."""
    body = {"assistant_id": wire, "input": {"messages": [{"role": "user", "content": text}]}}
    response = await house.gateway.http.post("/runs/wait", json=body)
    assert response.status_code == 200, response.text[:500]
    return response.json()


async def fails(house: House, wire: str, name: str, trouble: Trouble) -> None:
    """Check that the run fails, and that the next one succeeds."""
    proxy = house.proxy(wire)
    proxy.reset()
    proxy.befall(WIRES[wire].starts, trouble)
    async with house.gateway.watched() as strain:
        state = await run(house, wire)
    assert proxy.struck.is_set()
    assert state["__error__"]["error"] in ("AgentInvalidError", "AgentFailedError", "AgentUnreachableError"), state
    assert len(state["__error__"]["message"]) < 1000
    strain.check()
    proxy.reset()
    assert (await run(house, wire, name))["messages"][-1]["content"] == words_of(name)


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_huge_response_of_a_server_is_bounded(house: House, wire: str, name: str) -> None:
    await fails(house, wire, name, bomb_of(name))


@asynccontextmanager
async def saying(respond: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncGenerator[str]:
    """Run a server that sends the same response to every request, and yield its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await respond(writer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


LISTS: Final[Mapping[str, Callable[[], tuple[bytes, bytes]]]] = {
    "4 GB, packed": lambda: (answer(bomb(b'{"a":"', b"a", b'"}'), GZIP), b""),
    "20 million values": lambda: (answer(b'{"a":['), b"[],"),
    "200 MB": lambda: (answer(b'{"a":"'), b"x"),
    "a refusal of 4 GB, packed": lambda: (answer(bomb(b'{"a":"', b"a", b'"}'), GZIP, status=b"404 No"), b""),
    "a refusal of 200 MB": lambda: (answer(b'{"a":"', status=b"404 No"), b"x"),
}
"""Start of each response, and the bytes that follow up to 200 MB."""
MEASURED: Final = """
import atexit, runpy, sys
from pathlib import Path
def tell():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("peak").write_text(line.split()[1])
atexit.register(tell)
runpy.run_module("babelgate", run_name="__main__")
"""


@pytest.mark.parametrize("name", LISTS)
async def test_detecting_a_server_needs_bounded_memory(tmp_path: Path, name: str) -> None:
    """Detect the server with `babelgate add`, which tries all protocols at once."""
    start, again = LISTS[name]()
    start = start.replace(b"\r\n", b"\r\nBabelgate: 1; instance=" + SELF + b"\r\n", 1)

    async def said(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        for _ in range(3200 if again else 0):
            writer.write(again * (65536 // len(again)))
            await writer.drain()

    async with saying(said) as url:
        program = (sys.executable, "-c", MEASURED)
        done = await asyncio.to_thread(babelgate, tmp_path, "add", f"a={url}", program=program)
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert int((tmp_path / "peak").read_text()) * 1024 < 350 * MB


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        # 150 URLs of 15 MB each fit into a request of 8 KB.
        (b'{"content":"' + b"x" * (15 * MB) + b'"}', 150),
        (b",".join([b'{"content":"x"}'] * 9_000), 100),
    ],
    ids=["large messages", "many values"],
)
async def test_too_large_a_session_is_refused(house: House, parts: bytes, count: int) -> None:
    message = b'{"role":"user","parts":[' + parts + b"]}"

    async def said(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(message, b"Content-Length: %d" % len(message)))

    async with saying(said) as url:
        session = {"id": str(uuid4()), "history": [f"{url}/{number}" for number in range(count)]}
        body = {"agent_name": "echo", "session": session, "input": [{"role": "user", "parts": [{"content": "hi"}]}]}
        async with house.gateway.watched() as strain:
            response = await house.gateway.http.post("/acp/runs", json=body)
    assert response.status_code == 413
    assert "session.history" in response.json()["message"]
    strain.check()


@pytest.mark.parametrize("name", ENDLESS)
async def test_an_endless_response_is_stopped(house: House, name: str) -> None:
    await fails(house, "acp", name, ENDLESS[name])
