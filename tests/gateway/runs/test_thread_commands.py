"""Tests of the commands on threads other than runs."""

import pytest

from babelgate.canonical import (
    FaultCode,
    FilePart,
    Message,
    Receipt,
    RunStatus,
    Scope,
    StateHistory,
    StateUpdate,
    TaskState,
    TextPart,
    ThreadChange,
)
from babelgate.canonical.event import UpstreamBound
from babelgate.canonical.thread import next_run_id
from babelgate.gateway.hub import GatewayHub
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    Scripted,
    answer,
    begin,
    converse,
    ends,
    finish,
    reaches,
    refused,
    registered,
    run_is,
    submit,
    submit_and_ask,
    submit_to_end,
)

THREAD = "229c1834-bc04-4d90-8fd6-77f6b9ef1462"


async def history_of(hub: GatewayHub, thread_id: str) -> StateHistory:
    return StateHistory(thread_id, OWNER, await hub.reads.records(OWNER, Scope(thread_id)))


async def state_of(hub: GatewayHub, thread_id: str) -> tuple[dict[str, object], list[str]]:
    head = (await history_of(hub, thread_id)).head
    assert head is not None
    return dict(head.values), [message.text for message in head.messages]


async def bound_turn(hub: GatewayHub, agent: Scripted) -> Receipt:
    """Run a whole turn in which the agent's server reports an id of its context. Return the receipt."""
    first, activation = await begin(hub, agent, "one")
    await finish(hub, activation.say(UpstreamBound(protocol="p", ids={"context": "c1"})).say("1"), first)
    return first


def user_message(message_id: str, words: str) -> Message:
    return Message(message_id=message_id, role="user", parts=(TextPart(text=words),))


