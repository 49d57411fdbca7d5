"""Each thing that a run can do, seen by each protocol's caller, done by each kind of agent."""

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final

import pytest

from babelgate.canonical import FULL, Feature
from tests.pairs.caller import Caller, Data, Feed, File, Question, Seen, recording
from tests.pairs.cast import APPROVAL, VARIED, WHOLE
from tests.pairs.house import House
from tests.pairs.scenario import pairs
from tests.pairs.values import messages_in, objects_in, values_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID: Final = (Feature.REASONING, Feature.TOOL_ACTIVITY, Feature.CITATION, Feature.CUSTOM)
"""By the agent `metadata`, beside its answer."""
WEATHER: Final = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}


def one_at_a_time(house: House, caller: Caller) -> bool:
    """Whether one of the protocols on the way shows of several questions the oldest."""
    return any(carry.how.startswith("one at a time") for _, carry in house.cell(caller, Feature.QUESTIONS).losses)


def left(house: House, caller: Caller, told: Seen) -> Seen:
    """What is shown later of an answer that was cut off. Of an agent's own state it is no part."""
    return replace(told, text="") if house.kind.stateful and caller.shows_state else told


async def begun(house: House, feed: Feed) -> str:
    """What is told of an answer in whose middle the agent waits."""
    first = "first" if house.live else ""
    await feed.until(lambda seen: (seen.state, seen.text) == ("working", first))
    return first


@pairs("echo", Feature.TEXT)
async def test_an_answer_arrives(house: House, caller: Caller) -> None:
    seen = await caller.send("hello")
    assert seen == Seen("completed", text="hello")
    assert await caller.look(seen.task_id) == seen
    again = await type(caller)(caller.http, caller.agent).told("hello")
    assert again == seen
    assert again.task_id != seen.task_id


@pairs("stream", Feature.STREAM)
async def test_each_token_arrives_before_the_agent_says_the_next(house: House, caller: Caller) -> None:
    async with caller.stream("one two three") as feed:
        for told in ("one", "one two"):
            if house.live:
                assert (await feed.said(told)).state == "working"
            house.release()
        seen = await feed.end()
    assert seen == Seen("completed", text="one two three")
    assert await caller.look(seen.task_id) == seen


@pairs("history", Feature.HISTORY)
async def test_the_agent_sees_what_was_said_before_in_the_conversation(house: House, caller: Caller) -> None:
    first = await caller.send("one")
    second = await caller.send("two")
    assert (first.text, second.text) == ("0 before: one", "2 before: two")
    assert first.context_id == second.context_id
    assert first.task_id != second.task_id
    other = type(caller)(caller.http, caller.agent)
    assert (await other.send("three")).text == "0 before: three"


@pairs("recall", Feature.HISTORY, Feature.FORK)
async def test_a_branch_of_a_conversation_knows_what_was_said_before_it_and_nothing_else(
    house: House, caller: Caller
) -> None:
    first = await caller.send("one")
    assert "two" in (await caller.send("two")).text
    await caller.branch(first)
    branch = await caller.send("three")
    assert branch.context_id == first.context_id
    after = await caller.send("four")
    for seen, said in ((branch, "one three"), (after, "one three four")):
        assert all(word in seen.text for word in said.split())
        assert "two" not in seen.text


@pairs("echo", Feature.STATE)
async def test_the_state_of_a_conversation_is_kept_and_can_be_changed(house: House, caller: Caller) -> None:
    await caller.send("one")
    before = await caller.values()
    await caller.change({"note": {"read": True}})
    assert await caller.values() == {**before, "note": {"read": True}}
    assert (await caller.send("two")).text.endswith("two")
    assert await caller.values() == {**before, "note": {"read": True}}


