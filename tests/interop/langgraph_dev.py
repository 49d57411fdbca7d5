"""Development server of LangGraph, with the graphs of `programs/langgraph_server`.

It takes seconds to start and can grow without limit. So it runs with a memory limit, and in its own process group,
which ends as a whole.
"""

import asyncio
import os
import resource
import shutil
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx

from tests import loopback
from tests.interop.driver import PROGRAMS
from tests.interop.peers import peer_python

MEMORY: Final = 12 * 1024**3
"""Limit of address space, in bytes. The interpreter alone reserves two thirds of it."""
START: Final = 60.0
"""Timeout for the first response, in seconds."""
STOP: Final = 10.0
POLL: Final = 0.1
"""Interval of polling for the first response, in seconds. The server does not report when it is ready."""

_ENVIRONMENT: Final = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@asynccontextmanager
async def langgraph_dev(folder: Path) -> AsyncGenerator[str]:
    """Start the server and yield its URL. It writes its files to the folder."""
    python = peer_python("langgraph")
    home = folder / "langgraph_server"
    shutil.copytree(PROGRAMS / "langgraph_server", home)
    port = _free_port()
    arguments = ("dev", "--host", "127.0.0.1", "--port", str(port), "--no-browser", "--no-reload")
    with (folder / "langgraph.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            str(python.parent / "langgraph"),
            *arguments,
            "--n-jobs-per-worker",
            "20",
            cwd=home,
            env={**os.environ, **_ENVIRONMENT},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_limit_memory,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            if not await _answers(url, server):
                raise AssertionError(f"langgraph dev does not answer:\n{_tail(folder / 'langgraph.log')}")
            yield url
        finally:
            await _end(server)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _answers(url: str, server: asyncio.subprocess.Process) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(START), loopback.client(base_url=url) as http:
            while server.returncode is None:
                with suppress(httpx.TransportError):
                    if (await http.get("/ok")).status_code == 200:
                        return True
                await asyncio.sleep(POLL)
    return False


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


async def _end(server: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP):
                await server.wait()
                return
