"""Routes of the minimal runtime: threads, runs, their events, and the answers to their questions."""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn
from uuid import UUID

from litestar import Response, Router, get, patch, post

from babelgate.adapters.kit.extension import answer_message
from babelgate.adapters.kit.integer import parse_integer
from babelgate.adapters.kit.json import ABSENT, parse_text, read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, loss_header, run_headers
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller, end_or_leave
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.adapters.runtime import wire as w
from babelgate.adapters.runtime.carries import VERSION
from babelgate.adapters.runtime.codec import (
    decode_input,
    encode_run,
    encode_thread,
    output_schema_of,
    response_format,
)
from babelgate.adapters.runtime.errors import encode_fault
from babelgate.adapters.runtime.server.stream import HEARTBEAT, RunLog
from babelgate.canonical import (
    AgentInfo,
    Answers,
    Fault,
    FaultCode,
    FaultError,
    FilePart,
    Hub,
    Interrupt,
    Message,
    Principal,
    Receipt,
    Run,
    RunFilter,
    RunInput,
    RunStatus,
    StateHistory,
    StateUpdate,
    Submission,
    Task,
    TaskFilter,
    TaskState,
    ThreadChange,
)
from babelgate.canonical.event import RunCreated
from babelgate.canonical.state import WAITING
from babelgate.canonical.value import JsonObject, is_uuid

__all__ = ("answer_fault", "routes")


PROTOCOL: Final = "runtime"


def routes(hub: Hub) -> Sequence[Router]:
    """Return the routes of the protocol."""
    server = Server(hub)
    threads, runs = "/threads/{thread_id:str}", "/runs/{run_id:str}"
    return [
        Router(
            "/v1",
            before_request=refuse_assistants,
            route_handlers=[
                post("/threads", status_code=200)(server.create_thread),
                get(threads)(server.get_thread),
                patch(threads)(server.change_thread),
                post([f"{threads}/runs", "/runs"], status_code=200)(server.create_run),
                post([f"{threads}/runs/stream", "/runs/stream"], status_code=200)(server.stream_run),
                post(f"{threads}/resume", status_code=200)(server.resume),
                get(runs)(server.get_run),
                get(f"{runs}/stream")(server.follow_run),
                # 202: a cancel is accepted, and completed later.
                post(f"{runs}/cancel", status_code=202)(server.cancel_run),
            ],
        )
    ]