@pairs("ask", Feature.QUESTION)
async def test_a_question_is_asked_and_answered(house: House, caller: Caller) -> None:
    asked = await caller.send("go")
    assert asked == Seen("input_required", questions=(caller.shown(house.kind.question),))
    assert await caller.look(asked.task_id) == asked
    answered = await caller.answer(asked, "Ada")
    assert answered == Seen("completed", text="Hello, Ada.")
    assert (answered.task_id, answered.context_id) == (asked.task_id, asked.context_id)


@pairs("ask", Feature.QUESTION, Feature.STREAM)
async def test_a_question_ends_a_stream_and_its_answer_begins_the_next(house: House, caller: Caller) -> None:
    async with caller.stream("go") as asking:
        asked = await asking.end()
        assert asked == Seen("input_required", questions=(caller.shown(house.kind.question),))
    async with caller.stream_answer(asking, "Ada") as answering:
        assert answering.ids.task == asking.ids.task
        assert await answering.end() == Seen("completed", text="Hello, Ada.")


@pairs("approve", Feature.QUESTION, shows=(Feature.QUESTIONS, Feature.ANSWER_SCHEMA))
async def test_two_questions_at_once_are_each_answered(house: House, caller: Caller) -> None:
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
    if house.kind.stateful and caller.shows_state:  # where the answers are, too
        seen = replace(seen, data=())
    assert seen == Seen("completed", text="Two questions. Ada said yes.")


@pairs("login", Feature.QUESTION, shows=(Feature.AUTH_REQUEST,))
async def test_a_question_for_credentials_is_answered_like_any_other(house: House, caller: Caller) -> None:
    kept = house.carries[Feature.AUTH_REQUEST].level == "full"
    whole = kept and caller.carries[Feature.AUTH_REQUEST] == FULL  # which has a word of its own for it
    seen = await caller.send("go")
    assert seen == Seen("auth_required" if whole else "input_required", questions=(Question("Who are you?"),))
    assert await caller.answer(seen, "Ada") == Seen("completed", text="In as Ada.")


@pairs("files", Feature.FILE_BYTES, Feature.ARTIFACT, shows=(Feature.UPLOAD,))
async def test_files_arrive_byte_by_byte_in_both_directions(house: House, caller: Caller) -> None:
    given = File("every byte.bin", bytes(range(256)))
    files = {given.name: given.content, "report.txt": b"text"}
    told = await caller.told(given, "text")
    assert told == Seen("completed", files=files)
    later = told if Feature.ARTIFACT in house.kind.side.turns else caller.later(told)
    assert await caller.look(told.task_id) == later
    assert await type(caller)(caller.http, caller.agent).send(given, "text") == later


@pairs("data", Feature.DATA)
async def test_data_is_the_same_value_after_both_ways(house: House, caller: Caller) -> None:
    given: Any = {"list": [1, 2.5, None, True, "é"], "nested": {"a": {}}}
    seen = await caller.send(Data(given))
    assert seen == Seen("completed", data=({"given": given},))
    assert await type(caller)(caller.http, caller.agent).told(Data(given)) == seen


@pairs("count", Feature.STRUCTURED_OUTPUT)
async def test_a_structured_answer_arrives_as_data(house: House, caller: Caller) -> None:
    seen = await caller.send("two words")
    assert seen == Seen("completed", data=({"text": "two words", "words": 2},))
    assert await type(caller)(caller.http, caller.agent).told("two words") == seen


@pairs("slow", Feature.CANCEL)
async def test_a_cancel_reaches_the_agent_and_ends_the_stream(house: House, caller: Caller) -> None:
    async with caller.stream("go") as feed:
        first = await begun(house, feed)
        cancelled = await caller.cancel(feed.ids.task)
        assert cancelled.state == ("cancelling" if caller.carries[Feature.CANCEL].level == "full" else "cancelled")
        assert await feed.end() == Seen("cancelled", text=first)
    await house.heard_cancel(await house.ended(feed.ids.task))
    assert await caller.look(feed.ids.task) == left(house, caller, feed.seen)


