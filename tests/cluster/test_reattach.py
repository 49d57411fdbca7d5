"""Two gateways on one database, and an agent's server whose run outlives them.

One gateway is killed, and the other attaches to the run again. Callers that reconnect there receive every event once.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from babelgate.gateway.storage import nodes
from tests.cluster.upstreams import A2A, Acp, LangGraph, LookedAt, Upstream, upstream
from tests.gateway.hubs import within
from tests.gateway.stage import Nursery, Stage, nursery
from tests.pairs import a2a, acp, langgraph
from tests.pairs.caller import Caller, Feed
from tests.postgres import empty, url_of
from tests.running import Running, running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

QUICK: Final = {"BEAT": 0.05, "_OBSERVATION_TIME": 0.1}
"""Settings of the heartbeat, in seconds. No node counts as gone until the test lowers `nodes.DEAD_AFTER`."""
LEASE: Final = nodes.DEAD_AFTER
SOON: Final = 0.4
"""Seconds without a heartbeat after which a killed node counts as gone."""
CALLERS: Final[tuple[type[Caller], ...]] = (langgraph.LangGraph, a2a.JsonRpc10, acp.Acp)
"""Callers that reconnect in different ways: after the id of the last event, from a position of the log, and after a
number of events.
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def born() -> AsyncGenerator[Nursery]:
    async with nursery() as processes:
        yield processes


class Reader:
    """A caller that follows a task on one node after the other."""

    def __init__(self, caller: Caller, feed: Feed) -> None:
        self.caller = caller
        self.feed = feed

    async def is_cut_off(self) -> None:
        with pytest.raises(httpx.TransportError):
            await self.feed.end()

    async def reconnect(self, stack: AsyncExitStack, http: httpx.AsyncClient) -> None:
        """Reconnect to another node, and receive the missed events."""
        self.caller.http = http
        back = await stack.enter_async_context(self.caller.reconnect(self.feed))
        back.frames = [*self.feed.frames]
        self.feed = back


async def follow(stack: AsyncExitStack, http: httpx.AsyncClient) -> list[Reader]:
    """Start a run of the agent with the first caller, and follow it with all callers."""
    first, *others = [caller_class(http, "far") for caller_class in CALLERS]
    feed = await stack.enter_async_context(first.stream("Hello"))
    readers = [Reader(first, feed)]
    for each in others:
        readers.append(Reader(each, await stack.enter_async_context(each.replay(feed.ids.task))))
    return readers


async def all_read(readers: Sequence[Reader], text: str) -> None:
    await within(asyncio.gather(*(reader.feed.until_text(text) for reader in readers)), f"the words {text!r}")


async def check_complete(readers: Sequence[Reader]) -> None:
    """Check that each reader has received the whole stream, without repeated or missing events."""
    for reader in readers:
        async with reader.caller.replay(reader.feed.ids.task) as whole:
            view = await whole.end()
        assert reader.feed.frames == whole.frames, reader.caller.name
        assert reader.feed.task == view


@asynccontextmanager
async def cluster(
    far: Upstream, born: Nursery, tables: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Stage, Running, AsyncExitStack]]:
    """Start two nodes, and yield the one that can be killed, the one that takes over, and a stack that closes before
    them.
    """
    empty(tables)
    for name, seconds in QUICK.items():
        monkeypatch.setattr(nodes, name, seconds)
    shared: dict[str, Any] = {"database": url_of(tables), "cluster": True, "blobs": str(folder / "blobs")}
    agents = {"far": far.settings}
    async with running(folder, configured=agents, **shared) as b, AsyncExitStack() as stack:
        a = Stage(folder, born, {"agents": agents, **shared})
        stack.push_async_callback(a.close)
        await a.start()
        async with AsyncExitStack() as inner:
            yield a, b, inner
    assert "Traceback" not in a.complaints()


async def end_once(far: Upstream, readers: Sequence[Reader]) -> None:
    """End the agent, and check that each reader receives the end once and that the run was started once."""
    await far.end()
    for reader in readers:
        assert (await within(reader.feed.end(), "the end")).state == "completed"
    await check_complete(readers)
    assert far.calls.count(far.starts) == 1
    assert not far.cancels


