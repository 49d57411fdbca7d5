"""HTTP endpoints of the protocol: post messages to a chat, resume its stream, read its messages and files, and stop
it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from litestar import Response, Router, get, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.extended import answer_file
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.errors import encode_fault
from babelgate.adapters.vercel_ui.server.begin import ChatPost
from babelgate.adapters.vercel_ui.server.chat_log import ChatRun
from babelgate.adapters.vercel_ui.server.chats import find_thread, make_view, read_log
from babelgate.adapters.vercel_ui.server.follow import ReplyStream
from babelgate.adapters.vercel_ui.server.history import ChatHistoryReader
from babelgate.adapters.vercel_ui.server.options import StreamOptions
from babelgate.adapters.vercel_ui.write.view import Restart
from babelgate.canonical import AgentInfo, Fault, FaultCode, FaultError, Hub, Task
from babelgate.canonical.value import JsonObject, is_uuid

__all__ = ("PATH", "answer_fault", "routes")

PATH: Final = "/vercel-ui"
_HEARTBEAT: Final = 15.0
"""Interval of SSE comments that keep a stream open, in seconds. Chosen, as in the other protocols."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    """Return the HTTP routes below `/vercel-ui`. Each route of a chat also exists without the agent, for base URLs such
    as `/agent/echo`. There, the first part of the path is the chat."""
    server = Server(hub)
    agent, chat = "/{agent:str}", "/{agent:str}/{chat_id:str}"
    return [
        Router(
            PATH,
            route_handlers=[
                post(["/", agent], status_code=200)(server.send_messages),
                get([agent, chat])(server.get_chat),
                # An unknown chat is no error here, so its parameter has another name.
                get([f"{agent}/stream", "/{agent:str}/{any_chat:str}/stream"])(server.resume_stream),
                post([f"{agent}/stop", f"{chat}/stop"], status_code=200)(server.stop_chat),
                get(f"{chat}/files/{{blob:str}}")(server.get_file),
            ],
        )
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the plain-text response that reports a fault to a page."""
    status, text = encode_fault(fault)
    return Response(text, status_code=status, media_type="text/plain", headers=fault_headers(fault))


_Stream = tuple[str, ChatRun, ChatRun, Sequence[Restart]]
"""Stream of one assistant message: the thread id, the first and the last run to send, and the restarts whose void
content is left out."""


