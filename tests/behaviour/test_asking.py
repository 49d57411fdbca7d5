"""Agents in process that ask questions: how they pause, resume and start over."""

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from babelgate.canonical import Artifact, Ask, Declined, FaultCode, Invocation, Message, Step
from babelgate.canonical.event import InterruptRaised, MessageStarted, PartAdded, PartDelta
from babelgate.conformance.contract import Dialogue, check_agent
from tests.gateway.talk import agent


async def name_asker(text: str) -> AsyncGenerator[object, Any]:
    yield "Well. "
    name = yield Ask("Name?")
    yield f"Hello {name} {text}"


def sync_name_asker(text: str) -> Generator[object, Any, None]:
    yield "Well. "
    name = yield Ask("Name?")
    yield f"Hello {name} {text}"


async def raw_asker(text: str) -> AsyncGenerator[object, Any]:
    yield "Well. "
    name = yield InterruptRaised(message=Message.of("Name?"))
    yield f"Hello {name} {text}"


ASKERS = [name_asker, sync_name_asker, raw_asker]


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("asker", ASKERS)
async def test_a_question_pauses_the_run_until_its_answer(asker: object, replay: bool):
    dialogue = Dialogue(agent(asker, replay=replay))
    paused = await dialogue.say("there")
    assert [question.message.text for question in paused.questions] == ["Name?"]
    assert paused.text == "Well. "
    assert [event.kind for event in paused.events][-3:] == ["part_ended", "message_ended", "interrupt_raised"]
    answered = await dialogue.answer("Ann")
    assert answered.text == "Hello Ann there"
    assert answered.questions == []


@pytest.mark.parametrize("asker", ASKERS)
async def test_agents_that_ask_pass_the_contract(asker: object):
    await check_agent(lambda: agent(asker))


async def test_several_questions_at_once_are_answered_in_order():
    async def asker(text: str) -> AsyncGenerator[object, Any]:
        answers = yield [Ask("a"), Ask("b")]
        yield f"{answers!r}"
        answers = yield (Ask("c"), Ask("d"))
        yield f"{answers!r}"
        (answers,) = yield [Ask("e")]
        yield f"{answers!r}"

    dialogue = Dialogue(agent(asker))
    assert len((await dialogue.say("x")).questions) == 2
    second = await dialogue.answer("1", {"n": 2})
    assert second.text == "['1', {'n': 2}]"
    assert (await dialogue.answer(None, 4)).text == "(None, 4)"
    assert (await dialogue.answer("1")).text == "'1'"


async def test_a_question_carries_its_schema_kind_and_value():
    async def asker(text: str) -> AsyncGenerator[object, Any]:
        yield Ask("May I?", schema={"type": "boolean"}, kind="approval", value={"action": "write"})

    (question,) = (await Dialogue(agent(asker)).say("x")).questions
    assert (question.ask, question.answer_schema, question.value) == (
        "approval",
        {"type": "boolean"},
        {"action": "write"},
    )


@pytest.mark.parametrize("parked", [1, 0])
async def test_a_declined_question_raises_at_its_yield(parked: int):
    def asker(text: str) -> Generator[object, Any, None]:
        try:
            yield [Ask("a"), Ask("b")]
        except Declined as declined:
            yield f"{declined.answers}"

    dialogue = Dialogue(agent(asker, parked=parked))
    await dialogue.say("x")
    reply = await dialogue.reply(("answer", "yes"), ("decline", None))
    assert reply.text == "('yes', None)"


async def test_an_agent_that_needs_a_declined_answer_fails():
    dialogue = Dialogue(agent(name_asker))
    await dialogue.say("x")
    reply = await dialogue.decline()
    assert reply.fault is not None
    assert reply.fault.message == "Declined: The caller declined to answer."


async def test_a_function_that_asks_is_called_again_with_the_answers():
    async def asker(call: Invocation) -> Ask | str:
        return f"Hello {call.answers[0].value}" if call.answers else Ask("Name?")

    def sync_asker(call: Invocation) -> list[Ask] | str:
        return f"Hello {call.answers[0].value}" if call.answers else [Ask("Name?")]

    for target in (asker, sync_asker):
        dialogue = Dialogue(agent(target))
        assert len((await dialogue.say("x")).questions) == 1
        assert (await dialogue.answer("Ann")).text == "Hello Ann"


async def test_a_paused_agent_keeps_its_local_objects():
    """Check that a local object of the agent is the same one after the answer."""
    objects: list[object] = []

    async def asker(text: str) -> AsyncGenerator[object, Any]:
        objects.append(object())
        mine = objects[-1]
        yield Ask("?")
        assert objects == [mine]
        yield "kept"

    dialogue = Dialogue(agent(asker))
    await dialogue.say("x")
    assert (await dialogue.answer("y")).text == "kept"


# Starting over


@pytest.mark.parametrize("asker", ASKERS)
async def test_an_agent_that_starts_over_answers_like_a_parked_one(asker: object):
    parked, dropped = Dialogue(agent(asker)), Dialogue(agent(asker, parked=0))
    for dialogue in (parked, dropped):
        await dialogue.say("there")
    assert (await dropped.answer("Ann")).words == (await parked.answer("Ann")).words


