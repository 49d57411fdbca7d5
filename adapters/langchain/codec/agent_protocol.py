"""Conversion between values of the Agent Protocol's own dialect and canonical ones.

A body is valid in both layouts of the protocol: that of the README, with the thread in the path, and that of OpenAPI
0.1.6. The member `messages` is next to `values`, not in it.
"""

from typing import Final

from babelgate.adapters.langchain.codec.interrupts import encode_interrupts
from babelgate.adapters.langchain.codec.message import encode_agent_protocol_message as encode_message
from babelgate.adapters.langchain.codec.message import encode_request
from babelgate.adapters.langchain.codec.state import (
    format_time,
    kwargs_of,
    revision_of,
    run_metadata,
    state_messages,
    thread_status,
)
from babelgate.adapters.langchain.codec.state import run_status as langgraph_status
from babelgate.adapters.langchain.errors.encode import encode_error
from babelgate.canonical import AgentInfo, Revision, Run, RunStatus, StateHistory, ThreadView
from babelgate.canonical.event import RunCreated
from babelgate.canonical.value import Json, JsonObject

_REPEATED_MEMBERS: Final = ("webhook", "on_completion", "on_disconnect", "if_not_exists", "stream_mode")
"""Members of the request that created a run which the run's description repeats at its top level."""

_MESSAGES_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {"messages": {"type": "array", "items": {"type": "object"}}},
}
"""JSON Schema of an object with a member `messages`, for agents that declare no schema."""


def run_status(run: Run) -> str:
    """Return the Agent Protocol's status of a run. A running run is `pending`, because neither layout has `running`. A
    run that stopped for a question is `interrupted`."""
    # OpenAPI 0.1.6, components.schemas.RunStatus: pending, error, success, timeout, interrupted.
    if run.status is RunStatus.RUNNING:
        return "pending"
    return "interrupted" if run.status is RunStatus.PAUSED else langgraph_status(run)


def encode_values(revision: Revision | None) -> JsonObject:
    """Return the values of a revision without their member `messages`, or {} for None, the state before the first
    revision."""
    if revision is None:
        return {}
    values = dict(revision.values)
    # OpenAPI 0.1.6, components.schemas.Thread.messages: a member next to the values.
    if isinstance(values.get("messages"), list):
        del values["messages"]
    return values


def encode_thread(view: ThreadView, history: StateHistory | None) -> JsonObject:
    head = None if history is None else history.head
    thread = view.thread
    return {
        "thread_id": thread.thread_id,
        "created_at": format_time(thread.created_at),
        "updated_at": format_time(view.updated_at),
        "metadata": thread.metadata,
        "status": thread_status(view, head),
        "values": encode_values(head),
        "messages": _messages(head),
    }


def _messages(revision: Revision | None) -> list[JsonObject]:
    return [] if revision is None else state_messages(revision) or []


def encode_state(thread_id: str, revision: Revision | None) -> JsonObject:
    if revision is None:
        return {"checkpoint": None, "values": {}, "messages": [], "metadata": {}}
    metadata: JsonObject = {"source": revision.source, "step": revision.step, "thread_id": thread_id}
    if revision.run_id is not None:
        metadata["run_id"] = revision.run_id
    return {
        # OpenAPI 0.1.6, components.schemas.ThreadCheckpoint: the id and nothing else.
        "checkpoint": {"checkpoint_id": revision.checkpoint_id},
        "values": encode_values(revision),
        "messages": _messages(revision),
        "metadata": metadata,
    }


def encode_run(run: Run, created: RunCreated) -> JsonObject:
    kwargs = kwargs_of(created)
    messages = encode_request(created.messages, encode_message)
    run_input: Json = kwargs["input"] if created.extra.get("langgraph") and "input" in kwargs else created.data
    wire: JsonObject = {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "agent_id": run.agent,
        "created_at": format_time(max(run.created_at, run.start_after or 0)),
        "updated_at": format_time(run.ended_at or run.started_at or run.created_at),
        "status": run_status(run),
        "metadata": run_metadata(run, created),
        "config": created.config,
        "input": run_input,
        "messages": messages,
        "kwargs": kwargs,
        "multitask_strategy": run.strategy,
    }
    return {**wire, **{key: kwargs[key] for key in _REPEATED_MEMBERS if kwargs.get(key) is not None}}


def encode_wait(history: StateHistory, run: Run, created: RunCreated) -> JsonObject:
    """Return the body of a finished wait: `run`, and the `values` and `messages` of the state in which the run left the
    thread. `status` is repeated at the top level, where the README's first example reads it."""
    revision = revision_of(history, run)
    wire: JsonObject = {
        "run": encode_run(run, created),
        "values": encode_values(revision),
        "messages": _messages(revision),
        "status": run_status(run),
    }
    if run.status is RunStatus.PAUSED and revision is not None:
        # Neither layout has a place for a question: it goes where LangGraph has it.
        wire["__interrupt__"] = encode_interrupts(revision.questions)
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        wire["__error__"] = encode_error(run.fault)
    return wire


# Agents


def encode_agent(info: AgentInfo) -> JsonObject:
    return {
        "agent_id": info.name,
        "name": info.name,
        "description": info.description,
        "metadata": {**info.metadata, "version": info.version},
        # OpenAPI 0.1.6, components.schemas.Agent.capabilities.
        "capabilities": {"ap.io.messages": True, "ap.io.streaming": True},
    }


def encode_schemas(info: AgentInfo) -> JsonObject:
    """Return the body with an agent's JSON Schemas of input, output, state and configuration. An agent that declares
    none takes and returns messages."""
    return {
        "agent_id": info.name,
        "input_schema": info.schemas.get("input", _MESSAGES_SCHEMA),
        "output_schema": info.schemas.get("output", _MESSAGES_SCHEMA),
        "state_schema": info.schemas.get("state", _MESSAGES_SCHEMA),
        "config_schema": info.schemas.get("config", {"type": "object"}),
    }
