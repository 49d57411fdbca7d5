"""Request bodies for agents and assistants, with their wire names."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from babelgate.adapters.langchain.wire.requests import Config, Limit, Offset
from babelgate.canonical.value import JsonObject


class Page(BaseModel):
    metadata: JsonObject | None = None
    limit: Limit = 10
    offset: Offset = 0


class AgentSearch(Page):
    name: str | None = None


class AssistantCount(BaseModel):
    metadata: JsonObject | None = None
    graph_id: str | None = None
    name: str | None = None


class AssistantWords(BaseModel):
    """Settings of an assistant in the body of a request. The requests that create and change an assistant add members
    to them."""

    config: Config | None = None
    context: JsonObject | None = None
    metadata: JsonObject | None = None
    name: str | None = None
    description: str | None = None


class AssistantCreate(AssistantWords):
    graph_id: str
    assistant_id: str | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None


class AssistantPatch(AssistantWords):
    graph_id: str | None = None


class Latest(BaseModel):
    version: Annotated[int, Field(strict=True, ge=1, lt=2**31)]


class AssistantSearch(AssistantCount, Page):
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[str] | None = None
