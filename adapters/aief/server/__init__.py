"""Routes of AIEF's Agent Protocol. A task of AIEF is a thread of the hub, and its steps are the runs of one agent on
that thread."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID
from weakref import WeakValueDictionary

import msgspec
from litestar import Response, get, post
from litestar.types import ControllerRouterHandler
from pydantic import BaseModel

from babelgate.adapters.aief.carries import VERSION
from babelgate.adapters.aief.codec import (
    PAGE_SIZE,
    contents,
    decode_answer,
    decode_input,
    disposition,
    encode_artifact,
    is_go_ahead,
    page_of,
)
from babelgate.adapters.aief.errors import encode_fault
from babelgate.adapters.aief.server.upload import decode_key, decode_upload
from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.aief.write.task import Next, StepPosition, TaskView
from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.extension import (
    START_HEADER,
    URI,
    Slice,
    answer_messages,
    config_of,
    decode_request,
    messages_of,
    with_uploads,
)
from babelgate.adapters.kit.extension import Request as ExtensionRequest
from babelgate.adapters.kit.integer import parse_integer
from babelgate.adapters.kit.json import ABSENT, read_bytes, read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, loss_header, run_headers
from babelgate.adapters.kit.server.encoding import EncodedList, LargeJson, encode, json_response
from babelgate.adapters.kit.server.extended import answer_file, confirm, is_activated
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Pieces, each, list_response
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.canonical import (
    AgentInfo,
    Answers,
    Fault,
    FaultCode,
    FaultError,
    Feature,
    Hub,
    RunInput,
    Scope,
    Submission,
    Task,
    ThreadChange,
    ThreadFilter,
)
from babelgate.canonical.fault import ANSWER_SCHEMA
from babelgate.canonical.listed import Listed
from babelgate.canonical.thread import Loss, ThreadView
from babelgate.canonical.value import Json, JsonObject, is_uuid

__all__ = ("answer_fault", "routes")


_INT32: Final = 2**31 - 1
"""Largest value of `current_page` and `page_size`."""
_ATTEMPTS: Final = 4
"""Maximum number of times that a POST of a step reads the task again, because another request has changed it.
Chosen."""
_PAGE_MOST: Final = 1000
"""Maximum number of items on a page; larger requests get this many. Chosen."""
_INPUT_NOT_READ: Final = Loss(
    feature=Feature.STEP.value, how="the agent was already running and did not receive this input"
)
"""Loss of a step's input if the run of the step was active already, so that the agent cannot receive it."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    """Return the routes of the protocol."""
    server = Server(hub)
    tasks = "/ap/v1/agent/tasks"
    return [
        # Endpoints of the unreleased v2 (branch v2 of the specification's repository, 2024-02-27)
        get("/ap/versions")(server.get_versions),
        get("/ap/v2/agent/info")(server.get_info),
        get(tasks)(server.list_tasks),
        # 200 for everything: OpenAPI v1 has no 201 and no 204.
        post(tasks, status_code=200)(server.create_task),
        get(f"{tasks}/{{task_id:str}}")(server.get_task),
        get(f"{tasks}/{{task_id:str}}/steps")(server.list_steps),
        post(f"{tasks}/{{task_id:str}}/steps", status_code=200)(server.execute_step),
        get(f"{tasks}/{{task_id:str}}/steps/{{step_id:str}}")(server.get_step),
        get(f"{tasks}/{{task_id:str}}/artifacts")(server.list_artifacts),
        post(f"{tasks}/{{task_id:str}}/artifacts", status_code=200)(server.upload_artifact),
        get(f"{tasks}/{{task_id:str}}/artifacts/{{artifact_id:str}}")(server.download_artifact),
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the error response for a fault."""
    status, error = encode_fault(fault)
    return _json(error, fault_headers(fault), status)


def _json(value: BaseModel, headers: Mapping[str, str] | None = None, status: int = 200) -> Response[Any]:
    """Return a response with an AIEF message as JSON."""
    return json_response(value, headers, status=status)


class Server(Handlers):
    """Route handlers of the protocol."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """Lock of each task, by owner and thread id, so that the steps of a task are executed one after the other."""

    # The agent

    def _agent(self, who: Caller) -> str:
        """Return the name of the agent that the URL of the request addresses. Raises not_found."""
        name = who.need_agent()
        try:
            return self._hub.agent(who.principal, name).name
        except FaultError as error:
            if error.fault.code is FaultCode.NOT_FOUND:
                raise
            return name  # the agent is temporarily broken, but its tasks still exist

    async def get_versions(self) -> Response[Any]:
        """Return the versions of the protocol that the gateway supports."""
        return _json(w.Versions(versions=[VERSION]))

    async def get_info(self, request: AnyRequest) -> Response[Any]:
        """Return the description of the agent, as in the unreleased v2."""
        who = caller(request)
        name = self._agent(who)
        info = next((info for info in self._hub.agents(who.principal) if info.name == name), AgentInfo(name=name))
        return _json(
            w.AgentInfo(
                name=info.name,
                protocol=int(VERSION.removeprefix("v")),
                version=info.version,
                description=info.description,
                url=f"{who.base_url}/ap/v1",
            )
        )

    # Tasks

    async def create_task(self, request: AnyRequest) -> Response[Any]:
        """Create a task, which starts no run. Raises invalid for a malformed body, and not_found for an unknown
        agent."""
        who = caller(request)
        agent = self._agent(who)
        body = await _body(request)
        task_input = {"agent": agent, "input": body.input, "additional_input": body.additional_input or {}}
        thread = await self._hub.create_thread(who.principal, ThreadChange(extra={"aief": task_input}))
        view = await self._view(who, thread.thread_id, agent)
        headers = {"Babelgate-Thread": view.thread_id, **confirm(active=is_activated(request))}
        return _json(view.task_with_steps(), headers)

    async def list_tasks(self, request: AnyRequest) -> Response[Any]:
        """Return a page of the agent's tasks, newest first. Raises invalid for wrong query parameters."""
        who = caller(request)
        agent = self._agent(who)
        page, size = _page_and_size(request)
        where = ThreadFilter(agent=agent, protocol="aief")
        # Newest first: clients read one page, and look for the tasks that they have just created.
        threads = await self._hub.reads.threads(who.principal, where, limit=size, offset=(page - 1) * size)
        total = await self._hub.reads.count_threads(who.principal, where)
        shell = w.TaskListResponse(tasks=[], pagination=page_of(total, page, size))
        return await list_response(w.dump(shell), self._tasks(who, agent, threads), name="tasks")

    async def _tasks(self, who: Caller, agent: str, threads: Listed[ThreadView]) -> AsyncGenerator[bytes | LargeJson]:
        """Yield the JSON of each thread's task. Threads that were deleted in the meantime are skipped."""
        async with aclosing(aiter(threads)) as views:
            async for thread_view in views:
                try:
                    view = await self._unchecked_view(who, thread_view.thread.thread_id, agent)
                except FaultError as error:
                    if error.fault.code is not FaultCode.NOT_FOUND:  # deleted meanwhile
                        raise
                    continue
                yield encode(view.task())

    async def get_task(self, request: AnyRequest) -> Response[Any]:
        """Return the task in the path, with its steps. Raises not_found."""
        view = await self._find(request)
        headers = {"Babelgate-Thread": view.thread_id, **confirm(active=is_activated(request))}
        return _json(view.task_with_steps(), headers)

    def _resolve_request(self, request: AnyRequest) -> tuple[Caller, str, str]:
        """Return the caller, the thread id in the path, and the name of the addressed agent. Raises not_found."""
        who = caller(request)
        task_id: str = request.path_params["task_id"]
        if not is_uuid(task_id):
            raise _not_found("task", task_id)
        return who, str(UUID(task_id)), self._agent(who)

    async def _find(self, request: AnyRequest) -> TaskView:
        """Return the view of the task in the path. Raises not_found."""
        return await self._view(*self._resolve_request(request))

    async def _view(self, who: Caller, thread_id: str, agent: str) -> TaskView:
        """Return the view of a thread as a task of the agent. Raises not_found, also for a thread that belongs to other
        agents only."""
        with _as_missing_task(thread_id):
            view = await self._unchecked_view(who, thread_id, agent)
        if not view.is_visible:
            raise _not_found("task", thread_id)
        return view

    async def _unchecked_view(self, who: Caller, thread_id: str, agent: str) -> TaskView:
        """Return the view of a thread as a task of the agent, even if the thread belongs to other agents only."""
        name = (TaskView, agent)
        return await self._hub.reads.snapshot(who.principal, thread_id, name, partial(TaskView, thread_id, agent))

    # Steps

    async def list_steps(self, request: AnyRequest) -> Response[Any]:
        """Return a page of a task's steps. Raises invalid for wrong query parameters, and not_found for an unknown
        task."""
        page, size = _page_and_size(request)
        view, places, total = await self._page_of_steps(request, (page - 1) * size, size)
        shell = w.TaskStepsListResponse(steps=[], pagination=page_of(total, page, size))
        steps = (encode(view.at(place)) for place in places)
        return await list_response(
            w.dump(shell), each(steps), name="steps", headers={"Babelgate-Thread": view.thread_id}
        )

    async def _page_of_steps(
        self, request: AnyRequest, first: int, size: int
    ) -> tuple[TaskView, list[StepPosition], int]:
        """Return a view that contains the steps on a page, the positions of these steps, and the total number of steps.
        The page begins with the step number `first`.

        If no agent has marked steps, each run is one step, and only the records of the page's runs are read.
        """
        who, thread_id, agent = self._resolve_request(request)
        with _as_missing_task(thread_id):
            runs = await self._hub.reads.run_page(who.principal, thread_id, agent, limit=size, offset=first)
        if runs is None or not runs.total:
            view = await self._view(who, thread_id, agent)
            places = view.places()
            return view, places[first : first + size], len(places)
        view = TaskView(thread_id, agent, runs.records)
        answer_places = view.answer_places()
        ahead = max(0, first - runs.total)
        run_places = [StepPosition(run_id, run_id) for run_id in runs.run_ids]
        return (
            view,
            [*run_places, *answer_places[ahead : ahead + size - len(run_places)]],
            runs.total + len(answer_places),
        )

    async def get_step(self, request: AnyRequest) -> Response[Any]:
        """Return the step in the path. Raises not_found."""
        view = await self._find(request)
        step_id: str = request.path_params["step_id"]
        place = next((place for place in view.places() if place.step_id == step_id.lower()), None)
        if place is None:
            # OpenAPI v1: 404. The Python SDK 1.0.2 responds with the task's first step.
            raise _not_found("step", step_id)
        activation = _Activation.of(request)
        return await self._step(self._resolve_request(request)[0], view, view.at(place), place.run_id, activation)

    async def _step(
        self,
        who: Caller,
        view: TaskView,
        step: w.Step,
        run_id: str | None,
        activation: "_Activation | None",
        *more: Loss,
    ) -> Response[Any]:
        """Return the response with a step of the run `run_id`, which is None for a step that has not begun. With
        `activation`, the step contains the run's records. `more` are losses of this request."""
        if run_id is None:
            return _json(step, {"Babelgate-Thread": view.thread_id, **confirm(active=activation is not None)})
        if activation is not None:
            output = {
                **(step.additional_output or {}),
                URI: await self._records(who, view.thread_id, run_id, activation),
            }
            return _json(
                step.model_copy(update={"additional_output": output}),
                {**run_headers(view.task_of(run_id), run_id), **confirm(active=True)},
            )
        losses = (*view.losses(run_id), *more) if step.status == "completed" else more
        return _json(step, {**run_headers(view.task_of(run_id), run_id), **loss_header(losses)})

    async def _records(self, who: Caller, thread_id: str, run_id: str, activation: "_Activation") -> JsonObject:
        """Return an envelope of the Babelgate extension with the records of a run after `activation.start`, as many as
        an envelope can hold."""
        page = Slice()
        log = self._hub.reads.log(who.principal, Scope(thread_id, "run", run_id), activation.start, inline=True)
        async with aclosing(complete_states(self._hub, who.principal, thread_id, log)) as batches:
            async for records in batches:
                for record in records:
                    page.add(record)
                if page.is_full:
                    break
        return page.envelope(EncodedList)

    async def execute_step(self, request: AnyRequest) -> Response[Any]:
        """Execute the next step of a task, and return it when it is over. Raises invalid for a malformed body,
        not_found for an unknown task, and conflict if another request changes the task at the same time."""
        body = await _body(request)
        activation = _Activation.of(request, body)
        who, thread_id, agent = self._resolve_request(request)
        # OpenAPI v1 does not order two POSTs of one task. A step is executed while its caller waits.
        lock = self._locks.setdefault((who.owner, thread_id), asyncio.Lock())
        async with lock:
            for _ in range(_ATTEMPTS):
                view = await self._view(who, thread_id, agent)
                unfinished = view.unfinished_step()
                if unfinished is not None:
                    view = await self._wait_for_step(who, view, *unfinished)
                    if not view.is_over(*unfinished):
                        return await self._cut_short(who, view, *unfinished, activation)
                unreturned, has_no_input = view.unreturned_step(), _has_no_input(body, activation)
                if unreturned is not None and has_no_input:
                    return await self._reveal(who, view, unreturned, body, activation)
                next_step = view.next()
                if next_step.reveal is not None:
                    run_id, _ = next_step.reveal
                    if activation is not None and not has_no_input and view.progress(run_id).ended:
                        # The records have reported the whole run, so the new input is for the next run.
                        change = ThreadChange(extra={"aief": view.note(run_id, view.progress(run_id).steps)})
                        await self._hub.change_thread(who.principal, thread_id, change)
                        continue
                    return await self._reveal(who, view, next_step.reveal, body, activation)
                try:
                    run_id = await self._begin(who, view, next_step, body, activation)
                except FaultError as error:
                    if error.fault.code not in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED, FaultCode.CONFLICT):
                        raise
                    continue  # another request did it, maybe in another protocol
                view = await self._wait_for_step(who, view, run_id, 0)
                if not view.is_over(run_id, 0):
                    return await self._cut_short(who, view, run_id, 0, activation)
                return await self._step(who, view, view.step(run_id, 0), run_id, activation)
        raise FaultError(FaultCode.CONFLICT, "Another request is changing this task: try again.")

    async def _reveal(
        self, who: Caller, view: TaskView, step: tuple[str, int], body: w.RequestBody, activation: "_Activation | None"
    ) -> Response[Any]:
        """Return a further step of a run that an earlier POST started. The number of requested steps is committed
        first."""
        run_id, number = step
        change = ThreadChange(extra={"aief": view.note(run_id, number + 1)})
        await self._hub.change_thread(who.principal, view.thread_id, change)
        view = await self._wait_for_step(who, view, run_id, number)
        if not view.is_over(run_id, number):
            return await self._cut_short(who, view, run_id, number, activation)
        losses = (_INPUT_NOT_READ,) if body.input or body.additional_input else ()
        return await self._step(who, view, view.step(run_id, number), run_id, activation, *losses)

    async def _cut_short(
        self, who: Caller, view: TaskView, run_id: str, number: int, activation: "_Activation | None"
    ) -> Response[Any]:
        """Return a step that is not over, because the gateway is shutting down. A note on the thread makes the next
        POST without an input return this step again, instead of starting a new turn."""
        change = ThreadChange(extra={"aief": view.note(run_id, number + 1, cut=True)})
        await self._hub.change_thread(who.principal, view.thread_id, change)
        return await self._step(who, view, view.step(run_id, number), run_id, activation)

    async def _begin(
        self, who: Caller, view: TaskView, next_step: Next, body: w.RequestBody, activation: "_Activation | None"
    ) -> str:
        """Start the run of a new turn, or answer the questions of a waiting task, as `next_step` says. Return the id of
        the run. `activation` has the Babelgate extension's part of the request, or is None."""
        extension = ExtensionRequest() if activation is None else activation.extension
        if next_step.answer is not None:
            return await self._answer(who, view, next_step.answer, body, extension)
        step_input = _StepInput(*((None, {}) if next_step.run_id is None else view.input()), body)
        more = step_input.data
        task_extension = more.pop(URI, None)  # sent with the task, whose first step this is
        if task_extension is not None and activation is None:
            extension = decode_request(task_extension)
        messages = messages_of(extension)
        last = view.last_task
        submission = Submission(
            agent=view.agent,
            protocol="aief",
            version=VERSION,
            input=RunInput(
                messages=with_uploads(extension, messages or (decode_input(step_input.text),)),
                uploaded=len(extension.uploads),
                data=more or None,
                config=config_of(extension),
                metadata=extension.metadata or {},
                headers=who.headers,
                # Messages of the extension hold the whole input, so the texts are not sent to an AIEF server behind the
                # gateway.
                extra=_input_extra(step_input.shown, more) if messages else step_input.extra,
            ),
            thread_id=view.thread_id,
            run_id=next_step.run_id,
            continues=last.task_id if last is not None and last.is_terminal else None,
            if_missing="reject",
        )
        return (await self._hub.submit(who.principal, extension.start.apply(submission))).run_id

    async def _answer(
        self, who: Caller, view: TaskView, task: Task, body: w.RequestBody, extension: ExtensionRequest
    ) -> str:
        """Submit the answers to a task's questions. Return the id of the run that continues."""
        extension.start.check_absent()
        questions = view.fold.open_interrupts(task.task_id)
        value, message = decode_answer(body, questions[0].answer_schema if questions else None)
        run_input = RunInput(
            messages=answer_messages(extension, message),
            config=config_of(extension),
            headers=who.headers,
            extra=_input_extra(body.input, body.additional_input or {}),
        )
        answers = Answers(task_id=task.task_id, bare=value, is_text=True, protocol="aief", input=run_input)
        if value == "":
            answers = await self._decline_unfit(who, answers)
        if extension.answered:
            answers = Answers(task_id=task.task_id, values=extension.answered, protocol="aief", input=run_input)
        if extension.declined:
            values: dict[str, Json] = dict.fromkeys(extension.declined)
            decline_input = RunInput(headers=who.headers) if extension.answered else run_input
            if extension.answered:
                await self._hub.check_answers(who.principal, answers)
            declined = Answers(
                task_id=task.task_id, values=values, action="decline", protocol="aief", input=decline_input
            )
            receipt = await self._hub.answer(who.principal, declined)
            if not extension.answered:
                return receipt.run_id
        return (await self._hub.answer(who.principal, answers)).run_id

    async def _decline_unfit(self, who: Caller, answers: Answers) -> Answers:
        """Return the answers of a step without input, with the action `decline` if the question does not accept an
        empty text. Drivers request steps until the last one, and do not know questions (agbenchmark 0.0.10)."""
        try:
            await self._hub.check_answers(who.principal, answers)
        except FaultError as error:
            if error.fault.details.get("reason") != ANSWER_SCHEMA:
                raise
            return msgspec.structs.replace(answers, action="decline")
        return answers

    async def _wait_for_step(self, who: Caller, view: TaskView, run_id: str, number: int) -> TaskView:
        """Wait until a step of a run is over, or until the gateway shuts down. Return the task at that moment. `view`
        is the task before the wait."""
        progress = view.progress(run_id)
        async with aclosing(self._hub.reads.follow(who.principal, Scope(view.thread_id), view.seq)) as batches:
            while not progress.is_over(number):
                try:
                    batch = await anext(batches)
                except StopAsyncIteration:
                    break
                for record in batch:
                    if record.run_id == run_id:
                        progress.apply(record.event)
                batch = ()
        return await self._view(who, view.thread_id, view.agent)

    # Artifacts

    async def list_artifacts(self, request: AnyRequest) -> Response[Any]:
        """Return a page of a task's artifacts. Raises invalid for wrong query parameters, and not_found for an unknown
        task."""
        page, size = _page_and_size(request)
        view = await self._find(request)
        artifacts = view.current_artifacts()
        shell = w.TaskArtifactsListResponse(artifacts=[], pagination=page_of(len(artifacts), page, size))
        encoded = (encode(encode_artifact(artifact)) for artifact in artifacts[(page - 1) * size : page * size])
        return await list_response(
            w.dump(shell),
            each(encoded),
            name="artifacts",
            headers={"Babelgate-Thread": view.thread_id, **confirm(active=is_activated(request))},
        )

    async def upload_artifact(self, request: AnyRequest) -> Response[Any]:
        """Store an uploaded file as an artifact of the task. Raises invalid for a malformed form or key, not_found for
        an unknown task, and too_large."""
        view = await self._find(request)
        key = decode_key(request.headers.get("idempotency-key"))
        raw = await read_bytes(request)
        upload = await aside(partial(decode_upload, request.headers.get("content-type", ""), raw))
        artifact = await self._hub.upload(
            caller(request).principal, view.thread_id, upload.file, upload.folder, key=key
        )
        return _json(encode_artifact(artifact), {"Babelgate-Thread": view.thread_id})

    async def download_artifact(self, request: AnyRequest) -> Response[Any]:
        """Return the file of the artifact in the path. Raises not_found."""
        who = caller(request)
        view = await self._find(request)
        artifact_id: str = request.path_params["artifact_id"]
        artifact = view.artifact(artifact_id)
        if artifact is None and is_activated(request):  # a record of the extension may reference the file by its hash
            return await answer_file(self._hub, request, artifact_id)
        if artifact is None:
            raise _not_found("artifact", artifact_id)
        headers = {
            "Content-Disposition": disposition(encode_artifact(artifact).file_name),
            # The agent chose the media type: as a page, the file could speak for the gateway.
            "X-Content-Type-Options": "nosniff",
            "Babelgate-Thread": view.thread_id,
        }
        chunks = list(contents(artifact))
        if len(chunks) == 1 and isinstance(chunks[0], str):
            stored, pieces = await self._hub.reads.file_pieces(who.principal, chunks[0])
            headers |= {"ETag": f'"{chunks[0]}"', "Content-Length": str(stored.size)}
            # OpenAPI v1, downloadAgentTaskArtifact: the only documented type
            return Pieces(pieces, headers, media_type="application/octet-stream")
        data = b"".join(
            [
                each if isinstance(each, bytes) else (await self._hub.reads.file(who.principal, each)).inline or b""
                for each in chunks
            ]
        )
        headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        return Response(data, media_type="application/octet-stream", headers=headers)


