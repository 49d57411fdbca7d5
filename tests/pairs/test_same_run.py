"""One run, read in several protocols and at several times.

By the gateway's ids it is the same run everywhere, and its stream has the same bytes at each reading.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from babelgate.canonical import Feature, TaskState
from tests.pairs.a2a import A2A, Grpc10, JsonRpc03, JsonRpc10, Rest03, Rest10
from tests.pairs.acp import Acp
from tests.pairs.ag_ui import AgUi
from tests.pairs.agent_client import AgentClient
from tests.pairs.aief import Aief
from tests.pairs.anthropic import Anthropic
from tests.pairs.caller import Caller, Content, Data, Feed, Frame, Question, TaskView
from tests.pairs.cast import APPROVAL
from tests.pairs.house import CALLERS, OWNER, House, needs
from tests.pairs.langgraph import AgentProtocol, LangGraph
from tests.pairs.mcp import Mcp
from tests.pairs.openai import Chat, Responses
from tests.pairs.runtime import Runtime
from tests.pairs.vercel_ui import VercelUi

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize("house", ["python", "cluster"], indirect=True, ids=["", "cluster"]),
]

SIDES: Final[Mapping[str, Sequence[type[Caller]]]] = {
    "acp": (Acp,),
    "a2a": (JsonRpc03, JsonRpc10),
    "aief": (Aief,),
    "langchain": (LangGraph, AgentProtocol),
    "runtime": (Runtime,),
    "openai": (Chat, Responses),
    "mcp": (Mcp,),
    "agent-client": (AgentClient,),
    "vercel-ui": (VercelUi,),
    "ag-ui": (AgUi,),
    "anthropic": (Anthropic,),
}
"""Callers of each protocol, one for each of its dialects. The pairs of a test use the dialects alternately."""


def from_both_sides(agent: str, turn: int) -> pytest.MarkDecorator:
    """Return a mark that runs a test with pairs of callers. One caller starts the run, and the other, of any protocol,
    joins it. `turn` selects the dialects.

    With the values 0 to 3 of `turn`, each dialect is paired with each dialect of the other protocols.
    """
    cells: list[object] = []
    for at, (one, other) in enumerate(itertools.product(SIDES.values(), repeat=2), turn):
        starts, comes = one[at % len(one)], other[at // 2 % len(other)]
        cells.append(pytest.param((starts, agent), (comes, agent), id=f"{starts.name}-then-{comes.name}"))
    return pytest.mark.parametrize(("caller", "other"), cells, indirect=True)


def by_each(agent: str, *callers: type[Caller]) -> pytest.MarkDecorator:
    cells = [pytest.param((caller, agent), id=caller.name) for caller in callers or CALLERS]
    return pytest.mark.parametrize("caller", cells, indirect=True)


@dataclass(frozen=True)
class Begun:
    """A task whose caller is still connected."""

    task_id: str
    feeds: Sequence[Feed]
    """Feed of the task's caller, if the protocol has streams."""
    end: Callable[[], Awaitable[TaskView]]
    """Function that waits until the task stops, and returns what its caller receives."""


@asynccontextmanager
async def begun(house: House, caller: Caller, *contents: Content) -> AsyncGenerator[Begun]:
    if not isinstance(caller, Aief):
        async with caller.stream(*contents) as feed:
            yield Begun(feed.ids.task, [feed], feed.end)
        return
    async with asyncio.TaskGroup() as waiting:
        thread_id = await caller.create(*contents)
        step = waiting.create_task(caller.step())
        await house.started(thread_id)
        yield Begun(await caller.begun(), [], lambda: step)


async def frames_of(caller: Caller, task_id: str, skip: int = 0) -> list[bytes]:
    view = None
    if skip:  # a view that has read what is skipped
        async with caller.replay(task_id) as feed:
            for _ in range(skip):
                await feed.next()
        view = feed.view
    async with caller.replay(task_id, view=view, skip=skip) as feed:
        await feed.end()
    return feed.frames


@from_both_sides("echo", 0)
async def test_a_run_of_one_protocol_is_read_in_another(house: House, caller: Caller, other: Caller) -> None:
    view = await caller.run_to_end("hello")
    there = await other.look(view.task_id)
    assert there == view == TaskView("completed", text="hello")
    assert (there.task_id, there.context_id) == (view.task_id, view.context_id)


