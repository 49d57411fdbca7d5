"""`babelgate serve`: startup, from the settings to a gateway that listens, and graceful shutdown on a signal."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import click
import uvicorn

from babelgate.adapters import ADAPTERS
from babelgate.canonical import FaultError
from babelgate.gateway.agents.registry import Registry, connect
from babelgate.gateway.background import Tasks
from babelgate.gateway.cli.banner import banner
from babelgate.gateway.cli.collector import Collector
from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.cli.listener import base_url, bind, bind_setting, claim_setting, listen
from babelgate.gateway.cli.log import set_up_logging
from babelgate.gateway.cli.memory import Trimmer, give_back_blocks
from babelgate.gateway.cli.reload import ConfigSource, Reloader
from babelgate.gateway.cli.stop import ShutdownController, hold_hang_up
from babelgate.gateway.cli.target import read_targets
from babelgate.gateway.cli.workers import serve_by_workers
from babelgate.gateway.http.admin_address import AdminAddress
from babelgate.gateway.http.app import create_app, node_name, open_hub
from babelgate.gateway.http.connection import ConnectionTable, HttpConnection, protocol_options, raise_open_files
from babelgate.gateway.http.generations import Generation, Generations, connect_patience
from babelgate.gateway.http.tls import HANDSHAKE_TIMEOUT, ServerTls
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.certificates import CertificateError
from babelgate.gateway.settings.fields import split_listen
from babelgate.gateway.settings.listens import GRPC, listens_of
from babelgate.gateway.settings.load import ConfigError, advise
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.database import DatabaseError
from babelgate.gateway.telemetry.process import Telemetry

if TYPE_CHECKING:
    from babelgate.gateway.http.rpc import RpcServer

try:
    from uvloop import new_event_loop
except ImportError:  # no wheel for this system: everything works, a little slower
    from asyncio import new_event_loop

log = logging.getLogger("babelgate")

_RESPONSE_GRACE: Final = 3.0
"""Seconds that responses have to end, after all runs have ended at the shutdown. Chosen, not measured."""
_POLL_INTERVAL: Final = 0.02
"""Seconds between checks for responses that have not ended. Chosen."""
_HUB_GRACE: Final = 20.0
"""Maximum seconds in which the hub stops, even if `shutdown.grace` is longer. Chosen, not measured."""
_CLOSE_GRACE: Final = 5.0
"""Seconds in which connections to agents' servers are closed at the shutdown. Chosen, not measured."""


def serve(config: Path | None, targets: Sequence[str], flags: Mapping[str, Any]) -> None:
    """Serve agents until a signal arrives. Raises CliError if the gateway cannot start.

    `config` is the configuration file; None means that there is none. `targets` are the agents and `flags` the options
    of the command line.
    """
    wanted = read_targets(targets)
    overrides = {**flags, "agents": wanted.agents} if targets else flags
    source = ConfigSource(config, overrides)
    try:
        settings = source.load_for_start()
        doubts = advise(config, overrides)
    except ConfigError as error:
        raise CliError(*error.problems, code=USAGE) from None
    for line in doubts:
        click.echo(f"babelgate: warning: {line}", err=True)
    loaded = settings

    def work(settings: Settings, tell: Callable[[str], object], is_reloaded: bool = False) -> None:
        def ready(gateway: Gateway) -> None:
            tell("\n".join(banner(gateway.settings, gateway.url, gateway.registry)))

        reloading = Reloading(source, loaded, is_due=is_reloaded)
        start(settings, wanted.servers, ready, strict=bool(targets), reloading=reloading)

    hold_hang_up()
    if settings.workers > 1:
        serve_by_workers(settings, work)
    else:
        work(settings, click.echo)


