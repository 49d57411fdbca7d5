"""Session of one thread with an agent: its process, the active turn, and the requests of the agent to its user.

A turn begins with a `session/prompt`, and ends with the result of that request.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from uuid import uuid4

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.client.callbacks import Callbacks, client_capabilities
from babelgate.adapters.agent_client.client.connection import AgentError, Incoming, ProgramConnection
from babelgate.adapters.agent_client.codec.content import PROTOCOL, own_members
from babelgate.adapters.agent_client.read.questions import OpenRequest, decide
from babelgate.adapters.agent_client.read.updates import UpdateReader
from babelgate.adapters.agent_client.request import PromptRequest, Receiver
from babelgate.adapters.kit.client.blame import blaming_the_agent, decode_reply
from babelgate.adapters.kit.program import Program, ProgramHost, ProgramRules
from babelgate.canonical import Event, FaultCode, FaultError, InterruptAnswered
from babelgate.canonical.event import UpstreamBound
from babelgate.canonical.json import as_list, as_text, objects_in
from babelgate.canonical.printable import printable
from babelgate.canonical.value import JsonObject

log = logging.getLogger("babelgate.agent_client")

_CANCEL: Final = 3.0
"""Seconds in which an agent must end a cancelled turn. After that its process is ended. Chosen."""
_KINDS: Final = 20
"""Maximum number of kinds of session updates whose newest update is retained between two turns. Chosen."""
_NAME: Final = 200
"""Maximum length of a name of the agent in an error, in characters. Chosen."""

T = TypeVar("T")


class AgentSession:
    """Open session of an agent in a separate process. A turn may extend over several runs of the thread, which the
    answers to the agent's requests separate."""

    def __init__(self, name: str, program: Program, rules: ProgramRules) -> None:
        """Create the session for a program that has just been started; `open` opens it. `name` is that of the
        agent."""
        self._name = name
        self._program = program
        self._rules = rules
        self._connection = ProgramConnection(program, Callbacks(program.workspace, rules).handle)
        self._initialized = w.Initialized(protocolVersion=w.PROTOCOL_VERSION)
        self.session_id = ""
        self.is_new = False
        """True if the session was just created, so that the agent does not know the earlier messages of the thread."""
        self.task_id: str | None = None
        """Id of the task of the active turn; None if no turn is active."""
        self.asking_task_id: str | None = None
        """Id of the task whose last turn has ended with questions that the next prompt answers; None if none has."""
        self._reader: UpdateReader | None = None
        self._open: dict[str, OpenRequest] = {}
        """Requests of the agent that wait for an answer, by the id of the question."""
        self._answers: dict[str, InterruptAnswered] = {}
        """Answers to questions of the turn that no request of the agent has asked yet. The request gets the answer when
        it arrives."""
        self.unsent: tuple[InterruptAnswered, ...] = ()
        """Answers to questions that the turn ended without asking by a request. The next prompt must send these
        answers. Only another Babelgate asks in this way."""
        self._between: dict[str, JsonObject] = {}
        """Newest session update of each kind that arrived while no turn was active. The next turn begins with them."""
        self._is_stuck = False
        """True if the agent did not end a cancelled turn in time."""
        self.ending: asyncio.Future[None] | None = None
        """Running cancel of the turn, or running end of the session; None if neither runs."""

    # Start and end

    @classmethod
    async def open(
        cls, name: str, host: ProgramHost, rules: ProgramRules, thread: tuple[str, str], session_id: str | None
    ) -> "AgentSession":
        """Start the program for a thread (owner and id), and open its session: the one with this id if the agent can
        continue it, and a new one otherwise.

        Raises agent_unreachable if the program does not start, agent_timeout if it does not open a session in time, and
        agent_failed if the agent refuses.
        """
        session = cls(name, await host.start(*thread), rules)
        try:
            async with asyncio.timeout(rules.start_timeout):
                await session._open_session(session_id)
        except BaseException as error:
            await asyncio.shield(asyncio.ensure_future(session.aclose()))
            if isinstance(error, TimeoutError):
                words = f"Agent {name} has not opened a session within {rules.start_timeout:g} s."
                raise FaultError(FaultCode.AGENT_TIMEOUT, words) from None
            raise
        return session

    async def _open_session(self, session_id: str | None) -> None:
        params: JsonObject = {
            "protocolVersion": w.PROTOCOL_VERSION,
            "clientCapabilities": client_capabilities(self._rules),
            "clientInfo": {"name": w.OWN, "title": "Babelgate", "version": "1"},
        }
        found = decode_reply(w.Initialized, await self._call("initialize", params))
        if found.protocol_version != w.PROTOCOL_VERSION:
            words = f"Agent {self._name} speaks version {found.protocol_version} of its protocol, and not 1."
            raise FaultError(FaultCode.AGENT_INVALID, words)
        self._initialized = found
        state = None if session_id is None else await self._continue(session_id)
        if state is None:
            new: JsonObject = {"cwd": self._program.workspace.folder, "mcpServers": []}
            state = decode_reply(w.SessionState, await self._call("session/new", new))
            if not state.session_id:
                raise FaultError(FaultCode.AGENT_INVALID, "The agent breaks its protocol: a session without an id")
            self.session_id, self.is_new = state.session_id, True
        self._drop_replay()
        if self._rules.mode is not None:
            await self._set_mode(state, self._rules.mode)

    async def _continue(self, session_id: str) -> w.SessionState | None:
        """Open an earlier session again. Return None if the agent cannot do that, or no longer has the session."""
        capabilities = self._initialized.capabilities
        can_resume = isinstance(capabilities.session.get("resume"), dict)
        if not can_resume and not capabilities.load:
            return None
        params: JsonObject = {"sessionId": session_id, "cwd": self._program.workspace.folder, "mcpServers": []}
        method = "session/resume" if can_resume else "session/load"
        try:
            state = decode_reply(w.SessionState, await self._request(method, params))
        except AgentError as error:
            # Agents disagree about the code of an unknown session.
            if error.is_login:
                raise self._login_fault() from error
            log.info("session of agent=%s not continued reason=%s", self._name, error.words)
            return None
        self.session_id = session_id
        return state

    def _drop_replay(self) -> None:
        """Drop the updates that repeat the conversation, and retain those of the session, such as its commands."""
        for message in self._connection.take():
            self._keep_between(message)

    async def _set_mode(self, state: w.SessionState, mode: str) -> None:
        """Set the configured mode of the session. Raises agent_failed if the agent has no such mode."""
        params: JsonObject = {"sessionId": self.session_id}
        modes = objects_in((state.modes or {}).get("availableModes"))
        options = [each for each in state.config_options or [] if "mode" in (each.get("category"), each.get("id"))]
        if modes and any(each.get("id") == mode for each in modes):
            await self._call("session/set_mode", {**params, "modeId": mode})
        elif options:
            option_id = as_text(options[0].get("id"))
            await self._call("session/set_config_option", {**params, "configId": option_id, "value": mode})
        else:
            names = ", ".join(as_text(each.get("id")) for each in modes) or "none"
            words = f"Agent {self._name} has no mode {mode!r}. It has: {printable(names, _NAME)}."
            raise FaultError(FaultCode.AGENT_FAILED, words)

    async def aclose(self) -> None:
        """End the program. `session/close` is not sent, because it would cancel an open question of a gateway."""
        await self._program.stop()
        await self._connection.aclose()

    @property
    def is_alive(self) -> bool:
        """True if the program runs, and has not ignored a cancel."""
        return not self._connection.is_closed and not self._is_stuck

    @property
    def is_waiting(self) -> bool:
        """True if the turn waits for answers of the caller, and nothing else has arrived from the agent."""
        return self._reader is not None and bool(self._open)

    @property
    def is_gateway(self) -> bool:
        """True if the agent is another Babelgate."""
        return self._initialized.is_gateway

    @property
    def receiver(self) -> Receiver:
        return Receiver(self._initialized.capabilities.prompt, self._initialized.is_gateway)

    @property
    def binding(self) -> UpstreamBound:
        return UpstreamBound(protocol=PROTOCOL, ids={"session": self.session_id})

    # Requests

    async def _request(self, method: str, params: JsonObject) -> JsonObject:
        """Send one of the requests that open the session. Raises AgentError, and agent_unreachable if the program ends
        meanwhile."""
        try:
            return await self._connection.request(method, params)
        except OSError:
            end = await self._program.find_end()
            words = f"The process of agent {self._name} {end} before its session was open."
            raise FaultError(FaultCode.AGENT_UNREACHABLE, words) from None

    async def _call(self, method: str, params: JsonObject) -> JsonObject:
        try:
            return await self._request(method, params)
        except AgentError as error:
            if error.is_login:
                raise self._login_fault() from error
            raise error.fault() from error

    def _login_fault(self) -> FaultError:
        methods = [as_text(each.get("name")) or as_text(each.get("id")) for each in self._initialized.auth_methods]
        offered = f" It offers: {printable(', '.join(methods), _NAME)}." if methods else ""
        return FaultError(
            FaultCode.AGENT_FAILED,
            f"Agent {self._name} requires a login. Its operator must log in with the agent's own program, as the user "
            f"of the gateway, or set its key in `env` of the agent.{offered}",
            reason="login",
        )

    # Turns

    async def begin(self, task_id: str, prompt: PromptRequest, answered: Sequence[str] = ()) -> list[Event]:
        """Send a prompt, which begins a turn. Return the events of the updates since the last turn. `answered` are the
        ids of the questions that it answers. Raises agent_failed if the program has ended."""
        self._reader = reader = UpdateReader(_new_id, self._terminal_text, answered, self._program.workspace.folder)
        self.task_id, self.asking_task_id, self.is_new = task_id, None, False
        self._open, self._answers, self.unsent = {}, {}, ()
        for message in self._connection.take():
            self._keep_between(message)
        events = [event for update in self._between.values() for event in reader.read(update)]
        self._between.clear()
        params: JsonObject = {"sessionId": self.session_id, "prompt": prompt.blocks}
        await self._send(self._connection.prompt({**params, "_meta": prompt.meta} if prompt.meta else params))
        return events

    def _keep_between(self, message: Incoming) -> None:
        kind = as_text((message.update or {}).get("sessionUpdate"))
        is_of_session = kind.endswith("_update") and kind != "tool_call_update"
        if message.update is not None and is_of_session and (kind in self._between or len(self._between) < _KINDS):
            self._between[kind] = message.update

    def _terminal_text(self, terminal_id: str) -> str | None:
        try:
            return self._program.workspace.find_terminal(terminal_id).output
        except FaultError:
            return None

    def can_take(self, answers: Sequence[InterruptAnswered]) -> bool:
        """Return True if the turn waits for one of these answers."""
        return self._reader is not None and any(each.interrupt_id in self._open for each in answers)

    async def answer(self, answers: Sequence[InterruptAnswered]) -> None:
        """Send answers as the results of the agent's requests. An answer whose request has not arrived yet is retained
        until it does."""
        self._answers |= {each.interrupt_id: each for each in answers}
        if self._reader is not None:
            self._reader.close_questions(self._answers)
        for question_id, request in list(self._open.items()):
            answer = self._answers.pop(question_id, None)
            if answer is not None:
                del self._open[question_id]
                await self._connection.respond(request.request_id, request.encode_answer(answer))

    async def read(self) -> AsyncGenerator[Event]:
        """Wait for messages of the agent, and yield their events. Afterwards the turn has ended, waits for answers
        (`is_waiting`), or continues.

        Raises agent_failed if the turn fails or the program ends, agent_timeout after too long a silence, and
        agent_invalid for a malformed message.
        """
        try:
            async with asyncio.timeout(self._rules.silence):
                await self._connection.wait()
        except TimeoutError:
            words = f"Agent {self._name} has been silent for {self._rules.silence:g} s."
            raise FaultError(FaultCode.AGENT_TIMEOUT, words) from None
        # The events of earlier messages are yielded before a later message of the same batch fails.
        for message in self._connection.take():
            for event in await self._read_message(message):
                yield event
            if self._reader is None:
                return
        if self._reader is not None and self.is_waiting:
            for event in self._reader.pause(self._open.values()):
                yield event

    async def _read_message(self, message: Incoming) -> list[Event]:
        reader = self._reader
        assert reader is not None
        if message.has_ended:
            how = await self._program.find_end()
            words = f"The process of agent {self._name} {how} during the run."
            raise FaultError(FaultCode.AGENT_FAILED, words)
        if message.request is not None:
            return await self._take_request(reader, *message.request)
        with blaming_the_agent():
            if message.update is not None:
                return reader.read(message.update)
            return self._end_turn(reader, message)

    def _end_turn(self, reader: UpdateReader, message: Incoming) -> list[Event]:
        """Return the events of the end of a turn. Raises agent_failed if the agent reports an error, or has not
        accepted an answer."""
        task_id, answers, result = self.task_id, self._answers, message.result or {}
        self._end()
        if message.error is not None:
            raise self._login_fault() if message.error.is_login else message.error.fault()
        named = as_list(own_members(result).get("questions"))
        # A gateway asks some of its questions by no request: the next prompt answers them.
        self.unsent = tuple(answer for name, answer in answers.items() if name in named)
        if self.unsent:
            return reader.finish()
        if any(name not in reader.questions for name in named):
            raise FaultError(FaultCode.AGENT_FAILED, f"Agent {self._name} has not accepted an answer to its question.")
        events = reader.end(result)
        self.asking_task_id = task_id if reader.questions else None
        return events

    def _end(self) -> None:
        self._reader, self.task_id = None, None
        self._open, self._answers, self.unsent = {}, {}, ()

    async def _take_request(
        self, reader: UpdateReader, request_id: int | str, method: str, params: JsonObject
    ) -> list[Event]:
        """Return the events of the question that a request of the agent asks. The request is answered at once if the
        settings decide it, or if the caller's answer is already known."""
        if method == w.PERMISSION and self._rules.permissions != "ask" and not self.is_gateway:
            is_allowed = self._rules.permissions == "allow"
            await self._connection.respond(request_id, decide(params, is_allowed=is_allowed))
            return []
        request, events = reader.ask(request_id, method, params)
        question_id = request.question.interrupt_id or ""
        answer = self._answers.pop(question_id, None)
        if answer is not None:
            await self._connection.respond(request_id, request.encode_answer(answer))
        else:
            self._open[question_id] = request
        return events

    async def cancel(self) -> None:
        """Cancel the active turn, and wait for its end. The open requests of the agent are dismissed. If the agent does
        not end the turn in time, the session is no longer alive.

        If no turn is active, only send `session/cancel`, which dismisses the questions that an ended turn has left
        open.
        """
        if self._reader is None:
            with suppress(OSError):
                await self._connection.notify(w.CANCEL, {"sessionId": self.session_id})
            self.asking_task_id = None
            return
        try:
            async with asyncio.timeout(_CANCEL):
                await self._connection.notify(w.CANCEL, {"sessionId": self.session_id})
                for request in self._open.values():
                    await self._connection.respond(request.request_id, request.dismissal)
                self._open.clear()
                await self._drain()
        except (OSError, TimeoutError):
            self._is_stuck = True
        finally:
            self._end()

    async def _drain(self) -> None:
        """Discard the rest of a cancelled turn."""
        while True:
            await self._connection.wait()
            for message in self._connection.take():
                if message.has_ended:
                    raise ConnectionError
                if message.request is not None:
                    request_id, method, params = message.request
                    assert self._reader is not None
                    request, _ = self._reader.ask(request_id, method, params)
                    await self._connection.respond(request_id, request.dismissal)
                elif message.result is not None or message.error is not None:
                    return

    async def _send(self, sending: Awaitable[T]) -> T:
        try:
            return await sending
        except OSError:
            how = await self._program.find_end()
            words = f"The process of agent {self._name} {how} before the run."
            raise FaultError(FaultCode.AGENT_FAILED, words) from None


def _new_id() -> str:
    return str(uuid4())
