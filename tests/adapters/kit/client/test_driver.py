"""What the clients of all protocols do alike, each against a server of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import pytest

import babelgate.adapters.a2a.client as a2a
import babelgate.adapters.acp.client as acp
from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.client.backoff import MAX_FAILURES
from babelgate.adapters.kit.upstream import Upstream
from babelgate.adapters.langchain.client import resume
from babelgate.canonical import Event, Fault, FaultCode, FaultError
from babelgate.canonical.agent import DETACH, Reattachable
from babelgate.canonical.event import UpstreamBound
from tests.adapters.kit.client.servers import SCRIPTS, ScriptedServer, Then, call
from tests.serving import serving

BOUND: Final = 30.0

every_client = pytest.mark.parametrize("upstream", UPSTREAMS, ids=lambda upstream: upstream.protocol)
every_stream = pytest.mark.parametrize(
    "upstream", [each for each in UPSTREAMS if each.protocol != "aief"], ids=lambda upstream: upstream.protocol
)


@asynccontextmanager
async def client_of(upstream: Upstream, then: Then, **server: Any) -> AsyncGenerator[tuple[Any, ScriptedServer]]:
    far = ScriptedServer(SCRIPTS[upstream.protocol], then, **server)
    async with asyncio.timeout(BOUND), serving(far) as url:
        client = upstream.client(url, "far")
        try:
            yield client, far
        finally:
            await client.aclose()


async def run_to_end(client: Any, heard: Callable[[Event], None] = lambda _: None) -> None:
    async with aclosing(client.run(call())) as events:
        async for event in events:
            heard(event)


async def leave(client: Any, far: ScriptedServer, *words: str) -> None:
    """Start a run, and leave it while its server is at work."""
    bound = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, UpstreamBound):
            bound.set()

    running = asyncio.ensure_future(run_to_end(client, hear))
    await far.begun.wait()
    await bound.wait()
    running.cancel(*words)
    with pytest.raises(asyncio.CancelledError):
        await running


async def fault_from(upstream: Upstream, then: Then) -> Fault:
    async with client_of(upstream, then) as (client, _):
        with pytest.raises(FaultError) as error:
            await run_to_end(client)
    return error.value.fault


@every_client
async def test_what_the_server_does_for_a_run_is_cancelled_when_its_caller_leaves(upstream: Upstream) -> None:
    async with client_of(upstream, "hold") as (client, far):
        await leave(client, far)
        assert far.cancelled.is_set() == (far.script.cancel is not None)
        await far.left.wait()


@every_client
async def test_closing_a_run_cancels_it_too(upstream: Upstream) -> None:
    async with client_of(upstream, "hold") as (client, far):
        events = client.run(call())
        async for event in events:
            if isinstance(event, UpstreamBound):
                break
        await events.aclose()
        assert far.cancelled.is_set() == (far.script.cancel is not None)
        if far.script.begin:
            await far.left.wait()


@every_client
async def test_a_gateway_that_will_be_back_cancels_nothing(upstream: Upstream) -> None:
    async with client_of(upstream, "hold") as (client, far):
        assert isinstance(client, Reattachable) == (far.script.cancel is not None)
        await leave(client, far, DETACH)
        await far.left.wait()
        assert far.script.cancel not in far.calls


@every_client
async def test_a_run_that_has_ended_is_not_cancelled(upstream: Upstream) -> None:
    async with client_of(upstream, "end") as (client, far):
        await run_to_end(client)
        assert far.script.cancel not in far.calls


@every_client
async def test_what_breaks_the_protocol_is_the_servers_fault(upstream: Upstream) -> None:
    assert (await fault_from(upstream, "garbage")).code is FaultCode.AGENT_INVALID


@every_client
async def test_a_server_that_nobody_listens_at_is_unreachable(upstream: Upstream) -> None:
    client: Any = upstream.client("http://127.0.0.1:9", "far")
    with pytest.raises(FaultError) as error:
        await run_to_end(client)
    await client.aclose()
    assert error.value.fault.code is FaultCode.AGENT_UNREACHABLE


@every_stream
async def test_a_server_gone_in_mid_run_is_tried_again(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (a2a, acp, resume):
        monkeypatch.setattr(module, "FIRST_WAIT", 0.0)
    async with client_of(upstream, "break", gone=True) as (client, far):
        with pytest.raises(FaultError) as error:
            await run_to_end(client)
    blame = FaultCode.AGENT_INVALID if far.script.look is None else FaultCode.AGENT_UNREACHABLE
    assert error.value.fault.code in (blame, FaultCode.AGENT_UNREACHABLE)
    looks = [each for each in far.calls if each == far.script.look]
    assert len(looks) <= MAX_FAILURES + 1


@every_stream
async def test_the_connection_of_a_run_that_has_ended_is_used_again(upstream: Upstream) -> None:
    async with client_of(upstream, "end") as (client, far):
        await run_to_end(client)
        await run_to_end(client)
        assert len(far.ports) == 2
        assert len(set(far.ports)) == 1


@every_stream
async def test_a_server_that_does_not_end_its_stream_is_not_waited_for(upstream: Upstream) -> None:
    async with client_of(upstream, "end and hold") as (client, far):
        await run_to_end(client)
        await far.left.wait()
        assert far.script.cancel not in far.calls