def start(
    settings: Settings,
    servers: Sequence[str],
    ready: "Callable[[Gateway], None]",
    *,
    strict: bool,
    headers: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    reloading: "Reloading | None" = None,
) -> NoReturn:
    """Serve agents: listen, call `ready`, and end the process after a signal.

    `servers` are URLs of servers whose agents are all served, in addition to the agents in the settings. `headers` maps
    such a URL to the headers of every request to it. With `strict`, the gateway starts only if at least one agent
    works. Without `strict` it starts in any case, because callers can still read their earlier runs. `reloading` reads
    the configuration again; None means that it cannot be reloaded. Raises CliError if the gateway cannot start.
    """
    stop = ShutdownController(settings.shutdown.grace, expire=leave)
    serve_until_stopped(settings, servers, ready, strict=strict, headers=headers, stop=stop, reloading=reloading)
    leave()


def serve_until_stopped(
    settings: Settings,
    servers: Sequence[str],
    ready: "Callable[[Gateway], None]",
    *,
    strict: bool,
    more: Mapping[str, object] = MappingProxyType({}),
    headers: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    stop: ShutdownController | None = None,
    reloading: "Reloading | None" = None,
) -> None:
    """Serve agents: listen, call `ready`, and return after a signal.

    `servers` are URLs of servers whose agents are all served. With `strict`, at least one agent must work at the start.
    `more` maps names to agents that are objects of this process. `headers` maps the URL of a server to the headers of
    requests to it. `stop` handles signals; the default is a new handler. `reloading` makes the gateway reload its
    settings. Raises CliError if the gateway cannot start.
    """
    stop = stop or ShutdownController(settings.shutdown.grace)
    with ExitStack() as sockets:
        listener = sockets.enter_context(bind(settings.host, settings.port, shared=settings.workers > 1))
        metrics_listener, admin_listener = [
            None if value is None else sockets.enter_context(bind_setting(name, value, shared=settings.workers > 1))
            for name, value in listens_of(settings).items()
            if name != GRPC
        ]
        settings = reserve_rpc_port(settings, sockets)
        is_traced = settings.telemetry.traces is not None
        is_json = settings.log_format == "json"
        set_up_logging(settings.log_level, is_json=is_json, node=node_name(settings), is_traced=is_traced)
        raise_open_files()
        telemetry = Telemetry(settings, metrics_listener)
        runner = asyncio.Runner(loop_factory=new_event_loop)
        try:
            gateway = open_gateway(
                settings,
                servers,
                listener,
                strict=strict,
                more=more,
                headers=headers,
                stop=stop,
                observer=telemetry.observer,
                reloading=reloading,
            )
            runner.run(
                _serve(
                    gateway,
                    listener,
                    ready,
                    stop=stop,
                    telemetry=telemetry,
                    reloading=reloading,
                    admin_listener=admin_listener,
                )
            )
        except BaseException:
            runner.close()
            raise
        finally:
            telemetry.close()


def leave() -> NoReturn:
    """End the process at once, after all data is committed and closed.

    A clean exit would wait, possibly forever, for agents that ignore their cancellation and for functions in threads,
    which cannot be cancelled.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@dataclass(frozen=True, slots=True)
class Gateway:
    """Running gateway in this process: its settings, hub and generations."""

    settings: Settings
    url: str
    hub: GatewayHub
    generations: Generations

    @property
    def registry(self) -> Registry:
        """Agents of the current generation."""
        return self.hub.registry


@dataclass(frozen=True, slots=True)
class Reloading:
    """Source of the configuration, and state from which one process reloads it: as the only process, or as one of
    several workers."""

    source: ConfigSource
    loaded: Settings
    """Settings as they were read at the start, with which a reload compares the new ones. A worker runs with other
    values of `port` and `node`."""
    is_due: bool = False
    """True if the other workers have reloaded the configuration after this process's settings were read."""

    @asynccontextmanager
    async def running(self, generations: Generations, stop: ShutdownController) -> AsyncGenerator[None]:
        """Reload the configuration within the context: after SIGHUP, and with `watch` when a file changes."""
        reloader = Reloader(self.source, generations)
        stop.on_hang_up(reloader.request)
        await reloader.catch_up(is_due=self.is_due)
        async with reloader.running():
            yield


