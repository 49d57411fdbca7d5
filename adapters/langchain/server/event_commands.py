"""Commands of the Agent Protocol's event streaming (CDDL 0.0.13, sections 3, 4a, 7 and 10).

They start a run, answer a question, and read the state and the tree of nested agents. LangGraph Platform has the first
two and `agent.getTree`. The response to a well-formed command has status 200, and its body says whether the command
succeeded.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from itertools import islice
from typing import Any, Final, TypeGuard

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.adapters.kit.json import validate
from babelgate.adapters.langchain.codec import state
from babelgate.adapters.langchain.codec.stream_modes import StreamParameters
from babelgate.adapters.langchain.codec.subscription import get_member, strings
from babelgate.adapters.langchain.errors.encode import fault_text
from babelgate.adapters.langchain.server.answers import select_members
from babelgate.adapters.langchain.server.create_run import open_questions, prepare
from babelgate.adapters.langchain.server.dialect import dialect_of
from babelgate.adapters.langchain.server.lookup import find_run, read_history
from babelgate.adapters.langchain.server.parameters import Connection, principal_of
from babelgate.adapters.langchain.wire.requests import MAX_PAGE, RunCreate
from babelgate.adapters.langchain.write.thread_events import EVENTS_PER_RECORD, ThreadEvents, to_camel_case
from babelgate.canonical import FaultCode, FaultError, Hub, Interrupt, Revision, Run, Scope
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_MODES: Final = ["values", "updates", "messages-tuple", "custom"]
"""Stream modes of runs that `run.start` creates. They apply to readers who join such a run by the routes for streams of
runs."""
_STRATEGIES: Final = frozenset({"reject", "rollback", "interrupt", "enqueue"})
_PAGE: Final = 10
"""Default number of checkpoints in a list. Chosen: CDDL 0.0.13, ListCheckpointsParams, has no default, and OpenAPI
0.1.6 has 10 for the history of a thread."""

_CODES: Final[Mapping[FaultCode, str]] = {
    FaultCode.INVALID: "invalid_argument",
    FaultCode.UNSUPPORTED: "not_supported",
    FaultCode.UNSUPPORTED_TYPE: "not_supported",
    FaultCode.UNAUTHENTICATED: "permission_denied",
    FaultCode.NOT_FOUND: "no_such_run",
}
"""Error code of the protocol by fault code. All other faults are `unknown_error`."""


class Refused(Exception):
    """Refusal of a command, with one of the protocol's error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def success(command_id: int, result: JsonObject, seq: int = 0, *, camel: bool) -> JsonObject:
    """Return the response to a successful command. `seq` is the number of the newest event that precedes the command's
    effect, or 0. With `camel`, names are in camelCase."""
    meta = {"applied_through_seq": seq}
    return {
        "type": "success",
        "id": command_id,
        "result": to_camel_case(result) if camel else result,
        "meta": to_camel_case(meta) if camel else meta,
    }


def error_reply(command_id: Any, code: str, message: str) -> JsonObject:
    """Return the response to a failed command. `code` is one of the protocol's error codes. The id is null if the
    command has no valid one."""
    return {"type": "error", "id": command_id if _is_id(command_id) else None, "error": code, "message": message}


