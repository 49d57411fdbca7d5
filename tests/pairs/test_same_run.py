"""One run, seen from several protocols and at several times: by the gateway's ids it is the same everywhere, and its
stream is the same bytes whenever it is read."""

from itertools import permutations

import pytest

from tests.pairs.a2a import A2A, JsonRpc03, JsonRpc10, Rest03, Rest10
from tests.pairs.acp import Acp
from tests.pairs.caller import Caller, Data, Feed, Question, Seen
from tests.pairs.house import CALLERS, House

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize("house", ["python"], indirect=True, ids=[""]),
]

SIDES: tuple[type[Caller], ...] = (Acp, JsonRpc03, JsonRpc10)


def from_both_sides(agent: str) -> pytest.MarkDecorator:
    """One protocol starts the run, another comes to it."""
    cells = [
        pytest.param((one, agent), (other, agent), id=f"{one.name}-then-{other.name}")
        for one, other in permutations(SIDES, 2)
    ]
    return pytest.mark.parametrize(("caller", "other"), cells, indirect=True)


def by_each(agent: str, *callers: type[Caller]) -> pytest.MarkDecorator:
    cells = [pytest.param((caller, agent), id=caller.name) for caller in callers or CALLERS]
    return pytest.mark.parametrize("caller", cells, indirect=True)


@pytest.fixture
def other(request: pytest.FixtureRequest, house: House) -> Caller:
    made, agent = request.param
    return made(house.front.http, agent)


async def frames_of(caller: Caller, task_id: str, skip: int = 0) -> list[bytes]:
    view = None
    if skip:  # a view that has seen what is skipped
        async with caller.replay(task_id) as feed:
            for _ in range(skip):
                await feed.next()
        view = feed.view
    async with caller.replay(task_id, view=view, skip=skip) as feed:
        await feed.end()
    return feed.frames


@from_both_sides("echo")
async def test_a_run_of_one_protocol_is_read_in_another(house: House, caller: Caller, other: Caller) -> None:
    async with caller.stream("hello") as feed:
        seen = await feed.end()
    there = await other.look(feed.ids.task)
    assert there == seen
    assert there.task_id == seen.task_id == feed.ids.task
    assert there.context_id == feed.ids.thread
    async with other.replay(feed.ids.task) as replay:
        assert await replay.end() == seen


@from_both_sides("history")
async def test_a_conversation_of_one_protocol_goes_on_in_another(house: House, caller: Caller, other: Caller) -> None:
    async with caller.stream("one") as feed:
        await feed.end()
    other.context_id = feed.ids.thread
    assert (await other.send("two")).text == "2 before: two"
    assert (await caller.look(feed.ids.task)).text == "0 before: one"
    caller.context_id = feed.ids.thread
    assert (await caller.send("three")).text == "4 before: three"


@pytest.mark.parametrize(("caller", "other"), [((JsonRpc10, "echo"), (Acp, "echo"))], indirect=True, ids=[""])
async def test_a_callers_own_name_of_a_conversation_is_shown_in_its_protocol_alone(
    house: House, caller: Caller, other: Caller
) -> None:
    caller.context_id = "my own/name"
    async with caller.stream("one") as feed:
        assert (await feed.end()).context_id == "my own/name"
    assert (await other.look(feed.ids.task)).context_id == feed.ids.thread
    assert (await caller.look((await other.send("two")).task_id)).context_id == "my own/name"


@from_both_sides("stream")
async def test_two_protocols_follow_one_live_run(house: House, caller: Caller, other: Caller) -> None:
    async with caller.stream("one two three") as feed:
        await feed.said("one")
        async with other.attach(feed.ids.task) as late, other.replay(feed.ids.task) as whole:
            await late.said("one")
            await whole.said("one")
            house.release()
            for reader in (feed, late, whole):
                assert (await reader.said("one two")).state == "working"
            house.release()
            for reader in (feed, late, whole):
                assert await reader.end() == Seen("completed", text="one two three")


