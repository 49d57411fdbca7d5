"""Request bodies for the store, with their wire names."""

from typing import Annotated

from pydantic import BaseModel, Field, RootModel

from babelgate.adapters.langchain.wire.requests import Limit, Minutes, Offset
from babelgate.canonical.value import JsonObject


class Put(BaseModel):
    """An item to store. `index` is accepted and ignored, because the store has no semantic index."""

    namespace: list[str]
    key: str
    value: JsonObject
    ttl: Minutes | None = None


class Value(RootModel[JsonObject]):
    """JSON object to store for the item in the path."""


class Delete(BaseModel):
    namespace: list[str] | None = None
    key: str


class Search(BaseModel):
    namespace_prefix: list[str] | None = None
    filter: JsonObject | None = None
    query: str | None = None
    limit: Limit = 10
    offset: Offset = 0
    refresh_ttl: bool | None = None


class Namespaces(BaseModel):
    prefix: list[str] | None = None
    suffix: list[str] | None = None
    max_depth: Annotated[int, Field(strict=True, ge=1)] | None = None
    limit: Limit = 100
    offset: Offset = 0
