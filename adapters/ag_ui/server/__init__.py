"""AG-UI's endpoint, and the gateway's own endpoints next to it: reattach, cancel, capabilities and files."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from litestar import Response, get, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.agents import encode_capabilities
from babelgate.adapters.ag_ui.codec.names import CANCELLED
from babelgate.adapters.ag_ui.codec.questions import encode_interrupt, is_tool_call
from babelgate.adapters.ag_ui.errors import encode_fault
from babelgate.adapters.ag_ui.server.create_run import (
    RunSource,
    check_version,
    find_thread,
    open_questions,
    parse_request,
    read_history,
    read_index,
    start_run,
)
from babelgate.adapters.ag_ui.server.follow import Cursor, RunFrames, history_frames, read_transcript
from babelgate.adapters.ag_ui.server.thread_index import ThreadIndex
from babelgate.adapters.ag_ui.write.run_events import fault_words
from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.extended import answer_file
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.sse import event_stream, pieces_of
from babelgate.canonical import AgentInfo, Fault, FaultCode, FaultError, Hub, Run, Task, TaskState, caller_tools
from babelgate.canonical.value import JsonObject

__all__ = ("answer_fault", "routes")

_HEARTBEAT: Final = 15.0
"""Interval of the SSE comments that keep a stream open, in seconds. ag-ui-validate 0.4.0 reports silence of 30
seconds."""
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of streams, so that no proxy stores or buffers them."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    """Return the route handlers of the protocol's endpoint and of the gateway's own endpoints."""
    server = Server(hub)
    agent = "/ag-ui/{agent:str}"
    return [
        post(["/ag-ui", agent], status_code=200)(server.run_agent),
        # Not in the specification: it has one operation.
        post(f"{agent}/connect", status_code=200)(server.connect),
        post(f"{agent}/cancel", status_code=202)(server.cancel),
        get(f"{agent}/capabilities")(server.get_capabilities),
        get(f"{agent}/files/{{blob:str}}")(server.get_file),
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return a fault as an error response."""
    status, body = encode_fault(fault)
    return json_response(body.model_dump(exclude_none=True), fault_headers(fault), status=status)


