"""Key-value store (long-term memory): JSON objects under a namespace and a key, kept per owner beside all threads."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from babelgate.canonical.listed import Listed
from babelgate.canonical.value import JsonObject

Namespace = tuple[str, ...]
"""At least one label; no label is empty or holds a dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    namespace: Namespace
    key: str
    value: JsonObject
    created_at: int
    """Microseconds since 1970, UTC."""
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    prefix: Namespace = ()
    filter: JsonObject = field(default_factory=dict[str, object])
    """Members that the value must have: equal to the given one; for an object, those that it names; and for an object
    of operators (`$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`), as each of them says of its operand. A missing member
    satisfies only `$ne`."""
    text: str | None = None
    """Words to look for: items whose value holds them all, in any case."""
    limit: int = 10
    offset: int = 0
    refresh: bool = True
    """Whether the time to live of what is found starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceQuery:
    prefix: Namespace = ()
    """`*` matches any one label."""
    suffix: Namespace = ()
    max_depth: int | None = None
    """Longer namespaces are cut to this many labels."""
    limit: int = 100
    offset: int = 0


class Store(Protocol):
    async def put(self, owner: str, namespace: Namespace, key: str, value: JsonObject, ttl: int | None = None) -> None:
        """Create or replace. `ttl` = seconds after which it is gone. Raises invalid (a namespace or key that is
        none)."""
        ...

    async def get(self, owner: str, namespace: Namespace, key: str, *, refresh: bool = True) -> Item | None:
        """`refresh` starts the time to live again."""
        ...

    async def delete(self, owner: str, namespace: Namespace, key: str) -> bool:
        """Whether there was one."""
        ...

    async def search(self, owner: str, query: ItemQuery) -> Listed[Item]:
        """Newest change first."""
        ...

    async def namespaces(self, owner: str, query: NamespaceQuery) -> Sequence[Namespace]:
        """Sorted, each once."""
        ...