@pairs("ask", Feature.CANCEL, Feature.QUESTION)
async def test_a_task_that_waits_for_an_answer_can_be_cancelled(house: House, caller: Caller) -> None:
    asked = await caller.send("go")
    await caller.give_up(asked)
    assert await caller.look(asked.task_id) == Seen("cancelled")


@pairs("fail", Feature.FAULT)
async def test_a_failure_brings_the_agents_own_words(house: House, caller: Caller) -> None:
    told = await caller.told("on purpose")
    seen = left(house, caller, told)
    assert replace(told, fault="") == Seen("failed", text="Before the fault.")
    assert "on purpose" in seen.fault
    assert await type(caller)(caller.http, caller.agent).send("on purpose") == seen
    assert await caller.look(seen.task_id) == seen


@pairs("slow", Feature.REATTACH)
async def test_who_hangs_up_and_comes_back_in_time_sees_each_frame_once(house: House, caller: Caller) -> None:
    async with caller.stream("go") as feed:
        await begun(house, feed)
    async with caller.come_back(feed) as back, caller.attach(feed.ids.task) as other:
        await begun(house, other)
        house.release()
        assert await back.end() == Seen("completed", text="first last")
        assert await other.end() == back.seen
    async with caller.replay(feed.ids.task) as replay:
        await replay.end()
    assert feed.frames + back.frames == replay.frames


@pairs("slow", Feature.REATTACH)
async def test_a_run_goes_on_without_its_reader_who_gets_the_rest_later(house: House, caller: Caller) -> None:
    async with caller.stream("go") as feed:
        await begun(house, feed)
    house.release()
    await house.ended(feed.ids.task)
    async with caller.come_back(feed) as back:
        assert await back.end() == Seen("completed", text="first last")
    async with caller.replay(feed.ids.task) as replay:
        await replay.end()
    assert feed.frames + back.frames == replay.frames


@pairs("progress", Feature.PROGRESS)
async def test_progress_is_told_before_the_answer_and_is_no_part_of_it(house: House, caller: Caller) -> None:
    if caller.follows and house.live:
        async with caller.stream("go") as feed:
            seen = await feed.until(lambda seen: seen.asides == ("Half way.",))
            assert seen == Seen("working", asides=("Half way.",))
            seen = await feed.end()
    else:
        seen = await caller.told("go")
    assert seen == Seen("completed", text="Done.", asides=("Half way.",))
    assert (await caller.look(seen.task_id)).text == "Done."


@pairs("metadata", Feature.REASONING)
async def test_a_thought_is_told_and_is_no_part_of_the_answer(house: House, caller: Caller) -> None:
    seen = await caller.told("two words")
    assert seen == Seen("completed", text="As cited.", asides=("Thinking about it.",))


@pairs("metadata", shows=SAID)
async def test_what_a_protocol_cannot_show_is_named_as_lost_and_nothing_else_is(house: House, caller: Caller) -> None:
    seen = await caller.told("two words")
    assert seen.lasting == Seen("completed", text="As cited.")
    expected = named(house, caller, {*SAID, Feature.TEXT, *house.kind.shows})
    assert await caller.losses(seen.task_id) == {str(feature) for feature in expected}


@pairs("varied", shows=tuple(VARIED))
async def test_what_arrives_whole_is_not_named_as_lost(house: House, caller: Caller) -> None:
    seen = await caller.told("go")
    whole = {str(feature) for feature in Feature if house.cell(caller, feature).level == "full"}
    streamed = {str(feature) for feature, carry in caller.carries.items() if carry.streamed_only}
    assert await caller.losses(seen.task_id) & whole <= streamed


