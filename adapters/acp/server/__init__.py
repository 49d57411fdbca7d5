"""Routes of the ACP server. A run of ACP is a task of the hub. For agents whose ended runs can be continued, it is a
task and the tasks that continue it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from litestar import Response, get, post
from litestar.types import ControllerRouterHandler
from pydantic import BaseModel

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.agents import encode_agent, labels, preferred_name
from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.acp.codec.messages import decode_answer, decode_message, request_extra, request_metadata
from babelgate.adapters.acp.codec.parts import EncodingContext, extra_of, resource_url
from babelgate.adapters.acp.errors import MISMATCH, encode_fault
from babelgate.adapters.acp.server.follow import RunStream
from babelgate.adapters.acp.write.session import SessionTranscript, SessionUrls
from babelgate.adapters.kit.extension import (
    START_HEADER,
    answer_messages,
    config_of,
    decode_request,
    messages_of,
    with_uploads,
)
from babelgate.adapters.kit.extension import Request as ExtensionRequest
from babelgate.adapters.kit.headers import is_preferred, read_line
from babelgate.adapters.kit.integer import read_integer
from babelgate.adapters.kit.json import DEFAULT_VALUES, parse, read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, loss_header, run_headers
from babelgate.adapters.kit.server.encoding import LargeJson, encode, json_response
from babelgate.adapters.kit.server.extended import confirm, is_activated
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
    Principal,
    Receipt,
    RunInput,
    Scope,
    Submission,
    Task,
)
from babelgate.canonical.value import Json

__all__ = ("answer_fault", "routes")


MAX_HISTORY = 1000
"""Maximum number of messages in one session descriptor. Chosen."""
MAX_IMPORTED = 16 * 2**20
"""Maximum total size of the messages of one session descriptor that are fetched from other servers, in bytes.
Chosen."""
_FETCHES = 4
"""Maximum number of concurrent fetches for one session descriptor. Chosen."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    """Return the routes of the protocol."""
    server = Server(hub)
    return [
        get("/acp/ping")(server.ping),
        get("/acp/agents")(server.list_agents),
        get("/acp/agents/{name:str}")(server.get_agent),
        post("/acp/runs", status_code=200)(server.create_run),
        get("/acp/runs/{run_id:str}")(server.get_run),
        post("/acp/runs/{run_id:str}", status_code=200)(server.resume_run),
        # 202: a cancel is accepted, and completed later (paths./runs/{run_id}/cancel).
        post("/acp/runs/{run_id:str}/cancel", status_code=202)(server.cancel_run),
        get("/acp/runs/{run_id:str}/events")(server.list_events),
        # The OpenAPI document has `/session`, the SDK and every client use `/sessions`.
        get(["/acp/session/{session_id:str}", "/acp/sessions/{session_id:str}"])(server.get_session),
        # Not in the OpenAPI document, but in SDK 1.0.3 and its documentation.
        get("/acp/resources/{resource_id:str}")(server.get_resource),
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return an error response of ACP for a fault."""
    status, error = encode_fault(fault)
    return _json(error, status, fault_headers(fault))


