"""Invariants of the hub, by number.

Every test that uses a hub ends with a check of I1 to I10 (`tests.gateway.invariant`); I6 has no other test. I13 is in
`test_interleaving`, I19 in `test_hub_owners`.
"""

import asyncio
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

import pytest
from msgspec.structs import replace

from babelgate.canonical import (
    DataPart,
    Event,
    FaultCode,
    FaultError,
    FilePart,
    Fold,
    Invocation,
    Message,
    Receipt,
    Record,
    RunInput,
    RunReason,
    RunStatus,
    Scope,
    Submission,
    TaskState,
    TextPart,
    Webhook,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    RunStarted,
    StepStarted,
    TaskChanged,
    ToolStarted,
    encode_event,
)
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.transaction import Transaction
from tests.gateway.commits import Commits
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    PausedWriter,
    Scripted,
    answer,
    check_invariants,
    comparable,
    ends,
    eventually,
    finish,
    follow,
    log,
    reaches,
    refused,
    registered,
    say,
    states,
    submit,
    submit_and_ask,
    text,
    within,
)
from tests.gateway.invariant import check_log

EACH_DATABASE: Final = True


async def eventful(hub: GatewayHub, agent: Scripted) -> Receipt:
    """Return the last run of a thread on which nearly everything has happened."""
    first = await submit(hub, "a", "first")
    activation = (await agent.called()).open("half a ").more("sentence")
    queued = await submit(hub, "a", "queued", thread_id=first.thread_id)
    activation.say(ToolStarted(name="t"), StepStarted(name="s"), ArtifactAdded(part=TextPart(text="x"))).ask(
        "p", "q"
    ).end()
    await reaches(hub, first, TaskState.INPUT_REQUIRED)
    (await agent.called()).say("queued, and answered").end(RunEnded(output={"a": 1}, usage={"tokens": 3}))
    await ends(hub, queued)
    await answer(hub, first.task_id, "one")
    await answer(hub, first.task_id, "two")
    (await agent.called()).fail(ValueError("broken"))
    await ends(hub, first)
    cancelled = await submit(hub, "a", "cancelled", thread_id=first.thread_id)
    (await agent.called()).open("half")
    await hub.cancel(OWNER, cancelled.task_id)
    await ends(hub, cancelled)
    rolled = await submit(hub, "a", "rolled back", thread_id=first.thread_id)
    (await agent.called()).open("half")
    last = await submit(hub, "a", "last", thread_id=first.thread_id, strategy="rollback")
    (await agent.called()).say("the end").end()
    await ends(hub, last)
    assert (await hub.reads.run(OWNER, rolled.run_id)).removed
    return last


# The log and the rows


async def test_i1_numbers_have_no_gap_and_times_never_decrease(hubs: HubFactory) -> None:
    times = iter([5, 3, 4, 1, *range(100, 0, -1), *[0] * 1000])
    hub = await hubs.start(registered("echo", Echo()), clock=Clock(lambda: next(times)))
    receipt = await submit(hub, "echo")
    await ends(hub, receipt)
    others = await asyncio.gather(*(submit(hub, "echo", thread_id=receipt.thread_id) for _ in range(10)))
    await asyncio.gather(*(ends(hub, other) for other in others))
    records = await log(hub, receipt)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    at = [record.at for record in records]
    assert at == sorted(at)


