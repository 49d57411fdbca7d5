"""Finding what a request names, on a hub with one agent."""

from uuid import uuid4

import pytest

from babelgate.adapters.langchain.server.lookup import apply_task_cancel, find_agent, find_run, not_found, read_history
from babelgate.canonical import Fault, FaultCode, FaultError, RunStatus, TaskState
from tests.gateway.hubs import OWNER, Echo, House, Scripted, asked, ends, reaches, registered, submit


async def test_an_unknown_agent_is_said_in_the_words_of_the_dialect(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    assert find_agent(hub, "echo").name == "echo"
    for text, dialect, code, words in (
        ("none", "agent-protocol", FaultCode.NOT_FOUND, "Agent 'none' not found"),
        (str(uuid4()), "langgraph", FaultCode.NOT_FOUND, "Thread or assistant not found."),
        ("none", "langgraph", FaultCode.INVALID, "One of the registered graphs: echo"),
    ):
        with pytest.raises(FaultError) as error:
            find_agent(hub, text, dialect)  # pyright: ignore[reportArgumentType]
        assert error.value.fault.code is code
        assert words in error.value.fault.message


async def test_a_run_is_found_on_its_own_thread_by_its_owner_and_until_it_is_removed(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo")
    await ends(hub, receipt)
    assert (await find_run(hub, OWNER, receipt.run_id, receipt.thread_id)).run_id == receipt.run_id
    for owner, thread_id in ((OWNER, str(uuid4())), ("somebody else", None)):
        with pytest.raises(FaultError, match="Run not found"):
            await find_run(hub, owner, receipt.run_id, thread_id)
    await hub.remove_run(OWNER, receipt.run_id)
    with pytest.raises(FaultError, match="Run not found"):
        await find_run(hub, OWNER, receipt.run_id)


async def test_a_run_that_waits_is_shown_cancelled_once_its_task_is(hubs: House) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    receipt = await submit(hub, "a")
    (await agent.called()).ask("Which?").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    assert await asked(hub, receipt)
    paused = await find_run(hub, OWNER, receipt.run_id)
    assert (await apply_task_cancel(hub, OWNER, paused)).status is RunStatus.PAUSED
    await hub.cancel(OWNER, receipt.task_id)
    assert (await apply_task_cancel(hub, OWNER, paused)).status is RunStatus.CANCELLED


async def test_the_history_of_a_thread_is_that_of_a_seq_and_an_unknown_thread_is_named(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo")
    await ends(hub, receipt)
    now = await read_history(hub, OWNER, receipt.thread_id)
    then = await read_history(hub, OWNER, receipt.thread_id, receipt.seq)
    assert then.seq == receipt.seq < now.seq
    nobody = str(uuid4())
    with pytest.raises(FaultError, match=f"Thread with ID {nobody} not found"):
        await read_history(hub, OWNER, nobody)


def test_only_what_is_not_found_gets_other_words() -> None:
    busy = FaultError(FaultCode.CONFLICT, "It is busy.")
    assert not_found(busy, "Run not found") is busy
    assert not_found(FaultError(FaultCode.NOT_FOUND, "no"), "Run not found").fault == Fault(
        code=FaultCode.NOT_FOUND, message="Run not found"
    )
