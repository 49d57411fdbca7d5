"""Budgets: what they count, refuse and pause, in a hub on a real database."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from babelgate.canonical import Answers, Event, FaultCode, FaultError, Invocation, Receipt, RunStatus, TaskState
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, RunEnded
from babelgate.canonical.message import TextPart
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs.budgets import BudgetPeriod
from babelgate.gateway.settings.limits import BudgetSettings
from babelgate.gateway.settings.model import AgentSettings
from babelgate.gateway.storage.spend import Spend, list_spend
from tests.gateway.hubs import OWNER, HubFactory, ends, reaches, registered, submit, within

NOON = 1_796_040_000_000_000
"""2026-11-30, 12:00 UTC, in microseconds."""
DAY = 86_400_000_000
PRICE = {"input": 3, "output": 15, "currency": "EUR"}


class Costly:
    """Agent that reports usage, and collects its calls."""

    def __init__(self, usage: dict[str, Any] | None = None, *messages: dict[str, Any]) -> None:
        self.usage = usage
        self.messages = messages
        self.calls: list[Invocation] = []

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        self.calls.append(call)
        for usage in self.messages or ({},):
            yield MessageStarted()
            yield PartAdded(part=TextPart(text=f"{call.text} {len(call.history)}"))
            yield MessageEnded(usage=usage)
        if self.usage is not None:
            yield RunEnded(usage=self.usage)


class Now:
    """Clock that the test sets."""

    def __init__(self) -> None:
        self.time = NOON

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.time)


def configured(agent: Costly, price: dict[str, Any] | None = None) -> Any:
    settings = AgentSettings.model_validate({"python": "a:b", "price": PRICE | (price or {})})
    return replace(registered("planner", agent, remembers=False), settings=settings)


def budgets(**values: dict[str, Any]) -> dict[str, BudgetSettings]:
    return {name: BudgetSettings.model_validate(each) for name, each in values.items()}


async def spend(hub: GatewayHub, prefix: str, period: str = "") -> Spend:
    (row,) = await hub.journal.query(list_spend, [(prefix, period)], 10)
    return row


async def run_to_end(hub: GatewayHub, **more: Any) -> Receipt:
    receipt = await submit(hub, "planner", **more)
    await ends(hub, receipt)
    return receipt


async def refusal(hub: GatewayHub) -> FaultError:
    with pytest.raises(FaultError) as raised:
        await submit(hub, "planner")
    return raised.value


MILLION_IN = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
"""Usage that costs 3 EUR."""


async def test_a_budget_of_a_month_refuses_and_begins_again(hubs: HubFactory) -> None:
    now = Now()
    month = budgets(month={"per": "agent", "agent": "planner", "cost": 6, "currency": "EUR", "every": "month"})
    hub = await hubs.start(configured(Costly(MILLION_IN)), budgets=month, clock=now.clock)
    for _ in range(2):
        await run_to_end(hub)
    fault = (await refusal(hub)).fault
    assert (fault.code, fault.message) == (
        FaultCode.LIMITED,
        "The budget month of planner is used up (6.00 of 6.00 EUR); its next period begins on 2026-12-01.",
    )
    assert fault.details == {
        "limit": "budget",
        "used": "6.00",
        "allowed": "6.00 EUR",
        "retry_after": 43_200,
        "resets_at": "2026-12-01T00:00:00.000000Z",
    }
    used = (await spend(hub, "month|planner", "2026-11")).used
    assert (used.input, used.output, used.cost, used.runs) == (2_000_000, 0, 6_000_000, 2)
    now.time += DAY
    await run_to_end(hub)
    assert (await spend(hub, "month|planner", "2026-12")).used.cost == 3_000_000


@pytest.mark.parametrize(
    ("agent", "price", "used"),
    [
        # The usage of messages is part of that of the run, which may be missing.
        (Costly(None, {"input_tokens": 600, "output_tokens": 100}, {"input_tokens": 400}), {}, (1000, 100, 4500)),
        (Costly({"input_tokens": 1500, "output_tokens": 100}, {"input_tokens": 400}), {}, (1500, 100, 6000)),
        (Costly({"total_tokens": 50}), {"run": 0.01}, (50, 0, 10_000)),
        (
            Costly(
                {
                    "gpt": {"input_tokens": 10},
                    "mini": {"input_tokens": 20},
                }
            ),
            {},
            (30, 0, 90),
        ),
        (Costly({"input_tokens": 10, "cost": 0.5}), {}, (10, 0, 500_000)),
        (Costly(), {"run": 0.25}, (0, 0, 250_000)),
    ],
)
async def test_usage_is_charged_once(
    hubs: HubFactory, agent: Costly, price: dict[str, Any], used: tuple[int, int, int]
) -> None:
    hub = await hubs.start(
        configured(agent, price), budgets=budgets(all={"per": "owner", "cost": 9, "currency": "EUR"})
    )
    await run_to_end(hub)
    row = await spend(hub, f"all|{OWNER}")
    assert (row.used.input, row.used.output, row.used.cost, row.used.runs) == (*used, 1)
    assert await hub.journal.query(list_spend, [("run ", OWNER)], 10) == []


async def test_a_budget_of_runs_is_exact(hubs: HubFactory) -> None:
    hub = await hubs.start(configured(Costly()), budgets=budgets(few={"per": "owner", "runs": 2}))
    receipts = [await submit(hub, "planner") for _ in range(2)]
    message = (await refusal(hub)).fault.message
    assert message == (
        f"The budget few of {OWNER} is used up (2 of 2 runs); it has no next period, so an operator has to raise it."
    )
    for receipt in receipts:
        await ends(hub, receipt)


async def test_runs_without_usage_are_refused_with_that_setting(hubs: HubFactory) -> None:
    hub = await hubs.start(
        configured(Costly(), {"unknown": "refuse"}), budgets=budgets(all={"per": "owner", "tokens": 9})
    )
    await run_to_end(hub)
    assert "1 earlier runs reported no usage" in (await refusal(hub)).fault.message


async def paused(hub: GatewayHub, **more: Any) -> tuple[Receipt, str]:
    """Submit a run that a budget pauses, and return it with the id of its question."""
    receipt = await submit(hub, "planner", **more)
    task = await within(reaches(hub, receipt, TaskState.INPUT_REQUIRED), "the pause")
    (question,) = await hub.reads.open_interrupts(OWNER, task.task_id)
    assert question.ask == "approval"
    return receipt, question.interrupt_id


async def test_an_approved_run_executes_the_paused_input(hubs: HubFactory) -> None:
    agent = Costly(MILLION_IN)
    hub = await hubs.start(
        configured(agent),
        budgets=budgets(talk={"per": "thread", "tokens": 5, "on_limit": "pause", "raised_by": "owner"}),
    )
    first = await run_to_end(hub, words="one")
    for words, messages in (("two", 2), ("three", 4)):
        receipt, question = await paused(hub, words=words, thread_id=first.thread_id)
        assert len(agent.calls) == messages / 2
        await hub.answer(OWNER, Answers(task_id=receipt.task_id, values={question: True}))
        assert (await ends(hub, receipt)).state is TaskState.COMPLETED
        call = agent.calls[-1]
        assert (call.text, call.cause, call.answers) == (words, "input", ())
        assert len(call.history) == messages, [message.text for message in call.history]
    assert (await spend(hub, "talk|")).used.runs == 3


@pytest.mark.parametrize(
    ("answers", "may_raise", "code"),
    [
        ({"values": {}, "action": "decline"}, True, None),
        ({"values": {}}, True, None),
        ({"values": {}}, False, FaultCode.FORBIDDEN),
    ],
)
async def test_only_operators_answer_and_a_refusal_ends_the_run(
    hubs: HubFactory, answers: dict[str, Any], may_raise: bool, code: FaultCode | None
) -> None:
    agent = Costly(MILLION_IN)
    hub = await hubs.start(configured(agent), budgets=budgets(talk={"per": "owner", "tokens": 5, "on_limit": "pause"}))
    await run_to_end(hub)
    receipt, question = await paused(hub)
    members: dict[str, Any] = answers | {"values": {question: False}}
    answer = Answers(task_id=receipt.task_id, may_raise=may_raise, **members)
    if code is not None:
        with pytest.raises(FaultError, match="Only a caller with the right admin") as raised:
            await hub.answer(OWNER, answer)
        assert raised.value.fault.code is code
        return
    refused = await hub.answer(OWNER, answer)
    task = await ends(hub, receipt)
    assert task.state is TaskState.FAILED and task.fault is not None and task.fault.code is FaultCode.LIMITED
    assert (await hub.reads.run(OWNER, refused.run_id)).status is RunStatus.ERROR
    assert len(agent.calls) == 1


@pytest.mark.parametrize(
    ("every", "name", "resets"),
    [
        (None, "", None),
        ("day", "2026-11-30", "2026-12-01T00:00:00+00:00"),
        ("month", "2026-11", "2026-12-01T00:00:00+00:00"),
        (7200.0, "2026-11-30T12:00:00.000+00:00", "2026-11-30T14:00:00+00:00"),
    ],
)
def test_periods_are_in_utc(every: Any, name: str, resets: str | None) -> None:
    period = BudgetPeriod.of(every, NOON)
    assert (period.name, period.resets_at and period.resets_at.isoformat()) == (name, resets)


async def test_a_paused_run_continues_once_its_budget_has_room(hubs: HubFactory) -> None:
    now, agent = Now(), Costly(MILLION_IN)
    day = budgets(today={"per": "owner", "tokens": 5, "every": "day", "on_limit": "pause"})
    hub = await hubs.start(configured(agent), budgets=day, clock=now.clock)
    await run_to_end(hub)
    receipt, _ = await paused(hub)
    assert await hub.held_runs.check() == 0
    now.time += DAY
    hub.held_runs.wake()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    assert (await spend(hub, f"today|{OWNER}", "2026-12-01")).used.input == 1_000_000


async def test_a_paused_run_survives_a_restart(hubs: HubFactory) -> None:
    agent = Costly(MILLION_IN)
    talk = budgets(talk={"per": "owner", "tokens": 5, "on_limit": "pause"})
    hub = await hubs.start(configured(agent), budgets=talk)
    await run_to_end(hub)
    receipt, question = await paused(hub, words="later")
    await hubs.stop(hub)
    hub = await hubs.start(configured(agent), budgets=talk)
    await hub.answer(OWNER, Answers(task_id=receipt.task_id, values={question: True}, may_raise=True))
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    assert [call.text for call in agent.calls] == ["hi", "later"]