async def everything(call: Invocation) -> AsyncGenerator[object, Any]:
    yield Step("plan")
    yield "thinking"
    yield Message.of("working on it", phase="progress")
    yield Artifact.of("a.txt", f"for {call.text}")
    yield Artifact(name="b", parts=(*Artifact.of("x", b"1").parts, *Artifact.of("y", b"2").parts))
    first = yield Ask("first?")
    yield f"first {first}"
    yield {"data": first}
    second, third = yield [Ask("second?"), Ask("third?")]
    yield MessageStarted(message_id="own")
    yield PartAdded(message_id="own", index=0, part=Message.of("left ").parts[0], open=True)
    yield PartDelta(message_id="own", index=0, text="open")
    fourth = yield Ask("fourth?")
    yield f"{len(call.history)} {first} {second} {third} {fourth} {call.text} {call.cause} {call.run_id[:0]}"


@pytest.mark.parametrize(
    "restarts", [(True, True, True), (False, True, False), (True, False, True), (False, False, True)]
)
async def test_an_agent_may_start_over_at_any_of_its_questions(restarts: tuple[bool, ...]):
    dialogue = Dialogue(agent(everything))
    reply = await dialogue.say("input")
    for restarted, answers in zip(restarts, (["1"], ["2", "3"], ["4"]), strict=True):
        if restarted:
            dialogue.agent = agent(everything)
        reply = await dialogue.answer(*answers)
        assert reply.fault is None
    assert reply.text == "0 1 2 3 4 input input "


async def test_a_started_over_agent_does_not_repeat_its_messages():
    dialogue = Dialogue(agent(everything))
    first = await dialogue.say("input")
    dialogue.agent = agent(everything)
    second = await dialogue.answer("1")
    assert [message.text for message in first.messages] == ["thinking", "working on it"]
    assert [message.text for message in second.messages] == ["first 1"]
    assert not any(event.kind == "artifact_added" for event in second.events)


async def test_a_follow_up_asks_a_new_question_after_a_restart():
    dialogue = Dialogue(agent(name_asker))
    await dialogue.say("one")
    await dialogue.answer("Ann")
    await dialogue.say("two", cause="follow_up")
    dialogue.agent = agent(name_asker)
    assert (await dialogue.answer("Bob")).text == "Hello Bob two"


@pytest.mark.parametrize("what", ["says something else", "ends", "raises", "asks more", "asks less", "another file"])
async def test_an_agent_that_replays_differently_is_not_replayable(what: str):
    calls = iter(range(10))

    async def forgetful(text: str) -> AsyncGenerator[object, Any]:
        again = next(calls) > 0
        yield Artifact.of("a", b"other" if again and what == "another file" else b"file")
        if again and what == "says something else":
            yield "try again"
        if again and what == "ends":
            return
        if again and what == "raises":
            raise RuntimeError("boom")
        if again and what == "asks more":
            yield [Ask("a"), Ask("b"), Ask("c")]
        yield [Ask("a")] if again and what == "asks less" else [Ask("a"), Ask("b")]
        yield "over"

    dialogue = Dialogue(agent(forgetful, parked=0))
    await dialogue.say("x")
    reply = await dialogue.answer("1", "2")
    assert reply.fault is not None
    assert reply.fault.code is FaultCode.AGENT_NOT_REPLAYABLE, reply.fault
    assert reply.events == []


async def test_an_agent_with_replay_off_fails_at_once():
    calls: list[str] = []

    async def once(text: str) -> AsyncGenerator[object, Any]:
        calls.append(text)
        yield Ask("?")

    dialogue = Dialogue(agent(once, parked=0, replay=False))
    await dialogue.say("x")
    reply = await dialogue.answer("y")
    assert reply.fault is not None and reply.fault.code is FaultCode.AGENT_NOT_REPLAYABLE
    assert calls == ["x"]


async def test_missing_records_make_an_agent_not_replayable():
    dialogue = Dialogue(agent(name_asker, parked=0))
    await dialogue.say("x")
    dialogue.records.clear()
    reply = await dialogue.answer("y")
    assert reply.fault is not None and reply.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


async def test_the_oldest_parked_agent_is_closed_and_starts_over():
    closed: list[str] = []

    async def asker(text: str) -> AsyncGenerator[object, Any]:
        try:
            name = yield Ask("Name?")
            yield f"{name} {text}"
        finally:
            closed.append(text)

    target = agent(asker, parked=2)
    dialogues = [Dialogue(target) for _ in range(3)]
    for number, dialogue in enumerate(dialogues):
        await dialogue.say(str(number))
    assert len(target.paused) == 2
    answers = [await dialogue.answer("Ann") for dialogue in dialogues]
    assert [answer.text for answer in answers] == ["Ann 0", "Ann 1", "Ann 2"]
    await target.aclose()
    assert sorted(closed) == ["0", "0", "1", "2"]


async def test_a_question_ends_the_open_step():
    async def asker(text: str) -> AsyncGenerator[object, Any]:
        yield Step("a")
        yield Ask("?")
        yield Step("b")

    dialogue = Dialogue(agent(asker, parked=0))
    assert [event.kind for event in (await dialogue.say("x")).events] == [
        "step_started",
        "step_ended",
        "interrupt_raised",
    ]
    assert [event.kind for event in (await dialogue.answer("y")).events] == ["step_started", "step_ended"]
