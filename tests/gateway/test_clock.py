"""Tests of changes of the system's clock while the gateway runs: delays and lifetimes stay the same."""

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
    HubFactory,
    Scripted,
    begin,
    ends,
    erased,
    finish,
    follow,
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
    """System clock with an offset, as if an operator had set it."""

    def __init__(self) -> None:
        self.moved = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.moved


async def forget(hub: GatewayHub) -> None:
    """Drop the threads that the writer has in memory."""
    await hub.journal.write(Transaction.forget)


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
async def test_a_delayed_run_ignores_changes_of_the_clock(hubs: HubFactory, set_by: int) -> None:
    wall, agent = Wall(), Scripted()
    hub = await hubs.start(registered("a", agent), clock=Clock(wall))
    first = await submit(hub, "a", "first", start_in=SECOND // 10)
    second = await submit(hub, "a", "second", thread_id=first.thread_id, start_in=SECOND // 5)
    wall.moved = set_by
    await forget(hub)
    for receipt, words in ((first, "first"), (second, "second")):
        activation = await agent.called()
        assert activation.call.text == words
        await finish(hub, activation, receipt)
    at = [record.at for record in await log(hub, first)]
    assert at == sorted(at)


async def test_a_forward_clock_starts_no_run_early(hubs: HubFactory) -> None:
    wall, agent = Wall(), Scripted()
    hub = await hubs.start(registered("a", agent), clock=Clock(wall))
    later = await submit(hub, "a", "later", start_in=HOUR)
    wall.moved = 24 * HOUR
    await forget(hub)
    now, activation = await begin(hub, agent, "now", thread_id=later.thread_id)
    assert activation.call.text == "now"
    await finish(hub, activation, now)
    await within(hub.engine.idle())
    assert not agent.waiting
    assert (await hub.reads.run(OWNER, later.run_id)).status is RunStatus.PENDING


async def test_a_delay_counts_from_the_current_clock(hubs: HubFactory) -> None:
    """Use a thread whose last record is in the future after the clock is set back."""
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    before = await submit_to_end(hub, "echo")
    wall.moved = -HOUR
    await ends(hub, await submit(hub, "echo", thread_id=before.thread_id, start_in=SECOND // 10))


async def test_a_delay_follows_the_clock_after_a_restart(hubs: HubFactory) -> None:
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


async def test_a_backward_clock_does_not_prolong_a_threads_life(hubs: HubFactory) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall), limits=Limits(ephemeral_ttl=0.1))
    passing = await submit(hub, "echo", ephemeral=True)
    lasting = await hub.create_thread(OWNER, ThreadChange(ttl=1))
    wall.moved = -HOUR
    await ends(hub, await submit(hub, "echo", thread_id=lasting.thread_id))
    await erased(hub, passing.thread_id)
    await erased(hub, lasting.thread_id)


async def test_a_forward_clock_does_not_shorten_a_threads_life(hubs: HubFactory) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall), limits=Limits(ephemeral_ttl=0.1))
    lasting = await hub.create_thread(OWNER, ThreadChange(ttl=100))
    wall.moved = HOUR
    await ends(hub, await submit(hub, "echo", thread_id=lasting.thread_id))
    wall.moved = 24 * HOUR
    passing = await submit(hub, "echo", ephemeral=True)
    await erased(hub, passing.thread_id)
    assert await hub.reads.thread(OWNER, lasting.thread_id)


async def test_a_question_expires_despite_a_backward_clock(hubs: HubFactory) -> None:
    wall, agent = Wall(), Scripted()
    hub = await hubs.start(registered("a", agent), clock=Clock(wall), limits=Limits(input_ttl=0.1))
    receipt, activation = await begin(hub, agent, ephemeral=True)
    wall.moved = -HOUR
    activation.ask("q").end()
    assert (await reaches(hub, receipt, TaskState.FAILED)).state is TaskState.FAILED


async def test_a_backward_clock_at_a_restart_ages_no_thread(hubs: HubFactory) -> None:
    wall = Wall()
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    thread = await hub.create_thread(OWNER, ThreadChange(ttl=1))
    await hubs.stop(hub)
    wall.moved = -HOUR
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall))
    reading = asyncio.ensure_future(follow(hub, Scope(thread.thread_id)))
    await erased(hub, thread.thread_id)  # a second after the start
    await within(reading)


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
async def test_an_items_life_ignores_changes_of_the_clock(hubs: HubFactory, set_by: int) -> None:
    wall, passed = Wall(), [0]
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(wall, lambda: passed[0]))
    await hub.store.put(OWNER, ("a",), "k", {"n": 1}, ttl=60)
    wall.moved = set_by
    passed[0] += 59 * SECOND
    assert await hub.store.get(OWNER, ("a",), "k", refresh=False)
    passed[0] += SECOND
    assert await hub.store.get(OWNER, ("a",), "k") is None


async def test_a_forward_clock_sweeps_no_new_file(hubs: HubFactory) -> None:
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


def test_only_the_clock_reads_the_systems_time() -> None:
    found: set[str] = set()
    names = {name.rpartition(".")[2] for name in READS_THE_TIME}
    for package in (adapters, canonical, gateway):
        root = Path(package.__path__[0])
        for path in root.rglob("*.py"):
            text = path.read_text()
            # Parsing all modules takes a second.
            tree = ast.parse(text) if re.search(rf"\.\s*(?:{'|'.join(names)})\b", text) else ast.Module([], [])
            for node in ast.walk(tree):
                is_named_so = isinstance(node, ast.Attribute) and node.attr in names
                if is_named_so and ast.unparse(node) in READS_THE_TIME:
                    found.add(str(path.relative_to(root.parent)).replace(os.sep, "/"))
    # These modules need the real time:
    # - HTTP dates of Retry-After (RFC 9110, 10.2.3)
    # - names of the folders of benches
    # - ids, which stay unique if the clock is set back
    # - signatures, whose time receivers compare with their clock (Standard Webhooks 1.0)
    # - the expiry of credentials (RFC 7519, 4.1.4)
    # - the times of reloads, of spans, and of support bundles, which are not compared
    # - creation times of compactions and of early WebSocket messages, which are not stored
    assert found == {
        "gateway/clock.py",
        "gateway/admin/key_ring.py",
        "gateway/agents/tokens/cache.py",
        "gateway/agents/tokens/source.py",
        "gateway/cli/support_bundle.py",
        "gateway/http/expiry.py",
        "gateway/http/generations.py",
        "gateway/http/response.py",
        "gateway/http/tls.py",
        "gateway/http/verifier.py",
        "gateway/settings/certificates.py",
        "gateway/ids.py",
        "gateway/runs/run_callers.py",
        "gateway/runs/signature.py",
        "adapters/kit/client/error_response.py",
        "adapters/openai/server/compact.py",
        "adapters/openai/server/response_socket.py",
        "gateway/cli/bench.py",
    }
