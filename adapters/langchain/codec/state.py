"""LangGraph Platform ↔ canonical: inputs and updates of state, in; threads, states and runs, out. Messages are in
`message`, their content in `content`, streams in `write.run_frames`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from babelgate.adapters.langchain.codec.interrupts import encode_asked
from babelgate.adapters.langchain.codec.message import (
    decode_message,
    decode_messages,
    encode_message,
    encode_request,
    encode_said,
    is_message,
    removed_id,
)
from babelgate.adapters.langchain.errors.encode import encode_error
from babelgate.canonical import (
    FaultCode,
    FaultError,
    Message,
    Revision,
    Run,
    RunReason,
    RunStatus,
    StateHistory,
    ThreadView,
)
from babelgate.canonical.event import RunCreated
from babelgate.canonical.history import members
from babelgate.canonical.json import as_object, is_identical
from babelgate.canonical.thread import ThreadStatus, losses_by_feature
from babelgate.canonical.value import Json, JsonObject, is_uuid

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = 253_402_300_799_999_999
"""The last microsecond that a date can tell: a run may be wanted for any time after it."""
_ASSISTANTS: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""LangGraph derives the id of a graph's own assistant from the graph's name in this namespace."""
_REMOVE_ALL: Final = "__remove_all__"

STATUSES: Final[Mapping[RunStatus, str]] = {
    RunStatus.PENDING: "pending",
    RunStatus.RUNNING: "running",
    RunStatus.SUCCESS: "success",
    RunStatus.ERROR: "error",
    RunStatus.TIMEOUT: "timeout",
    # langgraph-api 0.16.7: `interrupted` of a run means that it was cancelled.
    RunStatus.CANCELLED: "interrupted",
    # A run that stopped for a question did all it could: the thread, not the run, is interrupted.
    RunStatus.PAUSED: "success",
}


def assistant_id(agent: str) -> str:
    # The same in langgraph-api 0.16.7, aegra 0.11.0 and @langchain/langgraph-api 2.0.0.
    return str(uuid5(_ASSISTANTS, agent))


def format_time(at_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=min(at_us, _LAST))).isoformat(timespec="microseconds")


def run_status(run: Run) -> str:
    return STATUSES[run.status]


# Inputs


@dataclass(frozen=True, slots=True)
class Input:
    messages: tuple[Message, ...] = ()
    data: Json = None
    """All of it that is no message."""


def decode_input(value: Json) -> Input:
    """Messages are under `messages`, or the input is a list of them, or it is the caller's text. Whatever else there is
    is data. Only null is no input: an object without messages and members is empty data. Raises invalid."""
    if isinstance(value, str):
        return Input(messages=(decode_message(value),))
    if isinstance(value, list) and value and all(is_message(each) for each in value):
        return Input(messages=decode_messages(value))
    if isinstance(value, dict) and "messages" in value:
        others: JsonObject = {key: member for key, member in value.items() if key != "messages"}
        messages = decode_messages(value["messages"])
        return Input(messages=messages, data=others if others or not messages else None)
    return Input(data=value)


@dataclass(frozen=True, slots=True)
class Update:
    values: JsonObject
    messages: tuple[Message, ...] = ()
    removed_ids: tuple[str, ...] = ()
    """Ids of messages to leave out."""


def decode_update(values: Json, known: Iterable[str] = ()) -> Update:
    """Of a thread's state. `known` = the ids of the messages that it has: a message that removes all of them names
    none. Raises invalid."""
    given: JsonObject = {}
    said: dict[object, Message] = {}
    removed_ids: dict[str, None] = {}
    there = dict.fromkeys(known)
    for each in values if isinstance(values, list) else [values]:
        if each is None:
            continue
        if not isinstance(each, dict):
            raise FaultError(FaultCode.INVALID, "The values of a state are an object, or a list of objects.")
        given.update((key, value) for key, value in each.items() if key != "messages")
        spoken = each.get("messages")
        for message in spoken if isinstance(spoken, list) else [] if spoken is None else [spoken]:
            _take(message, said, removed_ids, there)
    return Update(given, tuple(said.values()), tuple(removed_ids))


def _take(message: Json, said: dict[object, Message], removed_ids: dict[str, None], known: Mapping[str, None]) -> None:
    removed = removed_id(message)
    # `RemoveMessage(id=REMOVE_ALL_MESSAGES)` of langgraph 1.2.
    if removed == _REMOVE_ALL:
        said.clear()
        removed_ids.update(known)
    elif removed is not None:
        if said.pop(removed, None) is None or removed in known:
            removed_ids[removed] = None
    else:
        decoded = decode_message(message)
        said[decoded.message_id or object()] = decoded
        removed_ids.pop(decoded.message_id or "", None)


# States


def encode_values(revision: Revision | None) -> JsonObject:
    """The members of the state, and `messages` once there are any."""
    if revision is None:
        return {}
    return upsert_messages(revision, [encode_message(message) for message in revision.messages])