@pairs("varied", shows=tuple(VARIED))
async def test_what_is_not_lost_is_somewhere_in_what_the_caller_is_told(house: House, caller: Caller) -> None:
    told = bytearray()
    async with recording(caller, told):
        seen = await caller.told_all("go")
    assert {each.state for each in seen} == {"completed"}
    for each in seen:  # whose bytes may have come as base64
        told += b"\n".join(each.files.values())
    shown = [feature for feature in VARIED if house.cell(caller, feature).level != "dropped"]
    missing = [feature for feature in shown if not all(word.encode() in told for word in VARIED[feature])]
    assert missing == [], told.decode(errors="replace")
    values = values_in(told)
    steps = [name for name in values.get(Feature.STEP, ()) if name != "varied"]  # that of the agent as a whole
    found = {**values, Feature.STEP: steps}
    whole = [feature for feature in VARIED if house.cell(caller, feature).level == "full"]
    assert {feature: found.get(feature) for feature in whole} == {feature: WHOLE[feature] for feature in whole}


@pairs("noted", Feature.METADATA)
async def test_what_a_caller_notes_of_its_task_is_kept_with_it_and_told_to_the_agent(
    house: House, caller: Caller
) -> None:
    caller.metadata = {"ticket": "no-11037", "label": "two words"}
    seen = await caller.send("go")
    reaches = house.carries[Feature.METADATA].level != "dropped"
    assert seen == Seen("completed", text="no-11037" if reaches else "nothing")
    told = bytearray()
    async with recording(caller, told):
        await caller.look(seen.task_id)
    kept = [each for message in messages_in(told) for each in objects_in(message) if "ticket" in each]
    assert kept
    assert all(each.items() >= caller.metadata.items() for each in kept), kept


@pairs("outside", Feature.CALLER_TOOLS, Feature.QUESTION)
async def test_a_tool_of_the_caller_is_called_and_its_result_reaches_the_agent(house: House, caller: Caller) -> None:
    caller.tools = (WEATHER,)
    asked = await caller.send("go")
    (question,) = asked.questions
    assert asked.state == "input_required"
    if house.cell(caller, Feature.CALLER_TOOLS).level == "full" or question.value is not None:
        assert call_in(question) == ("weather", {"city": "Paris"}), question
    else:
        assert all(word in question.text for word in ("weather", "Paris")), question
    cannot_offer = any(
        carry.how.startswith("a caller cannot offer") for _, carry in house.cell(caller, Feature.CALLER_TOOLS).losses
    )
    offered = [] if cannot_offer else ["weather"]
    assert await caller.answer(asked, "rain") == Seen("completed", text=f"{offered}: rain")


def call_in(question: Question) -> tuple[Any, Any]:
    """The name and the arguments of a call, as it stands beside the words, or as a headless tool."""
    call: Any = question.value
    call = call.get("tool_call", call)
    given = call.get("args", call.get("arguments"))
    return call["name"], json.loads(given) if isinstance(given, str) else given


_AS_IT_CAME: Final[Mapping[tuple[str, str], Set[Feature]]] = {
    ("openai", "openai-responses"): {Feature.TOOL_ACTIVITY},
}
"""What a protocol has a form for that holds less, which is passed on as an official server said it."""


def named(house: House, caller: Caller, said: Set[Feature]) -> Iterator[Feature]:
    """What is told to be lost of what was said: what its server says that it could not say, and what the gateway says
    that the caller's protocol cannot show. What arrives as something else, or is shown in a place of its own, is not
    lost in a way that could be named."""
    told = {"dropped", "lossy"} if caller.names_partial else {"dropped"}
    for feature in said:
        here, there = house.carries[feature], caller.carries[feature]
        passed_on = _AS_IT_CAME.get((house.kind.agent, caller.speaks), ())
        if house.kind.cast is not None and feature in passed_on:
            continue
        # What a mark carries arrives. A caller who looks at the task is told what streams alone have.
        is_streamed = there.streamed_only and caller.names_partial
        partly = (there.level in told or is_streamed) and feature is not Feature.USAGE
        if here.level in house.kind.tells or (here.level != "dropped" and (there.level == "dropped" or partly)):
            yield feature