async def _serve(
    opening: AbstractAsyncContextManager[Gateway],
    listener: socket.socket,
    ready: Callable[[Gateway], None],
    *,
    stop: ShutdownController,
    telemetry: Telemetry,
    reloading: "Reloading | None",
    admin_listener: socket.socket | None,
) -> None:
    with ExitStack() as handlers:  # until the very end, because a second signal speeds that up, too
        async with opening as gateway:
            handlers.enter_context(stop.capture_signals())
            collector = Collector()
            give_back_blocks()
            server = server_of(gateway, listener, lambda: ready(gateway), stop, admin_listener, collector)
            async with telemetry.running(gateway.hub, server.connections), AsyncExitStack() as reloads:
                if reloading is not None:
                    await reloads.enter_async_context(reloading.running(gateway.generations, stop))
                await server.serve(sockets=[listener, *(() if admin_listener is None else (admin_listener,))])


@asynccontextmanager
async def open_gateway(
    settings: Settings,
    servers: Sequence[str],
    listener: socket.socket,
    *,
    strict: bool,
    more: Mapping[str, object] = MappingProxyType({}),
    headers: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    stop: ShutdownController | None = None,
    observer: GatewayObserver = NO_OBSERVER,
    reloading: "Reloading | None" = None,
) -> AsyncGenerator[Gateway]:
    """Start the hub and its agents without listening yet, and yield the gateway. Stop it at the end of the context.

    `servers`, `more` and `headers` are as in `serve_until_stopped`. With `strict`, at least one agent must work. `stop`
    limits the duration of the shutdown. `reloading` makes the gateway reload its settings. Raises CliError if the
    gateway cannot start.
    """
    patience = connect_patience(len(settings.agents) + len(servers))
    registry = await connect(settings, servers, more, headers=headers, patience=patience)
    if strict and all(each.broken is not None for each in registry.all()):
        await registry.settle()
    broken = [f"{each.info.name}: {each.broken}" for each in registry.all() if each.broken is not None]
    if strict and len(broken) == len(registry.all()):
        raise CliError(f"no agent works: {'; '.join(broken)}")
    for line in broken:
        log.warning("broken agent %s", line)
    try:
        generations = _make_generations(settings, registry, reloading, observer)
    except CliError:
        await registry.aclose()
        raise
    try:
        hub = _open_hub(generations, observer)
        await _start(hub, settings)
        try:
            registry.disown(hub.instance)
            url = settings.public_url or base_url(listener, is_secure=settings.tls is not None)
            yield Gateway(settings, url, hub, generations)
        finally:
            await (hub.stop() if stop is None else hub.stop(min(_HUB_GRACE, 0.9 * stop.remaining())))
    finally:
        with suppress(TimeoutError):  # an agent's server may not let its connections close
            async with asyncio.timeout(_CLOSE_GRACE if stop is None else min(_CLOSE_GRACE, stop.remaining())):
                await generations.aclose()


def _make_generations(
    settings: Settings, registry: Registry, reloading: "Reloading | None", observer: GatewayObserver
) -> Generations:
    try:
        if reloading is None:
            return Generations(settings, registry, observer=observer)
        spread = _reload_workers if settings.workers > 1 else None
        load, loaded = reloading.source.load, reloading.loaded
        generations = Generations(settings, registry, load=load, loaded=loaded, spread=spread, observer=observer)
    except FaultError as error:  # a secret that cannot sign
        raise CliError(error.fault.message, code=USAGE) from None
    generations.on_change(_apply_log_level)
    generations.find_sources = lambda: reloading.source.sources
    return generations


def _reload_workers() -> None:
    """Send SIGHUP to the process that has started the workers, which passes it on to all of them."""
    os.kill(os.getppid(), signal.SIGHUP)


def _apply_log_level(generation: Generation) -> None:
    log.setLevel(generation.settings.log_level.upper())


