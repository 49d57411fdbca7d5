"""Each thing that a run can do, with each protocol's caller and each kind of agent."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final

import pytest

from babelgate.canonical import FULL, Feature
from tests.pairs.caller import BOUND, Caller, Data, Feed, File, Question, TaskView, recording
from tests.pairs.cast import APPROVAL, VARIED, VARIED_VALUES
from tests.pairs.house import House
from tests.pairs.scenario import pairs
from tests.pairs.values import messages_in, objects_in, values_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

METADATA_FEATURES: Final = (Feature.REASONING, Feature.TOOL_ACTIVITY, Feature.CITATION, Feature.CUSTOM)
"""Features in the output of the agent `metadata`, in addition to its answer."""
WEATHER: Final = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}


def one_at_a_time(house: House, caller: Caller) -> bool:
    """Return True if a protocol between agent and caller shows only the oldest of several questions."""
    return any(carry.how.startswith("one at a time") for _, carry in house.cell(caller, Feature.QUESTIONS).losses)


def left(house: House, caller: Caller, streamed: TaskView) -> TaskView:
    """Return the state that a later `look` at a failed or cancelled task must show. `streamed` is the state that its
    stream showed. The text is missing if the agent keeps its own state and the protocol shows only that: it lacks an
    unfinished answer."""
    return replace(streamed, text="") if house.kind.stateful and caller.shows_state else streamed


async def begun(house: House, feed: Feed) -> str:
    """Wait until the agent waits in the middle of its answer, and return the text so far."""
    first = "first" if house.live else ""
    await feed.until(lambda view: (view.state, view.text) == ("working", first))
    if not house.live:
        async with asyncio.timeout(BOUND):
            await house.await_start()
    return first


@pairs("echo", Feature.TEXT)
async def test_an_answer_arrives(house: House, caller: Caller) -> None:
    view = await caller.send("hello")
    assert view == TaskView("completed", text="hello")
    assert await caller.look(view.task_id) == view
    again = await type(caller)(caller.http, caller.agent).run_to_end("hello")
    assert again == view
    assert again.task_id != view.task_id


@pairs("stream", Feature.STREAM)
async def test_each_token_arrives_before_the_next_is_emitted(house: House, caller: Caller) -> None:
    async with caller.stream("one two three") as feed:
        for text in ("one", "one two"):
            if house.live:
                assert (await feed.until_text(text)).state == "working"
            house.release()
        view = await feed.end()
    assert view == TaskView("completed", text="one two three")
    assert await caller.look(view.task_id) == view


@pairs("history", Feature.HISTORY)
async def test_the_agent_receives_the_history_of_the_conversation(house: House, caller: Caller) -> None:
    first = await caller.send("one")
    second = await caller.send("two")
    assert (first.text, second.text) == ("0 before: one", "2 before: two")
    assert first.context_id == second.context_id
    assert first.task_id != second.task_id
    other = type(caller)(caller.http, caller.agent)
    assert (await other.send("three")).text == "0 before: three"


@pairs("recall", Feature.HISTORY, Feature.FORK)
async def test_a_branch_has_only_the_history_before_it(house: House, caller: Caller) -> None:
    first = await caller.send("one")
    assert "two" in (await caller.send("two")).text
    await caller.branch(first)
    branch = await caller.send("three")
    assert branch.context_id == first.context_id
    after = await caller.send("four")
    for view, words in ((branch, "one three"), (after, "one three four")):
        assert all(word in view.text for word in words.split())
        assert "two" not in view.text


@pairs("echo", Feature.STATE)
async def test_the_state_of_a_conversation_can_be_changed(house: House, caller: Caller) -> None:
    await caller.send("one")
    before = await caller.values()
    await caller.change({"note": {"read": True}})
    assert await caller.values() == {**before, "note": {"read": True}}
    assert (await caller.send("two")).text.endswith("two")
    assert await caller.values() == {**before, "note": {"read": True}}


@pairs("ask", Feature.QUESTION)
async def test_a_question_can_be_answered(house: House, caller: Caller) -> None:
    paused = await caller.send("go")
    assert paused == TaskView("input_required", questions=(caller.expected_question(house.kind.question),))
    assert await caller.look(paused.task_id) == paused
    answered = await caller.answer(paused, "Ada")
    assert answered == TaskView("completed", text="Hello, Ada.")
    assert (answered.task_id, answered.context_id) == (paused.task_id, paused.context_id)


@pairs("ask", Feature.QUESTION, Feature.STREAM)
async def test_a_question_ends_a_stream_until_its_answer(house: House, caller: Caller) -> None:
    async with caller.stream("go") as asking:
        paused = await asking.end()
        assert paused == TaskView("input_required", questions=(caller.expected_question(house.kind.question),))
    async with caller.stream_answer(asking, "Ada") as answering:
        assert answering.ids.task == asking.ids.task
        assert await answering.end() == TaskView("completed", text="Hello, Ada.")


@pairs("approve", Feature.QUESTION, shows=(Feature.QUESTIONS, Feature.ANSWER_SCHEMA))
async def test_two_questions_at_once_are_each_answered(house: House, caller: Caller) -> None:
    name, approval = Question("What is your name?"), Question("May I write?", APPROVAL)
    view = await caller.send("go")
    if not one_at_a_time(house, caller):
        assert view == TaskView("input_required", text="Two questions. ", questions=(name, approval))
        view = await caller.answer(view, "Ada", Data({"approved": True}))
    else:
        assert view == TaskView("input_required", text="Two questions. ", questions=(name,))
        view = await caller.answer(view, "Ada")
        assert view == TaskView("input_required", text="Two questions. ", questions=(approval,))
        view = await caller.answer(view, Data({"approved": True}))
    if house.kind.stateful and caller.shows_state:  # where the answers are, too
        view = replace(view, data=())
    assert view == TaskView("completed", text="Two questions. Ada said yes.")


@pairs("login", Feature.QUESTION, shows=(Feature.AUTH_REQUEST,))
async def test_a_question_for_credentials_is_answered(house: House, caller: Caller) -> None:
    is_kept = house.carries[Feature.AUTH_REQUEST].level == "full"
    is_whole = is_kept and caller.carries[Feature.AUTH_REQUEST] == FULL  # a protocol with a separate state for it
    view = await caller.send("go")
    assert view == TaskView("auth_required" if is_whole else "input_required", questions=(Question("Who are you?"),))
    assert await caller.answer(view, "Ada") == TaskView("completed", text="In as Ada.")


@pairs("files", Feature.FILE_BYTES, Feature.ARTIFACT, shows=(Feature.UPLOAD,))
async def test_files_arrive_unchanged_in_both_directions(house: House, caller: Caller) -> None:
    file = File("every byte.bin", bytes(range(256)))
    files = {file.name: file.content, "report.txt": b"text"}
    view = await caller.run_to_end(file, "text")
    assert view == TaskView("completed", files=files)
    later = view if Feature.ARTIFACT in house.kind.side.turns else caller.later(view)
    assert await caller.look(view.task_id) == later
    assert await type(caller)(caller.http, caller.agent).send(file, "text") == later


@pairs("data", Feature.DATA)
async def test_data_arrives_unchanged_in_both_directions(house: House, caller: Caller) -> None:
    value: Any = {"list": [1, 2.5, None, True, "é"], "nested": {"a": {}}}
    view = await caller.send(Data(value))
    assert view == TaskView("completed", data=({"given": value},))
    assert await type(caller)(caller.http, caller.agent).run_to_end(Data(value)) == view


@pairs("count", Feature.STRUCTURED_OUTPUT)
async def test_a_structured_answer_arrives_as_data(house: House, caller: Caller) -> None:
    view = await caller.send("two words")
    assert view == TaskView("completed", data=({"text": "two words", "words": 2},))
    assert await type(caller)(caller.http, caller.agent).run_to_end("two words") == view


@pairs("slow", Feature.CANCEL)
async def test_a_cancel_reaches_the_agent_and_ends_the_stream(house: House, caller: Caller) -> None:
    async with caller.stream("go") as feed:
        first = await begun(house, feed)
        cancelled = await caller.cancel(feed.ids.task)
        assert cancelled.state == ("cancelling" if caller.carries[Feature.CANCEL].level == "full" else "cancelled")
        assert await feed.end() == TaskView("cancelled", text=first)
    await house.await_cancel(await house.ended(feed.ids.task))
    assert await caller.look(feed.ids.task) == left(house, caller, feed.task)


@pairs("ask", Feature.CANCEL, Feature.QUESTION)
async def test_a_task_that_waits_for_an_answer_can_be_cancelled(house: House, caller: Caller) -> None:
    paused = await caller.send("go")
    await caller.give_up(paused)
    assert await caller.look(paused.task_id) == TaskView("cancelled")


@pairs("fail", Feature.FAULT)
async def test_a_failure_has_the_agents_error_message(house: House, caller: Caller) -> None:
    streamed = await caller.run_to_end("on purpose")
    view = left(house, caller, streamed)
    assert replace(streamed, fault="") == TaskView("failed", text="Before the fault.")
    assert "on purpose" in view.fault
    assert await type(caller)(caller.http, caller.agent).send("on purpose") == view
    assert await caller.look(view.task_id) == view


@pairs("slow", Feature.REATTACH)
async def test_a_reader_that_reconnects_gets_each_frame_once(house: House, caller: Caller) -> None:
    async with caller.stream("go") as feed:
        await begun(house, feed)
    async with caller.reconnect(feed) as back, caller.attach(feed.ids.task) as other:
        await begun(house, other)
        house.release()
        assert await back.end() == TaskView("completed", text="first last")
        assert await other.end() == back.task
    async with caller.replay(feed.ids.task) as replay:
        await replay.end()
    assert feed.frames + back.frames == replay.frames


@pairs("slow", Feature.REATTACH)
async def test_a_run_continues_without_its_reader(house: House, caller: Caller) -> None:
    async with caller.stream("go") as feed:
        await begun(house, feed)
    house.release()
    await house.ended(feed.ids.task)
    async with caller.reconnect(feed) as back:
        assert await back.end() == TaskView("completed", text="first last")
    async with caller.replay(feed.ids.task) as replay:
        await replay.end()
    assert feed.frames + back.frames == replay.frames


@pairs("progress", Feature.PROGRESS)
async def test_progress_is_reported_separately_from_the_answer(house: House, caller: Caller) -> None:
    if caller.follows and house.live:
        async with caller.stream("go") as feed:
            view = await feed.until(lambda view: view.asides == ("Half way.",))
            assert view == TaskView("working", asides=("Half way.",))
            view = await feed.end()
    else:
        view = await caller.run_to_end("go")
    assert view == TaskView("completed", text="Done.", asides=("Half way.",))
    assert (await caller.look(view.task_id)).text == "Done."


@pairs("metadata", Feature.REASONING)
async def test_a_thought_is_separate_from_the_answer(house: House, caller: Caller) -> None:
    view = await caller.run_to_end("two words")
    assert view == TaskView("completed", text="As cited.", asides=("Thinking about it.",))


@pairs("metadata", shows=METADATA_FEATURES)
async def test_exactly_the_lost_features_are_reported(house: House, caller: Caller) -> None:
    view = await caller.run_to_end("two words")
    assert view.lasting == TaskView("completed", text="As cited.")
    expected = named(house, caller, {*METADATA_FEATURES, Feature.TEXT, *house.kind.shows})
    assert await caller.losses(view.task_id) == {str(feature) for feature in expected}


@pairs("varied", shows=tuple(VARIED))
async def test_lossless_features_are_not_reported_as_lost(house: House, caller: Caller) -> None:
    view = await caller.run_to_end("go")
    whole = {str(feature) for feature in Feature if house.cell(caller, feature).level == "full"}
    streamed = {str(feature) for feature, carry in caller.carries.items() if carry.streamed_only}
    assert await caller.losses(view.task_id) & whole <= streamed


@pairs("varied", shows=tuple(VARIED))
async def test_features_that_are_not_lost_arrive(house: House, caller: Caller) -> None:
    body = bytearray()
    async with recording(caller, body):
        views = await caller.run_in_each_way("go")
    assert {view.state for view in views} == {"completed"}
    for view in views:  # whose bytes may have come as base64
        body += b"\n".join(view.files.values())
    features = [feature for feature in VARIED if house.cell(caller, feature).level != "dropped"]
    missing = [feature for feature in features if not all(word.encode() in body for word in VARIED[feature])]
    assert missing == [], body.decode(errors="replace")
    values = values_in(body)
    steps = [name for name in values.get(Feature.STEP, ()) if name != "varied"]  # the step of the whole agent
    found = {**values, Feature.STEP: steps}
    whole = [feature for feature in VARIED if house.cell(caller, feature).level == "full"]
    assert {feature: found.get(feature) for feature in whole} == {feature: VARIED_VALUES[feature] for feature in whole}


@pairs("noted", Feature.METADATA)
async def test_a_tasks_metadata_is_stored_and_reaches_the_agent(house: House, caller: Caller) -> None:
    caller.metadata = {"ticket": "no-11037", "label": "two words"}
    view = await caller.send("go")
    reaches = house.carries[Feature.METADATA].level != "dropped"
    assert view == TaskView("completed", text="no-11037" if reaches else "nothing")
    body = bytearray()
    async with recording(caller, body):
        await caller.look(view.task_id)
    holders = [each for message in messages_in(body) for each in objects_in(message) if "ticket" in each]
    assert holders
    assert all(each.items() >= caller.metadata.items() for each in holders), holders


@pairs("outside", Feature.CALLER_TOOLS, Feature.QUESTION)
async def test_a_callers_tool_is_called_and_returns_its_result(house: House, caller: Caller) -> None:
    caller.tools = (WEATHER,)
    paused = await caller.send("go")
    (question,) = paused.questions
    assert paused.state == "input_required"
    if house.cell(caller, Feature.CALLER_TOOLS).level == "full" or question.value is not None:
        assert call_in(question) == ("weather", {"city": "Paris"}), question
    else:
        assert all(word in question.text for word in ("weather", "Paris")), question
    cannot_offer = any(
        carry.how.startswith("a caller cannot offer") for _, carry in house.cell(caller, Feature.CALLER_TOOLS).losses
    )
    offered = [] if cannot_offer else ["weather"]
    assert await caller.answer(paused, "rain") == TaskView("completed", text=f"{offered}: rain")


def call_in(question: Question) -> tuple[Any, Any]:
    """Return the name and arguments of a call, given directly or as a headless tool."""
    call: Any = question.value
    call = call.get("tool_call", call)
    arguments = call.get("args", call.get("arguments"))
    return call["name"], json.loads(arguments) if isinstance(arguments, str) else arguments


_AS_IT_CAME: Final[Mapping[tuple[str, str], Set[Feature]]] = {
    ("openai", "openai-responses"): {Feature.TOOL_ACTIVITY},
}
"""Features whose loss is not reported, by kind of agents and protocol of the caller. In general the caller's protocol
carries them with a loss. Here, the gateway passes on the objects of an official server unchanged."""


def named(house: House, caller: Caller, features: Set[Feature]) -> Iterator[Feature]:
    """Yield the features that must be reported as lost.

    Both the agent's server and the gateway report losses. A feature that arrives in another form or place has no loss
    that could be named.
    """
    levels = {"dropped", "lossy"} if caller.names_partial else {"dropped"}
    for feature in features:
        here, there = house.carries[feature], caller.carries[feature]
        passed_on = _AS_IT_CAME.get((house.kind.agent, caller.speaks), ())
        if house.kind.cast is not None and feature in passed_on:
            continue
        # A feature that is carried by a mark arrives. A caller that reads the task is informed of what only streams
        # have.
        is_streamed = there.streamed_only and caller.names_partial
        partly = (there.level in levels or is_streamed) and feature is not Feature.USAGE
        if here.level in house.kind.tells or (here.level != "dropped" and (there.level == "dropped" or partly)):
            yield feature
