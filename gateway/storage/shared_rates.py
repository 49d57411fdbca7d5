"""Counters of rate limits that the nodes of a cluster share, on PostgreSQL (GCRA, the generic cell rate algorithm).

One statement checks and charges all limits of a run. It has its own thread and connection, because the writer's
transactions are long. The table is not logged: after a crash of the server it is empty, and every caller has its whole
burst again."""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, LiteralString, Protocol, cast

from sqlalchemy import Connection, Engine

from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.unavailable import Unreachable, reason_of
from babelgate.gateway.storage.writer_link import discard

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("babelgate.journal")

_ADD: Final = "INSERT INTO rate (key, tat) SELECT key, 0 FROM unnest(%s::text[]) AS key ON CONFLICT DO NOTHING"
# The rows are locked in the order of their keys, so that two nodes do not wait for each other.
_TAKE: Final = """
WITH asked AS (SELECT * FROM unnest(%s::text[], %s::float8[], %s::float8[]) AS asked (key, cost, depth)),
locked AS MATERIALIZED (SELECT key, tat FROM rate WHERE key = ANY(%s::text[]) ORDER BY key FOR UPDATE),
clock AS MATERIALIZED (
    SELECT extract(epoch FROM clock_timestamp())::float8 AS now FROM (SELECT count(*) FROM locked) AS after
),
state AS MATERIALIZED (
    SELECT asked.key, cost, depth, now, greatest(tat - now, 0) AS used FROM asked JOIN locked USING (key), clock
),
charged AS (
    UPDATE rate SET tat = state.now + used + cost FROM state WHERE rate.key = state.key
    AND (SELECT bool_and(used + cost <= depth) AND count(*) = %s FROM state) RETURNING 1
)
SELECT key, used, (SELECT count(*) FROM charged) > 0 FROM state
"""
_GIVE_BACK: Final = """
UPDATE rate SET tat = tat - cost FROM unnest(%s::text[], %s::float8[]) AS asked (key, cost) WHERE rate.key = asked.key
"""
_CLEAN: Final = "DELETE FROM rate WHERE tat < extract(epoch FROM clock_timestamp()) - 3600"
_CLEAN_INTERVAL: Final = 600.0
"""Seconds between two deletions of rows that have limited nothing for an hour. Chosen."""


class Demand(Protocol):
    """Demand of one run under one rate limit. Implemented by `babelgate.gateway.runs.rates.RateDemand`.

    `key` names the counter, which is a time. `cost` is the time that the run adds to it, and `depth` the maximum time
    by which it may lie in the future, both in seconds.
    """

    @property
    def key(self) -> str: ...

    @property
    def cost(self) -> float: ...

    @property
    def depth(self) -> float: ...


class SharedRates:
    """Client of the table `rate`: it charges runs to rate limits that all nodes share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="babelgate-rates")
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._cleaned_at = time.monotonic()

    async def take(self, demands: Sequence[Demand]) -> tuple[bool, Sequence[float]]:
        """Charge a run to the counters of all its demands, or to none if one of them lacks room. Raises unavailable if
        the database cannot be reached.

        Return True if it was charged, and for each demand the time that earlier runs have used of its counter, in
        seconds."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._take, demands)

    async def give_back(self, demands: Sequence[Demand]) -> None:
        """Reverse a charge of `take`, for a run that was not started. Raises unavailable if the database cannot be
        reached."""
        values = ([each.key for each in demands], [each.cost for each in demands])
        await asyncio.get_running_loop().run_in_executor(self._pool, self._execute, _GIVE_BACK, values)

    async def stop(self, seconds: float) -> None:
        """Close the connection. A statement without a response within `seconds` is interrupted."""
        closing = asyncio.get_running_loop().run_in_executor(self._pool, self._close)
        done, _ = await asyncio.wait((closing,), timeout=seconds)
        if not done and self._engine is not None:
            self._database.abort(self._engine)
        self._pool.shutdown(wait=False)

    # In the thread

    def _take(self, demands: Sequence[Demand]) -> tuple[bool, Sequence[float]]:
        keys = [each.key for each in demands]
        values = (keys, [each.cost for each in demands], [each.depth for each in demands], keys, len(keys))
        rows = self._execute(_TAKE, values)
        if len(rows) < len(keys):
            self._execute(_ADD, (keys,))
            rows = self._execute(_TAKE, values)
        if time.monotonic() - self._cleaned_at > _CLEAN_INTERVAL:
            self._cleaned_at = time.monotonic()
            self._execute(_CLEAN, ())
        used = {key: before for key, before, _ in rows}
        return any(charged for _, _, charged in rows), [used.get(key, 0.0) for key in keys]

    def _execute(self, sql: LiteralString, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows. If the connection was lost, repeat it once on a new one. Raises
        unavailable if the database cannot be reached."""
        for is_last in (False, True):
            try:
                cursor = self._connect().execute(sql, values)
                return cursor.fetchall() if cursor.description else []
            except Exception as error:
                self._close_connection()
                if is_last:
                    log.error("rate limits not read error=%s", reason_of(error))
                    raise Unreachable from error
        raise AssertionError

    def _connect(self) -> "psycopg.Connection[Any]":
        if self._engine is None:
            self._engine = self._database.open_writer()
        if self._connection is not None and self._database.is_lost(self._connection):
            self._close_connection()
        if self._connection is None:
            self._connection = self._engine.connect()
            _driver(self._connection).execute("SET synchronous_commit = off")
        return _driver(self._connection)

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            discard(connection)

    def _close(self) -> None:
        self._close_connection()
        if self._engine is not None:
            self._engine.dispose()


def _driver(connection: Connection) -> "psycopg.Connection[Any]":
    return cast("psycopg.Connection[Any]", connection.connection.dbapi_connection)
