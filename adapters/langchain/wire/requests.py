"""Request bodies of both dialects, with their wire names. They share models because at the root only the body decides
which dialect the caller speaks."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from babelgate.canonical.hub import ThreadOrder
from babelgate.canonical.value import Json, JsonObject

MAX_PAGE: Final = 1000
"""Maximum number of items in a page (OpenAPI 0.1.6, RunSearchRequest.limit and similar)."""

Limit = Annotated[int, Field(strict=True, ge=1, le=MAX_PAGE)]
Offset = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Minutes = Annotated[float, Field(gt=0, le=10**9, strict=True)]
WebhookUrl = Annotated[str, Field(min_length=1, max_length=65536)]
Multitask = Literal["reject", "rollback", "interrupt", "enqueue"]
Durability = Literal["sync", "async", "exit"]
Status = Literal["idle", "busy", "interrupted", "error"]


class _Ask(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Ttl(_Ask):
    ttl: Minutes
    strategy: Literal["delete", "keep_latest"] = "delete"


class Checkpoint(BaseModel):
    model_config = ConfigDict(extra="allow")

    checkpoint_id: str | None = None
    checkpoint_ns: str | None = None


class _Update(_Ask):
    values: Json = None
    command: JsonObject | None = None
    as_node: str | None = None


class SuperStep(_Ask):
    updates: list[_Update]


class ThreadCreate(_Ask):
    thread_id: str | None = None
    metadata: JsonObject | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    ttl: Ttl | Minutes | None = None
    supersteps: list[SuperStep] | None = None


class ThreadPatch(_Ask):
    metadata: JsonObject | None = None
    ttl: Ttl | Minutes | None = None
    checkpoint: Checkpoint | None = None
    values: JsonObject | None = None
    messages: list[Json] | None = None


class ThreadCount(_Ask):
    metadata: JsonObject | None = None
    values: JsonObject | None = None
    status: Status | None = None


class ThreadSearch(ThreadCount):
    ids: list[str] | None = None
    limit: Limit = 10
    offset: Offset = 0
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[str] | None = None
    extract: dict[str, str] | None = None

    @property
    def order(self) -> ThreadOrder:
        """Canonical sort order for `sort_by`."""
        if self.sort_by is None:
            return "created_at"
        return "updated_at" if self.sort_by == "state_updated_at" else self.sort_by


class ThreadsPrune(_Ask):
    thread_ids: list[str]
    strategy: Literal["delete", "keep_latest"] = "delete"


class StateAt(_Ask):
    checkpoint: Checkpoint
    subgraphs: bool | None = None
    select: list[str] | None = None


class StateUpdate(_Ask):
    values: Json = None
    as_node: str | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_id: str | None = None


class HistorySearch(_Ask):
    limit: Limit = 10
    before: str | JsonObject | None = None
    metadata: JsonObject | None = None
    checkpoint: Checkpoint | None = None
    select: list[str] | None = None


class Config(BaseModel):
    model_config = ConfigDict(extra="allow")

    tags: list[str] | None = None
    recursion_limit: int | None = None
    configurable: JsonObject | None = None


class RunCreate(BaseModel):
    """Body of a request that creates a run, in either dialect. Members without a field are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    assistant_id: str | None = None
    agent_id: str | None = None
    thread_id: str | None = None
    input: Json = None
    messages: list[Json] | None = None
    command: JsonObject | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_id: str | None = None
    metadata: JsonObject | None = None
    config: Config | None = None
    context: JsonObject | None = None
    webhook: WebhookUrl | None = None
    interrupt_before: Literal["*"] | list[str] | None = None
    interrupt_after: Literal["*"] | list[str] | None = None
    stream_mode: str | list[str] | None = None
    stream_subgraphs: bool | None = None
    stream_resumable: bool | None = None
    feedback_keys: list[str] | None = None
    multitask_strategy: Multitask | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_completion: Json = None
    """`delete` or `keep`, for a run without a thread. Any JSON is accepted, because clients such as
    @langchain/langgraph-sdk 1.15 send other values, too."""
    after_seconds: Annotated[float, Field(ge=0, le=10**9, strict=True)] | None = None
    durability: Durability | None = None
    checkpoint_during: bool | None = None
    """Boolean that `durability` has replaced: true means `async`, false `exit`."""

    @property
    def durable(self) -> str | None:
        """The member `durability`, or the one that `checkpoint_during` corresponds to. None if the caller sent
        neither."""
        if self.durability is None and self.checkpoint_during is not None:
            return "async" if self.checkpoint_during else "exit"
        return self.durability


class RunSearch(_Ask):
    metadata: JsonObject | None = None
    status: Literal["pending", "running", "error", "success", "timeout", "interrupted"] | None = None
    thread_id: str | None = None
    agent_id: str | None = None
    limit: Limit = 10
    offset: Offset = 0


class RunsCancel(_Ask):
    status: Literal["pending", "running", "all"] | None = None
    thread_id: str | None = None
    run_ids: list[str] | None = None
