"""Conversion between inputs, states, threads and runs of LangGraph Platform and canonical ones. Messages are in
`message`, their content in `content`, streams in `write.run_frames`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid5

from babelgate.adapters.langchain.codec.interrupts import encode_graph_questions
from babelgate.adapters.langchain.codec.message import (
    decode_message,
    decode_messages,
    encode_agent_protocol_message,
    encode_message,
    encode_request,
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
_LAST_MICROSECOND: Final = 253_402_300_799_999_999
"""Largest time that `datetime` can express, in microseconds since 1970. Later times, such as a far start of a scheduled
run, are shown as this one."""
_ASSISTANT_NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""UUID namespace with which LangGraph derives the id of a graph's own assistant from the graph's name."""
_REMOVE_ALL: Final = "__remove_all__"
"""Id in a remove message that deletes all messages of the state."""

STATUSES: Final[Mapping[RunStatus, str]] = {
    RunStatus.PENDING: "pending",
    RunStatus.RUNNING: "running",
    RunStatus.SUCCESS: "success",
    RunStatus.ERROR: "error",
    RunStatus.TIMEOUT: "timeout",
    # langgraph-api 0.16.7: `interrupted` of a run means that it was cancelled.
    RunStatus.CANCELLED: "interrupted",
    # A run that stopped for a question has done all it could: the thread is interrupted, not the run.
    RunStatus.PAUSED: "success",
}
"""LangGraph's status of a run, by canonical status."""


def assistant_id(agent: str) -> str:
    # The same in langgraph-api 0.16.7, aegra 0.11.0 and @langchain/langgraph-api 2.0.0.
    """Return the UUID of the assistant that LangGraph creates for each agent, derived from the agent's name."""
    return str(uuid5(_ASSISTANT_NAMESPACE, agent))


def format_time(at_us: int) -> str:
    """Return a time in microseconds since 1970 as ISO 8601, in UTC."""
    return (_EPOCH + timedelta(microseconds=min(at_us, _LAST_MICROSECOND))).isoformat(timespec="microseconds")


def run_status(run: Run) -> str:
    return STATUSES[run.status]


# Inputs


@dataclass(frozen=True, slots=True)
class StateInput:
    """Decoded input of a run: messages, and other data."""

    messages: tuple[Message, ...] = ()
    data: Json = None
    """Input without its `messages`, or the whole input if it has none. None: no input apart from messages."""


def decode_input(value: Json) -> StateInput:
    """Decode the input of a run.

    A string is one message of the caller. A list of messages, or the member `messages` of an object, holds the
    messages. All else is data. Only null means no input: an empty object is empty data. Raises invalid for a malformed
    message.
    """
    if isinstance(value, str):
        return StateInput(messages=(decode_message(value),))
    if isinstance(value, list) and value and all(is_message(item) for item in value):
        return StateInput(messages=decode_messages(value))
    if isinstance(value, dict) and "messages" in value:
        other_members: JsonObject = {key: member for key, member in value.items() if key != "messages"}
        messages = decode_messages(value["messages"])
        return StateInput(messages=messages, data=other_members if other_members or not messages else None)
    return StateInput(data=value)


@dataclass(frozen=True, slots=True)
class Update:
    """Decoded update of a thread's state, as a caller requests it."""

    values: JsonObject
    """Members to set, without `messages`."""
    messages: tuple[Message, ...] = ()
    """Messages to add. One with the id of an existing message replaces it."""
    removed_ids: tuple[str, ...] = ()
    """Ids of messages to remove."""


def decode_update(values: Json, message_ids: Iterable[str] = ()) -> Update:
    """Decode an update of a thread's state: an object or a list of objects, applied in order. `message_ids` are the ids
    of the thread's messages; an update that removes all messages removes these. Raises invalid for any other value, and
    for a malformed message."""
    new_values: JsonObject = {}
    messages: dict[object, Message] = {}
    removed_ids: dict[str, None] = {}
    thread_ids = dict.fromkeys(message_ids)
    for item in values if isinstance(values, list) else [values]:
        if item is None:
            continue
        if not isinstance(item, dict):
            raise FaultError(FaultCode.INVALID, "The values of a state are an object, or a list of objects.")
        new_values.update((key, value) for key, value in item.items() if key != "messages")
        item_messages = item.get("messages")
        for message in (
            item_messages if isinstance(item_messages, list) else [] if item_messages is None else [item_messages]
        ):
            _apply_message(message, messages, removed_ids, thread_ids)
    return Update(new_values, tuple(messages.values()), tuple(removed_ids))


