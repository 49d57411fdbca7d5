"""Calls of agents in process: how they fail, ask, are cancelled, and start over."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import pytest

from canonical import Artifact, Ask, Declined, Event, FaultCode, FaultError, Invocation, Message, Step
from canonical.agent import DETACH
from canonical.event import InterruptRaised, MessageStarted, PartAdded, PartDelta
from conformance.contract import Dialogue, check_agent
from conformance.contract.dialogue import started
from tests.gateway.talk import agent, tell, within

# Failing


class Awkward(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raising(error: BaseException) -> list[Callable[[str], object]]:
    def plainly(text: str) -> str:
        raise error

    async def awaited(text: str) -> str:
        raise error

    def generated(text: str) -> Iterator[str]:
        yield "a"
        raise error

    async def async_generated(text: str) -> AsyncIterator[str]:
        yield "a"
        raise error

    return [plainly, awaited, generated, async_generated]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("it broke"), "RuntimeError: it broke"),
        (RuntimeError(), "RuntimeError"),
        (KeyError("k"), "KeyError: 'k'"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError("late"), "TimeoutError: late"),
        (ValueError("\ud800"), "ValueError: ?"),
        (asyncio.CancelledError("own"), "CancelledError: own"),
        (Awkward(), "Awkward"),
    ],
)
async def test_an_exception_is_told_in_its_own_words_and_logged(
    error: BaseException, told: str, caplog: pytest.LogCaptureFixture
):
    for target in raising(error):
        caplog.clear()
        heard = await tell(target)
        assert heard.fault is not None
        assert (heard.fault.code, heard.fault.message) == (FaultCode.AGENT_FAILED, told)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert caplog.records[0].exc_info is not None


async def test_a_fault_of_the_agents_own_keeps_its_words():
    for target in raising(FaultError(FaultCode.UNSUPPORTED, "Only German", language="de")):
        heard = await tell(target)
        assert heard.fault is not None
        assert (heard.fault.code, heard.fault.message) == (FaultCode.UNSUPPORTED, "Only German")
        assert heard.fault.details == {"language": "de"}


async def test_a_stop_iteration_in_a_function_does_not_hang():
    for target in raising(StopIteration("x")):
        heard = await within(tell(target))
        assert heard.fault is not None and heard.fault.code is FaultCode.AGENT_FAILED


async def test_very_long_words_of_an_exception_are_cut():
    def fail(text: str) -> str:
        raise RuntimeError("x" * 1_000_000)

    heard = await tell(fail)
    assert heard.fault is not None and len(heard.fault.message) < 20_000


# Asking


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


@pytest.mark.parametrize("asker", ASKERS)
async def test_a_question_pauses_the_run_and_its_answer_goes_on(asker: object):
    dialogue = Dialogue(agent(asker))
    paused = await dialogue.say("there")
    assert [question.message.text for question in paused.questions] == ["Name?"]
    assert paused.text == "Well. "
    answered = await dialogue.answer("Ann")
    assert answered.text == "Hello Ann there"
    assert answered.questions == []


@pytest.mark.parametrize("asker", ASKERS)
async def test_everything_is_closed_before_a_question(asker: object):
    heard = await Dialogue(agent(asker)).say("x")
    assert [event.kind for event in heard.events][-3:] == ["part_ended", "message_ended", "interrupt_raised"]


@pytest.mark.parametrize("asker", ASKERS)
async def test_agents_that_ask_pass_the_contract(asker: object):
    await check_agent(lambda: agent(asker))


async def test_several_questions_are_asked_at_once_and_answered_in_order():
    async def asker(text: str) -> AsyncGenerator[object, Any]:
        got = yield [Ask("a"), Ask("b")]
        yield f"{got!r}"
        got = yield (Ask("c"), Ask("d"))
        yield f"{got!r}"

    dialogue = Dialogue(agent(asker))
    assert len((await dialogue.say("x")).questions) == 2
    second = await dialogue.answer("1", {"n": 2})
    assert second.text == "['1', {'n': 2}]"
    assert (await dialogue.answer(None, 4)).text == "(None, 4)"


async def test_one_question_in_a_list_is_answered_by_a_list():
    async def asker(text: str) -> AsyncGenerator[object, Any]:
        (got,) = yield [Ask("a")]
        yield f"{got}"

    dialogue = Dialogue(agent(asker))
    await dialogue.say("x")
    assert (await dialogue.answer("1")).text == "1"


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
    heard = await dialogue.reply(("answer", "yes"), ("decline", None))
    assert heard.text == "('yes', None)"


async def test_an_agent_that_needs_its_answer_fails_when_it_is_declined():
    dialogue = Dialogue(agent(name_asker))
    await dialogue.say("x")
    heard = await dialogue.decline()
    assert heard.fault is not None
    assert heard.fault.message == "Declined: The caller declined to answer."


async def test_a_function_that_asks_is_called_again_with_the_answers():
    async def asker(call: Invocation) -> Ask | str:
        return f"Hello {call.answers[0].value}" if call.answers else Ask("Name?")

    def sync_asker(call: Invocation) -> list[Ask] | str:
        return f"Hello {call.answers[0].value}" if call.answers else [Ask("Name?")]

    for target in (asker, sync_asker):
        dialogue = Dialogue(agent(target))
        assert len((await dialogue.say("x")).questions) == 1
        assert (await dialogue.answer("Ann")).text == "Hello Ann"


async def test_a_paused_agent_keeps_what_it_had():
    """What it holds (here: an object of its own) is the same after the answer."""
    kept: list[object] = []

    async def asker(text: str) -> AsyncGenerator[object, Any]:
        kept.append(object())
        mine = kept[-1]
        yield Ask("?")
        assert kept == [mine]
        yield "kept"

    dialogue = Dialogue(agent(asker))
    await dialogue.say("x")
    assert (await dialogue.answer("y")).text == "kept"


# Starting over


@pytest.mark.parametrize("asker", ASKERS)
async def test_a_paused_agent_that_is_gone_goes_on_as_if_it_were_not(asker: object):
    parked, gone = Dialogue(agent(asker)), Dialogue(agent(asker, parked=0))
    for dialogue in (parked, gone):
        await dialogue.say("there")
    assert (await gone.answer("Ann")).words == (await parked.answer("Ann")).words


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
    heard = await dialogue.say("input")
    for restarted, answers in zip(restarts, (["1"], ["2", "3"], ["4"]), strict=True):
        if restarted:
            dialogue.agent = agent(everything)
        heard = await dialogue.answer(*answers)
        assert heard.fault is None
    assert heard.text == "0 1 2 3 4 input input "


async def test_what_was_said_before_is_not_said_again():
    dialogue = Dialogue(agent(everything))
    first = await dialogue.say("input")
    dialogue.agent = agent(everything)
    second = await dialogue.answer("1")
    assert [message.text for message in first.messages] == ["thinking", "working on it"]
    assert [message.text for message in second.messages] == ["first 1"]
    assert not any(event.kind == "artifact_added" for event in second.events)


async def test_a_follow_up_starts_afresh_and_its_question_is_its_own():
    dialogue = Dialogue(agent(name_asker))
    await dialogue.say("one")
    await dialogue.answer("Ann")
    await dialogue.say("two", cause="follow_up")
    dialogue.agent = agent(name_asker)
    assert (await dialogue.answer("Bob")).text == "Hello Bob two"


async def test_an_agent_that_says_something_else_the_second_time_is_not_replayable():
    count = iter(range(10))

    async def forgetful(text: str) -> AsyncGenerator[object, Any]:
        yield f"try {next(count)}"
        yield Ask("?")

    dialogue = Dialogue(agent(forgetful, parked=0))
    await dialogue.say("x")
    heard = await dialogue.answer("y")
    assert heard.fault is not None and heard.fault.code is FaultCode.AGENT_NOT_REPLAYABLE
    assert heard.events == []


@pytest.mark.parametrize("what", ["ends", "raises", "asks more", "asks less", "another file"])
async def test_every_other_course_is_a_divergence(what: str):
    calls = iter(range(10))

    async def forgetful(text: str) -> AsyncGenerator[object, Any]:
        again = next(calls) > 0
        yield Artifact.of("a", b"other" if again and what == "another file" else b"file")
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
    heard = await dialogue.answer("1", "2")
    assert heard.fault is not None
    assert heard.fault.code is FaultCode.AGENT_NOT_REPLAYABLE, heard.fault
    assert heard.events == []


async def test_an_agent_that_is_not_to_be_run_again_fails_at_once():
    calls: list[str] = []

    async def once(text: str) -> AsyncGenerator[object, Any]:
        calls.append(text)
        yield Ask("?")

    dialogue = Dialogue(agent(once, parked=0, replay=False))
    await dialogue.say("x")
    heard = await dialogue.answer("y")
    assert heard.fault is not None and heard.fault.code is FaultCode.AGENT_NOT_REPLAYABLE
    assert calls == ["x"]


async def test_an_agent_that_is_not_to_be_run_again_goes_on_while_it_is_parked():
    dialogue = Dialogue(agent(name_asker, replay=False))
    await dialogue.say("there")
    assert (await dialogue.answer("Ann")).text == "Hello Ann there"


async def test_records_that_do_not_tell_are_no_reason_to_guess():
    dialogue = Dialogue(agent(name_asker, parked=0))
    await dialogue.say("x")
    dialogue.records.clear()
    heard = await dialogue.answer("y")
    assert heard.fault is not None and heard.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


async def test_the_oldest_parked_agent_makes_room_and_starts_over_when_it_is_answered():
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
    assert len(target.parking) == 2
    answers = [await dialogue.answer("Ann") for dialogue in dialogues]
    assert [answer.text for answer in answers] == ["Ann 0", "Ann 1", "Ann 2"]
    await target.aclose()
    assert sorted(closed) == ["0", "0", "1", "2"]


# Cancelling


async def consume(target: Any, said: str = "x") -> list[Event]:
    events: list[Event] = []
    async with aclosing(started(target, Dialogue(target).call(said))) as run:
        async for event in run:
            events.append(event)
    return events


async def test_cancelling_reaches_an_async_agent_where_it_waits():
    waiting, cleaned = asyncio.Event(), asyncio.Event()

    async def waiter(text: str) -> AsyncIterator[str]:
        try:
            yield "a"
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cleaned.set()
            raise

    async def plainly(text: str) -> str:
        return "".join([token async for token in waiter(text)])

    for target in (waiter, plainly):
        waiting.clear()
        cleaned.clear()
        run = asyncio.ensure_future(consume(agent(target)))
        await within(waiting.wait())
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(run)
        assert cleaned.is_set()


@pytest.mark.parametrize("sync", [True, False])
async def test_closing_the_run_closes_the_generator_where_it_yields(sync: bool):
    closed: list[str] = []

    def endless(text: str) -> Iterator[str]:
        try:
            while True:
                yield "a"
        finally:
            closed.append("sync")

    async def async_endless(text: str) -> AsyncIterator[str]:
        try:
            while True:
                yield "a"
        finally:
            closed.append("async")

    target = agent(endless if sync else async_endless)
    async with aclosing(started(target, Dialogue(target).call("x"))) as run:
        assert await within(anext(run)) is not None
    assert closed == ["sync" if sync else "async"]


async def test_a_cancelled_function_in_a_thread_keeps_its_run_until_it_ends():
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def stubborn(text: str) -> str:
        started.set()
        release.wait(5)
        ended.set()
        return "late"

    def stubborn_generator(text: str) -> Iterator[str]:
        yield stubborn(text)

    for target in (stubborn, stubborn_generator):
        for flag in (started, release, ended):
            flag.clear()
        run = asyncio.ensure_future(consume(agent(target)))
        await within(asyncio.to_thread(started.wait))
        run.cancel()
        for _ in range(3):
            await asyncio.wait((run,), timeout=0.01)
            run.cancel()  # again: it makes no difference
            assert not run.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await within(run)
        assert ended.is_set()


@pytest.mark.parametrize("generator", [True, False])
async def test_a_gateway_that_stops_does_not_wait_for_a_function_in_a_thread(generator: bool):
    began, release = threading.Event(), threading.Event()

    def stubborn(text: str) -> str:
        began.set()
        release.wait(5)
        return "late"

    def stubborn_generator(text: str) -> Iterator[str]:
        yield stubborn(text)

    run = asyncio.ensure_future(consume(agent(stubborn_generator if generator else stubborn)))
    await within(asyncio.to_thread(began.wait))
    run.cancel(DETACH)
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    assert not release.is_set()
    release.set()


async def test_what_an_agent_raises_while_it_is_closed_is_logged_and_goes_no_further(caplog: pytest.LogCaptureFixture):
    async def clumsy(text: str) -> AsyncIterator[str]:
        try:
            yield "a"
        finally:
            raise RuntimeError("clumsy")

    async def stubborn(text: str) -> AsyncIterator[str]:
        try:
            yield "a"
        finally:
            yield "b"

    for target in (clumsy, stubborn):
        caplog.clear()
        made = agent(target)
        async with aclosing(started(made, Dialogue(made).call("x"))) as run:
            await anext(run)
        assert len(caplog.records) == 1


# Threads and contexts


async def test_synchronous_agents_run_off_the_event_loop_each_in_a_thread_of_its_own():
    threads: set[int] = set()
    together = threading.Barrier(40)

    def blocking(text: str) -> Iterator[str]:
        mine = threading.get_ident()
        threads.add(mine)
        together.wait(5)  # forty at once: none waits for another's thread
        yield "a"
        assert threading.get_ident() == mine
        yield "b"
        assert threading.get_ident() == mine

    target = agent(blocking)
    heard = await asyncio.gather(*(Dialogue(target).say("x") for _ in range(40)))
    assert [one.fault for one in heard] == [None] * 40
    assert len(threads) == 40
    assert threading.get_ident() not in threads


async def test_threads_end_with_their_agents():
    def steps(text: str) -> Generator[object, Any, None]:
        yield "a"
        yield Ask("?")
        yield "b"

    def plainly(text: str) -> str:
        return text

    def fails(text: str) -> str:
        raise RuntimeError(text)

    others = set(threading.enumerate())

    def of_agents() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "agent-agent"} - others

    targets = [agent(steps), agent(plainly), agent(fails)]
    for target in targets:
        await Dialogue(target).say("x")
    assert len(of_agents()) == 3
    for target in targets:
        await target.aclose()
    for thread in of_agents():
        await within(asyncio.to_thread(thread.join))


async def test_context_variables_reach_and_stay_with_a_synchronous_agent():
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    def seeing(text: str) -> Generator[object, Any, None]:
        yield variable.get()
        variable.set("own")
        yield f" {variable.get()}"
        yield Ask("?")
        yield variable.get()

    variable.set("callers")
    dialogue = Dialogue(agent(seeing))
    assert (await dialogue.say("x")).text == "callers own"
    variable.set("changed")
    assert (await dialogue.answer("y")).text == "own"
    assert variable.get() == "changed"


async def test_the_task_that_ended_while_it_was_paused_frees_its_agent():
    closed = asyncio.Event()

    async def asker(text: str) -> AsyncGenerator[object, Any]:
        try:
            yield Ask("?")
        finally:
            closed.set()

    target = agent(asker)
    dialogue = Dialogue(target)
    await dialogue.say("x")
    target.forget(dialogue.owner, dialogue.task_id)
    await within(closed.wait())
    assert len(target.parking) == 0


async def test_an_iterable_that_is_no_generator_is_said_too():
    class Countdown:
        def __init__(self) -> None:
            self.left = 3

        def __aiter__(self) -> "Countdown":
            return self

        async def __anext__(self) -> str:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return str(self.left)

    def counts(text: str) -> Countdown:
        return Countdown()

    assert (await tell(counts)).text == "210"


async def test_a_step_that_is_open_at_a_question_ends_there():
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
