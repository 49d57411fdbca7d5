"""Databases of one kind: what SQLAlchemy compiles for one of them serves the others, and each has its own rows."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select
from sqlalchemy.sql.compiler import SQLCompiler

from babelgate.gateway.storage.database import migrate
from babelgate.gateway.storage.sqlite import open_engine
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import MetaRow

_META = table_of(MetaRow)


def test_a_statement_is_compiled_once_for_two_databases_and_each_answers_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    compile_one = SQLCompiler.__init__

    def initialize(self: SQLCompiler, *given: Any, **named: Any) -> None:
        compile_one(self, *given, **named)
        made.append(str(self))

    monkeypatch.setattr(SQLCompiler, "__init__", initialize)
    for name in ("a", "b"):
        engine = open_engine(f"sqlite:///{tmp_path / name}.db", writes=True, power=False)
        with engine.begin() as connection:
            migrate(connection)
            connection.execute(insert(_META).values(name="test_compiled", value=name))
            asked = select(_META.c.value.label("seen")).where(_META.c.name == "test_compiled")
            assert connection.execute(asked).scalars().all() == [name]
        engine.dispose()
    assert len([sql for sql in made if "AS seen" in sql]) == 1
