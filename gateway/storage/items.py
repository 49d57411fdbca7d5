"""Key-value store (long-term memory) over the journal: JSON objects of an owner under a namespace and a key.

A namespace is stored as text, each label followed by a dot: `("users", "ann")` becomes `users.ann.`. Labels contain no
dots. So all namespaces with a common prefix are one range of the index, and different namespaces have different texts.
An expired item is not found, even if its row has not been deleted yet."""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.json import is_equal, is_text
from babelgate.canonical.listed import Listed
from babelgate.canonical.store import Item, ItemQuery, NamespaceQuery
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.audit import deletion
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.listing import create_listing
from babelgate.gateway.storage.needles import find_needles, has_needles
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.size import check_size
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import ItemRow
from babelgate.gateway.storage.transaction import Transaction

_ITEM = table_of(ItemRow)

_PAGE: Final = 256
"""Maximum number of expired rows that one command deletes. Chosen: other commands do not wait long for it."""
_MAX_NUMBER: Final = 2**62
"""Maximum time to live in microseconds, and maximum limit and offset of a page. Databases store integers of 64 bits."""

_MAX_QUERY: Final = 1024
"""Maximum length of a search text, in characters. Chosen: every word of it is searched in every value."""

Namespace = tuple[str, ...]

# Built once: building such a statement takes longer than executing it.
_NOW: Final = bindparam("now", type_=BigInteger)
_LIVES: Final = _ITEM.c.expires_at.is_(None) | (_ITEM.c.expires_at > _NOW)
_KEY: Final = (_ITEM.c.owner, _ITEM.c.namespace, _ITEM.c.key)
_AT: Final = and_(*(column == bindparam(f"at_{column.name}") for column in _KEY))
_COLUMNS: Final = (_ITEM.c.namespace, _ITEM.c.key, _ITEM.c.value, _ITEM.c.created_at, _ITEM.c.updated_at)
_EXPIRED: Final = select(*_KEY).where(_ITEM.c.expires_at <= _NOW).limit(_PAGE).with_for_update(skip_locked=True)

_GET: Final = select(*_COLUMNS, _ITEM.c.ttl).where(_AT, _LIVES)
_REPLACE: Final = update(_ITEM).where(_AT, _LIVES)
_REFRESH: Final = update(_ITEM).where(_AT, _LIVES).values(expires_at=_ITEM.c.ttl + _NOW)
_DELETE: Final = delete(_ITEM).where(_AT, _LIVES)
_CLEAR: Final = delete(_ITEM).where(_AT)
_INSERT: Final = insert(_ITEM)
_SWEEP: Final = delete(_ITEM).where(tuple_(*_KEY).in_(_EXPIRED))


