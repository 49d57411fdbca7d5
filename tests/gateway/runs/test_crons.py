"""Tests of crons, with a clock that the test advances: each time runs once, also across a restart."""

from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

import pytest

from babelgate.canonical import (
    Cron,
    CronQuery,
    FaultCode,
    FaultError,
    Message,
    RunFilter,
    RunInput,
    Submission,
    ThreadChange,
)
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from tests.gateway.hubs import OWNER, HubFactory, Scripted, refused, registered, submit, within
from tests.gateway.test_clock import HOUR, SECOND, Wall


async def begin(hub: Any, owner: str, cron: Cron, run_id: str) -> None:
    """Submit the run of a cron, as a protocol does at its time."""
    run_input = RunInput(messages=(Message.of(cron.request["say"], "user"),))
    missing = "recreate" if cron.thread_id is None else "reject"
    submission = Submission(
        agent=cron.agent, input=run_input, thread_id=cron.thread_id, run_id=run_id, if_missing=missing
    )
    await hub.submit(owner, submission)


SETTINGS: Mapping[str, Any] = {"crons": {"test": begin}}


async def start(hubs: HubFactory) -> tuple[GatewayHub, Scripted, Wall]:
    wall = Wall()
    return *await hubs.scripted(clock=Clock(wall), **SETTINGS), wall


def hourly(**fields: Any) -> Cron:
    members: dict[str, Any] = {"cron_id": str(uuid4()), "schedule": "0 * * * *", "request": {"say": "hourly"}, **fields}
    return Cron(agent="a", assistant_id="a", protocol="test", **members)


async def stored(hub: GatewayHub, cron: Cron) -> Cron:
    found = await hub.crons.get(OWNER, cron.cron_id)
    assert found is not None
    return found


async def moved_on(hub: GatewayHub, cron: Cron) -> Cron:
    """Wait until a cron is due at another time, and return it."""

    async def look() -> Cron:
        while (found := await stored(hub, cron)).next_run == cron.next_run:
            pass
        return found

    return await within(look(), "the next time of the cron")


async def count_runs(hub: GatewayHub) -> int:
    return (await hub.reads.runs(OWNER, RunFilter(), limit=100)).count


async def test_a_cron_runs_at_its_time_and_is_due_again(hubs: HubFactory) -> None:
    hub, agent, wall = await start(hubs)
    cron = await hub.crons.create(OWNER, hourly())
    assert cron.next_run is not None and 0 < cron.next_run - wall() <= HOUR and cron.next_run % HOUR == 0
    assert await count_runs(hub) == 0
    for times in (1, 2):
        wall.moved += HOUR
        hub.crons.wake()
        activation = await agent.called()
        assert activation.call.text == "hourly"
        activation.end()
        after = await moved_on(hub, cron)
        assert after.next_run == (cron.next_run or 0) + HOUR
        assert await count_runs(hub) == times
        cron = after


async def test_one_run_replaces_all_missed_times(hubs: HubFactory) -> None:
    hub, agent, wall = await start(hubs)
    cron = await hub.crons.create(OWNER, hourly())
    await hubs.stop(hub)
    wall.moved += 10 * HOUR
    hub = await hubs.start(registered("a", agent), clock=Clock(wall), **SETTINGS)
    (await agent.called()).end()
    after = await moved_on(hub, cron)
    assert after.next_run is not None and 0 < after.next_run - wall() <= HOUR
    assert await count_runs(hub) == 1


async def test_a_kill_does_not_submit_a_cron_run_twice(hubs: HubFactory) -> None:
    hub, agent, wall = await start(hubs)
    cron = await hub.crons.create(OWNER, hourly())
    await submit(hub, "a", "hourly", run_id=str(uuid5(NAMESPACE_OID, f"{cron.cron_id}/{cron.next_run}")))
    (await agent.called()).end()
    await hubs.stop(hub)
    wall.moved += HOUR
    hub = await hubs.start(registered("a", agent), clock=Clock(wall), **SETTINGS)
    await moved_on(hub, cron)
    await within(hub.engine.idle())
    assert await count_runs(hub) == 1 and not agent.waiting


