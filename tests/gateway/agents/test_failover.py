"""Tests of failover: the server that a run uses, and the behavior when a server does not answer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import httpx
import pytest

from babelgate.canonical import Event, FaultCode, FaultError, Invocation
from babelgate.canonical.agent import DETACH, Introspectable, Reattachable
from babelgate.canonical.event import Custom, LossNoted, UpstreamBound
from babelgate.canonical.feature import Feature
from babelgate.gateway.agents.failover import Breaker, FailoverServer, ServerPool, server_pool

Script = Callable[[Invocation], AsyncGenerator[Event, None]]


@pytest.fixture(autouse=True)
def tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.gateway.agents.failover._RETRY_DELAYS", (0.01, 0.02))


def unreachable(unbegun: bool = True) -> FaultError:
    error = FaultError(FaultCode.AGENT_UNREACHABLE, "gone")
    error.__cause__ = httpx.ConnectError("refused") if unbegun else httpx.ReadError("cut")
    return error


class Client:
    """Client that executes one script per run, and repeats the last one."""

    def __init__(self, *scripts: Any) -> None:
        self._scripts = list(scripts)
        self.calls: list[Invocation] = []
        self.left: list[str] = []
        self.closed = False

    async def run(self, call: Invocation) -> AsyncGenerator[Event, None]:
        self.calls.append(call)
        scripted: Any = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        script = cast("list[Any]", scripted) if isinstance(scripted, list) else [scripted]
        try:
            for item in script:
                if isinstance(item, BaseException):
                    raise item
                yield item
        except GeneratorExit:
            self.left.append("closed")
            raise
        except asyncio.CancelledError as error:
            self.left.append(str(error.args[0]))
            raise

    async def aclose(self) -> None:
        self.closed = True


class Attaching(Client):
    async def reattach(self, call: Invocation) -> AsyncGenerator[Event, None]:
        async for event in self.run(call):
            yield event


def call(**upstream: str) -> Invocation:
    return Invocation(agent="a", thread_id="t", task_id="k", run_id="r", upstream=upstream)


def of(*clients: Client, **breaker: Any) -> ServerPool:
    return server_pool(
        [FailoverServer(f"http://{number}", each, Breaker(**breaker)) for number, each in enumerate(clients)]
    )


async def events(agent: ServerPool, **upstream: str) -> Sequence[Event]:
    return [event async for event in agent.run(call(**upstream))]


async def fails(agent: ServerPool, **upstream: str) -> FaultError:
    with pytest.raises(FaultError) as error:
        await events(agent, **upstream)
    return error.value


HELLO = Custom(value="hello")
BOUND = UpstreamBound(protocol="p", ids={"task": "1"})


async def test_another_server_runs_the_task_after_a_failed_connection() -> None:
    dead, alive = Client(unreachable()), Client([BOUND, HELLO])
    agent = of(dead, alive)
    bound, hello = await events(agent)
    assert isinstance(bound, UpstreamBound)
    assert bound.ids == {"task": "1", "server": "http://1"}
    assert hello == HELLO
    assert agent.health == {"http://0": "failing", "http://1": "ok"}
    await events(agent)
    assert len(dead.calls) == 1, "a healthy server is preferred"


async def test_a_conversation_stays_on_its_server() -> None:
    one, two = Client([HELLO]), Client([HELLO])
    agent = of(one, two)
    await events(agent, server="http://1", task="1")
    assert (len(one.calls), len(two.calls)) == (0, 1)
    two = Client(unreachable())
    agent = of(one, two)
    await fails(agent, server="http://1", task="1")
    assert one.calls == [], "the other server does not have the conversation"


async def test_a_fork_prefers_the_server_of_its_origin() -> None:
    forked = replace(call(), origin={"run": "1", "server": "http://1"})
    one, two = Client([HELLO]), Client([HELLO])
    assert [event async for event in of(one, two).run(forked)] == [HELLO]
    assert (len(one.calls), len(two.calls)) == (0, 1)
    assert [event async for event in of(one, Client(unreachable())).run(forked)] == [HELLO]
    assert one.calls == [forked]


async def test_a_run_is_not_started_twice() -> None:
    for script in (unreachable(unbegun=False), [HELLO, unreachable()], FaultError(FaultCode.AGENT_TIMEOUT, "slow")):
        first, second = Client(script), Client([HELLO])
        await fails(of(first, second))
        assert (len(first.calls), second.calls) == (1, [])


async def test_a_server_that_recovers_quickly_is_retried() -> None:
    client = Client(unreachable(), unreachable(), [HELLO])
    assert await events(of(client)) == [HELLO]
    assert len(client.calls) == 3


def fault(code: FaultCode, **details: Any) -> FaultError:
    return FaultError(code, "told", **details)


LOST = LossNoted(feature=Feature.QUESTION, how="it cannot be said")

FAILING: list[Any] = [
    unreachable(unbegun=False),
    fault(FaultCode.AGENT_TIMEOUT),
    *(fault(FaultCode.AGENT_FAILED, status=status) for status in (500, 502, 503, 504, 522)),
    fault(FaultCode.AGENT_INVALID),
    [LOST, fault(FaultCode.AGENT_FAILED, status=500)],
    [LOST, fault(FaultCode.AGENT_INVALID)],
    [HELLO, fault(FaultCode.AGENT_UNREACHABLE)],
    [HELLO, fault(FaultCode.AGENT_TIMEOUT, status=504)],
]
WELL: list[Any] = [
    fault(FaultCode.AGENT_FAILED),
    *(fault(FaultCode.AGENT_UNREACHABLE, status=status) for status in (307, 400, 401, 404, 408, 422, 429, 501)),
    *(fault(code, status=200) for code in (FaultCode.AGENT_TIMEOUT, FaultCode.AGENT_INVALID)),
    [HELLO, fault(FaultCode.AGENT_FAILED, status=500)],
    [HELLO, fault(FaultCode.AGENT_INVALID)],
]


@pytest.mark.parametrize("script", FAILING)
async def test_a_server_error_counts_as_a_failure(script: Any) -> None:
    agent = of(Client(script), failures=1)
    await fails(agent)
    assert agent.health == {"http://0": "open"}


@pytest.mark.parametrize("script", WELL)
async def test_a_client_error_does_not_count_as_a_failure(script: Any) -> None:
    agent = of(Client(unreachable(unbegun=False), script), failures=2)
    await fails(agent)
    for _ in range(3):
        await fails(agent)
        assert agent.health == {"http://0": "ok"}


async def test_a_lost_connection_event_does_not_close_the_breaker() -> None:
    now = 0.0
    breaker = Breaker(failures=1, cooldown=1, clock=lambda: now)
    agent = ServerPool([FailoverServer("http://0", Client([LOST, unreachable()]), breaker)])
    await fails(agent)
    now += 1
    running = agent.run(call())
    assert await anext(running) == LOST
    assert breaker.state == "probing"
    with pytest.raises(FaultError):
        await anext(running)
    assert breaker.state == "open"


async def test_one_run_probes_a_failing_server_after_its_pause() -> None:
    now = 100.0
    client = Client(unreachable(unbegun=False))
    breaker = Breaker(failures=2, cooldown=30, clock=lambda: now)
    agent = ServerPool([FailoverServer("http://0", client, breaker)])
    for _ in range(2):
        await fails(agent)
    assert agent.health == {"http://0": "open"}
    error = await fails(agent)
    assert (error.fault.code, error.fault.details) == (FaultCode.AGENT_UNREACHABLE, {"retry_after": 30})
    assert len(client.calls) == 2
    now += 30
    assert breaker.enter(), "half open"
    await fails(agent)
    assert len(client.calls) == 2, "one at a time finds out"
    breaker.record_failure()
    assert breaker.wait == 30
    now += 30
    client = Client([HELLO])
    agent = ServerPool([FailoverServer("http://0", client, breaker)])
    assert await events(agent) == [HELLO]
    assert agent.health == {"http://0": "ok"}


async def test_a_server_that_dies_during_runs_is_skipped() -> None:
    client = Client([HELLO, unreachable(unbegun=False)])
    agent = of(client, failures=3)
    for _ in range(3):
        await fails(agent)
    assert agent.health == {"http://0": "open"}


async def test_a_server_with_one_failure_is_used_again_later() -> None:
    now = 0.0
    one, two = Client(unreachable(), [HELLO]), Client([HELLO])
    agent = ServerPool(
        [
            FailoverServer(f"http://{n}", each, Breaker(cooldown=30, clock=lambda: now))
            for n, each in enumerate((one, two))
        ]
    )
    await events(agent)
    await events(agent)
    assert (len(one.calls), len(two.calls)) == (1, 2)
    now += 30
    await events(agent)
    assert (len(one.calls), len(two.calls)) == (2, 2)
    assert agent.health == {"http://0": "ok", "http://1": "ok"}


async def test_a_cancelled_waiter_does_not_admit_another_probe() -> None:
    now = 0.0
    breaker = Breaker(failures=1, cooldown=1, clock=lambda: now)
    agent = ServerPool([FailoverServer("http://0", Client([HELLO, HELLO]), breaker)])
    older: Any = agent.run(call())
    await anext(older)
    breaker.record_failure()
    now += 1
    assert breaker.enter()
    await older.aclose()
    assert (breaker.state, breaker.can_admit) == ("probing", False)


async def test_a_cancelled_probe_admits_the_next() -> None:
    now = 0.0
    breaker = Breaker(failures=1, cooldown=1, clock=lambda: now)
    breaker.record_failure()
    now += 1
    silent = asyncio.Event()

    class Silent(Client):
        async def run(self, call: Invocation) -> AsyncGenerator[Event, None]:
            await silent.wait()
            yield HELLO

    agent = ServerPool([FailoverServer("http://0", Silent(), breaker)])
    running = agent.run(call())
    first: Any = asyncio.ensure_future(anext(running))
    await asyncio.sleep(0)
    assert breaker.state == "probing"
    first.cancel()
    await asyncio.wait((first,))
    await running.aclose()  # type: ignore[attr-defined]
    assert breaker.enter()


@pytest.mark.parametrize(("way", "ending"), [("close", "closed"), ("detach", DETACH)])
async def test_the_reason_of_a_cancel_reaches_the_client(way: str, ending: str) -> None:
    client = Client([HELLO, HELLO])
    running: Any = of(client).run(call())
    await anext(running)
    if way == "close":
        await running.aclose()
    else:
        with pytest.raises(asyncio.CancelledError):
            await running.athrow(asyncio.CancelledError(DETACH))
        await running.aclose()
    assert client.left == [ending]


async def test_a_fleet_can_reattach_only_if_its_clients_can() -> None:
    assert not isinstance(of(Client(HELLO)), Reattachable)
    one, two = Attaching([HELLO]), Attaching([HELLO])
    agent = of(one, two)
    assert isinstance(agent, Reattachable)
    assert [event async for event in agent.reattach(call(server="http://1", run="1"))] == [HELLO]
    assert (len(one.calls), len(two.calls)) == (0, 1)


async def test_a_run_is_reattached_on_a_server_that_recovers_quickly() -> None:
    client = Attaching(unreachable(), unreachable(), [HELLO])
    agent = of(client)
    assert isinstance(agent, Reattachable)
    assert [event async for event in agent.reattach(call(server="http://0", run="1"))] == [HELLO]
    assert len(client.calls) == 3


async def test_all_connections_are_closed() -> None:
    clients = Client(HELLO), Client(HELLO)
    await of(*clients).aclose()
    assert all(client.closed for client in clients)


# Requests that are not runs


class Drawing(Attaching):
    async def update_state(self) -> None: ...

    async def draw(self, depth: int | bool) -> Any:
        if not self.calls:
            await asyncio.Event().wait()
        return {"nodes": [], "edges": [], "depth": depth}

    async def subgraphs(self, namespace: str | None, recurse: bool) -> Any:
        return await self.draw(recurse)


async def test_a_silent_server_does_not_delay_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.gateway.agents.failover._REQUEST_TIMEOUT", 0.05)
    agent = of(Drawing())
    assert isinstance(agent, Introspectable)
    for answer in (agent.draw(True), agent.subgraphs(None, False)):
        with pytest.raises(FaultError, match="did not answer within") as error:
            await answer
        assert error.value.fault.code is FaultCode.AGENT_TIMEOUT


async def test_a_healthy_server_is_preferred_to_a_failing_one() -> None:
    failing, well = Drawing(unreachable()), Drawing([])
    well.calls.append(call())
    agent = of(failing, well)
    await events(agent)
    assert isinstance(agent, Introspectable)
    assert await agent.draw(2) == {"nodes": [], "edges": [], "depth": 2}