def _apply_message(
    message: Json, messages: dict[object, Message], removed_ids: dict[str, None], thread_ids: Mapping[str, None]
) -> None:
    """Apply one message of an update to `messages` and `removed_ids`: add it or, for a remove message, remove the
    message that it names. `thread_ids` are the ids of the thread's messages. Raises invalid for a malformed message."""
    target_id = removed_id(message)
    # `RemoveMessage(id=REMOVE_ALL_MESSAGES)` of langgraph 1.2.
    if target_id == _REMOVE_ALL:
        messages.clear()
        removed_ids.update(thread_ids)
    elif target_id is not None:
        if messages.pop(target_id, None) is None or target_id in thread_ids:
            removed_ids[target_id] = None
    else:
        decoded = decode_message(message)
        messages[decoded.message_id or object()] = decoded
        removed_ids.pop(decoded.message_id or "", None)


# States


def encode_values(revision: Revision | None) -> JsonObject:
    """Return the values of a state, with the thread's messages in the member `messages`, if there are any. Return {}
    for None, the state before the first revision."""
    if revision is None:
        return {}
    return upsert_messages(revision, [encode_message(message) for message in revision.messages])


def upsert_messages(revision: Revision, messages: Sequence[JsonObject]) -> JsonObject:
    """Return the values of a revision with `messages` appended to their member `messages`. A message replaces an
    existing message with the same id."""
    if not messages:
        return dict(revision.values)
    own_messages: Any = revision.values.get("messages")
    merged: list[Any] = list(own_messages) if isinstance(own_messages, list) else []  # pyright: ignore[reportUnknownArgumentType]
    ids: list[Any] = [as_object(each).get("id") for each in merged]
    places = {id_: place for place, id_ in enumerate(ids) if isinstance(id_, str)}
    for message in messages:
        place = places.get(message["id"] or "")
        if place is None:
            merged.append(message)
        else:
            merged[place] = message
    return {**revision.values, "messages": merged}


def state_messages(revision: Revision) -> list[JsonObject] | None:
    """Return all messages of a state in the Agent Protocol's form, for the member `messages` next to `values`. Return
    None if the state has no messages."""
    own_messages: Any = revision.values.get("messages")
    if not own_messages and not revision.messages:
        return None
    try:
        decoded = decode_messages(own_messages)
    except FaultError:  # the agent's own `messages` are not LangChain's
        decoded = ()
    merged: dict[str | int, Message] = {}
    for place, message in enumerate((*decoded, *revision.messages)):
        merged[place if message.message_id is None else message.message_id] = message
    return [encode_agent_protocol_message(message) for message in merged.values()]


def encode_checkpoint(thread_id: str, checkpoint_id: str | None, ns: tuple[str, ...] = ()) -> JsonObject | None:
    """Return the reference to a checkpoint, an object `{thread_id, checkpoint_ns, checkpoint_id}`. Return None if
    `checkpoint_id` is None."""
    if checkpoint_id is None:
        return None
    return {"thread_id": thread_id, "checkpoint_ns": "|".join(ns), "checkpoint_id": checkpoint_id}


def graph_task_id(checkpoint_id: str, node: str) -> str:
    """Return the UUID of a task, which in LangGraph is one node that continues from one checkpoint. It is derived from
    the node and the checkpoint, so that every response has the same id."""
    return str(uuid5(NAMESPACE_OID, f"{checkpoint_id}/{node}"))