@from_both_sides("ask")
async def test_a_question_of_one_protocol_is_answered_in_another(house: House, caller: Caller, other: Caller) -> None:
    async with caller.stream("go") as asking:
        await asking.end()
    asked = await other.look(asking.ids.task)
    assert asked == Seen("input_required", questions=(Question("What is your name?"),))
    assert await other.answer(asked, "Ada") == Seen("completed", text="Hello, Ada.")
    assert await caller.look(asking.ids.task) == Seen("completed", text="Hello, Ada.")
    async with caller.come_back(asking) as rest:
        assert await rest.end() == Seen("completed", text="Hello, Ada.")


@from_both_sides("slow")
async def test_a_run_of_one_protocol_is_cancelled_in_another(house: House, caller: Caller, other: Caller) -> None:
    async with caller.stream("go") as feed:
        await feed.said("first")
        await other.cancel(feed.ids.task)
        assert await feed.end() == Seen("cancelled", text="first")
    await house.heard_cancel(await house.ended(feed.ids.task))
    assert await other.look(feed.ids.task) == Seen("cancelled", text="first")


@by_each("stream")
async def test_a_live_stream_and_its_replay_are_the_same_bytes(house: House, caller: Caller) -> None:
    async with caller.stream("one two three") as feed:
        for said in ("one", "one two"):
            await feed.said(said)
            house.release()
        await feed.end()
    assert await frames_of(caller, feed.ids.task) == feed.frames


@by_each("approve")
async def test_the_streams_of_a_question_and_its_answers_add_up_to_the_replay(house: House, caller: Caller) -> None:
    async with caller.stream("go") as asking:
        await asking.end()
    answers = ["Ada", Data({"approved": True})][: len(asking.seen.questions)]
    async with caller.stream_answer(asking, *answers) as answering:
        await answering.end()
    whole = await frames_of(caller, asking.ids.task)
    rest = caller.repeated(answering.frames)
    assert rest and whole[-len(rest) :] == rest
    assert whole[: len(asking.frames)] == asking.frames
    # Where a stream begins with the task as it is, that stands for the event which the answer was.
    assert len(whole) == len(asking.frames) + len(answering.frames)


@by_each("stream")
async def test_a_reader_who_is_cut_off_after_every_frame_of_a_live_run_sees_each_once(
    house: House, caller: Caller
) -> None:
    async with caller.stream("one two three four") as feed:
        await feed.next()
    frames = feed.frames
    last: Feed = feed
    while True:
        house.release()
        async with caller.come_back(last) as back:
            if not await back.next():
                break
        frames += back.frames
        last = back
    assert back.seen == Seen("completed", text="one two three four")
    assert frames == await frames_of(caller, feed.ids.task)


@by_each("metadata", Acp)
async def test_an_acp_stream_from_any_event_on_is_the_rest_of_the_whole_and_of_the_list(
    house: House, caller: Caller
) -> None:
    async with caller.stream("two words") as feed:
        await feed.end()
    for count in range(len(feed.frames) + 1):
        assert await frames_of(caller, feed.ids.task, count) == feed.frames[count:]
    listed = await caller.http.get(f"/acp/runs/{feed.ids.task}/events")
    events = b",".join(frame.removeprefix(b"data: ") for frame in feed.frames)
    assert listed.content == b'{"events":[' + events + b"]}"


@by_each("stream", JsonRpc03, JsonRpc10, Rest03, Rest10)
async def test_an_a2a_stream_from_any_record_on_is_the_task_as_it_was_and_the_rest_of_the_whole(
    house: House, caller: A2A
) -> None:
    for _ in range(2):
        house.release()
    async with caller.stream("one two three") as feed:
        seen = await feed.end()
    rests: list[int] = []
    while not rests or rests[-1] > 0:
        async with caller.replay_from(feed.ids.task, len(rests)) as part:
            assert await part.end() == seen
        task, *rest = part.frames
        assert rest == feed.frames[len(feed.frames) - len(rest) :]
        assert (task == feed.frames[0]) == (len(rest) == len(feed.frames) - 1)
        rests.append(len(rest))
    assert set(rests) == set(range(len(feed.frames))), "it can be cut anywhere"
    assert rests == sorted(rests, reverse=True)
