"""Turns of sessions: a prompt, the runs that it starts, and the questions that the client answers in between.

A turn begins with a `session/prompt`, and ends with the result of that request.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import ValidationError

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.carries import VERSION
from babelgate.adapters.agent_client.codec.content import PROTOCOL, decode_prompt, invalid, text_block
from babelgate.adapters.agent_client.codec.questions import (
    QuestionReply,
    can_be_asked,
    can_be_text,
    decode_reply,
    encode_request,
    options_of,
)
from babelgate.adapters.agent_client.errors import encode_error
from babelgate.adapters.agent_client.server.peer import ClientPeer, RequestFailed
from babelgate.adapters.agent_client.server.sessions import Sessions
from babelgate.adapters.agent_client.write.turn import TurnWriter, prompt_key
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.disconnect import finish, task_canceller
from babelgate.adapters.kit.server.encoding import TextTemplate, as_bytes, encode, is_large
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.websocket import RESTART, Disconnected
from babelgate.canonical import (
    Answers,
    FaultCode,
    FaultError,
    Hub,
    Message,
    Receipt,
    Record,
    RunInput,
    Scope,
    Submission,
    Task,
)
from babelgate.canonical.event import PartDelta, RunCreated
from babelgate.canonical.fault import ANSWER_SCHEMA
from babelgate.canonical.hub import RunFilter
from babelgate.canonical.thread import Interrupt, Thread
from babelgate.canonical.value import Json, JsonObject, is_uuid

_RESERVED: Final = frozenset({w.OWN, "traceparent", "tracestate", "baggage"})
"""Members of a prompt's `_meta` that are not copied to the metadata of its run."""
_KEY: Final = 200
"""Maximum length of the key that a client may give a prompt (`_meta.babelgate.prompt`), in characters. Chosen: it is
stored with the run."""
_RUNS: Final = 50
"""Number of runs that one query reads. The search for the first run of a prompt reads only the newest page of this
size. Chosen: clients attach to the newest turn."""
_TOGETHER: Final = 64 * 1024
"""Size of the updates from which they are sent before more of a batch are encoded, in bytes. Tokens are not counted,
because a batch of tokens is small. Chosen."""


@dataclass(frozen=True, slots=True)
class TurnStart:
    """First run of a turn, its task, and options for the updates to send."""

    task: Task
    run_id: str
    is_whole: bool = False
    """True if the updates cover all runs of the task, including those of later prompts."""
    skip: int = 0
    """Number of updates to leave out at the beginning."""


