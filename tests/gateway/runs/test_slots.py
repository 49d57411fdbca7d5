"""Tests of slots: limits of agents, and the order of the threads that wait for them."""

import asyncio
from dataclasses import dataclass, field

from babelgate.canonical import FaultCode, FaultError, RunStatus
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs.lifecycle import Later
from babelgate.gateway.runs.slots import AgentQueue, Slots
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    Scripted,
    begin,
    ends,
    eventually,
    finish,
    registered,
    submit,
    submit_to_end,
    within,
)


@dataclass
class Starts:
    """Slots of agents `a` (one), `b` (two) and `many` (no limit), and the starts in them."""

    started: list[str] = field(default_factory=list[str])
    now: float = 10.0
    owner_limit: int | None = None
    slots: Slots = field(init=False)

    def __post_init__(self) -> None:
        limits = {"a": 1, "b": 2, "many": None}

        def find(name: str) -> RegisteredAgent:
            if name not in limits:
                raise FaultError(FaultCode.NOT_FOUND, f"Agent {name} not found")
            return registered(name, Echo(), concurrency=limits[name])

        def start(owner: str, thread_id: str, agent: str) -> None:
            self.started.append(f"{owner}/{thread_id}: {agent}")

        self.slots = Slots(find, start, lambda: self.now, lambda: self.owner_limit)


def test_each_agent_has_a_limit_of_slots():
    slots = Starts().slots
    assert [slots.reserve("a", "o"), slots.reserve("a", "o")] == [True, False]
    assert [slots.reserve("b", "o"), slots.reserve("b", "o"), slots.reserve("b", "o")] == [True, True, False]
    assert all(slots.reserve("many", "o") for _ in range(1000))
    slots.release("a", "o")
    assert slots.reserve("a", "o")


def test_an_unknown_agent_has_no_limit():
    assert all(Starts().slots.reserve("gone", "o") for _ in range(10))


def test_a_later_request_does_not_overtake_waiting_ones():
    starts = Starts()
    assert starts.slots.reserve("a", "o")
    for thread_id in ("1", "2"):
        starts.slots.offer("o", thread_id, "a")
    assert starts.started == []
    starts.slots.release("a", "o")
    assert starts.started == ["o/1: a"]
    assert not starts.slots.reserve("a", "o")
    starts.slots.release("a", "o")
    starts.slots.release("a", "o")
    assert starts.started == ["o/1: a", "o/2: a"]
    assert starts.slots.reserve("a", "o")


def test_owners_are_served_in_turn():
    starts = Starts()
    assert starts.slots.reserve("b", "o") and starts.slots.reserve("b", "o")
    for number in range(20):
        starts.slots.offer("burst", str(number), "b")
    starts.slots.offer("other", "0", "b")
    starts.slots.offer("third", "0", "b")
    starts.slots.offer("third", "1", "b")
    for _ in range(7):
        starts.slots.release("b", "o")
    assert [each.partition(":")[0] for each in starts.started] == [
        *("burst/0", "other/0", "third/0"),
        *("burst/1", "third/1", "burst/2", "burst/3"),
    ]


def test_a_thread_is_queued_only_once():
    starts = Starts()
    assert starts.slots.reserve("a", "o")
    for _ in range(3):
        starts.slots.offer("o", "1", "a")
    starts.slots.release("a", "o")
    starts.slots.release("a", "o")
    assert starts.started == ["o/1: a"]
    starts.slots.offer("o", "1", "a")
    assert starts.started == ["o/1: a"] * 2, "a thread may be queued again after its run"


def test_runs_active_at_the_start_may_exceed_the_limit():
    starts = Starts()
    for _ in range(2):
        starts.slots.take("a", "o")
    starts.slots.offer("o", "1", "a")
    starts.slots.release("a", "o")
    assert starts.started == []
    starts.slots.release("a", "o")
    assert starts.started == ["o/1: a"]


async def test_a_delayed_run_waits_for_its_start_time():
    starts = Starts()
    starts.slots.offer_next("o", "none", None)
    starts.slots.offer_next("o", "now", Later("many", 0))
    starts.slots.offer_next("o", "soon", Later("many", 1000))
    assert starts.started == ["o/now: many"]
    await within(eventually(lambda: len(starts.started) == 2))
    assert starts.started[1] == "o/soon: many"


