"""What servers of the family answer, as far as it is read here: names verbatim, and nothing is refused for what it has
besides."""

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
    """State of a thread, outside a stream."""

    checkpoint: Configurable | None = None
    parent_checkpoint: Configurable | None = None
    values: Json = None
    metadata: CheckpointMetadata | None = None
    next: list[str] | None = None


class Interrupt(_Reply):
    id: str | None = None
    interrupt_id: str | None = None
    """Its name in LangGraph before 0.6."""
    value: Json = None
    response_schema: JsonObject | None = None
    message: str | None = None
    """The text beside data, of a gateway like this one."""
    kind: str | None = None
    """Of its questions that are no plain ones: approval, auth."""
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