async def test_a_thread_can_be_created_before_its_first_run(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    change = ThreadChange(metadata={"a": 1}, config={"c": 2}, extra={"aief": {"agent": "echo"}})
    thread = await hub.create_thread(OWNER, change, thread_id=THREAD)
    assert (thread.thread_id, thread.metadata, thread.config, thread.extra) == (
        THREAD,
        {"a": 1},
        {"c": 2},
        {"aief": {"agent": "echo"}},
    )
    assert await hub.reads.thread(OWNER, THREAD) == thread
    receipt = await submit(hub, "echo", thread_id=THREAD)
    assert receipt.thread_id == THREAD
    await ends(hub, receipt)


async def test_a_used_id_is_a_conflict_unless_existing_is_accepted(hubs: HubFactory) -> None:
    hub = await hubs.start()
    thread = await hub.create_thread(OWNER, ThreadChange(metadata={"a": 1}), thread_id=THREAD)
    with refused(FaultCode.CONFLICT):
        await hub.create_thread(OWNER, ThreadChange(), thread_id=THREAD)
    assert await hub.create_thread(OWNER, ThreadChange(), thread_id=THREAD, if_exists="return") == thread
    assert await hub.create_thread("bob", ThreadChange(), thread_id=THREAD)


async def test_the_id_of_an_erased_thread_can_be_reused(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    for _ in range(2):
        await hub.create_thread(OWNER, ThreadChange(metadata={"a": 1}), thread_id=THREAD)
        await hub.delete_thread(OWNER, THREAD)
    with refused(FaultCode.NOT_FOUND):
        await submit(hub, "echo", thread_id=THREAD)
    await submit_to_end(hub, "echo", thread_id=THREAD, if_missing="recreate")
    assert (await hub.reads.thread(OWNER, THREAD)).metadata == {}
    await hub.delete_thread(OWNER, THREAD)


async def test_a_run_from_an_unknown_revision_is_refused(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    await hub.create_thread(OWNER, ThreadChange(), thread_id=THREAD)
    for thread_id in (THREAD, None):
        with refused(FaultCode.NOT_FOUND):
            await submit(hub, "echo", thread_id=thread_id, checkpoint="nope")


async def test_metadata_of_an_update_replace_those_of_the_thread(hubs: HubFactory) -> None:
    hub = await hubs.start()
    thread = await hub.create_thread(OWNER, ThreadChange(metadata={"a": {"x": 1}, "b": 1}))
    changed = await hub.change_thread(OWNER, thread.thread_id, ThreadChange(metadata={"a": {"y": 2}}, ttl=60))
    assert (changed.metadata, changed.ttl) == ({"a": {"y": 2}, "b": 1}, 60)
    with refused(FaultCode.NOT_FOUND):
        await hub.change_thread(OWNER, THREAD, ThreadChange())


async def test_an_upload_belongs_only_to_the_next_run(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    await hub.create_thread(OWNER, ThreadChange(), thread_id=THREAD)
    upload = await hub.upload(OWNER, THREAD, FilePart(name="a.txt", media_type="text/plain", inline=b"one"), "folder/")
    assert (upload.name, upload.origin, upload.folder) == ("a.txt", "caller", "folder/")
    await hub.upload(OWNER, THREAD, FilePart(name="b.txt", inline=b"two"))
    assert len((await hub.reads.thread(OWNER, THREAD)).uploads) == 2
    first, activation = await begin(hub, agent, "hi", thread_id=THREAD)
    assert [(file.name, file.inline) for file in activation.call.files] == [("a.txt", b"one"), ("b.txt", b"two")]
    assert activation.call.text == "hi"
    await finish(hub, activation, first)
    assert (await hub.reads.thread(OWNER, THREAD)).uploads == ()
    second, activation = await begin(hub, agent, "again", thread_id=THREAD)
    assert activation.call.files == ()
    await finish(hub, activation, second)


async def test_an_upload_can_come_with_an_answer(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit_and_ask(hub, agent, "file?")
    await hub.upload(OWNER, receipt.thread_id, FilePart(name="a.txt", inline=b"one"))
    await answer(hub, receipt.task_id, "here")
    activation = await agent.called()
    assert [file.inline for file in activation.call.files] == [b"one"]
    await finish(hub, activation, receipt)


async def test_an_answers_run_may_have_a_chosen_id(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    (await agent.called()).ask("first?").ask("second?").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    one, two = await hub.reads.open_interrupts(OWNER, receipt.task_id)
    first = await answer(hub, receipt.task_id, values={one.interrupt_id: 1})
    assert first.run_id == next_run_id(receipt.run_id)
    second = await answer(hub, receipt.task_id, values={two.interrupt_id: 2})
    assert second.run_id == next_run_id(first.run_id)
    await finish(hub, await agent.called(), receipt)


async def test_an_agent_continues_from_the_callers_revision(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first = await converse(hub, agent, "hi", says="hello")
    _, answered = (await history_of(hub, first.thread_id)).all()[0].messages
    removed_ids = (answered.message_id or "",)
    update = StateUpdate(
        thread_id=first.thread_id, values={"n": 1}, messages=(user_message("x", "by the way"),), removed_ids=removed_ids
    )
    checkpoint = await hub.update_state(OWNER, update)
    revision = (await history_of(hub, first.thread_id)).get(checkpoint)
    assert revision is not None
    assert (revision.values, [m.text for m in revision.messages], revision.source) == (
        {"n": 1},
        ["hi", "by the way"],
        "update",
    )
    second, activation = await begin(hub, agent, "more", thread_id=first.thread_id)
    assert [message.text for message in activation.call.history] == ["hi", "by the way"]
    await finish(hub, activation.say("sure"), second)
    assert await state_of(hub, first.thread_id) == ({"n": 1}, ["hi", "by the way", "more", "sure"])


async def test_a_run_from_an_older_revision_has_only_its_history(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=True)
    first = await bound_turn(hub, agent)
    root = (await history_of(hub, first.thread_id)).head
    assert root is not None
    second, activation = await begin(hub, agent, "two", thread_id=first.thread_id)
    assert (activation.call.upstream, activation.call.history) == ({"context": "c1"}, ())
    await finish(hub, activation.say("2"), second)
    third, activation = await begin(hub, agent, "other", thread_id=first.thread_id, checkpoint=root.checkpoint_id)
    assert activation.call.upstream == {}
    assert [message.text for message in activation.call.history] == ["one", "1"]
    await finish(hub, activation.say("3"), third)
    assert (await state_of(hub, first.thread_id))[1] == ["one", "1", "other", "3"]


async def test_a_metadata_change_keeps_the_agents_memory(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=True)
    first = await bound_turn(hub, agent)
    await hub.update_state(OWNER, StateUpdate(thread_id=first.thread_id, values={"note": 1}, as_node="a"))
    second, activation = await begin(hub, agent, "two", thread_id=first.thread_id)
    assert (activation.call.upstream, activation.call.history) == ({"context": "c1"}, ())
    await finish(hub, activation.say("2"), second)
    assert await state_of(hub, first.thread_id) == ({"note": 1}, ["one", "1", "two", "2"])


@pytest.mark.parametrize(
    ("change", "history_texts"),
    [
        ("says", ["one", "1", "by the way"]),
        ("forgets", ["one"]),
        ("goes back", ["one"]),
        ("spoke elsewhere", ["one", "1", "by the way"]),
    ],
)
async def test_a_message_change_resends_the_history_to_the_agent(
    hubs: HubFactory, change: str, history_texts: list[str]
) -> None:
    hub, agent = await hubs.scripted(remembers=True)
    first = await bound_turn(hub, agent)
    last_revision, first_revision = (await history_of(hub, first.thread_id)).all()
    news = (user_message("x", "by the way"),)
    updates = {
        "says": StateUpdate(thread_id=first.thread_id, messages=news),
        "forgets": StateUpdate(thread_id=first.thread_id, removed_ids=(last_revision.messages[1].message_id or "",)),
        "goes back": StateUpdate(thread_id=first.thread_id, values={"n": 1}, checkpoint=first_revision.checkpoint_id),
    }
    if change in updates:
        await hub.update_state(OWNER, updates[change])
    history = news if change == "spoke elsewhere" else ()
    second, activation = await begin(hub, agent, "two", thread_id=first.thread_id, history=history)
    assert (activation.call.upstream, [message.text for message in activation.call.history]) == ({}, history_texts)
    await finish(hub, activation.say("2"), second)


async def test_the_state_cannot_be_changed_during_a_run(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, activation = await begin(hub, agent)
    with refused(FaultCode.CONFLICT):
        await hub.update_state(OWNER, StateUpdate(thread_id=receipt.thread_id, values={"n": 1}))
    await finish(hub, activation, receipt)


async def test_a_revision_of_an_unknown_one_is_refused(hubs: HubFactory) -> None:
    hub = await hubs.start()
    await hub.create_thread(OWNER, ThreadChange(), thread_id=THREAD)
    for update in (
        StateUpdate(thread_id=THREAD, checkpoint="nope"),
        StateUpdate(thread_id="10000000-0000-4000-8000-000000000000"),
    ):
        with refused(FaultCode.NOT_FOUND):
            await hub.update_state(OWNER, update)


async def test_a_copy_has_the_same_revisions_and_is_independent(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    first: Receipt = await submit(hub, "echo", "one", thread_metadata={"a": 1}, data={"n": 1})
    await ends(hub, first)
    await hub.update_state(OWNER, StateUpdate(thread_id=first.thread_id, values={"n": 2}))
    await submit_to_end(hub, "echo", "two", thread_id=first.thread_id)
    copied = await hub.copy_thread(OWNER, first.thread_id)
    assert copied.thread_id != first.thread_id
    assert copied.metadata == {"a": 1}
    mine, others = await history_of(hub, copied.thread_id), await history_of(hub, first.thread_id)
    assert [(r.values, [m.text for m in r.messages], r.source) for r in mine.all()] == [
        (r.values, [m.text for m in r.messages], r.source) for r in others.all()
    ]
    assert (await hub.reads.thread_view(OWNER, copied.thread_id)).status == "idle"
    await submit_to_end(hub, "echo", "three", thread_id=copied.thread_id)
    assert await state_of(hub, first.thread_id) == ({"n": 2}, ["one", "one", "two", "two"])
    assert await state_of(hub, copied.thread_id) == ({"n": 2}, ["one", "one", "two", "two", "three", "three"])


async def test_a_caller_can_roll_back_an_active_run(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await converse(hub, agent, "one", says="1")
    second = await submit(hub, "a", "two", thread_id=first.thread_id)
    await agent.called()
    await hub.cancel_run(OWNER, second.run_id, rollback=True)
    assert (await ends(hub, second)).state is TaskState.CANCELLED
    assert (await run_is(hub, second.run_id, first.thread_id, RunStatus.CANCELLED)).removed
    assert (await state_of(hub, first.thread_id))[1] == ["one", "1"]
    with refused(FaultCode.NOT_FOUND):
        await hub.cancel_run(OWNER, second.run_id)


async def test_a_rolled_back_pending_run_never_calls_its_agent(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first, activation = await begin(hub, agent, "one")
    second = await submit(hub, "a", "two", thread_id=first.thread_id)
    removed = await hub.cancel_run(OWNER, second.run_id, rollback=True)
    assert (removed.status, removed.removed) == (RunStatus.CANCELLED, True)
    await finish(hub, activation, first)
    assert len(agent.calls) == 1


async def test_a_run_that_has_ended_cannot_be_cancelled(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    with refused(FaultCode.TASK_ENDED):
        await hub.cancel_run(OWNER, receipt.run_id)
