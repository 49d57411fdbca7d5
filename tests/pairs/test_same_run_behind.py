"""One run of an agent behind the gateway, started by a caller of one protocol and read by a caller of another.

`test_same_run` has each pair of protocols, in front of agents in the gateway's process. Here each kind of agents meets
a few pairs. They rotate through the callers, so that over the kinds and the tests all protocols take part.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import pytest

from babelgate.canonical import Feature
from docs.pairing import SERVERS
from tests.pairs.caller import BOUND, Caller, Feed, File, TaskView
from tests.pairs.house import HOUSES, WITH_GRPC, House
from tests.pairs.scenario import lost

pytestmark = pytest.mark.asyncio(loop_scope="module")

Test = TypeVar("Test", bound=Callable[..., Any])

KINDS: Final = (
    *("agent-client", "mcp", "anthropic", "a2a-sdk-grpc", "a2a-0.3", "a2a-1.0", "acp", "aief"),
    *("langgraph", "agent-protocol", "openai", "ag-ui"),
)
"""Houses whose agents are behind a URL or a connection, without those that differ only by the Babelgate extension."""
PAIRS: Final = 2
"""Number of pairs of callers that each test has for each kind."""


def carrying(*features: Feature) -> list[type[Caller]]:
    """Return the callers whose protocols carry all of these features."""
    return [
        caller
        for caller in WITH_GRPC
        if all(SERVERS[caller.speaks].carries[feature].level != "dropped" for feature in features)
    ]


def rotating(
    agent: str, turn: int, *features: Feature, starts: tuple[Feature, ...] = (), reads: tuple[Feature, ...] = ()
) -> Callable[[Test], Test]:
    """Return a mark that runs a test with each kind of agents and `PAIRS` pairs of callers.

    Both callers carry `features`, the first one also `starts`, and the second one also `reads`. A kind whose own
    protocol loses one of `features` is skipped with the reason of the matrix. `turn` is the first position.
    """
    first, second = carrying(*features, *starts), carrying(*features, *reads)
    cells: list[Any] = []
    for at, name in enumerate(each for each in KINDS if HOUSES[each].has(agent)):
        for each in range(PAIRS):
            position = turn + at * PAIRS + each
            begins, joins = first[position % len(first)], second[(position * 3 + 1) % len(second)]
            if begins.speaks == joins.speaks:
                joins = second[(position * 3 + 3) % len(second)]
            marks = skips(name, joins, features)
            cells.append(
                pytest.param(
                    name, (begins, agent), (joins, agent), id=f"{name}-{begins.name}-then-{joins.name}", marks=marks
                )
            )
    return pytest.mark.parametrize(("house", "caller", "other"), cells, indirect=True)


def skips(name: str, caller: type[Caller], features: tuple[Feature, ...]) -> list[pytest.MarkDecorator]:
    without = lost(HOUSES[name].side, caller, features)
    return [] if without is None else [pytest.mark.skip(reason=without.why)]


async def begun(house: House, feed: Feed) -> str:
    """Wait until the agent `slow` waits in the middle of its answer, and return the text that its readers see."""
    first = "first" if house.live else ""
    await feed.until(lambda view: (view.state, view.text) == ("working", first))
    if not house.live:
        async with asyncio.timeout(BOUND):
            await house.await_start()
    return first


def stored(house: House, caller: Caller, view: TaskView) -> TaskView:
    """Return the state of a cancelled run that a later `look` shows. A protocol that shows the agent's own state lacks
    an unfinished answer."""
    return replace(view, text="") if house.kind.stateful and caller.shows_state else view


@rotating("echo", 0, Feature.TEXT)
async def test_a_run_behind_is_read_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    view = await caller.run_to_end("hello")
    there = await other.look(view.task_id)
    assert there == view == TaskView("completed", text="hello")
    assert (there.task_id, there.context_id) == (view.task_id, view.context_id)


@rotating("files", 3, Feature.FILE_BYTES, Feature.ARTIFACT)
async def test_a_file_of_an_agent_behind_is_read_elsewhere(house: House, caller: Caller, other: Caller) -> None:
    file = File("every byte.bin", bytes(range(256)))
    view = await caller.run_to_end(file, "text")
    assert view == TaskView("completed", files={file.name: file.content, "report.txt": b"text"})
    assert await other.look(view.task_id) == (view if Feature.ARTIFACT in house.kind.side.turns else other.later(view))


@rotating("ask", 6, Feature.QUESTION)
async def test_a_question_behind_is_answered_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    begun_there = await caller.run_to_end("go")
    paused = await other.look(begun_there.task_id)
    question = house.kind.question
    assert paused == TaskView("input_required", questions=(other.expected_question(question),))
    assert await other.answer(paused, "Ada") == TaskView("completed", text="Hello, Ada.")
    assert await caller.look(begun_there.task_id) == TaskView("completed", text="Hello, Ada.")


@rotating("slow", 9, Feature.CANCEL, Feature.STREAM, starts=(Feature.REATTACH,), reads=(Feature.REATTACH,))
async def test_a_run_behind_is_cancelled_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    async with caller.stream("go") as feed, other.attach(feed.ids.task) as there:
        first = await begun(house, feed)
        await begun(house, there)
        await other.cancel(feed.ids.task)
        assert await feed.end() == await there.end() == TaskView("cancelled", text=first)
    await house.await_cancel(await house.ended(feed.ids.task))
    for reader in (caller, other):
        assert await reader.look(feed.ids.task) == stored(house, reader, feed.task)


@rotating("slow", 12, Feature.REATTACH, Feature.STREAM)
async def test_streams_of_a_run_behind_resume_in_two_protocols(house: House, caller: Caller, other: Caller) -> None:
    async with caller.stream("go") as feed:
        await begun(house, feed)
    async with other.replay(feed.ids.task) as late:
        await begun(house, late)
    async with caller.reconnect(feed) as back, other.reconnect(late) as again:
        house.release()
        assert await back.end() == await again.end() == TaskView("completed", text="first last")
    for reader, before, after in ((caller, feed, back), (other, late, again)):
        async with reader.replay(feed.ids.task) as whole:
            await whole.end()
        assert before.frames + after.frames == whole.frames


async def test_every_caller_starts_or_reads_a_run_behind() -> None:
    tests = [value for name, value in globals().items() if name.startswith("test_") and hasattr(value, "pytestmark")]
    cells = [cell.values for test in tests for mark in test.pytestmark if mark.args for cell in mark.args[1]]
    assert {caller for _, *pair in cells for caller, _ in pair} == set(WITH_GRPC)
