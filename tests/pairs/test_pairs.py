"""Each thing that a run can do, seen by each protocol's caller, done by each kind of agent."""

from dataclasses import replace
from typing import Any

import pytest

from canonical import Feature
from tests.pairs.caller import Caller, Data, File, Question, Seen
from tests.pairs.cast import APPROVAL
from tests.pairs.house import CALLERS, HOUSES, OFFICIAL, House, needs

pytestmark = pytest.mark.asyncio(loop_scope="module")


def pairs(agent: str) -> pytest.MarkDecorator:
    """Every caller with every kind of agent that has such an agent."""
    cells = [
        pytest.param(kind, (caller, agent), id=f"{caller.name}-{kind}")
        for kind in HOUSES
        if agent in OFFICIAL.get(kind, (agent,))
        for caller in CALLERS
    ]
    return pytest.mark.parametrize(("house", "caller"), cells, indirect=True)


def one_at_a_time(house: House, caller: Caller) -> bool:
    """Whether one of the protocols on the way shows of several questions the oldest."""
    return any(way[Feature.QUESTIONS].how.startswith("one at a time") for way in (house.carries, caller.carries))


@pairs("echo")
async def test_an_answer_arrives(house: House, caller: Caller) -> None:
    seen = await caller.send("hello")
    assert seen == Seen("completed", text="hello")
    assert await caller.look(seen.task_id) == seen
    again = await type(caller)(caller.http, caller.agent).told("hello")
    assert again == seen
    assert again.task_id != seen.task_id


@pairs("stream")
async def test_each_token_arrives_before_the_agent_says_the_next(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.STREAM)
    async with caller.stream("one two three") as feed:
        assert (await feed.said("one")).state == "working"
        house.release()
        await feed.said("one two")
        house.release()
        seen = await feed.end()
    assert seen == Seen("completed", text="one two three")
    assert await caller.look(seen.task_id) == seen


@pairs("history")
async def test_the_agent_sees_what_was_said_before_in_the_conversation(house: House, caller: Caller) -> None:
    first = await caller.send("one")
    second = await caller.send("two")
    assert (first.text, second.text) == ("0 before: one", "2 before: two")
    assert first.context_id == second.context_id
    assert first.task_id != second.task_id
    other = type(caller)(caller.http, caller.agent)
    assert (await other.send("three")).text == "0 before: three"


@pairs("ask")
async def test_a_question_is_asked_and_answered(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.QUESTION)
    asked = await caller.send("go")
    assert asked == Seen("input_required", questions=(Question("What is your name?"),))
    assert await caller.look(asked.task_id) == asked
    answered = await caller.answer(asked, "Ada")
    assert answered == Seen("completed", text="Hello, Ada.")
    assert (answered.task_id, answered.context_id) == (asked.task_id, asked.context_id)


@pairs("ask")
async def test_a_question_ends_a_stream_and_its_answer_begins_the_next(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.QUESTION)
    needs(house, caller, Feature.STREAM)
    async with caller.stream("go") as asking:
        asked = await asking.end()
        assert asked == Seen("input_required", questions=(Question("What is your name?"),))
    async with caller.stream_answer(asking, "Ada") as answering:
        assert answering.ids.task == asking.ids.task
        assert await answering.end() == Seen("completed", text="Hello, Ada.")


@pairs("approve")
async def test_two_questions_at_once_are_each_answered(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.QUESTION)
    name, approval = Question("What is your name?"), Question("May I write?", APPROVAL)
    seen = await caller.send("go")
    if not one_at_a_time(house, caller):
        assert seen == Seen("input_required", text="Two questions. ", questions=(name, approval))
        seen = await caller.answer(seen, "Ada", Data({"approved": True}))
    else:
        assert seen == Seen("input_required", text="Two questions. ", questions=(name,))
        seen = await caller.answer(seen, "Ada")
        assert seen == Seen("input_required", text="Two questions. ", questions=(approval,))
        seen = await caller.answer(seen, Data({"approved": True}))
    assert seen == Seen("completed", text="Two questions. Ada said yes.")


@pairs("login")
async def test_a_question_for_credentials_is_answered_like_any_other(house: House, caller: Caller) -> None:
    whole = {house.carries[Feature.AUTH_REQUEST].level, caller.carries[Feature.AUTH_REQUEST].level} == {"full"}
    seen = await caller.send("go")
    assert seen == Seen("auth_required" if whole else "input_required", questions=(Question("Who are you?"),))
    assert await caller.answer(seen, "Ada") == Seen("completed", text="In as Ada.")


