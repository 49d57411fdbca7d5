"""`babelgate acp`: an editor on stdio reaches an agent of the gateway, and a broken connection is opened again."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Ask
from babelgate.gateway import demo
from tests.adapters.agent_client.editor import Editor, RpcError, choose
from tests.gateway.command import PROGRAM, ROOT, bound_socket, served_in_loop
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

GATE: Final = asyncio.Semaphore(0)


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield one word, and the next when the gate opens."""
    yield "first"
    await GATE.acquire()
    yield " second"


async def mail(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask for an approval."""
    yield f"Sent: {(yield Ask('Send it?', kind='approval'))}."


AGENTS: Final[dict[str, object]] = {"echo": demo.echo, "gated": gated, "mail": mail}


class Stdio:
    """Connection to an agent that a command serves on its stdin and stdout."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    async def send(self, text: str) -> None:
        self._stdin.write(f"{text}\n".encode())
        await self._stdin.drain()

    async def recv(self) -> bytes:
        line = await self._stdout.readline()
        assert line.endswith(b"\n"), "the command has ended"
        return line

    async def end(self) -> int:
        """Close stdin, check that nothing else comes, and return the exit code."""
        self._stdin.close()
        async with asyncio.timeout(60):
            await self._stdout.read()
            return await self._process.wait()


@asynccontextmanager
async def piped(url: str, agent: str, *options: str, key: str = "") -> AsyncGenerator[Editor]:
    """Start the command as an editor does."""
    process = await asyncio.create_subprocess_exec(
        *(*PROGRAM, "acp", agent, "--url", url, *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **({"BABELGATE_KEY": key} if key else {})},
        limit=2**26,
    )
    stdio = Stdio(process)
    try:
        yield Editor(stdio)  # type: ignore[arg-type]
        assert await stdio.end() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Cable:
    """TCP proxy in front of the gateway, which a test can cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer), return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(2**16):
            writer.write(piece)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def cabled(gateway: Running) -> AsyncGenerator[tuple[Cable, str]]:
    cable = Cable(int(gateway.url.rpartition(":")[2]))
    server = await asyncio.start_server(cable.connect, "127.0.0.1", 0)
    try:
        yield cable, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        cable.cut()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("acp"), AGENTS) as found:
        yield found


async def test_pipe_serves_an_editor_until_stdin_ends(gateway: Running) -> None:
    async with piped(gateway.url, "mail") as editor:
        editor.answerer = choose("allow")
        assert (await editor.initialize())["agentInfo"]["title"] == "mail"
        session_id = await editor.new_session()
        assert (await editor.prompt(session_id, "x"))["stopReason"] == "end_turn"
        assert editor.text == "Sent: True."
        for line, code in (("{", -32700), ("[]", -32600)):
            await editor.connection.send(line)
            assert (await editor.receive())["error"]["code"] == code
        await editor.connection.send("")
        large = "x" * 300_000
        editor.messages.clear()
        async with piped(gateway.url, "echo") as other:
            await other.initialize()
            await other.prompt(await other.new_session(), large)
            assert other.text == large


async def test_broken_connection_is_opened_again_without_a_trace(gateway: Running) -> None:
    async with cabled(gateway) as (cable, url), piped(url, "gated") as editor:
        await editor.initialize()
        session_id = await editor.new_session()
        prompt = await editor.start_prompt(session_id, "x")
        while editor.text != "first":
            await editor.receive()
        cable.cut()
        GATE.release()
        assert (await editor.wait(prompt))["stopReason"] == "end_turn"
        assert editor.text == "first second"
        cable.cut()
        GATE.release()
        assert (await editor.prompt(session_id, "y"))["stopReason"] == "end_turn"
        assert cable.connections == 3


async def test_open_question_is_sent_again_after_a_break(gateway: Running) -> None:
    async with cabled(gateway) as (cable, url), piped(url, "mail") as editor:
        await editor.initialize()
        prompt = await editor.start_prompt(await editor.new_session(), "x")
        while "session/request_permission" not in [each.get("method") for each in editor.messages]:
            await editor.peek()
        cable.cut()
        assert (await editor.peek())["method"] == "$/cancel_request"
        editor.answerer = choose("reject")
        assert (await editor.wait(prompt))["stopReason"] == "end_turn"
        assert editor.text == "Sent: False."


async def test_session_calls_name_a_wrong_key(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS, keys={"alice": "secret"}) as gateway:
        async with piped(gateway.url, "echo", key="wrong") as editor:
            assert (await editor.initialize())["protocolVersion"] == 1
            with pytest.raises(RpcError, match="BABELGATE_KEY") as caught:
                await editor.new_session()
            assert caught.value.code == -32000
        async with piped(gateway.url, "echo", key="secret") as editor:
            await editor.initialize()
            assert await editor.new_session()


async def test_missing_gateway_or_agent_is_an_error(gateway: Running) -> None:
    with bound_socket() as free:
        async with piped(f"http://127.0.0.1:{free.getsockname()[1]}", "echo") as editor:
            with pytest.raises(RpcError, match="No gateway answers"):
                await editor.initialize()
    async with piped(gateway.url, "nobody") as editor:
        with pytest.raises(RpcError, match="no agent of this name"):
            await editor.initialize()


@pytest.mark.slow
async def test_turn_continues_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    with bound_socket() as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    async with served_in_loop(tmp_path, "--port", str(port)) as first, piped(url, "approve") as editor:
        await editor.initialize()
        prompt = await editor.start_prompt(await editor.new_session(), "x")
        while "session/request_permission" not in [each.get("method") for each in editor.messages]:
            await editor.peek()
        await asyncio.to_thread(first.stop, signal.SIGKILL)
        while (await editor.peek())["method"] != "$/cancel_request":
            pass
        editor.answerer = choose("allow")
        async with served_in_loop(tmp_path, "--port", str(port)):
            assert (await editor.wait(prompt))["stopReason"] == "end_turn"
            assert {each["method"] for each in editor.asked} == {"session/request_permission"}
