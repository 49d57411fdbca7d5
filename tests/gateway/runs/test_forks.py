"""Tests of forks: runs that start from an earlier state of a thread, on this thread or on a new one."""

from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from babelgate.canonical import (
    AgentInfo,
    FaultCode,
    FaultError,
    Fork,
    Invocation,
    Receipt,
    StateHistory,
    StateUpdate,
    ThreadChange,
    ThreadFilter,
)
from babelgate.canonical.event import StateSaved, UpstreamBound
from babelgate.canonical.history import Revision, members
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.gateway.hubs import OWNER, HubFactory, Scripted, begin, ends, finish, submit, text


async def history_of(hub: GatewayHub, thread_id: str) -> StateHistory:
    return await hub.reads.snapshot(OWNER, thread_id, StateHistory, partial(StateHistory, thread_id, OWNER))


async def head_of(hub: GatewayHub, thread_id: str) -> Revision:
    head = (await history_of(hub, thread_id)).head
    assert head is not None
    return head


def bound(words: str) -> dict[str, str]:
    return {"run": f"run of {words}", "context": f"context of {words}"}


async def turn(hub: GatewayHub, agent: Scripted, words: str, **fields: Any) -> tuple[Receipt, Invocation]:
    """Run a complete turn, in which the agent's server reports ids of the run and its context. Both are derived from
    `words`. Return the receipt, and the invocation that the agent received."""
    receipt, activation = await begin(hub, agent, words, **fields)
    activation.say(UpstreamBound(protocol="p", ids=bound(words)), f"re {words}").end()
    await ends(hub, receipt)
    return receipt, activation.call


def messages_of(call: Invocation) -> list[str]:
    return [message.text for message in call.history]


async def code_of(hub: GatewayHub, **fields: Any) -> FaultCode:
    with pytest.raises(FaultError) as error:
        await submit(hub, "a", "x", **fields)
    return error.value.fault.code


