"""Calls of tools: a run of the agent, the questions it stops for, and what its caller answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from msgspec.structs import replace

from babelgate.adapters.kit.extension import Request, Slice, answer_message, given_config, with_uploads
from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.disconnect import accept, task_canceller
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.whole_states import tell_states_whole
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.agents import Tool, encode_resume, resume_name, tools_of
from babelgate.adapters.mcp.codec.arguments import decode_arguments, decode_data, thread_of
from babelgate.adapters.mcp.codec.questions import (
    CAPABILITIES,
    FORM,
    Form,
    Question,
    decode_form,
    decode_response,
    encode_request,
    method_of,
)
from babelgate.adapters.mcp.codec.run_id import decode_run_id, decode_state, encode_state
from babelgate.adapters.mcp.codec.tasks import EXTENSION, encode_error, encode_task
from babelgate.adapters.mcp.errors import encode_failure
from babelgate.adapters.mcp.write import ResultWriter
from babelgate.canonical import (
    Answers,
    Fault,
    FaultCode,
    FaultError,
    Hub,
    Receipt,
    RunInput,
    Scope,
    Submission,
    Task,
    TaskState,
)
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import Json, JsonObject, is_uuid

DEPARTURE: Final = "mcp_departure"
"""Key in the state of a request for the `Departure` of its caller."""
PROTOCOL: Final = "mcp"

_HOLD: Final = 1.0
"""Seconds for which a call is waited for before it becomes a task, and the answer to who asks for a task is held back
while it is at work. Chosen, not measured."""
_NOBODY: Final = "No run waits for an answer under that id."


class Peer(Protocol):
    """The caller's end of one call. A Protocol although the SDK's is the only one, which keeps this module free of the
    SDK: `sdk.py`, which alone imports it, imports this one."""

    @property
    def version(self) -> str: ...

    @property
    def can_be_asked(self) -> bool:
        """While the call goes on."""
        ...

    @property
    def can_call_again(self) -> bool:
        """With answers to questions, which are the result of this call."""
        ...

    def can_answer(self, method: str) -> bool:
        """It declares what a method of `CAPABILITIES` needs."""
        ...

    @property
    def is_polling(self) -> bool:
        """It is given a task to ask for, instead of the result."""
        ...

    @property
    def has_extension(self) -> bool:
        """It has activated the Babelgate extension."""
        ...

    @property
    def extras(self) -> Request:
        """What the request says by it. Raises invalid."""
        ...

    async def progress(self, words: str) -> None: ...

    async def say(self, text: str) -> None:
        """A piece of what the result will hold."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        """The result of a method of `CAPABILITIES`; None where it could not be asked."""
        ...

    def on_leave(self, left: Callable[[], None]) -> None:
        """What to do if it hangs up before the call is answered."""
        ...


@dataclass(frozen=True, slots=True)
class Retry:
    """A call that is repeated with the answers to the questions of an earlier one."""

    state: str
    responses: Mapping[str, Any]
    """By the id of each question."""


class MissingCapability(Exception):
    """The caller does not declare what the call needs."""

    def __init__(self, capabilities: JsonObject) -> None:
        super().__init__("The client does not declare what this call needs.")
        self.capabilities = capabilities


class Calls:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def _tools(self, who: Caller) -> dict[str, Tool]:
        infos = self._hub.agents()
        if who.agent is not None and who.base_url.endswith(f"/agent/{who.agent}"):
            infos = [info for info in infos if info.name == who.agent]
        return tools_of(infos)

    def list_tools(self, who: Caller) -> list[JsonObject]:
        tools = self._tools(who)
        return [*(tool.encode() for tool in tools.values()), encode_resume(resume_name(tools))]

    async def call(
        self, who: Caller, name: str, arguments: JsonObject, peer: Peer, retry: Retry | None = None
    ) -> JsonObject:
        """The result. Raises not_found for a tool that there is not, and for a state that is nobody's or another's;
        invalid for one that was changed; MissingCapability."""
        tools = self._tools(who)
        resumes = name == resume_name(tools)
        if not resumes and name not in tools:
            raise FaultError(FaultCode.NOT_FOUND, f"Unknown tool: {name[:100]}")
        if not resumes and tools[name].needs_task and not peer.is_polling:
            # NEXT/basic, Capabilities.
            raise MissingCapability({"extensions": {EXTENSION: {}}})
        task = None
        if retry is not None and not resumes:
            task = await self._find(who, decode_state(retry.state, name))
        try:
            if resumes:
                return await self._resume(who, validate(w.Resume, arguments), peer)
            if retry is not None and task is not None:
                return await self._go_on(who, tools[name], task, retry, peer)
            return await self._start(who, tools[name], arguments, peer)
        except FaultError as error:
            return encode_failure(error.fault)

    # Runs

    async def _start(self, who: Caller, tool: Tool, arguments: JsonObject, peer: Peer) -> JsonObject:
        submission = await self._submission(who, tool, arguments, peer)
        if peer.is_polling:
            submission = replace(submission, ephemeral=False)
        receipt = await accept(self._hub, who.owner, self._hub.submit(who.owner, submission))
        return await self._conclude(
            who, tool, _writer(receipt.task, receipt.task.first_seq - 1, receipt.run_id, peer), peer
        )

    async def _conclude(self, who: Caller, tool: Tool, writer: ResultWriter, peer: Peer) -> JsonObject:
        """The result; of what takes a while the task, for who can ask for it."""
        if not peer.is_polling:
            await self._follow(who, writer, peer)
            return await self._result(who, tool, writer, peer)
        leave = _Leave(task_canceller(self._hub, who.owner, writer.task.task_id))
        peer.on_leave(leave)
        await self._read(who, writer)
        leave.left = None  # The task goes on without its caller, who is told of it now.
        answers = peer.can_call_again and _can_answer(peer, writer.questions)
        if writer.has_ended and (not writer.is_paused or answers):
            return await self._result(who, tool, writer, peer)
        told = encode_task(writer.task, writer.state)
        # SEP-2663: what a call may be answered with where the caller declares the extension.
        return {"resultType": "task", **told, "_meta": writer.metadata()}

    async def _submission(self, who: Caller, tool: Tool, arguments: JsonObject, peer: Peer) -> Submission:
        """Raises invalid."""
        thread_id, alias = self._thread(thread_of(arguments))
        if tool.takes_messages:
            given = decode_arguments(arguments)
            given = given.replace(messages=await resolve_own_files(self._hub, who, given.messages))
        else:
            wrong = await self._hub.find_schema_error(tool.input_schema, arguments)
            if wrong is not None:
                raise FaultError(FaultCode.INVALID, f"The arguments do not fit the input schema{wrong}")
            given = decode_data(arguments)
        told = peer.extras
        given = given.replace(
            messages=with_uploads(told, given.messages),
            uploaded=len(told.uploads),
            config={**given.config, **given_config(told)},
            metadata={**given.metadata, **(told.metadata or {})},
            headers=who.headers,
        )
        submission = Submission(
            agent=tool.info.name,
            protocol=PROTOCOL,
            version=peer.version,
            input=given,
            thread_id=thread_id,
            alias=alias,
            ephemeral=thread_id is None and alias is None,
        )
        return told.start.apply(submission)

    def _thread(self, named: str | None) -> tuple[str | None, str | None]:
        """Id or name."""
        if named is not None and is_uuid(named):
            return str(UUID(named)), None
        return None, named

    async def _follow(self, who: Caller, writer: ResultWriter, peer: Peer) -> None:
        """Up to the end, through all questions that the caller can be asked; or to that of the gateway."""
        task = writer.task
        leave = task_canceller(self._hub, who.owner, task.task_id)
        peer.on_leave(leave)
        try:
            follow = self._hub.reads.follow(who.owner, Scope.task(task), task.first_seq - 1, inline=True)
            if writer.records is not None:
                follow = tell_states_whole(self._hub, who.owner, task.thread_id, follow)
            async with aclosing(follow) as batches:
                async for batch in batches:
                    for record in batch:
                        for words in writer.write(record):
                            await _say(writer, peer)
                            await peer.progress(words)
                        if writer.is_paused and peer.can_be_asked and _can_answer(peer, writer.questions):
                            await _say(writer, peer)
                            await self._ask(who, writer, peer)
                        if writer.has_ended:
                            return
                    await _say(writer, peer)
        except asyncio.CancelledError:
            leave()
            raise

    async def _result(self, who: Caller, tool: Tool, writer: ResultWriter, peer: Peer) -> JsonObject:
        """Raises MissingCapability."""
        if writer.is_paused and peer.can_call_again:
            if _can_answer(peer, writer.questions):
                return {**_input_required(writer.task, writer.questions), "_meta": writer.metadata()}
            missing = {method_of(each) for each in writer.questions} - {FORM}
            missing = {method for method in missing if not peer.can_answer(method)}
            if missing:
                # NEXT/basic, Capabilities: what nobody else can answer.
                await self._hub.cancel(who.owner, writer.task.task_id)
                raise MissingCapability({CAPABILITIES[method]: {} for method in sorted(missing)})
        result = writer.result()
        if tool.output_schema is None or writer.fault is not None or writer.is_paused:
            return result
        # SPEC/server/tools, Output Schema: who declares one keeps it. Clients raise where it is not kept.
        structured = writer.structured_output()
        wrong = ": there is none"
        if structured is not None:
            wrong = await self._hub.find_schema_error(tool.output_schema, structured)
        if wrong is None:
            return result
        fault = Fault(code=FaultCode.AGENT_INVALID, message=f"The agent's output does not fit its output schema{wrong}")
        return encode_failure(fault)

    # Questions

    async def _ask(self, who: Caller, writer: ResultWriter, peer: Peer) -> None:
        """Each open question; the writer goes on with the run that the answers make."""
        forms: list[tuple[Question, Form]] = []
        for asked in writer.questions:
            request = encode_request(asked)
            form = decode_response(asked, await peer.ask(request["method"], request["params"]))
            if form is None:
                return
            forms.append((asked, form))
        receipt = await self._give(who, writer.task, forms, given_config(peer.extras))
        writer.go_on(None if receipt is None else receipt.run_id)

    async def _give(
        self, who: Caller, task: Task, forms: Sequence[tuple[Question, Form]], config: JsonObject | None = None
    ) -> Receipt | None:
        """Answers as they were given; None where they came too late, or end the run."""
        # SPEC/client/elicitation, Response Actions: accept, decline, cancel.
        if any(form.action == "cancel" for _, form in forms):
            await self._hub.cancel(who.owner, task.task_id)
            return None
        values = {
            asked.interrupt_id or "": decode_form(asked, form.content)
            for asked, form in forms
            if form.action == "accept"
        }
        declined = {asked.interrupt_id or "": None for asked, form in forms if form.action == "decline"}
        config = config or {}
        receipt = await self._answer(who, task, values, config) if values else None
        return await self._answer(who, task, declined, config, declines=True) if declined else receipt

    async def _answer(
        self,
        who: Caller,
        task: Task,
        values: Mapping[str, Json],
        config: JsonObject | None = None,
        *,
        declines: bool = False,
    ) -> Receipt:
        said = () if declines else tuple(answer_message(value) for value in values.values())
        return await self._hub.answer(
            who.owner,
            Answers(
                task_id=task.task_id,
                values=values,
                input=RunInput(messages=said, config=config or {}, headers=who.headers),
                action="decline" if declines else "answer",
                protocol=PROTOCOL,
            ),
        )

    async def _resume(self, who: Caller, given: w.Resume, peer: Peer) -> JsonObject:
        """Raises invalid, not_found, not_awaiting, task_ended."""
        peer.extras.start.check_absent()
        task = await self._find(who, decode_run_id(given.run_id))
        tool = self._tools(who).get(task.agent)
        if tool is None:
            raise FaultError(FaultCode.NOT_FOUND, _NOBODY)
        if given.action == "cancel":
            await self._hub.cancel(who.owner, task.task_id)
            return await self._end(who, task, peer)
        declines = given.action == "decline"
        asked = [each.interrupt_id for each in await self._hub.reads.open_interrupts(who.owner, task.task_id)]
        values: Mapping[str, Json] = dict.fromkeys(given.answers or asked) if declines else given.answers
        if asked and (not values or not values.keys() <= set(asked)):
            raise FaultError(
                FaultCode.INVALID,
                f"answers: It must have answers by the ids of questions, which are {', '.join(asked)}.",
            )
        config = given_config(peer.extras)
        receipt = await accept(self._hub, who.owner, self._answer(who, task, values, config, declines=declines))
        return await self._conclude(who, tool, _writer(receipt.task, receipt.seq, receipt.run_id, peer), peer)

    async def _go_on(self, who: Caller, tool: Tool, task: Task, retry: Retry, peer: Peer) -> JsonObject:
        """What the whole task has said: of the call before there was no result but its questions."""
        asked = await self._hub.reads.open_interrupts(who.owner, task.task_id)
        forms = _match_answers(asked, retry.responses)
        if asked and not forms:
            return _input_required(task, asked)
        receipt: Receipt | None = None
        if forms:
            receipt = await accept(self._hub, who.owner, self._give(who, task, forms, given_config(peer.extras)))
            if receipt is None:
                return await self._end(who, task, peer)
        run_id = await self._last_run(who, task) if receipt is None else receipt.run_id
        return await self._conclude(who, tool, _writer(task, task.first_seq - 1, run_id, peer), peer)

    async def _end(self, who: Caller, task: Task, peer: Peer) -> JsonObject:
        """Of a task that waited for an answer, and was cancelled."""
        writer = _writer(task, task.last_seq, None, peer)
        await self._follow(who, writer, peer)
        return writer.result()

    async def _last_run(self, who: Caller, task: Task) -> str | None:
        run_id: str | None = None
        async with aclosing(self._hub.reads.log(who.owner, Scope.task(task), task.first_seq - 1)) as known:
            async for records in known:
                run_id = next((each.run_id for each in reversed(records) if each.run_id), run_id)
        return run_id

    # Tasks

    async def get_task(self, who: Caller, task_id: str) -> JsonObject:
        """What becomes of it; of one that is at work, as soon as it stops, or in a while. Raises not_found."""
        task = await self._task(who, task_id)
        writer = ResultWriter(task, task.first_seq - 1, None, whole=True)
        await self._read(who, writer)
        told = encode_task(await self._task(who, task_id), writer.state)
        if writer.state in TERMINAL and writer.state is not TaskState.CANCELLED:
            # SEP-2663, Errors: those of the gateway alone; what a tool fails with is its result.
            error = encode_error(writer.fault)
            if error is not None:
                said = writer.result()
                meta = {"babelgate": {**said.pop("_meta")["babelgate"], "result": said}}
                return {**told, "status": "failed", "statusMessage": error["message"], "error": error, "_meta": meta}
            return {**told, "result": writer.result()}
        # What there is of a result stands beside: the protocol has no place for it before the end.
        so_far = writer.result(so_far=writer.state not in WAITING)
        told["_meta"] = {"babelgate": {**so_far.pop("_meta")["babelgate"], "result": so_far}}
        if writer.state in WAITING:
            told["inputRequests"] = _requests(writer.questions)
        return told

    async def _read(self, who: Caller, writer: ResultWriter) -> None:
        """Up to where it stops, or a while after all that was known of it, however long that takes to read."""
        task = writer.task
        follow = self._hub.reads.follow(who.owner, Scope.task(task), task.first_seq - 1, inline=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as bound, aclosing(follow) as batches:
                async for batch in batches:
                    for record in batch:
                        writer.write(record)
                    if writer.state in WAITING or writer.state in TERMINAL:
                        return
                    if bound.when() is None or batch[-1].seq <= task.last_seq:
                        bound.reschedule(asyncio.get_running_loop().time() + _HOLD)

    async def answer_task(self, who: Caller, task_id: str, responses: Mapping[str, Any]) -> None:
        """Raises not_found, invalid, not_awaiting, task_ended. What answers no open question is passed over."""
        task = await self._task(who, task_id)
        given = _match_answers(await self._hub.reads.open_interrupts(who.owner, task.task_id), responses)
        if given:
            await self._give(who, task, given)

    async def cancel_task(self, who: Caller, task_id: str) -> None:
        """Raises not_found. One that has ended stays as it is."""
        task = await self._task(who, task_id)
        try:
            await self._hub.cancel(who.owner, task.task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:
                raise

    async def _task(self, who: Caller, task_id: str) -> Task:
        """Raises not_found."""
        if is_uuid(task_id):
            task = await self._find(who, task_id)
            if task.agent in self._tools(who):
                return task
        raise FaultError(FaultCode.NOT_FOUND, _NOBODY)

    async def _find(self, who: Caller, task_id: str) -> Task:
        """Raises not_found."""
        try:
            return await self._hub.reads.task(who.owner, task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            raise FaultError(FaultCode.NOT_FOUND, _NOBODY) from error


def _writer(task: Task, since: int, run_id: str | None, peer: Peer) -> ResultWriter:
    writer = ResultWriter(task, since, run_id)
    if peer.has_extension:
        writer.records = Slice()
    return writer


def _input_required(task: Task, asked: Sequence[Question]) -> JsonObject:
    """NEXT/basic/utilities/mrtr, Multi Round-Trip Requests."""
    state = encode_state(task.task_id, task.agent, (each.interrupt_id or "" for each in asked))
    return {"resultType": "input_required", "inputRequests": _requests(asked), "requestState": state}


def _requests(asked: Sequence[Question]) -> JsonObject:
    return {each.interrupt_id or "": encode_request(each) for each in asked}


def _match_answers(asked: Sequence[Question], responses: Mapping[str, Any]) -> list[tuple[Question, Form]]:
    """Which of the questions, and how. What is no answer to its question is passed over, so that it is asked again."""
    given = [(each, decode_response(each, responses.get(each.interrupt_id or ""))) for each in asked]
    return [(each, form) for each, form in given if form is not None]


async def _say(writer: ResultWriter, peer: Peer) -> None:
    text = writer.take_text()
    if text:
        await peer.say(text)


def _can_answer(peer: Peer, asked: Sequence[Question]) -> bool:
    return all(peer.can_answer(method_of(each)) for each in asked)


class _Leave:
    """What is done if the caller leaves, as long as that is so."""

    def __init__(self, left: Callable[[], None]) -> None:
        self.left: Callable[[], None] | None = left

    def __call__(self) -> None:
        if self.left is not None:
            self.left()