class ItemStore:
    def __init__(self, journal: Journal, clock: Clock, limit: Callable[[], int]) -> None:
        """Create a store over a journal. `limit` returns the maximum size of one value, in bytes."""
        self._journal = journal
        self._limit = limit
        self._clock = clock
        self._began = clock.now() - clock.steady()

    def _now(self) -> int:
        """Return the current time for the expiry of items, in microseconds since 1970.

        It is the wall-clock time at the start plus the monotonic time since then. So a change of the system's clock
        expires no item."""
        return self._began + self._clock.steady()

    async def put(self, owner: str, namespace: Namespace, key: str, value: JsonObject, ttl: int | None = None) -> None:
        """Store an item, or replace it. `ttl` is its time to live in seconds; None means unlimited.

        Raises invalid, and too_large if the value exceeds the limit."""
        if not namespace:
            raise FaultError(FaultCode.INVALID, "namespace: must have at least one label")
        if not key:
            raise FaultError(FaultCode.INVALID, "key: must not be empty")
        check_size(self._limit(), value)
        if ttl is not None and not 0 < ttl <= _MAX_NUMBER // 1_000_000:
            raise FaultError(FaultCode.INVALID, "ttl: must be positive, and shorter than 100,000 years")
        span = None if ttl is None else ttl * 1_000_000
        await self._journal.write(self._put, at=_at(owner, namespace, key), body=_encode(value), span=span)

    def _put(self, tx: Transaction, at: Mapping[str, str], body: bytes, span: int | None) -> None:
        run, now, stamp = tx.connection.execute, self._now(), self._clock.now()
        run(_SWEEP, {"now": now})
        ends = None if span is None else now + span
        new = {"updated_at": stamp, "expires_at": ends, "ttl": span, "value": body}
        if not run(_REPLACE, {**at, "now": now, **new}).rowcount:
            run(_CLEAR, at)  # an expired item must not pass its created_at on to the one that replaces it
            key = {name.removeprefix("at_"): value for name, value in at.items()}
            run(_INSERT, {**key, **new, "created_at": stamp})

    async def get(self, owner: str, namespace: Namespace, key: str, *, refresh: bool = True) -> Item | None:
        at = _at(owner, namespace, key)
        row = await self._journal.query(_get, at=at, now=self._now())
        if row is None:
            return None
        *columns, ttl = row
        if refresh and ttl is not None:
            await self._journal.write(self._refresh, at=[at])
        return _item(*columns)

    def _refresh(self, tx: Transaction, at: Sequence[Mapping[str, str]]) -> None:
        now = self._now()
        tx.connection.execute(_REFRESH, [{**each, "now": now} for each in at])

    async def delete(self, owner: str, namespace: Namespace, key: str) -> bool:
        return await self._journal.write_audited(
            deletion("item", f"{'.'.join(namespace)}:{key}", owner), self._delete, at=_at(owner, namespace, key)
        )

    def _delete(self, tx: Transaction, at: Mapping[str, str]) -> bool:
        return tx.connection.execute(_DELETE, {**at, "now": self._now()}).rowcount > 0

    async def search(self, owner: str, query: ItemQuery) -> Listed[Item]:
        """Return one page of the items that match a query. Raises invalid for an invalid prefix, filter or page."""
        _check_filter(query.filter.values())
        _check_text_query(query.text)
        _check_page(query.limit, query.offset)
        where = _under(owner, query.prefix)
        matches = await self._journal.query(_search, where=where, query=query, now=self._now())
        ending = [_where(owner, *each.key) for each in matches if each.ttl is not None]
        if query.refresh and ending:
            await self._journal.write(self._refresh, at=ending)
        places = [(each.key, each.size) for each in matches]
        return create_listing(self._journal, places, partial(_items, owner=owner, now=self._now()))

    async def namespaces(self, owner: str, query: NamespaceQuery) -> Sequence[Namespace]:
        """Return one page of the namespaces that match a query, in order. Raises invalid for a wrong label, depth or
        page."""
        if query.max_depth is not None and query.max_depth < 1:
            raise FaultError(FaultCode.INVALID, "max_depth: must be at least 1")
        _check_page(query.limit, query.offset)
        _check_labels(query.suffix)
        # The labels before the first wildcard are a prefix, which the index of the key finds.
        plain = query.prefix[: query.prefix.index("*")] if "*" in query.prefix else query.prefix
        _check_labels(query.prefix)
        where = _under(owner, plain)
        return await self._journal.query(_namespaces, where=where, query=query, now=self._now())

    async def sweep(self) -> None:
        """Delete the expired items of all owners."""
        while await self._journal.write(self._sweep) == _PAGE:
            pass

    def _sweep(self, tx: Transaction) -> int:
        return tx.connection.execute(_SWEEP, {"now": self._now()}).rowcount


# Names


def _check_labels(labels: Namespace) -> None:
    for label in labels:
        _check_text(label, "namespace")
        if not label or "." in label:
            raise FaultError(FaultCode.INVALID, "namespace: a label must not be empty or contain a dot")


def _check_text(text: str, name: str) -> None:
    """Raise invalid for text with NUL or lone surrogates, which JSON strings may contain and databases refuse."""
    if "\0" in text or not is_text(text):
        raise FaultError(FaultCode.INVALID, f"{name}: must not contain NUL characters or lone surrogates")


def _check_text_query(text: str | None) -> None:
    if text is not None and len(text) > _MAX_QUERY:
        raise FaultError(FaultCode.INVALID, f"query: it is longer than {_MAX_QUERY} characters")