@from_both_sides("echo", 1)
async def test_a_run_of_one_protocol_is_replayed_in_another(house: House, caller: Caller, other: Caller) -> None:
    needs(house, other, Feature.REATTACH)
    view = await caller.run_to_end("hello")
    async with other.replay(view.task_id) as replay:
        assert await replay.end() == view
    assert (replay.task.task_id, replay.task.context_id) == (view.task_id, view.context_id)


@from_both_sides("history", 2)
async def test_a_conversation_continues_in_another_protocol(house: House, caller: Caller, other: Caller) -> None:
    first = await caller.run_to_end("one")
    other.context_id = first.context_id
    assert (await other.send("two")).text == "2 before: two"
    assert (await caller.look(first.task_id)).text == "0 before: one"
    caller.context_id = first.context_id
    assert (await caller.send("three")).text == "4 before: three"


@pytest.mark.parametrize(("caller", "other"), [((JsonRpc10, "echo"), (Acp, "echo"))], indirect=True, ids=[""])
async def test_a_context_name_is_visible_in_its_protocol_only(house: House, caller: Caller, other: Caller) -> None:
    caller.context_id = "my own/name"
    async with caller.stream("one") as feed:
        assert (await feed.end()).context_id == "my own/name"
    assert (await other.look(feed.ids.task)).context_id == feed.ids.thread
    assert (await caller.look((await other.send("two")).task_id)).context_id == "my own/name"


@from_both_sides("stream", 3)
async def test_two_protocols_follow_one_live_run(house: House, caller: Caller, other: Caller) -> None:
    needs(house, other, Feature.REATTACH)
    async with begun(house, caller, "one two three") as run:
        for feed in run.feeds:
            await feed.until_text("one")
        async with other.attach(run.task_id) as late, other.replay(run.task_id) as whole:
            readers = (*run.feeds, late, whole)
            for reader in readers:
                assert (await reader.until_text("one")).state == "working"
            house.release()
            for reader in readers:
                assert (await reader.until_text("one two")).state == "working"
            house.release()
            for reader in readers:
                assert await reader.end() == TaskView("completed", text="one two three")
        assert await run.end() == TaskView("completed", text="one two three")


@from_both_sides("ask", 0)
async def test_a_question_of_one_protocol_is_answered_in_another(house: House, caller: Caller, other: Caller) -> None:
    async with begun(house, caller, "go") as run:
        await run.end()
    paused = await other.look(run.task_id)
    assert paused == TaskView("input_required", questions=(Question("What is your name?"),))
    assert await other.answer(paused, "Ada") == TaskView("completed", text="Hello, Ada.")
    assert await caller.look(run.task_id) == TaskView("completed", text="Hello, Ada.")
    for asking in run.feeds if caller.carries[Feature.REATTACH].level != "dropped" else ():
        async with caller.reconnect(asking) as rest:
            assert await rest.end() == TaskView("completed", text="Hello, Ada.")


@from_both_sides("approve", 1)
async def test_two_questions_are_answered_in_different_protocols(house: House, caller: Caller, other: Caller) -> None:
    first = await caller.run_to_end("go")
    left = await other.answer(await other.look(first.task_id), "Ada")
    approval = Question("May I write?", APPROVAL)
    assert left == TaskView("input_required", text="Two questions. ", questions=(approval,))
    here = await caller.look(first.task_id)
    assert here == left
    done = await caller.answer(here, Data({"approved": True}))
    assert done == TaskView("completed", text="Two questions. Ada said yes.")
    assert await other.look(first.task_id) == done


@from_both_sides("slow", 2)
async def test_a_run_of_one_protocol_is_cancelled_in_another(house: House, caller: Caller, other: Caller) -> None:
    needs(house, other, Feature.CANCEL)
    async with begun(house, caller, "go") as run, other.attach(run.task_id) as there:
        await there.until_text("first")
        await other.cancel(run.task_id)
        assert await there.end() == TaskView("cancelled", text="first")
        assert await run.end() == TaskView("cancelled", text="first")
    await house.await_cancel(await house.ended(run.task_id))
    assert await other.look(run.task_id) == TaskView("cancelled", text="first")
    assert await caller.look(run.task_id) == TaskView("cancelled", text="first")