async def test_closed_slots_start_no_run():
    starts = Starts()
    assert starts.slots.reserve("a", "o")
    starts.slots.offer("o", "1", "a")
    starts.slots.offer_next("o", "2", Later("many", 1))
    starts.slots.close()
    starts.slots.release("a", "o")
    starts.slots.offer("o", "3", "many")
    assert not starts.slots.reserve("many", "o")
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, later.set)
    await within(later.wait())
    assert starts.started == []


# Behind a hub


async def test_active_runs_do_not_exceed_the_agents_concurrency(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=2)
    receipts = [await submit(hub, "a", str(number)) for number in range(5)]
    activations = [await agent.called(), await agent.called()]
    assert not agent.waiting
    assert len(hub.engine.active) == 2
    for number, receipt in enumerate(receipts):
        mine = activations.pop(0)
        assert mine.call.text == str(number)
        await finish(hub, mine, receipt)
        if number < 3:
            activations.append(await agent.called())
        assert not agent.waiting


async def test_a_slot_goes_to_the_longest_waiting_thread(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    first, activation = await begin(hub, agent, "first")
    same = await submit(hub, "a", "same thread", thread_id=first.thread_id)
    other = await submit(hub, "a", "other thread")
    last = await submit(hub, "a", "other thread again", thread_id=other.thread_id)
    order: list[str] = []
    for _ in range(4):
        order.append(activation.call.text)
        activation.end()
        if len(order) < 4:
            activation = await agent.called()
    await asyncio.gather(*(ends(hub, receipt) for receipt in (first, same, other, last)))
    assert order == ["first", "other thread", "same thread", "other thread again"]


async def test_agents_do_not_use_each_others_slots(hubs: HubFactory) -> None:
    slow = Scripted()
    hub = await hubs.start(registered("slow", slow, concurrency=1), registered("echo", Echo(), concurrency=1))
    blocked = await submit(hub, "slow")
    activation = await slow.called()
    behind = await submit(hub, "echo", thread_id=blocked.thread_id)
    await submit_to_end(hub, "echo")
    assert (await hub.reads.run(OWNER, behind.run_id)).status is RunStatus.PENDING
    await finish(hub, activation, behind)


async def test_a_cancelled_waiting_run_leaves_the_queue(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    first, activation = await begin(hub, agent, "first")
    cancelled = await submit(hub, "a", "gone")
    last = await submit(hub, "a", "last")
    await hub.cancel(OWNER, cancelled.task_id)
    activation.end()
    activation = await agent.called()
    assert activation.call.text == "last"
    activation.end()
    await asyncio.gather(ends(hub, first), ends(hub, last))


def test_queues_show_the_slots_and_the_longest_wait():
    starts = Starts()
    slots = starts.slots
    assert slots.reserve("a", "o")
    for thread_id in ("1", "2"):
        slots.offer("o", thread_id, "a")
        starts.now += 2
    slots.offer("o", "1", "a")
    slots.offer("p", "3", "a")
    assert slots.queue_of("a") == AgentQueue(used=1, waiting=3, oldest=4.0)
    assert slots.count_queued() == {"a": 3}
    slots.release("a", "o")
    assert slots.queue_of("a") == AgentQueue(used=1, waiting=2, oldest=2.0)
    assert slots.queue_of("idle") == AgentQueue(used=0, waiting=0, oldest=None)


def test_the_maximum_of_an_owner_counts_all_agents():
    starts = Starts(owner_limit=2)
    assert starts.slots.reserve("many", "o") and starts.slots.reserve("b", "o")
    assert not starts.slots.reserve("many", "o") and starts.slots.reserve("many", "other")
    starts.slots.offer("o", "1", "many")
    starts.slots.offer("o", "2", "b")
    starts.slots.offer("third", "3", "many")  # does not wait behind an owner without room
    assert starts.started == ["third/3: many"]
    starts.slots.release("b", "o")
    assert starts.started == ["third/3: many", "o/2: b"]
    starts.slots.release("b", "o")
    assert starts.started == ["third/3: many", "o/2: b", "o/1: many"]