def _json(value: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[Any]:
    """Return a response with an ACP object as JSON."""
    return json_response(value, headers, status=status)


class Server(Handlers):
    """Handlers of the ACP routes."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lines = FanoutCache()

    # Agents

    async def ping(self) -> Response[Any]:
        """Return an empty object."""
        return Response(b"{}", media_type="application/json")

    async def list_agents(self, request: AnyRequest) -> Response[Any]:
        """Return the manifests of the agents."""
        who = caller(request)
        # Without a limit, all agents: the OpenAPI document's default of 10 would hide agents from both SDKs, which do
        # not page.
        limit, offset = _number(request, "limit", 1, 1000), _number(request, "offset", 0)
        infos = list(self._hub.agents(who.principal))
        if who.has_single_agent:
            infos = [info for info in infos if info.name == who.agent]
        start = offset or 0
        infos = infos[start:] if limit is None else infos[start : start + limit]
        return _json(
            w.AgentsListResponse(
                agents=[encode_agent(info, self._advertised_name(who.principal, info.name)) for info in infos]
            )
        )

    async def get_agent(self, request: AnyRequest) -> Response[Any]:
        """Return the manifest of an agent with the requested name, even if the name is not a label."""
        name: str = request.path_params["name"]
        return _json(encode_agent(self._agent(caller(request).principal, name), name))

    def _agent(self, principal: Principal, name: str) -> AgentInfo:
        """Return an agent by the name that ACP callers see, or by any name that the gateway knows. Raises not_found."""
        try:
            return self._hub.agent(principal, name)
        except FaultError as error:
            own_name = self._labels(principal).get(name)
            if error.fault.code is not FaultCode.NOT_FOUND or own_name is None:
                raise _not_found(error, f"Agent {name} not found") from error
            return self._hub.agent(principal, own_name)

    def _labels(self, principal: Principal) -> Mapping[str, str]:
        """Return the gateway's names of the agents that the principal may see, by the names that ACP callers see."""
        return _labels(tuple((info.name, preferred_name(info)) for info in self._hub.agents(principal)))

    def _advertised_name(self, principal: Principal, name: str) -> str:
        """Return the name that ACP callers see of the agent with the gateway's `name`."""
        return next((advertised for advertised, own_name in self._labels(principal).items() if own_name == name), name)

    def _continuable(self, principal: Principal, name: str) -> bool:
        """Return True if the settings declare that ended runs of the agent can be continued."""
        try:
            return self._hub.agent(principal, name).continuable
        except FaultError:  # the agent was removed from the configuration after the task was created
            return False

    # Runs

    async def create_run(self, request: AnyRequest) -> Response[Any]:
        """Create a run. Raises invalid, and not_found for an unknown agent."""
        who = caller(request)
        body = validate(w.RunCreateRequest, await read_json(request))
        extension = _read_extension(request, body)
        session = body.session
        if session is not None and body.session_id not in (None, session.id):
            # The error text is that of SDK 1.0.3.
            raise FaultError(FaultCode.INVALID, "Session ID mismatch", reason=MISMATCH)
        info = self._agent(who.principal, body.agent_name)
        history = () if session is None else await self._import_history(who, session)
        messages = (extension and messages_of(extension)) or map(decode_message, body.input)
        messages = messages if extension is None else with_uploads(extension, messages)
        metadata = request_metadata(body) if extension is None or extension.metadata is None else extension.metadata
        submission = Submission(
            agent=info.name,
            protocol="acp",
            version=VERSION,
            input=RunInput(
                messages=await resolve_own_files(self._hub, who, messages),
                uploaded=0 if extension is None else len(extension.uploads),
                config={} if extension is None else config_of(extension),
                metadata=metadata,
                headers=who.headers,
                extra=request_extra(body),
            ),
            thread_id=body.session_id if session is None else session.id,
            history=history,
        )
        if extension is not None:
            submission = extension.start.apply(submission)
        receipt = await self._hub.submit(who.principal, submission)
        view = replace(self._view(who, receipt.task), agent=body.agent_name)
        # `Run-ID` is not in the OpenAPI document, but SDK 1.0.3 sends it, and its clients read it from streams.
        extended = extension is not None
        headers = {"Run-ID": receipt.task_id, **run_headers(receipt), **confirm(active=extended)}
        if body.mode == "async":
            at = encode_time(receipt.task.created_at)
            run = w.Run(
                run_id=view.run_id,
                agent_name=view.agent,
                session_id=view.session_id,
                # The test suites of SDK 1.0.3 assert that the response to an async create is not in-progress.
                status="created",
                created_at=at,
            )
            return _json(run, 202, headers)
        stream = RunStream(self._hub, who.principal, [receipt.task], view, stop_after=receipt.seq, extended=extended)
        return await self._run_response(stream, body.mode, headers)

    async def resume_run(self, request: AnyRequest) -> Response[Any]:
        """Answer a run's question, or continue an ended run. Raises invalid, not_found, and not_awaiting if the run has
        no question."""
        who = caller(request)
        tasks, view = await self._find(who, request)
        body = validate(w.RunResumeRequest, await read_json(request))
        # Required in components.schemas.RunResumeRequest, but sent by neither client of SDK 1.0.3.
        if body.run_id not in (None, view.run_id):
            raise FaultError(FaultCode.INVALID, "run_id: must be the run of the path")
        extension = _read_extension(request, body)
        answers = decode_request(body.await_resume.pop(w.OWN, None))
        (extension or answers).start.check_absent()
        value, answer_message = decode_answer(body.await_resume)
        (message,) = await resolve_own_files(self._hub, who, (answer_message,))
        last = tasks[-1]
        # SDK 1.0.3 refuses this with 403, or leaves a run that once awaited in-progress permanently. So it is done only
        # for agents that are declared as continuable.
        if last.is_terminal and self._continuable(who.principal, last.agent):
            receipt = await self._continue(who, last, message)
            tasks = [*tasks, receipt.task]
        else:
            receipt = await self._answer(who, last, value, message, view.run_id, extension or answers)
        stream = RunStream(
            self._hub,
            who.principal,
            tasks,
            view,
            show_after=receipt.seq,
            stop_after=receipt.seq,
            extended=extension is not None,
        )
        headers = {**run_headers(receipt), **confirm(active=extension is not None)}
        if body.mode == "async":
            # The test suites of SDK 1.0.3 assert this status.
            writer = await stream.snapshot(until="in-progress")
            return _json(writer.answer(), 202, {**headers, **loss_header(writer.run_losses)})
        return await self._run_response(stream, body.mode, headers)

    async def _continue(self, who: Caller, last: Task, message: Message) -> Receipt:
        """Submit a message as the input of a new task that continues the ended task `last`. Return the receipt."""
        return await self._hub.submit(
            who.principal,
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
        """Answer the questions of the task `last` with a value and a message, or with the answers in the extension, and
        decline those that the extension names. Return the receipt. Raises not_awaiting if the task has no question;
        `run_id` names the run in the error."""
        messages = answer_messages(extension, message)
        run_input = RunInput(messages=messages, config=config_of(extension), headers=who.headers)
        answers = Answers(task_id=last.task_id, bare=value, is_text=True, input=run_input, protocol="acp")
        if extension.answered:
            answers = Answers(task_id=last.task_id, values=extension.answered, input=run_input, protocol="acp")
        try:
            if extension.declined:
                values: dict[str, Json] = dict.fromkeys(extension.declined)
                is_decline_only = not extension.answered
                if not is_decline_only:
                    await self._hub.check_answers(who.principal, answers)
                decline_input = run_input if is_decline_only else RunInput(headers=who.headers)
                declined = Answers(
                    task_id=last.task_id, values=values, action="decline", input=decline_input, protocol="acp"
                )
                receipt = await self._hub.answer(who.principal, declined)
                if is_decline_only:
                    return receipt
            return await self._hub.answer(who.principal, answers)
        except FaultError as error:
            if error.fault.code in (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED):
                raise FaultError(FaultCode.NOT_AWAITING, f"Run {run_id} has no await request") from error
            raise

    async def _run_response(self, stream: RunStream, mode: w.Mode, headers: Mapping[str, str]) -> Response[Any]:
        """Return the response to a request that starts a run: its events as a stream, or, in the mode `sync`, the run
        when it has stopped."""
        if mode == "stream":
            return event_stream(stream.frames(self._lines), ping=None, headers=headers)
        writer = await stream.stop()
        return _json(writer.answer(), 200, {**headers, **loss_header(writer.run_losses)})

    async def get_run(self, request: AnyRequest) -> Response[Any]:
        """Return a run in its present state. Raises not_found."""
        who = caller(request)
        tasks, view = await self._find(who, request)
        extended = is_activated(request)
        writer = await RunStream(self._hub, who.principal, tasks, view, extended=extended).snapshot()
        headers = {
            **run_headers(tasks[-1], writer.run_id),
            **loss_header(writer.run_losses),
            **confirm(active=extended),
        }
        return _json(writer.answer(), 200, headers)

    async def cancel_run(self, request: AnyRequest) -> Response[Any]:
        """Cancel a run. Raises not_found, and task_ended if the run has ended."""
        who = caller(request)
        tasks, view = await self._find(who, request)
        try:
            await self._hub.cancel(who.principal, tasks[-1].task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:
                raise
            words = f"Run in terminal status can't be cancelled: {view.run_id}"
            raise FaultError(FaultCode.TASK_ENDED, words) from error
        writer = await RunStream(self._hub, who.principal, tasks, view).snapshot(until="cancelling")
        # Even if the run has already ended, the response shows the status that a cancel leads to.
        run = writer.run().model_copy(update={"status": "cancelling", "finished_at": None})
        return _json(run, 202, {**run_headers(tasks[-1], writer.run_id), **loss_header(writer.run_losses)})

    async def list_events(self, request: AnyRequest) -> Response[Any]:
        """Return the events of a run until now as JSON, or with `Accept: text/event-stream` as a stream that continues.
        The first `after` events are omitted. With the extension, those until a record that the caller names are
        omitted, too."""
        who = caller(request)
        after = _number(request, "after", 0) or 0
        tasks, view = await self._find(who, request)
        last = tasks[-1].last_seq
        extended = is_activated(request)
        text = request.headers.get(START_HEADER) if extended else None
        start = None if text is None else read_integer(text, START_HEADER, 0)
        stream = RunStream(
            self._hub,
            who.principal,
            tasks,
            view,
            show_after=start or 0,
            skip=after,
            stop_after=last,
            end=last,
            extended=extended,
        )
        headers = {**run_headers(tasks[-1]), **confirm(active=extended)}
        # ACP has only the list, and cannot resume a stream: the stream and `after` are the gateway's own.
        accept = read_line(request.scope["headers"], "accept")
        if is_preferred(accept, "text/event-stream", "application/json"):
            return event_stream(stream.frames(self._lines), ping=None, headers=headers)

        async def losses() -> Mapping[str, str]:
            full_run = stream if stream.complete else RunStream(self._hub, who.principal, tasks, view)
            return loss_header((full_run.writer if stream.complete else await full_run.snapshot()).losses)

        return await list_response(
            b'{"events":[]}', _dump_events(stream.events()), name="events", headers=headers, more_headers=losses
        )

    async def _find(self, who: Caller, request: AnyRequest) -> tuple[Sequence[Task], EncodingContext]:
        """Return the tasks of the run that the path names, and the context for encoding its messages. Raises
        not_found."""
        task_id = _uuid(request.path_params["run_id"], "run_id")
        try:
            chain = await self._hub.reads.chain(who.principal, task_id)
        except FaultError as error:
            raise _not_found(error, f"Run {task_id} not found") from error
        tasks = chain if len(chain) > 1 and self._continuable(who.principal, chain[0].agent) else chain[:1]
        return tasks, self._view(who, tasks[0])

    def _view(self, who: Caller, task: Task) -> EncodingContext:
        """Return the context for encoding the messages of a task."""
        return EncodingContext(
            run_id=task.task_id,
            session_id=task.thread_id,
            agent=self._advertised_name(who.principal, task.agent),
            base_url=who.base_url,
        )

    # Sessions and resources

    async def get_session(self, request: AnyRequest) -> Response[Any]:
        """Return a session. Raises not_found."""
        who = caller(request)
        thread_id = _uuid(request.path_params["session_id"], "session_id")
        try:
            await self._hub.reads.thread(who.principal, thread_id)
        except FaultError as error:
            # The Python client first requests its own new id, and continues only if the code is not_found.
            raise _not_found(error, f"Session {thread_id} not found") from error
        urls = await self._session_urls(who, thread_id)
        # `state` remains null: an agent's state is private, and no other server could read it.
        return _json(w.Session(id=thread_id, history=urls))

    async def _session_urls(self, who: Caller, thread_id: str) -> list[str]:
        """Return the URLs of the messages of a session, in order. Raises not_found."""
        empty = partial(SessionUrls, thread_id, partial(self._advertised_name, who.principal))
        try:
            session = await self._hub.reads.snapshot(who.principal, thread_id, SessionUrls, empty)
        except FaultError as error:
            if error.fault.code is not FaultCode.TOO_LARGE:  # an unfinished task is too large for the snapshot
                raise
            return [entry.url for entry in (await self._transcript(who, Scope(thread_id))).entries()]
        return session.urls(who.base_url)

    async def get_resource(self, request: AnyRequest) -> Response[Any]:
        """Return a message of a session, or a file. Raises not_found."""
        who = caller(request)
        resource_id: str = request.path_params["resource_id"]
        if _is_hash(resource_id):
            return await self._file(who, resource_id)
        message = await self._resource(who, resource_id)
        if message is None:
            raise FaultError(FaultCode.NOT_FOUND, "Resource not found")
        return _json(message)

    async def _file(self, who: Caller, blob: str) -> Response[Any]:
        """Return a response with the bytes of a file, by its hash. Raises not_found."""
        stored, pieces = await self._hub.reads.file_pieces(who.principal, blob)
        headers = {
            # The agent chose the media type: as a page, the file could speak for the gateway.
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": "attachment",
            "Content-Length": str(stored.size),
        }
        return Pieces(pieces, headers, media_type="application/octet-stream")

    async def _resource(self, who: Caller, resource_id: str) -> w.Message | None:
        """Return a session's message by its resource id. Return None if there is no such message."""
        owner_id, _, _ = resource_id.partition(".")
        try:
            owner_id = str(UUID(owner_id))
        except ValueError:
            return None
        try:
            scope = Scope.task(await self._hub.reads.task(who.principal, owner_id))
        except FaultError:
            scope = Scope(owner_id)
        try:
            entries = (await self._transcript(who, scope, inline=True)).entries()
        except FaultError:
            return None
        return next((entry.message for entry in entries if entry.resource_id == resource_id), None)

    async def _transcript(self, who: Caller, scope: Scope, *, inline: bool = False) -> SessionTranscript:
        """Return the messages of a thread or a task, as a session shows them. With `inline`, they contain the bytes of
        stored files."""
        advertised = partial(self._advertised_name, who.principal)
        transcript = SessionTranscript(scope.thread_id, base_url=who.base_url, advertised=advertised)
        async for records in self._hub.reads.log(who.principal, scope, inline=inline):
            for record in records:
                transcript.apply(record)
        return transcript

    async def _import_history(self, who: Caller, session: w.Session) -> tuple[Message, ...]:
        """Return those messages of a session descriptor that the gateway does not already have, fetched by their URLs.
        Raises invalid if there are too many, or one cannot be fetched."""
        if len(session.history) > MAX_HISTORY:
            raise FaultError(FaultCode.INVALID, f"session.history: more than {MAX_HISTORY} messages")
        known_urls: set[str] = set()
        try:
            known_urls = {*await self._session_urls(who, session.id)}
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
        # The client of SDK 1.0.3 sends the descriptor that it received from the previous server. Messages that are here
        # already are not fetched.
        urls = [url for url in dict.fromkeys(session.history) if url not in known_urls]
        gate, budget = asyncio.Semaphore(_FETCHES), _Budget()

        async def import_one(url: str) -> Message:
            async with gate:
                return await self._import(who, url, budget)

        imports = [asyncio.ensure_future(import_one(url)) for url in urls]
        try:
            return tuple(await asyncio.gather(*imports))
        finally:
            for each in imports:  # pending imports after one has failed
                each.cancel()

    async def _import(self, who: Caller, url: str, budget: "_Budget") -> Message:
        """Return the message at a URL of a session descriptor, from this gateway or from another server. Raises invalid
        if it cannot be fetched or is malformed, and too_large if it exceeds the rest of `budget`."""
        own_prefix = resource_url(who.base_url, "")
        if url.startswith(own_prefix):
            wire = await self._resource(who, url.removeprefix(own_prefix))
            if wire is None:
                raise FaultError(FaultCode.INVALID, "session.history: a URL of this server leads to no message")
        else:
            wire = validate(
                w.Message, await budget.parse_message(await self._hub.fetch(who.principal, url, budget.receive))
            )
        message = decode_message(wire)
        acp_extra = {**extra_of(message.extra), "url": url}
        return message.replace(extra={**message.extra, "acp": acp_extra})


class _Budget:
    """Limit on the total size of the messages of one session descriptor: as many JSON values as one request may
    contain, and `MAX_IMPORTED` bytes from other servers."""

    def __init__(self) -> None:
        self._bytes = MAX_IMPORTED
        self._values = DEFAULT_VALUES

    def receive(self, size: int) -> None:
        """Subtract a number of received bytes. Raises too_large if the budget is used up."""
        self._bytes -= size
        if self._bytes < 0:
            raise FaultError(
                FaultCode.TOO_LARGE, f"session.history: the messages have more than {MAX_IMPORTED} bytes together"
            )

    async def parse_message(self, raw: bytes) -> Json:
        """Parse the JSON of a message, and subtract the number of its values. Raises too_large if the budget is used
        up, and invalid for a text that is not JSON."""
        self._values -= count_values(raw, self._values)
        if self._values < 0:
            words = f"session.history: the messages hold more than {DEFAULT_VALUES} JSON values together"
            raise FaultError(FaultCode.TOO_LARGE, words)
        return await parse(raw)


async def _dump_events(events: AsyncGenerator[BaseModel]) -> AsyncGenerator[bytes | LargeJson]:
    """Yield each event as JSON."""
    async with aclosing(events):
        async for event in events:
            yield encode(event)


@lru_cache(16)
def _labels(names: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the result of `labels` for pairs of names, from a cache."""
    return labels(names)


def _uuid(text: str, what: str) -> str:
    """Return a UUID in its normal form, 36 lower-case characters. Raises invalid; `what` names the value in the
    error."""
    try:
        return str(UUID(text))
    except ValueError as error:
        raise FaultError(FaultCode.INVALID, f"{what}: must be a UUID") from error


def _not_found(error: FaultError, words: str) -> FaultError:
    """Return a not_found error with the text `words`, if `error` is one. Return any other error unchanged."""
    return FaultError(FaultCode.NOT_FOUND, words) if error.fault.code is FaultCode.NOT_FOUND else error


def _is_hash(text: str) -> bool:
    """Return True if a text has the form of a file's hash: 64 lower-case hexadecimal digits."""
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


def _read_extension(request: AnyRequest, body: w.RunCreateRequest | w.RunResumeRequest) -> ExtensionRequest | None:
    """Return the members that the Babelgate extension adds to a request, and remove them from `body`, so that agents do
    not receive them. Return None if the extension is not active. The members also activate it, because a proxy may have
    removed the header."""
    more = body.model_extra or {}
    if w.OWN in more:
        return decode_request(more.pop(w.OWN))
    return ExtensionRequest() if is_activated(request) else None


def _number(request: AnyRequest, name: str, minimum: int, maximum: int | None = None) -> int | None:
    """Return the query parameter `name`, an integer from `minimum` to `maximum` (None: no maximum). Return None if it
    is absent. Raises invalid for any other text."""
    text = request.query_params.get(name)
    return None if text is None else read_integer(text, name, minimum, maximum)
