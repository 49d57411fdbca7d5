"""Two gateways on one database, and an agent's server whose run outlives them: one is killed, the other attaches to the
run again, and callers who come back there are told every event once."""

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

QUICK: Final = {"BEAT": 0.05, "_SEEN": 0.1}
"""Seconds. Nobody is gone until the test has killed somebody."""
GONE: Final = nodes.GONE
SOON: Final = 0.4
"""Seconds after which that is noticed."""
CALLERS: Final[tuple[type[Caller], ...]] = (langgraph.LangGraph, a2a.JsonRpc10, acp.Acp)
"""They come back after the id of the last event, for all from a place of the log on, and after a number of events."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def born() -> AsyncGenerator[Nursery]:
    async with nursery() as made:
        yield made


class Reader:
    """Follows a task on one node after the other."""

    def __init__(self, caller: Caller, feed: Feed) -> None:
        self.caller = caller
        self.feed = feed

    async def is_cut_off(self) -> None:
        with pytest.raises(httpx.TransportError):
            await self.feed.end()

    async def come_back(self, stack: AsyncExitStack, http: httpx.AsyncClient) -> None:
        """To what was missed."""
        self.caller.http = http
        back = await stack.enter_async_context(self.caller.come_back(self.feed))
        back.frames = [*self.feed.frames]
        self.feed = back


async def follow(stack: AsyncExitStack, http: httpx.AsyncClient) -> list[Reader]:
    """A new run of the agent, which the first caller has begun."""
    first, *others = [made(http, "far") for made in CALLERS]
    feed = await stack.enter_async_context(first.stream("Hello"))
    readers = [Reader(first, feed)]
    for each in others:
        readers.append(Reader(each, await stack.enter_async_context(each.replay(feed.ids.task))))
    return readers


async def all_read(readers: Sequence[Reader], text: str) -> None:
    await within(asyncio.gather(*(reader.feed.said(text) for reader in readers)), f"the words {text!r}")


async def tell_all_once(readers: Sequence[Reader]) -> None:
    """What they were told is the whole, no event twice and none left out."""
    for reader in readers:
        async with reader.caller.replay(reader.feed.ids.task) as whole:
            seen = await whole.end()
        assert reader.feed.frames == whole.frames, reader.caller.name
        assert reader.feed.seen == seen


@asynccontextmanager
async def cluster(
    far: Upstream, born: Nursery, tables: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Stage, Running, AsyncExitStack]]:
    """A node that can be killed, one that sees to what it leaves, and a stack for what is left before they end."""
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
    """The agent ends, which everybody is told once, and it was asked once to begin."""
    await far.end()
    for reader in readers:
        assert (await within(reader.feed.end(), "the end")).state == "completed"
    await tell_all_once(readers)
    assert far.calls.count(far.starts) == 1
    assert not far.cancels


@pytest.mark.parametrize("kind", [A2A, LookedAt, Acp, LangGraph])
async def test_a_run_of_a_node_that_is_killed_is_attached_to_by_the_other(
    kind: type[Upstream], born: Nursery, postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(kind) as far, cluster(far, born, postgres_tables, tmp_path, monkeypatch) as (a, b, stack):
        readers = await follow(stack, a.http)
        for word in ("one ", "two "):
            await far.say(word)
        await all_read(readers, "one two ")
        await a.killed()
        await asyncio.gather(*(reader.is_cut_off() for reader in readers))
        await far.say("three ")  # to nobody
        assert set(far.calls) == {far.starts}
        monkeypatch.setattr(nodes, "GONE", SOON)
        await far.attached()
        for reader in readers:
            await reader.come_back(stack, b.http)
        await all_read(readers, "one two three ")
        await far.say("four")
        await all_read(readers, "one two three four")
        await end_once(far, readers)


@pytest.mark.parametrize("kind", [A2A, Acp, LangGraph])
async def test_a_node_that_was_stopped_for_longer_than_its_lease_hangs_up_on_the_agent_and_cancels_nothing(
    kind: type[Upstream], born: Nursery, postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(kind) as far, cluster(far, born, postgres_tables, tmp_path, monkeypatch) as (a, _, stack):
        readers = await follow(stack, a.http)
        await far.say("one ")
        await all_read(readers, "one ")
        a.signal(signal.SIGSTOP)
        monkeypatch.setattr(nodes, "GONE", SOON)
        await far.attached()
        await far.say("two ")
        monkeypatch.setattr(nodes, "GONE", GONE)
        a.signal(signal.SIGCONT)
        await far.say("three")
        await all_read(readers, "one two three")
        await far.followed(by=1 if kind.streams_again else 0)
        await end_once(far, readers)


@pytest.mark.parametrize("kind", [A2A, Acp, LangGraph])
async def test_a_run_of_a_node_that_is_killed_and_that_is_cancelled_before_it_is_missed_is_cancelled_upstream(
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
        monkeypatch.setattr(nodes, "GONE", SOON)
        for reader in readers:
            await reader.come_back(stack, b.http)
            assert (await within(reader.feed.end(), "the end")).state == "cancelled"
        await far.cancelled()
        await tell_all_once(readers)
        assert far.calls.count(far.starts) == far.cancels == 1


@pytest.mark.parametrize("kind", [A2A, Acp])
async def test_an_answer_of_a_node_that_is_killed_is_not_given_twice(
    kind: type[Upstream], born: Nursery, postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(kind) as far, cluster(far, born, postgres_tables, tmp_path, monkeypatch) as (a, b, stack):
        caller = acp.Acp(a.http, "far")
        asked = await stack.enter_async_context(caller.stream("Hello"))
        await far.say("one ")
        await asked.said("one ")
        await far.ask("Your name?")
        assert [each.text for each in (await within(asked.end(), "the question")).questions] == ["Your name?"]
        reader = Reader(caller, await stack.enter_async_context(caller.stream_answer(asked, "Ada")))
        await far.followed(by=1)
        await far.say("two ")
        await reader.feed.said("one two ")
        calls = len(far.calls)
        await a.killed()
        await reader.is_cut_off()
        await far.say("three ")
        monkeypatch.setattr(nodes, "GONE", SOON)
        await reader.come_back(stack, b.http)
        await all_read([reader], "one two three ")
        await far.say("four")
        await far.end()
        assert (await within(reader.feed.end(), "the end")).text == "one two three four"
        async with caller.replay(asked.ids.task) as whole:
            assert await whole.end() == reader.feed.seen
        assert whole.frames == [*asked.frames, *reader.feed.frames]
        assert far.calls.count(far.starts) + (far.answers != far.starts) * far.calls.count(far.answers) == 2
        assert not {far.starts, far.answers} & set(far.calls[calls:]) and not far.cancels