class Turns:
    """Active turns of one connection, and the methods that start, repeat and cancel a turn."""

    def __init__(
        self, hub: Hub, who: Caller, agent: str, peer: ClientPeer, sessions: Sessions, *, cancels: bool
    ) -> None:
        self._hub = hub
        self._who = who
        self._agent = agent
        self._peer = peer
        self._sessions = sessions
        self._cancels = cancels
        """True if a disconnect of the client cancels its active runs."""
        self.elicitation: w.Elicitations | None = None
        """Capability of the client to show forms and open pages; None if it has none."""
        self._active: dict[str, _Turn] = {}
        """Active turns, by session id."""

    # Start

    async def prompt(self, params: w.Prompt) -> JsonObject:
        """Submit a prompt, send the updates of its turn, and return the result of `session/prompt` when the turn ends.
        Raises invalid, not_found, conflict."""
        turn = self._reserve(params.session_id)  # before anything is awaited: a cancel may follow at once
        try:
            thread = await self._sessions.find(params.session_id)
            message = decode_prompt(params.prompt)
            start = await finish(self._begin(thread, params, message), self._leave)
            if turn.is_cancelled:
                await self._sessions.cancel(params.session_id)
            return await turn.run(start)
        finally:
            del self._active[params.session_id]

    async def attach(self, params: w.Attach) -> JsonObject:
        """Send the updates of an earlier or active turn from the first one on, and return the result of its prompt when
        the turn ends. Raises not_found, conflict."""
        thread = await self._sessions.find(params.session_id)
        turn = self._reserve(params.session_id)
        try:
            return await turn.run(await self._find(thread.thread_id, params))
        finally:
            del self._active[params.session_id]

    def _reserve(self, session_id: str) -> "_Turn":
        """Register a new turn of a session. Raises conflict if the session has an active turn on this connection."""
        if session_id in self._active:
            raise FaultError(FaultCode.CONFLICT, "A prompt is running in this session: wait for its end, or cancel it.")
        turn = self._active[session_id] = _Turn(
            self._hub, self._who, self._peer, session_id, self.elicitation, self._sessions, cancels=self._cancels
        )
        return turn

    async def _leave(self, start: TurnStart) -> None:
        """Cancel the task of a turn whose client disconnected during the submission, if the client requested this with
        `on_disconnect=cancel`."""
        if self._cancels:
            task_canceller(self._hub, self._who.principal, start.task.task_id)()

    async def _begin(self, thread: Thread, params: w.Prompt, message: Message) -> TurnStart:
        """Submit a prompt as the answer to open questions of the session, or otherwise as a new input. Raises invalid,
        conflict, not_awaiting."""
        marks = params.gateway_members
        key, answers = marks.get("prompt"), marks.get("answers")
        if answers is not None and not isinstance(answers, dict):
            raise invalid("_meta.babelgate.answers", "expected an object of answers by question id")
        if key is not None and (not isinstance(key, str) or len(key) > _KEY):
            raise invalid("_meta.babelgate.prompt", f"expected a text of at most {_KEY} characters")
        if not message.parts and not answers:
            raise invalid("prompt", "expected at least one block")
        messages = await resolve_own_files(self._hub, self._who, (message,) if message.parts else ())
        thread_id = thread.thread_id
        run_input = RunInput(
            messages=messages,
            config=self._sessions.config_of(thread),
            metadata={name: value for name, value in (params.meta or {}).items() if name not in _RESERVED},
            headers=self._who.headers,
            extra={PROTOCOL: {"prompt": key or ""}},
        )
        values = cast("JsonObject | None", answers)
        receipt = await self._answer(thread_id, run_input, values, message.text)
        if receipt is None:
            submission = Submission(
                agent=self._agent,
                protocol=PROTOCOL,
                version=VERSION,
                input=run_input,
                thread_id=thread_id,
                strategy="reject",
                supersede=True,
                if_missing="reject",
            )
            receipt = await self._hub.submit(self._who.principal, submission)
        return TurnStart(receipt.task, receipt.run_id)

    async def _answer(
        self, thread_id: str, run_input: RunInput, values: JsonObject | None, text: str
    ) -> Receipt | None:
        """Answer open questions of the session with a prompt: `values` by question id, or `text` for the oldest
        question that takes text. Return None if the text answers no question. Raises not_awaiting for `values` without
        an open question."""
        principal = self._who.principal
        view = await self._hub.reads.thread_view(principal, thread_id)
        # Most threads have no open task, and the status of a thread is a quarter of the work of a search.
        is_open = view.status in ("busy", "interrupted")
        task = await self._sessions.open_task(thread_id) if is_open else None
        questions: Sequence[Interrupt] = ()
        if task is not None and task.is_waiting:
            questions = await self._hub.reads.open_interrupts(principal, task.task_id)
        if values is not None:
            if task is None or not questions:
                raise FaultError(FaultCode.NOT_AWAITING, "The session has no open question.")
            return await self._hub.answer(principal, _answers(task, values, run_input))
        question = next((each for each in questions if can_be_text(each, self.elicitation)), None)
        if task is None or question is None:
            return None
        answers = _answers(task, {question.interrupt_id: text}, run_input, is_text=True)
        try:
            return await self._hub.answer(principal, answers)
        except FaultError as error:
            if error.fault.details.get("reason") == ANSWER_SCHEMA:  # the text is no answer, so it is a new input
                return None
            raise

    # Attach

    async def _find(self, thread_id: str, params: w.Attach) -> TurnStart:
        """Return the task and the first run of the turn that an attach request names. Raises not_found."""
        principal = self._who.principal
        if params.task is not None:
            task = await self._task(thread_id, params.task)
            return TurnStart(task, await self._first_run_id(task), is_whole=True, skip=params.skip)
        found = await self._hub.reads.runs(principal, RunFilter(thread_id=thread_id, agent=self._agent), limit=_RUNS)
        for run in await found.all():
            created = await self._hub.reads.run_input(principal, run)
            if _is_start(created, params.prompt):
                task = await self._hub.reads.task(principal, run.task_id)
                return TurnStart(task, run.run_id, skip=params.skip)
        raise FaultError(FaultCode.NOT_FOUND, "The session has no such turn.")

    async def _task(self, thread_id: str, task_id: str) -> Task:
        if is_uuid(task_id):
            task = await self._hub.reads.task(self._who.principal, task_id)
            if task.thread_id == thread_id:
                return task
        raise FaultError(FaultCode.NOT_FOUND, "The session has no such task.")

    async def _first_run_id(self, task: Task) -> str:
        """Return the id of the first run of a task that is not removed. Raises not_found if there is none.

        The runs of the thread are read newest first, in pages, until they are older than the task.
        """
        where, first, offset = RunFilter(thread_id=task.thread_id, agent=task.agent), None, 0
        while True:
            found = await self._hub.reads.runs(self._who.principal, where, limit=_RUNS, offset=offset)
            page = await found.all()
            first = next((run.run_id for run in reversed(page) if run.task_id == task.task_id), first)
            if len(page) < _RUNS or page[-1].first_seq < task.first_seq:
                break
            offset += _RUNS
        if first is None:
            raise FaultError(FaultCode.NOT_FOUND, "The session has no such turn.")
        return first

    # End

    async def cancel(self, session_id: str) -> None:
        """Cancel the newest open task of a session, and mark its active turn, if any, as cancelled. Raises
        not_found."""
        turn = self._active.get(session_id)
        if turn is not None:
            turn.is_cancelled = True
        await self._sessions.cancel(session_id)


