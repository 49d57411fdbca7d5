"""Agents in this process: any Python callable as an Agent.

A generator that asks a question is parked until the answer arrives. If it is not in memory any more by then, its
function runs again from the start with the recorded answers (`babelgate.canonical.replay`). The events that it repeats
are compared with the log and dropped.
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

_MAX_TEXT = 10_000
"""Maximum length of an exception's message that callers receive, in characters. Chosen."""


def wrap(
    target: object, name: str, *, replay: bool = True, parked: int = 1000, parked_ttl: float = 3600
) -> tuple[AgentInfo, Agent]:
    """Return the description of an agent in Python, and the agent itself.

    `target` is an Agent (an instance with `run(call)`), or any callable: a function or generator function, sync or
    async, or an instance with `__call__`.

    Args:
        replay: True if a paused generator that is lost may run again from its start.
        parked: Maximum number of paused generators in memory, for `parked_ttl` seconds each.

    Raises:
        TypeError: if the object cannot be called as an agent. The message is for the author of the agent.
    """
    if not isinstance(target, type) and callable(getattr(target, "run", None)):
        return describe(target, name), cast("Agent", target)
    signature = signature_of(target)
    paused: PausedGenerators[_Call] = PausedGenerators(parked, parked_ttl)
    return describe(target, name, signature), InProcess(name, signature, replay=replay, paused=paused)


class _End:
    """End of an agent function: the value that it returned."""

    def __init__(self, value: object = None) -> None:
        self.value = value


class _Steps(Protocol):
    """Common interface of started sync and async generators.

    Each step returns the next item, or the end. At the end of an async generator, the step may raise StopAsyncIteration
    instead.
    """

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
        """Raise an error in the generator. If the iterator is no generator, raise the error at once."""
        if self._generator is None:
            raise error
        return self._generator.athrow(error)

    async def close(self) -> None:
        if self._generator is not None:
            await self._generator.aclose()


class _SyncSteps:
    """Steps of a sync generator. All run in the same thread, which is reserved for the call."""

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
        if not self._worker.has_started:  # then closing the generator runs no code of the agent
            self._generator.close()
            return
        try:
            if not self._worker.is_busy:
                await self._worker.do(self._generator.close)
        finally:
            self._worker.stop()


@dataclass(slots=True)
class _Call:
    """Started generator of an agent, with the encoder of its items. It is parked between the runs of its task."""

    name: str
    steps: _Steps
    encoder: YieldEncoder
    questions: int = 0
    """Number of questions whose answers the generator waits for."""
    run_id: str = ""
    """Id of the run in which the generator asked its last questions."""
    listed: type[list[Json]] | type[tuple[Json, ...]] | None = None
    """Type in which the generator receives its answers: that of the collection of questions it yielded. None for a
    single question, which gets a single answer."""

    async def next(self, answers: Sequence[InterruptAnswered]) -> object:
        """Continue the generator with the answers to its last questions, and return the next item or the end.

        Raises agent_failed, or the fault that the agent itself raises.
        """
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
        """Return the end of the generator if `error` is StopAsyncIteration. Raises the fault for any other error of a
        step."""
        if isinstance(error, StopAsyncIteration):
            return _End()
        fault = _translate_error(error, self.name)
        if fault is error:
            raise error
        raise fault from error

    def events(self, item: object) -> Sequence[Event]:
        """Return the events of an item or of the end, and store how many questions the item asks."""
        if isinstance(item, _End):
            self.questions = 0
            return self.encoder.answer(item.value)
        events = self.encoder.encode(item)
        self.questions = sum(isinstance(event, InterruptRaised) for event in events)
        self.listed = list if isinstance(item, list) else tuple if isinstance(item, tuple) else None
        return events

    async def close(self) -> None:
        """Raise GeneratorExit in the agent, so that its `finally` blocks run. Errors that it raises then are logged."""
        try:
            await self.steps.close()
        except (Exception, SystemExit):
            log.warning("agent raised an exception while it was closed agent=%s", self.name, exc_info=True)


def _translate_error(error: BaseException, name: str) -> BaseException:
    """Return the error that callers receive, with the type and message of the agent's exception. The traceback is only
    logged."""
    if isinstance(error, FaultError | KeyboardInterrupt | GeneratorExit):
        return error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():  # else the agent awaited another task that was cancelled
            return error
    log.warning("agent failed agent=%s", name, exc_info=error)
    kind = type(error).__name__
    try:
        text = str(error)[:_MAX_TEXT].encode("utf-8", "replace").decode()
    except Exception:
        text = ""  # `__str__` of the exception failed
    return FaultError(FaultCode.AGENT_FAILED, f"{kind}: {text}" if text else kind)


def _not_replayable_error(why: str) -> FaultError:
    return FaultError(FaultCode.AGENT_NOT_REPLAYABLE, f"The paused agent cannot continue: {why}.")


