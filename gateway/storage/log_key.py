"""Keys of the log: the SQL conditions and orders that find records by their thread and sequence number.

PostgreSQL's table has the columns `thread_pk` and `seq` as its primary key. SQLite's table has one integer, `id`, that
contains both, and computes the two columns from it. A row with a key of two columns would be stored in the inner nodes
of the B-tree, so every search would read the events that it passes, and an event may have megabytes. A condition on the
computed columns alone would read the whole table, so all queries of the log use the functions of this module."""

from operator import eq, gt, le
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Dialect,
    Integer,
    ScalarSelect,
    Table,
    and_,
    bindparam,
    column,
    func,
    insert,
    literal,
    literal_column,
    select,
    table,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from babelgate.gateway.storage.prepared import Insert, inserting
from babelgate.gateway.storage.tables import SEQ_BITS, EventRow

_EVENT: Final = cast("Table", cast("Any", EventRow).__table__)
_MAX_SEQ: Final = 2**SEQ_BITS - 1
_BITS: Final[ColumnElement[int]] = literal_column(str(SEQ_BITS))
_ID: Final[ColumnElement[int]] = literal_column("event.id", BigInteger())
"""Key of a record in SQLite. It is on the left of comparisons, because SQLAlchemy leaves a reference cycle for what is
there."""


class _Either(GenericFunction[Any]):
    """SQL expression with one form for PostgreSQL and another for SQLite."""

    name = "either"
    inherit_cache = True


@compiles(_Either)
def _in_postgresql(element: _Either, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(next(iter(element.clauses)), **options)


@compiles(_Either, "sqlite")
def _in_sqlite(element: _Either, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(list(element.clauses)[1], **options)


class _Condition(_Either):
    """SQL condition with one form for PostgreSQL and another for SQLite."""

    name = "condition"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: Any = None) -> Any:
        """Return the condition itself. SQLAlchemy would compare a function with 1, and SQLite then uses no index."""
        return self


IN_ORDER: Final[ColumnElement[int]] = _Either(_EVENT.c.seq, _ID, type_=Integer())
"""Sort key for the records of one thread."""


def is_in_log(
    pk: int | ColumnElement[int],
    *,
    after: int | ColumnElement[int] | None = None,
    until: int | ColumnElement[int] | None = None,
) -> ColumnElement[bool]:
    """Return the SQL condition for the records of a thread with a number above `after` and up to `until`.

    None means no bound. The numbers may come from callers: none of them leads to records of another thread."""
    plain = [_EVENT.c.thread_pk == pk]
    if after is not None:
        plain.append(_EVENT.c.seq > _number(after))
    if until is not None:
        plain.append(_EVENT.c.seq <= _number(until))
    above, last = _key(pk, 0 if after is None else after), _key(pk, _MAX_SEQ if until is None else until)
    packed = and_(_ID.operate(gt, above), _ID.operate(le, last))
    return _Condition(and_(*plain), packed)


def is_record(pk: int | ColumnElement[int], seq: int | ColumnElement[int]) -> ColumnElement[bool]:
    """Return the SQL condition for one record. `seq` must be a number that the log contains or could contain."""
    return _Condition(and_(_EVENT.c.thread_pk == pk, _EVENT.c.seq == _number(seq)), _ID.operate(eq, _key(pk, seq)))


_NEWEST: Final = func.max(IN_ORDER)
_NEWEST_SEQ: Final[ColumnElement[int]] = _Either(
    _NEWEST, _NEWEST.op("&")(literal_column(str(_MAX_SEQ))), type_=Integer()
)


def newest_seq(pk: int | ColumnElement[int]) -> ScalarSelect[int]:
    """Return a subquery for the number of the newest record of a thread, which is NULL if there is none."""
    return select(_NEWEST_SEQ).where(is_in_log(pk)).scalar_subquery()


def _number(value: int | ColumnElement[int]) -> ColumnElement[int]:
    """Return a number as SQL. PostgreSQL refuses one that is too large for the type of the column."""
    return literal(value, BigInteger()) if isinstance(value, int) else value


class _Packed(GenericFunction[int]):
    """Key of a record in SQLite, made of the key of a thread and a sequence number.

    A function, because SQLAlchemy's operators would leave a reference cycle for each of their results."""

    name = "packed"
    type = BigInteger()
    inherit_cache = True


@compiles(_Packed, "sqlite")
def _pack(element: _Packed, compiler: SQLCompiler, **options: Any) -> str:
    pk, seq = (compiler.process(each, **options) for each in element.clauses)
    return f"({pk} << {SEQ_BITS} | {seq})"


def _key(pk: int | ColumnElement[int], seq: int | ColumnElement[int]) -> ColumnElement[int]:
    """Return the key of a record in SQLite. A number outside of the range of sequence numbers becomes its nearest
    bound."""
    if isinstance(seq, int):
        seq = max(0, min(seq, _MAX_SEQ))
        if isinstance(pk, int):
            return literal((pk << SEQ_BITS) | seq, BigInteger())
        return _Packed(pk, literal_column(str(seq)))
    # SQLite's min and max are functions of two values; in other databases they only aggregate.
    return _Packed(_number(pk), func.max(literal_column("0"), func.min(seq, literal_column(str(_MAX_SEQ)))))


def inserting_events(dialect: Dialect) -> Insert:
    """Return the INSERT of records. Its parameters are the columns of `EventRow`, in order."""
    if dialect.name != "sqlite":
        return inserting(_EVENT, dialect)
    names = [each.name for each in _EVENT.columns]
    stored = [name for name in names if name not in ("thread_pk", "seq")]
    packed = table("event", column("id"), *map(column, stored))
    key = bindparam("thread_pk", type_=BigInteger()).op("<<")(_BITS).op("|")(bindparam("seq", type_=BigInteger()))
    values: dict[str, Any] = {"id": key, **{name: bindparam(name, type_=_EVENT.c[name].type) for name in stored}}
    return Insert(insert(packed).values(values), dialect, names)
