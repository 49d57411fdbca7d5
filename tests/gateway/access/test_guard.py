"""The guard: every call is checked, and only permitted calls reach the hub."""

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pytest

from babelgate.canonical import Answers, FaultCode, FaultError, Principal, Submission, TaskFilter, TaskState, Webhook
from babelgate.canonical.principal import Operation
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.access.operations import OPERATION_OF, Operations, Part
from babelgate.gateway.access.policy import AllowAll, Policy
from babelgate.gateway.agents.registry import agent_uuid
from babelgate.gateway.hub import GatewayHub
from tests.gateway.access.test_operations import PORT, methods_of
from tests.gateway.hubs import Echo, HubFactory, Scripted, begin, ends, refused, registered, submit, submit_to_end, text
from tests.submissions import make

ALICE = Principal(subject="key:alice", owner="alice")
METHODS: list[Any] = [(part, name) for part, protocol in PORT.items() for name in methods_of(protocol)]
WITHOUT_OWNER = {"agents", "agent", "introspectable_agent", "find_schema_error", "fetch", "check_submit"}
"""Methods of the hub that concern the data of no owner."""


class Anything:
    """Hub and every object in it: each attribute and each result is the object itself. The first arguments of calls are
    recorded."""

    def __init__(self) -> None:
        self.first_arguments: list[object] = []

    def has_grantee(self, *_: object) -> bool:
        return False

    def __getattr__(self, name: str) -> "Anything":
        return self

    def __call__(self, *args: object, **named: object) -> "Anything":
        self.first_arguments += args[:1]
        return self

    def __await__(self) -> Generator[None, None, "Anything"]:
        return self
        yield

    def __getitem__(self, key: object) -> "Anything":
        return self

    def __iter__(self) -> Iterator["Anything"]:
        yield self


