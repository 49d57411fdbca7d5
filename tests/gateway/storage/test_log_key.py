"""Tests of the SQL conditions that find records by their thread and sequence number."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import ColumnElement, Connection, Integer, bindparam, literal, select

from babelgate.canonical.event import ThreadChanged
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.log_key import IN_ORDER, is_in_log, is_record, newest_seq
from babelgate.gateway.storage.log_pages import read_page
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import EventRow
from babelgate.gateway.storage.transaction import Transaction
from tests.gateway.hubs import within

EACH_DATABASE: Final = True
EVENT: Final = table_of(EventRow)
HUGE: Final = 2**40
"""Number with more bits than a sequence number has in SQLite's key."""


@pytest.fixture
async def journal(tmp_path: Path, postgres: str | None) -> AsyncGenerator[Journal]:
    """Journal with three threads of adjacent keys, each with the records 1 to 4."""
    opened = Journal(postgres or f"sqlite:///{tmp_path / 'journal.db'}")
    await opened.open()
    for name in ("a", "b", "c"):
        await opened.write(fill, name)
    yield opened
    await within(opened.close())


def fill(tx: Transaction, thread_id: str) -> None:
    state = tx.create_thread("o", thread_id, ThreadChanged())
    for _ in range(3):
        tx.append(state, ThreadChanged())


def find(connection: Connection, where: ColumnElement[bool], **values: Any) -> list[tuple[int, int]]:
    wanted = select(EVENT.c.thread_pk, EVENT.c.seq).where(where).order_by(EVENT.c.thread_pk, IN_ORDER)
    return [(pk, seq) for pk, seq in connection.execute(wanted, values)]


async def test_bounds_never_lead_to_another_thread(journal: Journal) -> None:
    every = [(2, seq) for seq in (1, 2, 3, 4)]
    cases: list[tuple[int | None, int | None, list[tuple[int, int]]]] = [
        (None, None, every),
        (1, 3, every[1:3]),
        (4, None, []),
        (3, 1, []),
        (-5, HUGE, every),
        (-HUGE, 2, every[:2]),
        (HUGE, None, []),
        (HUGE, HUGE, []),
        (None, -1, []),
        (-HUGE, -HUGE, []),
    ]
    for after, until, expected in cases:
        assert await journal.query(find, is_in_log(2, after=after, until=until)) == expected, (after, until)
        limits = (0 if after is None else after, HUGE if until is None else until)
        page = await journal.query(read_page, 2, limits[0], 4 * HUGE, limits[1])
        assert [(2, record.seq) for record in page] == expected, limits
    computed = is_in_log(literal(2), after=literal(1), until=literal(1) + 1)
    assert await journal.query(find, computed) == [(2, 2)]


async def test_one_record_is_found_by_its_number(journal: Journal) -> None:
    for seq, expected in ((4, [(2, 4)]), (5, []), (0, []), (-1, []), (HUGE, [])):
        assert await journal.query(find, is_record(2, seq)) == expected
    by_parameter = is_record(2, bindparam("b_seq", type_=Integer()))
    assert await journal.query(find, by_parameter, b_seq=3) == [(2, 3)]


async def test_the_newest_number_is_that_of_the_thread(journal: Journal) -> None:
    def newest(connection: Connection, pk: int) -> int | None:
        return connection.execute(select(newest_seq(pk))).scalar()

    assert [await journal.query(newest, pk) for pk in (1, 2, 3, 4)] == [4, 4, 4, None]
