"""ACP's endpoints. An ACP run is a task of the hub; for continuable agents, a task and those that continue it."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from litestar import Request, Response, Router, get, post
from pydantic import BaseModel

from adapters._body import parse_json, read_json, validate
from adapters._files import taken_back
from adapters._request import Caller, caller, loss_header, run_headers
from adapters._shared import Lines
from adapters._sse import event_stream
from adapters.acp import wire as w
from adapters.acp.carries import VERSION
from adapters.acp.codec import View, decode_answer, decode_message, encode_time, own_fields, resource_url
from adapters.acp.fault import MISMATCH, encode_fault
from adapters.acp.manifest import encode_agent, label, labels
from adapters.acp.reading import Reading
from adapters.acp.session import transcript
from canonical import AgentInfo, Answers, Fault, FaultCode, FaultError, Hub, Message, Receipt, Scope, Submission, Task

__all__ = ("answer_fault", "routes")

Asked = Request[Any, Any, Any]

MAX_HISTORY = 1000
"""Messages that one session descriptor may bring."""
_FETCHES = 8
"""At once."""


def routes(hub: Hub) -> Sequence[Router]:
    server = Server(hub)
    return [
        Router(
            "/acp",
            route_handlers=[
                get("/ping")(server.ping),
                get("/agents")(server.list_agents),
                get("/agents/{name:str}")(server.get_agent),
                post("/runs", status_code=200)(server.create_run),
                get("/runs/{run_id:str}")(server.get_run),
                post("/runs/{run_id:str}", status_code=200)(server.resume_run),
                post("/runs/{run_id:str}/cancel", status_code=202)(server.cancel_run),
                get("/runs/{run_id:str}/events")(server.list_events),
                # The OpenAPI has `/session`, the SDK and every client `/sessions`.
                get(["/session/{session_id:str}", "/sessions/{session_id:str}"])(server.get_session),
                get("/resources/{resource_id:str}")(server.get_resource),
            ],
        )
    ]


def answer_fault(fault: Fault, request: Asked) -> Response[Any]:
    status, error = encode_fault(fault)
    headers: dict[str, str] = {}
    if isinstance(fault.details.get("retry_after"), int):
        headers["Retry-After"] = str(fault.details["retry_after"])
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _json(error, status, headers)


def _json(value: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[Any]:
    return Response(w.dump(value), status_code=status, media_type="application/json", headers=dict(headers or {}))


class Server:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lines = Lines()

    def __deepcopy__(self, _: object) -> "Server":
        # NB: Litestar copies every handler that it registers, and a bound method with its object: there is one hub.
        return self

    # Agents

    async def ping(self) -> Response[Any]:
        return Response(b"{}", media_type="application/json")

    async def list_agents(self, request: Asked) -> Response[Any]:
        who = caller(request)
        # Without them all: the OpenAPI's default of 10 would hide agents from both SDKs, which never page.
        limit, offset = _number(request, "limit", 1, 1000), _number(request, "offset", 0)
        infos = list(self._hub.agents())
        if who.agent is not None and who.base_url.endswith(f"/agent/{who.agent}"):
            infos = [info for info in infos if info.name == who.agent]
        start = offset or 0
        infos = infos[start:] if limit is None else infos[start : start + limit]
        return _json(w.AgentsListResponse(agents=[encode_agent(info, self._advertised(info.name)) for info in infos]))

    async def get_agent(self, request: Asked) -> Response[Any]:
        info = self._agent(request.path_params["name"])
        return _json(encode_agent(info, self._advertised(info.name)))

    def _agent(self, name: str) -> AgentInfo:
        """By the name it is advertised under, or any other that the gateway knows it by."""
        try:
            return self._hub.agent(name)
        except FaultError as error:
            ours = self._labels().get(name)
            if error.fault.code is not FaultCode.NOT_FOUND or ours is None:
                raise _missing(error, f"Agent {name} not found") from error
            return self._hub.agent(ours)

    def _labels(self) -> Mapping[str, str]:
        return _labels(tuple(info.name for info in self._hub.agents()))

    def _advertised(self, name: str) -> str:
        if label(name) == name:
            return name
        return next((advertised for advertised, ours in self._labels().items() if ours == name), name)

    def _continuable(self, name: str) -> bool:
        try:
            return self._hub.agent(name).continuable
        except FaultError:  # it was configured when the task was made
            return False

    # Runs

    async def create_run(self, request: Asked) -> Response[Any]:
        who = caller(request)
        body = validate(w.RunCreateRequest, await read_json(request))
        session = body.session
        if session is not None and body.session_id not in (None, session.id):
            raise FaultError(FaultCode.INVALID, "Session ID mismatch", reason=MISMATCH)
        info = self._agent(body.agent_name)
        history = () if session is None else await self._imported(who, session)
        receipt = await self._hub.submit(
            who.owner,
            Submission(
                agent=info.name,
                protocol="acp",
                version=VERSION,
                messages=await taken_back(self._hub, who, map(decode_message, body.input)),
                thread_id=body.session_id if session is None else session.id,
                history=history,
                headers=who.headers,
                extra={"acp": body.model_extra} if body.model_extra else {},
            ),
        )
        view = self._view(who, receipt.task)
        headers = {"Run-ID": receipt.task_id, **run_headers(receipt)}
        if body.mode == "async":
            at = encode_time(receipt.task.created_at)
            run = w.Run(
                run_id=view.run_id,
                agent_name=view.agent,
                session_id=view.session_id,
                status="created",
                created_at=at,
            )
            return _json(run, 202, headers)
        reading = Reading(self._hub, who.owner, [receipt.task], view, stop_after=receipt.seq)
        return await self._followed(reading, body.mode, headers)

    async def resume_run(self, request: Asked) -> Response[Any]:
        who = caller(request)
        tasks, view = await self._find(who, request)
        body = validate(w.RunResumeRequest, await read_json(request))
        if body.run_id not in (None, view.run_id):
            raise FaultError(FaultCode.INVALID, "run_id: it is not the run of the path")
        value, said = decode_answer(body.await_resume)
        (message,) = await taken_back(self._hub, who, (said,))
        last = tasks[-1]
        if last.terminal and self._continuable(last.agent):
            receipt = await self._continue(who, last, message)
            tasks = [*tasks, receipt.task]
        else:
            receipt = await self._answer(who, last, value, message, view.run_id)
        reading = Reading(self._hub, who.owner, tasks, view, show_after=receipt.seq, stop_after=receipt.seq)
        headers = run_headers(receipt)
        if body.mode == "async":
            writer = await reading.snapshot(until="in-progress")
            return _json(writer.run(), 202, {**headers, **loss_header(writer.losses)})
        return await self._followed(reading, body.mode, headers)

    async def _continue(self, who: Caller, last: Task, message: Message) -> Receipt:
        return await self._hub.submit(
            who.owner,
            Submission(
                agent=last.agent,
                protocol="acp",
                version=VERSION,
                messages=(message,),
                thread_id=last.thread_id,
                continues=last.task_id,
                headers=who.headers,
            ),
        )

    async def _answer(self, who: Caller, last: Task, value: Any, message: Message, run_id: str) -> Receipt:
        answers = Answers(task_id=last.task_id, bare=value, messages=(message,), protocol="acp", headers=who.headers)
        try:
            return await self._hub.answer(who.owner, answers)
        except FaultError as error:
            if error.fault.code in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED):
                raise FaultError(FaultCode.NOT_AWAITING, f"Run {run_id} has no await request") from error
            raise

    async def _followed(self, reading: Reading, mode: w.Mode, headers: Mapping[str, str]) -> Response[Any]:
        if mode == "stream":
            return event_stream(reading.frames(self._lines), ping=None, headers=headers)
        writer = await reading.stop()
        return _json(writer.run(), 200, {**headers, **loss_header(writer.losses)})

    async def get_run(self, request: Asked) -> Response[Any]:
        who = caller(request)
        tasks, view = await self._find(who, request)
        writer = await Reading(self._hub, who.owner, tasks, view).snapshot()
        headers = {**run_headers(tasks[-1], writer.run_id), **loss_header(writer.losses)}
        return _json(writer.run(), 200, headers)

    async def cancel_run(self, request: Asked) -> Response[Any]:
        who = caller(request)
        tasks, view = await self._find(who, request)
        try:
            await self._hub.cancel(who.owner, tasks[-1].task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:
                raise
            words = f"Run in terminal status can't be cancelled: {view.run_id}"
            raise FaultError(FaultCode.TASK_ENDED, words) from error
        writer = await Reading(self._hub, who.owner, tasks, view).snapshot(until="cancelling")
        # However fast it went, the answer is the status that a cancel leads to.
        run = writer.run().model_copy(update={"status": "cancelling", "finished_at": None})
        return _json(run, 202, {**run_headers(tasks[-1], writer.run_id), **loss_header(writer.losses)})

    async def list_events(self, request: Asked) -> Response[Any]:
        """The events so far as JSON; with `Accept: text/event-stream` as a stream that goes on. Both after the first
        `after`."""
        who = caller(request)
        after = _number(request, "after", 0) or 0
        tasks, view = await self._find(who, request)
        last = tasks[-1].last_seq
        reading = Reading(self._hub, who.owner, tasks, view, skip=after, stop_after=last, end=last)
        headers = run_headers(tasks[-1])
        if "text/event-stream" in request.headers.get("accept", ""):
            return event_stream(reading.frames(self._lines), ping=None, headers=headers)
        events = [w.dump(event) async for event in reading.events()]
        body = b'{"events":[' + b",".join(events) + b"]}"
        headers |= loss_header(reading.writer.losses)
        return Response(body, media_type="application/json", headers=headers)

    async def _find(self, who: Caller, request: Asked) -> tuple[Sequence[Task], View]:
        task_id = _uuid(request.path_params["run_id"], "run_id")
        try:
            chain = await self._hub.chain(who.owner, task_id)
        except FaultError as error:
            raise _missing(error, f"Run {task_id} not found") from error
        tasks = chain if len(chain) > 1 and self._continuable(chain[0].agent) else chain[:1]
        return tasks, self._view(who, tasks[0])

    def _view(self, who: Caller, task: Task) -> View:
        return View(
            run_id=task.task_id,
            session_id=task.thread_id,
            agent=self._advertised(task.agent),
            base_url=who.base_url,
        )

    # Sessions and resources

    async def get_session(self, request: Asked) -> Response[Any]:
        who = caller(request)
        thread_id = _uuid(request.path_params["session_id"], "session_id")
        try:
            await self._hub.thread(who.owner, thread_id)
        except FaultError as error:
            # The Python client asks for its own new id first, and goes on only if the code is not_found.
            raise _missing(error, f"Session {thread_id} not found") from error
        records = await self._hub.records(who.owner, Scope(thread_id))
        entries = transcript(thread_id, records, base_url=who.base_url, advertised=self._advertised)
        return _json(w.Session(id=thread_id, history=[entry.url for entry in entries]))

    async def get_resource(self, request: Asked) -> Response[Any]:
        who = caller(request)
        resource_id: str = request.path_params["resource_id"]
        if _is_hash(resource_id):
            return await self._file(who, resource_id)
        message = await self._resource(who, resource_id)
        if message is None:
            raise FaultError(FaultCode.NOT_FOUND, "Resource not found")
        return _json(message)

    async def _file(self, who: Caller, blob: str) -> Response[Any]:
        found = await self._hub.file(who.owner, blob)
        # Its type is the agent's word: shown as a page it would speak in the gateway's name.
        headers = {"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"}
        return Response(found.inline or b"", media_type="application/octet-stream", headers=headers)

    async def _resource(self, who: Caller, resource_id: str) -> w.Message | None:
        holder, _, _ = resource_id.partition(".")
        try:
            holder = str(UUID(holder))
        except ValueError:
            return None
        try:
            scope = Scope.task(await self._hub.task(who.owner, holder))
        except FaultError:
            scope = Scope(holder)
        try:
            records = await self._hub.records(who.owner, scope, inline=True)
        except FaultError:
            return None
        entries = transcript(scope.thread_id, records, base_url=who.base_url, advertised=self._advertised)
        return next((entry.message for entry in entries if entry.resource_id == resource_id), None)

    async def _imported(self, who: Caller, session: w.Session) -> tuple[Message, ...]:
        """The messages of a session descriptor that the gateway does not have."""
        if len(session.history) > MAX_HISTORY:
            raise FaultError(FaultCode.INVALID, f"session.history: more than {MAX_HISTORY} messages")
        known: set[str] = set()
        try:
            records = await self._hub.records(who.owner, Scope(session.id))
            entries = transcript(session.id, records, base_url=who.base_url, advertised=self._advertised)
            known = {entry.url for entry in entries}
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
        urls = [url for url in dict.fromkeys(session.history) if url not in known]
        gate = asyncio.Semaphore(_FETCHES)

        async def one(url: str) -> Message:
            async with gate:
                return await self._import(who, url)

        return tuple(await asyncio.gather(*(one(url) for url in urls)))

    async def _import(self, who: Caller, url: str) -> Message:
        own = resource_url(who.base_url, "")
        if url.startswith(own):
            wire = await self._resource(who, url.removeprefix(own))
            if wire is None:
                raise FaultError(FaultCode.INVALID, "session.history: a message of this server is not there")
        else:
            wire = validate(w.Message, parse_json(await self._hub.fetch(url)))
        message = decode_message(wire)
        return message.model_copy(update={"extra": {"acp": {**own_fields(message.extra), "url": url}}})


@lru_cache(16)
def _labels(names: tuple[str, ...]) -> Mapping[str, str]:
    return labels(names)


def _uuid(text: str, what: str) -> str:
    try:
        return str(UUID(text))
    except ValueError as error:
        raise FaultError(FaultCode.INVALID, f"{what}: it is not a UUID") from error


def _missing(error: FaultError, words: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, words) if error.fault.code is FaultCode.NOT_FOUND else error


def _is_hash(text: str) -> bool:
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


def _number(request: Asked, name: str, least: int, most: int | None = None) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= (most or int(text)):
        raise FaultError(
            FaultCode.INVALID, f"{name}: it is not an integer from {least}" + (f" to {most}" if most else "")
        )
    return int(text)
