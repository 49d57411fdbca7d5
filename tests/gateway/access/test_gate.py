"""Rules for some agents: what a caller sees of tasks, threads, lists and files that other agents worked on."""

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import pytest

from babelgate.canonical import (
    AssistantQuery,
    Cron,
    FaultCode,
    FaultError,
    FilePart,
    Principal,
    RunFilter,
    Scope,
    StateUpdate,
    Submission,
    TaskFilter,
    ThreadFilter,
)
from babelgate.canonical.assistant import Assistant
from babelgate.canonical.cron import CronQuery
from babelgate.canonical.hub import Fork, ThreadChange
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.access.rules import policy_of
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Settings
from tests.gateway.hubs import Echo, HubFactory, Scripted, ends, refused, registered, submit_to_end, text
from tests.gateway.hubs import submit as submit_run
from tests.submissions import make

EACH_DATABASE: Final = True
OWNER: Final = "alice"
ALICE: Final = Principal(subject="key:alice", owner=OWNER)
"""Caller who may use every agent."""
LIMITED: Final = Principal(subject="key:limited", owner=OWNER)
"""Caller of the same owner as `ALICE` who may use only agent `b`, and may discover `a`."""
BLIND: Final = Principal(subject="key:blind", owner=OWNER)
"""Caller of the same owner as `ALICE` who may use only agent `b`, and does not see `a`."""
RULES: Final = (
    {"who": "key:alice", "allow": "*"},
    {"who": ["key:limited", "key:blind"], "agents": ["b"], "allow": "*"},
    {"who": "key:limited", "agents": ["a"], "allow": "discover"},
)


def guard(hub: GatewayHub, *rules: Any) -> GuardedHub:
    return GuardedHub(hub, policy_of(Settings.model_validate({"access": rules or RULES}).access), "acp")


async def two_agents(hubs: HubFactory) -> GatewayHub:
    return await hubs.start(registered("a", Echo()), registered("b", Echo()))


async def first(generator: AsyncGenerator[Any]) -> Any:
    try:
        return await anext(generator)
    finally:
        await generator.aclose()