def upsert_messages(revision: Revision, messages: Sequence[JsonObject]) -> JsonObject:
    """The values with `messages` behind those that they hold themselves: one with the same id takes its place."""
    if not messages:
        return dict(revision.values)
    held: Any = revision.values.get("messages")
    said: list[Any] = list(held) if isinstance(held, list) else []  # pyright: ignore[reportUnknownArgumentType]
    ids: list[Any] = [as_object(each).get("id") for each in said]
    places = {known: place for place, known in enumerate(ids) if isinstance(known, str)}
    for message in messages:
        place = places.get(message["id"] or "")
        if place is None:
            said.append(message)
        else:
            said[place] = message
    return {**revision.values, "messages": said}


def state_messages(revision: Revision) -> list[JsonObject] | None:
    """The messages of a state as the Agent Protocol shows them beside the values; None where there are none."""
    held: Any = revision.values.get("messages")
    if not held and not revision.messages:
        return None
    try:
        decoded = decode_messages(held)
    except FaultError:  # the agent's own `messages` are none of LangChain's
        decoded = ()
    said: dict[str | int, Message] = {}
    for place, message in enumerate((*decoded, *revision.messages)):
        said[place if message.message_id is None else message.message_id] = message
    return [encode_said(message) for message in said.values()]


def encode_checkpoint(thread_id: str, checkpoint_id: str | None, ns: tuple[str, ...] = ()) -> JsonObject | None:
    if checkpoint_id is None:
        return None
    return {"thread_id": thread_id, "checkpoint_ns": "|".join(ns), "checkpoint_id": checkpoint_id}


def graph_task_id(checkpoint_id: str, node: str) -> str:
    """What LangGraph calls a task: one node that goes on from one checkpoint."""
    return str(uuid5(NAMESPACE_OID, f"{checkpoint_id}/{node}"))


def result_of(before: Revision | None, after: Revision) -> JsonObject:
    """What the step between two revisions wrote."""
    values = {} if before is None else before.values
    written = {
        key: value for key, value in after.values.items() if key not in values or not is_identical(values[key], value)
    }
    known = set[str | None]() if before is None else {message.message_id for message in before.messages}
    said = [encode_message(message) for message in after.messages if message.message_id not in known]
    return {**written, "messages": said} if said else written


Inner = Callable[[str], JsonObject]
"""Of the node of a task, the members `checkpoint` and `state`: what is known of the graph within."""


def encode_state(
    thread_id: str,
    revision: Revision | None,
    then: Sequence[Revision] = (),
    inner: Inner | None = None,
    values: JsonObject | None = None,
) -> JsonObject:
    """`then` = the revisions that came of it: with them a state tells what its tasks wrote. `values` = what is told of
    them, where that is not `encode_values`."""
    if revision is None:
        return {
            # langgraph-api 0.16.7, of a thread that nothing ran on.
            "values": {},
            "next": [],
            "tasks": [],
            "metadata": None,
            "created_at": None,
            "checkpoint": None,
            "parent_checkpoint": None,
            "interrupts": [],
            "checkpoint_id": None,
            "parent_checkpoint_id": None,
        }
    return {
        "values": encode_values(revision) if values is None else values,
        "next": list(revision.next),
        "tasks": encode_tasks(revision, then, inner),
        "metadata": encode_metadata(thread_id, revision),
        "created_at": format_time(revision.at),
        "checkpoint": encode_checkpoint(thread_id, revision.checkpoint_id, revision.ns),
        "parent_checkpoint": encode_checkpoint(thread_id, revision.parent_id, revision.ns),
        "interrupts": encode_asked(revision.questions),
        "checkpoint_id": revision.checkpoint_id,
        "parent_checkpoint_id": revision.parent_id,
    }


def encode_metadata(thread_id: str, revision: Revision) -> JsonObject:
    made: JsonObject = {"source": revision.source, "step": revision.step, "parents": {}, "thread_id": thread_id}
    if revision.run_id is not None:
        made["run_id"] = revision.run_id
    return made


def encode_tasks(revision: Revision, then: Sequence[Revision] = (), inner: Inner | None = None) -> list[JsonObject]:
    """`then` = the revisions that came of it. The questions are the first node's: there is but one, unless the agent
    has a state of its own."""
    tasks: list[JsonObject] = []
    for node in revision.next:
        after = next((each for each in then if each.node == node and each.source == "loop"), None)
        error = None if revision.fault is None else encode_error(revision.fault)
        tasks.append(
            {
                "id": graph_task_id(revision.checkpoint_id, node),
                "name": node,
                # What langgraph 1.2 has for a task that an edge brought about.
                "path": ["__pregel_pull", node],
                "error": None if error is None else f"{error['error']}: {error['message']}",
                "interrupts": [] if tasks else encode_asked(revision.questions),
                "checkpoint": None,
                "state": None,
                "result": None if after is None else result_of(revision, after),
                **({} if inner is None else inner(node)),
            }
        )
    return tasks


# Threads


