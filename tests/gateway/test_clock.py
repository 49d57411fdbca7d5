"""The system's clock is set back and forth while the gateway runs: what waits, waits as long as it was to."""

import ast
import asyncio
import os
import re
import time
from pathlib import Path
from typing import Final

import pytest

from babelgate import adapters, canonical, gateway
from babelgate.canonical import RunStatus, Scope, TaskState, ThreadChange
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.blobs import FolderBlobs
from babelgate.gateway.storage.transaction import Transaction
from tests.gateway.hubs import (
    OWNER,
    Echo,
    House,
    Scripted,
    begin,
    ends,
    finish,
    follow,
    gone,
    log,
    reaches,
    registered,
    submit,
    submit_to_end,
    within,
)

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND


class Wall:
    """The system's clock, and what somebody has set it by."""

    def __init__(self) -> None:
        self.moved = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.moved


async def forget(hub: GatewayHub) -> None:
    """The threads that the writer has in memory."""
    await hub.journal.write(Transaction.forget)


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
async def test_a_delayed_run_starts_after_its_delay_whatever_the_clock_is_set_to(hubs: House, set_by: int) -> None:
    wall, agent = Wall(), Scripted()
    hub = await hubs.start(registered("a", agent), clock=Clock(wall))
    first = await submit(hub, "a", "first", start_in=SECOND // 10)
    second = await submit(hub, "a", "second", thread_id=first.thread_id, start_in=SECOND // 5)
    wall.moved = set_by
    await forget(hub)
    for receipt, words in ((first, "first"), (second, "second")):
        going = await agent.called()
        assert going.call.text == words
        await finish(hub, going, receipt)
    at = [record.at for record in await log(hub, first)]
    assert at == sorted(at)


async def test_a_clock_that_is_set_forward_starts_no_run_before_its_time(hubs: House) -> None:
    wall, agent = Wall(), Scripted()
    hub = await hubs.start(registered("a", agent), clock=Clock(wall))
    later = await submit(hub, "a", "later", start_in=HOUR)
    wall.moved = 24 * HOUR
    await forget(hub)
    now, going = await begin(hub, agent, "now", thread_id=later.thread_id)
    assert going.call.text == "now"
    await finish(hub, going, now)
    await within(hub.engine.idle())
    assert not agent.waiting
    assert (await hub.reads.run(OWNER, later.run_id)).status is RunStatus.PENDING


async def test_a_delay_after_the_clock_was_set_back_counts_from_the_new_time(hubs: House) -> None:
    """The thread's log stands at the old time until the new one has come so far."""
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    before = await submit_to_end(hub, "echo")
    wall.moved = -HOUR
    await ends(hub, await submit(hub, "echo", thread_id=before.thread_id, start_in=SECOND // 10))


async def test_over_a_restart_a_delay_is_what_the_clock_says(hubs: House) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    receipt = await submit(hub, "echo", start_in=2 * HOUR)
    await hubs.stop(hub)
    wall.moved = -HOUR
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    await within(hub.engine.idle())
    assert (await hub.reads.run(OWNER, receipt.run_id)).status is RunStatus.PENDING
    await hubs.stop(hub)
    wall.moved = 2 * HOUR
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    await ends(hub, receipt)


async def test_a_thread_lives_as_long_as_it_was_to_though_the_clock_was_set_back(hubs: House) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall), limits=Limits(ephemeral_ttl=0.1))
    passing = await submit(hub, "echo", ephemeral=True)
    lasting = await hub.create_thread(OWNER, ThreadChange(ttl=1))
    wall.moved = -HOUR
    await ends(hub, await submit(hub, "echo", thread_id=lasting.thread_id))
    await gone(hub, passing.thread_id)
    await gone(hub, lasting.thread_id)


async def test_a_thread_lives_as_long_as_it_was_to_though_the_clock_was_set_forward(hubs: House) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall), limits=Limits(ephemeral_ttl=0.1))
    lasting = await hub.create_thread(OWNER, ThreadChange(ttl=100))
    wall.moved = HOUR
    await ends(hub, await submit(hub, "echo", thread_id=lasting.thread_id))
    wall.moved = 24 * HOUR
    passing = await submit(hub, "echo", ephemeral=True)
    await gone(hub, passing.thread_id)
    assert await hub.reads.thread(OWNER, lasting.thread_id)


async def test_a_question_expires_though_the_clock_was_set_back(hubs: House) -> None:
    wall, agent = Wall(), Scripted()
    hub = await hubs.start(registered("a", agent), clock=Clock(wall), limits=Limits(input_ttl=0.1))
    receipt, going = await begin(hub, agent, ephemeral=True)
    wall.moved = -HOUR
    going.ask("q").end()
    assert (await reaches(hub, receipt, TaskState.FAILED)).state is TaskState.FAILED


async def test_a_thread_is_not_older_because_the_clock_was_set_back_over_a_restart(hubs: House) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    thread = await hub.create_thread(OWNER, ThreadChange(ttl=1))
    await hubs.stop(hub)
    wall.moved = -HOUR
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    reading = asyncio.ensure_future(follow(hub, Scope(thread.thread_id)))
    await gone(hub, thread.thread_id)  # a second after the start
    await within(reading)


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
async def test_an_item_lives_as_long_as_it_was_to(hubs: House, set_by: int) -> None:
    wall, passed = Wall(), [0]
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall, lambda: passed[0]))
    await hub.store.put(OWNER, ("a",), "k", {"n": 1}, ttl=60)
    wall.moved = set_by
    passed[0] += 59 * SECOND
    assert await hub.store.get(OWNER, ("a",), "k", refresh=False)
    passed[0] += SECOND
    assert await hub.store.get(OWNER, ("a",), "k") is None


async def test_a_clock_that_is_set_forward_takes_no_file_on_its_way_into_an_event(hubs: House) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    blobs = FolderBlobs(hubs.folder / "blobs", 2**20)
    await hub.sweep_files()
    blob = blobs.put(b"on its way")
    wall.moved = 2 * HOUR
    assert await hub.sweep_files() == 0
    assert blobs.get(blob) == b"on its way"
    wall.moved += 2 * HOUR
    assert await hub.sweep_files() == 1


READS_THE_TIME: Final = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def test_nothing_but_the_clock_reads_the_systems_time() -> None:
    found: set[str] = set()
    names = {name.rpartition(".")[2] for name in READS_THE_TIME}
    for package in (adapters, canonical, gateway):
        root = Path(package.__path__[0])
        for path in root.rglob("*.py"):
            text = path.read_text()
            # To parse all of them takes a second.
            tree = ast.parse(text) if re.search(rf"\.\s*(?:{'|'.join(names)})\b", text) else ast.Module([], [])
            for node in ast.walk(tree):
                is_named_so = isinstance(node, ast.Attribute) and node.attr in names
                if is_named_so and ast.unparse(node) in READS_THE_TIME:
                    found.add(str(path.relative_to(root.parent)).replace(os.sep, "/"))
    # An HTTP date says when to come again by the time of the day (RFC 9110, 10.2.3); a bench names its folder by it;
    # ids are ordered by it, and stay different where it is set back; who is posted to holds the time of a signature
    # against that of the day (Standard Webhooks 1.0); a compaction, and what was sent ahead over a WebSocket, say when
    # they were made, and are stored nowhere.
    assert found == {
        "gateway/clock.py",
        "gateway/ids.py",
        "gateway/runs/signature.py",
        "adapters/kit/client/error_response.py",
        "adapters/openai/server/compact.py",
        "adapters/openai/server/response_socket.py",
        "gateway/cli/bench.py",
    }