class Server(Handlers):
    """HTTP handlers for chats with agents, below `/vercel-ui`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lines = FanoutCache()

    async def send_messages(self, request: AnyRequest) -> Response[Any]:
        """Start, continue or join a run with the messages of a chat, and return its chunks as an SSE stream. Raises
        invalid, not_found, not_awaiting, conflict."""
        who, agent = caller(request), self._agent(request)
        body = validate(w.ChatRequest, await read_json(request))
        options = StreamOptions.of(request, agent)
        begun = await ChatPost(self._hub, who, agent.name, body, options.sdk).begin()
        run, receipt = begun.run, begun.receipt
        task = await self._hub.reads.task(who.principal, run.task_id) if receipt is None else receipt.task
        stream = ReplyStream(
            self._hub,
            who.principal,
            task,
            make_view(options, who.base_url, run, begun.thread_id, begun.restarts),
            first_run=run.run_id,
            last_run=run.run_id,
            show_after=run.seq - 1,
            started_run=receipt is not None,
        )
        chunks = stream.frames(self._lines)
        frames: AsyncIterator[bytes] = chunks
        if options.cancels:
            frames = DisconnectNotifier(chunks, canceller(self._hub, who.principal, run.run_id, cancels=True))
        return event_stream(frames, ping=_HEARTBEAT, headers=_headers(task, run.run_id))

    async def resume_stream(self, request: AnyRequest) -> Response[Any]:
        """Return the SSE stream of a chat's active assistant message, from its first chunk. The path names the chat, or
        any run by its id.

        The status is 204 if the chat is unknown or has no active run, because a page with `resume: true` asks for the
        stream of a new chat, too. Raises invalid, not_found.
        """
        who = caller(request)
        if "any_chat" not in request.path_params and not who.has_single_agent:
            return await self._answer_chat(request, self._agent(request), "stream")  # a chat of that name
        agent, chat_id = self._agent_and_chat(request, "any_chat")
        options = StreamOptions.of(request, agent)
        found = await self._find_stream(who, agent.name, chat_id)
        if found is None:
            return Response(None, status_code=204)
        thread_id, first, last, restarts = found
        task = await self._hub.reads.task(who.principal, last.task_id)
        stream = ReplyStream(
            self._hub,
            who.principal,
            task,
            make_view(options, who.base_url, last, thread_id, restarts),
            first_run=first.run_id,
            last_run=last.run_id,
            show_after=first.seq - 1,
            skip=options.skip,
        )
        return event_stream(stream.frames(self._lines), ping=_HEARTBEAT, headers=_headers(task, last.run_id))

    async def _find_stream(self, who: Caller, agent: str, chat_id: str) -> _Stream | None:
        """Return the stream to resume for a chat id or a run id. Return None if the id is unknown, or the chat has no
        active run.

        A run id selects that run, active or ended. Its stream repeats void chunks, too, because `startIndex` counts all
        chunks that were ever sent.
        """
        thread_id = await find_thread(self._hub, who.principal, agent, chat_id)
        if thread_id is None:
            try:
                thread_id, run = await self._find_run(who, agent, chat_id)
            except FaultError as error:
                if error.fault.code is FaultCode.NOT_FOUND:
                    return None
                raise
            return thread_id, run, run, ()
        log = await read_log(self._hub, who.principal, thread_id)
        if log.head is None or log.head.has_ended or log.head.agent != agent:
            return None
        return thread_id, log.runs_of(log.head.message_id)[0], log.head, log.restarts_of(log.head)

    async def _find_run(self, who: Caller, agent: str, run_id: str) -> tuple[str, ChatRun]:
        """Return the thread id of a run, and the run as the index of its thread describes it. Raises not_found, also
        for a run of another agent."""
        if not is_uuid(run_id):
            raise _no_chat(run_id)
        try:
            run = await self._hub.reads.run(who.principal, run_id)
        except FaultError as error:
            if error.fault.code is FaultCode.NOT_FOUND:
                raise _no_chat(run_id) from error
            raise
        found = (await read_log(self._hub, who.principal, run.thread_id)).runs.get(run.run_id)
        if found is None or found.agent != agent:
            raise _no_chat(run_id)
        return run.thread_id, found

    async def get_chat(self, request: AnyRequest) -> Response[Any]:
        """Return the id and the messages of a chat as JSON. Raises invalid, not_found."""
        agent, chat_id = self._agent_and_chat(request)
        return await self._answer_chat(request, agent, chat_id)

    async def _answer_chat(self, request: AnyRequest, agent: AgentInfo, chat_id: str) -> Response[Any]:
        who = caller(request)
        thread_id = await find_thread(self._hub, who.principal, agent.name, chat_id)
        if thread_id is None:
            raise _no_chat(chat_id)
        log = await read_log(self._hub, who.principal, thread_id)
        options = StreamOptions.of(request, agent)
        messages: list[JsonObject] = []
        if log.head is not None:
            view = make_view(options, who.base_url, log.head, thread_id, log.restarts)
            reader = ChatHistoryReader(self._hub, who.principal, thread_id, view)
            messages = await reader.read(log)
        return json_response({"id": chat_id, "messages": messages})

    async def stop_chat(self, request: AnyRequest) -> Response[Any]:
        """Cancel the newest task of a chat, active or waiting for an answer. The path names the chat, or a run of the
        task. An ended task is not changed. Raises not_found."""
        who = caller(request)
        info, chat_id = self._agent_and_chat(request)
        agent = info.name
        thread_id = await find_thread(self._hub, who.principal, agent, chat_id)
        if thread_id is None:
            _, run = await self._find_run(who, agent, chat_id)
        else:
            run = (await read_log(self._hub, who.principal, thread_id)).head
        if run is not None:
            try:
                await self._hub.cancel(who.principal, run.task_id)
            except FaultError as error:
                if error.fault.code is not FaultCode.TASK_ENDED:
                    raise
        return json_response(w.Stopped())

    async def get_file(self, request: AnyRequest) -> Response[Any]:
        """Return the bytes of a file in a chat, by the hash in the path. Raises not_found."""
        agent, chat_id = self._agent(request).name, request.path_params["chat_id"]
        if await find_thread(self._hub, caller(request).principal, agent, chat_id) is None:
            raise _no_chat(chat_id)
        return await answer_file(self._hub, request, request.path_params["blob"])

    def _agent(self, request: AnyRequest) -> AgentInfo:
        """Return the agent in the path of a request, or the default agent. Raises not_found if the caller has no such
        agent."""
        who, name = caller(request), request.path_params.get("agent")
        return self._hub.agent(who.principal, who.need_agent() if name is None else name)

    def _agent_and_chat(self, request: AnyRequest, parameter: str = "chat_id") -> tuple[AgentInfo, str]:
        """Return the agent and the chat id in the path of a request. If the path has one name, it is the chat of the
        single agent in the base URL. Raises not_found if there is no such agent."""
        who, chat_id = caller(request), request.path_params.get(parameter)
        if chat_id is not None:
            return self._agent(request), chat_id
        if not who.has_single_agent:
            raise FaultError(FaultCode.NOT_FOUND, "The path names no chat: it is /vercel-ui/{agent}/{chat}.")
        return self._hub.agent(who.principal, who.need_agent()), request.path_params["agent"]


def _headers(task: Task, run_id: str) -> Mapping[str, str]:
    """Return the response headers of a stream: the version of its format, and the ids of its task and its last run."""
    ids = {w.RUN_HEADER: run_id, w.RESUMABLE_HEADER: run_id}
    return {w.STREAM_HEADER: w.STREAM_VERSION, **ids, **run_headers(task, run_id)}


def _no_chat(chat_id: str) -> FaultError:
    """Return the fault `not_found` for an unknown chat id or run id."""
    return FaultError(FaultCode.NOT_FOUND, f"Chat {chat_id[:100]!r} not found.")
