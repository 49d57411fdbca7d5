"""Tests of reading some turns and their records from a longer thread.

`tests/adapters/openai/server/test_item_pages.py` compares their content with that of the whole thread.
"""

from typing import Final

import pytest

from babelgate.canonical import FaultCode, FaultError, Message, Scope
from babelgate.canonical.event import RunCreated
from babelgate.canonical.hub import StateUpdate, ThreadChange
from babelgate.canonical.state import RunStatus
from tests.gateway.hubs import OWNER, Echo, HubFactory, Scripted, ends, registered, run_is, submit

EACH_DATABASE: Final = True


async def test_turns_are_runs_and_updates_of_callers(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("echo", Echo()), registered("a", agent))
    thread_id = (await hub.create_thread(OWNER, ThreadChange())).thread_id
    message = Message.of("hi", "user").replace(message_id="m")
    await hub.update_state(OWNER, StateUpdate(thread_id=thread_id, messages=(message,), removed_ids=("n",)))
    receipts = [await submit(hub, "echo", thread_id=thread_id) for _ in range(3)]
    for each in receipts:
        await ends(hub, each)
    await hub.remove_run(OWNER, receipts[1].run_id)
    active = await submit(hub, "a", thread_id=thread_id)
    await run_is(hub, active.run_id, thread_id, RunStatus.RUNNING)

    oldest = await hub.reads.turns(OWNER, thread_id, limit=10, descending=False)
    assert [turn.run_id for turn in oldest] == [None, receipts[0].run_id, receipts[2].run_id, active.run_id]
    assert [turn.message_id for turn in oldest] == ["m", None, None, None]
    ended = await hub.reads.run(OWNER, receipts[0].run_id)
    assert (oldest[1].seq, oldest[1].until, oldest[1].task_id) == (ended.first_seq, ended.last_seq, ended.task_id)
    assert oldest[3].until is None
    assert await hub.reads.turns(OWNER, thread_id, limit=10) == oldest[::-1]
    assert await hub.reads.turns(OWNER, thread_id, limit=2) == oldest[:1:-1]
    assert await hub.reads.turns(OWNER, thread_id, limit=2, beyond=oldest[2].seq) == oldest[1::-1]
    assert await hub.reads.turns(OWNER, thread_id, limit=2, beyond=oldest[0].seq, descending=False) == oldest[1:3]
    assert await hub.reads.turns(OWNER, thread_id, limit=2, beyond=oldest[0].seq) == []
    assert await hub.reads.removed_messages(OWNER, thread_id) == {"n"}
    for read in (hub.reads.turns("somebody else", thread_id, limit=1), hub.reads.removed_messages("x", thread_id)):
        with pytest.raises(FaultError) as caught:
            await read
        assert caught.value.fault.code is FaultCode.NOT_FOUND
    (await agent.called()).end()
    await ends(hub, active)


async def test_a_page_of_turns_reads_little_of_a_long_thread(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    thread_id = (await hub.create_thread(OWNER, ThreadChange())).thread_id
    for _ in range(20):
        await ends(hub, await submit(hub, "echo", thread_id=thread_id))
    turns = await hub.reads.turns(OWNER, thread_id, limit=3, beyond=100)
    records = [record async for some in hub.reads.turn_log(OWNER, thread_id, turns) for record in some]
    log = await hub.reads.records(OWNER, Scope(thread_id))
    assert [record.event.run_id for record in records if isinstance(record.event, RunCreated)] == [
        turn.run_id for turn in reversed(turns)
    ]
    of_runs = [record for record in log if record.run_id in {turn.run_id for turn in turns}]
    assert [record for record in records if record.run_id is not None] == of_runs
    assert len(records) == len(of_runs) + 3, "including the records that create their tasks"
    assert [each async for each in hub.reads.turn_log(OWNER, thread_id, ())] == []