def _is_id(value: Any) -> TypeGuard[int]:
    """Return True if the value is a valid command id: an integer from 0 to 2**53 - 1 (CDDL, section 1, js-uint)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


class Commands:
    """Commands of one caller for one thread. Each handler returns the command's result, and the number of the newest
    event that precedes its effect, or 0."""

    def __init__(self, hub: Hub, connection: Connection, thread_id: str) -> None:
        self._hub = hub
        self._connection = connection
        self._principal = principal_of(connection)
        self._thread_id = thread_id
        self.camel = dialect_of(connection) == "agent-protocol"

    @property
    def _handlers(self) -> Mapping[str, Callable[[JsonObject], Awaitable[tuple[JsonObject, int]]]]:
        return {
            "run.start": self._start,
            "input.respond": self._respond,
            "input.inject": self._inject,
            "agent.getTree": self._tree,
            "state.get": self._state,
            "state.listCheckpoints": self._checkpoints,
            "state.fork": self._fork,
        }

    async def answer(self, command: Json, others: Mapping[str, Any] | None = None) -> JsonObject:
        """Execute a command and return its response. `others` are handlers by name for commands that only the transport
        can execute. Raises Refused for a command without an id or a method."""
        wire = as_object(command)
        command_id, method = wire.get("id"), wire.get("method")
        if not _is_id(command_id) or not isinstance(method, str):
            raise Refused("invalid_argument", "Protocol commands must include an integer id and string method.")
        run = {**self._handlers, **(others or {})}.get(method)
        try:
            if run is None:
                raise Refused("unknown_command", f"Unknown protocol command: {method[:100]}")
            result, seq = await run(as_object(wire.get("params")))
        except Refused as error:
            return error_reply(command_id, error.code, str(error))
        except FaultError as error:
            code = _CODES.get(error.fault.code, "unknown_error")
            return error_reply(command_id, code, fault_text(error.fault))
        return success(command_id, result, seq, camel=self.camel)

    # Runs

    async def _start(self, params: JsonObject) -> tuple[JsonObject, int]:
        """Start a run. If the thread has open questions, the input is the answer to them instead. Return the result of
        the command, and the number of the newest event before the run.

        An input that arrives during an active run is queued behind it, as on LangGraph Platform. The CDDL would add it
        to the active run, which few agents support.
        """
        assistant = get_member(params, "assistant_id")
        if not isinstance(assistant, str) or not assistant:
            raise Refused("invalid_argument", "run.start requires an assistant_id.")
        value: Json = params.get("input")
        strategy: Any = get_member(params, "multitask_strategy")
        is_known = isinstance(strategy, str) and strategy in _STRATEGIES
        # CDDL 0.0.13 puts an input into the active run; in langgraph-api 0.16.7 it waits behind the run.
        body: JsonObject = {"multitask_strategy": strategy if is_known else "enqueue"}
        # langgraph-api 0.16.7: run.start on a thread that is interrupted resumes it.
        if value is not None and await open_questions(self._hub, self._principal, self._thread_id):
            body["command"] = {"resume": value}
        else:
            body["input"] = value
        return await self._launch(assistant, params, body)

    async def _launch(self, assistant: str, params: JsonObject, body: JsonObject) -> tuple[JsonObject, int]:
        """Start a run with the members of `body`, and with `config` and `metadata` of the command's `params`. Return
        the result and the number of the event before the run. Raises the faults of `prepare` and of the hub."""
        for name in ("config", "metadata"):
            if params.get(name) is not None:
                body[name] = params[name]
        request = validate(
            RunCreate,
            {
                "assistant_id": assistant,
                "stream_mode": _MODES,
                "stream_subgraphs": True,
                "stream_resumable": True,
                "if_not_exists": "create",
                "on_disconnect": "continue",
                **body,
            },
        )
        # A run behind another one begins after events that are not sent yet.
        is_waiting = await self._is_busy()
        launch = await prepare(self._hub, self._connection, request, self._thread_id)
        receipt = (await launch.start()).receipt
        return {"run_id": receipt.run_id}, 0 if is_waiting else (receipt.seq + 1) * EVENTS_PER_RECORD - 1

    async def _is_busy(self) -> bool:
        try:
            return (await self._hub.reads.thread_view(self._principal, self._thread_id)).status == "busy"
        except FaultError:  # the thread does not exist yet
            return False

    async def _respond(self, params: JsonObject) -> tuple[JsonObject, int]:
        questions = await open_questions(self._hub, self._principal, self._thread_id)
        answers = dict(_decode_response(entry, questions) for entry in _entries(params))
        first = next(question for question in questions if question.interrupt_id in answers)
        task = await self._hub.reads.task(self._principal, first.task_id)
        command: JsonObject = {"resume": answers}
        command.update((name, params[name]) for name in ("update", "goto") if params.get(name) is not None)
        _, seq = await self._launch(task.agent, params, {"command": command})
        return {}, seq

    async def _inject(self, _: JsonObject) -> tuple[JsonObject, int]:
        raise Refused(
            "not_supported",
            "A run that has started takes no messages. Send run.start: its input is queued behind the run.",
        )

    # Reading

    async def _tree(self, params: JsonObject) -> tuple[JsonObject, int]:
        """Return the tree of a run's namespaces with their statuses, and 0, because the command adds no events to the
        thread. The tree is computed from the records of the run; the history before it has the questions that are still
        open. Raises Refused for an unknown run."""
        run = await self._run_to_show(get_member(params, "run_id"))
        previous = await self._hub.reads.last_begun(self._principal, self._thread_id, ended_before=run.last_seq)
        begins = max(run.first_seq - 1, 0 if previous is None else previous.last_seq)
        view = StreamParameters(thread_id=self._thread_id, owner=self._principal.owner, run_id=run.run_id, modes=())
        history = await read_history(self._hub, self._principal, self._thread_id, begins)
        events = ThreadEvents(view, _no_event, history)
        async with aclosing(self._hub.reads.log(self._principal, Scope(self._thread_id), begins)) as batches:
            async for records in batches:
                for record in records:
                    events.write(record)
                if run.has_ended and records[-1].seq >= run.last_seq:
                    break
        return {"tree": events.places.tree}, 0

    async def _run_to_show(self, run_id: Any) -> Run:
        """Return the run with an id, or the newest one if the id is None. Raises Refused if the run does not exist or
        has not started."""
        try:
            if run_id is None:
                run = await self._hub.reads.last_begun(self._principal, self._thread_id)
            else:
                run = await find_run(self._hub, self._principal, str(run_id), self._thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            run = None
        if run is None or run.started_at is None:
            raise Refused("no_such_run", "No such run has begun on this thread.")
        return run

    async def _state(self, params: JsonObject) -> tuple[JsonObject, int]:
        ns = strings(get_member(params, "namespace") or [], "namespace")
        history = await read_history(self._hub, self._principal, self._thread_id)
        revision = history.head if not ns else next(history.newest(ns), None)
        if ns and revision is None:
            raise Refused("no_such_namespace", f"There is no known state of {'|'.join(ns)[:100]}")
        keys = params.get("keys")
        names = None if keys is None else strings(keys, "keys")
        result: JsonObject = {"values": select_members(state.encode_values(revision), names)}
        if revision is not None:
            result["checkpoint"] = {"id": revision.checkpoint_id, **({"ns": "|".join(ns)} if ns else {})}
        return result, 0

    async def _checkpoints(self, params: JsonObject) -> tuple[JsonObject, int]:
        ns = strings(get_member(params, "namespace") or [], "namespace")
        limit: Any = params.get("limit", _PAGE)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise Refused("invalid_argument", "limit: must be a positive integer")
        history = await read_history(self._hub, self._principal, self._thread_id)
        before: Any = params.get("before")
        start = history.get(before) if isinstance(before, str) else None
        if before is not None and (start is None or start.ns != ns):
            raise Refused("no_such_checkpoint", f"Checkpoint {str(before)[:100]!r} not found")
        revisions, time_slice = history.newest(ns, None if start is None else start.seq), TimeSlice()
        summaries: list[JsonObject] = []
        for revision in islice(revisions, min(limit, MAX_PAGE)):
            summaries.append(_summary(self._thread_id, revision))
            if time_slice.is_used_up:
                await time_slice.pause()
        return {"checkpoints": summaries}, 0

    async def _fork(self, params: JsonObject) -> tuple[JsonObject, int]:
        """Start a run from a checkpoint, with the agent of the thread's last run. Return the result and the number of
        the event before the run. Raises Refused for an unknown checkpoint, and on a thread without runs."""
        checkpoint: Any = get_member(params, "checkpoint_id")
        history = await read_history(self._hub, self._principal, self._thread_id)
        if not isinstance(checkpoint, str) or history.get(checkpoint) is None:
            raise Refused("no_such_checkpoint", f"Checkpoint {str(checkpoint)[:100]!r} not found")
        runs = list(history.fold.runs.values())
        body: JsonObject = {"checkpoint_id": checkpoint, "input": params.get("input")}
        if not runs:
            raise Refused("no_such_run", "The thread has had no run, so there is no agent that could continue.")
        result, seq = await self._launch(runs[-1].agent, params, body)
        return {**result, "thread_id": self._thread_id}, seq


def _no_event(*_: object) -> bool:
    return False


def _entries(params: JsonObject) -> list[JsonObject]:
    """Return the answers in the parameters of `input.respond`: the list `responses`, or the parameters themselves if
    there is only one. Raises Refused if `responses` is not a list of objects."""
    many: Any = params.get("responses")
    if many is None:
        return [params]
    if not isinstance(many, list) or not many or not all(isinstance(entry, dict) for entry in many):  # pyright: ignore[reportUnknownVariableType]
        raise Refused("invalid_argument", "input.respond requires at least one response, and each is an object.")
    return [as_object(entry) for entry in many]  # pyright: ignore[reportUnknownVariableType]


def _decode_response(entry: JsonObject, questions: list[Interrupt]) -> tuple[str, Json]:
    """Return the question id and the value of one answer. Raises Refused if the question is not open."""
    wire_id: Any = get_member(entry, "interrupt_id")
    if not isinstance(wire_id, str):
        raise Refused("invalid_argument", "input.respond requires an interrupt_id.")
    ns = strings(get_member(entry, "namespace") or [], "namespace")
    question = next((question for question in questions if question.interrupt_id == wire_id), None)
    if question is None:
        raise Refused("no_such_interrupt", f"Unknown or already-consumed interrupt: {wire_id[:100]}")
    if ns not in ((), question.ns):
        raise Refused("no_such_interrupt", "Interrupt namespace does not match the pending interrupt.")
    return wire_id, entry.get("response")


def _summary(thread_id: str, revision: Revision) -> JsonObject:
    return {
        "id": revision.checkpoint_id,
        "timestamp": state.format_time(revision.at),
        "step": revision.step,
        "node_name": revision.node,
        "metadata": state.encode_metadata(thread_id, revision),
    }
