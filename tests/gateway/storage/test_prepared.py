"""Tests of prepared statements, which are compiled once and run with tuples."""

from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import bindparam, select, update
from sqlalchemy.exc import IntegrityError

from babelgate.gateway.storage.database import migrate, open_database
from babelgate.gateway.storage.prepared import Statement, inserting
from babelgate.gateway.storage.sqlite import open_engine
from babelgate.gateway.storage.statements import Sql, sql_of, table_of
from babelgate.gateway.storage.tables import MetaRow

_META = table_of(MetaRow)


def test_parameters_are_passed_in_the_order_of_their_names(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        insert = inserting(_META, engine.dialect)
        insert.run_many(connection, [("a", "1"), ("b", "2")])
        change = Statement(
            update(_META).where(_META.c.name == bindparam("b_name")).values(value=bindparam("b_value")),
            engine.dialect,
            ("b_name", "b_value"),
        )
        change.run(connection, ("a", "3"))
        change.run_many(connection, iter([("b", "4")]))
        value = Statement(select(_META.c.value).where(_META.c.name == bindparam("n")), engine.dialect, ("n",))
        assert [value.run(connection, (name,)) for name in ("a", "b", "c")] == [[("3",)], [("4",)], []]
        with pytest.raises(IntegrityError):
            insert.run_many(connection, [("c", "5"), ("a", "6")])
    engine.dispose()


def test_an_unknown_parameter_name_is_an_error(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    clause = select(_META.c.value).where(_META.c.name == bindparam("name"))
    for names in (("other",), (), ("name", "other")):
        with pytest.raises(ValueError, match="parameters"):
            Statement(clause, engine.dialect, names)
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite:///a.db", "postgresql://nobody@127.0.0.1/none"])
def test_cached_statements_equal_freshly_compiled_ones(url: str) -> None:
    writer, readers = open_database(url).open_writer().dialect, open_database(url).open_readers(1).dialect
    assert sql_of(writer) is sql_of(readers)
    compiled = _statements(Sql(writer))
    assert _statements(sql_of(writer)) == compiled
    assert len(compiled) > 10


def _statements(sql: Sql) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for name, each in vars(sql).items():
        several = cast("list[Any]", each if isinstance(each, list) else [each])
        found[name] = [vars(one) if isinstance(one, Statement) else {"value": one} for one in several]
    return found
