"""Tests of calls of agents in process: failures, cancels and threads."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import pytest

from babelgate.canonical import Ask, Event, FaultCode, FaultError
from babelgate.canonical.agent import DETACH
from babelgate.conformance.contract import Dialogue
from babelgate.conformance.contract.dialogue import start_run
from tests.gateway.talk import agent, run_agent, within

# Failures


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
    ("error", "message"),
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
async def test_an_exception_is_reported_and_logged(
    error: BaseException, message: str, caplog: pytest.LogCaptureFixture
):
    for target in raising(error):
        caplog.clear()
        reply = await run_agent(target)
        assert reply.fault is not None
        assert (reply.fault.code, reply.fault.message) == (FaultCode.AGENT_FAILED, message)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert caplog.records[0].exc_info is not None


async def test_a_fault_raised_by_the_agent_keeps_its_message():
    for target in raising(FaultError(FaultCode.UNSUPPORTED, "Only German", language="de")):
        reply = await run_agent(target)
        assert reply.fault is not None
        assert (reply.fault.code, reply.fault.message) == (FaultCode.UNSUPPORTED, "Only German")
        assert reply.fault.details == {"language": "de"}


async def test_a_stop_iteration_in_a_function_does_not_hang():
    for target in raising(StopIteration("x")):
        reply = await within(run_agent(target))
        assert reply.fault is not None and reply.fault.code is FaultCode.AGENT_FAILED


async def test_a_very_long_exception_message_is_cut():
    def fail(text: str) -> str:
        raise RuntimeError("x" * 1_000_000)

    reply = await run_agent(fail)
    assert reply.fault is not None and len(reply.fault.message) < 20_000


# Cancels


async def consume(target: Any, text: str = "x") -> list[Event]:
    events: list[Event] = []
    async with aclosing(start_run(target, Dialogue(target).call(text))) as run:
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
    async with aclosing(start_run(target, Dialogue(target).call("x"))) as run:
        assert await within(anext(run)) is not None
    assert closed == ["sync" if sync else "async"]


async def test_a_cancelled_run_waits_for_its_synchronous_function():
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
            run.cancel()  # a second cancel has no effect
            assert not run.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await within(run)
        assert ended.is_set()


@pytest.mark.parametrize("generator", [True, False])
async def test_a_stop_does_not_wait_for_synchronous_functions(generator: bool):
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


async def test_an_exception_while_closing_is_only_logged(caplog: pytest.LogCaptureFixture):
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
        target_agent = agent(target)
        async with aclosing(start_run(target_agent, Dialogue(target_agent).call("x"))) as run:
            await anext(run)
        assert len(caplog.records) == 1


# Threads and contexts


async def test_each_synchronous_agent_runs_in_a_separate_thread():
    threads: set[int] = set()
    together = threading.Barrier(40)

    def blocking(text: str) -> Iterator[str]:
        mine = threading.get_ident()
        threads.add(mine)
        together.wait(5)  # forty at once: no call waits for the thread of another
        yield "a"
        assert threading.get_ident() == mine
        yield "b"
        assert threading.get_ident() == mine

    target = agent(blocking)
    replies = await asyncio.gather(*(Dialogue(target).say("x") for _ in range(40)))
    assert [one.fault for one in replies] == [None] * 40
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


async def test_the_end_of_a_paused_task_closes_its_agent():
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
    assert len(target.paused) == 0


async def test_an_iterable_that_is_no_generator_is_sent():
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

    assert (await run_agent(counts)).text == "210"