class InProcess:
    """Agent that is a Python callable in this process."""

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
        cursor = ReplayCursor(() if plan is None else plan.sent)
        answers = call.answers if plan is None and call.cause == "answer" else ()
        is_parked = False
        try:
            while True:
                if plan is not None or answers:
                    item = await _next(going, answers, cursor)
                else:  # like `_Call.next`, without another coroutine for each token
                    try:
                        item = await going.steps.send(None)
                    except BaseException as error:
                        item = going.end(error)
                if plan is None and type(item) is str:  # most items are tokens
                    answers = ()
                    for event in going.encoder.encode(item):
                        yield event
                    continue
                events = going.events(item)
                events, repeated = (events, ()) if plan is None else cursor.split(events)
                answers = _answers_before(repeated, call, plan) if going.questions else ()
                for event in events:
                    yield event
                if isinstance(item, _End) or (events and isinstance(events[-1], RunEnded)):
                    cursor.end()
                    return
                if going.questions and not answers:
                    break
            going.run_id = call.run_id
            self.paused.park(call.owner, call.task_id, going)
            is_parked = True
        finally:
            if not is_parked:
                await going.close()

    async def aclose(self) -> None:
        """Close all parked generators."""
        await self.paused.close()
        self._workers.close()

    def forget(self, owner: str, task_id: str) -> None:
        """Close the parked generator of a task that ended while it was paused."""
        self.paused.forget(owner, task_id)

    async def _begin(self, call: Invocation) -> "tuple[_Call | _End, ReplayPlan | None]":
        """Return the generator of a call, or the end of a function that is no generator, and the plan of a replay.

        An answer continues the parked generator. If that is not in memory, the function is started again, and the plan
        has the history to repeat. The plan is None if there is nothing to repeat.
        """
        if call.cause == "answer":
            parked = self.paused.take(call.owner, call.task_id)
            if parked is not None and parked.questions == len(call.answers) and await _waits_for(parked, call):
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
        """Call the agent's function. Return a generator before it has run any code, or the end of any other function.

        Raises agent_failed, or the fault that the agent itself raises.
        """
        worker = self._workers.worker()
        value: object = None
        try:
            function, arguments = self._signature.function, self._signature.arguments(call)
            value = await worker.do(function, *arguments) if self._blocks else function(*arguments)
            if inspect.isawaitable(value):
                value = await value
        except BaseException as error:
            fault = _translate_error(error, self.name)
            if fault is error:
                raise
            raise fault from error
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
        """Return the history that a paused generator has to repeat because it is no longer in memory, up to its
        questions.

        Raises agent_not_replayable.
        """
        if not self._replay:
            raise _not_replayable_error("its generator is gone, and `replay: false` is set")
        records = await call.past()
        plan = replay_plan(records, call.answers[0].interrupt_id) if call.answers else None
        if plan is None:
            raise _not_replayable_error("the log does not have the events before its question")
        return plan


async def _waits_for(parked: _Call, call: Invocation) -> bool:
    """Return True if the parked generator asked the questions that this call answers.

    If gateways share a database, another one may have continued the task since, and its generator may have asked again.
    """
    if next_run_id(parked.run_id) == call.run_id:
        return True
    asking_runs = [record.run_id for record in await call.past() if isinstance(record.event, InterruptRaised)]
    return bool(asking_runs) and asking_runs[-1] == parked.run_id


def _blocks(function: Callable[..., Any]) -> bool:
    """Return True if a call of the function may run code of the agent, so it must not run on the event loop."""
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
    """Return the invocation of the run with which the history of a paused generator began. A replay starts the
    generator with it."""
    first = plan.first
    return replace(
        call,
        run_id=first.run_id,
        attempt=1,
        cause=first.cause,
        # The newest headers, because the caller's key of that time may have expired.
        input=first.input.replace(config=first.config or call.config, headers=call.input.headers),
        answers=(),
        history=tuple(takewhile(lambda message: message.message_id not in plan.message_ids, call.history)),
    )


async def _next(going: _Call, answers: Sequence[InterruptAnswered], cursor: ReplayCursor) -> object:
    """Return the next item of a generator after it received the answers. Raises agent_not_replayable instead of a fault
    that the recorded run did not raise."""
    try:
        return await going.next(answers)
    except FaultError as error:
        if cursor.is_over:  # also if there is nothing to replay
            raise
        raise _not_replayable_error(f"its replay raised {error.fault.message!r}, unlike its first run") from error


def _answers_before(
    repeated: Sequence[Event], call: Invocation, plan: ReplayPlan | None
) -> Sequence[InterruptAnswered]:
    """Return the recorded answers to the questions among repeated events, or nothing if there are none.

    `plan` is the history that the agent repeats; None if it repeats nothing. Raises agent_not_replayable if a question
    has no recorded answer.
    """
    questions = [event.interrupt_id or "" for event in repeated if isinstance(event, InterruptRaised)]
    if not questions or plan is None:
        return ()
    recorded = {**plan.answers, **{answer.interrupt_id: answer for answer in call.answers}}
    if not all(question in recorded for question in questions):
        raise _not_replayable_error("its replay asked a question without a recorded answer")
    return [recorded[question] for question in questions]