@dataclass(frozen=True, slots=True)
class _Activation:
    """Data of the Babelgate extension in one request that has activated it."""

    extension: ExtensionRequest
    start: int = 0
    """Seq after which the records of the run are sent; from a header of the request."""

    @classmethod
    def of(cls, request: AnyRequest, body: w.RequestBody | None = None) -> "_Activation | None":
        """Return the activation by a request, or None. It is activated by a header, or by its part in
        `additional_input` of the body, which is removed from there. Raises invalid if the number in `START_HEADER` or
        the part is malformed."""
        input_object = (body.additional_input if body is not None else None) or {}
        if URI in input_object:
            extension = decode_request(input_object.pop(URI))
        elif is_activated(request):
            extension = ExtensionRequest()
        else:
            return None
        if (start := parse_integer(request.headers.get(START_HEADER, "0"), 18)) is None:
            raise FaultError(FaultCode.INVALID, f"{START_HEADER}: It must be the number of a record, or 0.")
        return cls(extension, start)


async def _body(request: AnyRequest) -> w.RequestBody:
    """Return the body of a request for a task or a step. A missing body counts as an empty one. Raises invalid for a
    malformed body, and too_large."""
    body = await read_json(request)
    # Accepted are no body at all (`curl -X POST …/steps`), JSON without a Content-Type (the JavaScript SDK 1.0.5
    # responds with 415), and a Content-Type without a body (agbenchmark 0.0.10).
    return w.RequestBody() if body is ABSENT else validate(w.RequestBody, body)


