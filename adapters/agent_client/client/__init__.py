"""Client for an agent that the gateway starts as a program: one process and one session for each thread.

The process of a thread continues to run between the thread's runs, because its end would lose the agent's open
requests. An idle process is ended after a time. The next run then continues the session in a new process.

A turn, in the client, is the specification's prompt turn: it begins with a `session/prompt` and ends with the result of
it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing, suppress

from babelgate.adapters.agent_client.client.session import AgentSession
from babelgate.adapters.agent_client.request import encode_answers, encode_prompt
from babelgate.adapters.kit.client.redact import redact_fault, secrets_in
from babelgate.adapters.kit.program import ProgramHost, ProgramRules
from babelgate.canonical import Event, FaultCode, FaultError, InterruptAnswered, Invocation

__all__ = ("Client",)

log = logging.getLogger("babelgate.agent_client")

Thread = tuple[str, str]
"""Owner and id of a thread."""


class Client:
    """Agent in processes of a program, each of which has the session of one thread."""

    def __init__(self, name: str, host: ProgramHost, rules: ProgramRules) -> None:
        self._name = name
        self._host = host
        self._rules = rules
        self._secrets = secrets_in(rules.secrets)
        self._sessions: dict[Thread, AgentSession] = {}
        """Open sessions by thread, the one that was used last at the end."""
        self._opening = 0
        """Number of sessions that are being opened."""
        self._timers: dict[Thread, asyncio.TimerHandle] = {}
        """Timers that end the processes of idle sessions."""
        self._ending: set[asyncio.Future[None]] = set()
        """Sessions that are being ended or cancelled."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        """Yield the events of a run. A turn of the agent that has not ended when the generator is closed is
        cancelled.

        Raises agent_unreachable, agent_timeout, agent_failed and agent_invalid, and agent_not_replayable for an answer
        to a question whose process has ended.
        """
        thread = (call.owner, call.thread_id)
        self._cancel_timer(thread)
        session: AgentSession | None = None
        is_over = False
        try:
            session = await self._session(call, thread)
            yield session.binding
            for event in await self._begin(call, session):
                yield event
            while session.task_id is not None:
                async with aclosing(session.read()) as events:
                    async for event in events:
                        yield event
                if session.is_waiting:
                    break
                if session.unsent:
                    for event in await self._begin_answer(call, session, session.unsent):
                        yield event
            is_over = True
        except FaultError as error:
            fault = redact_fault(error.fault, self._secrets)
            if fault.details.get("reason") == "login":
                log.warning("agent=%s requires a login", self._name)
            raise FaultError.of(fault) from error
        finally:
            if session is not None and not is_over:
                await asyncio.shield(self._cancel(thread, session))
            self._set_timer(thread)

    def forget(self, owner: str, task_id: str) -> None:
        """Cancel the turn of a task that ended while the agent waited for an answer. If the turn has ended with open
        questions, notify the agent that they are cancelled."""
        for thread, session in list(self._sessions.items()):
            if thread[0] == owner and task_id in (session.task_id, session.asking_task_id):
                self._cancel(thread, session)

    async def aclose(self) -> None:
        """End all processes, at the same time."""
        for thread in list(self._sessions):
            self._cancel_timer(thread)
            self._discard(thread)
        while self._ending:
            await asyncio.wait(self._ending)

    # Sessions

    async def _session(self, call: Invocation, thread: Thread) -> AgentSession:
        """Return the session of a call: the open one of its thread, or another one in a new process. Raises
        agent_unreachable if too many processes run."""
        session = self._sessions.get(thread)
        if session is not None and session.ending is not None:
            await asyncio.wait((session.ending,))
            session = self._sessions.get(thread)
        bound = call.upstream.get("session")
        # A run from an older revision has another conversation than the open session.
        if session is not None and (not session.is_alive or session.session_id != bound):
            self._discard(thread)
            session = None
        if session is None:
            if call.cause == "answer" and bound is None:
                raise self._lost_question(continues=False)
            await self._make_room()
            self._opening += 1
            try:
                session = await AgentSession.open(self._name, self._host, self._rules, thread, bound)
            finally:
                self._opening -= 1
        self._sessions.pop(thread, None)
        self._sessions[thread] = session
        return session

    async def _begin(self, call: Invocation, session: AgentSession) -> list[Event]:
        """Send the input or the answers of a call to the agent, and return the first events of its run."""
        if call.cause == "answer" and session.can_take(call.answers):
            await session.answer(call.answers)
            return []
        if call.cause == "answer" and call.answers:
            if not session.is_gateway or session.is_new:
                raise self._lost_question(continues=not session.is_new)
            return await self._begin_answer(call, session, call.answers)
        if session.task_id is not None:  # the input supersedes the open question
            await session.cancel()
        if not session.is_alive:
            raise FaultError(
                FaultCode.AGENT_TIMEOUT, f"Agent {self._name} has not ended the turn that this input replaces."
            )
        prompt = encode_prompt(call, session.receiver, is_new=session.is_new)
        return [*prompt.losses, *await session.begin(call.task_id, prompt)]

    async def _begin_answer(
        self, call: Invocation, session: AgentSession, answers: Sequence[InterruptAnswered]
    ) -> list[Event]:
        """Send the answers as a prompt, because the agent, another Babelgate, has no open request for the questions.
        Return the first events of the run."""
        prompt = encode_answers(call, answers)
        return await session.begin(call.task_id, prompt, [each.interrupt_id for each in answers])

    def _lost_question(self, *, continues: bool) -> FaultError:
        """Return the fault of an answer whose question has ended with its process. `continues` is True if the next
        message continues the session of the agent."""
        how = "continues its session" if continues else "begins a new session with the conversation so far"
        words = f"The question is void, because the process of agent {self._name} that asked it has ended."
        return FaultError(FaultCode.AGENT_NOT_REPLAYABLE, f"{words} Send a new message, which {how}.")

    async def _make_room(self) -> None:
        """End the session that was idle for the longest time if no further process may be started. Raises
        agent_unreachable if all are in use."""
        if len(self._sessions) + self._opening < self._rules.max_processes:
            return
        idle = next((thread for thread, each in self._sessions.items() if each.task_id is None), None)
        if idle is None:
            words = f"All {self._rules.max_processes} processes of agent {self._name} are in use."
            raise FaultError(FaultCode.AGENT_UNREACHABLE, words)
        self._cancel_timer(idle)
        await asyncio.shield(self._discard(idle))

    def _discard(self, thread: Thread) -> "asyncio.Future[None]":
        """End a session and its process in the background."""
        return self._track(self._sessions.pop(thread).aclose())

    def _cancel(self, thread: Thread, session: AgentSession) -> "asyncio.Future[None]":
        """Cancel the turn of a session in the background. End its process if the agent does not end the turn."""
        if session.ending is None:
            session.ending = self._track(self._cancel_turn(thread, session))
        return session.ending

    async def _cancel_turn(self, thread: Thread, session: AgentSession) -> None:
        await session.cancel()
        session.ending = None
        if not session.is_alive:
            if self._sessions.get(thread) is session:
                del self._sessions[thread]
            await session.aclose()

    def _track(self, ending: Awaitable[None]) -> "asyncio.Future[None]":
        task = asyncio.ensure_future(ending)
        self._ending.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: "asyncio.Future[None]") -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("session of agent=%s not ended", self._name, exc_info=error)

    # Idle sessions

    def _set_timer(self, thread: Thread) -> None:
        session = self._sessions.get(thread)
        if session is not None:
            self._cancel_timer(thread)
            loop = asyncio.get_running_loop()
            self._timers[thread] = loop.call_later(self._rules.idle, self._end_idle, thread)

    def _cancel_timer(self, thread: Thread) -> None:
        timer = self._timers.pop(thread, None)
        if timer is not None:
            timer.cancel()

    def _end_idle(self, thread: Thread) -> None:
        """End the process of a session without an active turn. While it waits for an answer, it is not idle."""
        self._timers.pop(thread, None)
        session = self._sessions.get(thread)
        if session is None:
            return
        if session.task_id is None and session.ending is None:
            with suppress(KeyError):
                self._discard(thread)
        else:
            self._set_timer(thread)
