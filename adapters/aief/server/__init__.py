"""AIEF's endpoints. An AIEF task is a thread of the hub, and its steps are the runs of one agent there."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID
from weakref import WeakValueDictionary

from litestar import Request, Response, get, post
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
from babelgate.adapters.aief.write.task import Next, Place, TaskView
from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.extension import (
    START_HEADER,
    URI,
    Slice,
    answer_messages,
    decode_request,
    given_config,
    given_messages,
    with_uploads,
)
from babelgate.adapters.kit.extension import Request as ExtensionRequest
from babelgate.adapters.kit.json import ABSENT, read_bytes, read_json, validate
from babelgate.adapters.kit.server.caller import Caller, caller, loss_header, run_headers
from babelgate.adapters.kit.server.encoding import EncodedList, LargeJson, encode, json_response
from babelgate.adapters.kit.server.extended import answer_file, confirm, is_asked
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Pieces, each, list_response
from babelgate.adapters.kit.server.whole_states import tell_states_whole
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
from babelgate.canonical.listed import Listed
from babelgate.canonical.thread import Loss, ThreadView
from babelgate.canonical.value import Json, JsonObject, is_uuid

__all__ = ("answer_fault", "routes")

AnyRequest = Request[Any, Any, Any]

_INT32: Final = 2**31 - 1
_TURNS: Final = 4
"""How often a POST of a step looks again at what there is to do, because somebody else did it first."""
_PAGE_MOST: Final = 1000
_UNREAD: Final = Loss(feature=Feature.STEP.value, how="the agent was at work already and did not get this input")


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = Server(hub)
    tasks = "/ap/v1/agent/tasks"
    return [
        # Of the unreleased v2 (branch v2 of the specification's repository, 2024-02-27).
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
    status, error = encode_fault(fault)
    return _json(error, fault_headers(fault), status)


def _json(value: BaseModel, headers: Mapping[str, str] | None = None, status: int = 200) -> Response[Any]:
    return json_response(value, headers, status=status)


class Server(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """One POST of a step at a time on a task; a lock lives as long as somebody holds or awaits it."""

    # The agent

    def _agent(self, who: Caller) -> str:
        """By its own name, however it was addressed."""
        name = who.need_agent()
        try:
            return self._hub.agent(name).name
        except FaultError as error:
            if error.fault.code is FaultCode.NOT_FOUND:
                raise
            return name  # broken for now: what it did is there still

    async def get_versions(self) -> Response[Any]:
        return _json(w.Versions(versions=[VERSION]))

    async def get_info(self, request: AnyRequest) -> Response[Any]:
        who = caller(request)
        name = self._agent(who)
        info = next((info for info in self._hub.agents() if info.name == name), AgentInfo(name=name))
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
        who = caller(request)
        agent = self._agent(who)
        body = await _body(request)
        own = {"agent": agent, "input": body.input, "additional_input": body.additional_input or {}}
        thread = await self._hub.create_thread(who.owner, ThreadChange(extra={"aief": own}))
        view = await self._view(who, thread.thread_id, agent)
        headers = {"Babelgate-Thread": view.thread_id, **confirm(active=is_asked(request))}
        return _json(view.task_with_steps(), headers)

    async def list_tasks(self, request: AnyRequest) -> Response[Any]:
        who = caller(request)
        agent = self._agent(who)
        page, size = _page_and_size(request)
        where = ThreadFilter(agent=agent, protocol="aief")
        # The newest first: clients read one page, and are after the tasks that they have just made.
        found = await self._hub.reads.threads(who.owner, where, limit=size, offset=(page - 1) * size)
        total = await self._hub.reads.count_threads(who.owner, where)
        shell = w.TaskListResponse(tasks=[], pagination=page_of(total, page, size))
        return await list_response(w.dump(shell), self._tasks(who, agent, found), name="tasks")

    async def _tasks(self, who: Caller, agent: str, threads: Listed[ThreadView]) -> AsyncGenerator[bytes | LargeJson]:
        async with aclosing(aiter(threads)) as found:
            async for one in found:
                try:
                    view = await self._unchecked_view(who, one.thread.thread_id, agent)
                except FaultError as error:
                    if error.fault.code is not FaultCode.NOT_FOUND:  # deleted meanwhile
                        raise
                    continue
                yield encode(view.task())

    async def get_task(self, request: AnyRequest) -> Response[Any]:
        view = await self._find(request)
        headers = {"Babelgate-Thread": view.thread_id, **confirm(active=is_asked(request))}
        return _json(view.task_with_steps(), headers)

    def _resolve_request(self, request: AnyRequest) -> tuple[Caller, str, str]:
        """Who asks, and for which thread and agent."""
        who = caller(request)
        task_id: str = request.path_params["task_id"]
        if not is_uuid(task_id):
            raise _not_found("task", task_id)
        return who, str(UUID(task_id)), self._agent(who)

    async def _find(self, request: AnyRequest) -> TaskView:
        return await self._view(*self._resolve_request(request))

    async def _view(self, who: Caller, thread_id: str, agent: str) -> TaskView:
        with _of_task(thread_id):
            view = await self._unchecked_view(who, thread_id, agent)
        if not view.is_visible:
            raise _not_found("task", thread_id)
        return view

    async def _unchecked_view(self, who: Caller, thread_id: str, agent: str) -> TaskView:
        name = (TaskView, agent)
        return await self._hub.reads.snapshot(who.owner, thread_id, name, partial(TaskView, thread_id, agent))

    # Steps

    async def list_steps(self, request: AnyRequest) -> Response[Any]:
        page, size = _page_and_size(request)
        view, places, total = await self._page_of_steps(request, (page - 1) * size, size)
        shell = w.TaskStepsListResponse(steps=[], pagination=page_of(total, page, size))
        steps = (encode(view.at(place)) for place in places)
        return await list_response(
            w.dump(shell), each(steps), name="steps", headers={"Babelgate-Thread": view.thread_id}
        )

    async def _page_of_steps(self, request: AnyRequest, first: int, size: int) -> tuple[TaskView, list[Place], int]:
        """Their places, in a view that holds at least these, and how many steps there are. Where no agent marked any,
        each run is one step, and only the runs of the page are read."""
        who, thread_id, agent = self._resolve_request(request)
        with _of_task(thread_id):
            runs = await self._hub.reads.run_page(who.owner, thread_id, agent, limit=size, offset=first)
        if runs is None or not runs.total:
            view = await self._view(who, thread_id, agent)
            places = view.places()
            return view, places[first : first + size], len(places)
        view = TaskView(thread_id, agent, runs.records)
        coming = view.coming_places()
        ahead = max(0, first - runs.total)
        begun = [Place(run_id, run_id) for run_id in runs.run_ids]
        return view, [*begun, *coming[ahead : ahead + size - len(begun)]], runs.total + len(coming)

    async def get_step(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found."""
        view = await self._find(request)
        wanted: str = request.path_params["step_id"]
        place = next((place for place in view.places() if place.step_id == wanted.lower()), None)
        if place is None:
            # OpenAPI v1: 404. The Python SDK 1.0.2 answers the task's first step.
            raise _not_found("step", wanted)
        asked = _Activation.of(request)
        return await self._step(self._resolve_request(request)[0], view, view.at(place), place.run_id, asked)

    async def _step(
        self, who: Caller, view: TaskView, step: w.Step, run_id: str | None, asked: "_Activation | None", *more: Loss
    ) -> Response[Any]:
        """`run_id` = None for a step that was not begun. One that is queued has begun, although it shows as created."""
        if run_id is None:
            return _json(step, {"Babelgate-Thread": view.thread_id, **confirm(active=asked is not None)})
        if asked is not None:
            beside = {**(step.additional_output or {}), URI: await self._records(who, view.thread_id, run_id, asked)}
            return _json(
                step.model_copy(update={"additional_output": beside}),
                {**run_headers(view.task_of(run_id), run_id), **confirm(active=True)},
            )
        losses = (*view.losses(run_id), *more) if step.status == "completed" else more
        return _json(step, {**run_headers(view.task_of(run_id), run_id), **loss_header(losses)})

    async def _records(self, who: Caller, thread_id: str, run_id: str, asked: "_Activation") -> JsonObject:
        """What the run has said by now, after the record that was asked for, up to a bound."""
        page = Slice()
        log = self._hub.reads.log(who.owner, Scope(thread_id, "run", run_id), asked.start, inline=True)
        async with aclosing(tell_states_whole(self._hub, who.owner, thread_id, log)) as batches:
            async for records in batches:
                for record in records:
                    page.add(record)
                if page.is_full:
                    break
        return page.envelope(EncodedList)

    async def execute_step(self, request: AnyRequest) -> Response[Any]:
        """Raises conflict."""
        body = await _body(request)
        asked = _Activation.of(request, body)
        who, thread_id, agent = self._resolve_request(request)
        # OpenAPI v1 has no order for two POSTs of one task, and a step is executed while its caller waits.
        turn = self._turns.setdefault((who.owner, thread_id), asyncio.Lock())
        async with turn:
            for _ in range(_TURNS):
                view = await self._view(who, thread_id, agent)
                working = view.unfinished_step()
                if working is not None:
                    view = await self._wait_for_step(who, view, *working)
                    if not view.is_over(*working):
                        return await self._cut_short(who, view, *working, asked)
                cut, says_nothing = view.cut_step(), _says_nothing(body, asked)
                if cut is not None and says_nothing:
                    return await self._reveal(who, view, cut, body, asked)
                coming = view.next()
                if coming.reveal is not None:
                    run_id, _ = coming.reveal
                    if asked is not None and not says_nothing and view.progress(run_id).ended:
                        # Its records told the whole run, and what is said now is of the next one.
                        change = ThreadChange(extra={"aief": view.note(run_id, view.progress(run_id).steps)})
                        await self._hub.change_thread(who.owner, thread_id, change)
                        continue
                    return await self._reveal(who, view, coming.reveal, body, asked)
                try:
                    run_id = await self._begin(who, view, coming, body, asked)
                except FaultError as error:
                    if error.fault.code not in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED, FaultCode.CONFLICT):
                        raise
                    continue  # somebody else did it, from another protocol
                view = await self._wait_for_step(who, view, run_id, 0)
                if not view.is_over(run_id, 0):
                    return await self._cut_short(who, view, run_id, 0, asked)
                return await self._step(who, view, view.step(run_id, 0), run_id, asked)
        raise FaultError(FaultCode.CONFLICT, "Another request is changing this task: try again.")

    async def _reveal(
        self, who: Caller, view: TaskView, step: tuple[str, int], body: w.RequestBody, asked: "_Activation | None"
    ) -> Response[Any]:
        """Show a step of a run that an earlier POST began. That it was asked for is committed first."""
        run_id, number = step
        change = ThreadChange(extra={"aief": view.note(run_id, number + 1)})
        await self._hub.change_thread(who.owner, view.thread_id, change)
        view = await self._wait_for_step(who, view, run_id, number)
        if not view.is_over(run_id, number):
            return await self._cut_short(who, view, run_id, number, asked)
        unread = (_UNREAD,) if body.input or body.additional_input else ()
        return await self._step(who, view, view.step(run_id, number), run_id, asked, *unread)

    async def _cut_short(
        self, who: Caller, view: TaskView, run_id: str, number: int, asked: "_Activation | None"
    ) -> Response[Any]:
        """The gateway is being stopped: the step as it is. It may be over when its caller comes back: the next POST is
        told so first, and begins no turn that nobody asked for."""
        change = ThreadChange(extra={"aief": view.note(run_id, number + 1, cut=True)})
        await self._hub.change_thread(who.owner, view.thread_id, change)
        return await self._step(who, view, view.step(run_id, number), run_id, asked)

    async def _begin(
        self, who: Caller, view: TaskView, coming: Next, body: w.RequestBody, asked: "_Activation | None"
    ) -> str:
        """Start the run of a step; returns its id."""
        extension = ExtensionRequest() if asked is None else asked.extension
        if coming.answer is not None:
            return await self._answer(who, view, coming.answer, body, extension)
        given = _StepInput(*((None, {}) if coming.run_id is None else view.input()), body)
        more = given.data
        kept = more.pop(URI, None)  # of the task, whose first step this is
        if kept is not None and asked is None:
            extension = decode_request(kept)
        said = given_messages(extension)
        last = view.last_task
        submission = Submission(
            agent=view.agent,
            protocol="aief",
            version=VERSION,
            input=RunInput(
                messages=with_uploads(extension, said or (decode_input(given.text),)),
                uploaded=len(extension.uploads),
                data=more or None,
                config=given_config(extension),
                metadata=extension.metadata or {},
                headers=who.headers,
                # Messages of the extension say all of the input: no server behind is told the texts in their place.
                extra=_input_extra(given.shown, more) if said else given.extra,
            ),
            thread_id=view.thread_id,
            run_id=coming.run_id,
            continues=last.task_id if last is not None and last.is_terminal else None,
            if_missing="reject",
        )
        return (await self._hub.submit(who.owner, extension.start.apply(submission))).run_id

    async def _answer(
        self, who: Caller, view: TaskView, task: Task, body: w.RequestBody, extension: ExtensionRequest
    ) -> str:
        extension.start.check_absent()
        asked = view.fold.open_interrupts(task.task_id)
        value, message = decode_answer(body, asked[0].answer_schema if asked else None)
        given = RunInput(
            messages=answer_messages(extension, message),
            config=given_config(extension),
            headers=who.headers,
            extra=_input_extra(body.input, body.additional_input or {}),
        )
        answers = Answers(task_id=task.task_id, bare=value, protocol="aief", input=given)
        if extension.declined:
            values: dict[str, Json] = dict.fromkeys(extension.declined)
            said = RunInput(headers=who.headers) if extension.answered else given
            refused = Answers(task_id=task.task_id, values=values, action="decline", protocol="aief", input=said)
            receipt = await self._hub.answer(who.owner, refused)
            if not extension.answered:
                return receipt.run_id
        if extension.answered:
            answers = Answers(task_id=task.task_id, values=extension.answered, protocol="aief", input=given)
        return (await self._hub.answer(who.owner, answers)).run_id

    async def _wait_for_step(self, who: Caller, view: TaskView, run_id: str, number: int) -> TaskView:
        """The task when a step of it is over; before that only if the gateway stops. What is said meanwhile is not
        kept: the task is read when all of it is there."""
        progress = view.progress(run_id)
        async with aclosing(self._hub.reads.follow(who.owner, Scope(view.thread_id), view.seq)) as batches:
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
        page, size = _page_and_size(request)
        view = await self._find(request)
        artifacts = view.current_artifacts()
        shell = w.TaskArtifactsListResponse(artifacts=[], pagination=page_of(len(artifacts), page, size))
        shown = (encode(encode_artifact(one)) for one in artifacts[(page - 1) * size : page * size])
        return await list_response(
            w.dump(shell),
            each(shown),
            name="artifacts",
            headers={"Babelgate-Thread": view.thread_id, **confirm(active=is_asked(request))},
        )

    async def upload_artifact(self, request: AnyRequest) -> Response[Any]:
        view = await self._find(request)
        key = decode_key(request.headers.get("idempotency-key"))
        raw = await read_bytes(request)
        upload = await aside(partial(decode_upload, request.headers.get("content-type", ""), raw))
        kept = await self._hub.upload(caller(request).owner, view.thread_id, upload.file, upload.folder, key=key)
        return _json(encode_artifact(kept), {"Babelgate-Thread": view.thread_id})

    async def download_artifact(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found."""
        who = caller(request)
        view = await self._find(request)
        wanted: str = request.path_params["artifact_id"]
        artifact = view.artifact(wanted)
        if artifact is None and is_asked(request):  # whose records name files by their hash
            return await answer_file(self._hub, request, wanted)
        if artifact is None:
            raise _not_found("artifact", wanted)
        headers = {
            "Content-Disposition": disposition(encode_artifact(artifact).file_name),
            # Its type is the agent's word: shown as a page it would speak in the gateway's name.
            "X-Content-Type-Options": "nosniff",
            "Babelgate-Thread": view.thread_id,
        }
        kept = list(contents(artifact))
        if len(kept) == 1 and isinstance(kept[0], str):
            found, pieces = await self._hub.reads.file_pieces(who.owner, kept[0])
            headers |= {"ETag": f'"{kept[0]}"', "Content-Length": str(found.size)}
            # OpenAPI v1, downloadAgentTaskArtifact: no other type.
            return Pieces(pieces, headers, media_type="application/octet-stream")
        data = b"".join(
            [
                each if isinstance(each, bytes) else (await self._hub.reads.file(who.owner, each)).inline or b""
                for each in kept
            ]
        )
        headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        return Response(data, media_type="application/octet-stream", headers=headers)


@dataclass(frozen=True, slots=True)
class _Activation:
    """A request that activates the Babelgate extension."""

    extension: ExtensionRequest
    start: int = 0
    """The seq after which the records of the run are told."""

    @classmethod
    def of(cls, request: AnyRequest, body: w.RequestBody | None = None) -> "_Activation | None":
        """None where the extension is not active; what the body says by it is taken out, and activates it. Raises
        invalid."""
        given = (body.additional_input if body is not None else None) or {}
        if URI in given:
            extension = decode_request(given.pop(URI))
        elif is_asked(request):
            extension = ExtensionRequest()
        else:
            return None
        text = request.headers.get(START_HEADER, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise FaultError(FaultCode.INVALID, f"{START_HEADER}: It must be the number of a record, or 0.")
        return cls(extension, int(text))


async def _body(request: AnyRequest) -> w.RequestBody:
    body = await read_json(request)
    # `curl -X POST …/steps` without a body, JSON without a Content-Type (which the JavaScript SDK 1.0.5 answers 415),
    # and agbenchmark 0.0.10's Content-Type without a body.
    return w.RequestBody() if body is ABSENT else validate(w.RequestBody, body)


class _StepInput:
    """Input of a step, together with that of the task if it is the task's first step.

    `task_text`, `task_data`: input and additional_input of the task; None and {} for later steps. Many clients send the
    task's input again, or only a "y": the agent gets the task's input once.
    """

    def __init__(self, task_text: str | None, task_data: JsonObject, body: w.RequestBody) -> None:
        own = body.additional_input or {}
        self.data: JsonObject = {**task_data, **own}
        """Object that the agent gets."""
        self.shown = task_text if body.input is None else body.input
        """Input that the step shows."""
        self.text = self.shown
        """Text that the agent gets."""
        self._first: JsonObject | None = None
        said = (self.shown or "").strip()
        if not task_text:
            adds = False
        elif not said or is_go_ahead(said) or said == task_text.strip():
            self.text, adds = task_text, False
        else:
            self.text, adds = f"{task_text}\n\n{self.shown}", True
        if adds or (own and (task_text or task_data)):
            task = {name: value for name, value in task_data.items() if name != URI}
            step = {"input": self.shown if adds else None, "additional_input": own}
            self._first = {"task": {"input": task_text, "additional_input": task}, "step": step}

    @property
    def extra(self) -> dict[str, Any]:
        """Both inputs apart, for a step that shows its own and for an AIEF server behind."""
        extra = _input_extra(self.shown, self.data)
        return extra if self._first is None else {"aief": {**extra["aief"], "first": self._first}}


def _input_extra(text: str | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Kept on the run as the caller gave it; that it is there marks a run whose steps are revealed one by one."""
    return {"aief": {"input": text, "additional_input": dict(more)}}


@contextmanager
def _of_task(thread_id: str) -> Generator[None]:
    """What is not found is the task."""
    try:
        yield
    except FaultError as error:
        raise _not_found("task", thread_id) if error.fault.code is FaultCode.NOT_FOUND else error from error


def _says_nothing(body: w.RequestBody, asked: _Activation | None) -> bool:
    if asked is not None and asked.extension != ExtensionRequest():
        return False
    return not body.additional_input and (not body.input or is_go_ahead(body.input))


def _not_found(what: str, wanted: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, f"{what.capitalize()} with {wanted[:100]} not found.")


def _page_and_size(request: AnyRequest) -> tuple[int, int]:
    page, size = _number(request, "current_page", 1), _number(request, "page_size", PAGE_SIZE)
    # Not refused: OpenAPI v1 names a least page_size and no largest.
    return page, min(size, _PAGE_MOST)


def _number(request: AnyRequest, name: str, otherwise: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= _INT32):
        words = f"It must be an integer from 1 to {_INT32}."
        errors = [{"field": name, "description": words}]
        raise FaultError(FaultCode.INVALID, f"{name}: {words}", errors=errors)
    return int(text)