@from_both_sides("ask", 3)
async def test_a_question_of_one_protocol_is_cancelled_in_another(house: House, caller: Caller, other: Caller) -> None:
    needs(house, other, Feature.CANCEL)
    paused = await caller.run_to_end("go")
    await other.give_up(await other.look(paused.task_id))
    assert await other.look(paused.task_id) == TaskView("cancelled")
    assert await caller.look(paused.task_id) == (TaskView("cancelled") if caller.shows_end else paused)
    assert (await house.front.hub.reads.task(OWNER, paused.task_id)).state is TaskState.CANCELLED


@by_each("stream")
async def test_a_live_stream_and_its_replay_are_the_same_bytes(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.REATTACH)
    async with caller.stream("one two three") as feed:
        for text in ("one", "one two"):
            await feed.until_text(text)
            house.release()
        await feed.end()
    assert await frames_of(caller, feed.ids.task) == feed.frames


@by_each("approve")
async def test_streams_of_question_and_answers_equal_the_replay(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.REATTACH)
    async with caller.stream("go") as asking:
        await asking.end()
    answers = ["Ada", Data({"approved": True})][: len(asking.task.questions)]
    async with caller.stream_answer(asking, *answers) as answering:
        await answering.end()
    whole = await frames_of(caller, asking.ids.task)
    rest = caller.repeated(answering.frames)
    assert rest and whole[-len(rest) :] == rest
    assert whole[: len(asking.frames)] == asking.frames
    # A stream that begins with the task has it instead of the event for the answer.
    assert len(whole) == len(asking.frames) + len(answering.frames)


@by_each("stream")
async def test_a_reader_that_reconnects_after_every_frame_gets_each_once(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.REATTACH)
    async with caller.stream("one two three four") as feed:
        await feed.next()
    frames = feed.frames
    last: Feed = feed
    while True:
        house.release()
        async with caller.reconnect(last) as back:
            if not await back.next():
                break
        frames += back.frames
        last = back
    assert back.task == TaskView("completed", text="one two three four")
    assert frames == await frames_of(caller, feed.ids.task)


@by_each("metadata", Acp)
async def test_an_acp_stream_resumes_after_any_event(house: House, caller: Caller) -> None:
    async with caller.stream("two words") as feed:
        await feed.end()
    for count in range(len(feed.frames) + 1):
        assert await frames_of(caller, feed.ids.task, count) == feed.frames[count:]
    listed = await caller.http.get(f"/acp/runs/{feed.ids.task}/events")
    events = b",".join(frame.removeprefix(b"data: ") for frame in feed.frames)
    assert listed.content == b'{"events":[' + events + b"]}"


@by_each("metadata", LangGraph, AgentProtocol)
async def test_a_langgraph_stream_resumes_after_any_event(house: House, caller: LangGraph) -> None:
    async with caller.stream("two words") as feed:
        await feed.end()
    url = f"{caller.runs_url(feed.ids.thread)}/{feed.ids.run}/stream"
    ids = ["-1", *(Frame.parse(frame).id for frame in feed.frames)]
    for count, after in enumerate(ids):
        rest = await caller.http.get(url, headers={"Last-Event-ID": after})
        assert rest.content == b"".join(frame + b"\n\n" for frame in feed.frames[count:])
    assert len(ids) > 5


@by_each("stream", JsonRpc03, JsonRpc10, Rest03, Rest10, Grpc10)
async def test_an_a2a_stream_resumes_after_any_record(house: House, caller: A2A) -> None:
    for _ in range(2):
        house.release()
    async with caller.stream("one two three") as feed:
        view = await feed.end()
    rests: list[int] = []
    while not rests or rests[-1] > 0:
        async with caller.replay_from(feed.ids.task, len(rests)) as part:
            assert await part.end() == view
        task, *rest = part.frames
        assert rest == feed.frames[len(feed.frames) - len(rest) :]
        assert (task == feed.frames[0]) == (len(rest) == len(feed.frames) - 1)
        rests.append(len(rest))
    assert set(rests) == set(range(len(feed.frames))), "it can be cut anywhere"
    assert rests == sorted(rests, reverse=True)