async def test_a_disabled_or_expired_cron_is_not_due(hubs: HubFactory) -> None:
    hub, _, wall = await start(hubs)
    off = await hub.crons.create(OWNER, hourly(enabled=False))
    over = await hub.crons.create(OWNER, hourly(end_time=wall() + SECOND))
    never = await hub.crons.create(OWNER, hourly(schedule="0 0 29 2 *", end_time=wall() + HOUR))
    assert (off.next_run, over.next_run, never.next_run) == (None, None, None)
    on = await hub.crons.change(OWNER, off.cron_id, {"enabled": True})
    assert on.next_run is not None
    lasting = await hub.crons.change(OWNER, over.cron_id, {"end_time": None})
    assert lasting.next_run == on.next_run
    changed = await hub.crons.change(OWNER, over.cron_id, {"request": {"more": 1}, "metadata": {"a": 1}})
    assert (changed.request, changed.metadata) == ({"say": "hourly", "more": 1}, {"a": 1})
    assert changed.next_run == lasting.next_run


async def test_a_cron_ends_with_its_thread(hubs: HubFactory) -> None:
    hub, agent, wall = await start(hubs)
    thread = await hub.create_thread(OWNER, ThreadChange())
    cron = await hub.crons.create(OWNER, hourly(thread_id=thread.thread_id))
    wall.moved += HOUR
    hub.crons.wake()
    (await agent.called()).end()
    cron = await moved_on(hub, cron)
    await within(hub.engine.idle())
    await hub.delete_thread(OWNER, thread.thread_id)
    wall.moved += HOUR
    hub.crons.wake()

    async def look() -> None:
        while await hub.crons.get(OWNER, cron.cron_id) is not None:
            pass

    await within(look(), "the end of the cron")


async def test_a_refused_run_does_not_end_its_cron(hubs: HubFactory) -> None:
    wall = Wall()
    hub = await hubs.start(registered("a", None, broken="gone"), clock=Clock(wall), **SETTINGS)
    cron = await hub.crons.create(OWNER, hourly())
    strange = await hub.crons.create(OWNER, hourly().replace(protocol="strange"))
    wall.moved += HOUR
    hub.crons.wake()
    for each in (cron, strange):
        assert (await moved_on(hub, each)).next_run == (each.next_run or 0) + HOUR
    assert await count_runs(hub) == 0


async def test_crons_are_filtered_and_belong_to_their_owner(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Scripted()), **SETTINGS)
    one = await hub.crons.create(OWNER, hourly(metadata={"a": 1}))
    two = await hub.crons.create(OWNER, hourly(enabled=False))
    other = await hub.crons.create("bob", hourly())

    async def found(owner: str = OWNER, **criteria: Any) -> list[str]:
        crons = await hub.crons.search(owner, CronQuery(**criteria))
        return [each.cron_id async for each in crons]

    assert set(await found()) == {one.cron_id, two.cron_id}
    assert await found("bob") == [other.cron_id]
    assert await found(enabled=False) == [two.cron_id]
    assert await found(metadata={"a": 1}) == [one.cron_id]
    assert await found(order="next_run", descending=True) == [one.cron_id, two.cron_id]
    assert len(await found(limit=1, offset=1)) == 1
    assert await hub.crons.count(OWNER, CronQuery(limit=1)) == 2
    assert await hub.crons.get("bob", one.cron_id) is None
    assert not await hub.crons.delete("bob", one.cron_id)
    assert await hub.crons.delete(OWNER, one.cron_id)
    assert await found() == [two.cron_id]


async def test_an_invalid_cron_is_refused(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Scripted()), **SETTINGS)
    for wrong, code in (
        (hourly(schedule="every day"), FaultCode.INVALID),
        (hourly(timezone="Mars/Olympus"), FaultCode.INVALID),
        (hourly(thread_id=str(uuid4())), FaultCode.NOT_FOUND),
        (hourly(metadata={"a": "x" * 2**20}), FaultCode.TOO_LARGE),
    ):
        with refused(code):
            await hub.crons.create(OWNER, wrong)
    with pytest.raises(FaultError, match="not found"):
        await hub.crons.change(OWNER, str(uuid4()), {"enabled": False})
    with pytest.raises(FaultError):
        await hub.crons.create(OWNER, hourly(), "http://10.0.0.1/")
    assert await hub.crons.count(OWNER, CronQuery()) == 0
