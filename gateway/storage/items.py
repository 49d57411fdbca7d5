"""Key-value store (long-term memory) over the journal: JSON objects under a namespace and a key, by owner.

A namespace is kept as text, every label with a dot after it: no label holds a dot, so the namespaces under a prefix are
one range of the key, and no two namespaces share a text. An item whose time is over is not there, whether its row has
been swept yet or not.
"""

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
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.listing import create_listing
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.size import check_size
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import ItemRow
from babelgate.gateway.storage.transaction import Transaction

_ITEM = table_of(ItemRow)

_PAGE: Final = 256
"""Rows that are read at once, and rows that one command sweeps: no other command waits long for it."""
_LAST: Final = 2**62
"""Microseconds that a time to live may have, and rows that a page may begin after: what a database can count."""

_QUERY: Final = 1024
"""Characters of a text to look for: each of its words is looked for in each value."""

Namespace = tuple[str, ...]

# Written once: to put such a statement together takes longer than to execute it.
_NOW: Final = bindparam("now", type_=BigInteger)
_LIVES: Final = _ITEM.c.expires_at.is_(None) | (_ITEM.c.expires_at > _NOW)
_KEY: Final = (_ITEM.c.owner, _ITEM.c.namespace, _ITEM.c.key)
_AT: Final = and_(*(column == bindparam(f"at_{column.name}") for column in _KEY))
_COLUMNS: Final = (_ITEM.c.namespace, _ITEM.c.key, _ITEM.c.value, _ITEM.c.created_at, _ITEM.c.updated_at)
_OVER: Final = select(*_KEY).where(_ITEM.c.expires_at <= _NOW).limit(_PAGE).with_for_update(skip_locked=True)

_GET: Final = select(*_COLUMNS, _ITEM.c.ttl).where(_AT, _LIVES)
_REPLACE: Final = update(_ITEM).where(_AT, _LIVES)
_REFRESH: Final = update(_ITEM).where(_AT, _LIVES).values(expires_at=_ITEM.c.ttl + _NOW)
_DELETE: Final = delete(_ITEM).where(_AT, _LIVES)
_CLEAR: Final = delete(_ITEM).where(_AT)
_INSERT: Final = insert(_ITEM)
_SWEEP: Final = delete(_ITEM).where(tuple_(*_KEY).in_(_OVER))


class Store:
    def __init__(self, journal: Journal, clock: Clock, limit: int) -> None:
        """`limit` = bytes of one value."""
        self._journal = journal
        self._limit = limit
        self._clock = clock
        self._began = clock.now() - clock.steady()

    def _now(self) -> int:
        """The time by which items end: that of the day when the gateway was started, and what has passed since."""
        return self._began + self._clock.steady()

    async def put(self, owner: str, namespace: Namespace, key: str, value: JsonObject, ttl: int | None = None) -> None:
        """Raises invalid."""
        if not namespace:
            raise FaultError(FaultCode.INVALID, "namespace: must have at least one label")
        if not key:
            raise FaultError(FaultCode.INVALID, "key: must not be empty")
        check_size(self._limit, value)
        if ttl is not None and not 0 < ttl <= _LAST // 1_000_000:
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
        return await self._journal.write(self._delete, at=_at(owner, namespace, key))

    def _delete(self, tx: Transaction, at: Mapping[str, str]) -> bool:
        return tx.connection.execute(_DELETE, {**at, "now": self._now()}).rowcount > 0

    async def search(self, owner: str, query: ItemQuery) -> Listed[Item]:
        """Raises invalid (a prefix, a filter or a page that is none)."""
        _check_filter(query.filter.values())
        _check_text_query(query.text)
        _check_page(query.limit, query.offset)
        where = _under(owner, query.prefix)
        found = await self._journal.query(_search, where=where, query=query, now=self._now())
        ending = [_where(owner, *each.key) for each in found if each.ttl is not None]
        if query.refresh and ending:
            await self._journal.write(self._refresh, at=ending)
        places = [(each.key, each.size) for each in found]
        return create_listing(self._journal, places, partial(_items, owner=owner, now=self._now()))

    async def namespaces(self, owner: str, query: NamespaceQuery) -> Sequence[Namespace]:
        """Raises invalid."""
        if query.max_depth is not None and query.max_depth < 1:
            raise FaultError(FaultCode.INVALID, "max_depth: must be at least 1")
        _check_page(query.limit, query.offset)
        _check_labels(query.suffix)
        # What stands before the first wildcard is a prefix that the key can be searched for.
        plain = query.prefix[: query.prefix.index("*")] if "*" in query.prefix else query.prefix
        _check_labels(query.prefix)
        where = _under(owner, plain)
        return await self._journal.query(_namespaces, where=where, query=query, now=self._now())

    async def sweep(self) -> None:
        """Delete what is over, of all owners."""
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
    """NUL and lone surrogates are allowed in JSON's strings, and not in a database's. Raises invalid."""
    if "\0" in text or not is_text(text):
        raise FaultError(FaultCode.INVALID, f"{name}: must not contain NUL characters or lone surrogates")


def _check_text_query(text: str | None) -> None:
    if text is not None and len(text) > _QUERY:
        raise FaultError(FaultCode.INVALID, f"query: it is longer than {_QUERY} characters")