class _Turn:
    """One active turn: it sends the turn's updates to the client, and asks the client the questions of the agent."""

    def __init__(
        self,
        hub: Hub,
        who: Caller,
        peer: ClientPeer,
        session_id: str,
        elicitation: w.Elicitations | None,
        sessions: Sessions,
        *,
        cancels: bool,
    ) -> None:
        self._hub = hub
        self._who = who
        self._peer = peer
        self._session_id = session_id
        self._elicitation = elicitation
        self._sessions = sessions
        self._cancels = cancels
        self.is_cancelled = False
        """True if the client has cancelled the turn. Answers of the user that arrive later are not submitted."""
        self._templates: dict[tuple[str | None, int | None], TextTemplate | None] = {}
        """Templates of the updates for the texts of a part, by message id and index; None after the first text."""
        self._refused: set[str] = set()
        """Ids of questions that the client was asked without an answer. They stay open, and are not asked again in this
        turn."""

    async def run(self, start: TurnStart) -> JsonObject:
        """Send the updates of the turn, ask its questions, and return the result of its prompt. Raises RequestFailed if
        the run fails, and Disconnected if the gateway stops."""
        principal, task = self._who.principal, start.task
        writer = TurnWriter(task, start.run_id, self._sessions.url_of, self._elicitation, is_whole=start.is_whole)
        follow = self._hub.reads.follow(principal, Scope.task(task), task.first_seq - 1, inline=True)
        try:
            async with aclosing(follow) as batches:
                await self._follow(batches, writer, task.task_id, start.skip)
        except (Disconnected, asyncio.CancelledError):
            if self._cancels and not writer.has_ended:
                task_canceller(self._hub, principal, task.task_id)()
            raise
        if writer.fault is not None:
            error = encode_error(writer.fault)
            raise RequestFailed({**error, "data": {**error["data"], w.OWN: writer.own_members()}})
        if writer.result is None:
            await self._peer.close(RESTART, "The gateway stops.")
            raise Disconnected
        return writer.result

    async def _follow(
        self, batches: AsyncGenerator[Sequence[Record]], writer: TurnWriter, task_id: str, skip: int
    ) -> None:
        """Pass records to the writer until the turn ends or the gateway stops. The client is asked questions meanwhile,
        because another caller may answer a question first."""
        reading: asyncio.Future[Sequence[Record] | None] | None = None
        asking: asyncio.Future[bool] | None = None
        try:
            while not writer.has_ended:
                if asking is None and reading is None:  # the usual case, which needs no task
                    batch = await anext(batches, None)
                else:
                    reading = reading or asyncio.ensure_future(anext(batches, None))
                    await asyncio.wait({reading, asking} if asking else {reading}, return_when=asyncio.FIRST_COMPLETED)
                    if asking is not None and not reading.done():
                        if not asking.result():
                            writer.pause()
                        asking = None
                        continue
                    batch, reading = reading.result(), None
                if batch is None:
                    return
                skip = await self._write(batch, writer, skip)
                if not writer.is_paused:
                    await _stop(asking)
                    asking = None
                elif asking is None and not writer.has_ended:
                    asking = asyncio.ensure_future(self._ask(task_id))
        finally:
            await _stop(asking)
            await _stop(reading)

    async def _write(self, batch: Sequence[Record], writer: TurnWriter, skip: int) -> int:
        """Send the updates for records to the client, without the first `skip` updates. Return how many of the next
        updates are still to be left out. The last updates of the turn are sent together with its result."""
        texts: list[bytes] = []
        size = 0
        for record in batch:
            event = record.event
            template = self._templates.get((event.message_id, event.index)) if type(event) is PartDelta else None
            if type(event) is PartDelta and event.text and template is not None:
                texts.append(template.encode(event.text))
                continue
            for update in writer.write(record):
                if skip:
                    skip -= 1
                    continue
                texts.append(await as_bytes(encode(self._notification(update))))
                size += len(texts[-1])
                if type(event) is PartDelta:
                    self._add_template(event, update)
            if type(event) is not PartDelta:
                self._templates.clear()
            if size > _TOGETHER:
                await self._peer.send_texts(texts)
                texts, size = [], 0
            if writer.has_ended:
                self._peer.hold(texts)
                return skip
        if texts:
            await self._peer.send_texts(texts)
        return skip

    def _notification(self, update: w.Update) -> JsonObject:
        params: JsonObject = {"sessionId": self._session_id, "update": update}
        return {"jsonrpc": "2.0", "method": w.UPDATE, "params": params}

    def _add_template(self, event: PartDelta, update: w.Update) -> None:
        """Store a template for the next texts of a part. It is valid until a record that is not a text. The first
        update of a message may have additional members (`_meta`), so the second one is taken."""
        key = (event.message_id, event.index)
        if key not in self._templates:
            self._templates[key] = None
            return
        if is_large(update):
            return
        self._templates[key] = TextTemplate(lambda text: self._notification({**update, "content": text_block(text)}))

    async def _ask(self, task_id: str) -> bool:
        """Ask the client the open questions of a task, and submit the answers. Return False if the client answered
        none, which ends the turn, and True if the turn continues."""
        principal = self._who.principal
        task = await self._hub.reads.task(principal, task_id)
        if not task.is_waiting:
            return True
        questions = [
            each
            for each in await self._hub.reads.open_interrupts(principal, task_id)
            if can_be_asked(each, self._elicitation) and each.interrupt_id not in self._refused
        ]
        replies = await asyncio.gather(*(self._ask_client(each) for each in questions))
        if self.is_cancelled:
            return True
        answered = {each.interrupt_id: reply for each, reply in zip(questions, replies, strict=True) if reply}
        self._refused |= {each.interrupt_id for each in questions if each.interrupt_id not in answered}
        if not answered:
            return False
        try:
            await self._submit(task, answered, questions)
        except FaultError as error:
            if error.fault.code not in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED):
                raise
        return await self._ask(task_id)  # a question that is text may still be open

    async def _ask_client(self, question: Interrupt) -> QuestionReply | None:
        method, params = encode_request(question, self._session_id, self._elicitation)
        result = await self._peer.request(method, params)
        try:
            return None if result is None else decode_reply(question, result, self._elicitation)
        except ValidationError:
            return None

    async def _submit(self, task: Task, replies: dict[str, QuestionReply], questions: Sequence[Interrupt]) -> None:
        """Submit the user's answers, by question id, to `questions` of a task. Declined questions are submitted first,
        and then the other answers continue the task."""
        principal = self._who.principal
        values = {name: reply.value for name, reply in replies.items() if not reply.is_decline}
        declined: dict[str, Json] = {name: None for name, reply in replies.items() if reply.is_decline}
        words = [_words(each, replies[each.interrupt_id]) for each in questions if each.interrupt_id in replies]
        config = self._sessions.config_of(await self._sessions.find(self._session_id))
        run_input = RunInput(messages=(Message.of("\n".join(words), "user"),), headers=self._who.headers, config=config)
        accepted = _answers(task, values, run_input)
        if declined:
            if values:
                await self._hub.check_answers(principal, accepted)
            quiet = RunInput(headers=self._who.headers, config=config) if values else run_input
            decline = Answers(task_id=task.task_id, values=declined, action="decline", input=quiet, protocol=PROTOCOL)
            await self._hub.answer(principal, decline)
        if values:
            await self._hub.answer(principal, accepted)


def _answers(task: Task, values: JsonObject, run_input: RunInput, *, is_text: bool = False) -> Answers:
    return Answers(task_id=task.task_id, values=values, input=run_input, is_text=is_text, protocol=PROTOCOL)


def _words(question: Interrupt, reply: QuestionReply) -> str:
    """Return an answer as the text of a user message: the name of the chosen option, the typed text, or the value as
    JSON."""
    for option in options_of(question):
        if option.value == reply.value:
            return option.name
    if reply.is_decline:
        return "Declined."
    return reply.value if isinstance(reply.value, str) else json_text(reply.value)


def _is_start(created: RunCreated, key: str | None) -> bool:
    """Return True if a run is the first one of the turn whose prompt has this key. With None as the key, the first run
    of any turn matches."""
    found = prompt_key(created)
    if key is None:
        return found is not None or created.cause != "answer"
    return found == key


async def _stop(task: "asyncio.Future[Any] | None") -> None:
    """Cancel an asyncio future that is not done, and wait for its end."""
    if task is not None and not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