class _StepInput:
    """Input of a step, combined with the task's input if it is the task's first step.

    `task_text` and `task_data` are the task's `input` and `additional_input`; None and {} for later steps. Many clients
    repeat the task's input, or send only "y": the agent then gets the task's input once.
    """

    def __init__(self, task_text: str | None, task_data: JsonObject, body: w.RequestBody) -> None:
        step_data = body.additional_input or {}
        self.data: JsonObject = {**task_data, **step_data}
        """Data for the agent: the objects of the task and the step, merged."""
        self.shown = task_text if body.input is None else body.input
        """Text that the step shows as its `input`, or None."""
        self.text = self.shown
        """Text for the agent, or None."""
        self._first: JsonObject | None = None
        step_text = (self.shown or "").strip()
        if not task_text:
            is_combined = False
        elif not step_text or is_go_ahead(step_text) or step_text == task_text.strip():
            self.text, is_combined = task_text, False
        else:
            self.text, is_combined = f"{task_text}\n\n{self.shown}", True
        if is_combined or (step_data and (task_text or task_data)):
            task = {name: value for name, value in task_data.items() if name != URI}
            step = {"input": self.shown if is_combined else None, "additional_input": step_data}
            self._first = {"task": {"input": task_text, "additional_input": task}, "step": step}

    @property
    def extra(self) -> dict[str, Any]:
        """The `extra` of the run's input, with the input that the step shows. If the inputs of the task and the step
        differ, it also has each of them separately, for an AIEF server behind the gateway."""
        extra = _input_extra(self.shown, self.data)
        return extra if self._first is None else {"aief": {**extra["aief"], "first": self._first}}


