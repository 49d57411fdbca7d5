"""Calls of tools: the run of an agent, the questions at which it stops, and the caller's answers. Also the methods of
the tasks extension."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from msgspec.structs import replace

from babelgate.adapters.kit.extension import Request, Slice, answer_message, config_of, with_uploads
from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.disconnect import accept, task_canceller
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.agents import AgentTool, encode_resume, resume_name
from babelgate.adapters.mcp.codec.arguments import decode_arguments, decode_data, thread_of
from babelgate.adapters.mcp.codec.questions import (
    CAPABILITIES,
    FORM,
    PAGE,
    Form,
    Question,
    decode_form,
    decode_response,
    encode_questions,
    encode_request,
    form_text,
    method_of,
    page_of,
)
from babelgate.adapters.mcp.codec.run_id import decode_run_id, decode_state, encode_run_id, encode_state
from babelgate.adapters.mcp.codec.tasks import EXTENSION, encode_error, encode_task
from babelgate.adapters.mcp.errors import encode_failure
from babelgate.adapters.mcp.write.result import ProgressText, ResultWriter
from babelgate.canonical import (
    AgentInfo,
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
from babelgate.canonical.event import InterruptAnswered
from babelgate.canonical.json import as_object
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import Json, JsonObject, is_uuid

DISCONNECT: Final = "mcp_departure"
"""Key in a request's ASGI state for the `Disconnect` with its caller's callbacks."""
CHALLENGE: Final = "mcp_challenge"
"""Key in a request's ASGI state for a function that takes a fault and replaces the response by a request for more
scopes."""
PROTOCOL: Final = "mcp"

_HOLD: Final = 1.0
"""Seconds for which a call is awaited before it becomes a task. A response to `tasks/get` is delayed by the same time
while the task is running. Chosen, not measured."""
_TOOLS: Final = 1000
"""Maximum number of tools that are remembered. Chosen: more agents than a gateway has."""
_NO_RUN: Final = "No run waits for an answer under that id."
_WITH_PAGES: Final = "2025-11-25"
"""The only version with the error -32042 (NEXT/changelog)."""


class Peer(Protocol):
    """Caller of one tool call: what its client can do, and how to send it messages.

    It is a Protocol although only `ExchangePeer` implements it. That class needs the models of MCP, which are loaded
    with the first request, and the route handlers import this module before.
    """

    @property
    def version(self) -> str:
        """Version of MCP that the client speaks, such as `2025-11-25`."""
        ...

    @property
    def can_be_asked(self) -> bool:
        """True if the gateway can send requests to the client before the call's response."""
        ...

    @property
    def can_repeat_call(self) -> bool:
        """True if the client's version allows a result with questions, and a repeated call with the answers (multi
        round-trip requests)."""
        ...

    def can_answer(self, method: str) -> bool:
        """Return True if the client declares the capability that a method, a key of `CAPABILITIES`, needs."""
        ...

    @property
    def is_polling(self) -> bool:
        """True if the client accepts a task instead of a result, and then polls the task."""
        ...

    @property
    def has_extension(self) -> bool:
        """True if the client activated the Babelgate extension."""
        ...

    @property
    def extras(self) -> Request:
        """Data that the call's `_meta` has for the gateway. With the Babelgate extension, these are the members of the
        extension. Without it, they are the metadata and the tools in `_meta.babelgate`. Empty if there are none. Raises
        invalid if they are malformed."""
        ...

    async def progress(self, progress: ProgressText) -> None:
        """Send a progress message of the agent, or the name of its tool or step, to the client."""
        ...

    async def send_text(self, text: str) -> None:
        """Send a piece of the result's text to the client, before the result."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        """Send a request for a method of `CAPABILITIES` to the client, and return its result. Return None if the
        request failed."""
        ...

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Set a callback for the case that the client disconnects or cancels the call before its response."""
        ...


@dataclass(frozen=True, slots=True)
class Retry:
    """State and answers of a call that repeats an earlier one, whose result had questions."""

    state: str
    responses: Mapping[str, Any]
    """Results of the requests in the earlier call's result, by question id."""


