"""Agents in process: wraps any Python callable as an Agent. `babelgate.canonical.replay` replays lost generators.

A generator that asks is parked until the answer comes. If it is gone by then, its function runs again from the start
with the recorded answers, and what it says again is matched against the log and dropped.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, Protocol, cast

from babelgate.canonical import Agent, AgentInfo, Declined, Event, FaultCode, FaultError, Invocation
from babelgate.canonical.event import InterruptAnswered, InterruptRaised, RunEnded
from babelgate.canonical.replay import ReplayCursor, ReplayPlan, replay_plan
from babelgate.canonical.thread import next_run_id
from babelgate.canonical.value import Json
from babelgate.gateway.agents.python.paused import PausedGenerators
from babelgate.gateway.agents.python.signature import Signature, describe, signature_of
from babelgate.gateway.agents.python.threads import Worker, Workers
from babelgate.gateway.agents.python.yielded import YieldEncoder

log = logging.getLogger("babelgate.agent")

_MAX_WORDS = 10_000
"""Characters of an exception's message that callers are told."""


def wrap(
    target: object, name: str, *, replay: bool = True, parked: int = 1000, parked_ttl: float = 3600
) -> tuple[AgentInfo, Agent]:
    """The agent behind a Python object, and what is known of it.

    Takes an Agent (an instance with `run(call)`), or anything callable: functions and generator functions, sync and
    async, and instances with `__call__`.

    Args:
        replay: Whether a paused generator that is gone may run again from its start.
        parked: How many paused generators stay in memory, `parked_ttl` seconds each.

    Raises:
        TypeError: in words for the author, if it is nothing that can be called as an agent.
    """
    if not isinstance(target, type) and callable(getattr(target, "run", None)):
        return describe(target, name), cast("Agent", target)
    signature = signature_of(target)
    paused: PausedGenerators[_Call] = PausedGenerators(parked, parked_ttl)
    return describe(target, name, signature), InProcess(name, signature, replay=replay, paused=paused)


class _End:
    """A generator is at its end; `value` is what it returned."""

    def __init__(self, value: object = None) -> None:
        self.value = value


class _Steps(Protocol):
    """A started generator, sync or async. Each step gives what it yields, or its end; that of an async one may raise
    StopAsyncIteration instead."""

    def send(self, value: object, /) -> Awaitable[object]: ...
    def throw(self, error: Exception) -> Awaitable[object]: ...
    async def close(self) -> None: ...


class _AsyncSteps:
    def __init__(self, iterator: AsyncIterator[object]) -> None:
        self._iterator = iterator
        self._generator = cast("AsyncGenerator[object, object]", iterator) if hasattr(iterator, "asend") else None
        self.send: Callable[[object], Awaitable[object]]
        self.send = self._anext if self._generator is None else self._generator.asend

    def _anext(self, _: object) -> Awaitable[object]:
        return self._iterator.__anext__()

    def throw(self, error: Exception) -> Awaitable[object]:
        """Raises `error` where there is no generator to take it, and what the generator raises."""
        if self._generator is None:
            raise error
        return self._generator.athrow(error)

    async def close(self) -> None:
        if self._generator is not None:
            await self._generator.aclose()


class _SyncSteps:
    """Every step in the call's own thread."""

    def __init__(self, generator: Generator[object, object, object], worker: Worker) -> None:
        self._generator = generator
        self._worker = worker

    async def send(self, value: object) -> object:
        return await self._worker.do(self._step, self._generator.send, value)

    async def throw(self, error: Exception) -> object:
        return await self._worker.do(self._step, self._generator.throw, error)

    @staticmethod
    def _step(step: Callable[[Any], object], argument: object) -> object:
        try:
            return step(argument)
        except StopIteration as end:
            return _End(end.value)

    async def close(self) -> None:
        if not self._worker.has_started:  # then neither was the generator, and closing it runs nothing of the agent's
            self._generator.close()
            return
        try:
            if not self._worker.is_busy:
                await self._worker.do(self._generator.close)
        finally:
            self._worker.stop()