@dataclass
class Recorder:
    """Policy that records each check, and denies some operations on some agents."""

    denied: frozenset[Operation] = frozenset()
    agents: frozenset[str] | None = None
    """Names of the agents to which the denial applies; None means all."""
    is_by_agent: bool = False
    checks: list[tuple[Principal, Operation, str, str]] = field(
        default_factory=list[tuple[Principal, Operation, str, str]]
    )

    def has_rules_by_agent(self, principal: Principal, operation: Operation, protocol: str) -> bool:
        return self.is_by_agent

    def check(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> None:
        self.checks.append((principal, operation, agent, protocol))
        if operation in self.denied and (self.agents is None or agent in self.agents):
            raise FaultError(FaultCode.FORBIDDEN, f"The policy denies {operation}.")


STRUCTS: Final[Mapping[Any, Any]] = {Submission: Submission(agent="echo"), Answers: Answers(task_id="task")}
"""Real arguments by type, for the types whose values the guard copies and changes. `Anything` is passed for all
others."""


async def call(hub: GuardedHub, part: Part, name: str, anything: Anything) -> object:
    """Call a method with objects that pass for any argument."""
    method: Callable[..., Any] = getattr(hub if part == "hub" else getattr(hub, part), name)
    _, _, *parameters = methods_of(PORT[part])[name].parameters.values()
    required = [parameter for parameter in parameters if parameter.default is inspect.Parameter.empty]
    args = [
        STRUCTS.get(parameter.annotation, anything)
        for parameter in required
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    named = {parameter.name: anything for parameter in required if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    result = method(ALICE, *args, **named)
    return await result if inspect.isawaitable(result) else result


def guard(anything: Anything, policy: Policy, operations: Operations = OPERATION_OF) -> GuardedHub:
    return GuardedHub(cast("GatewayHub", anything), policy, "acp", operations)


@pytest.mark.parametrize(("part", "name"), METHODS)
async def test_a_checked_call_reaches_the_hub_with_the_owner(part: Part, name: str) -> None:
    anything, policy = Anything(), Recorder()
    await call(guard(anything, policy), part, name, anything)
    principal, operation, _, protocol = policy.checks[0]
    assert (principal, operation, protocol) == (ALICE, OPERATION_OF[part][name], "acp")
    if part != "hub" or name not in WITHOUT_OWNER:
        assert "alice" in anything.first_arguments


@pytest.mark.parametrize(("part", "name"), METHODS)
async def test_a_method_that_is_not_in_the_table_is_refused(part: Part, name: str) -> None:
    anything = Anything()
    operations = dict(OPERATION_OF)
    operations[part] = {each: operation for each, operation in OPERATION_OF[part].items() if each != name}
    with refused(FaultCode.FORBIDDEN, f"{part}.{name}"):
        await call(guard(anything, AllowAll(), operations), part, name, anything)


@pytest.mark.parametrize(("part", "name"), METHODS)
async def test_a_denied_call_is_refused(part: Part, name: str) -> None:
    anything = Anything()
    operation = OPERATION_OF[part][name]
    hub = guard(anything, Recorder(frozenset({operation})))
    if name == "agents":
        assert await call(hub, part, name, anything) == []
    else:
        with refused(FaultCode.NOT_FOUND if operation == "discover" else FaultCode.FORBIDDEN):
            await call(hub, part, name, anything)


@pytest.mark.parametrize("denied", ["run", "answer", "cancel", "write", "delete", "webhook"])
async def test_a_denied_change_does_not_reach_the_hub(denied: Operation) -> None:
    anything = Anything()
    hub = guard(anything, Recorder(frozenset({denied})))
    for part, name in METHODS:
        if OPERATION_OF[part][name] == denied:
            with refused(FaultCode.FORBIDDEN):
                await call(hub, part, name, anything)
    assert "alice" not in anything.first_arguments


async def test_a_hidden_agent_looks_unknown(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()), registered("b", Echo()))
    port = GuardedHub(hub, Recorder(frozenset({"discover"}), frozenset({"a"})), "acp")
    assert [info.name for info in port.agents(ALICE)] == ["b"]
    assert port.agent(ALICE, "b").name == "b"
    for look in (port.agent, port.introspectable_agent):
        with refused(FaultCode.NOT_FOUND) as hidden:
            look(ALICE, "a")
        with refused(FaultCode.NOT_FOUND) as unknown:
            look(ALICE, "c")
        assert str(hidden.value) == str(unknown.value).replace("'c'", "'a'")


async def test_the_policy_gets_the_agent_of_a_task_or_run(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    receipt, going = await begin(hub, agent)
    task_id, run_id = receipt.task_id, receipt.run_id
    policy = Recorder(frozenset({"answer", "cancel", "delete", "write", "webhook"}), frozenset({"a"}), True)
    port = GuardedHub(hub, policy, "acp")
    webhook = Webhook(webhook_id="w", task_id=task_id, dialect="a2a-1.0", url="http://127.0.0.1:9/")
    for refusal in (
        port.answer(ALICE, make(Answers, task_id=task_id)),
        port.cancel(ALICE, task_id),
        port.cancel_run(ALICE, run_id),
        port.change_run(ALICE, run_id, {}),
        port.remove_run(ALICE, run_id),
        port.set_webhook(ALICE, webhook),
        port.delete_webhook(ALICE, task_id, "w"),
        port.reads.webhooks(ALICE, task_id),
    ):
        with refused(FaultCode.FORBIDDEN):
            await refusal
    going.end()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    assert {agent for _, _, agent, _ in policy.checks} == {"a"}


async def test_rules_by_agent_apply_to_what_is_read(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()), registered("b", Echo()))
    receipts = {name: await submit_to_end(hub, name) for name in ("a", "b")}
    reads = GuardedHub(hub, Recorder(frozenset({"read"}), frozenset({"a"}), True), "acp").reads
    for read in (reads.task, reads.chain):
        assert await read(ALICE, receipts["b"].task_id)
        with refused(FaultCode.FORBIDDEN):
            await read(ALICE, receipts["a"].task_id)
    run = await reads.run(ALICE, receipts["b"].run_id)
    assert (await reads.run_input(ALICE, run)).run_id == run.run_id
    with refused(FaultCode.FORBIDDEN):
        await reads.run(ALICE, receipts["a"].run_id)
    assert (await reads.tasks(ALICE, TaskFilter(agent="b"), limit=5)).total == 1
    with refused(FaultCode.FORBIDDEN):
        await reads.tasks(ALICE, TaskFilter(agent="a"), limit=5)


async def test_an_agents_uuid_does_not_evade_its_rules(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    port = GuardedHub(hub, Recorder(frozenset({"run"}), frozenset({"a"})), "acp")
    for name in ("a", str(agent_uuid("a"))):
        with refused(FaultCode.FORBIDDEN):
            await port.submit(ALICE, make(Submission, agent=name, messages=text("hi")))


async def test_other_operations_of_a_submission_are_checked(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    port = GuardedHub(hub, Recorder(frozenset({"webhook", "delete"})), "acp")
    webhook = Webhook(webhook_id="w", dialect="a2a-1.0", url="http://127.0.0.1:9/")
    with refused(FaultCode.FORBIDDEN):
        await port.submit(ALICE, make(Submission, agent="a", messages=text("hi"), webhook=webhook))
    receipt = await submit(hub, "a")
    with refused(FaultCode.FORBIDDEN):
        await port.answer(ALICE, make(Answers, task_id=receipt.task_id, webhook=webhook))
    with refused(FaultCode.FORBIDDEN):
        await port.cancel_run(ALICE, receipt.run_id, rollback=True)
    (await agent.called()).end()
    await ends(hub, receipt)


async def test_a_denied_log_is_refused_before_its_first_record(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    receipt = await submit_to_end(hub, "a")
    reads = GuardedHub(hub, Recorder(frozenset({"read"})), "acp").reads
    read: list[Callable[..., AsyncGenerator[Any]]] = [reads.log, reads.follow]
    for each in read:
        with refused(FaultCode.FORBIDDEN):
            each(ALICE, receipt.thread_id)