def server_of(
    gateway: Gateway,
    listener: socket.socket,
    ready: Callable[[], None],
    stop: ShutdownController | None = None,
    admin_listener: socket.socket | None = None,
    collector: Collector | None = None,
) -> "GatewayServer":
    """Create the HTTP server of a gateway and start to listen. `ready` is called once it accepts connections. Raises
    CliError if the port is in use, or the certificates cannot be used.

    `stop` limits the duration of the shutdown; the default is `shutdown.grace`. `admin_listener` is the socket of
    `admin.listen`, if that is set. The server calls `tick` of `collector` once per second; None leaves Python's garbage
    collector as it is.
    """
    admin_address = None
    if admin_listener is not None:
        admin_address = AdminAddress(*admin_listener.getsockname()[:2], callers=listener.getsockname()[:2])
    app = create_app(gateway.generations, gateway.hub, admin_address=admin_address)
    listen(listener)
    if admin_listener is not None:
        listen(admin_listener)
        url = base_url(admin_listener, is_secure=gateway.settings.tls is not None)
        log.info("administration API served url=%s/admin", url)
    return GatewayServer(
        app,
        gateway.generations,
        ready=ready,
        hub=gateway.hub,
        stop=stop or ShutdownController(gateway.settings.shutdown.grace),
        tls=_open_tls(gateway),
        rpc=_make_rpc_server(gateway, app, listener),
        collector=collector,
    )


