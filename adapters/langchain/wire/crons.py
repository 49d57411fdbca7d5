"""Request bodies for crons, with their wire names (LangGraph Platform)."""

from datetime import datetime
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from babelgate.adapters.langchain.wire.requests import Config, Durability, Limit, Multitask, Offset, WebhookUrl
from babelgate.canonical.value import Json, JsonObject

_CRON_MEMBERS: Final = frozenset(
    {"assistant_id", "schedule", "timezone", "end_time", "enabled", "on_run_completed", "metadata"}
)
"""Members of a request that configure the cron itself. All others become members of each run's request."""


class CronFields(BaseModel):
    """Body members that configure a cron and its runs. None: the caller did not send the member."""

    model_config = ConfigDict(extra="ignore")

    input: Json = None
    metadata: JsonObject | None = None
    config: Config | None = None
    context: JsonObject | None = None
    webhook: WebhookUrl | None = None
    interrupt_before: Literal["*"] | list[str] | None = None
    interrupt_after: Literal["*"] | list[str] | None = None
    multitask_strategy: Multitask | None = None
    stream_mode: str | list[str] | None = None
    stream_subgraphs: bool | None = None
    stream_resumable: bool | None = None
    durability: Durability | None = None
    checkpoint_during: bool | None = None
    end_time: datetime | None = None
    enabled: bool | None = None
    timezone: str | None = None
    on_run_completed: Literal["delete", "keep"] | None = None

    @property
    def request(self) -> JsonObject:
        """Body of the request that creates each run of the cron."""
        members = self.model_dump(mode="json", exclude_unset=True, exclude=set(_CRON_MEMBERS))
        return {name: value for name, value in members.items() if value is not None or name == "input"}


class CronCreate(CronFields):
    assistant_id: str
    schedule: str


class CronPatch(CronFields):
    schedule: str | None = None


class CronCount(BaseModel):
    assistant_id: str | None = None
    thread_id: str | None = None
    metadata: JsonObject | None = None


class CronSearch(CronCount):
    enabled: bool | None = None
    limit: Limit = 10
    offset: Offset = 0
    sort_by: (
        Literal["cron_id", "assistant_id", "thread_id", "next_run_date", "end_time", "created_at", "updated_at"] | None
    ) = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[str] | None = None
