"""What callers ask of the store, names verbatim."""

from typing import Annotated

from pydantic import BaseModel, Field, RootModel

from babelgate.adapters.langchain.wire.requests import Limit, Minutes, Offset
from babelgate.canonical.value import JsonObject


class Put(BaseModel):
    """`index` is taken and has no use: there is no index of meanings."""

    namespace: list[str]
    key: str
    value: JsonObject
    ttl: Minutes | None = None


class Value(RootModel[JsonObject]):
    """Of an item that its path names."""


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
