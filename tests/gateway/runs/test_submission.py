"""Tests of submissions, answers and cancels: their exact outcomes in the log."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from babelgate.canonical import FaultCode, FaultError, Fold, Message, RunReason, RunStatus, Scope, TaskState
from babelgate.canonical.event import (
    InterruptAnswered,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    TaskCreated,
    ThreadChanged,
)
from babelgate.canonical.fault import BUSY, THREAD_EXISTS
from babelgate.canonical.run_input import RunInput
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs.submissions import LIMITED, UNLIMITED
from babelgate.gateway.settings.model import Limits, Queue
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    Scripted,
    answer,
    begin,
    converse,
    ends,
    fails,
    finish,
    follow,
    kinds,
    log,
    open_questions,
    reaches,
    refused,
    registered,
    run_is,
    states,
    submit,
    submit_and_ask,
    submit_to_end,
    text,
    within,
)


def test_every_field_of_an_input_has_a_limit_or_exemption() -> None:
    assert set(RunInput.__struct_fields__) == {*LIMITED, *UNLIMITED}
    assert not set(LIMITED) & set(UNLIMITED)


# A plain run


async def test_a_plain_run_is_recorded_in_the_encoders_order(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo", "hello")
    task = await ends(hub, receipt)
    records = await log(hub, receipt)
    assert [record.event.kind for record in records] == [
        "thread_changed",
        "task_created",
        "run_created",
        "run_started",
        "task_changed",
        "message_started",
        "part_added",
        "message_ended",
        "run_ended",
        "task_changed",
    ]
    assert states(records) == ["working", "completed"]
    assert (task.first_seq, task.last_seq, receipt.seq) == (2, 10, 1)
    assert [record.run_id for record in records if record.event.kind == "task_changed"] == [None, None]


async def test_the_receipt_shows_exactly_the_records_of_the_run(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    first = await submit_to_end(hub, "echo")
    second = await submit(hub, "echo", thread_id=first.thread_id)
    records = await follow(hub, Scope(second.thread_id, "run", second.run_id), second.seq)
    assert isinstance(records[0].event, RunCreated)
    assert records == await log(hub, second, "run")
    assert {record.task_id for record in await log(hub, second) if record.seq > second.seq} == {second.task_id}


async def test_a_history_from_the_caller_precedes_the_input(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, activation = await begin(hub, agent, "now", history=(*text("before"), Message.of("answered")))
    assert [message.text for message in activation.call.history] == ["before", "answered"]
    assert activation.call.text == "now"
    await finish(hub, activation.say("then"), first)
    await submit(hub, "a", "later", thread_id=first.thread_id, history=text("elsewhere"))
    activation = await agent.called()
    assert [message.text for message in activation.call.history] == ["before", "answered", "now", "then", "elsewhere"]


# Ids and names


async def test_a_used_id_is_a_conflict_without_changes(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    task_id, run_id = str(uuid4()), str(uuid4())
    first = await submit(hub, "echo", task_id=task_id, run_id=run_id)
    assert (first.task_id, first.run_id) == (task_id, run_id)
    await ends(hub, first)
    before = await log(hub, first)
    for existing in ({"task_id": task_id}, {"run_id": run_id}):
        with refused(FaultCode.CONFLICT):
            await submit(hub, "echo", thread_id=first.thread_id, **existing)
    assert await log(hub, first) == before


async def test_one_of_two_concurrent_submissions_of_an_id_wins(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    task_id = str(uuid4())
    results = await asyncio.gather(*(submit(hub, "echo", task_id=task_id) for _ in range(8)), return_exceptions=True)
    faults = [result for result in results if isinstance(result, FaultError)]
    assert len(faults) == 7
    assert {fault.fault.code for fault in faults} == {FaultCode.CONFLICT}
    winner = next(result for result in results if not isinstance(result, BaseException))
    await ends(hub, winner)


async def test_an_unknown_thread_id_creates_the_thread_unless_rejected(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    thread_id = str(uuid4())
    with refused(FaultCode.NOT_FOUND):
        await submit(hub, "echo", thread_id=thread_id, if_missing="reject")
    receipt = await submit(hub, "echo", thread_id=thread_id, thread_metadata={"a": 1})
    assert receipt.thread_id == thread_id
    assert (await hub.reads.thread(OWNER, thread_id)).metadata == {"a": 1}


@pytest.mark.parametrize("name", ["thread_id", "alias"])
async def test_a_submission_can_require_a_new_thread(hubs: HubFactory, name: str) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    place = {name: str(uuid4())}
    first = await submit(hub, "echo", **place, if_exists="reject")
    await ends(hub, first)
    before = await log(hub, first)
    with pytest.raises(FaultError) as refusal:
        await submit(hub, "echo", **place, if_exists="reject")
    assert (refusal.value.fault.code, refusal.value.fault.details["reason"]) == (FaultCode.CONFLICT, THREAD_EXISTS)
    assert await log(hub, first) == before


async def test_an_alias_is_unique_per_owner_protocol_and_agent(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()), registered("b", Echo()))
    first = await submit(hub, "a", protocol="a2a", alias="context/1")
    again = await submit(hub, "a", protocol="a2a", alias="context/1")
    assert again.thread_id == first.thread_id
    others = [
        await submit(hub, "b", protocol="a2a", alias="context/1"),
        await submit(hub, "a", protocol="acp", alias="context/1"),
        await submit(hub, "a", protocol="a2a", alias="context/1", owner="bob"),
    ]
    assert len({first.thread_id, *(other.thread_id for other in others)}) == 4
    assert await hub.reads.thread_of(OWNER, "a2a", "a", "context/1") == first.thread_id
    assert await hub.reads.thread_of(OWNER, "a2a", "a", "context/2") is None
    names = await hub.reads.aliases(OWNER, "a2a", [first.thread_id, others[1].thread_id])
    assert names == {first.thread_id: "context/1"}
    for receipt in (again, others[0], others[1]):
        await ends(hub, receipt)
    await ends(hub, others[2], owner="bob")


async def test_a_continuing_task_joins_the_chain_of_the_one_before(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    first = await submit_to_end(hub, "echo", "1")
    second = await submit_to_end(hub, "echo", "2", continues=first.task_id)
    third = await submit_to_end(hub, "echo", "3", continues=second.task_id)
    assert first.thread_id == second.thread_id == third.thread_id
    assert [task.task_id for task in await hub.reads.chain(OWNER, first.task_id)] == [
        first.task_id,
        second.task_id,
        third.task_id,
    ]
    with refused(FaultCode.INVALID):
        await submit(hub, "echo", continues=first.task_id, thread_id=str(uuid4()))
    with refused(FaultCode.NOT_FOUND):
        await submit(hub, "echo", continues=str(uuid4()))


# A busy thread: the multitask strategies


async def test_reject_on_a_busy_thread_is_a_conflict_without_changes(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent)
    before = await log(hub, first)
    with refused(FaultCode.CONFLICT) as error:
        await submit(hub, "a", thread_id=first.thread_id, strategy="reject")
    assert error.value.fault.details == {"reason": BUSY}
    assert "strategy" not in error.value.fault.message, "the message must not mention a setting of one protocol"
    assert await log(hub, first) == before
    await finish(hub, activation, first)
    await converse(hub, agent, thread_id=first.thread_id, strategy="reject")


async def test_reject_also_counts_waiting_runs(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    blocking, activation = await begin(hub, agent)
    waiting = await submit(hub, "a")
    with refused(FaultCode.CONFLICT):
        await submit(hub, "a", thread_id=waiting.thread_id, strategy="reject")
    await finish(hub, activation, blocking)


async def test_enqueued_inputs_run_in_order(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipts = [await submit(hub, "a", "0")]
    for number in range(1, 4):
        receipts.append(await submit(hub, "a", str(number), thread_id=receipts[0].thread_id))
    assert [(await hub.reads.run(OWNER, receipt.run_id)).status for receipt in receipts] == [
        RunStatus.RUNNING,
        *[RunStatus.PENDING] * 3,
    ]
    for number, receipt in enumerate(receipts):
        activation = await agent.called()
        assert activation.call.text == str(number)
        assert not agent.waiting
        activation.say(f"answer {number}").end()
        await ends(hub, receipt)
    started = [record.run_id for record in await log(hub, receipts[0]) if isinstance(record.event, RunStarted)]
    assert started == [receipt.run_id for receipt in receipts]


async def test_interrupt_starts_the_new_run_after_the_old_agents_end(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    old = await submit(hub, "a", "old")
    first = (await agent.called()).open("half")
    queued = await submit(hub, "a", "queued", thread_id=old.thread_id)
    new, second = await begin(hub, agent, "new", thread_id=old.thread_id, strategy="interrupt")
    assert first.closed.is_set()
    assert second.call.text == "new"
    await finish(hub, second.say("done"), new)
    records = await log(hub, new)
    assert states(records, old.task_id) == ["working", "cancelling", "cancelled"]
    assert states(records, queued.task_id) == ["cancelled"]
    assert states(records, new.task_id) == ["working", "completed"]
    run = await hub.reads.run(OWNER, old.run_id)
    assert (run.status, run.reason, run.removed) == (RunStatus.CANCELLED, RunReason.SUPERSEDED, False)
    assert (await hub.reads.run(OWNER, queued.run_id)).reason is RunReason.SUPERSEDED
    ended = next(r.seq for r in records if isinstance(r.event, RunEnded) and r.run_id == old.run_id)
    begun = next(r.seq for r in records if isinstance(r.event, RunStarted) and r.run_id == new.run_id)
    assert ended < begun


async def test_rollback_restores_the_thread_before_the_old_run(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    before = await converse(hub, agent, "kept", says="kept too")
    old = await submit(hub, "a", "old", thread_id=before.thread_id)
    (await agent.called()).say("rolled back").open("half")
    queued = await submit(hub, "a", "queued", thread_id=before.thread_id)
    new = await converse(hub, agent, "new", thread_id=before.thread_id, strategy="rollback", says="answered")
    records = await log(hub, new)
    fold = Fold(new.thread_id, OWNER, records)
    assert [message.text for message in fold.messages()] == ["kept", "kept too", "new", "answered"]
    assert [r.event.run_id for r in records if isinstance(r.event, RunRemoved)] == [queued.run_id, old.run_id]
    for receipt in (old, queued):
        run = await hub.reads.run(OWNER, receipt.run_id)
        assert (run.status, run.reason, run.removed) == (RunStatus.CANCELLED, RunReason.ROLLED_BACK, True)
        assert (await hub.reads.task(OWNER, receipt.task_id)).state is TaskState.CANCELLED


async def test_a_rolled_back_run_is_in_no_history(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    old = await submit(hub, "a", "old")
    (await agent.called()).say("said before the rollback").open("half")
    await submit(hub, "a", "new", thread_id=old.thread_id, strategy="rollback")
    assert (await agent.called()).call.history == ()


async def test_an_input_may_supersede_a_paused_task(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent, "first")
    behind = await submit(hub, "a", "behind", follow_up=first.task_id)
    activation.ask("name").end()
    await reaches(hub, first, TaskState.INPUT_REQUIRED)
    await converse(hub, agent, "beside", thread_id=first.thread_id)
    assert (await hub.reads.task(OWNER, first.task_id)).is_waiting
    await converse(hub, agent, "new", thread_id=first.thread_id, supersede=True)
    assert (await hub.reads.task(OWNER, first.task_id)).state is TaskState.CANCELLED
    assert await open_questions(hub, first) == []
    assert (await hub.reads.run(OWNER, behind.run_id)).reason is RunReason.SUPERSEDED
    with refused(FaultCode.TASK_ENDED):
        await answer(hub, first.task_id, "Bob")


# Another input of an open task


async def test_a_follow_up_is_the_next_run_of_its_task(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent, "first")
    second = await submit(hub, "a", "second", follow_up=first.task_id)
    assert (second.task_id, second.thread_id) == (first.task_id, first.thread_id)
    activation.end()
    activation = await agent.called()
    assert (activation.call.text, activation.call.cause) == ("second", "follow_up")
    assert (await hub.reads.task(OWNER, first.task_id)).state is TaskState.WORKING
    await finish(hub, activation, first)
    records = await log(hub, first)
    assert states(records) == ["working", "completed"]
    assert sum(isinstance(record.event, TaskCreated) for record in records) == 1


@pytest.mark.parametrize("state", ["ended", "cancelling", "waiting", "unknown", "of another agent", "interrupt"])
async def test_a_follow_up_is_refused_if_the_task_accepts_none(hubs: HubFactory, state: str) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent), registered("b", Echo()))
    first, activation = await begin(hub, agent)
    task_id, name, code, fields = first.task_id, "a", FaultCode.TASK_ENDED, dict[str, Any]()
    match state:
        case "ended":
            await finish(hub, activation, first)
        case "cancelling":
            activation.stubborn = True
            await hub.cancel(OWNER, first.task_id)
        case "waiting":
            activation.ask("name").end()
            await reaches(hub, first, TaskState.INPUT_REQUIRED)
            code = FaultCode.CONFLICT
        case "unknown":
            task_id, code = str(uuid4()), FaultCode.NOT_FOUND
        case "of another agent":
            name, code = "b", FaultCode.INVALID
        case _:
            fields, code = {"strategy": "interrupt"}, FaultCode.INVALID
    before = await log(hub, first)
    with refused(code):
        await submit(hub, name, follow_up=task_id, **fields)
    assert await log(hub, first) == before
    activation.stubborn = False
    activation.end()


async def test_an_earlier_input_waits_until_the_answer_is_processed(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent, "first")
    behind = await submit(hub, "a", "behind", follow_up=first.task_id)
    activation.ask("name").end()
    await reaches(hub, first, TaskState.INPUT_REQUIRED)
    assert (await hub.reads.run(OWNER, behind.run_id)).status is RunStatus.PENDING
    answered = await answer(hub, first.task_id, "Bob")
    activation = await agent.called()
    assert (activation.call.cause, activation.call.run_id) == ("answer", answered.run_id)
    activation.end()
    activation = await agent.called()
    assert activation.call.run_id == behind.run_id
    await finish(hub, activation, first)


async def test_a_waiting_answer_runs_before_earlier_inputs(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent, "first")
    behind = await submit(hub, "a", "behind", follow_up=first.task_id)
    beside = await submit(hub, "a", "beside", thread_id=first.thread_id)
    activation.ask("name").end()
    busy = await agent.called()
    assert busy.call.run_id == beside.run_id
    answered = await answer(hub, first.task_id, "Bob")
    busy.end()
    order: list[str] = []
    for _ in range(2):
        activation = await agent.called()
        order.append(activation.call.run_id)
        activation.end()
    assert order == [answered.run_id, behind.run_id]
    await ends(hub, first)


async def test_a_failed_task_cancels_its_queued_inputs(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent)
    behind = await submit(hub, "a", follow_up=first.task_id)
    activation.fail(ValueError("broken"))
    await fails(hub, first, FaultCode.AGENT_FAILED)
    assert (await hub.reads.run(OWNER, behind.run_id)).status is RunStatus.CANCELLED
    assert not agent.waiting


# Questions


async def test_an_answer_is_the_next_run_of_the_task(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit(hub, "a")
    (await agent.called()).say("Let me see.").ask("name").end()
    await reaches(hub, first, TaskState.INPUT_REQUIRED)
    run = await hub.reads.run(OWNER, first.run_id)
    assert (run.status, run.reason) == (RunStatus.PAUSED, RunReason.INPUT)
    (question,) = await open_questions(hub, first)
    assert (question.interrupt_id, question.message.text) == ("name", "name?")
    answered = await answer(hub, first.task_id, "Bob", messages=text("I am Bob"))
    assert answered.task_id == first.task_id and answered.run_id != first.run_id
    activation = await agent.called()
    assert activation.call.cause == "answer"
    assert [(each.interrupt_id, each.action, each.value) for each in activation.call.answers] == [
        ("name", "answer", "Bob")
    ]
    assert activation.call.text == "I am Bob"
    await finish(hub, activation.say("Hello"), first)
    records = await log(hub, first)
    assert states(records) == ["working", "input_required", "working", "completed"]
    tail = [record.event.kind for record in records if record.seq > answered.seq]
    assert tail[:4] == ["run_created", "interrupt_answered", "task_changed", "run_started"]


async def test_a_partial_answer_is_a_run_that_calls_no_agent(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "write", "send")
    partly = await answer(hub, first.task_id, values={"send": True})
    run = await hub.reads.run(OWNER, partly.run_id)
    assert (run.status, run.cause) == (RunStatus.PAUSED, "answer")
    assert (await hub.reads.task(OWNER, first.task_id)).state is TaskState.INPUT_REQUIRED
    assert [question.interrupt_id for question in await open_questions(hub, first)] == ["write"]
    assert not agent.waiting
    tail = [record.event.kind for record in await log(hub, first) if record.seq > partly.seq]
    assert tail == ["run_created", "interrupt_answered", "task_changed", "run_started", "run_ended", "task_changed"]
    await answer(hub, first.task_id, False)
    activation = await agent.called()
    assert [(answered.interrupt_id, answered.value) for answered in activation.call.answers] == [
        ("write", False),
        ("send", True),
    ]
    await finish(hub, activation, first)


async def test_all_answers_at_once_need_one_run(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "write", "send")
    await answer(hub, first.task_id, values={"send": 1, "write": 2})
    activation = await agent.called()
    assert [each.value for each in activation.call.answers] == [2, 1]
    await finish(hub, activation, first)


async def test_a_bare_answer_goes_to_the_oldest_question(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "write", "send")
    await answer(hub, first.task_id, "x")
    assert [question.interrupt_id for question in await open_questions(hub, first)] == ["send"]


@pytest.mark.parametrize("kind", ["input", "auth", "approval"])
async def test_a_declined_question_reaches_the_agent_as_declined(hubs: HubFactory, kind: str) -> None:
    hub, agent = await hubs.scripted()
    first = await submit(hub, "a")
    (await agent.called()).ask("q", kind=kind).end()
    waiting = TaskState.AUTH_REQUIRED if kind == "auth" else TaskState.INPUT_REQUIRED
    await reaches(hub, first, waiting)
    assert (await hub.reads.run(OWNER, first.run_id)).reason is (RunReason.AUTH if kind == "auth" else RunReason.INPUT)
    await answer(hub, first.task_id, action="decline")
    activation = await agent.called()
    assert [each.action for each in activation.call.answers] == ["decline"]
    await finish(hub, activation, first)


async def test_open_questions_decide_whether_authentication_is_required(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit(hub, "a")
    (await agent.called()).ask("name").ask("login", kind="auth").end()
    await reaches(hub, first, TaskState.INPUT_REQUIRED)
    partly = await answer(hub, first.task_id, values={"name": "Bob"})
    assert (await hub.reads.task(OWNER, first.task_id)).state is TaskState.AUTH_REQUIRED
    assert (await hub.reads.run(OWNER, partly.run_id)).reason is RunReason.AUTH


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"values": {"other": 1}}, FaultCode.NOT_AWAITING),
        ({"values": {"name": 1, "other": 1}}, FaultCode.NOT_AWAITING),
        ({"values": {}}, FaultCode.INVALID),
    ],
)
async def test_an_answer_without_an_open_question_changes_nothing(
    hubs: HubFactory, fields: Any, code: FaultCode
) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "name")
    before = await log(hub, first)
    with refused(code) as error:
        await answer(hub, first.task_id, **fields)
    if code is FaultCode.NOT_AWAITING:
        assert error.value.fault.details["interrupts"] == ["name"]
    assert await log(hub, first) == before


async def test_a_question_accepts_one_answer(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "name")
    await answer(hub, first.task_id, "Bob")
    activation = await agent.called()
    with refused(FaultCode.NOT_AWAITING):
        await answer(hub, first.task_id, "Ann")
    await finish(hub, activation, first)
    with refused(FaultCode.TASK_ENDED):
        await answer(hub, first.task_id, "Ann")
    with refused(FaultCode.NOT_FOUND):
        await answer(hub, str(uuid4()), "Ann")


async def test_question_ids_are_unique_within_a_task(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "name")
    second = await submit_and_ask(hub, agent, "name", thread_id=first.thread_id)
    await answer(hub, second.task_id, "second")
    activation = await agent.called()
    assert [(each.interrupt_id, each.value) for each in activation.call.answers] == [("name", "second")]
    activation.ask("name").end()
    await reaches(hub, second, TaskState.INPUT_REQUIRED)
    assert [question.interrupt_id for question in await open_questions(hub, second)] == ["name-2"]
    assert [question.interrupt_id for question in await open_questions(hub, first)] == ["name"]
    await answer(hub, first.task_id, values={"name": "first"})
    activation = await agent.called()
    assert [each.value for each in activation.call.answers] == ["first"]
    activation.end()
    await answer(hub, second.task_id, values={"name-2": "third"})
    activation = await agent.called()
    assert [each.value for each in activation.call.answers] == ["third"]
    await finish(hub, activation, first)
    await ends(hub, second)


async def test_an_answer_on_a_busy_thread_waits_for_its_turn(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "name")
    beside, activation = await begin(hub, agent, thread_id=first.thread_id)
    answered = await answer(hub, first.task_id, "Bob")
    assert (await hub.reads.run(OWNER, answered.run_id)).status is RunStatus.PENDING
    assert (await hub.reads.task(OWNER, first.task_id)).state is TaskState.WORKING
    await finish(hub, activation, beside)
    await finish(hub, await agent.called(), first)


# Cancel


async def test_a_cancelled_waiting_run_never_calls_its_agent(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent)
    second = await submit(hub, "a", thread_id=first.thread_id)
    task = await hub.cancel(OWNER, second.task_id)
    assert task.state is TaskState.CANCELLED
    assert task == await hub.reads.task(OWNER, second.task_id)
    run = await hub.reads.run(OWNER, second.run_id)
    assert (run.status, run.reason, run.attempt) == (RunStatus.CANCELLED, RunReason.CALLER, 0)
    assert states(await log(hub, second, "task")) == ["cancelling", "cancelled"]
    await finish(hub, activation, first)
    assert not agent.waiting


async def test_cancelling_a_paused_task_closes_its_questions(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit_and_ask(hub, agent, "write", "send")
    assert (await hub.cancel(OWNER, first.task_id)).state is TaskState.CANCELLED
    records = await log(hub, first)
    assert states(records) == ["working", "input_required", "cancelling", "cancelled"]
    closed = [r.event for r in records if isinstance(r.event, InterruptAnswered)]
    assert [(event.interrupt_id, event.action) for event in closed] == [("write", "superseded"), ("send", "superseded")]
    assert not agent.waiting
    with refused(FaultCode.TASK_ENDED):
        await answer(hub, first.task_id, "late")


async def test_cancelling_a_task_cancels_its_queued_inputs(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent)
    behind = await submit(hub, "a", follow_up=first.task_id)
    activation.open("half")
    task = await hub.cancel(OWNER, first.task_id)
    assert task.state is TaskState.CANCELLING
    assert (await ends(hub, first)).state is TaskState.CANCELLED
    assert activation.closed.is_set()
    assert (await hub.reads.run(OWNER, behind.run_id)).status is RunStatus.CANCELLED
    assert kinds(await log(hub, first, "task"))[-4:] == ["part_ended", "message_ended", "run_ended", "task_changed"]


async def test_a_terminal_task_cannot_be_cancelled(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    before = await log(hub, receipt)
    with refused(FaultCode.TASK_ENDED):
        await hub.cancel(OWNER, receipt.task_id)
    with refused(FaultCode.NOT_FOUND):
        await hub.cancel(OWNER, str(uuid4()))
    assert await log(hub, receipt) == before


# Limits of waiting runs


async def test_queues_are_bounded_by_thread_agent_and_owner(hubs: HubFactory) -> None:
    agent, other = Scripted(), Scripted()
    hub = await hubs.start(
        registered("a", agent, concurrency=1),
        registered("b", other, concurrency=1),
        limits=Limits(queue=Queue(agent=4, thread=2, owner=5)),
    )
    busy, activation = await begin(hub, agent)
    for _ in range(2):
        await submit(hub, "a", thread_id=busy.thread_id)

    async def full(name: str, what: str, **fields: Any) -> None:
        with refused(FaultCode.QUEUE_FULL) as error:
            await submit(hub, name, **fields)
        assert what in error.value.fault.message
        assert error.value.fault.details["retry_after"] > 0

    await full("a", "this thread", thread_id=busy.thread_id)
    for _ in range(2):
        await submit(hub, "a")
    await full("a", "agent a")
    for _ in range(2):  # the caller's share of the queue
        await submit(hub, "a", owner="bob")
    await full("a", "agent a", owner="bob")
    await full("a", "agent a")
    blocking = await submit(hub, "b")
    await submit(hub, "b")
    await full("b", "this caller")
    await submit(hub, "b", owner="bob")
    await hub.cancel(OWNER, busy.task_id)
    await within(activation.closed.wait())
    await agent.called()
    await submit(hub, "b")  # one run less is waiting
    await hub.cancel(OWNER, blocking.task_id)


async def test_a_burst_of_one_owner_does_not_affect_others(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1, limits=Limits(queue=Queue(agent=10)))
    first, activation = await begin(hub, agent)
    for _ in range(10):
        await submit(hub, "a")
    with refused(FaultCode.QUEUE_FULL, "agent a"):
        await submit(hub, "a")
    other = await submit(hub, "a", "from bob", owner="bob")
    await finish(hub, activation, first)
    served = await agent.called()
    assert served.call.text == "hi", "the burst came first"
    served.end()
    assert (await agent.called()).call.text == "from bob"
    await hub.cancel("bob", other.task_id)


async def test_delayed_runs_do_not_count_for_queue_limits(hubs: HubFactory) -> None:
    bounds = Queue(agent=2, thread=2, owner=3)
    hub, agent = await hubs.scripted(concurrency=1, limits=Limits(queue=bounds))
    far = 28 * 365 * 86_400_000_000
    delayed = await submit(hub, "a", start_in=far)
    for _ in range(2):
        await submit(hub, "a", thread_id=delayed.thread_id, start_in=far)
    with refused(FaultCode.QUEUE_FULL, "3 runs of this caller already start at a later time"):
        await submit(hub, "a", start_in=far)
    _, activation = await begin(hub, agent, "now", owner="bob")
    await submit(hub, "a", thread_id=delayed.thread_id)
    await submit(hub, "a")
    with refused(FaultCode.QUEUE_FULL, "agent a"):
        await submit(hub, "a")
    activation.end()


async def test_a_refused_input_creates_no_thread(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1, limits=Limits(queue=Queue(agent=1)))
    await submit(hub, "a")
    await agent.called()
    await submit(hub, "a")
    thread_id = str(uuid4())
    with pytest.raises(FaultError):
        await submit(hub, "a", thread_id=thread_id)
    with refused(FaultCode.NOT_FOUND):
        await hub.reads.thread(OWNER, thread_id)


# Delayed starts


class Moved:
    """Clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000_000

    def __call__(self) -> int:
        return self.now


