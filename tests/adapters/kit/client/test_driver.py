"""Behavior that the clients of all protocols share, each against a scripted server."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
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
from babelgate.canonical.event import MessageStarted, UpstreamBound
from tests.adapters.kit.client.servers import SCRIPTS, ScriptedServer, Then, call
from tests.serving import serving

BOUND: Final = 30.0

BEHIND_URLS: Final = [each for each in UPSTREAMS if each.has_urls]
"""Protocols of agents that the gateway does not start as programs."""
SCRIPTED: Final = [each for each in BEHIND_URLS if each.protocol != "mcp"]
"""Protocols whose runs are streams or steps. A run of MCP is a call with a polled task: see tests/adapters/mcp."""

_BEGIN: Final = (UpstreamBound, MessageStarted)
"""Types of events with which a run begins. A run of Anthropic has no id on its server."""

every_url = pytest.mark.parametrize("upstream", BEHIND_URLS, ids=lambda upstream: upstream.protocol)
every_client = pytest.mark.parametrize("upstream", SCRIPTED, ids=lambda upstream: upstream.protocol)
every_stream = pytest.mark.parametrize(
    "upstream", [each for each in SCRIPTED if each.protocol != "aief"], ids=lambda upstream: upstream.protocol
)


@asynccontextmanager
async def client_of(
    upstream: Upstream, then: Then, headers: Mapping[str, str] | None = None, **server: Any
) -> AsyncGenerator[tuple[Any, ScriptedServer]]:
    far = ScriptedServer(SCRIPTS[upstream.protocol], then, **server)
    async with asyncio.timeout(BOUND), serving(far) as url:
        client = upstream.client(url, "far", headers=headers)
        try:
            yield client, far
        finally:
            await client.aclose()


async def run_to_end(client: Any, on_event: Callable[[Event], None] = lambda _: None) -> None:
    async with aclosing(client.run(call())) as events:
        async for event in events:
            on_event(event)


async def leave(client: Any, far: ScriptedServer, *words: str) -> None:
    """Start a run, and cancel its reader while the server is still streaming. `words` are the message of the
    cancellation."""
    bound = asyncio.Event()

    def note(event: Event) -> None:
        if isinstance(event, _BEGIN):
            bound.set()

    running = asyncio.ensure_future(run_to_end(client, note))
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
async def test_cancelling_the_reader_cancels_the_run_on_the_server(upstream: Upstream) -> None:
    async with client_of(upstream, "hold") as (client, far):
        await leave(client, far)
        assert far.cancelled.is_set() == (far.script.cancel is not None)
        await far.left.wait()


@every_client
async def test_closing_the_events_cancels_the_run_on_the_server(upstream: Upstream) -> None:
    async with client_of(upstream, "hold") as (client, far):
        events = client.run(call())
        async for event in events:
            if isinstance(event, _BEGIN):
                break
        await events.aclose()
        assert far.cancelled.is_set() == (far.script.cancel is not None)
        if far.script.begin:
            await far.left.wait()


@every_client
async def test_detaching_does_not_cancel_the_run_on_the_server(upstream: Upstream) -> None:
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
@pytest.mark.parametrize(
    ("body", "excerpt"),
    [
        ('{"detail":[{"loc":["body","input"],"msg":"must be a list"}]}', None),
        (
            '{"error": "the key sk-0123456789abcdef is for another project"}',
            '{"error": "the key *** is for another project"}',
        ),
        ("x" * 5000, "x" * 2045 + "..."),
        ("x" * 2000 + " sk-0123456789abcdef" * 100, "x" * 2000 + " ***" * 11 + " ..."),
    ],
    ids=["plain", "secret", "long", "cut within a secret"],
)
async def test_refusal_has_the_reason_without_secrets(upstream: Upstream, body: str, excerpt: str | None) -> None:
    headers = {"Authorization": "Bearer sk-0123456789abcdef"}
    async with client_of(upstream, "end", headers, refusal=body.encode()) as (client, _):
        with pytest.raises(FaultError) as error:
            await run_to_end(client)
    details = error.value.fault.details
    assert (details["status"], details["body"]) == (400, excerpt or body)
    assert "0123456789" not in repr(error.value.fault)


@every_client
async def test_an_invalid_event_is_a_fault_of_the_agent(upstream: Upstream) -> None:
    assert (await fault_from(upstream, "garbage")).code is FaultCode.AGENT_INVALID


@every_url
async def test_a_closed_port_is_an_unreachable_agent(upstream: Upstream) -> None:
    client: Any = upstream.client("http://127.0.0.1:9", "far")
    with pytest.raises(FaultError) as error:
        await run_to_end(client)
    await client.aclose()
    assert error.value.fault.code is FaultCode.AGENT_UNREACHABLE


@every_stream
async def test_a_server_lost_during_a_run_is_retried_within_limits(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (a2a, acp, resume):
        monkeypatch.setattr(module, "FIRST_WAIT", 0.0)
    async with client_of(upstream, "break", fails=True) as (client, far):
        with pytest.raises(FaultError) as error:
            await run_to_end(client)
    expected = FaultCode.AGENT_INVALID if far.script.look is None else FaultCode.AGENT_UNREACHABLE
    assert error.value.fault.code in (expected, FaultCode.AGENT_UNREACHABLE)
    reads = [each for each in far.calls if each == far.script.look]
    assert len(reads) <= MAX_FAILURES + 1


@every_stream
async def test_the_connection_of_an_ended_run_is_reused(upstream: Upstream) -> None:
    async with client_of(upstream, "end") as (client, far):
        await run_to_end(client)
        await run_to_end(client)
        assert len(far.ports) == 2
        assert len(set(far.ports)) == 1


@every_stream
async def test_the_client_disconnects_after_the_last_event(upstream: Upstream) -> None:
    async with client_of(upstream, "end and hold") as (client, far):
        await run_to_end(client)
        await far.left.wait()
        assert far.script.cancel not in far.calls