def result_of(before: Revision | None, after: Revision) -> JsonObject:
    """Return the values that the step between two revisions wrote: members that changed, and new messages. All members
    of `after` count as written if `before` is None."""
    values = {} if before is None else before.values
    written = {
        key: value for key, value in after.values.items() if key not in values or not is_identical(values[key], value)
    }
    earlier_ids = set[str | None]() if before is None else {message.message_id for message in before.messages}
    messages = [encode_message(message) for message in after.messages if message.message_id not in earlier_ids]
    return {**written, "messages": messages} if messages else written


Inner = Callable[[str], JsonObject]
"""Function that describes the nested graph inside a node. Takes the node's name, and returns members `checkpoint` and
`state` for its task."""


def encode_state(
    thread_id: str,
    revision: Revision | None,
    then: Sequence[Revision] = (),
    inner: Inner | None = None,
    values: JsonObject | None = None,
) -> JsonObject:
    """Return a `ThreadState` for a revision, or the empty state of a thread without runs if it is None.

    `then` are the revisions that follow, which have the results of the tasks. `inner` describes the graphs inside the
    tasks' nodes. `values` replaces the values of the revision.
    """
    if revision is None:
        return {
            # langgraph-api 0.16.7 sends this for a thread without runs.
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
        "interrupts": encode_graph_questions(revision.questions),
        "checkpoint_id": revision.checkpoint_id,
        "parent_checkpoint_id": revision.parent_id,
    }


def encode_metadata(thread_id: str, revision: Revision) -> JsonObject:
    metadata: JsonObject = {"source": revision.source, "step": revision.step, "parents": {}, "thread_id": thread_id}
    if revision.run_id is not None:
        metadata["run_id"] = revision.run_id
    return metadata


def encode_tasks(revision: Revision, then: Sequence[Revision] = (), inner: Inner | None = None) -> list[JsonObject]:
    """Return the tasks that continue from a revision, one for each next node. `then` are the revisions that follow,
    which have the tasks' results. `inner` describes the graph inside a node.

    The first task gets all questions of the revision. Agents without their own state have only one task.
    """
    tasks: list[JsonObject] = []
    for node in revision.next:
        after = next((following for following in then if following.node == node and following.source == "loop"), None)
        error = None if revision.fault is None else encode_error(revision.fault)
        tasks.append(
            {
                "id": graph_task_id(revision.checkpoint_id, node),
                "name": node,
                # langgraph 1.2 has this path for a task that is triggered by an edge.
                "path": ["__pregel_pull", node],
                "error": None if error is None else f"{error['error']}: {error['message']}",
                "interrupts": [] if tasks else encode_graph_questions(revision.questions),
                "checkpoint": None,
                "state": None,
                "result": None if after is None else result_of(revision, after),
                **({} if inner is None else inner(node)),
            }
        )
    return tasks


# Threads