@dataclass(slots=True)
class _Call:
    """A started generator and what it has said: it lives over all runs of its task, parked in between."""

    name: str
    steps: _Steps
    encoder: YieldEncoder
    asked: int = 0
    """How many questions it waits on."""
    run_id: str = ""
    """In which run it asked them."""
    listed: type[list[Json]] | type[tuple[Json, ...]] | None = None
    """What it gets the answers in; None for one question that stood alone."""

    async def next(self, answers: Sequence[InterruptAnswered]) -> object:
        """Its next item. `answers` are those to what it asked last. Raises agent_failed, or the
        fault that the agent itself raises."""
        try:
            if not answers:
                return await self.steps.send(None)
            values = tuple(answer.value if answer.action == "answer" else None for answer in answers)
            if any(answer.action != "answer" for answer in answers):
                return await self.steps.throw(Declined(values))
            return await self.steps.send(values[0] if self.listed is None else self.listed(values))
        except BaseException as error:
            return self.end(error)

    def end(self, error: BaseException) -> "_End":
        """What it means that a step raised this. Raises as `next`."""
        if isinstance(error, StopAsyncIteration):
            return _End()
        told = _translate_error(error, self.name)
        if told is error:
            raise error
        raise told from error

    def events(self, item: object) -> Sequence[Event]:
        """Of an item or of the end; takes note of what it asks."""
        if isinstance(item, _End):
            self.asked = 0
            return self.encoder.answer(item.value)
        events = self.encoder.say(item)
        self.asked = sum(isinstance(event, InterruptRaised) for event in events)
        self.listed = list if isinstance(item, list) else tuple if isinstance(item, tuple) else None
        return events

    async def close(self) -> None:
        """Raise GeneratorExit in the agent where it stands, so that its `finally` runs. What it raises then is nobody's
        answer any more."""
        try:
            await self.steps.close()
        except (Exception, SystemExit):
            log.warning("agent raised an exception while it was closed agent=%s", self.name, exc_info=True)


def _translate_error(error: BaseException, name: str) -> BaseException:
    """What callers are told of an agent's exception: its type and words, never its traceback, which is logged."""
    if isinstance(error, FaultError | KeyboardInterrupt | GeneratorExit):
        return error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():  # else nobody cancels us: the agent awaited something that was cancelled
            return error
    log.warning("agent failed agent=%s", name, exc_info=error)
    kind = type(error).__name__
    try:
        words = str(error)[:_MAX_WORDS].encode("utf-8", "replace").decode()
    except Exception:
        words = ""  # it cannot even say what it is
    return FaultError(FaultCode.AGENT_FAILED, f"{kind}: {words}" if words else kind)


def _not_replayable_error(why: str) -> FaultError:
    return FaultError(FaultCode.AGENT_NOT_REPLAYABLE, f"The agent was paused and cannot go on: {why}.")


