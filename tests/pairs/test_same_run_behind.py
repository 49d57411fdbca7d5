"""One run of each kind of agent behind the gateway, read in two protocols.

`test_same_run` has all pairs of protocols with agents in the gateway's process. These tests have one pair for each kind
of agent, and the pairs of all kinds together have each protocol on both sides.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from babelgate.canonical import Feature
from tests.pairs.caller import Caller, File, TaskView
from tests.pairs.house import HOUSES, House, needs
from tests.pairs.test_same_run import SIDES, begun, frames_of, other

__all__ = ("other",)

pytestmark = pytest.mark.asyncio(loop_scope="module")

KINDS: Final = (
    *("graph", "a2a-1.0", "a2a-sdk-grpc", "acp", "aief", "langgraph", "agent-protocol", "openai", "anthropic"),
    *("ag-ui", "agent-client", "mcp", "vercel-ui"),
)
STARTING: Final[Sequence[type[Caller]]] = [each[-1] for each in SIDES.values()]


def each_kind(agent: str, turn: int) -> pytest.MarkDecorator:
    """Return a mark that runs a test once for each kind of agent. One caller starts the run, and another one, of a
    different protocol, joins it. `turn` selects the callers: each test has other pairs."""
    cells: list[object] = []
    count = len(STARTING)
    for at, kind in enumerate(name for name in KINDS if name in HOUSES and HOUSES[name].has(agent)):
        starts = STARTING[(at + turn) % count]
        joins = STARTING[(at + turn + 1 + (at + turn) // count) % count]
        cells.append(pytest.param(kind, (starts, agent), (joins, agent), id=f"{kind}-{starts.name}-then-{joins.name}"))
    return pytest.mark.parametrize(("house", "caller", "other"), cells, indirect=True)


@each_kind("echo", 0)
async def test_a_run_is_read_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    view = await caller.run_to_end("hello")
    there = await other.look(view.task_id)
    assert there == view == TaskView("completed", text="hello")
    assert (there.task_id, there.context_id) == (view.task_id, view.context_id)


@each_kind("stream", 3)
async def test_two_protocols_follow_one_live_run(house: House, caller: Caller, other: Caller) -> None:
    needs(house, other, Feature.REATTACH)
    whole = TaskView("completed", text="one two three")
    async with begun(house, caller, "one two three") as run:
        async with other.attach(run.task_id) as late:
            if house.live:
                for reader in (*run.feeds, late):
                    assert (await reader.until_text("one")).state == "working"
            for _ in range(2):
                house.release()
            assert await late.end() == whole
        assert await run.end() == whole
    assert await frames_of(other, run.task_id) == await frames_of(other, run.task_id)
    for feed in run.feeds if caller.carries[Feature.REATTACH].level != "dropped" else ():
        assert await frames_of(caller, run.task_id) == feed.frames


@each_kind("ask", 6)
async def test_a_question_is_answered_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    for each in (caller, other):
        needs(house, each, Feature.QUESTION)
    async with begun(house, caller, "go") as run:
        await run.end()
    paused = await other.look(run.task_id)
    assert paused == TaskView("input_required", questions=(other.expected_question(house.kind.question),))
    assert await other.answer(paused, "Ada") == TaskView("completed", text="Hello, Ada.")
    assert await caller.look(run.task_id) == TaskView("completed", text="Hello, Ada.")


@each_kind("slow", 9)
async def test_a_run_is_cancelled_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    needs(house, other, Feature.CANCEL)
    async with begun(house, caller, "go") as run:
        if house.live and run.feeds:
            await run.feeds[0].until_text("first")
        else:
            await house.await_start()
        await other.cancel(run.task_id)
        assert (await run.end()).state == "cancelled"
    await house.await_cancel(await house.ended(run.task_id))
    assert (await other.look(run.task_id)).state == "cancelled"


@each_kind("files", 2)
async def test_a_file_is_read_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    for each in (caller, other):
        for feature in (Feature.FILE_BYTES, Feature.ARTIFACT):
            needs(house, each, feature)
    file = File("every byte.bin", bytes(range(256)))
    view = await caller.run_to_end("Look.", file)
    assert file.content in view.files.values()
    there = await other.look(view.task_id)
    assert there.files == (view if Feature.ARTIFACT in house.kind.side.turns else other.later(view)).files
