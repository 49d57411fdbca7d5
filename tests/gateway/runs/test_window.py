"""Tests of the commit window: tokens that arrive one by one are stored together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from babelgate.canonical import Event, Invocation, Scope
from babelgate.canonical.event import Custom, MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded
from babelgate.canonical.message import TextPart
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs.window import Window
from babelgate.gateway.settings.model import Limits
from tests.gateway.hubs import HubFactory, ends, follow, registered, submit, submit_to_end, within

TOKENS = 40


class Trickle:
    """Agent that yields tokens one by one, and with `marks` another event after each.

    Before each token it waits until the events that are due are stored.
    """

    def __init__(self, *, marks: bool = False) -> None:
        self.marks = marks
        self.hub: GatewayHub | None = None

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        yield MessageStarted()
        yield PartAdded(part=TextPart(text=""), open=True)
        await self._await_storage()
        for number in range(TOKENS):
            yield PartDelta(text=f"{number} ")
            await self._await_storage()
            if self.marks:
                yield Custom(name="mark")
                await self._await_storage()
        yield PartEnded()
        yield MessageEnded()

    async def _await_storage(self) -> None:
        assert self.hub is not None
        for _ in range(4):  # turns of the loop until the pending events are being stored
            await asyncio.sleep(0)
        await self.hub.journal.write(lambda _: None)


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Kinds of the events in each append."""
    found: list[list[str]] = []
    append = lifecycle.append

    def note(tx: Any, start: Any, events: Any, files: Any, account: Any) -> None:
        found.append([event.kind for event, _ in events])
        append(tx, start, events, files, account)

    monkeypatch.setattr(lifecycle, "append", note)
    return found


@pytest.mark.parametrize("window", [0.0, 1.0])
async def test_tokens_of_a_window_are_stored_together(
    hubs: HubFactory, appends: list[list[str]], window: float
) -> None:
    agent = Trickle()
    agent.hub = hub = await hubs.start(registered("a", agent), limits=Limits(window=window))
    loop = asyncio.get_running_loop()
    began = loop.time()
    receipt = await submit_to_end(hub, "a")
    took = loop.time() - began
    records = await follow(hub, Scope.task(receipt.task))
    tokens = [record.event.text for record in records if isinstance(record.event, PartDelta)]
    assert tokens == [f"{number} " for number in range(TOKENS)]
    assert appends[0] == ["message_started", "part_added"], "what is no token waited"
    if window:
        assert len(appends) <= 4 + took, "the window did not gather"
    else:
        assert appends[1:] == [["part_delta"]] * TOKENS


async def test_another_event_flushes_the_tokens_before_it(hubs: HubFactory, appends: list[list[str]]) -> None:
    agent = Trickle(marks=True)
    agent.hub = hub = await hubs.start(registered("a", agent), limits=Limits(window=1.0))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await ends(hub, await submit(hub, "a"))
    # All runs share the windows: a token at the end of one is stored before the next event.
    alone = appends[1:].count(["part_delta"])
    assert alone <= loop.time() - began + 1
    assert appends[1:].count(["part_delta", "custom"]) == TOKENS - alone
    assert appends[1:].count(["custom"]) == alone
    assert len(appends) == 1 + TOKENS + alone


async def test_all_runs_share_the_same_windows() -> None:
    window = Window(0.01)
    loop = asyncio.get_running_loop()
    assert not window.is_open(loop.time() - 1)
    assert window.is_open(loop.time())
    assert not Window(0).is_open(loop.time())
    ended: list[int] = []
    over = asyncio.Event()

    def end(number: int) -> Callable[[], None]:
        def note() -> None:
            ended.append(number)
            over.set()

        return note

    for number in range(3):
        window.call_at_end(end(number))
    await within(over.wait())
    assert ended == [0, 1, 2]
    over.clear()
    window.call_at_end(end(3))
    await within(over.wait())
    assert ended == [0, 1, 2, 3]
