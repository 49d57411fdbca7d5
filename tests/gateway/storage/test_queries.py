"""Tests of queries on the rows: lists, pages, and the separation of owners."""

import base64
import json
from typing import Any, Final

import pytest

from babelgate.canonical import FaultCode, FaultError, TaskFilter, TaskState
from babelgate.gateway.clock import Clock
from tests.gateway.hubs import OWNER, Echo, HubFactory, Scripted, ends, reaches, registered, submit

EACH_DATABASE: Final = True


class Ticking:
    """Clock that advances by a second with every read."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000_000

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


async def test_tasks_are_listed_by_newest_change_in_pages(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent), registered("echo", Echo()), clock=Clock(Ticking()))
    waiting = await submit(hub, "a")
    (await agent.called()).ask("name").end()
    await reaches(hub, waiting, TaskState.INPUT_REQUIRED)
    done = [await submit(hub, "echo", str(number)) for number in range(5)]
    for receipt in done:
        await ends(hub, receipt)
    foreign = await submit(hub, "echo", owner="bob")
    await ends(hub, foreign, owner="bob")
    expected = [receipt.task_id for receipt in (*reversed(done), waiting)]
    page = await hub.reads.tasks(OWNER, TaskFilter(), limit=100)
    assert [task.task_id async for task in page.tasks] == expected
    assert (page.next_cursor, page.total) == (None, 6)
    listed: list[str] = []
    cursor: str | None = None
    while True:
        page = await hub.reads.tasks(OWNER, TaskFilter(), limit=4, cursor=cursor)
        listed += [task.task_id async for task in page.tasks]
        assert page.total == 6
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == expected


async def test_an_exactly_full_page_can_be_the_last(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    for _ in range(2):
        await ends(hub, await submit(hub, "echo"))
    page = await hub.reads.tasks(OWNER, TaskFilter(), limit=2)
    assert page.tasks.count == 2 and page.next_cursor is None


async def test_tasks_are_filtered_by_agent_thread_state_and_time(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent), registered("echo", Echo()), clock=Clock(Ticking()))
    one = await submit(hub, "echo")
    await ends(hub, one)
    two = await submit(hub, "echo", thread_id=one.thread_id)
    ended = await ends(hub, two)
    three = await submit(hub, "a")
    activation = await agent.called()

    async def found(**where: Any) -> set[str]:
        page = await hub.reads.tasks(OWNER, TaskFilter(**where), limit=10)
        assert page.total == page.tasks.count
        return {task.task_id async for task in page.tasks}

    assert await found(agent="echo") == {one.task_id, two.task_id}
    assert await found(thread_id=one.thread_id) == {one.task_id, two.task_id}
    assert await found(states=frozenset({TaskState.WORKING})) == {three.task_id}
    assert await found(states=frozenset()) == set()
    assert await found(changed_after=ended.changed_at) == {two.task_id, three.task_id}
    assert await found(changed_after=ended.changed_at + 1) == {three.task_id}
    assert await found(agent="echo", states=frozenset({TaskState.WORKING})) == set()
    activation.end()
    await ends(hub, three)


def cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "not base64!",
        "é",
        "AAAA",
        cursor(5),
        cursor(None),
        cursor([]),
        cursor([1]),
        cursor([1, 2]),
        cursor(["1", "a"]),
        cursor([True, "a"]),
        cursor([1, "a", 2]),
        cursor([10**30, "a"]),
        cursor([1, "\ud800"]),
        cursor({"a": 1, "b": 2}),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
)
async def test_a_foreign_cursor_is_refused_with_a_message(hubs: HubFactory, text: str) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    with pytest.raises(FaultError) as error:
        await hub.reads.tasks(OWNER, TaskFilter(), limit=1, cursor=text)
    assert error.value.fault.code is FaultCode.INVALID


async def test_broken_agents_are_listed_and_unknown_ones_not_found(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()), registered("gone", None, broken="no module"))
    assert [info.name for info in hub.agents()] == ["echo", "gone"]
    assert hub.agent("echo").name == "echo"
    with pytest.raises(FaultError) as error:
        hub.agent("other")
    assert error.value.fault.code is FaultCode.NOT_FOUND
