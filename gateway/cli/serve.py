"""`babelgate serve`: from the settings to a gateway that listens, and from a signal to one that is gone."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from canonical import FaultError
from gateway.app import create_app, open_hub
from gateway.cli.banner import banner
from gateway.cli.listener import base_url, bind, is_loopback, listen
from gateway.cli.refusal import USAGE, Refusal
from gateway.cli.target import read_targets
from gateway.config import Settings
from gateway.fetch import Fetcher
from gateway.hub import Hub
from gateway.registry import connect
from gateway.source import ConfigError, load

try:
    from uvloop import new_event_loop
except ImportError:  # no wheel for this system: everything works, a little slower
    from asyncio import new_event_loop

__all__ = ("serve",)

log = logging.getLogger("babelgate")

_PATIENCE: Final = 3
"""Seconds that answers which do not end by themselves have when the gateway stops. Streams and waits end at once."""
_KEEP_ALIVE: Final = 75
"""Seconds that an idle connection stays. Clients keep theirs for about 5 to 60; who closes last races with nobody."""

_CALLERS: Final = frozenset(
    {"ASGI callable returned without completing handshake.", "Invalid UTF-8 sequence received from client."}
)
"""What uvicorn logs as errors of its own, and is what callers do: a WebSocket was refused, or told what is no text."""


def serve(config: Path | None, targets: Sequence[str], flags: Mapping[str, Any]) -> None:
    """Until a signal. Raises Refusal."""
    wanted = read_targets(targets)
    given = {**flags, "agents": wanted.agents} if targets else flags
    try:
        settings = load(config, given)
    except ConfigError as error:
        raise Refusal(*error.problems, code=USAGE) from None
    if not is_loopback(settings.host) and not settings.keys and not settings.allow_anonymous:
        raise Refusal(
            f"{settings.host} can be reached by others and there are no API keys: set keys in the configuration or in "
            "BABELGATE_KEYS, or let anyone in with --allow-anonymous",
            code=USAGE,
        )
    with bind(settings.host, settings.port) as listener:
        _log(settings.log_level)
        runner = asyncio.Runner(loop_factory=new_event_loop)
        try:
            runner.run(_serve(settings, wanted.servers, listener, strict=bool(targets)))
        except BaseException:
            runner.close()
            raise
    _leave()


def _leave() -> NoReturn:
    """All is committed and closed. What is left are agents that do not let go when they are cancelled, and functions in
    threads, which cannot be: a clean exit would wait for them, for ever if they like."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _log(level: str) -> None:
    """Our own lines at the level that was asked for; of the libraries, what goes wrong."""
    logging.basicConfig(
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        level=logging.DEBUG if level == "debug" else logging.WARNING,
    )
    logging.getLogger("babelgate").setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg not in _CALLERS)
    for library in ("httpx", "httpcore"):  # they log whole URLs and headers, which may hold callers' secrets
        logging.getLogger(library).setLevel(logging.WARNING)


def _calm_collector() -> None:
    """What was made for the start stays, and is not looked at again; and next to nothing of what a call makes is
    garbage that only the collector finds. By default it took a tenth of the time (`bench.proxy`)."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


async def _serve(settings: Settings, servers: Sequence[str], listener: socket.socket, *, strict: bool) -> None:
    """`strict`: the agents are those of the command line, and without any there is nothing to do. A gateway that has a
    configuration starts all the same: what it holds of earlier runs is there for their callers."""
    registry = await connect(settings, servers)
    broken = [f"{each.info.name}: {each.broken}" for each in registry.all() if each.broken is not None]
    if strict and len(broken) == len(registry.all()):
        raise Refusal(f"no agent works: {'; '.join(broken)}")
    for line in broken:
        log.warning("broken agent %s", line)
    fetcher = Fetcher(settings.network.allow)
    hub = open_hub(settings, registry, fetcher)
    try:
        await _start(hub, settings)
        try:
            registry.disown(hub.instance)
            url = settings.public_url or base_url(listener)

            def ready() -> None:
                click.echo("\n".join(banner(settings, url, registry)))

            app = create_app(hub, registry, settings)
            _calm_collector()
            listen(listener)
            server = _Server(app, body_limit=settings.limits.body, ready=ready, let_go=hub.let_go)
            await server.serve(sockets=[listener])
        finally:
            await hub.stop()
    finally:
        await registry.aclose()
        await fetcher.aclose()


async def _start(hub: Hub, settings: Settings) -> None:
    try:
        await hub.start()
    except FaultError as error:
        raise Refusal(error.fault.message) from None
    except (OSError, SQLAlchemyError) as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        raise Refusal(f"{settings.database} cannot be opened: {reason}") from None


class _Server(uvicorn.Server):
    """uvicorn, which stops on a signal in the order that a gateway needs, and does not wake up ten times a second."""

    def __init__(self, app: Any, *, body_limit: int, ready: Callable[[], None], let_go: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="websockets-sansio",
                ws_max_size=body_limit,
                log_config=None,
                log_level="warning",
                access_log=False,  # the door writes a line a request
                proxy_headers=False,  # and reads X-Forwarded-* of those who are trusted
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_PATIENCE,
            )
        )
        self._ready = ready
        self._let_go = let_go
        self._asked = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def main_loop(self) -> None:
        """Once a second, for the Date header (RFC 9110 §6.6.1)."""
        while not self.should_exit:
            await self.on_tick(0)
            try:
                async with asyncio.timeout(1):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Readers of the log end first: then every answer that is on its way has an end, and the hub is still there for
        what the answer says last."""
        self._let_go()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """A signal that was obeyed is done with. uvicorn would raise it again at the end, and the exit code would say
        that something went wrong."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """At the second signal, answers are not waited for any longer."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._asked.set()