async def test_a_fork_of_another_thread_starts_with_its_state(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, _ = await turn(hub, agent, "one")
    await turn(hub, agent, "two", thread_id=first.thread_id)
    for fork in (Fork(run_id=first.run_id), Fork(task_id=first.task_id)):
        forked, call = await turn(hub, agent, "three", fork=fork)
        assert forked.thread_id != first.thread_id
        assert messages_of(call) == ["one", "re one"]
        assert (call.origin, call.upstream, call.state) == (bound("one"), {}, {})
        head = await head_of(hub, forked.thread_id)
        assert [message.text for message in head.messages] == ["one", "re one", "three", "re three"]
        _, after = await turn(hub, agent, "four", thread_id=forked.thread_id)
        assert messages_of(after) == ["one", "re one", "three", "re three"]
        assert (after.origin, after.upstream) == ({}, {"context": "context of three"})
    whole = await head_of(hub, first.thread_id)
    assert [message.text for message in whole.messages] == ["one", "re one", "two", "re two"]


async def test_a_fork_of_the_same_thread_begins_a_branch(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, _ = await turn(hub, agent, "one")
    await turn(hub, agent, "two", thread_id=first.thread_id)
    revision = (await history_of(hub, first.thread_id)).of_run(first.run_id)
    assert revision is not None
    for fork in (Fork(run_id=first.run_id), Fork(checkpoint=revision.checkpoint_id)):
        branch, call = await turn(hub, agent, "three", thread_id=first.thread_id, fork=fork)
        assert branch.thread_id == first.thread_id
        assert (messages_of(call), call.origin) == (["one", "re one"], bound("one"))
    _, after = await turn(hub, agent, "four", thread_id=first.thread_id)
    assert messages_of(after) == ["one", "re one", "three", "re three"]


async def test_only_an_empty_thread_accepts_a_fork(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, _ = await turn(hub, agent, "one")
    thread = await hub.create_thread(OWNER, ThreadChange())
    _, call = await turn(hub, agent, "two", thread_id=thread.thread_id, fork=Fork(run_id=first.run_id))
    assert messages_of(call) == ["one", "re one"]
    assert await code_of(hub, thread_id=thread.thread_id, fork=Fork(run_id=first.run_id)) is FaultCode.INVALID


async def test_unknown_and_foreign_runs_cannot_be_forked(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    foreign = await submit(hub, "a", "one", owner="bob")
    (await agent.called()).say("re one").end()
    await ends(hub, foreign, owner="bob")
    history = await hub.reads.snapshot(
        "bob", foreign.thread_id, StateHistory, partial(StateHistory, foreign.thread_id, "bob")
    )
    assert history.head_id is not None
    none = str(uuid4())
    for fork in (
        Fork(run_id=foreign.run_id),
        Fork(task_id=foreign.task_id),
        Fork(checkpoint=history.head_id, thread_id=foreign.thread_id),
        Fork(run_id=none),
        Fork(task_id=none),
        Fork(checkpoint=none),
    ):
        assert await code_of(hub, fork=fork) is FaultCode.NOT_FOUND
        assert await code_of(hub, fork=fork, thread_id=none) is FaultCode.NOT_FOUND
    assert await (await hub.reads.threads(OWNER, ThreadFilter(), limit=9)).all() == []


async def test_active_and_removed_runs_cannot_be_forked(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, activation = await begin(hub, agent, "one")
    assert await code_of(hub, fork=Fork(run_id=first.run_id)) is FaultCode.CONFLICT
    await finish(hub, activation.say("re one"), first)
    await hub.remove_run(OWNER, first.run_id)
    assert await code_of(hub, fork=Fork(run_id=first.run_id)) is FaultCode.NOT_FOUND
    assert await code_of(hub, fork=Fork(task_id=first.task_id)) is FaultCode.NOT_FOUND


async def test_state_changes_reach_an_agent_without_memory(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, call = await turn(hub, agent, "one", state={"note": 1, "kept": True})
    assert call.state == {"note": 1, "kept": True}
    _, call = await turn(hub, agent, "two", thread_id=first.thread_id, state={"note": 2})
    assert (call.state, call.origin, call.upstream) == ({"note": 2}, {}, {"context": "context of one"})
    _, call = await turn(hub, agent, "three", thread_id=first.thread_id)
    assert call.state == {}
    head = await head_of(hub, first.thread_id)
    assert head.values == {"note": 2, "kept": True}
    _, call = await turn(hub, agent, "four", fork=Fork(run_id=first.run_id), state={"note": 3})
    assert (call.state, call.origin) == ({"note": 3}, bound("one"))
    _, call = await turn(hub, agent, "five", thread_id=first.thread_id, fork=Fork(run_id=first.run_id), state={"n": 4})
    assert (call.state, call.origin) == ({"n": 4}, bound("one"))
    assert messages_of(call) == ["one", "re one"]


async def test_the_state_of_a_busy_thread_is_not_changed(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, activation = await begin(hub, agent, "one")
    assert await code_of(hub, thread_id=first.thread_id, state={"k": 1}) is FaultCode.CONFLICT
    assert await code_of(hub, follow_up=first.task_id, state={"k": 1}) is FaultCode.INVALID
    assert await code_of(hub, follow_up=first.task_id, fork=Fork(run_id=first.run_id)) is FaultCode.INVALID
    await finish(hub, activation, first)


async def test_a_fork_of_a_changed_state_has_no_origin(
    hubs: HubFactory,
) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, _ = await turn(hub, agent, "one")
    await hub.update_state(OWNER, StateUpdate(thread_id=first.thread_id, messages=text("said since")))
    checkpoint = await hub.update_state(OWNER, StateUpdate(thread_id=first.thread_id, values={"k": 1}))
    _, call = await turn(hub, agent, "two", fork=Fork(checkpoint=checkpoint, thread_id=first.thread_id))
    assert (call.origin, call.state) == ({}, {"k": 1})
    assert messages_of(call) == ["one", "re one", "said since"]


class Keeping(Scripted):
    """Agent that keeps the state of its threads."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Invocation] = []
        self.refuses = False

    async def update_state(self, call: Invocation, *, removed_ids: Any = (), as_node: str | None = None) -> StateSaved:
        if self.refuses:
            raise FaultError(FaultCode.INVALID, "No such member")
        self.changes.append(call)
        return StateSaved(checkpoint_id=str(uuid4()), source="update", as_node=as_node, values=members(call.data))


async def test_an_agent_with_a_state_applies_the_changes_itself(hubs: HubFactory) -> None:
    agent = Keeping()
    hub = await hubs.start(RegisteredAgent(AgentInfo(name="a", stateful=True), agent))
    thread_id = str(uuid4())
    agent.refuses = True
    assert await code_of(hub, thread_id=thread_id, state={"k": 1}) is FaultCode.INVALID
    agent.refuses = False
    receipt, call = await turn(hub, agent, "one", thread_id=thread_id, state={"k": 1}, as_node="b")
    assert receipt.thread_id == call.thread_id == thread_id
    assert [change.data for change in agent.changes] == [{"k": 1}]
    head = await head_of(hub, thread_id)
    assert (head.values, head.node) == ({"k": 1}, "b")
