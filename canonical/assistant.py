"""Assistants: agents that a caller has configured under another name, in versions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from babelgate.canonical.listed import Listed
from babelgate.canonical.principal import Principal
from babelgate.canonical.value import JsonObject, Value


class Assistant(Value):
    assistant_id: str
    """UUID of the assistant."""
    agent: str
    name: str
    description: str | None = None
    config: JsonObject = {}
    context: JsonObject = {}
    metadata: JsonObject = {}
    version: int = 1
    created_at: int
    """Time at which the first version was created, in microseconds since 1970, UTC."""
    updated_at: int
    """Time at which this version was created, in microseconds since 1970, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantChange:
    """Changes from which the next version of an assistant is made; a field that is None stays as it was in the version
    before."""

    agent: str | None = None
    name: str | None = None
    description: str | None = None
    config: JsonObject | None = None
    context: JsonObject | None = None
    metadata: JsonObject | None = None
    """Members to add to the metadata, or to replace in it; other members stay."""


AssistantOrder = Literal["assistant_id", "agent", "name", "created_at", "updated_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantQuery:
    agents: frozenset[str] | None = None
    name: str | None = None
    """Text that the name must contain, regardless of case."""
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Members that the assistant's metadata must have, with these values."""
    defaults: tuple[Assistant, ...] = ()
    """Assistants that every owner has without creating them, one for each agent. The result lists them with the owner's
    own assistants, except those of which the owner has a changed copy."""
    order: AssistantOrder = "created_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0


class Assistants(Protocol):
    """Store of assistants, by owner. Another owner's assistants are not found."""

    async def create(self, principal: Principal, assistant: Assistant) -> Assistant:
        """Create an assistant. Raises conflict (the id is taken), too_large."""
        ...

    async def get(self, principal: Principal, assistant_id: str) -> Assistant | None: ...

    async def change(
        self, principal: Principal, assistant_id: str, change: AssistantChange, default: Assistant | None = None
    ) -> Assistant:
        """Create the next version, make it the current one, and return it. Without `default`, the owner must have the
        assistant. `default` is the built-in assistant of this id: if the owner has no copy of it, one is made, whose
        first version is `default` and whose second is the change. Raises not_found, and too_large (the metadata, or the
        other fields together)."""
        ...

    async def use_version(self, principal: Principal, assistant_id: str, version: int) -> Assistant:
        """Make an existing version of an assistant, older or newer, the current one, and return it. Raises
        not_found."""
        ...

    async def delete(self, principal: Principal, assistant_id: str) -> bool:
        """Delete an assistant with all its versions. Return True if it existed."""
        ...

    async def search(self, principal: Principal, query: AssistantQuery) -> Listed[Assistant]: ...

    async def count(self, principal: Principal, query: AssistantQuery) -> int:
        """Return the number of assistants that match the query, on all pages."""
        ...

    async def versions(self, principal: Principal, assistant_id: str) -> Sequence[int]:
        """Return the version numbers, newest first. The list is empty if the owner has no such assistant."""
        ...

    async def version(self, principal: Principal, assistant_id: str, version: int) -> Assistant | None: ...
