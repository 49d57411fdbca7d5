"""Assistants: an agent under a name of its own, configured by a caller, in versions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from babelgate.canonical.listed import Listed
from babelgate.canonical.value import JsonObject, Value


class Assistant(Value):
    assistant_id: str
    """A UUID."""
    agent: str
    name: str
    description: str | None = None
    config: JsonObject = {}
    context: JsonObject = {}
    metadata: JsonObject = {}
    version: int = 1
    created_at: int
    """Microseconds since 1970, UTC."""
    updated_at: int
    """Of a version, when it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantChange:
    """What another version has otherwise; None = as before."""

    agent: str | None = None
    name: str | None = None
    description: str | None = None
    config: JsonObject | None = None
    context: JsonObject | None = None
    metadata: JsonObject | None = None
    """Members to add or to replace."""


AssistantOrder = Literal["assistant_id", "agent", "name", "created_at", "updated_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantQuery:
    agents: frozenset[str] | None = None
    name: str | None = None
    """A part of the name, in any case."""
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Members that the metadata must have."""
    given: tuple[Assistant, ...] = ()
    """Those that every owner has, unless they have changed them: listed with the owner's own."""
    order: AssistantOrder = "created_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0


class Assistants(Protocol):
    """By owner; another owner's are not found."""

    async def create(self, owner: str, assistant: Assistant) -> Assistant:
        """Raises conflict (the id is taken), too_large."""
        ...

    async def get(self, owner: str, assistant_id: str) -> Assistant | None: ...

    async def change(
        self, owner: str, assistant_id: str, change: AssistantChange, given: Assistant | None = None
    ) -> Assistant:
        """Make the next version, which is the one in use. `given` = what every owner has under this id: it is the first
        version of an owner's own. Raises not_found, too_large."""
        ...

    async def use_version(self, owner: str, assistant_id: str, version: int) -> Assistant:
        """Take another version into use. Raises not_found."""
        ...

    async def delete(self, owner: str, assistant_id: str) -> bool:
        """With all versions; whether there was one."""
        ...

    async def search(self, owner: str, query: AssistantQuery) -> Listed[Assistant]: ...

    async def count(self, owner: str, query: AssistantQuery) -> int:
        """Of all pages."""
        ...

    async def versions(self, owner: str, assistant_id: str) -> Sequence[int]:
        """Newest first; none where the owner has no such assistant."""
        ...

    async def version(self, owner: str, assistant_id: str, version: int) -> Assistant | None: ...