def encode_thread(view: ThreadView, history: StateHistory | None) -> JsonObject:
    """Without `history` neither values, questions nor error are shown, as where a list did not ask for them."""
    head = None if history is None else history.head
    thread = view.thread
    said = None if head is None else state_messages(head)
    made: JsonObject = {
        "thread_id": thread.thread_id,
        "created_at": format_time(thread.created_at),
        "updated_at": format_time(view.updated_at),
        "state_updated_at": format_time(thread.created_at if head is None else head.at),
        "metadata": thread.metadata,
        "status": thread_status(view, head),
        "config": thread.config,
        "values": encode_values(head),
        "interrupts": _thread_interrupts(view, history, head),
        "error": None if history is None else thread_error(history),
    }
    # Not a member of LangGraph's: with it the thread is one of the Agent Protocol's, too.
    return made if said is None else {**made, "messages": said}


def thread_status(view: ThreadView, head: Revision | None) -> ThreadStatus:
    """langgraph-api 0.16.7: a thread whose state has somewhere to go on to, and where nothing runs, is interrupted,
    also where it was cancelled."""
    return "interrupted" if view.status == "idle" and head is not None and head.next else view.status


def _thread_interrupts(view: ThreadView, history: StateHistory | None, head: Revision | None) -> JsonObject:
    asked = [] if history is None else encode_asked(history.fold.open_interrupts())
    if head is None or not asked or view.status != "interrupted":
        return {}
    # langgraph-api 0.16.7 lists them by the id of the task that asks.
    node = head.next[0] if head.next else head.node
    return {graph_task_id(head.checkpoint_id, node): asked}


def thread_error(history: StateHistory) -> JsonObject | None:
    """Of the newest run that was at work, if that is how it ended."""
    runs = [run for run in history.fold.runs.values() if run.started_at is not None]
    last = runs[-1] if runs else None
    if last is None or last.reason is RunReason.SUPERSEDED:
        return None
    if last.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        return encode_error(last.fault)
    if last.status is not RunStatus.CANCELLED:
        return None
    rolled_back = last.reason is RunReason.ROLLED_BACK
    # With these names and words langgraph-api 0.16.7 tells of either.
    action, error = ("rollback", "UserRollback") if rolled_back else ("interrupt", "UserInterrupt")
    return {
        "error": error,
        "message": f"{action} requested via POST /threads/{{thread_id}}/runs/{{run_id}}/cancel",
    }


# Runs


def kwargs_of(created: RunCreated) -> JsonObject:
    """What the caller asked for, verbatim where it was asked in one of these dialects. Bytes of files are not in it,
    so an input that brought some is told again, as other protocols' inputs are."""
    kwargs = as_object(as_object(created.extra.get("langgraph")).get("kwargs"))
    if "input" in kwargs or "command" in kwargs:
        return kwargs
    said = encode_request(created.messages, encode_message)
    again = {**members(created.data), "messages": said} if said else created.data
    return {"input": again, "config": created.config, **kwargs}


def encode_run(run: Run, created: RunCreated) -> JsonObject:
    asked = run.assistant or run.agent
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "assistant_id": asked if is_uuid(asked) else assistant_id(run.agent),
        "created_at": format_time(max(run.created_at, run.start_after or 0)),
        "updated_at": format_time(run.ended_at or run.started_at or run.created_at),
        "status": run_status(run),
        "metadata": run_metadata(run, created),
        "kwargs": kwargs_of(created),
        "multitask_strategy": run.strategy,
    }


def run_metadata(run: Run, created: RunCreated | None = None) -> JsonObject:
    """The caller's, with what its client has added beside what was said by the extension; and under `babelgate` what
    leads to the same run in every other protocol, and what no other member of a run tells."""
    added = {} if created is None else as_object(as_object(created.extra.get("langgraph")).get("metadata"))
    about: JsonObject = {"thread_id": run.thread_id, "task_id": run.task_id, "run_id": run.run_id}
    if run.usage:
        about["usage"] = run.usage
    if isinstance(run.output, dict) and run.output:
        # The values are in the state, where there is more.
        about["output"] = list(run.output)
    if run.loss:
        about["loss"] = losses_by_feature(run.loss)
    return {**added, **run.metadata, "babelgate": about}


def revision_of(history: StateHistory, run: Run) -> Revision | None:
    """The state in which a run left the thread; the thread's own where it left none."""
    return history.of_run(run.run_id) or history.head


def wait_result(history: StateHistory, run: Run) -> JsonObject:
    """The body of a wait and of a join."""
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        # langgraph-api 0.16.7: the status is 200, and langgraph-sdk 0.4.14 raises for this member.
        return {"__error__": encode_error(run.fault)}
    revision = revision_of(history, run)
    values = encode_values(revision)
    if run.status is RunStatus.PAUSED and revision is not None and (asked := encode_asked(revision.questions)):
        # langgraph-api 0.16.7 and aegra 0.11.0.
        values["__interrupt__"] = asked
    return values