def reserve_rpc_port(settings: Settings, sockets: ExitStack) -> Settings:
    """Reserve the port in `grpc.listen` until `sockets` is closed, because gRPC opens its own sockets. Return the
    settings with the selected port, if the setting has port 0. Raises CliError if the port is in use."""
    value = settings.grpc.listen
    if value is None:
        return settings
    place = bind_setting(GRPC, value, shared=True) if settings.workers > 1 else claim_setting(GRPC, value)
    host, port = sockets.enter_context(place).getsockname()[:2]
    settings = settings.model_copy(
        update={
            "grpc": settings.grpc.model_copy(update={"listen": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"})
        }
    )
    return settings


def _make_rpc_server(gateway: Gateway, app: Any, listener: socket.socket) -> "RpcServer | None":
    """Return the gRPC server of a gateway, or None if `grpc.listen` is not set."""
    value = gateway.settings.grpc.listen
    if value is None:
        return None
    # Importing gRPC takes time and memory, which a gateway without it does not need.
    from babelgate.gateway.http.rpc import RpcServer

    return RpcServer(
        app,
        [adapter.rpc() for adapter in ADAPTERS if adapter.rpc is not None],
        address=split_listen(value),
        http_address=listener.getsockname()[:2],
        default_agent=lambda: gateway.generations.front().registry.default,
    )


def _open_tls(gateway: Gateway) -> ServerTls | None:
    """Return the TLS of the gateway's ports, or None if the settings have no certificate. Raises CliError if its files
    cannot be used."""
    settings = gateway.generations.current.settings.tls
    try:
        return None if settings is None else ServerTls(settings, gateway.hub.observer)
    except CertificateError as error:
        raise CliError(f"tls.{error.key}: {error}", code=USAGE) from None


def _open_hub(generations: Generations, observer: GatewayObserver) -> GatewayHub:
    try:
        return open_hub(generations, observer)
    except FaultError as error:
        raise CliError(error.fault.message, code=USAGE) from None


async def _start(hub: GatewayHub, settings: Settings) -> None:
    try:
        await hub.start()
    except FaultError as error:
        raise CliError(error.fault.message) from None
    except (OSError, DatabaseError) as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        words = f"{settings.database_shown} cannot be opened: {reason}. To use another, give --database."
        raise CliError(words) from None


class GatewayServer(uvicorn.Server):
    """Uvicorn server with the shutdown of a gateway. It wakes up once a second, and not ten times as uvicorn's own
    class."""

    def __init__(
        self,
        app: Any,
        generations: Generations,
        *,
        ready: Callable[[], None],
        hub: GatewayHub,
        stop: ShutdownController,
        tls: ServerTls | None = None,
        rpc: "RpcServer | None" = None,
        collector: Collector | None = None,
    ) -> None:
        settings = generations.current.settings
        self._collector = collector
        self._tls = tls
        self._rpc = rpc
        self._rpc_restarts = Tasks()
        self._generations = generations
        self.connections = generations.connections = ConnectionTable(settings, observer=hub.observer)
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,  # the gateway's middleware logs each request
                proxy_headers=False,  # and reads X-Forwarded-* of trusted proxies
                server_header=False,
                **protocol_options(settings, table=self.connections),
            )
        )
        generations.on_change(self._apply)
        self._ready = ready
        self._hub = hub
        self._stop = stop

    def _apply(self, generation: Generation) -> None:
        self.connections.apply(generation.settings)
        self.config.ws_max_size = generation.settings.limits.body
        tls = generation.settings.tls
        if self._tls is None or tls is None:
            return
        before = self._tls.settings
        is_other_trust = self._tls.renew(tls)
        if self._rpc is not None and self._tls.settings != before:
            self._rpc_restarts.spawn(self._start_rpc(self._rpc), "renewal of the certificates of gRPC")
        if is_other_trust:
            for connection in list(self.server_state.connections):
                if isinstance(connection, HttpConnection) and connection.certificate is not None:
                    connection.shutdown()  # after the response to the current request

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
        else:
            await self._start_tls(self._tls, sockets or ())
        if self._rpc is not None:
            await self._start_rpc(self._rpc)
        self._ready()

    async def _start_rpc(self, rpc: "RpcServer") -> None:
        """Listen for gRPC with the current settings. Raises CliError if the port or a certificate cannot be used."""
        try:
            await rpc.start(self._generations.current.settings)
        except OSError as error:
            raise CliError(f"grpc.listen: {error}") from None

    async def _start_tls(self, tls: ServerTls, sockets: Sequence[socket.socket]) -> None:
        """Accept connections with TLS, as `uvicorn.Server.startup` does, but with a limit for the handshake."""
        loop, make = asyncio.get_running_loop(), cast("Any", self.config.http_protocol_class)
        create_protocol = partial(
            make, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        self.servers = [
            await loop.create_server(
                create_protocol, sock=each, ssl=tls.context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
            )
            for each in sockets
        ]
        self.started = True

    async def main_loop(self) -> None:
        """Update the Date header (RFC 9110 §6.6.1), collect garbage, trim the memory of closed connections, and check
        the certificate's expiry, once per second."""
        clock = asyncio.get_running_loop().time
        trimmer = Trimmer(clock)
        while not self._stop.is_requested:
            await self.on_tick(0)
            trimmer.observe(len(self.server_state.connections))
            if self._collector is not None:
                self._collector.tick(clock(), is_active=bool(self._hub.engine.active))
            if self._tls is not None:
                self._tls.check_expiry()
            await self._stop.wait(1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listening `sockets`, wait for active runs, and then end all responses.

        A response that still waits for events of a run is aborted, so that its client does not treat it as complete.
        """
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        rpc_end = None if self._rpc is None else asyncio.ensure_future(self._rpc.stop(self._stop.remaining()))
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):  # a WebSocket may have an active run, and is closed below
                connection.shutdown()
        if not await self._stop.complete(self._hub.drain(), self._stop.until_runs_stop()):
            log.warning("%d runs did not end within shutdown.grace and are stopped", len(self._hub.engine.active))
        self._hub.close_readers()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._stop.complete(self._all_answered(), min(_RESPONSE_GRACE, self._stop.remaining() / 4))
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):
                connection.abandon_answer()
            else:
                connection.transport.abort()
        if self._rpc is not None and rpc_end is not None:
            await self._rpc.stop(0)
            await rpc_end

    async def _all_answered(self) -> None:
        while self.server_state.connections or self.server_state.tasks or (self._rpc and self._rpc.active):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_INTERVAL)  # uvicorn has no event for it

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do not handle signals, because `ShutdownController` does. uvicorn would raise the signal again at the end,
        and the exit code would report an error."""
        yield