def _check_page(limit: int, offset: int) -> None:
    if not (0 <= limit <= _LAST and 0 <= offset <= _LAST):
        raise FaultError(FaultCode.INVALID, f"limit, offset: must be from 0 to {_LAST}")


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
    mine = _ITEM.c.owner == owner
    if not prefix:
        return mine & _LIVES
    text = _text(prefix)
    return mine & (_ITEM.c.namespace >= text) & (_ITEM.c.namespace < text[:-1] + chr(ord(".") + 1)) & _LIVES


def _matches(namespace: Namespace, query: NamespaceQuery) -> bool:
    if len(namespace) < max(len(query.prefix), len(query.suffix)):
        return False
    ends = (*zip(namespace, query.prefix, strict=False), *zip(namespace[::-1], query.suffix[::-1], strict=False))
    return all(asked in ("*", label) for label, asked in ends)


# Rows


def _encode(value: JsonObject) -> bytes:
    if not isinstance(cast("object", value), dict):
        raise FaultError(FaultCode.INVALID, "value: must be a JSON object")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise FaultError(FaultCode.INVALID, "value: must be JSON") from error


def _item(namespace: str, key: str, value: bytes, created_at: int, updated_at: int) -> Item:
    labels = tuple(namespace[:-1].split("."))
    return Item(namespace=labels, key=key, value=json.loads(value), created_at=created_at, updated_at=updated_at)


def _get(connection: Connection, at: Mapping[str, str], now: int) -> Any:
    return connection.execute(_GET, {**at, "now": now}).first()


@dataclass(frozen=True, slots=True)
class _Found:
    key: tuple[str, str]
    """Namespace and key."""
    updated_at: int
    ttl: int | None
    size: int

    @property
    def order(self) -> tuple[int, str, str]:
        """Newest first."""
        return (-self.updated_at, *self.key)


def _search(connection: Connection, where: ColumnElement[bool], query: ItemQuery, now: int) -> list[_Found]:
    """Where they are."""
    names = (_ITEM.c.namespace, _ITEM.c.key, _ITEM.c.updated_at, _ITEM.c.ttl)
    if not query.filter and not query.text:
        newest = select(*names, func.length(_ITEM.c.value)).where(where)
        newest = newest.order_by(_ITEM.c.updated_at.desc(), _ITEM.c.namespace, _ITEM.c.key)
        rows = connection.execute(newest.limit(query.limit).offset(query.offset), {"now": now})
        return [_Found((namespace, key), *rest) for namespace, key, *rest in rows]
    # Read as they stand in the table, one by one, and of those that match only the newest are kept.
    words = (query.text or "").casefold().split()
    found = stream_rows(select(*names, _ITEM.c.value).where(where))
    with closing(connection.execute(found, {"now": now})) as rows:
        matching = (
            _Found((namespace, key), updated_at, ttl, len(value))
            for namespace, key, updated_at, ttl, value in rows
            if _is_match(json.loads(value), query.filter, words)
        )
        return nsmallest(query.offset + query.limit, matching, key=lambda found: found.order)[query.offset :]


def _items(connection: Connection, owner: str, now: int, *, keys: Sequence[Any]) -> dict[Any, Item]:
    found: dict[Any, Item] = {}
    for key in keys:
        row = connection.execute(_GET, {**_where(owner, *key), "now": now}).first()
        if row is not None:
            found[key] = _item(*row[:-1])
    return found


def _namespaces(connection: Connection, where: ColumnElement[bool], query: NamespaceQuery, now: int) -> list[Namespace]:
    rows = connection.execute(select(_ITEM.c.namespace).where(where).distinct(), {"now": now})
    found = (tuple(namespace[:-1].split(".")) for (namespace,) in rows)
    matching = {namespace[: query.max_depth] for namespace in found if _matches(namespace, query)}
    return sorted(matching)[query.offset : query.offset + query.limit]


# Filters


def _order_comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Json, Json], bool]:
    """Numbers have an order, and so has text; nothing else, and not the one with the other."""

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


def _asks(asked: Json) -> bool:
    """Whether it is an object of operators."""
    return isinstance(asked, dict) and any(name.startswith("$") for name in asked)


def _check_filter(asked: Iterable[Json]) -> None:
    for each in asked:
        if isinstance(each, dict):
            if _asks(each) and (unknown := each.keys() - _OPERATORS.keys()):
                raise FaultError(FaultCode.INVALID, f"filter: unknown operator {min(unknown)[:40]!r}")
            if not _asks(each):
                _check_filter(each.values())
        elif isinstance(each, list):
            _check_filter(each)


def _holds(has: Json, asked: Json) -> bool:
    """What an object without operators asks for, it asks of the members that it names and of no others."""
    if isinstance(asked, dict):
        if _asks(asked):
            return all(_OPERATORS[name](has, operand) for name, operand in asked.items())
        return isinstance(has, dict) and all(_member(has, name, each) for name, each in asked.items())
    if isinstance(asked, list):
        return isinstance(has, list) and len(has) == len(asked) and all(map(_holds, has, asked))
    return is_equal(has, asked)


def _member(value: JsonObject, name: str, asked: Json) -> bool:
    """A member that is missing differs from everything, and that is all that can be said of it."""
    if name in value:
        return _holds(value[name], asked)
    return isinstance(asked, dict) and bool(asked) and asked.keys() == {"$ne"}


def _is_match(value: JsonObject, members: JsonObject, words: Sequence[str]) -> bool:
    if not all(_member(value, name, asked) for name, asked in members.items()):
        return False
    if not words:
        return True
    said = "\n".join(_strings(value)).casefold()
    return all(word in said for word in words)


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)