def encode_thread(view: ThreadView, history: StateHistory | None) -> JsonObject:
    """Return a thread in LangGraph's form. Without `history` it has no values, questions and error, as in lists whose
    caller did not select them."""
    head = None if history is None else history.head
    thread = view.thread
    messages = None if head is None else state_messages(head)
    wire: JsonObject = {
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
    # LangGraph has no such member. With it, the body is also a thread of the Agent Protocol.
    return wire if messages is None else {**wire, "messages": messages}


def thread_status(view: ThreadView, head: Revision | None) -> ThreadStatus:
    """Return LangGraph's status of a thread. An idle thread whose newest revision `head` has a next node is
    `interrupted`, even after a cancellation, as in langgraph-api 0.16.7."""
    return "interrupted" if view.status == "idle" and head is not None and head.next else view.status


def _thread_interrupts(view: ThreadView, history: StateHistory | None, head: Revision | None) -> JsonObject:
    """Return the open questions of an interrupted thread as `{task id: [interrupt, …]}`, or {} for other threads.
    `head` is the newest revision of `history`; None for either gives {}."""
    interrupts = [] if history is None else encode_graph_questions(history.fold.open_interrupts())
    if head is None or not interrupts or view.status != "interrupted":
        return {}
    # langgraph-api 0.16.7 lists them by the id of the task that asks.
    node = head.next[0] if head.next else head.node
    return {graph_task_id(head.checkpoint_id, node): interrupts}


def thread_error(history: StateHistory) -> JsonObject | None:
    """Return the error of the newest started run as `{error, message}`. Return None if that run did not fail, time out
    or get cancelled, or if another run superseded it."""
    runs = [run for run in history.fold.runs.values() if run.started_at is not None]
    last = runs[-1] if runs else None
    if last is None or last.reason is RunReason.SUPERSEDED:
        return None
    if last.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        return encode_error(last.fault)
    if last.status is not RunStatus.CANCELLED:
        return None
    rolled_back = last.reason is RunReason.ROLLED_BACK
    # langgraph-api 0.16.7 reports both cases with these names and texts.
    action, error = ("rollback", "UserRollback") if rolled_back else ("interrupt", "UserInterrupt")
    return {
        "error": error,
        "message": f"{action} requested via POST /threads/{{thread_id}}/runs/{{run_id}}/cancel",
    }


# Runs


def kwargs_of(created: RunCreated) -> JsonObject:
    """Return the request that created a run, for the member `kwargs`. A request of a LangGraph or Agent Protocol caller
    is returned unchanged.

    Stored requests contain no bytes of files, so an input with files is encoded again from the log, as are requests of
    other protocols.
    """
    kwargs = as_object(as_object(created.extra.get("langgraph")).get("kwargs"))
    if "input" in kwargs or "command" in kwargs:
        return kwargs
    messages = encode_request(created.messages, encode_message)
    run_input = {**members(created.data), "messages": messages} if messages else created.data
    return {"input": run_input, "config": created.config, **kwargs}


def encode_run(run: Run, created: RunCreated) -> JsonObject:
    name = run.assistant or run.agent
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "assistant_id": name if is_uuid(name) else assistant_id(run.agent),
        "created_at": format_time(max(run.created_at, run.start_after or 0)),
        "updated_at": format_time(run.ended_at or run.started_at or run.created_at),
        "status": run_status(run),
        "metadata": run_metadata(run, created),
        "kwargs": kwargs_of(created),
        "multitask_strategy": run.strategy,
    }


def run_metadata(run: Run, created: RunCreated | None = None) -> JsonObject:
    """Return the metadata of a run: the caller's and, if `created` was loaded, those that LangGraph's client added to a
    request with the Babelgate extension.

    The member `babelgate` has the ids that identify the run in every other protocol, and the run's usage, losses and
    names of output members.
    """
    client_metadata = {} if created is None else as_object(as_object(created.extra.get("langgraph")).get("metadata"))
    babelgate: JsonObject = {"thread_id": run.thread_id, "task_id": run.task_id, "run_id": run.run_id}
    if run.usage:
        babelgate["usage"] = run.usage
    if isinstance(run.output, dict) and run.output:
        # Names only: the values are in the state, next to other members.
        babelgate["output"] = list(run.output)
    if run.loss:
        babelgate["loss"] = losses_by_feature(run.loss)
    return {**client_metadata, **run.metadata, "babelgate": babelgate}


def revision_of(history: StateHistory, run: Run) -> Revision | None:
    """Return the state in which a run left the thread. If the run saved no state, return the thread's newest state, or
    None if it has no state."""
    return history.of_run(run.run_id) or history.head


def wait_result(history: StateHistory, run: Run) -> JsonObject:
    """Return the body of a finished `wait` or `join`: the values of the state after the run, with `__interrupt__` if it
    stopped for questions. A failed run has only `__error__`."""
    revision = revision_of(history, run)
    return wait_body(run, revision, encode_values(revision))


def wait_body(run: Run, revision: Revision | None, values: JsonObject) -> JsonObject:
    """Return the body of `wait_result` for a run, the state after it, and the values of that state."""
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        # langgraph-api 0.16.7: the status is 200, and langgraph-sdk 0.4.14 raises an error for this member.
        return {"__error__": encode_error(run.fault)}
    if (
        run.status is RunStatus.PAUSED
        and revision is not None
        and (interrupts := encode_graph_questions(revision.questions))
    ):
        # langgraph-api 0.16.7 and aegra 0.11.0.
        return {**values, "__interrupt__": interrupts}
    return values
