"""Dialogue: one task with an agent, from its input through questions and answers to its end, without a hub."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, cast
from uuid import uuid4

from babelgate.canonical import (
    Agent,
    Event,
    Fault,
    FaultCode,
    FaultError,
    Invocation,
    Message,
    Record,
    RunInput,
    RunReason,
    RunStatus,
)
from babelgate.canonical.event import (
    Cause,
    InterruptAnswered,
    InterruptRaised,
    RunCreated,
    RunEnded,
    RunStarted,
    TaskCreated,
)
from babelgate.canonical.value import Json
from babelgate.conformance.contract.referee import Broken, Referee, Transcript

Action = Literal["answer", "decline"]


class Dialogue:
    """One task of an agent, in a test. Each run is judged by a `Referee` and recorded, and later runs receive the
    records as `Invocation.past`."""

    def __init__(self, agent: Agent, *, bound: float = 30, owner: str = "default") -> None:
        self.agent = agent
        self.bound = bound
        """Maximum duration of one run, in seconds."""
        self.owner = owner
        self.thread_id, self.task_id = str(uuid4()), str(uuid4())
        self.records: list[Record] = []
        self.questions: list[InterruptRaised] = []
        """Questions of the agent that wait for an answer."""
        self.history: list[Message] = []
        self._record(TaskCreated(task_id=self.task_id, agent="agent"), None)

    async def say(self, content: str | Message | dict[str, Any], cause: Cause = "input") -> Transcript:
        """Execute one run with new input and return its transcript. The input is a text, a message, or data that is no
        message. Raises Broken if the agent breaks the contract."""
        return await self.play(self.call(content, cause))

    async def answer(self, *values: Json) -> Transcript:
        """Answer all open questions, one value for each in their order, and return the transcript of the run that
        continues. Raises Broken if the agent breaks the contract."""
        return await self.reply(*(_reply("answer", value) for value in values))

    async def decline(self) -> Transcript:
        return await self.reply(*(_reply("decline") for _ in self.questions))

    async def reply(self, *replies: tuple[Action, Json]) -> Transcript:
        call = self.call(Message.of(" ".join(str(value) for _, value in replies), "user"), "answer")
        answers = tuple(
            InterruptAnswered(interrupt_id=question.interrupt_id or "", action=action, value=value)
            for question, (action, value) in zip(self.questions, replies, strict=True)
        )
        for answer in answers:
            self._record(answer, call.run_id)
        self.questions = []
        return await self.play(replace(call, answers=answers))

    def call(self, content: str | Message | dict[str, Any] = "", cause: Cause = "input") -> Invocation:
        """Record the start of a run with this input, and return its invocation for `play`."""
        content = Message.of(content, "user") if isinstance(content, str) else content
        messages = (content.replace(message_id=str(uuid4())),) if isinstance(content, Message) else ()
        run_input = RunInput(messages=messages, data=None if isinstance(content, Message) else content)
        run = RunCreated.of(run_input, run_id=str(uuid4()), cause=cause)
        self._record(run, run.run_id)
        call = Invocation(
            owner=self.owner,
            agent="agent",
            thread_id=self.thread_id,
            task_id=self.task_id,
            run_id=run.run_id,
            cause=cause,
            input=run_input,
            history=tuple(self.history),
            past=self.past,
        )
        self.history += messages
        return call

    async def past(self) -> Sequence[Record]:
        return tuple(self.records)

    async def play(self, call: Invocation) -> Transcript:
        """Execute one run to its end and return its transcript. Raises Broken if the agent breaks a rule."""
        self._record(RunStarted(), call.run_id)
        referee = Referee()
        transcript = referee.transcript
        bound = asyncio.timeout(self.bound)
        try:
            async with bound, aclosing(start_run(self.agent, call)) as events:
                async for event in events:
                    filled = referee.see(event)
                    if filled is not None:
                        self._record(filled, call.run_id)
        except Broken:
            raise
        except Exception as error:
            if bound.expired():
                raise Broken("a run ends within its bound", f"still running after {self.bound} s") from None
            transcript.fault = error.fault if isinstance(error, FaultError) else _exception_fault(error)
        for event in referee.close():
            self._record(event, call.run_id)
        paused = transcript.questions and transcript.fault is None
        self.questions = transcript.questions if paused else []
        self._record(_ending(transcript), call.run_id)
        self.history += [*transcript.messages, *(question.message for question in transcript.questions)]
        return transcript

    def _record(self, event: Event, run_id: str | None) -> None:
        seq = len(self.records) + 1
        self.records.append(Record(seq, seq, self.task_id, run_id, 0 if run_id is None else 1, event))


def _reply(action: Action, value: Json = None) -> tuple[Action, Json]:
    return action, value


def start_run(agent: Agent, call: Invocation) -> AsyncGenerator[Event]:
    """Start a run of an agent and return the iterator of its events. Raises Broken if `Agent.run` returns anything else
    than an async iterator that can be closed."""
    iterator: object = agent.run(call)
    if not hasattr(iterator, "__anext__") or not hasattr(iterator, "aclose"):
        close = getattr(iterator, "close", None)  # A coroutine that is never awaited would cause a warning.
        if callable(close):
            close()
        raise Broken("run() gives an async iterator that can be closed", f"it gave a {type(iterator).__name__}")
    return cast("AsyncGenerator[Event]", iterator)


def _exception_fault(error: Exception) -> Fault:
    return Fault(code=FaultCode.AGENT_FAILED, message=f"{type(error).__name__}: {error}")


def _ending(transcript: Transcript) -> RunEnded:
    if transcript.fault is not None:
        return RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=transcript.fault)
    if transcript.questions:
        return RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT)
    return transcript.ended or RunEnded()