class InProcess:
    """A Python callable as an Agent."""

    def __init__(self, name: str, signature: Signature, *, replay: bool, paused: PausedGenerators[_Call]) -> None:
        self.name = name
        self.paused = paused
        self._signature = signature
        self._replay = replay
        self._workers = Workers(f"agent-{name}")
        self._blocks = _blocks(signature.function)

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        going, plan = await self._begin(call)
        if isinstance(going, _End):
            for event in YieldEncoder(call.run_id).answer(going.value):
                yield event
            return
        said = ReplayCursor(() if plan is None else plan.said)
        answers = call.answers if plan is None and call.cause == "answer" else ()
        pausing = False
        try:
            while True:
                if plan is not None:
                    item = await _next(going, answers, said)
                elif answers:
                    item = await going.next(answers)
                else:  # as `next` does it, without a coroutine more for each token
                    try:
                        item = await going.steps.send(None)
                    except BaseException as error:
                        item = going.end(error)
                if plan is None and type(item) is str:  # most of what an agent says is tokens
                    answers = ()
                    for event in going.encoder.say(item):
                        yield event
                    continue
                events = going.events(item)
                repeated: Sequence[Event] = ()
                if plan is not None:
                    events, repeated = said.split(events)
                answers = _answers_before(repeated, call, plan) if going.asked else ()
                for event in events:
                    yield event
                if isinstance(item, _End) or (events and isinstance(events[-1], RunEnded)):
                    said.end()
                    return
                if going.asked and not answers:
                    break
            going.run_id = call.run_id
            self.paused.park(call.owner, call.task_id, going)
            pausing = True
        finally:
            if not pausing:
                await going.close()

    async def aclose(self) -> None:
        """Close all that is parked."""
        await self.paused.close()
        self._workers.close()

    def forget(self, owner: str, task_id: str) -> None:
        """The task ended while it was paused: what is parked for it will not be needed."""
        self.paused.forget(owner, task_id)

    async def _begin(self, call: Invocation) -> "tuple[_Call | _End, ReplayPlan | None]":
        """Go on where it stands, or start it, or start it over with its story so far. A function that is no generator
        is simply called, with the answers; what it gave is the `_End`."""
        if call.cause == "answer":
            parked = self.paused.take(call.owner, call.task_id)
            if parked is not None and parked.asked == len(call.answers) and await _waits_for(parked, call):
                return parked, None
            if parked is not None:
                await parked.close()
        started = await self._start(call)
        if isinstance(started, _End) or call.cause != "answer":
            return started, None
        await started.close()
        plan = await self._replay_plan(call)
        return await self._start(_first_call(call, plan)), plan

    async def _start(self, call: Invocation) -> "_Call | _End":
        """Call it. A generator has run nothing of its own then; anything else has, and that is its end."""
        worker = self._workers.worker()
        value: object = None
        try:
            function, arguments = self._signature.function, self._signature.arguments(call)
            value = await worker.do(function, *arguments) if self._blocks else function(*arguments)
            if inspect.isawaitable(value):
                value = await value
        except BaseException as error:
            told = _translate_error(error, self.name)
            if told is error:
                raise
            raise told from error
        finally:
            if not inspect.isgenerator(value):
                worker.stop()
        encoder = YieldEncoder(call.run_id)
        if inspect.isgenerator(value):
            return _Call(self.name, _SyncSteps(cast("Generator[object, object, object]", value), worker), encoder)
        if isinstance(value, AsyncIterable):
            return _Call(self.name, _AsyncSteps(aiter(cast("AsyncIterable[object]", value))), encoder)
        return _End(value)

    async def _replay_plan(self, call: Invocation) -> ReplayPlan:
        """Replay of a paused generator that is not in memory any more: what its records say it did until it asked.
        Raises agent_not_replayable."""
        if not self._replay:
            raise _not_replayable_error("it was restarted in between, and it is not to be run again")
        records = await call.past()
        plan = replay_plan(records, call.answers[0].interrupt_id) if call.answers else None
        if plan is None:
            raise _not_replayable_error("its records do not tell how it came to its question")
        return plan


async def _waits_for(parked: _Call, call: Invocation) -> bool:
    """Whether it waits for these answers. Where gateways share a database another one may have gone on with the task
    since it asked, and asked again."""
    if next_run_id(parked.run_id) == call.run_id:
        return True
    asked = [record.run_id for record in await call.past() if isinstance(record.event, InterruptRaised)]
    return bool(asked) and asked[-1] == parked.run_id


def _blocks(function: Callable[..., Any]) -> bool:
    """Whether calling it may run code of its own at once, which then does not belong on the event loop."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return not (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
    )


def _first_call(call: Invocation, plan: ReplayPlan) -> Invocation:
    """The call that the story began with."""
    first = plan.first
    return replace(
        call,
        run_id=first.run_id,
        attempt=1,
        cause=first.cause,
        # The newest headers: what the caller's key was then may have expired.
        input=first.input.replace(config=first.config or call.config, headers=call.input.headers),
        answers=(),
        history=tuple(takewhile(lambda message: message.message_id not in plan.message_ids, call.history)),
    )


async def _next(going: _Call, answers: Sequence[InterruptAnswered], said: ReplayCursor) -> object:
    try:
        return await going.next(answers)
    except FaultError as error:
        if said.is_over:
            raise
        raise _not_replayable_error(
            f"it was started again and raised {error.fault.message!r} where it had not before"
        ) from error


def _answers_before(
    repeated: Sequence[Event], call: Invocation, plan: ReplayPlan | None
) -> Sequence[InterruptAnswered]:
    """The answers to questions that are asked again; none if they are new."""
    questions = [event.interrupt_id or "" for event in repeated if isinstance(event, InterruptRaised)]
    if not questions or plan is None:
        return ()
    known = {**plan.answers, **{answer.interrupt_id: answer for answer in call.answers}}
    if not all(question in known for question in questions):
        raise _not_replayable_error("it was started again and asked what nobody had answered")
    return [known[question] for question in questions]