def _input_extra(text: str | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `extra` of a run's input that stores the caller's `input` and `additional_input`. It also marks the
    run as started by a POST, so that further POSTs reveal its steps one by one."""
    return {"aief": {"input": text, "additional_input": dict(more)}}


@contextmanager
def _as_missing_task(thread_id: str) -> Generator[None]:
    """Convert a fault not_found in the block into one that says that the task does not exist."""
    try:
        yield
    except FaultError as error:
        raise _not_found("task", thread_id) if error.fault.code is FaultCode.NOT_FOUND else error from error


def _has_no_input(body: w.RequestBody, activation: _Activation | None) -> bool:
    """Return True if the request has no input for the agent: no additional input, nothing in the Babelgate extension,
    and no text except an empty one or a go-ahead such as "y"."""
    if activation is not None and activation.extension != ExtensionRequest():
        return False
    return not body.additional_input and (not body.input or is_go_ahead(body.input))


def _not_found(what: str, wire_id: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, f"{what.capitalize()} with {wire_id[:100]} not found.")


def _page_and_size(request: AnyRequest) -> tuple[int, int]:
    """Return the query parameters `current_page` and `page_size`, the latter limited to `_PAGE_MOST`. Raises invalid if
    one is not a positive integer."""
    page, size = _number(request, "current_page", 1), _number(request, "page_size", PAGE_SIZE)
    # Larger sizes are not refused: OpenAPI v1 has a minimum page_size, but no maximum.
    return page, min(size, _PAGE_MOST)


def _number(request: AnyRequest, name: str, default: int) -> int:
    """Return the integer in the query parameter `name`, at least 1, or the default if it is missing. Raises invalid for
    any other text."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if (number := parse_integer(text, 10, 1, _INT32)) is None:
        words = f"It must be an integer from 1 to {_INT32}."
        errors = [{"field": name, "description": words}]
        raise FaultError(FaultCode.INVALID, f"{name}: {words}", errors=errors)
    return number