async def test_i2_rows_equal_the_fold_of_the_log(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await eventful(hub, agent)
    await check_invariants(hub)
    fold = Fold(receipt.thread_id, OWNER, await log(hub, receipt))
    for task_id, task in fold.tasks.items():
        assert await hub.reads.task(OWNER, task_id) == task
    for run_id, run in fold.runs.items():
        assert await hub.reads.run(OWNER, run_id) == run
    assert await hub.reads.thread(OWNER, receipt.thread_id) == fold.thread


@pytest.mark.sqlite
async def test_i3_readers_see_only_committed_records(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("")
    count = 0
    with sqlite3.connect(hubs.folder / "hub.db") as other:
        async with aclosing(hub.reads.follow(OWNER, Scope(receipt.thread_id))) as reading:
            for number in range(50):
                activation.more(str(number))
                batch = await within(anext(reading))
                (stored,) = other.execute("SELECT max(seq) FROM event").fetchone()
                assert stored >= batch[-1].seq
                count += len(batch)
    other.close()
    assert count > 0
    await finish(hub, activation, receipt)


async def test_i4_readers_from_one_position_get_the_same_records(hubs: HubFactory) -> None:
    """Compare readers that are live from the start, live from the middle, replayed from memory, and replayed from the
    journal.
    """
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    scope = Scope.task(receipt.task)
    live = [asyncio.ensure_future(follow(hub, scope)) for _ in range(3)]
    activation = (await agent.called()).open("")
    for number in range(1500):
        activation.more(f"{number} ")
        if number % 300 == 0:
            live.append(asyncio.ensure_future(follow(hub, scope)))
            await follow(hub, scope, until=lambda record, n=number: f'"{n} "' in encode_event(record.event).decode())
    await finish(hub, activation, receipt)
    replayed = await follow(hub, scope)
    vars(hub.journal.channels)["_channels"].clear()
    from_disk = await follow(hub, scope)
    expected = comparable(await log(hub, receipt, "task"))
    for records in [*await within(asyncio.gather(*live)), replayed, from_disk]:
        assert comparable(records) == expected
    for place in (1, 7, 700, 1400):
        after = replayed[place].seq
        assert comparable(await follow(hub, scope, after)) == expected[place + 1 :]


async def test_i5_a_thread_has_one_running_run_at_most(hubs: HubFactory) -> None:
    working: set[str] = set()

    class Alone:
        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            assert call.thread_id not in working
            working.add(call.thread_id)
            yield Custom()
            await asyncio.sleep(0)
            working.discard(call.thread_id)

    hub = await hubs.start(registered("a", Alone()), registered("b", Alone()))
    first = await submit(hub, "a")
    receipts = await asyncio.gather(
        *(submit(hub, name, thread_id=first.thread_id) for name in "abab" for _ in range(10))
    )
    for receipt in (first, *receipts):
        assert (await ends(hub, receipt)).state is TaskState.COMPLETED


async def test_i7_the_end_of_a_run_closes_everything(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    for how in ("end", "fail", "pause", "cancel"):
        receipt = await submit(hub, "a")
        activation = (await agent.called()).open("half").say(ToolStarted(name="t"), StepStarted(name="s"))
        await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "step_started")
        if how == "fail":
            activation.fail(ValueError("broken"))
        elif how == "cancel":
            await hub.cancel(OWNER, receipt.task_id)
        else:
            activation.ask("q") if how == "pause" else None
            activation.end()
        await follow(hub, Scope(receipt.thread_id, "run", receipt.run_id))
        kinds = [record.event.kind for record in await log(hub, receipt, "run")]
        assert kinds[-5:] == ["part_ended", "message_ended", "tool_ended", "step_ended", "run_ended"]


async def test_i8_a_task_waits_until_each_question_is_answered_once(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit_and_ask(hub, agent, "p", "q", "r")
    for name in "pqr":
        assert (await hub.reads.task(OWNER, receipt.task_id)).is_waiting
        await answer(hub, receipt.task_id, values={name: name})
        with pytest.raises(FaultError):
            await answer(hub, receipt.task_id, values={name: "again"})
    assert (await hub.reads.task(OWNER, receipt.task_id)).state is TaskState.WORKING
    answered = [r.event.interrupt_id for r in await log(hub, receipt) if isinstance(r.event, InterruptAnswered)]
    assert answered == ["p", "q", "r"]


async def test_i9_an_old_attempt_or_ended_run_cannot_append(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = await agent.called()
    (start,) = hub.engine.active
    event = (Custom(), b'{"kind":"custom"}')

    async def reject_commits_of(attempt: int) -> None:
        stale = replace(start, run=start.run.replace(attempt=attempt))
        before = await log(hub, receipt)
        lates: list[Callable[[Transaction], object]] = [
            partial(lifecycle.append, start=stale, events=[event]),
            partial(lifecycle.end, start=stale, outcome=lifecycle.RunOutcome()),
            partial(lifecycle.restart, lost=stale),
        ]
        for late in lates:
            with refused(FaultCode.CONFLICT):
                await within(hub.journal.write(late))
        assert await log(hub, receipt) == before

    await reject_commits_of(0)
    await reject_commits_of(2)
    await within(hub.journal.write(lifecycle.append, start=start, events=[event]))
    await finish(hub, activation, receipt)
    await reject_commits_of(1)


@pytest.mark.sqlite
async def test_i10_acknowledged_changes_are_stored(hubs: HubFactory) -> None:
    """Check that another process sees the change as soon as the call returns."""
    hub, agent = await hubs.scripted(stubborn=True)
    with sqlite3.connect(hubs.folder / "hub.db") as other:

        def stored(sql: str) -> Any:
            return other.execute(sql).fetchone()

        receipt = await submit(hub, "a", alias="x", protocol="p")
        assert stored("SELECT thread_id FROM alias") == (receipt.thread_id,)
        assert stored("SELECT status FROM run") == ("running",)
        (await agent.called()).ask("q").end()
        await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
        assert stored("SELECT interrupt_id, action FROM interrupt") == ("q", None)
        await answer(hub, receipt.task_id, "yes")
        assert stored("SELECT action FROM interrupt") == ("answer",)
        await hub.cancel(OWNER, receipt.task_id)
        assert stored("SELECT state FROM task") == ("cancelling",)
        hook = Webhook(webhook_id="w", task_id=receipt.task_id, dialect="d", url="http://127.0.0.1:1/")
        await hub.set_webhook(OWNER, hook)
        assert stored("SELECT webhook_id FROM webhook") == ("w",)
        await hub.delete_thread(OWNER, receipt.thread_id)
        assert stored("SELECT count(*) FROM event") == (0,)
        assert stored("SELECT thread_id FROM tombstone") == (receipt.thread_id,)
    other.close()


# Races


async def test_i11_the_first_commit_of_cancel_and_end_wins(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = await agent.called()
    async with PausedWriter(hub) as writer:
        cancel = asyncio.ensure_future(hub.cancel(OWNER, receipt.task_id))
        await writer.queued(cancel)
        activation.say("finished all the same").end()
        await within(activation.closed.wait())
    assert (await within(cancel)).state is TaskState.CANCELLING
    assert (await ends(hub, receipt)).state is TaskState.CANCELLED
    with refused(FaultCode.TASK_ENDED):
        await hub.cancel(OWNER, receipt.task_id)


async def test_i12_a_task_is_cancelling_before_it_is_cancelled(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    working = await submit(hub, "a")
    await agent.called()
    pending = await submit(hub, "a", thread_id=working.thread_id)
    paused = await submit_and_ask(hub, agent, "q")
    for receipt in (pending, paused, working):
        await hub.cancel(OWNER, receipt.task_id)
        await ends(hub, receipt)
        assert states(await log(hub, receipt, "task"))[-2:] == ["cancelling", "cancelled"]


async def test_i14_a_rollback_ends_the_old_agent_first(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    old = await submit(hub, "a", "old")
    first = (await agent.called()).say("said")
    await follow(hub, Scope.task(old.task), until=lambda record: record.event.kind == "message_ended")
    new = await submit(hub, "a", "new", thread_id=old.thread_id, strategy="rollback")
    second = await agent.called()
    assert first.closed.is_set()
    assert second.call.history == ()
    await finish(hub, second, new)
    fold = Fold(new.thread_id, OWNER, await log(hub, new))
    assert [message.text for message in fold.messages()] == ["new"]


async def test_i15_a_second_restart_changes_nothing_more(hubs: HubFactory) -> None:
    agent, sure = Scripted(), Scripted(stubborn=True)
    agents = (registered("a", agent, concurrency=1), registered("b", sure))
    hub = await hubs.start(*agents, limits=Limits(cancel_grace=0.05))
    paused = await submit_and_ask(hub, agent, "q")
    cancelling = await submit(hub, "b")
    stuck = await sure.called()
    running = await submit(hub, "a")
    await agent.called()
    waiting = [await submit(hub, "a", str(number)) for number in range(3)]
    scheduled = await submit(hub, "a", start_in=2**62)
    await hub.cancel(OWNER, cancelling.task_id)
    await hubs.stop(hub)
    stuck.end()
    hub = await hubs.start(*agents)
    activation = await agent.called()  # the first that waited has the only slot
    assert activation.call.run_id == waiting[0].run_id
    for receipt, state in (
        (paused, TaskState.INPUT_REQUIRED),
        (cancelling, TaskState.CANCELLED),
        (running, TaskState.FAILED),
        (waiting[1], TaskState.SUBMITTED),
        (scheduled, TaskState.SUBMITTED),
    ):
        assert (await hub.reads.task(OWNER, receipt.task_id)).state is state
    assert (await hub.reads.run(OWNER, running.run_id)).fault is not None
    for receipt in waiting:
        await finish(hub, activation, receipt)
        activation = await agent.called() if receipt is not waiting[-1] else activation
    everything = [paused, cancelling, running, *waiting, scheduled]
    before = [await log(hub, receipt) for receipt in everything]
    for _ in range(2):
        await hubs.stop(hub)
        hub = await hubs.start(*agents)
        assert [await log(hub, receipt) for receipt in everything] == before
    assert not agent.waiting


# Readers and files


def attribute(value: object, name: str) -> Any:
    """Return an attribute by name, to read private attributes without a complaint of the type checker."""
    return getattr(value, name)


@pytest.mark.slow
@pytest.mark.sqlite
async def test_i16_ten_thousand_readers_need_little_memory(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = await agent.called()
    count = 10_000
    done = 0
    everybody = asyncio.Event()

    async def read() -> None:
        nonlocal done
        async with aclosing(hub.reads.follow(OWNER, Scope.task(receipt.task), receipt.seq)) as reading:
            async for _ in reading:
                pass
        done += 1
        if done == count:
            everybody.set()

    stuck = hub.reads.follow(OWNER, Scope.task(receipt.task), receipt.seq)
    await within(anext(stuck))
    pages = 0
    page = hub.journal.page

    async def counted(*args: Any) -> list[Record]:
        nonlocal pages
        pages += 1
        return await page(*args)

    vars(hub.journal)["page"] = counted
    tracemalloc.start()
    readers = [asyncio.ensure_future(read()) for _ in range(count)]
    (channel,) = vars(hub.journal.channels)["_channels"].values()
    await within(eventually(lambda: len(attribute(channel, "_waiters")) == count), "ten thousand readers")
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / count < 6_000
    for number in range(20):
        activation.say(Custom(name=str(number)))
    await finish(hub, activation, receipt)
    await within(everybody.wait(), seconds=30)
    await asyncio.gather(*readers)
    assert pages == 0  # all readers read from memory
    assert len([record async for batch in stuck for record in batch]) > 20


async def test_i16_the_memory_for_readers_is_bounded(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = await agent.called()
    stuck = hub.reads.follow(OWNER, Scope.task(receipt.task))
    await within(anext(stuck))
    activation.say(*(Custom(name=str(number)) for number in range(5000))).end()
    await ends(hub, receipt)  # the run did not wait for the reader that stands still
    (channel,) = vars(hub.journal.channels)["_channels"].values()
    assert len(attribute(channel, "_records")) <= 512
    rest = [record async for batch in stuck for record in batch]
    assert [record.event.name for record in rest if isinstance(record.event, Custom)] == [str(n) for n in range(5000)]


async def test_i17_a_file_is_stored_before_its_event(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    blobs = hubs.folder / "blobs"

    def stored() -> set[bytes]:
        return {path.read_bytes() for path in blobs.glob("??/*")}

    message = Message(role="user", parts=(FilePart(inline=b"from the caller"),))
    async with PausedWriter(hub) as writer:
        asking = asyncio.ensure_future(hub.submit(OWNER, Submission(agent="a", input=RunInput(messages=(message,)))))
        await writer.queued(asking)
        assert stored() == {b"from the caller"}
    receipt = await within(asking)
    activation = await agent.called()
    async with PausedWriter(hub) as writer:
        activation.say(ArtifactAdded(part=FilePart(inline=b"from the agent")))
        await writer.queued(asyncio.get_running_loop().create_future())
        assert b"from the agent" in stored()
    await finish(hub, activation, receipt)


# Agents that misbehave


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


BAD: dict[str, Any] = {
    "nan": Custom(value=float("nan")),
    "surrogate in data": Custom(value="\ud800"),
    "surrogate in text": PartAdded(part=TextPart(text="a").replace(text="\ud800")),
    "a thousand levels": PartAdded(part=DataPart(data=nested(1000))),
    "an object": Custom(value=cast("Any", object())),
    "too large": PartAdded(part=TextPart(text="x" * 20_000)),
    "too large an output": RunEnded(output="x" * 20_000),
    "too large a delta": [PartAdded(part=TextPart(text=""), open=True), PartDelta(text="x" * 20_000)],
    "wrong type": "text",
    "none": None,
    "only the gateway may append": TaskChanged(state=TaskState.COMPLETED),
    "nothing open": PartDelta(text="a", message_id="?"),
    "wrong field type": MessageEnded(usage={}).replace(finish=5),
    "no such file": ArtifactAdded(part=FilePart(blob="0" * 64)),
    "a path for a file": ArtifactAdded(part=FilePart(blob="../../etc/passwd")),
    "an end that is none": RunEnded(status=RunStatus.RUNNING),
    "an end with nan": RunEnded(usage={"a": float("inf")}),
    "an end with a surrogate": RunEnded().replace(output="\ud800"),
}


class Bad:
    def __init__(self, events: Any) -> None:
        self.events: list[Event] = events if isinstance(events, list) else [events]

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        yield MessageStarted()
        for event in self.events:
            yield event
        yield Custom(name="after")


async def test_i18_invalid_events_fail_only_their_run(hubs: HubFactory) -> None:
    agents = [registered(name, Bad(yielded)) for name, yielded in BAD.items()]
    hub = await hubs.start(*agents, registered("echo", Echo()), limits=Limits(event=10_000))
    *bad, good = await asyncio.gather(*(submit(hub, name) for name in (*BAD, "echo")))
    for name, receipt in zip(BAD, bad, strict=True):
        task = await ends(hub, receipt)
        assert task.state is TaskState.FAILED, name
        assert task.fault is not None and task.fault.blame == "upstream", name
        events = [record.event for record in await log(hub, receipt)]
        assert not any(isinstance(event, Custom) and event.name == "after" for event in events), name
    assert (await ends(hub, good)).state is TaskState.COMPLETED
    assert hub.journal.failure is None


# Idle hub, and the check itself


@pytest.mark.sqlite
async def test_i20_an_idle_hub_does_nothing(hubs: HubFactory) -> None:
    """Check a hub with paused tasks, readers, a running agent and a scheduled run: no commit, no query, no turn of the
    loop.
    """
    hub, agent = await hubs.scripted()
    paused, working = await submit(hub, "a"), await submit(hub, "a")
    (await agent.called()).ask("q").end()
    await agent.called()
    await reaches(hub, paused, TaskState.INPUT_REQUIRED)
    await submit(hub, "a", start_in=2**62)
    readers = [
        asyncio.ensure_future(follow(hub, Scope.task(each.task))) for each in (paused, working) for _ in range(9)
    ]
    channels = vars(hub.journal.channels)["_channels"].values()
    await within(eventually(lambda: sum(len(attribute(channel, "_waiters")) for channel in channels) == 18))
    await within(hub.engine.idle())
    loop = asyncio.get_running_loop()
    selector = attribute(loop, "_selector")
    turns = 0
    select = selector.select

    def counting(timeout: float | None = None) -> Any:
        nonlocal turns
        turns += 1
        return select(timeout)

    queries = 0
    query = hub.journal.query

    async def counted(*args: Any, **named: Any) -> Any:
        nonlocal queries
        queries += 1
        return await query(*args, **named)

    commits = Commits()
    await commits.watch(hub.journal)
    quiet = False
    for _ in range(5):  # work that the start and the submissions caused may continue for a moment
        turns = queries = commits.count = 0
        vars(hub.journal)["query"] = counted
        selector.select = counting
        try:
            await asyncio.sleep(0.4)  # the time that is watched
        finally:
            del selector.select
            del vars(hub.journal)["query"]
        quiet = queries == commits.count == 0 and turns <= 3
        if quiet:
            break
    assert quiet, f"{turns} turns of the loop, {queries} queries, {commits.count} commits"
    for reader in readers:
        reader.cancel()


# The check itself


def _first(records: list[Record], kind: type[Event]) -> int:
    return next(place for place, record in enumerate(records) if isinstance(record.event, kind))


def _without(kind: type[Any]) -> Callable[[list[Record]], list[Record]]:
    def change(records: list[Record]) -> list[Record]:
        place = _first(records, kind)
        rest = records[:place] + records[place + 1 :]
        return [record.replace(seq=seq) for seq, record in enumerate(rest, 1)]

    return change


def _twice(kind: type[Any]) -> Callable[[list[Record]], list[Record]]:
    def change(records: list[Record]) -> list[Record]:
        place = _first(records, kind)
        doubled = records[: place + 1] + records[place:]
        return [record.replace(seq=seq) for seq, record in enumerate(doubled, 1)]

    return change


def _changed(place: int, **fields: Any) -> Callable[[list[Record]], list[Record]]:
    def change(records: list[Record]) -> list[Record]:
        changed = list(records)
        changed[place] = changed[place].replace(**fields)
        return changed

    return change


MUTATIONS: dict[str, Callable[[list[Record]], list[Record]]] = {
    "a gap": lambda records: records[:5] + records[6:],
    "a repetition": lambda records: records[:5] + records[4:],
    "time goes back": _changed(5, at=1),
    "a run that never started": _without(RunStarted),
    "two starts": _twice(RunStarted),
    "two ends": _twice(RunEnded),
    "no end": _without(RunEnded),
    "a run without input": _without(RunCreated),
    "an open message": _without(MessageEnded),
    "two answers": _twice(InterruptAnswered),
    "no answer": _without(InterruptAnswered),
    "a state twice": _twice(TaskChanged),
    "an old attempt": _changed(5, attempt=7),
    "another run's record": _changed(5, run_id="?"),
}


@pytest.mark.sqlite
@pytest.mark.parametrize("name", MUTATIONS)
async def test_the_log_check_finds_each_mutation(hubs: HubFactory, name: str) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a", "hi")
    (await agent.called()).say(*say("hello")).ask("q").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    await answer(hub, receipt.task_id, "yes", messages=text("yes"))
    (await agent.called()).say("bye").end()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    assert (await hub.reads.run(OWNER, receipt.run_id)).reason is RunReason.INPUT
    records = await log(hub, receipt)
    check_log(records)
    with pytest.raises((AssertionError, KeyError)):
        check_log(MUTATIONS[name](records))
