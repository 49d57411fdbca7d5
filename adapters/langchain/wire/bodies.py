"""Types of the responses, for the OpenAPI document. `codec` builds the responses themselves from the canonical model.

Paths at the root use the dialect of LangGraph Platform, and paths below `/agent-protocol` that of the Agent Protocol.
Members of only one dialect are not required.
"""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from babelgate.canonical.value import Json, JsonObject


class Health(TypedDict):
    ok: bool
    services: JsonObject


class Info(TypedDict):
    version: str
    flags: dict[str, bool]
    host: JsonObject


class Thread(TypedDict):
    thread_id: str
    created_at: str
    updated_at: str
    state_updated_at: NotRequired[str]
    metadata: JsonObject
    status: str
    config: NotRequired[JsonObject]
    values: Json
    interrupts: NotRequired[JsonObject]
    """Lists of open questions, by the id of the task that asks them."""
    error: NotRequired[Json]
    messages: NotRequired[list[JsonObject]]
    ttl: NotRequired[JsonObject | None]
    """Time when the thread expires, only if the request selected `ttl`."""
    extracted: NotRequired[JsonObject]
    """Values at the paths in `extract` of a search, by the names that the caller chose."""


class Pruned(TypedDict):
    pruned_count: int


class State(TypedDict):
    values: Json
    next: NotRequired[list[str]]
    tasks: NotRequired[list[JsonObject]]
    metadata: JsonObject | None
    created_at: NotRequired[str | None]
    checkpoint: JsonObject | None
    parent_checkpoint: NotRequired[JsonObject | None]
    interrupts: NotRequired[list[JsonObject]]
    checkpoint_id: NotRequired[str | None]
    parent_checkpoint_id: NotRequired[str | None]
    messages: NotRequired[list[JsonObject]]


class Run(TypedDict):
    run_id: str
    thread_id: str
    assistant_id: NotRequired[str]
    agent_id: NotRequired[str]
    created_at: str
    updated_at: str
    status: str
    metadata: JsonObject
    kwargs: JsonObject
    multitask_strategy: str
    config: NotRequired[JsonObject]
    input: NotRequired[Json]
    messages: NotRequired[list[JsonObject]]
    # Members of the request that the Agent Protocol repeats.
    stream_mode: NotRequired[Json]
    if_not_exists: NotRequired[str]
    on_completion: NotRequired[str]
    on_disconnect: NotRequired[str]
    webhook: NotRequired[str]


class StateReference(TypedDict):
    """Reference to the revision that a change of the state has created."""

    checkpoint: NotRequired[JsonObject]
    checkpoint_id: NotRequired[str]
    configurable: NotRequired[JsonObject]


class EventSubscription(TypedDict):
    """Body of a request that subscribes to the events of a thread."""

    channels: list[str]
    namespaces: NotRequired[list[list[str]] | None]
    depth: NotRequired[int | None]
    since: NotRequired[int | None]


class Command(TypedDict):
    id: int
    method: str
    params: NotRequired[JsonObject]


class CommandReply(TypedDict):
    type: Literal["success", "error"]
    id: int | None
    result: NotRequired[Json]
    error: NotRequired[str]
    message: NotRequired[str]
    stacktrace: NotRequired[str]
    meta: NotRequired[JsonObject]


class Waited(TypedDict):
    """Body of a finished wait in the Agent Protocol."""

    run: Run
    values: JsonObject
    messages: list[JsonObject]
    status: str


class Agent(TypedDict):
    agent_id: str
    name: str
    description: str
    metadata: JsonObject
    capabilities: dict[str, bool]


class AgentSchemas(TypedDict):
    agent_id: str
    input_schema: JsonObject
    output_schema: JsonObject
    state_schema: JsonObject
    config_schema: JsonObject


class Assistant(TypedDict):
    assistant_id: str
    graph_id: str
    config: JsonObject
    context: JsonObject
    created_at: str
    updated_at: NotRequired[str]
    """Time of the last change; missing in a list of versions."""
    metadata: JsonObject
    version: int
    name: str
    description: str | None


class GraphSchemas(TypedDict):
    graph_id: str
    input_schema: JsonObject | None
    output_schema: JsonObject | None
    state_schema: JsonObject | None
    config_schema: JsonObject | None
    context_schema: JsonObject | None


class Graph(TypedDict):
    nodes: list[JsonObject]
    edges: list[JsonObject]


class Cron(TypedDict):
    cron_id: str
    assistant_id: str
    thread_id: str | None
    user_id: str
    end_time: str | None
    schedule: str
    timezone: str | None
    payload: JsonObject
    next_run_date: str | None
    metadata: JsonObject
    on_run_completed: str | None
    enabled: bool
    created_at: str
    updated_at: str


class Item(TypedDict):
    namespace: list[str]
    key: str
    value: JsonObject
    created_at: str
    updated_at: str


class Items(TypedDict):
    items: list[Item]


class Namespaces(TypedDict):
    namespaces: list[list[str]]


class Error(TypedDict):
    """Body of an error response: `detail` from LangGraph Platform, the other members from the Agent Protocol."""

    detail: NotRequired[Any]
    code: NotRequired[str]
    message: NotRequired[str]
    metadata: NotRequired[JsonObject]
