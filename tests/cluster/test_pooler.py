"""Gateways that read through a pooler in transaction mode: no two of their transactions need the same session.

Some tests of nodes, lists and the journal run again here.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from babelgate.canonical import FaultCode, FaultError, TaskState
from babelgate.gateway.storage import nodes as beats
from babelgate.gateway.storage import queries
from babelgate.gateway.storage.journal import Journal
from tests.cluster import test_live, test_questions
from tests.cluster.nodes import Nodes, ended
from tests.gateway.hubs import OWNER, HubFactory, Scripted, registered, submit, within
from tests.gateway.storage import test_journal, test_listing
from tests.gateway.storage.test_journal import Writing
from tests.poolers import POOLERS
from tests.postgres import empty, new_schema, url_of

_AGAIN: Final = (
    *((module, name) for module in (test_live, test_questions, test_listing) for name in vars(module)),
    (test_journal, "test_a_change_is_visible_before_its_caller_is_answered"),
    (test_journal, "test_pages_are_bounded_on_both_sides"),
    (test_journal, "test_a_page_of_large_records_is_bounded_by_bytes"),
    (test_journal, "test_all_statements_of_a_query_see_one_snapshot"),
    (test_journal, "test_readers_cannot_write"),
)
globals().update({name: getattr(module, name) for module, name in _AGAIN if name.startswith("test_")})


@pytest.fixture(params=POOLERS)
def pooler(request: pytest.FixtureRequest, postgres_tables: str) -> Generator[str]:
    with POOLERS[request.param](postgres_tables) as url:
        yield url


@pytest.fixture
async def cluster(
    tmp_path: Path, postgres_tables: str, pooler: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Nodes]:
    empty(postgres_tables)
    monkeypatch.setattr(beats, "BEAT", 0.05)
    monkeypatch.setattr(beats, "_OBSERVATION_TIME", 0.1)
    house = HubFactory(tmp_path, url_of(postgres_tables), pooler=pooler)
    yield Nodes(house, monkeypatch)
    await house.close()


@pytest.fixture
async def hubs(tmp_path: Path, postgres_tables: str, pooler: str) -> AsyncGenerator[HubFactory]:
    empty(postgres_tables)
    house = HubFactory(tmp_path, url_of(postgres_tables), pooler=pooler)
    yield house
    await house.close()


@pytest.fixture
async def writing(tmp_path: Path, postgres_tables: str, pooler: str) -> AsyncGenerator[Writing]:
    empty(postgres_tables)
    journal_setup = Writing(tmp_path, url_of(postgres_tables))
    journal_setup.journal = Journal(url_of(postgres_tables), on_commit=journal_setup.shown.extend, pooler=pooler)
    await journal_setup.open()
    yield journal_setup
    await within(journal_setup.journal.close())


def test_the_pooler_switches_sessions_between_transactions(pooler: str) -> None:
    """Check that the pooler really switches sessions. Otherwise these tests would prove nothing."""
    with (
        psycopg.connect(pooler, autocommit=True, prepare_threshold=None) as client,
        psycopg.connect(pooler, autocommit=True) as other,
    ):
        with other.transaction():
            other.execute("SELECT 1")
            client.execute("SELECT 1")  # a second session
        assert len({client.execute("SELECT pg_backend_pid()").fetchall()[0][0] for _ in range(6)}) > 1
        with client.transaction():
            assert len({client.execute("SELECT pg_backend_pid()").fetchall()[0][0] for _ in range(6)}) == 1
        with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
            psycopg.connect(f"{pooler}?options=-csearch_path%3Dother")


async def test_repeated_queries_are_not_prepared_in_a_session(cluster: Nodes) -> None:
    agent = Scripted()
    a = await cluster.start("a", registered("s", agent))
    b = await cluster.start("b", registered("s", Scripted()))
    receipt = await submit(a, "s")
    (await agent.called()).say("hello").end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED

    async def read() -> None:
        for _ in range(20):
            task = await b.journal.query(queries.task, OWNER, receipt.task_id)
            assert task is not None and task.state is TaskState.COMPLETED

    await within(asyncio.gather(*(read() for _ in range(8))))


async def test_a_pooler_of_another_schema_is_refused(pooler: str) -> None:
    with new_schema() as schema:
        for shared in (True, False):
            journal = Journal(url_of(schema), shared=shared, pooler=pooler)
            with pytest.raises(FaultError, match="does not lead to the database and schema") as refused:
                await journal.open()
            assert refused.value.fault.code is FaultCode.CONFLICT