class Server(Handlers):
    """Handlers of the routes below `/ag-ui`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def _agent(self, request: AnyRequest) -> tuple[Caller, AgentInfo]:
        """Return the caller, and the agent that the path names. Without a name, it is the default agent. Raises
        not_found."""
        who = caller(request)
        name = request.path_params.get("agent")
        return who, self._hub.agent(who.principal, who.need_agent() if name is None else name)

    async def run_agent(self, request: AnyRequest) -> Response[Any]:
        """Run the agent, and stream the events of the run. It is a new run, the run that the request's answers begin,
        or the earlier run that the request repeats."""
        who, agent = self._agent(request)
        run_request = parse_request(self._hub, who, agent, await read_json(request))
        self._hub.check_submit(who.principal, agent.name)
        begun = await start_run(run_request)
        stream = RunFrames(
            self._hub,
            who.principal,
            begun.task,
            begun.run_id,
            base_url=who.base_url,
            thread_name=run_request.body.thread_id,
            has_states=agent.stateful,
        )
        cancels = run_request.options.on_disconnect == "cancel"
        on_disconnect = canceller(self._hub, who.principal, begun.run_id, cancels)
        frames = DisconnectNotifier(stream.frames(), on_disconnect) if cancels else stream.frames()
        return event_stream(frames, ping=_HEARTBEAT, headers={**_HEADERS, **_run_headers(begun)})

    async def connect(self, request: AnyRequest) -> Response[Any]:
        """Stream the conversation of a thread, and then the named run or the active one. With a cursor (`after` or
        `Last-Event-ID`), stream only the frames of the run after it. Raises not_found."""
        who, agent = self._agent(request)
        body = validate(w.RunReference, await read_json(request))
        check_version(body.protocol_version)
        thread_id, index = await self._thread(who, agent, body.thread_id)
        after = request.headers.get("last-event-id", body.after)
        run = await self._find_run(who, index, body.run_id)
        if after is not None:
            if run is None:
                raise FaultError(FaultCode.NOT_FOUND, "The thread has no active run; name one by runId.")
            task = await self._hub.reads.task(who.principal, run.task_id)
            cursor = Cursor.parse(after)
            stream = RunFrames(
                self._hub,
                who.principal,
                task,
                run.run_id,
                base_url=who.base_url,
                thread_name=body.thread_id,
                has_states=agent.stateful,
                after=cursor,
            )
            headers = {**_HEADERS, **run_headers(task, run.run_id)}
            return event_stream(stream.frames(), ping=_HEARTBEAT, headers=headers)
        return await self._restate(who, agent, body, thread_id, index, run)

    async def _restate(
        self,
        who: Caller,
        agent: AgentInfo,
        body: w.RunReference,
        thread_id: str,
        index: ThreadIndex,
        run: Run | None,
    ) -> Response[Any]:
        """Stream the conversation of a thread as a finished run with one snapshot, and then `run` itself if it has not
        ended. Raises not_found if the thread has no runs."""
        last = run or await self._hub.reads.last_begun(who.principal, thread_id)
        if last is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Nothing has run on the thread {body.thread_id}.")
        task = await self._hub.reads.task(who.principal, last.task_id)
        is_active = run is not None and not run.has_ended
        until = last.first_seq if is_active else None
        transcript = await read_transcript(self._hub, who.principal, task, who.base_url, until=until)
        names = {run_id: name for name, run_id in index.runs.items()}
        restated_run = index.run_before(last.run_id) if is_active else last.run_id
        wire_run = names.get(restated_run or "", f"history-{last.run_id}")
        is_old = body.protocol_version is None
        end = {"type": "RUN_FINISHED"} if is_active else await self._end(who, agent, thread_id, task, is_old=is_old)
        states = await read_history(self._hub, who.principal, thread_id)
        values = {} if states.head is None else states.head.values
        state = {name: value for name, value in values.items() if name != "messages" or agent.stateful}
        history = history_frames(transcript, state, last.created_at, body.thread_id, wire_run, end)

        async def frames() -> AsyncGenerator[bytes]:
            async for piece in pieces_of(history):
                yield piece
            if is_active:
                stream = RunFrames(
                    self._hub,
                    who.principal,
                    task,
                    last.run_id,
                    base_url=who.base_url,
                    thread_name=body.thread_id,
                    has_states=agent.stateful,
                )
                async for piece in stream.frames():
                    yield piece

        headers = {**_HEADERS, **run_headers(task, last.run_id)}
        return event_stream(frames(), ping=_HEARTBEAT, headers=headers)

    async def _end(self, who: Caller, agent: AgentInfo, thread_id: str, task: Task, *, is_old: bool) -> JsonObject:
        """Return the last event of a restated conversation: how its newest task has ended, or the questions that are
        still open. `is_old` is true for a client older than 1.0."""
        if task.state in (TaskState.FAILED, TaskState.REJECTED):
            message, code = fault_words(task.fault)
            return {"type": "RUN_ERROR", "message": message, "code": code}
        if task.state is TaskState.CANCELLED:
            if is_old:
                return {"type": "RUN_ERROR", "message": "The run was cancelled.", "code": CANCELLED}
            return {"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}}
        questions = await open_questions(self._hub, who.principal, agent.name, thread_id)
        if not questions:
            return {"type": "RUN_FINISHED"}
        run = await self._hub.reads.run(who.principal, questions[0].run_id)
        config = (await self._hub.reads.run_input(who.principal, run)).config
        tools = {tool.name for tool in caller_tools(config)}
        interrupts = [encode_interrupt(each) for each in questions if not is_tool_call(each, tools)]
        if interrupts:
            return {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": interrupts}}
        if is_old:
            return {"type": "RUN_FINISHED"}
        pending = [each.interrupt_id for each in questions]
        return {"type": "RUN_FINISHED", "outcome": {"type": "success", "pendingToolCallIds": pending}}

    async def cancel(self, request: AnyRequest) -> Response[Any]:
        """Cancel the named run of a thread, or the newest one. Its stream then ends with the outcome `cancelled`.
        Raises not_found, task_ended."""
        who, agent = self._agent(request)
        body = validate(w.RunReference, await read_json(request))
        thread_id, index = await self._thread(who, agent, body.thread_id)
        run = await self._find_run(who, index, body.run_id)
        if run is None:
            run = await self._hub.reads.last_begun(who.principal, thread_id)
        if run is None:
            raise FaultError(FaultCode.TASK_ENDED, "The thread has no active run.")
        task = await self._hub.cancel(who.principal, run.task_id)
        names = {found: name for name, found in index.runs.items()}
        accepted = w.CancelAccepted(threadId=body.thread_id, runId=names.get(run.run_id, run.run_id))
        return json_response(accepted, run_headers(task, run.run_id), status=202)

    async def get_capabilities(self, request: AnyRequest) -> Response[Any]:
        """Return what the agent can do, as the capabilities of the protocol."""
        _, agent = self._agent(request)
        return json_response(encode_capabilities(agent))

    async def get_file(self, request: AnyRequest) -> Response[Any]:
        """Return the bytes of a stored file. Activities contain its URL. Raises not_found."""
        self._agent(request)
        return await answer_file(self._hub, request, request.path_params["blob"])

    async def _thread(self, who: Caller, agent: AgentInfo, name: str) -> tuple[str, ThreadIndex]:
        """Return the id and the index of the thread with the client's name. Raises not_found."""
        thread_id = await find_thread(self._hub, who, agent.name, name)
        if thread_id is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Thread {name[:100]} not found")
        return thread_id, await read_index(self._hub, who.principal, thread_id)

    async def _find_run(self, who: Caller, index: ThreadIndex, name: str | None) -> Run | None:
        """Return the run that a client's or a gateway's run id names. Without a name, return the newest run, or None if
        it has ended or the thread has no run. Raises not_found."""
        if name is not None:
            run_id = index.runs.get(name) or (name if name in index.tasks else None)
            if run_id is None:
                raise FaultError(FaultCode.NOT_FOUND, f"Run {name[:100]} not found")
            return await self._hub.reads.run(who.principal, run_id)
        newest = next(reversed(index.tasks), None)
        if newest is None:
            return None
        run = await self._hub.reads.run(who.principal, newest)
        return None if run.has_ended else run


def _run_headers(begun: RunSource) -> dict[str, str]:
    return run_headers(begun.receipt or begun.task, begun.run_id)
