"""Several gateways on one database: a question can be answered on any of them."""

from collections.abc import Generator
from typing import Any

import pytest

from babelgate.canonical import Ask, Receipt, TaskState
from babelgate.canonical.fold import Fold
from babelgate.gateway.agents.python.agent import InProcess, wrap
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.cluster.nodes import Nodes, ended, reached
from tests.gateway.hubs import OWNER, answer, eventually, log, submit, within


def two_questions(text: str) -> Generator[Ask | str, Any]:
    first = yield Ask("First?")
    second = yield Ask("Second?")
    yield f"{first} and {second}"


def agent() -> RegisteredAgent:
    return RegisteredAgent(*wrap(two_questions, "ask"))


def ignore_commits(remotes: object) -> None:
    """Ignore the commits of other nodes."""


def parked(hub: GatewayHub) -> int:
    agent = hub.registry.get("ask").agent
    assert isinstance(agent, InProcess)
    return len(agent.paused)


async def last_text(hub: GatewayHub, receipt: Receipt) -> str:
    fold = Fold(receipt.thread_id, OWNER, await log(hub, receipt, "task"))
    return fold.messages()[-1].text


async def test_a_question_is_answered_on_another_node(cluster: Nodes) -> None:
    a = await cluster.start("a", agent())
    b = await cluster.start("b", agent())
    receipt = await submit(a, "ask")
    await reached(a, receipt, TaskState.INPUT_REQUIRED)
    await answer(b, receipt.task_id, "one")
    await reached(b, receipt, TaskState.INPUT_REQUIRED)
    await answer(b, receipt.task_id, "two")
    assert (await ended(b, receipt)).state is TaskState.COMPLETED
    assert await last_text(b, receipt) == "one and two"


async def test_a_stale_generator_is_not_resumed(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    a = await cluster.start("a", agent())
    b = await cluster.start("b", agent())
    assert a.cluster is not None
    monkeypatch.setattr(a.cluster, "handle_remotes", ignore_commits)  # it receives no notice in time
    cluster.look_no_more(a)
    receipt = await submit(a, "ask")
    await reached(a, receipt, TaskState.INPUT_REQUIRED)
    await answer(b, receipt.task_id, "one")
    await reached(b, receipt, TaskState.INPUT_REQUIRED)
    assert parked(a) == 1
    await answer(a, receipt.task_id, "two")
    assert (await ended(a, receipt)).state is TaskState.COMPLETED
    assert await last_text(a, receipt) == "one and two"


async def test_a_generator_answered_on_another_node_is_closed(cluster: Nodes) -> None:
    a = await cluster.start("a", agent())
    b = await cluster.start("b", agent())
    receipt = await submit(a, "ask")
    await reached(a, receipt, TaskState.INPUT_REQUIRED)
    cluster.look_no_more(a, b)
    await within(eventually(lambda: parked(a) == 1), "a generator that waits")
    await within(b.cancel(OWNER, receipt.task_id))
    await within(eventually(lambda: parked(a) == 0), "the end of the generator")