async def refuse_assistants(request: AnyRequest) -> None:
    """Refuse requests of clients for OpenAI's Assistants API, which has other resources at the same paths. They are
    recognized by a header (openai 3.52.0, resources/beta/threads), and would misread the responses. Raises
    not_found."""
    if request.headers.get("openai-beta", "").startswith("assistants"):
        raise FaultError(
            FaultCode.NOT_FOUND, "The Assistants API is not served: use /v1/chat/completions or /v1/responses."
        )


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the error response for a fault."""
    status, body = encode_fault(fault)
    return json_response(body, fault_headers(fault), status=status)


class Server(Handlers):
    """Route handlers of the protocol."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    # Threads

    async def create_thread(self, request: AnyRequest) -> Response[Any]:
        """Create a thread. Raises invalid for a malformed body, and conflict if the id is taken."""
        who = caller(request)
        content = await read_json(request)
        body = validate(w.ThreadCreate, {} if content is ABSENT else content)
        thread_id = None if body.thread_id is None else _uuid(body.thread_id, "thread_id")
        thread = await self._hub.create_thread(
            who.principal, ThreadChange(metadata=body.metadata), thread_id=thread_id, if_exists=body.if_exists
        )
        return await self._thread_response(who, thread.thread_id)

    async def get_thread(self, request: AnyRequest) -> Response[Any]:
        """Return the thread in the path. Raises not_found."""
        return await self._thread_response(caller(request), _path_id(request, "thread_id"))

    async def change_thread(self, request: AnyRequest) -> Response[Any]:
        """Change the metadata or the state of the thread in the path, and return the thread. Raises invalid, not_found,
        and conflict if the state is changed while a run is active."""
        who = caller(request)
        thread_id = _path_id(request, "thread_id")
        body = validate(w.ThreadChange, await read_json(request))
        if body.values is not None:
            await self._hub.update_state(who.principal, StateUpdate(thread_id=thread_id, values=body.values))
        await self._hub.change_thread(who.principal, thread_id, ThreadChange(metadata=body.metadata))
        return await self._thread_response(who, thread_id)

    async def _thread_response(self, who: Caller, thread_id: str) -> Response[Any]:
        """Return the response with a thread, its newest state and the id of its newest run."""
        view = await self._hub.reads.thread_view(who.principal, thread_id)
        empty = partial(StateHistory, thread_id, who.principal.owner)
        history = await self._hub.reads.snapshot(who.principal, thread_id, StateHistory, empty, inline=True)
        runs = await (await self._hub.reads.runs(who.principal, RunFilter(thread_id=thread_id), limit=1)).all()
        body = encode_thread(view, history.head, runs[0].run_id if runs else None)
        return json_response(body, {"Babelgate-Thread": thread_id})

    # Runs

    async def create_run(self, request: AnyRequest) -> Response[Any]:
        """Start a run, and return it when it has stopped, or at once with `background`. Raises invalid for a malformed
        body, not_found for an unknown agent or thread, and conflict if the thread is busy and the strategy is to
        reject."""
        who = caller(request)
        body = validate(w.RunCreate, await read_json(request))
        receipt = await self._submit(who, request, body)
        return await self._await_response(
            request, receipt, background=body.background, cancels=body.on_completion == "delete"
        )

    async def stream_run(self, request: AnyRequest) -> Response[Any]:
        """Start a run, and respond with the stream of its events. Raises invalid for a malformed body, not_found for an
        unknown agent or thread, and conflict if the thread is busy and the strategy is to reject."""
        who = caller(request)
        body = validate(w.RunCreate, await read_json(request))
        if body.background:
            _refuse("background", "It cannot be combined with a stream.")
        return self._stream(who, await self._submit(who, request, body), cancels=body.on_completion == "delete")

    async def _submit(self, who: Caller, request: AnyRequest, body: w.RunCreate) -> Receipt:
        """Submit the run that a body describes, on the thread in the path or on a new one. Raises invalid for a
        malformed body, not_found for an unknown agent or thread, and conflict if the thread is busy and the strategy is
        to reject."""
        agent = self._agent(who, body.assistant_id)
        thread_id = _path_id(request, "thread_id") if "thread_id" in request.path_params else None
        if thread_id is not None and body.on_completion == "delete":
            _refuse("on_completion", "The value delete is only allowed for runs without a thread.")
        if thread_id is not None:
            await self._hub.reads.thread(who.principal, thread_id)
        messages, data = decode_input(body.input)
        return await self._hub.submit(
            who.principal,
            Submission(
                agent=agent.name,
                protocol=PROTOCOL,
                version=VERSION,
                input=RunInput(
                    messages=await self._own_files(who, messages),
                    data=data,
                    checkpoint=body.checkpoint_id,
                    config=await self._checked_config(who.principal, body),
                    metadata=body.metadata,
                    headers=who.headers,
                    assistant=body.assistant_id,
                ),
                thread_id=thread_id,
                if_missing="reject" if thread_id is not None else "create",
                ephemeral=body.on_completion == "delete",
                strategy=body.multitask_strategy,
            ),
        )

    def _agent(self, who: Caller, assistant_id: str | None) -> AgentInfo:
        """Return the agent with the name `assistant_id`, or the default agent for None. Raises not_found."""
        return self._hub.agent(who.principal, who.need_agent() if assistant_id is None else assistant_id)

    async def _checked_config(self, principal: Principal, body: w.RunCreate) -> JsonObject:
        """Return the run's configuration, with `output_schema` as its `response_format`. Raises invalid for an invalid
        schema, before a run starts."""
        config = _config(body)
        if body.output_schema is not None:
            try:
                await self._hub.find_schema_error(principal, body.output_schema, None)
            except FaultError as error:
                _refuse("output_schema", error.fault.message)
            config |= response_format(body.output_schema)
        return config

    async def _own_files(self, who: Caller, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages with URLs of the caller's files on this gateway replaced by the files. Raises invalid for
        the hash of a file that does not exist."""
        for message in messages:
            for part in message.parts:
                if isinstance(part, FilePart) and part.blob is not None:
                    try:
                        await self._hub.reads.file_pieces(who.principal, part.blob)
                    except FaultError as error:
                        if error.fault.code is not FaultCode.NOT_FOUND:
                            raise
                        _refuse("input", f"There is no file {part.blob}.")
        return await resolve_own_files(self._hub, who, messages)

    async def _await_response(
        self, request: AnyRequest, receipt: Receipt, *, background: bool, cancels: bool
    ) -> Response[Any]:
        """Return the response with a run when it has stopped, or at once if `background`. If `cancels`, a client that
        disconnects cancels the run.

        Status 202 means that it has not stopped: it is in the background, or the gateway is shutting down. Raises
        shutting_down if the gateway stops before the run has begun.
        """
        who = caller(request)
        log = RunLog(self._hub, who.principal, receipt.thread_id, receipt.run_id, receipt.seq)
        if background:
            await log.read()
            return await self._run_response(who, receipt.task, log, status=202)
        await end_or_leave(log.end(), request.receive, canceller(self._hub, who.principal, receipt.run_id, cancels))
        if log.created is None:
            words = f"The gateway is shutting down: ask for run {receipt.run_id} when it is back."
            raise FaultError(FaultCode.SHUTTING_DOWN, words)
        return await self._run_response(who, receipt.task, log, status=200 if log.run.has_ended else 202)

    def _stream(self, who: Caller, receipt: Receipt, *, cancels: bool) -> Response[Any]:
        """Return the response with the events of a run. If `cancels`, a client that disconnects cancels the run."""
        log = RunLog(self._hub, who.principal, receipt.thread_id, receipt.run_id, receipt.seq)
        frames = DisconnectNotifier(log.frames(), canceller(self._hub, who.principal, receipt.run_id, cancels))
        return _event_stream(frames, run_headers(receipt))

    async def get_run(self, request: AnyRequest) -> Response[Any]:
        """Return the run in the path, with its output so far. Raises not_found."""
        who = caller(request)
        run = await self._find_run(who, request)
        log = RunLog.of(self._hub, who.principal, run)
        await log.read()
        return await self._run_response(who, await self._hub.reads.task(who.principal, run.task_id), log)

    async def follow_run(self, request: AnyRequest) -> Response[Any]:
        """Respond with the stream of a run's events: all of them, or those after the header `Last-Event-ID`. Raises
        invalid for a malformed header, and not_found for an unknown run."""
        who = caller(request)
        run = await self._find_run(who, request)
        log = RunLog.of(self._hub, who.principal, run)
        return _event_stream(log.frames(_last_event_id(request)), run_headers(await self._task(who, run), run.run_id))

    async def cancel_run(self, request: AnyRequest) -> Response[Any]:
        """Cancel the run in the path, with its task, and return the run with status 202. The run may still be stopping.
        Raises not_found for an unknown run, and task_ended if it has ended."""
        who = caller(request)
        run = await self._find_run(who, request)
        waits = run.status is RunStatus.PAUSED and await self._questions(who, run)
        if run.has_ended and not waits:
            raise FaultError(FaultCode.TASK_ENDED, f"Run {run.run_id} has ended and cannot be cancelled.")
        task = await self._hub.cancel(who.principal, run.task_id)
        log = RunLog.of(self._hub, who.principal, run)
        await log.read()
        return await self._run_response(who, task, log, status=202)

    async def _find_run(self, who: Caller, request: AnyRequest) -> Run:
        """Return the run in the path. Raises not_found, also for a run that was deleted."""
        run = await self._hub.reads.run(who.principal, _path_id(request, "run_id"))
        if run.removed:
            raise FaultError(FaultCode.NOT_FOUND, f"Run {run.run_id} not found")
        return run

    async def _task(self, who: Caller, run: Run) -> Task:
        """Return the task that a run belongs to."""
        return await self._hub.reads.task(who.principal, run.task_id)

    async def _run_response(self, who: Caller, task: Task, log: RunLog, *, status: int = 200) -> Response[Any]:
        """Return the response with a run, its output and open questions. `log` has read its records."""
        created = log.created
        assert created is not None, "the log of a run begins with its creation"
        run = log.run.replace(agent=task.agent)
        questions: Sequence[Interrupt] = ()
        if run.status is RunStatus.PAUSED:
            questions = await self._questions(who, run)
            if task.state is TaskState.CANCELLED:  # its questions can no longer be answered
                run = run.replace(status=RunStatus.CANCELLED)
        input_ids = {message.message_id for message in created.messages}
        messages = [message for message in log.fold.messages(run_id=run.run_id) if message.message_id not in input_ids]
        run = await self._check_output(who.principal, run, created, messages)
        body = encode_run(run, created, messages, log.fold.artifacts.values(), questions, who.base_url)
        if task.state is TaskState.CANCELLING:  # even if the agent has stopped in the meantime
            body["status"] = "cancelling"
        return json_response(body, {**run_headers(task, run.run_id), **loss_header(run.loss)}, status=status)

    async def _questions(self, who: Caller, run: Run) -> Sequence[Interrupt]:
        """Return the open questions of a run's task that were raised before the run stopped. They include questions of
        earlier runs, because an answer to one question leaves the others open."""
        questions = await self._hub.reads.open_interrupts(who.principal, run.task_id)
        return [each for each in questions if run.ended_at is not None and each.raised_at <= run.ended_at]

    async def _check_output(
        self, principal: Principal, run: Run, created: RunCreated, messages: Sequence[Message]
    ) -> Run:
        """Return the run with its structured output, if its request demanded a schema: its own output, or else the JSON
        in the answers among `messages`. If that does not match the schema, return the run as failed. Without a schema,
        return the run unchanged."""
        schema = output_schema_of(created.config)
        if schema is None or run.status is not RunStatus.SUCCESS:
            return run
        text = "".join(message.text for message in messages if message.phase == "answer")
        value = run.output if run.output is not None else parse_text(text)
        try:
            schema_error = (
                ": it is not JSON" if value is ABSENT else await self._hub.find_schema_error(principal, schema, value)
            )
        except FaultError:  # a run of another protocol, whose schema was not validated
            return run
        if schema_error is None:
            return run.replace(output=value)
        words = f"The agent's answer does not fit the output_schema{schema_error}"
        return run.replace(status=RunStatus.ERROR, fault=Fault(code=FaultCode.AGENT_INVALID, message=words))

    # Answers

    async def resume(self, request: AnyRequest) -> Response[Any]:
        """Answer or decline questions of a thread, and return the run that continues. Raises invalid for a malformed
        body or a value that violates its question's schema, not_found for an unknown thread or task, and not_awaiting
        if no run of the thread waits."""
        who = caller(request)
        thread_id = _path_id(request, "thread_id")
        body = validate(w.Resume, await read_json(request))
        task_id = await self._find_waiting_task(who, thread_id, body)
        values = body.input if body.answers is None else body.answers
        messages = () if body.decline else (answer_message(values),)
        run_input = RunInput(messages=messages, config=_config(body), headers=who.headers)
        receipt = await self._hub.answer(
            who.principal,
            Answers(
                task_id=task_id,
                values=body.answers,
                bare=body.input,
                input=run_input,
                action="decline" if body.decline else "answer",
                protocol=PROTOCOL,
            ),
        )
        thread = await self._hub.reads.thread(who.principal, thread_id)
        if body.stream:
            return self._stream(who, receipt, cancels=thread.ephemeral)
        return await self._await_response(request, receipt, background=body.background, cancels=thread.ephemeral)

    async def _find_waiting_task(self, who: Caller, thread_id: str, body: w.Resume) -> str:
        """Return the id of the task that a request answers: the one it names, or the only one that waits on the thread.
        Raises invalid if several tasks wait and none is named, not_found for an unknown task, and not_awaiting if none
        waits."""
        await self._hub.reads.thread(who.principal, thread_id)
        task_id = None if body.task_id is None else _uuid(body.task_id, "task_id")
        if body.run_id is not None:
            run = await self._hub.reads.run(who.principal, _uuid(body.run_id, "run_id"))
            if task_id not in (None, run.task_id):
                _refuse("run_id", "It must be a run of the task.")
            task_id = run.task_id
        if task_id is not None:
            task = await self._hub.reads.task(who.principal, task_id)
            if task.thread_id != thread_id:
                raise FaultError(FaultCode.NOT_FOUND, f"The thread has no task {task_id}")
            return task_id
        page = await self._hub.reads.tasks(who.principal, TaskFilter(thread_id=thread_id, states=WAITING), limit=2)
        waiting = await page.tasks.all()
        if not waiting:
            raise FaultError(FaultCode.NOT_AWAITING, "No run of the thread waits for an answer.")
        if len(waiting) > 1:
            _refuse("task_id", "Several tasks of the thread wait for an answer: give one of them.")
        return waiting[0].task_id


def _config(body: w.RunCreate | w.Resume) -> JsonObject:
    """Return the configuration of a run from a body, with the caller's tools as its member `tools`."""
    return dict(body.config) if body.tools is None else {**body.config, "tools": body.tools}


def _event_stream(frames: AsyncIterator[bytes], headers: Mapping[str, str]) -> Response[Any]:
    return event_stream(frames, ping=HEARTBEAT, headers={"Cache-Control": "no-store", **headers})


def _last_event_id(request: AnyRequest) -> int:
    """Return the event id in the header `Last-Event-ID`, or 0 without it. Raises invalid for any other text."""
    if (number := parse_integer(request.headers.get("last-event-id", "").strip() or "0", 15)) is None:
        raise FaultError(FaultCode.INVALID, "Last-Event-ID: It must be the id of an event.")
    return number


def _path_id(request: AnyRequest, name: str) -> str:
    """Return the UUID in the path parameter `name`. Raises invalid for any other text."""
    return _uuid(request.path_params[name], name)


def _uuid(text: str, name: str) -> str:
    """Return a UUID in lower case with dashes. `name` is its parameter in the error. Raises invalid for any other
    text."""
    if not is_uuid(text):
        _refuse(name, "It must be a UUID.")
    return str(UUID(text))


def _refuse(field: str, words: str) -> NoReturn:
    raise FaultError(FaultCode.INVALID, f"{field}: {words}", errors=[{"field": field, "description": words}])
