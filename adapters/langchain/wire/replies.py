"""Responses of upstream servers, with their wire names and only the members that the gateway reads. Unknown members are
accepted."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from babelgate.canonical.value import Json, JsonObject


class _Reply(BaseModel):
    model_config = ConfigDict(extra="allow")


# Streams


class Configurable(_Reply):
    checkpoint_id: str | None = None


class Config(_Reply):
    configurable: Configurable = Configurable()


class CheckpointMetadata(_Reply):
    source: str | None = None
    step: int | None = None


class Checkpoint(_Reply):
    config: Config = Config()
    parent_config: Config | None = None
    values: Json = None
    metadata: CheckpointMetadata | None = None
    next: list[str] | None = None


class State(_Reply):
    """State of a thread, as the route `/threads/{thread_id}/state` returns it."""

    checkpoint: Configurable | None = None
    parent_checkpoint: Configurable | None = None
    values: Json = None
    metadata: CheckpointMetadata | None = None
    next: list[str] | None = None


class Interrupt(_Reply):
    id: str | None = None
    interrupt_id: str | None = None
    """Id of the question in LangGraph before 0.6, which had no `id`."""
    value: Json = None
    response_schema: JsonObject | None = None
    message: str | None = None
    """Text of a question whose value is data, sent by another Babelgate."""
    kind: str | None = None
    """`approval` or `auth` for questions of these kinds, sent by another Babelgate."""
    ns: list[str] | None = None


class TaskStart(_Reply):
    id: str
    name: str
    input: Json = None
    triggers: list[str] | None = None
    metadata: JsonObject | None = None


class TaskResult(_Reply):
    id: str
    name: str
    error: Json = None
    result: Json = None
    interrupts: list[Interrupt] | None = None


class ErrorEvent(_Reply):
    error: Json = None
    message: Json = None


class Ended(_Reply):
    status: str | None = None


# Resources


class Run(_Reply):
    run_id: str
    thread_id: str | None = None
    status: str
    metadata: JsonObject | None = None


class Thread(_Reply):
    thread_id: str
    status: str | None = None
    values: Json = None
    messages: list[Json] | None = None
    interrupts: Json = None
    error: Json = None


class Assistant(_Reply):
    assistant_id: str
    graph_id: str
    name: str | None = None
    description: str | None = None
    metadata: JsonObject | None = None


class Agent(_Reply):
    agent_id: str
    name: str | None = None
    description: str | None = None
    metadata: JsonObject | None = None
    capabilities: dict[str, Any] | None = Field(default=None)


class Schemas(_Reply):
    input_schema: JsonObject | None = None
    output_schema: JsonObject | None = None
    state_schema: JsonObject | None = None
    config_schema: JsonObject | None = None
