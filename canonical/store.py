"""Key-value store (long-term memory): JSON objects under a namespace and a key, by owner and independent of threads."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from babelgate.canonical.listed import Listed
from babelgate.canonical.principal import Principal
from babelgate.canonical.value import JsonObject

Namespace = tuple[str, ...]
"""Labels of a namespace, such as `("users", "42")`: at least one, none empty, none with a dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    namespace: Namespace
    key: str
    value: JsonObject
    created_at: int
    """Time of creation, in microseconds since 1970, UTC."""
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    prefix: Namespace = ()
    filter: JsonObject = field(default_factory=dict[str, object])
    """Conditions on members of an item's value, by the member's name.

    A plain condition must equal the member. A condition that is an object without operators names members that the
    member must have. An object of operators (`$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`) must satisfy each of them. A
    missing member satisfies only `$ne`.
    """
    text: str | None = None
    """Words to search for. An item matches if its value contains all of them, in any case."""
    limit: int = 10
    offset: int = 0
    refresh: bool = True
    """True to restart the time to live of the items found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceQuery:
    prefix: Namespace = ()
    """First labels of the namespaces to find; the label `*` matches any one label."""
    suffix: Namespace = ()
    max_depth: int | None = None
    """Maximum number of labels in a result: longer namespaces are cut to it, and equal ones are merged."""
    limit: int = 100
    offset: int = 0


class Store(Protocol):
    async def put(
        self, principal: Principal, namespace: Namespace, key: str, value: JsonObject, ttl: int | None = None
    ) -> None:
        """Create or replace an item. `ttl` is the time in seconds until it expires; None means never. Raises invalid (a
        wrong namespace or key)."""
        ...

    async def get(self, principal: Principal, namespace: Namespace, key: str, *, refresh: bool = True) -> Item | None:
        """Return an item, or None if the owner has no item with this key. `refresh` restarts its time to live."""
        ...

    async def delete(self, principal: Principal, namespace: Namespace, key: str) -> bool:
        """Delete an item. Return True if it existed."""
        ...

    async def search(self, principal: Principal, query: ItemQuery) -> Listed[Item]:
        """Return the matching items, most recently changed first."""
        ...

    async def namespaces(self, principal: Principal, query: NamespaceQuery) -> Sequence[Namespace]:
        """Return the owner's namespaces that match the query, sorted and without duplicates."""
        ...