@pytest.mark.parametrize("kind", [A2A, LookedAt, Acp, LangGraph])
async def test_another_node_attaches_to_a_killed_nodes_run(
    kind: type[Upstream], born: Nursery, postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(kind) as far, cluster(far, born, postgres_tables, tmp_path, monkeypatch) as (a, b, stack):
        readers = await follow(stack, a.http)
        for word in ("one ", "two "):
            await far.say(word)
        await all_read(readers, "one two ")
        await a.killed()
        await asyncio.gather(*(reader.is_cut_off() for reader in readers))
        await far.say("three ")  # while no node is connected
        assert set(far.calls) == {far.starts}
        monkeypatch.setattr(nodes, "DEAD_AFTER", SOON)
        await far.attached()
        for reader in readers:
            await reader.reconnect(stack, b.http)
        await all_read(readers, "one two three ")
        await far.say("four")
        await all_read(readers, "one two three four")
        await end_once(far, readers)


@pytest.mark.parametrize("kind", [A2A, Acp, LangGraph])
async def test_a_suspended_node_disconnects_without_cancelling_the_run(
    kind: type[Upstream], born: Nursery, postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(kind) as far, cluster(far, born, postgres_tables, tmp_path, monkeypatch) as (a, _, stack):
        readers = await follow(stack, a.http)
        await far.say("one ")
        await all_read(readers, "one ")
        a.signal(signal.SIGSTOP)
        monkeypatch.setattr(nodes, "DEAD_AFTER", SOON)
        await far.attached()
        await far.say("two ")
        monkeypatch.setattr(nodes, "DEAD_AFTER", LEASE)
        a.signal(signal.SIGCONT)
        await far.say("three")
        await all_read(readers, "one two three")
        await far.followed(by=1 if kind.streams_again else 0)
        await end_once(far, readers)


@pytest.mark.parametrize("kind", [A2A, Acp, LangGraph])
async def test_a_cancel_before_the_takeover_reaches_the_upstream(
    kind: type[Upstream], born: Nursery, postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(kind) as far, cluster(far, born, postgres_tables, tmp_path, monkeypatch) as (a, b, stack):
        readers = await follow(stack, a.http)
        await far.say("one ")
        await all_read(readers, "one ")
        await a.killed()
        await asyncio.gather(*(reader.is_cut_off() for reader in readers))
        cancelling = asyncio.ensure_future(acp.Acp(b.http, "far").cancel(readers[0].feed.ids.task))
        assert (await within(cancelling)).state == "cancelling"
        monkeypatch.setattr(nodes, "DEAD_AFTER", SOON)
        for reader in readers:
            await reader.reconnect(stack, b.http)
            assert (await within(reader.feed.end(), "the end")).state == "cancelled"
        await far.cancelled()
        await check_complete(readers)
        assert far.calls.count(far.starts) == far.cancels == 1


@pytest.mark.parametrize("kind", [A2A, Acp])
async def test_an_answer_of_a_killed_node_is_not_sent_twice(
    kind: type[Upstream], born: Nursery, postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(kind) as far, cluster(far, born, postgres_tables, tmp_path, monkeypatch) as (a, b, stack):
        caller = acp.Acp(a.http, "far")
        paused = await stack.enter_async_context(caller.stream("Hello"))
        await far.say("one ")
        await paused.until_text("one ")
        await far.ask("Your name?")
        assert [each.text for each in (await within(paused.end(), "the question")).questions] == ["Your name?"]
        reader = Reader(caller, await stack.enter_async_context(caller.stream_answer(paused, "Ada")))
        await far.followed(by=1)
        await far.say("two ")
        await reader.feed.until_text("one two ")
        calls = len(far.calls)
        await a.killed()
        await reader.is_cut_off()
        await far.say("three ")
        monkeypatch.setattr(nodes, "DEAD_AFTER", SOON)
        await reader.reconnect(stack, b.http)
        await all_read([reader], "one two three ")
        await far.say("four")
        await far.end()
        assert (await within(reader.feed.end(), "the end")).text == "one two three four"
        async with caller.replay(paused.ids.task) as whole:
            assert await whole.end() == reader.feed.task
        assert whole.frames == [*paused.frames, *reader.feed.frames]
        assert far.calls.count(far.starts) + (far.answers != far.starts) * far.calls.count(far.answers) == 2
        assert not {far.starts, far.answers} & set(far.calls[calls:]) and not far.cancels
