"""ACP's endpoints. An ACP run is a task of the hub; for continuable agents, a task and those that continue it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from litestar import Request, Response, get, post
from litestar.types import ControllerRouterHandler
from pydantic import BaseModel

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.agents import encode_agent, labels, preferred_name
from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.acp.codec.messages import decode_answer, decode_message, request_extra, request_metadata
from babelgate.adapters.acp.codec.parts import View, extra_of, resource_url
from babelgate.adapters.acp.errors import MISMATCH, encode_fault
from babelgate.adapters.acp.server.follow import RunStream
from babelgate.adapters.acp.write.session import SessionUrls, Transcript
from babelgate.adapters.kit.extension import (
    START_HEADER,
    answer_messages,
    decode_request,
    given_config,
    given_messages,
    with_uploads,
)
from babelgate.adapters.kit.extension import Request as ExtensionRequest
from babelgate.adapters.kit.headers import is_preferred, read_line
from babelgate.adapters.kit.json import DEFAULT_VALUES, parse, read_json, validate
from babelgate.adapters.kit.server.caller import Caller, caller, loss_header, run_headers
from babelgate.adapters.kit.server.encoding import LargeJson, encode, json_response
from babelgate.adapters.kit.server.extended import confirm, is_asked
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Pieces, list_response
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.adapters.kit.time import encode_time
from babelgate.adapters.kit.values import count_values
from babelgate.canonical import (
    AgentInfo,
    Answers,
    Fault,
    FaultCode,
    FaultError,
    Hub,
    Message,
    Receipt,
    RunInput,
    Scope,
    Submission,
    Task,
)
from babelgate.canonical.value import Json

__all__ = ("answer_fault", "routes")

AnyRequest = Request[Any, Any, Any]

MAX_HISTORY = 1000
"""Messages that one session descriptor may bring."""
MAX_IMPORTED = 16 * 2**20
"""Bytes of them together, where other servers keep them."""
_FETCHES = 4
"""At once."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = Server(hub)
    return [
        get("/acp/ping")(server.ping),
        get("/acp/agents")(server.list_agents),
        get("/acp/agents/{name:str}")(server.get_agent),
        post("/acp/runs", status_code=200)(server.create_run),
        get("/acp/runs/{run_id:str}")(server.get_run),
        post("/acp/runs/{run_id:str}", status_code=200)(server.resume_run),
        # 202: a cancel is taken, and done later (paths./runs/{run_id}/cancel).
        post("/acp/runs/{run_id:str}/cancel", status_code=202)(server.cancel_run),
        get("/acp/runs/{run_id:str}/events")(server.list_events),
        # The OpenAPI has `/session`, the SDK and every client `/sessions`.
        get(["/acp/session/{session_id:str}", "/acp/sessions/{session_id:str}"])(server.get_session),
        # Not in the OpenAPI: SDK 1.0.3 and its documentation.
        get("/acp/resources/{resource_id:str}")(server.get_resource),
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    status, error = encode_fault(fault)
    return _json(error, status, fault_headers(fault))


def _json(value: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[Any]:
    return json_response(value, headers, status=status)


class Server(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lines = FanoutCache()

    # Agents

    async def ping(self) -> Response[Any]:
        return Response(b"{}", media_type="application/json")

    async def list_agents(self, request: AnyRequest) -> Response[Any]:
        who = caller(request)
        # Without them all: the OpenAPI's default of 10 would hide agents from both SDKs, which never page.
        limit, offset = _number(request, "limit", 1, 1000), _number(request, "offset", 0)
        infos = list(self._hub.agents())
        if who.agent is not None and who.base_url.endswith(f"/agent/{who.agent}"):
            infos = [info for info in infos if info.name == who.agent]
        start = offset or 0
        infos = infos[start:] if limit is None else infos[start : start + limit]
        return _json(
            w.AgentsListResponse(agents=[encode_agent(info, self._advertised_name(info.name)) for info in infos])
        )

    async def get_agent(self, request: AnyRequest) -> Response[Any]:
        """Under the name that was asked for: whoever uses one that is no label can live with it."""
        name: str = request.path_params["name"]
        return _json(encode_agent(self._agent(name), name))

    def _agent(self, name: str) -> AgentInfo:
        """By the name it is advertised under, or any other that the gateway knows it by."""
        try:
            return self._hub.agent(name)
        except FaultError as error:
            ours = self._labels().get(name)
            if error.fault.code is not FaultCode.NOT_FOUND or ours is None:
                raise _not_found(error, f"Agent {name} not found") from error
            return self._hub.agent(ours)

    def _labels(self) -> Mapping[str, str]:
        return _labels(tuple((info.name, preferred_name(info)) for info in self._hub.agents()))

    def _advertised_name(self, name: str) -> str:
        return next((advertised for advertised, ours in self._labels().items() if ours == name), name)

    def _continuable(self, name: str) -> bool:
        try:
            return self._hub.agent(name).continuable
        except FaultError:  # it was configured when the task was made
            return False

    # Runs

    async def create_run(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid."""
        who = caller(request)
        body = validate(w.RunCreateRequest, await read_json(request))
        extension = _read_extension(request, body)
        session = body.session
        if session is not None and body.session_id not in (None, session.id):
            # SDK 1.0.3, with these words.
            raise FaultError(FaultCode.INVALID, "Session ID mismatch", reason=MISMATCH)
        info = self._agent(body.agent_name)
        history = () if session is None else await self._import_history(who, session)
        given = (extension and given_messages(extension)) or map(decode_message, body.input)
        given = given if extension is None else with_uploads(extension, given)
        metadata = request_metadata(body) if extension is None or extension.metadata is None else extension.metadata
        submission = Submission(
            agent=info.name,
            protocol="acp",
            version=VERSION,
            input=RunInput(
                messages=await resolve_own_files(self._hub, who, given),
                uploaded=0 if extension is None else len(extension.uploads),
                config={} if extension is None else given_config(extension),
                metadata=metadata,
                headers=who.headers,
                extra=request_extra(body),
            ),
            thread_id=body.session_id if session is None else session.id,
            history=history,
        )
        if extension is not None:
            submission = extension.start.apply(submission)
        receipt = await self._hub.submit(who.owner, submission)
        view = replace(self._view(who, receipt.task), agent=body.agent_name)
        # `Run-ID` is not in the OpenAPI: SDK 1.0.3 sends it, and its clients read it from a stream.
        extended = extension is not None
        headers = {"Run-ID": receipt.task_id, **run_headers(receipt), **confirm(active=extended)}
        if body.mode == "async":
            at = encode_time(receipt.task.created_at)
            run = w.Run(
                run_id=view.run_id,
                agent_name=view.agent,
                session_id=view.session_id,
                # The suites of SDK 1.0.3 assert that the answer to an async create does not say in-progress yet.
                status="created",
                created_at=at,
            )
            return _json(run, 202, headers)
        reading = RunStream(self._hub, who.owner, [receipt.task], view, stop_after=receipt.seq, extended=extended)
        return await self._run_response(reading, body.mode, headers)

    async def resume_run(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid."""
        who = caller(request)
        tasks, view = await self._find(who, request)
        body = validate(w.RunResumeRequest, await read_json(request))
        # Required in components.schemas.RunResumeRequest, sent by neither client of SDK 1.0.3.
        if body.run_id not in (None, view.run_id):
            raise FaultError(FaultCode.INVALID, "run_id: must be the run of the path")
        extension = _read_extension(request, body)
        answers = decode_request(body.await_resume.pop(w.OWN, None))
        (extension or answers).start.check_absent()
        value, said = decode_answer(body.await_resume)
        (message,) = await resolve_own_files(self._hub, who, (said,))
        last = tasks[-1]
        # SDK 1.0.3 refuses it (403), or where the run once awaited, leaves it in-progress for ever: so only for agents
        # that are declared to go on.
        if last.is_terminal and self._continuable(last.agent):
            receipt = await self._continue(who, last, message)
            tasks = [*tasks, receipt.task]
        else:
            receipt = await self._answer(who, last, value, message, view.run_id, extension or answers)
        reading = RunStream(
            self._hub,
            who.owner,
            tasks,
            view,
            show_after=receipt.seq,
            stop_after=receipt.seq,
            extended=extension is not None,
        )
        headers = {**run_headers(receipt), **confirm(active=extension is not None)}
        if body.mode == "async":
            # The suites of SDK 1.0.3 assert this status.
            writer = await reading.snapshot(until="in-progress")
            return _json(writer.answer(), 202, {**headers, **loss_header(writer.run_losses)})
        return await self._run_response(reading, body.mode, headers)

    async def _continue(self, who: Caller, last: Task, message: Message) -> Receipt:
        return await self._hub.submit(
            who.owner,
            Submission(
                agent=last.agent,
                protocol="acp",
                version=VERSION,
                input=RunInput(messages=(message,), headers=who.headers),
                thread_id=last.thread_id,
                continues=last.task_id,
            ),
        )

    async def _answer(
        self, who: Caller, last: Task, value: Any, message: Message, run_id: str, extension: ExtensionRequest
    ) -> Receipt:
        said = answer_messages(extension, message)
        given = RunInput(messages=said, config=given_config(extension), headers=who.headers)
        answers = Answers(task_id=last.task_id, bare=value, input=given, protocol="acp")
        try:
            if extension.declined:
                values: dict[str, Json] = dict.fromkeys(extension.declined)
                whole = not extension.answered
                noted = given if whole else RunInput(headers=who.headers)
                refused = Answers(task_id=last.task_id, values=values, action="decline", input=noted, protocol="acp")
                receipt = await self._hub.answer(who.owner, refused)
                if whole:
                    return receipt
            if extension.answered:
                answers = Answers(task_id=last.task_id, values=extension.answered, input=given, protocol="acp")
            return await self._hub.answer(who.owner, answers)
        except FaultError as error:
            if error.fault.code in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED):
                raise FaultError(FaultCode.NOT_AWAITING, f"Run {run_id} has no await request") from error
            raise

    async def _run_response(self, reading: RunStream, mode: w.Mode, headers: Mapping[str, str]) -> Response[Any]:
        if mode == "stream":
            return event_stream(reading.frames(self._lines), ping=None, headers=headers)
        writer = await reading.stop()
        return _json(writer.answer(), 200, {**headers, **loss_header(writer.run_losses)})

    async def get_run(self, request: AnyRequest) -> Response[Any]:
        who = caller(request)
        tasks, view = await self._find(who, request)
        extended = is_asked(request)
        writer = await RunStream(self._hub, who.owner, tasks, view, extended=extended).snapshot()
        headers = {
            **run_headers(tasks[-1], writer.run_id),
            **loss_header(writer.run_losses),
            **confirm(active=extended),
        }
        return _json(writer.answer(), 200, headers)

    async def cancel_run(self, request: AnyRequest) -> Response[Any]:
        """Raises task_ended."""
        who = caller(request)
        tasks, view = await self._find(who, request)
        try:
            await self._hub.cancel(who.owner, tasks[-1].task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:
                raise
            words = f"Run in terminal status can't be cancelled: {view.run_id}"
            raise FaultError(FaultCode.TASK_ENDED, words) from error
        writer = await RunStream(self._hub, who.owner, tasks, view).snapshot(until="cancelling")
        # However fast it went, the answer is the status that a cancel leads to.
        run = writer.run().model_copy(update={"status": "cancelling", "finished_at": None})
        return _json(run, 202, {**run_headers(tasks[-1], writer.run_id), **loss_header(writer.run_losses)})

    async def list_events(self, request: AnyRequest) -> Response[Any]:
        """The events so far as JSON; with `Accept: text/event-stream` as a stream that goes on. Both after the first
        `after`, and by the extension after a record."""
        who = caller(request)
        after = _number(request, "after", 0) or 0
        tasks, view = await self._find(who, request)
        last = tasks[-1].last_seq
        extended = is_asked(request)
        start = _integer(request.headers.get(START_HEADER), START_HEADER, 0) if extended else None
        reading = RunStream(
            self._hub,
            who.owner,
            tasks,
            view,
            show_after=start or 0,
            skip=after,
            stop_after=last,
            end=last,
            extended=extended,
        )
        headers = {**run_headers(tasks[-1]), **confirm(active=extended)}
        # ACP has the list alone, and no way back into a stream: that, and `after`, are the gateway's own.
        accept = read_line(request.scope["headers"], "accept")
        if is_preferred(accept, "text/event-stream", "application/json"):
            return event_stream(reading.frames(self._lines), ping=None, headers=headers)

        async def losses() -> Mapping[str, str]:
            whole = reading if reading.complete else RunStream(self._hub, who.owner, tasks, view)
            return loss_header((whole.writer if reading.complete else await whole.snapshot()).losses)

        return await list_response(
            b'{"events":[]}', _dump_events(reading.events()), name="events", headers=headers, more_headers=losses
        )

    async def _find(self, who: Caller, request: AnyRequest) -> tuple[Sequence[Task], View]:
        task_id = _uuid(request.path_params["run_id"], "run_id")
        try:
            chain = await self._hub.reads.chain(who.owner, task_id)
        except FaultError as error:
            raise _not_found(error, f"Run {task_id} not found") from error
        tasks = chain if len(chain) > 1 and self._continuable(chain[0].agent) else chain[:1]
        return tasks, self._view(who, tasks[0])

    def _view(self, who: Caller, task: Task) -> View:
        return View(
            run_id=task.task_id,
            session_id=task.thread_id,
            agent=self._advertised_name(task.agent),
            base_url=who.base_url,
        )

    # Sessions and resources

    async def get_session(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found."""
        who = caller(request)
        thread_id = _uuid(request.path_params["session_id"], "session_id")
        try:
            await self._hub.reads.thread(who.owner, thread_id)
        except FaultError as error:
            # The Python client asks for its own new id first, and goes on only if the code is not_found.
            raise _not_found(error, f"Session {thread_id} not found") from error
        urls = await self._session_urls(who, thread_id)
        # `state` stays null: an agent's state is its own, and nothing that runs elsewhere could read it.
        return _json(w.Session(id=thread_id, history=urls))

    async def _session_urls(self, who: Caller, thread_id: str) -> list[str]:
        """Raises not_found."""
        empty = partial(SessionUrls, thread_id, self._advertised_name)
        try:
            found = await self._hub.reads.snapshot(who.owner, thread_id, SessionUrls, empty)
        except FaultError as error:
            if error.fault.code is not FaultCode.TOO_LARGE:  # of a task that has not ended
                raise
            return [entry.url for entry in (await self._transcript(who, Scope(thread_id))).entries()]
        return found.urls(who.base_url)

    async def get_resource(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found."""
        who = caller(request)
        resource_id: str = request.path_params["resource_id"]
        if _is_hash(resource_id):
            return await self._file(who, resource_id)
        message = await self._resource(who, resource_id)
        if message is None:
            raise FaultError(FaultCode.NOT_FOUND, "Resource not found")
        return _json(message)

    async def _file(self, who: Caller, blob: str) -> Response[Any]:
        found, pieces = await self._hub.reads.file_pieces(who.owner, blob)
        headers = {
            # Its type is the agent's word: shown as a page it would speak in the gateway's name.
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": "attachment",
            "Content-Length": str(found.size),
        }
        return Pieces(pieces, headers, media_type="application/octet-stream")

    async def _resource(self, who: Caller, resource_id: str) -> w.Message | None:
        holder, _, _ = resource_id.partition(".")
        try:
            holder = str(UUID(holder))
        except ValueError:
            return None
        try:
            scope = Scope.task(await self._hub.reads.task(who.owner, holder))
        except FaultError:
            scope = Scope(holder)
        try:
            entries = (await self._transcript(who, scope, inline=True)).entries()
        except FaultError:
            return None
        return next((entry.message for entry in entries if entry.resource_id == resource_id), None)

    async def _transcript(self, who: Caller, scope: Scope, *, inline: bool = False) -> Transcript:
        made = Transcript(scope.thread_id, base_url=who.base_url, advertised=self._advertised_name)
        async for records in self._hub.reads.log(who.owner, scope, inline=inline):
            for record in records:
                made.apply(record)
        return made

    async def _import_history(self, who: Caller, session: w.Session) -> tuple[Message, ...]:
        """The messages of a session descriptor that the gateway does not have."""
        if len(session.history) > MAX_HISTORY:
            raise FaultError(FaultCode.INVALID, f"session.history: more than {MAX_HISTORY} messages")
        known: set[str] = set()
        try:
            known = {*await self._session_urls(who, session.id)}
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
        # The client of SDK 1.0.3 sends the descriptor that it had from the last server: what is known here is not
        # fetched.
        urls = [url for url in dict.fromkeys(session.history) if url not in known]
        gate, budget = asyncio.Semaphore(_FETCHES), _Budget()

        async def one(url: str) -> Message:
            async with gate:
                return await self._import(who, url, budget)

        imports = [asyncio.ensure_future(one(url)) for url in urls]
        try:
            return tuple(await asyncio.gather(*imports))
        finally:
            for each in imports:  # of those that are under way where one failed
                each.cancel()

    async def _import(self, who: Caller, url: str, budget: "_Budget") -> Message:
        own = resource_url(who.base_url, "")
        if url.startswith(own):
            wire = await self._resource(who, url.removeprefix(own))
            if wire is None:
                raise FaultError(FaultCode.INVALID, "session.history: a URL of this server leads to no message")
        else:
            wire = validate(w.Message, await budget.parse_message(await self._hub.fetch(url, budget.receive)))
        message = decode_message(wire)
        own = {**extra_of(message.extra), "url": url}
        return message.replace(extra={**message.extra, "acp": own})


class _Budget:
    """What the messages of one session may come to, wherever they are: as much as one request may bring."""

    def __init__(self) -> None:
        self._bytes = MAX_IMPORTED
        self._values = DEFAULT_VALUES

    def receive(self, size: int) -> None:
        """Raises too_large."""
        self._bytes -= size
        if self._bytes < 0:
            raise FaultError(
                FaultCode.TOO_LARGE, f"session.history: the messages have more than {MAX_IMPORTED} bytes together"
            )

    async def parse_message(self, raw: bytes) -> Json:
        """Raises too_large, invalid."""
        self._values -= count_values(raw, self._values)
        if self._values < 0:
            words = f"session.history: the messages hold more than {DEFAULT_VALUES} JSON values together"
            raise FaultError(FaultCode.TOO_LARGE, words)
        return await parse(raw)


async def _dump_events(events: AsyncGenerator[BaseModel]) -> AsyncGenerator[bytes | LargeJson]:
    async with aclosing(events):
        async for event in events:
            yield encode(event)


@lru_cache(16)
def _labels(names: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return labels(names)


def _uuid(text: str, what: str) -> str:
    try:
        return str(UUID(text))
    except ValueError as error:
        raise FaultError(FaultCode.INVALID, f"{what}: must be a UUID") from error


def _not_found(error: FaultError, words: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, words) if error.fault.code is FaultCode.NOT_FOUND else error


def _is_hash(text: str) -> bool:
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


def _read_extension(request: AnyRequest, body: w.RunCreateRequest | w.RunResumeRequest) -> ExtensionRequest | None:
    """What a request says by the extension, which is nothing that agents are sent; None where it is not active. A
    request that says something activates it, too: a proxy may have kept the header."""
    more = body.model_extra or {}
    if w.OWN in more:
        return decode_request(more.pop(w.OWN))
    return ExtensionRequest() if is_asked(request) else None


def _number(request: AnyRequest, name: str, least: int, most: int | None = None) -> int | None:
    return _integer(request.query_params.get(name), name, least, most)


def _integer(text: str | None, name: str, least: int, most: int | None = None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= (most or int(text)):
        raise FaultError(
            FaultCode.INVALID, f"{name}: must be an integer from {least}" + (f" to {most}" if most else "")
        )
    return int(text)