async def test_a_task_of_another_agent_is_refused_or_hidden(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    a, b = [await submit_to_end(hub, name, owner=OWNER) for name in ("a", "b")]
    port = guard(hub)
    calls: list[Callable[[Principal, Any], Any]] = [
        lambda who, it: port.reads.task(who, it.task_id),
        lambda who, it: port.reads.chain(who, it.task_id),
        lambda who, it: port.reads.run(who, it.run_id),
        lambda who, it: port.reads.open_interrupts(who, it.task_id),
        lambda who, it: port.reads.webhooks(who, it.task_id),
        lambda who, it: port.reads.records(who, Scope.task(it.task)),
        lambda who, it: first(port.reads.log(who, Scope(it.thread_id, "run", it.run_id))),
        lambda who, it: first(port.reads.follow(who, Scope(it.thread_id))),
        lambda who, it: port.reads.thread(who, it.thread_id),
        lambda who, it: port.reads.thread_view(who, it.thread_id),
        lambda who, it: port.reads.last_begun(who, it.thread_id),
        lambda who, it: port.reads.turns(who, it.thread_id, limit=9),
        lambda who, it: port.reads.removed_messages(who, it.thread_id),
        lambda who, it: port.change_thread(who, it.thread_id, ThreadChange()),
        lambda who, it: port.copy_thread(who, it.thread_id),
        lambda who, it: port.update_state(who, StateUpdate(thread_id=it.thread_id)),
        lambda who, it: port.upload(who, it.thread_id, FilePart(name="f", media_type="text/plain", inline=b"x")),
        lambda who, it: port.change_run(who, it.run_id, {}),
    ]
    for call in calls:
        for who in (ALICE, LIMITED, BLIND):
            await call(who, b)
        await call(ALICE, a)
        with refused(FaultCode.FORBIDDEN, "key:limited may not .* a: no rule of access allows it"):
            await call(LIMITED, a)
        with refused(FaultCode.NOT_FOUND) as hidden:
            await call(BLIND, a)
        assert hidden.value.fault.message in (f"{kind} not found" for kind in kinds_of(a))
    for delete in (port.delete_thread, port.prune_thread):
        with refused(FaultCode.FORBIDDEN):
            await delete(LIMITED, a.thread_id)
        await delete(LIMITED, b.thread_id) if delete == port.prune_thread else None


def kinds_of(receipt: Any) -> list[str]:
    return [f"Task {receipt.task_id}", f"Run {receipt.run_id}", f"Thread {receipt.thread_id}"]


async def test_a_hidden_object_has_the_text_of_a_missing_one(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    receipt = await submit_to_end(hub, "a", owner=OWNER)
    port, other = guard(hub), Principal(subject="key:x", owner="x")
    for call, thing in (
        (port.reads.task, receipt.task_id),
        (port.reads.run, receipt.run_id),
        (port.reads.thread, receipt.thread_id),
        (port.cancel, receipt.task_id),
        (port.cancel_run, receipt.run_id),
    ):
        with refused(FaultCode.NOT_FOUND) as hidden:
            await call(BLIND, thing)
        with refused(FaultCode.NOT_FOUND) as missing:
            await guard(hub, {"who": "*", "allow": "*"}).reads.task(other, "x")
        assert hidden.value.fault.message.split(" ")[2:] == missing.value.fault.message.split(" ")[2:]


async def test_lists_and_counts_leave_out_other_agents(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    for name in ("a", "b", "a", "b", "a"):
        await submit_to_end(hub, name, owner=OWNER)
    mixed = await submit_to_end(hub, "b", owner=OWNER)
    await submit_to_end(hub, "a", owner=OWNER, thread_id=mixed.thread_id)
    empty = await hub.create_thread(OWNER, ThreadChange())
    reads = guard(hub).reads
    for who, tasks, threads in ((ALICE, 7, 7), (LIMITED, 3, 3), (BLIND, 3, 3)):
        page = await reads.tasks(who, TaskFilter(), limit=2)
        assert (page.total, page.tasks.count) == (tasks, 2)
        rest = await reads.tasks(who, TaskFilter(), limit=9, cursor=page.next_cursor)
        assert rest.tasks.count == tasks - 2
        assert (await reads.runs(who, RunFilter(), limit=9)).count == tasks
        assert await reads.count_threads(who, ThreadFilter()) == threads
        assert (await reads.threads(who, ThreadFilter(), limit=9)).count == threads
        found = await (await reads.threads(who, ThreadFilter(), limit=9)).all()
        assert empty.thread_id in {view.thread.thread_id for view in found}
        assert len(await reads.tasks_active_at(who, 0, slack=2**60, limit=99)) == tasks
    in_thread = TaskFilter(thread_id=mixed.thread_id)
    assert (await reads.tasks(LIMITED, in_thread, limit=9)).total == 1
    assert (await reads.tasks(ALICE, in_thread, limit=9)).total == 2
    with refused(FaultCode.FORBIDDEN):
        await reads.tasks(LIMITED, TaskFilter(agent="a"), limit=1)
    with refused(FaultCode.FORBIDDEN):
        await reads.count_threads(LIMITED, ThreadFilter(agent="a"))
    assert await reads.count_threads(LIMITED, ThreadFilter(agent="b")) == 2


async def test_a_thread_of_several_agents_needs_the_right_for_each(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    mine = await submit_to_end(hub, "b", owner=OWNER)
    other = await submit_to_end(hub, "a", owner=OWNER, thread_id=mine.thread_id)
    port = guard(hub)
    assert await port.reads.records(LIMITED, Scope.task(mine.task))
    assert set(await port.reads.logs(LIMITED, [mine.task_id, other.task_id])) == {mine.task_id}
    with refused(FaultCode.FORBIDDEN):
        await port.reads.records(LIMITED, Scope(mine.thread_id))
    for fields in (
        {"thread_id": mine.thread_id},
        {"continues": mine.task_id},
        {"fork": Fork(run_id=mine.run_id)},
        {"fork": Fork(task_id=mine.task_id)},
    ):
        submission = make(Submission, agent="b", messages=text("hi"), **fields)
        with refused(FaultCode.FORBIDDEN):
            await port.submit(LIMITED, submission)
        with refused(FaultCode.NOT_FOUND):
            await port.submit(BLIND, submission)


async def test_a_reader_is_cut_off_when_another_agent_begins(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", Echo()), registered("b", agent))
    receipt = await submit_run(hub, "b", owner=OWNER)
    reading = guard(hub).reads.follow(LIMITED, Scope(receipt.thread_id))
    received = list(await anext(reading))
    (await agent.called()).end()
    await ends(hub, receipt, owner=OWNER)
    later = await submit_to_end(hub, "a", owner=OWNER, thread_id=receipt.thread_id)
    with pytest.raises(FaultError) as raised:
        while True:
            received += await anext(reading)
    assert raised.value.fault.code is FaultCode.FORBIDDEN
    assert later.task_id not in {record.task_id for record in received}


async def test_a_file_is_readable_by_a_readable_thread(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    receipt = await submit_to_end(hub, "a", owner=OWNER)
    content = FilePart(name="f", media_type="text/plain", inline=b"x" * 9)
    artifact = await hub.upload(OWNER, receipt.thread_id, content)
    part: Any = artifact.parts[0]
    reads = guard(hub).reads
    assert (await reads.file(ALICE, part.blob)).inline == b"x" * 9
    for read in (reads.file, reads.file_pieces):
        with refused(FaultCode.NOT_FOUND, "No such file"):
            await read(LIMITED, part.blob)
    thread = await hub.create_thread(OWNER, ThreadChange())
    await hub.upload(OWNER, thread.thread_id, content)
    assert (await reads.file(LIMITED, part.blob)).inline == b"x" * 9


def assistant(assistant_id: str, agent: str) -> Assistant:
    return Assistant(assistant_id=assistant_id, agent=agent, name=agent, created_at=0, updated_at=0)


async def test_assistants_of_hidden_agents_look_missing(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    port = guard(hub)
    ids = {name: f"00000000-0000-4000-8000-00000000000{name}" for name in ("a", "b")}
    for name, assistant_id in ids.items():
        await port.assistants.create(ALICE, assistant(assistant_id, name))
    for who, count in ((ALICE, 2), (LIMITED, 1), (BLIND, 1)):
        assert await port.assistants.count(who, AssistantQuery()) == count
        assert (await port.assistants.search(who, AssistantQuery())).count == count
    assert await port.assistants.get(BLIND, ids["a"]) is None
    with refused(FaultCode.FORBIDDEN):
        await port.assistants.get(LIMITED, ids["a"])
    with refused(FaultCode.NOT_FOUND, f"Assistant with ID {ids['a']} not found"):
        await port.assistants.delete(BLIND, ids["a"])
    with refused(FaultCode.NOT_FOUND, "There is no agent 'a'"):
        await port.assistants.create(BLIND, assistant(ids["b"], "a"))


def cron(agent: str, number: int) -> Cron:
    cron_id = f"00000000-0000-4000-8000-00000000000{number}"
    return Cron(cron_id=cron_id, agent=agent, assistant_id=cron_id, protocol="x", request={}, schedule="0 0 1 1 *")


async def test_a_cron_keeps_the_caller_who_changed_it(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    port = guard(hub)
    for number, agent in enumerate(("a", "b")):
        await port.crons.create(ALICE, cron(agent, number))
    stored = await port.crons.get(ALICE, cron("b", 1).cron_id)
    assert stored is not None and stored.principal == ALICE
    changed = await port.crons.change(LIMITED, stored.cron_id, {"enabled": False})
    assert changed.principal == LIMITED
    assert [await port.crons.count(who, CronQuery()) for who in (ALICE, LIMITED, BLIND)] == [2, 1, 1]
    assert await port.crons.get(BLIND, cron("a", 0).cron_id) is None
    with refused(FaultCode.FORBIDDEN):
        await port.crons.delete(LIMITED, cron("a", 0).cron_id)


async def test_a_hidden_agent_is_unknown_in_every_call(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    port = guard(hub)
    assert [info.name for info in port.agents(BLIND)] == ["b"]
    assert [info.name for info in port.agents(LIMITED)] == ["a", "b"]
    assert not port.can_discover(BLIND, "a") and port.can_discover(LIMITED, "a") and not port.can_discover(ALICE, "c")
    for name in ("a", "c"):
        with refused(FaultCode.NOT_FOUND, f"There is no agent '{name}'"):
            await port.submit(BLIND, make(Submission, agent=name, messages=text("hi")))
    with refused(FaultCode.FORBIDDEN, "key:limited may not run a: no rule of access allows it."):
        await port.submit(LIMITED, make(Submission, agent="a", messages=text("hi")))


async def test_rules_apply_to_shared_threads_too(hubs: HubFactory) -> None:
    hub = await two_agents(hubs)
    shared = {name: await submit_run(hub, name, owner="carol") for name in ("a", "b")}
    for receipt in shared.values():
        await ends(hub, receipt, owner="carol")
    carol = Principal(subject="key:carol", owner="carol")
    port = guard(hub, *RULES, {"who": "key:carol", "allow": "*"})
    for receipt in shared.values():
        with refused(FaultCode.NOT_FOUND):
            await port.reads.task(LIMITED, receipt.task_id)
        await port.grants.give(carol, receipt.thread_id, f"owner:{OWNER}", "write")
    for who in (ALICE, LIMITED, BLIND):
        assert (await port.reads.task(who, shared["b"].task_id)).agent == "b"
        assert await port.reads.records(who, Scope(shared["b"].thread_id))
    assert await port.reads.task(ALICE, shared["a"].task_id)
    with refused(FaultCode.FORBIDDEN):
        await port.reads.thread(LIMITED, shared["a"].thread_id)
    with refused(FaultCode.NOT_FOUND):
        await port.reads.thread(BLIND, shared["a"].thread_id)
    received = [len(await port.grants.list_received(who)) for who in (ALICE, LIMITED, BLIND)]
    assert received == [2, 1, 1]
    submission = make(Submission, agent="b", messages=text("hi"), thread_id=shared["b"].thread_id)
    receipt = await port.submit(LIMITED, submission)
    assert (await ends(hub, receipt, owner="carol")).thread_id == shared["b"].thread_id
    assert await port.grants.delete(carol, shared["b"].thread_id, f"owner:{OWNER}")
    with refused(FaultCode.NOT_FOUND):
        await port.reads.task(LIMITED, shared["b"].task_id)


async def test_a_grant_ends_at_its_time(hubs: HubFactory) -> None:
    later = 0
    hub = await hubs.start(registered("b", Echo()), clock=Clock(lambda: time.time_ns() // 1000 + later))
    receipt = await submit_run(hub, "b", owner="carol")
    await ends(hub, receipt, owner="carol")
    port = guard(hub, {"who": "*", "allow": "*"})
    carol = Principal(subject="key:carol", owner="carol")
    hour = 3600 * 10**6
    grant = await port.grants.give(carol, receipt.thread_id, f"owner:{OWNER}", "read", time.time_ns() // 1000 + hour)
    assert await port.grants.list_given(carol, receipt.thread_id) == [grant]
    assert await port.reads.thread(ALICE, receipt.thread_id)
    later = hour
    with refused(FaultCode.NOT_FOUND):
        await port.reads.thread(ALICE, receipt.thread_id)
    assert await port.grants.list_given(carol, receipt.thread_id) == []