def _check_page(limit: int, offset: int) -> None:
    if not (0 <= limit <= _MAX_NUMBER and 0 <= offset <= _MAX_NUMBER):
        raise FaultError(FaultCode.INVALID, f"limit, offset: must be from 0 to {_MAX_NUMBER}")


def _text(labels: Namespace) -> str:
    return "".join(f"{label}." for label in labels)


def _at(owner: str, namespace: Namespace, key: str) -> dict[str, str]:
    _check_labels(namespace)
    _check_text(key, "key")
    return _where(owner, _text(namespace), key)


def _where(owner: str, namespace: str, key: str) -> dict[str, str]:
    return {"at_owner": owner, "at_namespace": namespace, "at_key": key}


def _under(owner: str, prefix: Namespace) -> ColumnElement[bool]:
    _check_labels(prefix)
    owned = _ITEM.c.owner == owner
    if not prefix:
        return owned & _LIVES
    text = _text(prefix)
    return owned & (_ITEM.c.namespace >= text) & (_ITEM.c.namespace < text[:-1] + chr(ord(".") + 1)) & _LIVES


def _matches(namespace: Namespace, query: NamespaceQuery) -> bool:
    if len(namespace) < max(len(query.prefix), len(query.suffix)):
        return False
    ends = (*zip(namespace, query.prefix, strict=False), *zip(namespace[::-1], query.suffix[::-1], strict=False))
    return all(wanted in ("*", label) for label, wanted in ends)


# Rows