class MissingCapability(Exception):
    """Raised if a call or a task needs a capability that the client does not declare."""

    def __init__(self, capabilities: JsonObject) -> None:
        super().__init__("The client does not declare a capability that this call needs.")
        self.capabilities = capabilities


class PagesRequired(Exception):
    """Raised if the user must open pages before the client repeats the call (SPEC/client/elicitation, URL Elicitation
    Required Error)."""

    def __init__(self, questions: Sequence[Question]) -> None:
        super().__init__(" ".join(form_text(each) for each in questions))
        self.pages: list[JsonObject] = [encode_request(each, has_id=True)["params"] for each in questions]


class ToolCalls:
    """Implementation of the tools and tasks for all callers, independent of the SDK."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._tools: dict[str, AgentTool] = {}
        """Tools by the name of their agent: every call lists all agents, and reading their schemas takes time."""

    def agents(self, who: Caller) -> dict[str, AgentTool]:
        """Return the agents that the caller can see, in all roles, by name. If the base URL of the request is that of
        one agent, there is only this agent."""
        infos = self._hub.agents(who.principal)
        if who.has_single_agent:
            infos = [info for info in infos if info.name == who.agent]
        return {info.name: self._tool(info) for info in infos}

    def _tool(self, info: AgentInfo) -> AgentTool:
        """Return the tool for an agent: the one of the previous call, if the agent has not changed since."""
        tool = self._tools.get(info.name)
        if tool is None or tool.info is not info:
            if len(self._tools) >= _TOOLS:
                self._tools.clear()
            tool = self._tools[info.name] = AgentTool.of(info)
        return tool

    def list_tools(self, who: Caller) -> list[JsonObject]:
        """Return all tools as JSON objects: one for each agent, and the tool that answers questions."""
        tools = self.agents(who)
        encoded = [tool.encode() for tool in tools.values() if tool.role == "tool"]
        return [*encoded, encode_resume(resume_name(tools))]

    async def call(
        self, who: Caller, name: str, arguments: JsonObject, peer: Peer, retry: Retry | None = None
    ) -> JsonObject:
        """Return the result of a tool call. Faults of the run are results with `isError`. `retry` has the state and
        answers of a repeated call; None for a first call.

        Raises not_found if there is no such tool, or if the state belongs to another owner or to no task. Raises
        invalid if the state was changed, MissingCapability and PagesRequired. Raises forbidden if a token needs more
        scopes.
        """
        tools = self.agents(who)
        is_resume = name == resume_name(tools)
        if not is_resume and (name not in tools or tools[name].role != "tool"):
            raise FaultError(FaultCode.NOT_FOUND, f"Unknown tool: {name[:100]}")
        if not is_resume and tools[name].needs_task and not peer.is_polling:
            # NEXT/basic, Capabilities
            raise MissingCapability({"extensions": {EXTENSION: {}}})
        task = None if is_resume else await self._find_repeated(who, tools[name], retry)
        try:
            if is_resume:
                return await self._resume(who, validate(w.Resume, arguments), peer)
            return await self._perform(who, tools[name], arguments, peer, retry, task)
        except FaultError as error:
            if error.fault.is_scope_missing:
                raise
            return encode_failure(error.fault)

    async def call_agent(
        self, who: Caller, tool: AgentTool, arguments: JsonObject, peer: Peer, retry: Retry | None = None
    ) -> JsonObject:
        """Return the result of a run of an agent that is a prompt or a resource, as that of a tool call. A failed run
        is a result with `isError`. The parameters and exceptions are those of `call`.

        Raises the fault of a run that cannot start, such as invalid for arguments that do not match the agent's schema.
        """
        task = await self._find_repeated(who, tool, retry)
        return await self._perform(who, tool, arguments, peer, retry, task)

    async def _find_repeated(self, who: Caller, tool: AgentTool, retry: Retry | None) -> Task | None:
        """Return the task whose call is repeated, or None for a first call. Raises invalid, not_found."""
        return None if retry is None else await self._find(who, decode_state(retry.state, tool.info.name))

    async def _perform(
        self, who: Caller, tool: AgentTool, arguments: JsonObject, peer: Peer, retry: Retry | None, task: Task | None
    ) -> JsonObject:
        """Start a run, or continue the task of a repeated call, and return the result of the call."""
        if retry is not None and task is not None:
            return await self._repeat(who, tool, task, retry, peer)
        return await self._start(who, tool, arguments, peer)

    async def check_output(self, who: Caller, result: JsonObject) -> None:
        """Check the result of a run of an agent that is a prompt or a resource. Unlike the result of a tool, it cannot
        contain an error. Raises agent_failed for a failed run. A run with questions that the client cannot answer is
        cancelled, and raises agent_invalid."""
        text = next((each["text"] for each in reversed(result["content"]) if each["type"] == "text"), "")
        if result.get("isError"):
            raise FaultError(FaultCode.AGENT_FAILED, text)
        task_id = result["_meta"]["babelgate"]["task_id"]
        structured = as_object(result.get("structuredContent"))
        if structured.get("run_id") == encode_run_id(task_id):
            with suppress(FaultError):
                await self._hub.cancel(who.principal, task_id)
            raise FaultError(
                FaultCode.AGENT_INVALID,
                "The agent asks a question, which this client cannot answer.",
            )

    # Runs

    async def _start(self, who: Caller, tool: AgentTool, arguments: JsonObject, peer: Peer) -> JsonObject:
        """Submit a run of the tool's agent, and return the result of the call."""
        self._hub.check_submit(who.principal, tool.info.name)  # its challenge names the scopes of the run and the read
        submission = await self._submission(who, tool, arguments, peer)
        if peer.is_polling:
            submission = replace(submission, ephemeral=False)
        receipt = await accept(self._hub, who.principal, self._hub.submit(who.principal, submission))
        writer = _writer(receipt.task, receipt.task.first_seq - 1, receipt.run_id, peer)
        result = await self._conclude(who, tool, writer, peer)
        if writer.is_paused and not writer.has_output and _can_open_pages(peer, writer.questions):
            await self._refuse_for_pages(who, writer, receipt.run_id)
        return result

    async def _refuse_for_pages(self, who: Caller, writer: ResultWriter, run_id: str) -> None:
        """Refuse a call whose run waits until its user has opened web pages: cancel the run, remove it from the thread,
        and raise PagesRequired with the pages. The agent has produced no output, and the client will repeat the call.
        Do nothing if the caller may not cancel runs."""
        try:
            await self._hub.cancel(who.principal, writer.task.task_id)
        except FaultError:
            return
        with suppress(FaultError):  # otherwise the thread has the message twice
            await self._hub.remove_run(who.principal, run_id)
        raise PagesRequired(writer.questions)

    async def _conclude(self, who: Caller, tool: AgentTool, writer: ResultWriter, peer: Peer) -> JsonObject:
        """Wait for the run of `writer`, and return the result of the call. If the client polls and the run takes longer
        than `_HOLD`, return a task instead."""
        if not peer.is_polling:
            await self._follow(who, writer, peer)
            return await self._result(who, tool, writer, peer)
        # Also while the response is sent: no caller could ever find the task whose id did not arrive.
        peer.on_disconnect(task_canceller(self._hub, who.principal, writer.task.task_id))
        await self._read(who, writer, peer)
        can_answer = peer.can_repeat_call and _can_answer(peer, writer.questions)
        if writer.has_ended and (not writer.is_paused or can_answer):
            return await self._result(who, tool, writer, peer)
        task = encode_task(writer.task, writer.state)
        # SEP-2663: the alternative result of a call if the caller declares the extension.
        return {"resultType": "task", **task, "_meta": writer.metadata()}

    async def _submission(self, who: Caller, tool: AgentTool, arguments: JsonObject, peer: Peer) -> Submission:
        """Return the hub's submission for a tool call. Raises invalid for arguments that do not match the tool's
        schema."""
        thread_id, alias = self._thread(thread_of(arguments))
        if tool.takes_messages:
            run_input = decode_arguments(arguments)
            run_input = run_input.replace(messages=await resolve_own_files(self._hub, who, run_input.messages))
        else:
            schema_error = await self._hub.find_schema_error(who.principal, tool.input_schema, arguments)
            if schema_error is not None:
                raise FaultError(FaultCode.INVALID, f"The arguments do not fit the input schema{schema_error}")
            run_input = decode_data(arguments)
        extras = peer.extras
        run_input = run_input.replace(
            messages=with_uploads(extras, run_input.messages),
            uploaded=len(extras.uploads),
            config={**run_input.config, **config_of(extras)},
            metadata={**run_input.metadata, **(extras.metadata or {})},
            headers=who.headers,
        )
        submission = Submission(
            agent=tool.info.name,
            protocol=PROTOCOL,
            version=peer.version,
            input=run_input,
            thread_id=thread_id,
            alias=alias,
            ephemeral=thread_id is None and alias is None,
        )
        return extras.start.apply(submission)

    def _thread(self, thread: str | None) -> tuple[str | None, str | None]:
        """Return the argument `thread_id` as a pair: the id of a thread if it is a UUID, or else the alias that the
        caller chose. The other member is None."""
        if thread is not None and is_uuid(thread):
            return str(UUID(thread)), None
        return None, thread

    async def _follow(self, who: Caller, writer: ResultWriter, peer: Peer) -> None:
        """Pass the run's records to the writer until the run ends or the gateway shuts down. Text and progress are sent
        to the client, as are questions that it can answer."""
        task = writer.task
        cancel_task = task_canceller(self._hub, who.principal, task.task_id)
        peer.on_disconnect(cancel_task)
        try:
            follow = self._hub.reads.follow(who.principal, Scope.task(task), task.first_seq - 1, inline=True)
            if writer.records is not None:
                follow = complete_states(self._hub, who.principal, task.thread_id, follow)
            async with aclosing(follow) as batches:
                async for batch in batches:
                    for record in batch:
                        for progress in writer.write(record):
                            await _send_text(writer, peer)
                            await peer.progress(progress)
                        if writer.is_paused and peer.can_be_asked and _can_answer(peer, writer.questions):
                            await _send_text(writer, peer)
                            await self._ask(who, writer, peer)
                        if writer.has_ended:
                            return
                    await _send_text(writer, peer)
        except asyncio.CancelledError:
            cancel_task()
            raise

    async def _result(self, who: Caller, tool: AgentTool, writer: ResultWriter, peer: Peer) -> JsonObject:
        """Return the result of a run that has ended or stopped for questions. Raises MissingCapability, and cancels the
        task, if a question needs a method that the client lacks, such as `sampling/createMessage`."""
        if writer.is_paused and peer.can_repeat_call:
            if _can_answer(peer, writer.questions):
                return {**_input_required(writer.task, writer.questions), "_meta": writer.question_metadata()}
            missing = {method_of(each) for each in writer.questions} - {FORM, PAGE}
            missing = {method for method in missing if not peer.can_answer(method)}
            if missing:
                # NEXT/basic, Capabilities: no other caller can answer these questions.
                await self._hub.cancel(who.principal, writer.task.task_id)
                raise MissingCapability({CAPABILITIES[method]: {} for method in sorted(missing)})
        result = writer.result()
        if tool.output_schema is None or writer.fault is not None or writer.is_paused:
            return result
        # SPEC/server/tools, Output Schema: results must conform to a declared schema. Clients raise an error otherwise.
        structured = writer.structured_output()
        schema_error = ": there is none"
        if structured is not None:
            schema_error = await self._hub.find_schema_error(who.principal, tool.output_schema, structured)
        if schema_error is None:
            return result
        fault = Fault(
            code=FaultCode.AGENT_INVALID, message=f"The agent's output does not fit its output schema{schema_error}"
        )
        return encode_failure(fault)

    # Questions

    async def _ask(self, who: Caller, writer: ResultWriter, peer: Peer) -> None:
        """Send each open question as a request to the client, and submit the answers. The writer then continues with
        the run that they start. If a response is not valid, nothing is submitted."""
        forms: list[tuple[Question, Form]] = []
        for question in writer.questions:
            request = encode_request(question, has_id=True)
            form = decode_response(question, await peer.ask(request["method"], request["params"]))
            if form is None:
                return
            if page_of(question) is None or form.action != "accept":
                forms.append((question, form))
        if not forms:  # the users answer on pages, which starts the next run
            writer.resume(None)
            return
        receipt = await self._submit_responses(who, writer.task, forms, config_of(peer.extras))
        writer.resume(None if receipt is None else receipt.run_id)

    async def _submit_responses(
        self, who: Caller, task: Task, forms: Sequence[tuple[Question, Form]], config: JsonObject | None = None
    ) -> Receipt | None:
        """Submit the caller's responses to questions of a task, and return the receipt of the last run that they start.
        `config` is the configuration of these runs. Return None if a response cancels the task."""
        # SPEC/client/elicitation, Response Actions: accept, decline, cancel.
        if any(form.action == "cancel" for _, form in forms):
            await self._hub.cancel(who.principal, task.task_id)
            return None
        values = {
            question.interrupt_id or "": decode_form(question, form.content)
            for question, form in forms
            if form.action == "accept"
        }
        declined = {question.interrupt_id or "": None for question, form in forms if form.action == "decline"}
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
        """Submit values for questions of a task, by question id, or decline these questions if `declines`. `config` is
        the configuration of the run that continues. Return its receipt."""
        messages = () if declines else tuple(answer_message(value) for value in values.values())
        return await self._hub.answer(
            who.principal,
            Answers(
                task_id=task.task_id,
                values=values,
                input=RunInput(messages=messages, config=config or {}, headers=who.headers),
                action="decline" if declines else "answer",
                protocol=PROTOCOL,
            ),
        )

    async def _resume(self, who: Caller, resume: w.Resume, peer: Peer) -> JsonObject:
        """Execute a call of the tool that answers questions. Return the result of the run that continues, as that of
        the call. Raises invalid for answers that match no open question or violate its schema, not_found for an unknown
        run, and not_awaiting or task_ended if the run does not wait."""
        peer.extras.start.check_absent()
        task = await self._find(who, decode_run_id(resume.run_id))
        tool = self.agents(who).get(task.agent)
        if tool is None:
            raise FaultError(FaultCode.NOT_FOUND, _NO_RUN)
        if resume.action == "cancel":
            await self._hub.cancel(who.principal, task.task_id)
            return await self._end(who, task, peer)
        declines = resume.action == "decline"
        open_ids = [each.interrupt_id for each in await self._hub.reads.open_interrupts(who.principal, task.task_id)]
        values: Mapping[str, Json] = dict.fromkeys(resume.answers or open_ids) if declines else resume.answers
        if open_ids and (not values or not values.keys() <= set(open_ids)):
            raise FaultError(
                FaultCode.INVALID,
                f"answers: It must have answers by the ids of questions, which are {', '.join(open_ids)}.",
            )
        config = config_of(peer.extras)
        receipt = await accept(self._hub, who.principal, self._answer(who, task, values, config, declines=declines))
        return await self._conclude(who, tool, _writer(receipt.task, receipt.seq, receipt.run_id, peer), peer)

    async def _repeat(self, who: Caller, tool: AgentTool, task: Task, retry: Retry, peer: Peer) -> JsonObject:
        """Return the result of a call that repeats an earlier one with answers. It contains all output of the task,
        because the earlier result had only questions."""
        questions = await self._hub.reads.open_interrupts(who.principal, task.task_id)
        forms = _match_answers(questions, retry.responses)
        if questions and not forms and any(page_of(each) is not None for each in questions):
            questions = await self._wait_for_page(who, task)
        if questions and not forms:
            meta = {"babelgate": encode_questions(questions)}
            return {**_input_required(task, questions), "_meta": meta}
        receipt: Receipt | None = None
        if forms:
            receipt = await accept(
                self._hub, who.principal, self._submit_responses(who, task, forms, config_of(peer.extras))
            )
            if receipt is None:
                return await self._end(who, task, peer)
        run_id = await self._last_run(who, task) if receipt is None else receipt.run_id
        writer = _writer(task, task.first_seq - 1, run_id, peer)
        writer.notified_until = 0 if receipt is None else receipt.seq
        return await self._conclude(who, tool, writer, peer)

    async def _wait_for_page(self, who: Caller, task: Task) -> Sequence[Question]:
        """Wait until the user has answered a question on a web page, at most `_HOLD` seconds. Return the questions that
        are open then."""
        follow = self._hub.reads.follow(who.principal, Scope.task(task), task.last_seq)
        with suppress(TimeoutError):
            async with asyncio.timeout(_HOLD), aclosing(follow) as batches:
                async for batch in batches:
                    if any(isinstance(record.event, InterruptAnswered) for record in batch):
                        break
        return await self._hub.reads.open_interrupts(who.principal, task.task_id)

    async def _end(self, who: Caller, task: Task, peer: Peer) -> JsonObject:
        """Return the result of a task that was cancelled while it waited for an answer, after its end is in the log."""
        writer = _writer(task, task.last_seq, None, peer)
        await self._follow(who, writer, peer)
        return writer.result()

    async def _last_run(self, who: Caller, task: Task) -> str | None:
        """Return the id of the newest run of a task, or None if it had none."""
        run_id: str | None = None
        async with aclosing(self._hub.reads.log(who.principal, Scope.task(task), task.first_seq - 1)) as batches:
            async for records in batches:
                run_id = next((each.run_id for each in reversed(records) if each.run_id), run_id)
        return run_id

    # Tasks

    async def get_task(self, who: Caller, task_id: str) -> JsonObject:
        """Return a task of the tasks extension, with its result or its open questions. While the task is running, the
        response is delayed for up to `_HOLD` seconds. Raises not_found."""
        task = await self._task(who, task_id)
        writer = ResultWriter(task, task.first_seq - 1, None, whole=True)
        await self._read(who, writer)
        encoded = encode_task(await self._task(who, task_id), writer.state)
        if writer.state in TERMINAL and writer.state is not TaskState.CANCELLED:
            # SEP-2663, Errors: only faults of the gateway are errors; the failure of a tool is its result.
            error = encode_error(writer.fault)
            if error is not None:
                result = writer.result()
                meta = {"babelgate": {**result.pop("_meta")["babelgate"], "result": result}}
                return {**encoded, "status": "failed", "statusMessage": error["message"], "error": error, "_meta": meta}
            return {**encoded, "result": writer.result()}
        # The result so far is in `_meta`, because the protocol has no place for it before the end.
        so_far = writer.result(so_far=writer.state not in WAITING)
        encoded["_meta"] = {"babelgate": {**so_far.pop("_meta")["babelgate"], "result": so_far}}
        if writer.state in WAITING:
            encoded["inputRequests"] = _requests(writer.questions)
        return encoded

    async def _read(self, who: Caller, writer: ResultWriter, peer: Peer | None = None) -> None:
        """Pass the task's records to the writer: all that exist, and then new ones for `_HOLD` seconds or until the
        task stops. Progress is sent to the client `peer`, if its call waits for the result."""
        task = writer.task
        follow = self._hub.reads.follow(who.principal, Scope.task(task), task.first_seq - 1, inline=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as bound, aclosing(follow) as batches:
                async for batch in batches:
                    for record in batch:
                        for progress in writer.write(record):
                            if peer is not None:
                                await peer.progress(progress)
                    if writer.state in WAITING or writer.state in TERMINAL:
                        return
                    if bound.when() is None or batch[-1].seq <= task.last_seq:
                        bound.reschedule(asyncio.get_running_loop().time() + _HOLD)

    async def answer_task(self, who: Caller, task_id: str, responses: Mapping[str, Any]) -> None:
        """Submit responses to questions of a task, by question id. Those that are invalid or match no open question are
        ignored. Raises not_found for an unknown task, and not_awaiting or task_ended if another caller answers
        first."""
        task = await self._task(who, task_id)
        forms = _match_answers(await self._hub.reads.open_interrupts(who.principal, task.task_id), responses)
        if forms:
            await self._submit_responses(who, task, forms)

    async def cancel_task(self, who: Caller, task_id: str) -> None:
        """Cancel a task. A task that has ended is not changed. Raises not_found."""
        task = await self._task(who, task_id)
        try:
            await self._hub.cancel(who.principal, task.task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:
                raise

    async def _task(self, who: Caller, task_id: str) -> Task:
        """Return a task of the owner whose agent the caller can see. Raises not_found."""
        if is_uuid(task_id):
            task = await self._find(who, task_id)
            if task.agent in self.agents(who):
                return task
        raise FaultError(FaultCode.NOT_FOUND, _NO_RUN)

    async def _find(self, who: Caller, task_id: str) -> Task:
        """Return a task of the owner. Raises not_found."""
        try:
            return await self._hub.reads.task(who.principal, task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            raise FaultError(FaultCode.NOT_FOUND, _NO_RUN) from error


def _writer(task: Task, since: int, run_id: str | None, peer: Peer) -> ResultWriter:
    """Return a writer for the result with the output after the record `since`. It ends with the run `run_id`; None
    means with the next run that ends. If the client activated the Babelgate extension, the writer also collects
    records."""
    writer = ResultWriter(task, since, run_id)
    if peer.has_extension:
        writer.records = Slice()
    return writer


def _input_required(task: Task, questions: Sequence[Question]) -> JsonObject:
    """Return a result that asks the questions of a task (NEXT/basic/utilities/mrtr, Multi Round-Trip Requests)."""
    state = encode_state(task.task_id, task.agent, (each.interrupt_id or "" for each in questions))
    return {"resultType": "input_required", "inputRequests": _requests(questions), "requestState": state}


def _requests(questions: Sequence[Question]) -> JsonObject:
    """Return a request to the client for each question, by question id."""
    return {each.interrupt_id or "": encode_request(each) for each in questions}


def _match_answers(questions: Sequence[Question], responses: Mapping[str, Any]) -> list[tuple[Question, Form]]:
    """Return the questions to which `responses` has a valid answer, with the answer. Invalid responses are ignored, so
    that their questions are sent again. For a question on a web page, `accept` is no answer: the user gives it on the
    page."""
    decoded = [(each, decode_response(each, responses.get(each.interrupt_id or ""))) for each in questions]
    return [
        (each, form)
        for each, form in decoded
        if form is not None and (page_of(each) is None or form.action != "accept")
    ]


async def _send_text(writer: ResultWriter, peer: Peer) -> None:
    """Send the client the text that was added to the result since the previous call."""
    text = writer.take_text()
    if text:
        await peer.send_text(text)


def _can_answer(peer: Peer, questions: Sequence[Question]) -> bool:
    """Return True if the client has the capabilities to answer all questions."""
    return all(peer.can_answer(method_of(each)) for each in questions)


def _can_open_pages(peer: Peer, questions: Sequence[Question]) -> bool:
    """Return True if all questions are answered on web pages, and the client opens the pages of a refused call and then
    repeats the call. This holds only for version 2025-11-25, and only if no request can be sent to the client during
    the call."""
    can_be_refused = peer.version == _WITH_PAGES and not peer.can_be_asked and not peer.can_repeat_call
    return can_be_refused and peer.can_answer(PAGE) and all(method_of(each) == PAGE for each in questions)
