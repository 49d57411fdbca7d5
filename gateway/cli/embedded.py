"""Embedded gateway of a command: a process on a free port of this machine, with a temporary database.

It is a separate process, so the command's own work does not count as time of the agent. Its settings are sent over
stdin, where other users cannot see the keys in them. When stdin ends, the gateway ends, even if its parent was killed.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

from babelgate.adapters.kit.client.tls import CLIENT_FILES, EXTRA_CA
from babelgate.gateway.cli.errors import CliError
from babelgate.gateway.cli.serve import Gateway, start
from babelgate.gateway.settings.model import Settings

_START: Final = 120.0
"""Maximum duration of the start, which detects the protocols of all agents' servers, in seconds. Chosen."""
_STOP: Final = 20.0
"""Maximum duration of the stop, which waits for responses that are being sent, in seconds. Chosen."""


_GRACE: Final = 2.0
"""Value of `shutdown.grace` for the embedded gateway, in seconds. Chosen: the command does not wait for active runs."""


@dataclass(frozen=True, slots=True)
class Served:
    """Agent of an embedded gateway, as the gateway describes it to the command that has started it."""

    name: str
    broken: str | None
    detection: str
    version: str
    description: str
    server: str | None
    """URL of the agent's server, if the command named only the server and not this agent; None otherwise."""


@dataclass(frozen=True, slots=True)
class Embedded:
    url: str
    agents: Sequence[Served]


@asynccontextmanager
async def embedded_gateway(
    settings: Mapping[str, Any], servers: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> AsyncGenerator[Embedded]:
    """Start an embedded gateway, and yield it when it is ready. Stop it at the end of the context.

    `settings` are those of babelgate.yaml. `servers` maps URLs of servers, whose agents are all served, to the headers
    of requests to them. Raises CliError if it does not start.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="babelgate-", ignore_cleanup_errors=True))
        defaults = {
            "port": 0,
            "database": f"sqlite:///{folder}/gateway.db",
            "log_level": "warning",
            "shutdown": {"grace": _GRACE},
        }
        log = stack.enter_context(tempfile.TemporaryFile())
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "babelgate.gateway.cli.embedded",
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the command, which ends it
            limit=2**24,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            request = {
                "settings": {**defaults, **settings},
                "servers": {url: dict(headers) for url, headers in servers.items()},
                "ca": None if EXTRA_CA.get() is None else str(EXTRA_CA.get()),
                "client": [None if each is None else str(each) for each in CLIENT_FILES.get() or ()],
            }
            process.stdin.write(json.dumps(request).encode() + b"\n")
            line = b""
            with suppress(TimeoutError):
                async with asyncio.timeout(_START):
                    line = await process.stdout.readline()
            if not line:
                raise CliError(f"cannot start the gateway of these agents: {_reason(log)}")
            reply = json.loads(line)
            yield Embedded(reply["url"], [Served(**each) for each in reply["agents"]])
        finally:
            await asyncio.shield(_end(process))


def _reason(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("babelgate: ") if lines else "it logged nothing"


async def _end(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_STOP):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


# The process


def _print_ready(gateway: Gateway) -> None:
    agents = [
        {
            "name": each.info.name,
            "broken": each.broken,
            "detection": each.detection,
            "version": each.info.version,
            "description": each.info.description,
            "server": each.server,
        }
        for each in gateway.registry.all()
    ]
    print(json.dumps({"url": gateway.url, "agents": agents}), flush=True)


def _end_with(stream: Any) -> None:
    while stream.read(2**16):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    request: Mapping[str, Any] = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    try:
        servers: Mapping[str, Mapping[str, str]] = request["servers"]
        if request["ca"] is not None:
            EXTRA_CA.set(Path(request["ca"]))
        if request["client"]:
            cert, key = request["client"]
            CLIENT_FILES.set((Path(cert), None if key is None else Path(key)))
        start(Settings.model_validate(request["settings"]), [*servers], _print_ready, strict=False, headers=servers)
    except (CliError, ValueError) as error:
        print(f"babelgate: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