def _encode(value: JsonObject) -> bytes:
    if not isinstance(cast("object", value), dict):
        raise FaultError(FaultCode.INVALID, "value: must be a JSON object")
    try:
        return encode_value(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise FaultError(FaultCode.INVALID, "value: must be JSON") from error


def encode_value(value: Json) -> bytes:
    """Return the JSON of a value as its row stores it. Searches compare parts of it byte by byte."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _item(namespace: str, key: str, value: bytes, created_at: int, updated_at: int) -> Item:
    labels = tuple(namespace[:-1].split("."))
    return Item(namespace=labels, key=key, value=json.loads(value), created_at=created_at, updated_at=updated_at)


def _get(connection: Connection, at: Mapping[str, str], now: int) -> Any:
    return connection.execute(_GET, {**at, "now": now}).first()


@dataclass(frozen=True, slots=True)
class _Match:
    key: tuple[str, str]
    """Text of the namespace, such as `users.ann.`, and the item's key."""
    updated_at: int
    ttl: int | None
    size: int

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort key: the negative time of the last change, so that the newest is first, then namespace and key."""
        return (-self.updated_at, *self.key)


def _search(connection: Connection, where: ColumnElement[bool], query: ItemQuery, now: int) -> list[_Match]:
    """Return the key, time to live and size of each item on one page of a search, the last changed first. `where` is
    the SQL condition for the items to search, whose parameter `now` is the time, in microseconds since 1970."""
    names = (_ITEM.c.namespace, _ITEM.c.key, _ITEM.c.updated_at, _ITEM.c.ttl)
    if not query.filter and not query.text:
        newest = select(*names, func.length(_ITEM.c.value)).where(where)
        newest = newest.order_by(_ITEM.c.updated_at.desc(), _ITEM.c.namespace, _ITEM.c.key)
        rows = connection.execute(newest.limit(query.limit).offset(query.offset), {"now": now})
        return [_Match((namespace, key), *rest) for namespace, key, *rest in rows]
    # Read all rows in table order, one by one, and keep only the newest of those that match.
    words = (query.text or "").casefold().split()
    preselected = has_needles(_ITEM.c.value, find_needles(_plain_members(query.filter), encode_value))
    selected = stream_rows(select(*names, _ITEM.c.value).where(where, *preselected))
    with closing(connection.execute(selected, {"now": now})) as rows:
        matching = (
            _Match((namespace, key), updated_at, ttl, len(value))
            for namespace, key, updated_at, ttl, value in rows
            if _is_match(json.loads(value), query.filter, words)
        )
        return nsmallest(query.offset + query.limit, matching, key=lambda match: match.order)[query.offset :]


def _items(connection: Connection, owner: str, now: int, *, keys: Sequence[Any]) -> dict[Any, Item]:
    items: dict[Any, Item] = {}
    for key in keys:
        row = connection.execute(_GET, {**_where(owner, *key), "now": now}).first()
        if row is not None:
            items[key] = _item(*row[:-1])
    return items


def _namespaces(connection: Connection, where: ColumnElement[bool], query: NamespaceQuery, now: int) -> list[Namespace]:
    rows = connection.execute(select(_ITEM.c.namespace).where(where).distinct(), {"now": now})
    namespaces = (tuple(namespace[:-1].split(".")) for (namespace,) in rows)
    matching = {namespace[: query.max_depth] for namespace in namespaces if _matches(namespace, query)}
    return sorted(matching)[query.offset : query.offset + query.limit]


# Filters


def _order_comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Json, Json], bool]:
    """Wrap a comparison such as `operator.gt` so that it is False unless both values are numbers or both are texts."""

    def is_in_order(one: Json, other: Json) -> bool:
        if isinstance(one, bool) or isinstance(other, bool):
            return False
        kinds = (str, int | float)
        return any(isinstance(one, kind) and isinstance(other, kind) for kind in kinds) and compare(one, other)

    return is_in_order


_OPERATORS: Final[dict[str, Callable[[Json, Json], bool]]] = {
    "$eq": is_equal,
    "$ne": lambda one, other: not is_equal(one, other),
    "$gt": _order_comparison(operator.gt),
    "$gte": _order_comparison(operator.ge),
    "$lt": _order_comparison(operator.lt),
    "$lte": _order_comparison(operator.le),
}


def _has_operators(condition: Json) -> bool:
    """Return True if a filter's condition is an object of operators, such as `{"$gt": 3}`."""
    return isinstance(condition, dict) and any(name.startswith("$") for name in condition)


def _check_filter(conditions: Iterable[Json]) -> None:
    for each in conditions:
        if isinstance(each, dict):
            if _has_operators(each) and (unknown := each.keys() - _OPERATORS.keys()):
                raise FaultError(FaultCode.INVALID, f"filter: unknown operator {min(unknown)[:40]!r}")
            if not _has_operators(each):
                _check_filter(each.values())
        elif isinstance(each, list):
            _check_filter(each)


def _plain_members(conditions: JsonObject) -> JsonObject:
    """Return the members that every matching value has, without conditions that are operators other than `$eq`."""
    members: JsonObject = {}
    for name, condition in conditions.items():
        if not isinstance(condition, dict):
            members[name] = condition
            continue
        inner = cast("JsonObject", condition)
        if not _has_operators(inner):
            members[name] = _plain_members(inner)
        elif "$eq" in inner:
            members[name] = inner["$eq"]
    return members


def _meets(has: Json, condition: Json) -> bool:
    """Return True if a value meets a filter's condition.

    A condition that is an object without operators tests only the members that it names."""
    if isinstance(condition, dict):
        if _has_operators(condition):
            return all(_OPERATORS[name](has, operand) for name, operand in condition.items())
        return isinstance(has, dict) and all(_member(has, name, each) for name, each in condition.items())
    if isinstance(condition, list):
        return isinstance(has, list) and len(has) == len(condition) and all(map(_meets, has, condition))
    return is_equal(has, condition)


def _member(value: JsonObject, name: str, condition: Json) -> bool:
    """Return True if the member `name` of an object meets a condition. A missing member meets only `$ne`, with any
    operand."""
    if name in value:
        return _meets(value[name], condition)
    return isinstance(condition, dict) and bool(condition) and condition.keys() == {"$ne"}


def _is_match(value: JsonObject, members: JsonObject, words: Sequence[str]) -> bool:
    if not all(_member(value, name, condition) for name, condition in members.items()):
        return False
    if not words:
        return True
    text = "\n".join(_strings(value)).casefold()
    return all(word in text for word in words)


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)