@pairs("files")
async def test_files_arrive_byte_by_byte_in_both_directions(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.FILE_BYTES)
    needs(house, caller, Feature.ARTIFACT)
    given = File("every byte.bin", bytes(range(256)))
    files = {given.name: given.content, "report.txt": b"text"}
    told = await caller.told(given, "text")
    assert told == Seen("completed", files=files)
    assert await caller.look(told.task_id) == caller.later(told)
    assert await type(caller)(caller.http, caller.agent).send(given, "text") == caller.later(told)


@pairs("data")
async def test_data_is_the_same_value_after_both_ways(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.DATA)
    given: Any = {"list": [1, 2.5, None, True, "é"], "nested": {"a": {}}}
    seen = await caller.send(Data(given))
    assert seen == Seen("completed", data=({"given": given},))
    assert await type(caller)(caller.http, caller.agent).told(Data(given)) == seen


@pairs("count")
async def test_a_structured_answer_arrives_as_data(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.STRUCTURED_OUTPUT)
    seen = await caller.send("two words")
    assert seen == Seen("completed", data=({"text": "two words", "words": 2},))
    assert await type(caller)(caller.http, caller.agent).told("two words") == seen


@pairs("slow")
async def test_a_cancel_reaches_the_agent_and_ends_the_stream(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.CANCEL)
    async with caller.stream("go") as feed:
        await feed.said("first")
        cancelled = await caller.cancel(feed.ids.task)
        assert cancelled.state == ("cancelling" if caller.carries[Feature.CANCEL].level == "full" else "cancelled")
        assert await feed.end() == Seen("cancelled", text="first")
    await house.heard_cancel(await house.ended(feed.ids.task))
    assert await caller.look(feed.ids.task) == feed.seen


@pairs("ask")
async def test_a_task_that_waits_for_an_answer_can_be_cancelled(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.CANCEL)
    asked = await caller.send("go")
    await caller.give_up(asked)
    assert await caller.look(asked.task_id) == Seen("cancelled")


@pairs("fail")
async def test_a_failure_brings_the_agents_own_words(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.FAULT)
    seen = await caller.send("on purpose")
    assert replace(seen, fault="") == Seen("failed", text="Before the fault.")
    assert "on purpose" in seen.fault
    assert await type(caller)(caller.http, caller.agent).told("on purpose") == seen
    assert await caller.look(seen.task_id) == seen


@pairs("slow")
async def test_who_hangs_up_and_comes_back_in_time_sees_each_frame_once(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.REATTACH)
    async with caller.stream("go") as feed:
        await feed.said("first")
    async with caller.come_back(feed) as back, caller.attach(feed.ids.task) as other:
        await other.said("first")
        house.release()
        assert await back.end() == Seen("completed", text="first last")
        assert await other.end() == back.seen
    async with caller.replay(feed.ids.task) as replay:
        await replay.end()
    assert feed.frames + back.frames == replay.frames


@pairs("slow")
async def test_a_run_goes_on_without_its_reader_who_gets_the_rest_later(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.REATTACH)
    async with caller.stream("go") as feed:
        await feed.said("first")
    house.release()
    await house.ended(feed.ids.task)
    async with caller.come_back(feed) as back:
        assert await back.end() == Seen("completed", text="first last")
    async with caller.replay(feed.ids.task) as replay:
        await replay.end()
    assert feed.frames + back.frames == replay.frames


@pairs("progress")
async def test_progress_is_told_before_the_answer_and_is_no_part_of_it(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.PROGRESS, becomes=Feature.REASONING)
    if caller.follows:
        async with caller.stream("go") as feed:
            seen = await feed.until(lambda seen: seen.asides == ("Half way.",))
            assert seen == Seen("working", asides=("Half way.",))
            seen = await feed.end()
    else:
        seen = await caller.send("go")
    assert seen == Seen("completed", text="Done.", asides=("Half way.",))
    assert (await caller.look(seen.task_id)).text == "Done."


@pairs("metadata")
async def test_a_thought_is_told_and_is_no_part_of_the_answer(house: House, caller: Caller) -> None:
    needs(house, caller, Feature.REASONING)
    seen = await caller.told("two words")
    assert seen == Seen("completed", text="As cited.", asides=("Thinking about it.",))


@pairs("metadata")
async def test_what_a_protocol_cannot_show_is_named_as_lost_and_nothing_else_is(house: House, caller: Caller) -> None:
    seen = await caller.told("two words")
    assert seen.lasting == Seen("completed", text="As cited.")
    said = (Feature.REASONING, Feature.TOOL_ACTIVITY, Feature.CITATION, Feature.CUSTOM, Feature.TEXT)
    levels = {str(feature): caller.carries[feature].level for feature in said}
    losses = await caller.losses(seen.task_id)
    dropped = {feature for feature, level in levels.items() if level == "dropped"}
    partial = {feature for feature, level in levels.items() if level == "lossy"}
    assert losses == (dropped | partial if caller.names_partial else dropped)