async def test_a_delayed_run_does_not_start_early(hubs: HubFactory) -> None:
    clock = Moved()
    hub, agent = await hubs.scripted(clock=Clock(clock, clock))
    second = await submit(hub, "a", "second", start_in=120_000)
    first = await submit(hub, "a", "first", thread_id=second.thread_id, start_in=60_000)
    now, activation = await begin(hub, agent, "now", thread_id=second.thread_id)
    assert activation.call.text == "now"
    await finish(hub, activation, now)
    assert not agent.waiting
    clock.now += 60_000
    activation = await agent.called()
    assert activation.call.text == "first"
    assert not agent.waiting
    clock.now += 60_000
    await finish(hub, activation, first)
    activation = await agent.called()
    assert activation.call.text == "second"
    await finish(hub, activation, second)


@pytest.mark.parametrize("when", [-1, 2**63, 10**30])
async def test_an_out_of_range_time_fails_only_its_submission(hubs: HubFactory, when: int) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    fine, wrong = await asyncio.gather(submit(hub, "echo"), submit(hub, "echo", start_in=when), return_exceptions=True)
    assert isinstance(wrong, FaultError) and wrong.fault.code is FaultCode.INVALID
    assert not isinstance(fine, BaseException)
    await ends(hub, fine)


async def test_a_run_with_a_past_start_time_starts_at_once(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    await submit_to_end(hub, "echo", start_in=0)


# Metadata of threads


async def test_a_new_thread_has_the_metadata_of_the_submission(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo", thread_metadata={"project": "x"}, metadata={"task": "y"})
    records = await log(hub, receipt)
    assert isinstance(records[0].event, ThreadChanged)
    assert (await hub.reads.thread(OWNER, receipt.thread_id)).metadata == {"project": "x"}
    assert (await hub.reads.task(OWNER, receipt.task_id)).metadata == {"task": "y"}
    await run_is(hub, receipt.run_id, receipt.thread_id, RunStatus.SUCCESS)
